//! The changes between two Samples. Only this module subtracts readings.

mod group;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use cgscope_ledger::{Cause, bucket::LAST_LOW_NS};
use serde::Serialize;

use crate::{
    Blame, ByCause, CgroupReading, ChainReading, ContainerReading, Cost, Hist, Losses, Mode, Names,
    NodeReading, PairReading, ProcessMemory, Sample, SchedExt, StackReading, TaskInterval, TaskReading,
    Totals,
    path::is_at_or_below,
    selection::{Selection, SelectionFilter},
    sum::{self, is_share},
    table::{
        self, Selected,
        cpus::CpuInterval,
        exited::{ExitedInterval, add_exited},
        later, stacks,
    },
};
pub use group::{Group, GroupSum, Process, WallTime};

/// Everything that happened between two Samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Wall clock at the start, ns since 1970.
    pub start_unix_ns: u64,
    /// CLOCK_MONOTONIC at the start, ns.
    pub start_mono_ns: u64,
    pub duration_ns: u64,
    pub mode: Mode,
    /// BPF scheduler, if one was loaded at the start or at the end; `None`: unknown.
    pub sched_ext: Option<SchedExt>,
    /// Tasks that existed at the end and were active, ascending by serial.
    pub tasks: Vec<TaskInterval>,
    /// Other tasks that existed at the end, ascending by serial. No figure of theirs increased, and at the end they neither ran
    /// nor waited. The readings are the Sample's. See [`Self::readings`].
    pub idle: Vec<Arc<TaskReading>>,
    /// Exited tasks by cgroup: the work that no earlier reading reported.
    pub exited: Vec<ExitedInterval>,
    /// Wait time by victim and culprit, ns, ascending by key. A wait counts in the interval in which it ends.
    pub pairs: Vec<PairReading>,
    /// Limits of cgroups at the end, with the increase of their counters; ascending by id.
    pub limits: Vec<CgroupReading>,
    /// Paths of the cgroups, ascending by id.
    pub cgroups: Vec<(u64, Arc<str>)>,
    pub names: Arc<Names>,
    /// CPUs that were online at the end, ascending by number.
    pub cpus: Vec<CpuInterval>,
    /// NUMA nodes at the end, ascending by number.
    pub nodes: Vec<NodeReading>,
    /// The node of all CPUs, if they share one node.
    pub one_node: Option<u32>,
    /// Memory of processes by node at the end, ascending by process id.
    pub memory: Vec<ProcessMemory>,
    /// Stacks in which tasks were blocked, ascending by key.
    pub stacks: Vec<StackReading>,
    /// For whom tasks slept, ascending by key; `None`: it was not counted. A sleep counts in the interval in which it ends. A
    /// selection also has the rows of those for whom its tasks slept.
    pub chains: Option<Vec<ChainReading>>,
    /// True if a selection removed tasks, in the kernel or by [`Self::select`].
    pub is_selection: bool,
    pub selected_cgroup: Option<Arc<str>>,
    pub losses: Losses,
    pub cost: CostInterval,
}

/// Completed waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    pub count: u64,
    pub total_ns: u64,
    /// Longest wait, ns: exact if it is the longest in the task's life, else the upper end of its bucket.
    pub max_ns: u64,
    pub by_cause: ByCause,
    pub hist: Hist,
}

impl Wait {
    pub(crate) fn new(totals: &Totals, hist: Hist, max_before_ns: u64, max_now_ns: u64) -> Self {
        let max_ns = match hist.highest_ns() {
            None => 0,
            // An exited task's longest wait may predate the interval. It counts only if this histogram has waits of that length.
            Some(highest) if max_now_ns > max_before_ns && max_now_ns <= highest.max(LAST_LOW_NS) => {
                max_now_ns
            }
            Some(highest) => highest.min(max_now_ns),
        };
        Self { count: totals.waits, total_ns: totals.wait_ns, max_ns, by_cause: totals.by_cause, hist }
    }

    pub fn add(&mut self, other: &Self) {
        self.add_figures(other);
        self.hist.add(&other.hist);
    }

    /// Adds all fields except the distribution.
    fn add_figures(&mut self, other: &Self) {
        sum::add(&mut self.count, other.count);
        sum::add(&mut self.total_ns, other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.by_cause.add(&other.by_cause);
    }

    /// Returns the waits, ns, excluding time at a limit: then the task could not use another CPU either.
    pub fn contended_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.by_cause.limited_ns())
    }

    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        self.hist.quantile_ns(quantile, self.max_ns)
    }
}

