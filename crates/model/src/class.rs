//! Classes: what keeps a target from being faster, in one word and one sentence.
//!
//! Shares are shares of the time of active threads, so that idle threads do not hide busy ones (see `Activity`). `docs/class.md`
//! explains the rules; `words/class.rs` holds their text.

mod activity;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_doubt;

use std::{cmp::Reverse, sync::Arc};

use serde::Serialize;

pub(crate) use activity::Activity;

use crate::{
    BlockedKind, BlockedOn, BlockedTime, Cause, CgroupReading, ExitedInterval, Interval, TaskInterval, Tree,
    findings::{BELOW_LIMIT_PERCENT, is_share},
    named::by_name,
    words::class::{TOO_SHORT, sentence},
};

/// A target is idle if its active threads wait for work for this share of their time, percent.
pub const IDLE_PERCENT: u64 = 50;
/// A class is named alone if it takes this share of the needed time, percent. The needed time is all time except waiting for
/// work. Removing all other classes would reduce the needed time by less than half.
pub const DOMINANT_PERCENT: u64 = 60;
/// Otherwise each class with this share is named, percent. Removing a smaller class would save less than a fifth of the time.
pub const MIXED_PERCENT: u64 = 20;
/// A target is quota-bound if it was throttled for this share of the time that it ran or wanted to run, percent. The limit is
/// lower than that for contention, because changing a setting costs less than hardware.
pub const QUOTA_PERCENT: u64 = 10;
/// A target is contended if it was queued or waking up for this share of the time that it ran or wanted to run, percent. Some
/// waiting is usual where CPUs are well used.
pub const CONTENDED_PERCENT: u64 = 20;
/// Shortest time to judge, ns. A shorter time has no class, unless the interval is longer. A quota's period is 100 ms by default;
/// a turn on a CPU takes some ms.
pub const TOO_SHORT_NS: u64 = 50_000_000;
/// More CPU does not help if throttling and run queues take less than this share of the time, percent.
pub const MORE_CPU_PERCENT: u64 = 10;
/// A thread is idle if it ran or wanted to run for less than this share of the busiest thread's time, percent: it does not limit
/// the target's speed.
pub const BESIDE_BUSIEST_PERCENT: u64 = 10;
/// The sentence names parts of the time from this share, percent.
pub const NAMED_PERCENT: u64 = 5;

cgscope_layout::named! {
    /// The reason why a target is not faster.
    Class {
        /// The target computes, and gets a CPU when it wants one.
        CpuBound = "CPU-bound",
        /// A quota keeps the target from computing.
        QuotaBound = "quota-bound",
        /// Other tasks are on the CPUs when the target wants to compute.
        Contended = "contended",
        /// The target waits for devices, sockets or pipes.
        IoBound = "I/O-bound",
        /// The target waits for locks.
        LockBound = "lock-bound",
        /// The target is blocked on something else, or on something unknown.
        Blocked = "blocked",
        /// The target waits for work.
        Idle = "idle",
    }
}
by_name!(Class);

impl Class {
    /// The class of a target that is blocked on this kind.
    pub(crate) fn blocked_on(kind: BlockedKind) -> Self {
        match kind {
            BlockedKind::Network | BlockedKind::Disk | BlockedKind::Pipe | BlockedKind::IoUring => {
                Self::IoBound
            }
            BlockedKind::Lock | BlockedKind::FileLock | BlockedKind::KernelLock => Self::LockBound,
            _ if kind.is_for_work() => Self::Idle,
            _ => Self::Blocked,
        }
    }
}

/// The quota that throttles a target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    /// Path of the cgroup that has the quota.
    pub path: Arc<str>,
    /// The quota in CPUs; `None`: unknown.
    pub cores: Option<f64>,
    /// True if the cgroup used at least [`BELOW_LIMIT_PERCENT`] of the quota. Then the quota is the bound, however many threads
    /// sleep.
    pub used_up: bool,
}

/// The classes of a target, with a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Classified {
    /// One class, or several for a mixed case, the largest first; empty if too little is known.
    pub classes: Vec<Class>,
    /// The figures and the advice: one sentence without a full stop.
    pub says: String,
}

