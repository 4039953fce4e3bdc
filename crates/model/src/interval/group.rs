//! Sums over groups of tasks.

use std::collections::BTreeMap;

use super::{Interval, Wait};
use crate::{
    Accounts, ByCause, ExitedInterval, Figures, Pending, TaskInterval, Totals, accounts, hist::HistSum, sum,
    tree::Tree,
};
use std::sync::Arc;

/// Several tasks together: a process, a cgroup, the whole host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Readings over the interval. Exited tasks are included where the grouping knows them.
    pub totals: Totals,
    /// Where the time went outside the waits; `None`: not requested.
    pub accounts: Option<Accounts>,
    /// Completed waits.
    pub wait: Wait,
    /// Tasks waiting at the end of the interval.
    pub pending: u64,
    /// The longest of these unfinished waits so far, ns.
    pub pending_max_ns: u64,
    /// These unfinished waits so far, by cause, summed over tasks.
    pub pending_by_cause: ByCause,
    /// Threads at the end. Appended intervals also count the threads at the end of each earlier interval.
    pub threads: u64,
    /// Processes that own these threads.
    pub processes: u64,
    /// Tasks that exited.
    pub exited: u64,
}

impl Group {
    /// Subtracts what a task did before it moved to another cgroup. Impossible figures, as a file may hold, change nothing.
    fn subtract(&mut self, whole: &Figures, task: &TaskInterval) {
        let before = |whole: &Totals| self.totals.since(&whole.since(&task.totals)?);
        let hist = |whole: &Wait| self.wait.hist.since(&whole.hist.since(&task.wait.hist)?);
        let (Some(totals), Some(hist)) = (before(&whole.totals), hist(&whole.wait)) else { return };
        if let (Some(sum), Some(whole), Some(here)) =
            (&mut self.accounts, whole.accounts.as_deref(), task.accounts.as_deref())
        {
            *sum = sum.since(&whole.since(here));
        }
        self.wait = Wait::new(&totals, hist, 0, self.wait.max_ns);
        self.totals = totals;
    }
}

/// Accumulates a group; adding moves no memory.
#[derive(Clone, Debug, Default)]
pub struct GroupSum {
    /// The sum, without the distribution and the processes.
    group: Group,
    hist: HistSum,
}

impl GroupSum {
    /// Adds a task, without what it did before a move to another cgroup: that is among the exited tasks.
    pub fn add_task(&mut self, task: &TaskInterval) {
        self.add(&task.totals, task.accounts.as_deref(), &task.wait);
        self.add_end(task);
    }

    /// Adds all that a task did, in whatever cgroups.
    pub fn add_whole_task(&mut self, task: &TaskInterval) {
        self.add(task.all_totals(), task.all_accounts(), task.all_waits());
        self.add_end(task);
    }

    fn add_end(&mut self, task: &TaskInterval) {
        let group = &mut self.group;
        group.threads += 1;
        if let Some(Pending { ns, by_cause, .. }) = task.reading.pending.as_deref() {
            group.pending += 1;
            group.pending_by_cause.add(by_cause);
            group.pending_max_ns = group.pending_max_ns.max(*ns);
        }
    }

    /// Adds tasks that did nothing.
    pub fn add_idle(&mut self, threads: u64) {
        self.group.threads += threads;
    }

    /// Adds tasks that exited.
    pub fn add_exited(&mut self, exited: &ExitedInterval) {
        self.add(&exited.totals, exited.accounts.as_ref(), &exited.wait);
        sum::add(&mut self.group.exited, exited.tasks);
    }

    /// Adds a group, except its processes: a process may be in several groups.
    pub fn add_group(&mut self, other: &Group) {
        self.add(&other.totals, other.accounts.as_ref(), &other.wait);
        let group = &mut self.group;
        group.pending += other.pending;
        group.pending_by_cause.add(&other.pending_by_cause);
        group.pending_max_ns = group.pending_max_ns.max(other.pending_max_ns);
        group.threads += other.threads;
        sum::add(&mut group.exited, other.exited);
    }

    fn add(&mut self, totals: &Totals, accounts: Option<&Accounts>, wait: &Wait) {
        let group = &mut self.group;
        group.totals.add(totals);
        accounts::add_known(&mut group.accounts, accounts);
        group.wait.add_figures(wait);
        self.hist.add(&wait.hist);
    }

    /// Returns the group with this number of processes, and resets the sum to zero.
    pub fn take(&mut self, processes: u64) -> Group {
        let mut group = std::mem::take(&mut self.group);
        (group.processes, group.wait.hist) = (processes, self.hist.take());
        group
    }
}

impl Interval {
    /// All tasks, including exited ones.
    pub fn total(&self) -> Group {
        let mut total = GroupSum::default();
        self.tasks.iter().for_each(|task| total.add_task(task));
        total.add_idle(self.idle.len() as u64);
        self.exited.iter().for_each(|exited| total.add_exited(exited));
        total.take(processes((0..self.tasks.len() + self.idle.len()).map(|place| self.reading(place).tgid)))
    }

    /// All exited tasks, without what tasks that are still there did before a move.
    pub fn ended(&self) -> Group {
        let mut ended = GroupSum::default();
        self.exited.iter().for_each(|exited| ended.add_exited(exited));
        let mut ended = ended.take(0);
        for (task, whole) in self.tasks.iter().filter_map(|task| Some((task, task.whole.as_deref()?))) {
            ended.subtract(whole, task);
        }
        ended
    }

    /// Groups by cgroup path, each with all cgroups below it; `None` holds the tasks of cgroups without a known path.
    pub fn by_cgroup(&self) -> BTreeMap<Option<Arc<str>>, Group> {
        Tree::new(self).into_groups()
    }
}

/// The number of processes, from the process id of each thread.
pub(crate) fn processes(of_threads: impl Iterator<Item = u32>) -> u64 {
    let mut processes: Vec<u32> = of_threads.collect();
    processes.sort_unstable();
    processes.dedup();
    processes.len() as u64
}