impl Interval {
    /// Returns the changes between `a` and `b`, the very next Sample. For a later `b`, [`Skipped`](crate::Skipped) has the
    /// missing rows. A task that is only in `b` counts from its start if it started after `a`, or from its move if it moved to
    /// another cgroup after `a`. Other tasks that are only in `b` have no reading for this interval and are omitted. A task with
    /// a decreased counter is omitted as well.
    pub fn between(a: &Sample, b: &Sample) -> Self {
        let mut interval = Self {
            start_unix_ns: a.unix_ns,
            start_mono_ns: a.mono_ns,
            duration_ns: b.mono_ns.saturating_sub(a.mono_ns),
            mode: b.mode,
            sched_ext: SchedExt::between(a.sched_ext.as_ref(), b.sched_ext.as_ref()),
            losses: b.losses.since(&a.losses),
            cost: CostInterval::between(&a.cost, &b.cost),
            ..Self::default()
        };
        table::between(a, b, &mut interval);
        if interval.mode == Mode::Coarse {
            attribute(&mut interval);
        }
        interval
    }

    /// Appends the next interval. Tasks that exited in between stay, with their last readings.
    pub fn append(&mut self, mut next: Self) {
        if self.duration_ns == 0 {
            *self = next;
            return;
        }
        sum::add(&mut self.duration_ns, next.duration_ns);
        table::append(self, &mut next);
        self.sched_ext = SchedExt::between(self.sched_ext.as_ref(), next.sched_ext.as_ref());
        (self.is_selection, self.selected_cgroup) = (next.is_selection, next.selected_cgroup);
        self.losses.append(&next.losses);
        self.cost.append(&next.cost);
    }

    /// Removes everything that is not selected. Fails if `comm` is not a regular expression.
    pub fn select(&mut self, selection: &Selection) -> Result<(), regex::Error> {
        self.filter(&SelectionFilter::new(selection)?);
        Ok(())
    }

    /// Removes everything that is not selected, except the selected CPUs and nodes.
    pub(crate) fn filter(&mut self, filter: &SelectionFilter) {
        let names = self.names.clone();
        let wanted = filter.is_by_cgroup().then(|| {
            let wanted = self.cgroups.iter().filter(|(_, path)| filter.wants_cgroup(path, &names));
            wanted.map(|(id, _)| *id).collect::<HashSet<u64>>()
        });
        table::select(self, &Selected { filter, cgroups: wanted });
        let selected = self.cgroups.iter().find_map(|(_, path)| filter.selected_cgroup(path, &names));
        self.selected_cgroup = selected.or(filter.selection.cgroup.as_deref()).map(Into::into);
        self.is_selection = !filter.selection.is_whole_host();
    }

    /// Sets the cgroups' names to those that the container runtime reported at the start and at the end.
    pub(crate) fn set_names(&mut self, a: &[ContainerReading], b: &[ContainerReading]) {
        self.names = Arc::new(Names::new(&self.cgroups, &later(a, b, |named| named.cgroup_id)));
    }

    /// Returns the BPF scheduler if it schedules all normal tasks. The kernel then enforces no quota (`cpu.max`) and no weight.
    pub fn scheduler_instead_of_quotas(&self) -> Option<&Arc<str>> {
        self.sched_ext.as_ref().filter(|state| state.takes_all)?.scheduler.as_ref()
    }

    /// Returns the tasks at these indexes of [`Self::tasks`].
    pub(crate) fn tasks_at<'a>(&'a self, at: &'a [usize]) -> impl Iterator<Item = &'a TaskInterval> + Clone {
        at.iter().map(|at| &self.tasks[*at])
    }

    /// Returns the path of a cgroup, relative to the mount; `None` if the cgroup was removed before its path was read.
    pub fn cgroup_path(&self, id: u64) -> Option<&Arc<str>> {
        self.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok().map(|i| &self.cgroups[i].1)
    }

    /// Returns the task that names each process, by process id: the main thread, or another thread if the main thread has exited.
    pub fn naming_tasks(&self) -> BTreeMap<u32, &TaskReading> {
        let mut names: BTreeMap<u32, &TaskReading> = BTreeMap::new();
        for task in self.readings() {
            let name = names.entry(task.tgid).or_insert(task);
            if task.tid == task.tgid {
                *name = task;
            }
        }
        names
    }

    /// Returns the name of one process; empty if no thread of it is known.
    pub fn process_name(&self, pid: u32) -> &str {
        let threads = || self.readings().filter(|task| task.tgid == pid);
        threads().find(|task| task.tid == pid).or_else(|| threads().next()).map_or("", |task| &task.comm)
    }
}