/// Judges a target. `quota`: the quota that throttles the target, if any.
fn verdict(activity: &Activity, quota: Option<&Quota>) -> Classified {
    let needed_ns = activity.time_ns() - activity.blocked.for_work();
    if activity.duration_ns < TOO_SHORT_NS && needed_ns < TOO_SHORT_NS {
        return Classified { classes: Vec::new(), says: TOO_SHORT.into() };
    }
    let is_bound = quota.is_some_and(|quota| quota.used_up) && is_throttled(activity);
    let classes = if is_bound { vec![Class::QuotaBound] } else { classes(activity, needed_ns) };
    let says = sentence(&classes, activity, quota);
    Classified { classes, says }
}

fn classes(activity: &Activity, needed_ns: u64) -> Vec<Class> {
    let all_ns = activity.time_ns();
    let blocked = [Class::IoBound, Class::LockBound, Class::Blocked];
    let blocked = blocked.map(|class| (activity.blocked_ns(class), vec![class]));
    let mut named = vec![(activity.wanted_ns(), wanting(activity))];
    named.extend(blocked);
    named.retain(|(ns, _)| is_share(*ns, needed_ns, MIXED_PERCENT));
    named.sort_by_key(|(ns, _)| Reverse(*ns));
    if named.first().is_some_and(|(ns, _)| is_share(*ns, needed_ns, DOMINANT_PERCENT)) {
        named.truncate(1);
    }
    let mut classes: Vec<_> = named.into_iter().flat_map(|(_, classes)| classes).collect();
    // If a thread is on a CPU for this share of the time, unknown blocked time does not matter.
    if activity.is_partial() && !is_share(activity.busiest_ns, activity.duration_ns, DOMINANT_PERCENT) {
        classes.retain(|class| *class != Class::CpuBound);
    }
    if activity.threads == 0 || is_share(all_ns - needed_ns, all_ns, IDLE_PERCENT) {
        // An idle target also loses the time that it waits for a CPU.
        classes.retain(|class| match class {
            Class::QuotaBound => is_share(activity.throttled_ns(), all_ns, MORE_CPU_PERCENT),
            Class::Contended => is_share(activity.in_line_ns(), all_ns, MORE_CPU_PERCENT),
            _ => false,
        });
        classes.insert(0, Class::Idle);
    }
    classes
}

fn is_throttled(activity: &Activity) -> bool {
    is_share(activity.throttled_ns(), activity.wanted_ns(), QUOTA_PERCENT)
}

/// The classes for the time that the target ran or wanted to run.
fn wanting(activity: &Activity) -> Vec<Class> {
    let (throttled_ns, in_line_ns) = (activity.throttled_ns(), activity.in_line_ns());
    match (is_throttled(activity), is_share(in_line_ns, activity.wanted_ns(), CONTENDED_PERCENT)) {
        (false, false) => vec![Class::CpuBound],
        (true, false) => vec![Class::QuotaBound],
        (false, true) => vec![Class::Contended],
        (true, true) if in_line_ns > throttled_ns => vec![Class::Contended, Class::QuotaBound],
        (true, true) => vec![Class::QuotaBound, Class::Contended],
    }
}

/// Computes the classes of an interval's targets.
#[derive(Clone, Debug)]
pub struct Classes<'a> {
    /// The interval that contains the targets.
    pub interval: &'a Interval,
    /// The tree of `interval`.
    pub tree: &'a Tree,
    /// What the threads were blocked on.
    pub blocked: &'a BlockedOn,
    /// Ids of the cgroup `/`.
    roots: Vec<u64>,
    /// Sums of exited tasks with the node of their cgroup, ascending by node.
    exited: Vec<(usize, &'a ExitedInterval)>,
}

