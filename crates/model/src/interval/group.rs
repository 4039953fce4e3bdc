//! Tasks taken together.

use std::collections::BTreeMap;

use super::{ExitedInterval, Interval, TaskInterval, Wait};
use crate::{Accounts, ByCause, Pending, Totals, accounts, hist::HistSum, sum, tree::Tree};
use std::sync::Arc;

/// Tasks taken together: a process, a cgroup, the whole host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Readings over the interval, exited tasks included where the grouping can tell.
    pub totals: Totals,
    /// Where the time went beside the waits; `None`: not asked for.
    pub accounts: Option<Accounts>,
    /// Completed waits.
    pub wait: Wait,
    /// Tasks waiting at the end of the interval.
    pub pending: u64,
    /// The longest of these waits so far, ns.
    pub pending_max_ns: u64,
    /// These waits so far, by cause, summed over tasks.
    pub pending_by_cause: ByCause,
    /// Threads at the end; of appended intervals, also those that were there at the end of an earlier one.
    pub threads: u64,
    /// Processes that have one of these threads.
    pub processes: u64,
    /// Tasks that exited.
    pub exited: u64,
}

/// A group in the making: adding moves nothing.
#[derive(Clone, Debug, Default)]
pub struct GroupSum {
    /// All but the distribution and the processes.
    group: Group,
    hist: HistSum,
}

impl GroupSum {
    /// Adds a task.
    pub fn add_task(&mut self, task: &TaskInterval) {
        self.add(&task.totals, task.accounts.as_deref(), &task.wait);
        let group = &mut self.group;
        group.threads += 1;
        if let Some(Pending { ns, by_cause, .. }) = &task.reading.pending {
            group.pending += 1;
            group.pending_by_cause.add(by_cause);
            group.pending_max_ns = group.pending_max_ns.max(*ns);
        }
    }

    /// Adds tasks that exited.
    pub fn add_exited(&mut self, exited: &ExitedInterval) {
        self.add(&exited.totals, exited.accounts.as_ref(), &exited.wait);
        sum::add(&mut self.group.exited, exited.tasks);
    }

    /// Adds all of a group but its processes: one may be in several groups.
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

    /// The group so far, of so many processes; the next one begins at nothing.
    pub fn take(&mut self, processes: u64) -> Group {
        let mut group = std::mem::take(&mut self.group);
        (group.processes, group.wait.hist) = (processes, self.hist.take());
        group
    }
}

impl Interval {
    /// All tasks and all that exited.
    pub fn total(&self) -> Group {
        let mut total = GroupSum::default();
        self.tasks.iter().for_each(|task| total.add_task(task));
        self.exited.iter().for_each(|exited| total.add_exited(exited));
        total.take(processes(&self.tasks))
    }

    /// All that exited.
    pub fn ended(&self) -> Group {
        let mut ended = GroupSum::default();
        self.exited.iter().for_each(|exited| ended.add_exited(exited));
        ended.take(0)
    }

    /// By cgroup path, each with all below it; `None` holds what is in cgroups whose path is not known.
    pub fn by_cgroup(&self) -> BTreeMap<Option<Arc<str>>, Group> {
        Tree::new(self).into_groups()
    }
}

/// How many processes these are threads of.
pub(crate) fn processes<'a>(tasks: impl IntoIterator<Item = &'a TaskInterval>) -> u64 {
    let mut processes: Vec<u32> = tasks.into_iter().map(|task| task.reading.tgid).collect();
    processes.sort_unstable();
    processes.dedup();
    processes.len() as u64
}