/// Cost of cgscope itself over an interval. `None`: could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CostInterval {
    /// Time in the hook, summed over CPUs, ns.
    pub hook_ns: Option<u64>,
    pub hook_runs: Option<u64>,
    pub cpu_ns: Option<u64>,
    /// Resident memory of this process at the end, bytes.
    pub rss_bytes: Option<u64>,
}

impl CostInterval {
    pub(crate) fn between(a: &Cost, b: &Cost) -> Self {
        let since = |b: Option<u64>, a: Option<u64>| b?.checked_sub(a?);
        let hook_runs = since(b.switches, a.switches);
        let hook_ns = hook_runs.zip(b.hook_ns_per_run).map(|(runs, ns)| (runs as f64 * ns) as u64);
        Self { hook_runs, hook_ns, cpu_ns: since(b.cpu_ns, a.cpu_ns), rss_bytes: b.rss_bytes }
    }

    pub(crate) fn append(&mut self, next: &Self) {
        // Runs before the first measurement of the hook's time have only a count. They get the first measured time per run.
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        self.hook_ns = match (self.hook_ns, self.hook_runs, next.hook_ns, next.hook_runs) {
            (None, Some(before), Some(ns), Some(runs)) if runs != 0 => {
                Some(ns.saturating_add((before as f64 * ns as f64 / runs as f64) as u64))
            }
            (ours, _, theirs, _) => sum(ours, theirs),
        };
        self.hook_runs = sum(self.hook_runs, next.hook_runs);
        self.cpu_ns = sum(self.cpu_ns, next.cpu_ns);
        self.rss_bytes = next.rss_bytes;
    }
}

/// Minimum share of the tasks' activity by real-time tasks, percent, at which weights and quotas do not help.
pub const REALTIME_PERCENT: u64 = 50;

pub(crate) type Realtime<'a> = (&'static str, &'a TaskInterval);

/// Returns the most active real-time task if real-time tasks have most of the activity. `tasks`: with their activity, ns.
pub(crate) fn mostly_realtime<'a>(
    tasks: impl Iterator<Item = (&'a TaskInterval, u64)> + Clone,
) -> Option<Realtime<'a>> {
    let all_ns = sum::total(tasks.clone().map(|(_, ns)| ns));
    let realtime = tasks.filter_map(|(task, ns)| Some((task.realtime()?, task, ns)));
    let realtime_ns = sum::total(realtime.clone().map(|(.., ns)| ns));
    let (policy, task, _) = realtime.reduce(|most, next| if next.2 > most.2 { next } else { most })?;
    is_share(realtime_ns, all_ns, REALTIME_PERCENT).then_some((policy, task))
}

/// One interval, built by appending many intervals in order. Old intervals are kept as sums and rarely changed. The work per
/// interval grows with the logarithm of the number of intervals, not with the number of tasks in all of them.
#[derive(Debug, Default)]
pub struct Appended {
    /// Sums of 2^n intervals; n decreases from first to last.
    sums: Vec<(u32, Interval)>,
}

impl Appended {
    pub fn push(&mut self, next: Interval) {
        let (mut power, mut sum) = (0, next);
        while let Some((_, before)) = self.sums.pop_if(|(before, _)| *before == power) {
            sum = appended(before, sum);
            power += 1;
        }
        self.sums.push((power, sum));
    }

    /// Number of tasks held. Exited tasks stay, so a caller that runs indefinitely must call [`Self::merge_exited`].
    pub fn held(&self) -> usize {
        self.sums.iter().map(|(_, sum)| sum.tasks.len() + sum.idle.len()).sum()
    }

    /// Merges tasks for which `is_there` is false into the exited tasks of their cgroup. Only their cgroup remains known.
    pub fn merge_exited(&mut self, is_there: impl Fn(&TaskReading) -> bool) {
        for (_, sum) in &mut self.sums {
            for task in sum.tasks.extract_if(.., |task| !is_there(&task.reading)) {
                // The exit, and the work of the task's exited threads, are already counted.
                add_exited(&mut sum.exited, task.reading.cgroup_id, task.figures());
            }
            sum.tasks.shrink_to_fit();
            sum.idle.retain(|task| is_there(task));
            stacks::merge_exited(&mut sum.stacks, |serial| {
                sum.tasks.binary_search_by_key(&serial, |task| task.reading.serial).is_ok()
            });
        }
    }

