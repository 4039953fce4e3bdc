//! What the active threads of a target did with their time.

use cgscope_layout::{BlockedState, Cause};

use super::{BESIDE_BUSIEST_PERCENT, Class, Classes, NAMED_PERCENT};
use crate::{
    BlockedKind, BlockedTime, ByCause, ByState, TaskInterval,
    findings::{BUSY_THREAD_PERCENT, is_share},
    interval::ExitedInterval,
    sum,
};

/// The time of threads, ns summed over them. The parts sum to the time that they existed, as far as that is known.
///
/// A thread is active if it was blocked in a way that no signal ends (I/O, locks of the kernel) for [`BUSY_THREAD_PERCENT`] of the
/// interval, or if it ran or waited for a CPU that long and for [`BESIDE_BUSIEST_PERCENT`] of what the busiest thread did. If none
/// is, all count. Being blocked for work in that way (the parent of a vfork) does not count, nor do threads of the kernel in a target
/// of several threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Length of the interval.
    pub duration_ns: u64,
    /// Active threads, and tasks that exited. The other threads are in the sums below only if none is active.
    pub threads: u64,
    pub on_cpu_ns: u64,
    /// Waits.
    pub by_cause: ByCause,
    /// The part of its wait behind its own cgroup in `/`, where many hosts keep all that has no other cgroup.
    pub behind_root_ns: u64,
    /// The part of its wait behind other cgroups that real-time tasks had.
    pub realtime_ns: u64,
    /// Blocked, by kind; for tasks that exited only known kinds.
    pub blocked: BlockedTime,
    /// Blocked time of unknown kind of tasks that exited. Most of it may be that of idle threads.
    pub left_out_ns: u64,
    /// The blocked time of some threads is not known and not in `blocked`.
    pub has_unread: bool,
    /// What the busiest thread ran or waited for a CPU; tasks that exited count as one.
    pub busiest_ns: u64,
}

impl Activity {
    /// The activity of these threads. `is_wide`: the target is a cgroup or the host, which threads of the kernel do not make active.
    pub(super) fn of(tasks: &[&TaskInterval], classes: &Classes, is_wide: bool) -> Self {
        let duration_ns = classes.interval.duration_ns;
        let tasks: Vec<_> = tasks.iter().map(|task| (task, Self::of_task(task, classes))).collect();
        let most_ns = tasks.iter().map(|(_, activity)| activity.busiest_ns).max().unwrap_or(0);
        let empty = Self { duration_ns, ..Self::default() };
        let (mut active, mut all) = (empty.clone(), empty);
        for (task, activity) in tasks {
            all.add(&activity);
            let keeps_pace = is_share(activity.busiest_ns, most_ns, BESIDE_BUSIEST_PERCENT);
            let is_kernel = is_wide && classes.blocked.is_kernel_thread(task.reading.serial);
            if task.is_busy(duration_ns) && keeps_pace || !is_kernel && is_stuck(task, classes) {
                active.add(&activity);
                active.threads += 1;
            }
        }
        if active.threads == 0 { all } else { active }
    }

