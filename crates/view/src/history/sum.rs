//! Waits added up.

use cgscope_layout::{BUCKETS, cause::CELLS};
use cgscope_model::{ByCause, Hist, TaskReading, Wait};

/// Waits added up, quickly.
pub(super) struct Sum {
    wait: Wait,
    pub(super) counts: [u64; BUCKETS],
    pub(super) shares: [u64; CELLS],
}

impl Default for Sum {
    fn default() -> Self {
        Self { wait: Wait::default(), counts: [0; BUCKETS], shares: [0; CELLS] }
    }
}

impl Sum {
    pub(super) fn add_figures(&mut self, count: u64, total_ns: u64, max_ns: u64, by_cause: &ByCause) {
        let wait = &mut self.wait;
        wait.count = wait.count.saturating_add(count);
        wait.total_ns = wait.total_ns.saturating_add(total_ns);
        wait.max_ns = wait.max_ns.max(max_ns);
        wait.by_cause.add(by_cause);
    }

    pub(super) fn add(&mut self, wait: &Wait) {
        self.add_figures(wait.count, wait.total_ns, wait.max_ns, &wait.by_cause);
        self.add_hist(&wait.hist);
    }

    fn add_hist(&mut self, hist: &Hist) {
        hist.counts().for_each(|(cell, count)| self.counts[cell] = self.counts[cell].saturating_add(count));
        hist.shares().for_each(|(cell, share)| self.shares[cell] = self.shares[cell].saturating_add(share));
    }

    /// What a task waited since it is followed.
    pub(super) fn add_reading(&mut self, task: &TaskReading) {
        let totals = &task.totals;
        self.add_figures(totals.waits, totals.wait_ns, task.max_ns, &totals.by_cause);
        self.add_hist(&task.hist);
    }

    pub(super) fn into_wait(self) -> Wait {
        Wait { hist: Hist::from_counts(self.counts, self.shares), ..self.wait }
    }
}
