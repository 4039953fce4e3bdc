//! Sums over groups of tasks, the processes of tasks, and the time of threads by activity.

use std::collections::BTreeMap;

use cgscope_ledger::{BUCKETS, cause::CELLS};
use itertools::Itertools;

use super::{Interval, Wait};
use crate::{
    Accounts, ByCause, ByState, Cause, ExitedInterval, Figures, Hist, Pending, TaskInterval, Totals,
    accounts, hist::Dense, sum,
};

/// Several tasks together: a process, a cgroup, the whole host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Figures over the interval. Exited tasks are included where the grouping knows them.
    pub totals: Totals,
    pub accounts: Option<Accounts>,
    pub wait: Wait,
    /// Number of tasks waiting at the end of the interval.
    pub pending: u64,
    /// Longest of these pending waits so far, ns.
    pub pending_max_ns: u64,
    /// These pending waits so far, by cause, summed over tasks.
    pub pending_by_cause: ByCause,
    /// Number of threads at the end. Appended intervals also count the threads at the end of each earlier interval.
    pub threads: u64,
    pub processes: u64,
    pub exited: u64,
}

impl Group {
    /// Subtracts a task's work before it moved to another cgroup. Impossible figures, which a file may hold, change nothing.
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
    /// The sum, without the distribution and the number of processes.
    group: Group,
    counts: Dense<BUCKETS>,
    shares: Dense<CELLS>,
}

impl GroupSum {
    /// Adds a task, without its work before a move to another cgroup: the exited tasks include that work.
    pub fn add_task(&mut self, task: &TaskInterval) {
        self.add(&task.totals, task.accounts.as_deref(), &task.wait);
        self.add_end(task);
    }

    /// Adds all work of a task, in all cgroups.
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

    /// Adds tasks that were not active.
    pub fn add_idle(&mut self, threads: u64) {
        self.group.threads += threads;
    }

    pub fn add_exited(&mut self, exited: &ExitedInterval) {
        self.add(&exited.totals, exited.accounts.as_ref(), &exited.wait);
        sum::add(&mut self.group.exited, exited.tasks);
    }

    /// Adds a group, except its processes, because a process may be in several groups.
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
        self.counts.add(&wait.hist.counts);
        self.shares.add(&wait.hist.shares);
    }

    /// Returns the group with this number of processes, and resets the sum.
    pub fn take(&mut self, processes: u64) -> Group {
        let mut group = std::mem::take(&mut self.group);
        group.processes = processes;
        group.wait.hist = Hist { counts: self.counts.take(), shares: self.shares.take() };
        group
    }
}

impl Interval {
    /// Returns the sum of all tasks, including exited tasks.
    pub fn total(&self) -> Group {
        let mut total = GroupSum::default();
        self.tasks.iter().for_each(|task| total.add_task(task));
        total.add_idle(self.idle.len() as u64);
        self.exited.iter().for_each(|exited| total.add_exited(exited));
        let places = 0..self.tasks.len() + self.idle.len();
        let processes = places.map(|place| self.reading(place).tgid).sorted_unstable().dedup();
        total.take(processes.count() as u64)
    }

    /// Returns the sum of all exited tasks, excluding the work of living tasks before a move.
    pub fn ended(&self) -> Group {
        let mut ended = GroupSum::default();
        self.exited.iter().for_each(|exited| ended.add_exited(exited));
        let mut ended = ended.take(0);
        for (task, whole) in self.tasks.iter().filter_map(|task| Some((task, task.whole.as_deref()?))) {
            ended.subtract(whole, task);
        }
        ended
    }

    /// Returns living tasks by process, ascending by process id, then by age. Exited tasks are known only by cgroup.
    pub fn processes(&self) -> Vec<Process> {
        let mut same_id: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        self.places().for_each(|place| same_id.entry(self.reading(place).tgid).or_default().push(place));
        let mut sum = GroupSum::default();
        let lives = same_id.into_iter().flat_map(|(pid, threads)| {
            self.lives(pid, threads).into_values().map(move |threads| (pid, threads))
        });
        let process = |(pid, threads): (u32, Vec<usize>)| {
            for place in &threads {
                match self.tasks.get(*place) {
                    Some(task) => sum.add_whole_task(task),
                    None => sum.add_idle(1),
                }
            }
            let main = threads.iter().find(|place| self.reading(**place).tid == pid);
            Process { pid, named_by: *main.unwrap_or(&threads[0]), threads, group: sum.take(1) }
        };
        lives.map(process).collect()
    }

    /// Splits the threads of one process id by process. The kernel reuses an id only after all threads have exited. So a thread
    /// that started before a process's main thread belongs to an earlier process.
    fn lives(&self, pid: u32, threads: Vec<usize>) -> BTreeMap<usize, Vec<usize>> {
        let reading = |place: &usize| self.reading(*place);
        let mains = threads.iter().map(reading).filter(|task| task.tid == pid);
        let begun = mains.map(|task| task.start_ns).sorted_unstable().collect_vec();
        let mut lives: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in threads {
            let life = begun.partition_point(|begun_ns| *begun_ns <= reading(&at).start_ns);
            lives.entry(life).or_default().push(at);
        }
        lives
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Process id. In appended intervals, several processes may have used it in turn.
    pub pid: u32,
    /// The [place](Interval::places) of the thread that names the process: the main thread, or another one if that exited.
    pub named_by: usize,
    /// The [places](Interval::places) of the threads.
    pub threads: Vec<usize>,
    pub group: Group,
}

/// Elapsed time of some threads by activity, summed over the threads. For one thread, the parts sum to the elapsed time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallTime {
    pub on_cpu_ns: u64,
    /// Time runnable but not running, by cause: completed and pending waits.
    pub waited: ByCause,
    /// Time blocked, by state; `None`: unknown.
    pub blocked: Option<ByState>,
}