    /// Adds tasks that exited, of which only sums are known: they are active where one thread with these sums would be.
    /// `stacks`: what they were blocked on as far as they have stacks.
    pub(super) fn add_exited<'a>(
        &mut self,
        exited: impl IntoIterator<Item = &'a ExitedInterval>,
        stacks: &BlockedTime,
        classes: &Classes,
    ) {
        let (mut ended, mut tasks, mut by_state) = (Self::default(), 0, ByState::default());
        for exited in exited {
            let blocked = exited.accounts.and_then(|accounts| accounts.blocked);
            ended.add(&Self {
                has_unread: exited.tasks != 0 && blocked.is_none(),
                ..Self::new(exited.totals.on_cpu_ns, exited.wait.by_cause, exited.cgroup_id, classes)
            });
            sum::add(&mut tasks, exited.tasks);
            by_state.add(&blocked.unwrap_or_default());
        }
        ended.busiest_ns = ended.wanted_ns();
        let are_active = tasks != 0 && is_share(ended.busiest_ns, self.duration_ns, BUSY_THREAD_PERCENT);
        if self.threads == 0 && are_active {
            *self = Self { duration_ns: self.duration_ns, ..Self::default() };
        }
        if are_active || self.threads == 0 && tasks != 0 {
            (ended.blocked, ended.left_out_ns) = known(&by_state, stacks);
        }
        self.add(&ended);
        if self.threads != 0 || are_active {
            sum::add(&mut self.threads, tasks);
        }
    }

    /// True if some of its blocked time is not known and left out.
    pub fn is_partial(&self) -> bool {
        let all_ns = self.time_ns().saturating_add(self.left_out_ns);
        self.has_unread || is_share(self.left_out_ns, all_ns, NAMED_PERCENT)
    }

    pub fn time_ns(&self) -> u64 {
        self.wanted_ns().saturating_add(self.blocked.total())
    }

    /// Ran or waited for a CPU.
    pub fn wanted_ns(&self) -> u64 {
        self.on_cpu_ns.saturating_add(self.by_cause.total())
    }

    pub fn throttled_ns(&self) -> u64 {
        self.by_cause.get(Cause::Throttled)
    }

    pub fn wakeup_ns(&self) -> u64 {
        self.by_cause.get(Cause::Wakeup)
    }

    /// On a run queue, or waking.
    pub fn in_line_ns(&self) -> u64 {
        self.by_cause.total().saturating_sub(self.throttled_ns())
    }

    /// On a run queue, unknown causes included.
    pub fn queued_ns(&self) -> u64 {
        self.in_line_ns().saturating_sub(self.wakeup_ns())
    }

    /// Blocked on what makes a target of this class.
    pub fn blocked_ns(&self, class: Class) -> u64 {
        let kinds = self.blocked.iter().filter(|(kind, _)| Class::blocked_on(*kind) == class);
        sum::total(kinds.map(|(_, ns)| ns))
    }

    fn of_task(task: &TaskInterval, classes: &Classes) -> Self {
        let mut by_cause = task.wait.by_cause;
        if let Some(pending) = &task.reading.pending {
            // It may have begun long before the interval.
            by_cause.add(&pending.by_cause.at_most(classes.interval.duration_ns));
        }
        let activity = Self::new(task.totals.on_cpu_ns, by_cause, task.reading.cgroup_id, classes);
        // What is left of the interval is no measure: the task may have started or exited in it.
        let blocked = classes.blocked.of_task(task);
        Self {
            blocked: blocked.copied().unwrap_or_default(),
            has_unread: blocked.is_none(),
            busiest_ns: activity.wanted_ns(),
            realtime_ns: task.realtime().map_or(0, |_| by_cause.get(Cause::OtherCgroup)),
            ..activity
        }
    }

    fn new(on_cpu_ns: u64, by_cause: ByCause, cgroup_id: u64, classes: &Classes) -> Self {
        let is_root = classes.roots.contains(&cgroup_id);
        let behind_root_ns = if is_root { by_cause.get(Cause::OwnCgroup) } else { 0 };
        Self { on_cpu_ns, by_cause, behind_root_ns, ..Self::default() }
    }

    /// The caller counts threads.
    fn add(&mut self, other: &Self) {
        sum::add(&mut self.on_cpu_ns, other.on_cpu_ns);
        self.by_cause.add(&other.by_cause);
        sum::add(&mut self.behind_root_ns, other.behind_root_ns);
        sum::add(&mut self.realtime_ns, other.realtime_ns);
        self.blocked.add(&other.blocked);
        sum::add(&mut self.left_out_ns, other.left_out_ns);
        self.has_unread |= other.has_unread;
        self.busiest_ns = self.busiest_ns.max(other.busiest_ns);
    }
}

/// The blocked time of tasks that exited: of a kind known by stacks or states, and of none.
fn known(by_state: &ByState, stacks: &BlockedTime) -> (BlockedTime, u64) {
    let mut known = *stacks;
    let nameless_ns = std::mem::take(&mut known.0[BlockedKind::Unknown as usize]);
    let mut rest_ns = by_state.total().saturating_sub(stacks.total());
    for (state, ns) in by_state.iter() {
        let Some(kind) = BlockedKind::of_state(state) else { continue };
        let more_ns = ns.saturating_sub(stacks.get(kind)).min(rest_ns);
        known.add_ns(kind, more_ns);
        rest_ns -= more_ns;
    }
    (known, rest_ns.saturating_add(nameless_ns))
}

/// Blocked for long enough in a way that no signal ends, and not for work.
fn is_stuck(task: &TaskInterval, classes: &Classes) -> bool {
    let serial = task.reading.serial;
    let blocked = task.accounts.as_deref().and_then(|accounts| accounts.blocked).unwrap_or_default();
    let stuck_ns =
        blocked.get(BlockedState::Iowait).saturating_add(blocked.get(BlockedState::Uninterruptible));
    let stuck_ns = stuck_ns.saturating_sub(classes.blocked.stuck_for_work_ns(serial));
    is_share(stuck_ns, classes.interval.duration_ns, BUSY_THREAD_PERCENT)
}