    pub fn into_interval(self) -> Interval {
        let sums = self.sums.into_iter().rev().map(|(_, sum)| sum);
        sums.reduce(|later, before| appended(before, later)).unwrap_or_default()
    }
}

fn appended(mut before: Interval, next: Interval) -> Interval {
    before.append(next);
    before
}

// Causes without BPF: `cpu.stat` reports how much of the summed waits is due to a quota. `throttled_usec` of a cgroup (v1:
// `throttled_time`) is the time in which its quota kept its run queue on a CPU from running. The time counts once per CPU,
// however many tasks waited there. So it is a lower bound of the time that tasks lost. The file does not report the loss of each
// task, so each task gets a share in proportion to its wait.

/// Attributes the time that quotas took to the waits in `interval`, inner cgroups first. The rest stays unattributed. The parts
/// of a wait still sum to the wait. The parts due to a quota sum to at most the time in its `cpu.stat`.
pub(crate) fn attribute(interval: &mut Interval) {
    let quotas = quotas(interval);
    if quotas.is_empty() {
        return;
    }
    let mut by_cgroup: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, task) in interval.tasks.iter().enumerate().filter(|(_, task)| task.wait.total_ns != 0) {
        by_cgroup.entry(task.reading.cgroup_id).or_default().push(index);
    }
    let mut parts: Vec<((u64, u64), u64)> = Vec::new();
    for (quota, throttled_ns) in quotas {
        let Some(root) = interval.cgroup_path(quota).cloned() else { continue };
        let is_below = |id: u64| interval.cgroup_path(id).is_some_and(|path| is_at_or_below(path, &root));
        let tasks = by_cgroup.iter().filter(|(id, _)| is_below(**id)).flat_map(|(_, tasks)| tasks);
        let tasks: Vec<usize> = tasks.copied().collect();
        let open: Vec<u64> =
            tasks.iter().map(|task| interval.tasks[*task].wait.by_cause.get(Cause::Unattributed)).collect();
        for (task, ns) in tasks.into_iter().zip(shares(throttled_ns, &open)) {
            let task = &mut interval.tasks[task];
            throttle(&mut task.wait.by_cause, ns);
            throttle(&mut task.totals.by_cause, ns);
            parts.push(((task.reading.cgroup_id, quota), ns));
        }
    }
    let parts = sum::tally(parts.into_iter().filter(|(_, ns)| *ns != 0));
    let blame = Blame::Limited;
    let pair = |((victim, culprit), ns)| PairReading { victim, culprit, blame, tid: 0, comm: "".into(), ns };
    interval.pairs = parts.into_iter().map(pair).collect();
}

/// Returns the cgroups whose own quota took time, with that time, ns; the innermost first.
fn quotas(interval: &Interval) -> Vec<(u64, u64)> {
    let took = interval.limits.iter().filter_map(|limits| {
        let ns = limits.throttled_ns.filter(|ns| *ns != 0)?;
        Some((interval.cgroup_path(limits.id)?.matches('/').count(), limits.id, ns))
    });
    let mut took: Vec<_> = took.collect();
    took.sort_unstable_by_key(|(depth, id, _)| (Reverse(*depth), *id));
    took.into_iter().map(|(_, id, ns)| (id, ns)).collect()
}

fn throttle(by_cause: &mut ByCause, ns: u64) {
    by_cause.0[Cause::Unattributed as usize] -= ns;
    sum::add(&mut by_cause.0[Cause::Throttled as usize], ns);
}