impl WallTime {
    pub fn new(group: &Group) -> Self {
        let mut waited = group.wait.by_cause;
        waited.add(&group.pending_by_cause);
        // The kernel does not count waits of tasks that were preempted on the way to sleep. Their cause was not recorded.
        waited.add(&ByCause::only(Cause::Unattributed, group.totals.unstamped_ns));
        let blocked = group.accounts.and_then(|accounts| accounts.blocked);
        Self { on_cpu_ns: group.totals.on_cpu_ns, waited, blocked }
    }

    /// Returns the sum of all known parts, ns.
    pub fn total_ns(&self) -> u64 {
        sum::total([self.on_cpu_ns, self.waited.total(), self.blocked.map_or(0, |blocked| blocked.total())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskInterval, TaskReading, Totals};

    fn thread(tid: u32, start_ns: u64, on_cpu_ns: u64) -> TaskInterval {
        let serial = start_ns << 8 | u64::from(tid);
        let reading = TaskReading { serial, tid, tgid: 7, start_ns, ..TaskReading::default() };
        TaskInterval { reading, totals: Totals { on_cpu_ns, ..Totals::default() }, ..TaskInterval::default() }
    }

    /// Returns for each process: its naming thread, its threads, and their run time.
    fn processes(tasks: Vec<TaskInterval>) -> Vec<(usize, Vec<usize>, u64)> {
        let interval = Interval { tasks, ..Interval::default() };
        let processes = interval.processes().into_iter();
        processes
            .map(|process| {
                assert_eq!((process.pid, process.group.threads), (7, process.threads.len() as u64));
                (process.named_by, process.threads, process.group.totals.on_cpu_ns)
            })
            .collect()
    }

    #[test]
    fn processes_that_used_the_same_id_are_kept_apart() {
        let tasks =
            vec![thread(7, 10, 1), thread(8, 10, 2), thread(9, 12, 4), thread(7, 20, 8), thread(8, 25, 16)];
        assert_eq!(processes(tasks), [(0, vec![0, 1, 2], 7), (3, vec![3, 4], 24)]);
    }

    #[test]
    fn threads_without_a_known_main_thread_are_one_process() {
        assert_eq!(processes(vec![thread(8, 10, 1), thread(9, 30, 2)]), [(0, vec![0, 1], 3)]);
        assert_eq!(processes(vec![thread(8, 10, 1), thread(7, 20, 2)]), [(0, vec![0], 1), (1, vec![1], 2)]);
    }
}

#[cfg(test)]
mod wall_time_tests {
    use super::*;
    use crate::{Accounts, BLOCKED_STATES, CAUSES, Totals, Wait};
    use proptest::prelude::*;

    fn group(
        on_cpu_ns: u64,
        waited: ByCause,
        pending: ByCause,
        unstamped_ns: u64,
        blocked: Option<[u64; BLOCKED_STATES]>,
    ) -> Group {
        Group {
            totals: Totals { on_cpu_ns, unstamped_ns, ..Totals::default() },
            wait: Wait { by_cause: waited, ..Wait::default() },
            pending_by_cause: pending,
            accounts: blocked
                .map(|states| Accounts { blocked: Some(ByState(states)), ..Accounts::default() }),
            ..Group::default()
        }
    }

    fn any_by_cause() -> impl Strategy<Value = ByCause> {
        prop::collection::vec(0..1u64 << 50, CAUSES)
            .prop_map(|parts| ByCause(parts.try_into().expect("a part to each")))
    }

    proptest! {
        #[test]
        fn all_time_is_counted_once(
            ran in 0..1u64 << 50,
            waited in any_by_cause(),
            pending in any_by_cause(),
            unstamped in 0..1u64 << 50,
            blocked in prop::array::uniform5(0..1u64 << 50),
        ) {
            let all = ran + unstamped + waited.total() + pending.total() + blocked.iter().sum::<u64>();
            let time = WallTime::new(&group(ran, waited, pending, unstamped, Some(blocked)));
            prop_assert_eq!(time.total_ns(), all);
            let states = time.blocked.unwrap();
            let parts = time.waited.iter().map(|(_, ns)| ns).chain(states.iter().map(|(_, ns)| ns));
            prop_assert_eq!(time.on_cpu_ns + parts.sum::<u64>(), all);
        }
    }

    #[test]
    fn unknown_time_is_not_a_part() {
        let time = WallTime::new(&group(
            5,
            ByCause::only(Cause::Unattributed, 2),
            ByCause::only(Cause::Throttled, 1),
            3,
            None,
        ));
        assert_eq!((time.blocked, time.total_ns()), (None, 11));
        assert_eq!(time.waited.get(Cause::Unattributed), 5);
    }
}
