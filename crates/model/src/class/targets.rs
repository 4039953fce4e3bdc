//! The targets that have a class: threads, processes, cgroups, all.

use super::{Activity, Classified, Quota, verdict};
use crate::{
    BlockedOn, BlockedTime, Cause, CgroupReading, Interval, TaskInterval, Tree,
    findings::BELOW_LIMIT_PERCENT, interval::ExitedInterval,
};

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
    pub(super) roots: Vec<u64>,
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