/// Divides `ns` in proportion to `open`. No share exceeds its open time. The shares sum to `ns`, or to all open time if less.
fn shares(ns: u64, open: &[u64]) -> Vec<u64> {
    sum::shares(ns.min(sum::total(open.iter().copied())), open)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{CgroupReading, Mode, Sample, TaskReading, Totals, Tree};

    fn task(tid: u32, cgroup_id: u64, wait_ns: u64) -> TaskReading {
        TaskReading {
            serial: tid.into(),
            tid,
            tgid: tid,
            comm: "t".into(),
            start_ns: 5,
            cgroup_id,
            totals: Totals {
                waits: 3,
                wait_ns,
                run_delay_ns: wait_ns,
                by_cause: ByCause::only(Cause::Unattributed, wait_ns),
                ..Totals::default()
            },
            ..TaskReading::default()
        }
    }

    /// Cgroups 1 `/`, 2 `/a`, 3 `/a/b`, 4 `/c`, each with the time that its quota took.
    fn interval(tasks: Vec<TaskReading>, throttled: [u64; 4]) -> Interval {
        let paths = ["/", "/a", "/a/b", "/c"];
        let limits = |ns: [u64; 4]| {
            (1..).zip(ns).map(|(id, ns)| CgroupReading { id, throttled_ns: Some(ns), ..Default::default() })
        };
        let before = Sample { mode: Mode::Coarse, limits: limits([7; 4]).collect(), ..Sample::default() };
        let after = Sample {
            mono_ns: 1_000,
            tasks: tasks.into_iter().map(Arc::new).collect(),
            limits: limits(throttled.map(|ns| ns + 7)).collect(),
            cgroups: (1..).zip(paths.map(Into::into)).collect(),
            ..before.clone()
        };
        Interval::between(&before, &after)
    }

    fn throttled(interval: &Interval) -> Vec<u64> {
        interval.tasks.iter().map(|task| task.wait.by_cause.get(Cause::Throttled)).collect()
    }

    #[test]
    fn the_time_of_a_quota_is_divided_in_proportion_among_all_below_it() {
        let tasks = vec![task(1, 2, 300), task(2, 3, 100), task(3, 4, 500)];
        let interval = interval(tasks, [0, 200, 0, 0]);
        assert_eq!(throttled(&interval), [150, 50, 0]);
        assert_eq!(interval.limits_of("/"), [(Some("/a".into()), 200)]);
        let tree = Tree::new(&interval);
        let limit = tree.nodes()[tree.find("/a/b").unwrap()].limited_by;
        assert_eq!(limit, tree.find("/a"));
    }

    #[test]
    fn the_inner_quota_comes_first_and_nobody_is_throttled_for_longer_than_it_waited() {
        let tasks = vec![task(1, 2, 300), task(2, 3, 100)];
        let interval = interval(tasks, [0, 30, 80, 0]);
        // The inner quota takes 80. The outer quota takes 30, in proportion to the remaining 300 and 20.
        assert_eq!(throttled(&interval), [28, 82]);
        let more = super::tests::interval(vec![task(2, 3, 100)], [0, 0, 5_000, 0]);
        assert_eq!(throttled(&more), [100], "several CPUs were out of quota, or the wait is not over");
    }

    #[test]
    fn a_host_without_quotas_has_no_cause() {
        let interval = interval(vec![task(1, 2, 300)], [0; 4]);
        assert_eq!(interval.tasks[0].wait.by_cause, ByCause::only(Cause::Unattributed, 300));
        assert!(interval.pairs.is_empty());
    }

    #[test]
    fn absurd_figures_cause_no_panic() {
        let open = [u64::MAX; 9];
        assert!(shares(u64::MAX, &open).into_iter().zip(open).all(|(share, open)| share <= open));
        assert!(shares(5, &[]).is_empty());
        assert_eq!(shares(5, &[0, 0]), [0, 0]);
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_wait_and_no_quota_takes_more_than_its_time(
            waits in prop::collection::vec((1u64..5, 0u64..u64::MAX / 16), 0..12),
            took in prop::array::uniform4(0u64..u64::MAX / 4),
        ) {
            let tasks = (1..).zip(&waits).map(|(tid, (id, ns))| task(tid, *id, *ns)).collect();
            let interval = interval(tasks, took);
            for task in &interval.tasks {
                prop_assert_eq!(task.wait.by_cause.total(), task.wait.total_ns);
                prop_assert_eq!(task.totals.by_cause, task.wait.by_cause);
            }
            let mut all = 0;
            for (id, took) in (1..).zip(took) {
                let of_quota: u64 =
                    interval.pairs.iter().filter(|pair| pair.culprit == id).map(|pair| pair.ns).sum();
                prop_assert!(of_quota <= took);
                all += of_quota;
            }
            prop_assert_eq!(all, throttled(&interval).iter().sum::<u64>());
            prop_assert!(interval.pairs.is_sorted_by(|a, b| a.key() < b.key()));
            // The quota of the root applies to all tasks, so its time is divided until no wait is left.
            let waited: u64 = waits.iter().map(|(_, ns)| ns).sum();
            prop_assert!(all >= took[0].min(waited));
        }

        #[test]
        fn shares_are_in_proportion(ns in 0u64..1_000_000, open in prop::collection::vec(0u64..1_000_000, 1..20)) {
            let total: u64 = open.iter().sum();
            for (share, open) in shares(ns, &open).into_iter().zip(&open) {
                prop_assert!(share <= *open);
                let exact = ns.min(total) as f64 * *open as f64 / total.max(1) as f64;
                prop_assert!((share as f64 - exact).abs() <= 1.0);
            }
        }
    }
}
