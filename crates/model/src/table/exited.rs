//! Exited tasks: for each cgroup, the work that no earlier Sample reported.

use std::sync::Arc;

use crate::table::{Selected, Table, merge, tasks::append_accounts};
use crate::{Accounts, ExitedThreads, Figures, Hist, Interval, Sample, Totals, Wait, accounts, sum};

table! {
    /// The table: one row per cgroup.
    Exited: ExitedReading, by u64: |row| row.cgroup_id, "its exited tasks are not in the order of their cgroups";
    exited = |a, b| between(&a.exited, &b.exited), by |exited| exited.cgroup_id, ExitedInterval::append;

    /// Exited tasks are known only by cgroup, so a selection by name, CPU or node removes them.
    fn select(interval: &mut Interval, selected: &Selected<'_>) {
        let by_task = selected.filter.is_by_task();
        interval.exited.retain(|exited| !by_task && selected.has_cgroup(exited.cgroup_id));
    }
}

/// The exited tasks of a cgroup: the work that was not reported before they exited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExitedReading {
    /// The cgroup's id; 0: unknown.
    pub cgroup_id: u64,
    pub tasks: u64,
    /// Longest wait of any of these tasks in its life, ns.
    pub max_ns: u64,
    pub totals: Totals,
    /// Sums of the tasks' accounts; `None`: not requested. Not recorded.
    pub accounts: Option<Arc<Accounts>>,
    pub hist: Arc<Hist>,
}

impl ExitedReading {
    /// Adds a reading of other tasks of the same cgroup.
    pub fn add(&mut self, other: &Self) {
        sum::add(&mut self.tasks, other.tasks);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.totals.add(&other.totals);
        append_accounts(&mut self.accounts, other.accounts.clone());
        if !other.hist.is_empty() {
            Arc::make_mut(&mut self.hist).add(&other.hist);
        }
    }

    /// Returns the increase since an earlier reading; `None` if this reading started to count after it.
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            cgroup_id: self.cgroup_id,
            tasks: self.tasks.checked_sub(before.tasks)?,
            max_ns: self.max_ns,
            totals: self.totals.since(&before.totals)?,
            accounts: accounts::since(self.accounts.as_ref(), before.accounts.as_ref()),
            hist: Arc::new(self.hist.since(&before.hist)?),
        })
    }
}

/// Displayed name of exited tasks of which only the cgroup is known.
pub const ENDED: &str = "(tasks that ended between two Samples)";

#[derive(Clone, Debug, PartialEq)]
pub struct ExitedInterval {
    pub cgroup_id: u64,
    pub tasks: u64,
    /// The work that was not reported before these tasks exited.
    pub totals: Totals,
    pub accounts: Option<Accounts>,
    pub wait: Wait,
}

impl ExitedInterval {
    fn append(&mut self, next: Self) {
        sum::add(&mut self.tasks, next.tasks);
        self.totals.add(&next.totals);
        accounts::add_known(&mut self.accounts, next.accounts.as_ref());
        self.wait.add(&next.wait);
    }
}

pub(crate) fn between(a: &[ExitedReading], b: &[ExitedReading]) -> Vec<ExitedInterval> {
    let mut earlier = sum::earlier(a, |exited| exited.cgroup_id);
    b.iter()
        .filter_map(|now| {
            let before = earlier(now.cgroup_id);
            let new = before.map_or_else(|| Some(now.clone()), |before| now.since(before))?;
            let ExitedReading { cgroup_id, tasks, max_ns, totals, accounts, hist } = new;
            let max_before_ns = before.map_or(0, |before| before.max_ns);
            let wait = Wait::new(&totals, Arc::unwrap_or_clone(hist), max_before_ns, max_ns);
            // A task's exit may be read in parts. The last part reports no exited task.
            let nothing = tasks == 0 && totals == Totals::default() && wait.hist.is_empty();
            // The sum was scaled over all exited tasks so far, so the increase is split again in proportion to its ticks.
            let accounts = accounts
                .map(|accounts| Accounts { cpu: accounts.cpu.scaled_to(totals.on_cpu_ns), ..*accounts });
            (!nothing).then_some(ExitedInterval { cgroup_id, tasks, totals, accounts, wait })
        })
        .collect()
}

pub(crate) fn add_exited(exited: &mut Vec<ExitedInterval>, cgroup_id: u64, figures: Figures) {
    let Figures { totals, accounts, wait } = figures;
    if totals == Totals::default() && accounts.is_none() && wait == Wait::default() {
        return;
    }
    let accounts = accounts.map(|known| Accounts { exited_threads: ExitedThreads::default(), ..*known });
    let exit = ExitedInterval { cgroup_id, tasks: 0, totals, accounts, wait };
    match exited.binary_search_by_key(&cgroup_id, |exited| exited.cgroup_id) {
        Ok(at) => exited[at].append(exit),
        Err(at) => exited.insert(at, exit),
    }
}