impl<'a> Classes<'a> {
    /// Prepares the classes of `interval`. `tree` and `blocked` must belong to the same interval.
    pub fn new(interval: &'a Interval, tree: &'a Tree, blocked: &'a BlockedOn) -> Self {
        let roots = interval.cgroups.iter().filter(|(_, path)| &**path == "/").map(|(id, _)| *id);
        let node = |exited: &ExitedInterval| tree.find_id(interval, exited.cgroup_id);
        let mut exited: Vec<_> =
            interval.exited.iter().filter_map(|exited| Some((node(exited)?, exited))).collect();
        exited.sort_by_key(|(node, _)| *node);
        Self { interval, tree, blocked, roots: roots.collect(), exited }
    }

    /// The class of one thread.
    pub fn thread(&self, task: &TaskInterval) -> Classified {
        self.threads(&[task])
    }

    /// The class of several threads, such as those of a process.
    pub fn threads(&self, tasks: &[&TaskInterval]) -> Classified {
        let activity = Activity::of(tasks, self, false);
        verdict(&activity, self.quota_of(tasks, &activity).as_ref())
    }

    /// The class of a cgroup and all cgroups below it, including exited tasks. `node` is the index of the cgroup in the tree.
    pub fn cgroup(&self, node: usize) -> Classified {
        let tasks: Vec<_> =
            self.tree.tasks_below(node).iter().map(|place| &self.interval.tasks[*place]).collect();
        let below = self.tree.below(node);
        let first = self.exited.partition_point(|(at, _)| *at < below.start);
        let end = self.exited.partition_point(|(at, _)| *at < below.end);
        let exited = self.exited[first..end].iter().map(|(_, exited)| *exited);
        let mut activity = Activity::of(&tasks, self, true);
        activity.add_exited(exited, &BlockedTime::default(), self);
        verdict(&activity, self.quota_at(node, &tasks, &activity).as_ref())
    }

    /// The class of the tasks in cgroups without a known path, without exited tasks.
    pub fn unknown_cgroup(&self) -> Classified {
        let places = self.tree.tasks_unknown().iter();
        self.threads(&places.map(|place| &self.interval.tasks[*place]).collect::<Vec<_>>())
    }

    /// The class of all that was measured, including exited tasks.
    pub fn total(&self) -> Classified {
        let tasks: Vec<_> = self.interval.tasks.iter().collect();
        let is_wide = !self.interval.is_selection || self.interval.selected_cgroup.is_some();
        let mut activity = Activity::of(&tasks, self, is_wide);
        // Stacks of exited tasks are known only as one total for all of them.
        activity.add_exited(&self.interval.exited, &self.blocked.exited(), self);
        let quota = (!self.tree.nodes().is_empty()).then(|| self.quota_at(0, &tasks, &activity)).flatten();
        verdict(&activity, quota.as_ref())
    }

    fn quota_at(&self, node: usize, tasks: &[&TaskInterval], activity: &Activity) -> Option<Quota> {
        let node = &self.tree.nodes()[node];
        let is_recorded = node.throttled_by.iter().any(|(by, _)| by.is_some());
        let of_tasks = if is_recorded { None } else { self.quota_of(tasks, activity) };
        of_tasks.or_else(|| Some(self.quota(node.limited_by?, activity)))
    }

    /// Finds the thread that was throttled most, and returns the quota that throttled this thread longest.
    fn quota_of(&self, tasks: &[&TaskInterval], activity: &Activity) -> Option<Quota> {
        let most = tasks.iter().max_by_key(|task| task.wait.by_cause.get(Cause::Throttled))?;
        let node = self.tree.find_id(self.interval, most.reading.cgroup_id)?;
        Some(self.quota(self.tree.nodes()[node].limited_by?, activity))
    }

    fn quota(&self, node: usize, activity: &Activity) -> Quota {
        let limits = self.tree.limits(self.interval, node);
        let cores = limits.and_then(CgroupReading::quota_cores);
        // The measurement may cover less than the cgroup used, or may begin before the cgroup's counters.
        let used_ns = limits.and_then(|limits| limits.usage_ns).unwrap_or(0).max(activity.on_cpu_ns);
        let used_percent = used_ns as f64 * 100.0 / self.interval.duration_ns as f64;
        let used_up = cores.is_some_and(|cores| used_percent >= cores * BELOW_LIMIT_PERCENT as f64);
        Quota { path: self.tree.nodes()[node].path.clone(), cores, used_up }
    }
}
