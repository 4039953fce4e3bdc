//! What keeps a target from being faster, in one word and one sentence.
//!
//! Shares are of the time of its active threads, so idle ones do not hide the busy ones (`Activity`). `docs/class.md` explains the
//! rules; their words are in `words/class.rs`.

mod activity;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_doubt;

use std::{cmp::Reverse, sync::Arc};

use serde::Serialize;

pub(crate) use activity::Activity;

use crate::{
    BlockedKind, BlockedOn, BlockedTime, Cause, CgroupReading, Interval, TaskInterval, Tree,
    findings::{BELOW_LIMIT_PERCENT, is_share},
    interval::ExitedInterval,
    named::by_name,
    words::class::{TOO_SHORT, sentence},
};

/// A target is idle if its active threads wait for work for this share of their time, percent.
pub const IDLE_PERCENT: u64 = 50;
/// One class alone is named if it takes this share of the time that is not spent waiting for work, percent: without all others
/// that time would shrink by less than half.
pub const DOMINANT_PERCENT: u64 = 60;
/// Otherwise all classes with this share are named, percent: removing a smaller one would save less than a fifth of the time.
pub const MIXED_PERCENT: u64 = 20;
/// A target is quota-bound if throttled for this share of the time that it ran or wanted to, percent: lower than for contention,
/// as a setting costs less than hardware.
pub const QUOTA_PERCENT: u64 = 10;
/// A target is contended if queued or waking for this share of the time that it ran or wanted to, percent: some waiting is usual
/// where CPUs are well used.
pub const CONTENDED_PERCENT: u64 = 20;
/// A shorter time has no class, unless the interval is longer, ns. A quota's period is 100 ms by default, a turn on a CPU some ms.
pub const TOO_SHORT_NS: u64 = 50_000_000;
/// More CPU will not help where throttling and run queues take less than this share of the time, percent.
pub const MORE_CPU_PERCENT: u64 = 10;
/// A thread is idle if it ran or wanted to for less than this share of what the busiest one did, percent: it does not set the pace.
pub const BESIDE_BUSIEST_PERCENT: u64 = 10;
/// The sentence names parts from this share on, percent.
pub const NAMED_PERCENT: u64 = 5;

cgscope_layout::named! {
    /// What keeps a target from being faster.
    Class {
        /// It computes and gets the CPU when it wants it.
        CpuBound = "CPU-bound",
        /// A quota keeps it from computing.
        QuotaBound = "quota-bound",
        /// Others are on the CPUs when it wants to compute.
        Contended = "contended",
        /// It waits for devices, sockets or pipes.
        IoBound = "I/O-bound",
        /// It waits for locks.
        LockBound = "lock-bound",
        /// It is blocked on something else, or on something unknown.
        Blocked = "blocked",
        /// It waits for work.
        Idle = "idle",
    }
}
by_name!(Class);

impl Class {
    /// The class of a target that is blocked on this.
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
    /// Path of the cgroup that has it.
    pub path: Arc<str>,
    /// The quota in CPUs; `None`: not known.
    pub cores: Option<f64>,
    /// Its cgroup used [`BELOW_LIMIT_PERCENT`] of it, so it is the bound, however many threads
    /// sleep.
    pub used_up: bool,
}

/// The class of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Classified {
    /// One, or several of a mixed case, the largest first; none where too little is known.
    pub classes: Vec<Class>,
    /// The figures and what to do: one sentence, without a full stop.
    pub says: String,
}

/// `quota`: the one that throttles the target, if any.
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
    // Unknown blocked time does not matter for a thread that is on a CPU for this much of the time.
    if activity.is_partial() && !is_share(activity.busiest_ns, activity.duration_ns, DOMINANT_PERCENT) {
        classes.retain(|class| *class != Class::CpuBound);
    }
    if activity.threads == 0 || is_share(all_ns - needed_ns, all_ns, IDLE_PERCENT) {
        // An idle target loses time that it waits for a CPU, too.
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

/// The classes of the time that it ran or wanted to.
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

/// The classes of the targets of an interval.
#[derive(Clone, Debug)]
pub struct Classes<'a> {
    /// The interval of the targets.
    pub interval: &'a Interval,
    /// Its tree.
    pub tree: &'a Tree,
    /// What threads were blocked on.
    pub blocked: &'a BlockedOn,
    /// Ids of the cgroup `/`.
    roots: Vec<u64>,
    /// Tasks that exited, by the node of their cgroup.
    exited: Vec<(usize, &'a ExitedInterval)>,
}

impl<'a> Classes<'a> {
    /// `tree` and `blocked` are those of the interval.
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

    /// The class of some threads, such as those of a process.
    pub fn threads(&self, tasks: &[&TaskInterval]) -> Classified {
        let activity = Activity::of(tasks, self, false);
        verdict(&activity, self.quota_of(tasks, &activity).as_ref())
    }

    /// The class of a cgroup with all below it, exited tasks included; `node` is its place in the tree.
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

    /// The class of the tasks in cgroups without a known path, without tasks that exited.
    pub fn unknown_cgroup(&self) -> Classified {
        let places = self.tree.tasks_unknown().iter();
        self.threads(&places.map(|place| &self.interval.tasks[*place]).collect::<Vec<_>>())
    }

    /// The class of all that was measured, exited tasks included.
    pub fn total(&self) -> Classified {
        let tasks: Vec<_> = self.interval.tasks.iter().collect();
        let is_wide = !self.interval.is_selection || self.interval.selected_cgroup.is_some();
        let mut activity = Activity::of(&tasks, self, is_wide);
        // Stacks of exited tasks are known only for all of them together.
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

    /// The quota that throttled the most throttled of these threads longest.
    fn quota_of(&self, tasks: &[&TaskInterval], activity: &Activity) -> Option<Quota> {
        let most = tasks.iter().max_by_key(|task| task.wait.by_cause.get(Cause::Throttled))?;
        let node = self.tree.find_id(self.interval, most.reading.cgroup_id)?;
        Some(self.quota(self.tree.nodes()[node].limited_by?, activity))
    }

    fn quota(&self, node: usize, activity: &Activity) -> Quota {
        let limits = self.tree.limits(self.interval, node);
        let cores = limits.and_then(CgroupReading::quota_cores);
        // What was measured may be less than what the cgroup used, or begin before its counters.
        let used_ns = limits.and_then(|limits| limits.usage_ns).unwrap_or(0).max(activity.on_cpu_ns);
        let used_percent = used_ns as f64 * 100.0 / self.interval.duration_ns as f64;
        let used_up = cores.is_some_and(|cores| used_percent >= cores * BELOW_LIMIT_PERCENT as f64);
        Quota { path: self.tree.nodes()[node].path.clone(), cores, used_up }
    }
}
