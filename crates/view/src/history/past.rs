//! Sums of waits, and the waits of one subject over time.

use cgscope_layout::{BUCKETS, cause::CELLS};
use cgscope_model::{ByCause, Hist, TaskReading, Wait};

/// The span of the last minute, ns.
const MINUTE_NS: u64 = 60_000_000_000;

/// The waits of a subject in one interval.
#[derive(Clone, Debug)]
pub struct Past {
    pub(super) number: u64,
    /// End of the interval, wall clock, ns since 1970.
    pub end_unix_ns: u64,
    /// Length of the interval, ns.
    pub duration_ns: u64,
    /// The waits.
    pub wait: Wait,
}

impl Past {
    /// Average number of waiting tasks.
    pub fn waiting(&self) -> f64 {
        self.wait.total_ns as f64 / self.duration_ns.max(1) as f64
    }
}

/// The sum of all waits, and the length of that time, ns.
pub fn all(past: &[Past]) -> (Wait, u64) {
    let mut sum = Sum::default();
    past.iter().for_each(|one| sum.add(&one.wait));
    (sum.into_wait(), past.iter().fold(0, |sum, one| sum.saturating_add(one.duration_ns)))
}

/// The waits of the last minute, or of the available part of it; and the length of that time, ns.
pub fn last_minute(past: &[Past]) -> (Wait, u64) {
    let (mut sum, mut length_ns) = (Wait::default(), 0u64);
    for one in past.iter().rev() {
        if length_ns != 0 && length_ns.saturating_add(one.duration_ns) > MINUTE_NS {
            break;
        }
        sum.add(&one.wait);
        length_ns = length_ns.saturating_add(one.duration_ns);
    }
    (sum, length_ns)
}

/// A sum of waits that is fast to add to.
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

    /// Adds the waits of a task since its measurement began.
    pub(super) fn add_reading(&mut self, task: &TaskReading) {
        let totals = &task.totals;
        self.add_figures(totals.waits, totals.wait_ns, task.max_ns, &totals.by_cause);
        self.add_hist(&task.hist);
    }

    pub(super) fn into_wait(self) -> Wait {
        Wait { hist: Hist::from_counts(self.counts, self.shares), ..self.wait }
    }
}
