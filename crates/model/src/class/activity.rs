//! How the active threads of a target spent their time.

use cgscope_layout::{BlockedState, Cause};

use super::{BESIDE_BUSIEST_PERCENT, Class, Classes, NAMED_PERCENT};
use crate::{
    BlockedKind, BlockedTime, ByCause, ByState, ExitedInterval, TaskInterval,
    findings::{BUSY_THREAD_PERCENT, is_share},
    sum,
};

/// Times of threads, ns, summed over the threads. The parts sum to the time that the threads existed, as far as it is known.
///
/// A thread is active if it ran or waited for a CPU for [`BUSY_THREAD_PERCENT`] of the interval and for
/// [`BESIDE_BUSIEST_PERCENT`] of the busiest thread's time. A thread is also active if it was in uninterruptible sleep (I/O,
/// kernel locks) for [`BUSY_THREAD_PERCENT`] of the interval. Such sleep does not count if the thread waits for work (the parent
/// of a vfork), or if it is a kernel thread and the target is a cgroup or the host. If no thread is active, all threads count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Length of the interval, ns.
    pub duration_ns: u64,
    /// Number of active threads and exited tasks. The sums below include the other threads only if no thread is active.
    pub threads: u64,
    pub on_cpu_ns: u64,
    /// Time waited for a CPU, by cause.
    pub by_cause: ByCause,
    /// The part of `own_cgroup` waits that tasks of `/` have. On many hosts `/` holds all tasks without a cgroup of their own.
    pub behind_root_ns: u64,
    /// The part of `other_cgroup` waits that real-time tasks have.
    pub realtime_ns: u64,
    /// Blocked time by kind; for exited tasks only the known kinds.
    pub blocked: BlockedTime,
    /// Blocked time of exited tasks with an unknown kind. Most of it may belong to idle threads.
    pub left_out_ns: u64,
    /// True if the blocked time of some threads is unknown and so missing in `blocked`.
    pub has_unread: bool,
    /// Time that the busiest thread ran or waited for a CPU; exited tasks count as one thread.
    pub busiest_ns: u64,
}

impl Activity {
    /// Computes the activity of these threads. `is_wide`: the target is a cgroup or the host. Uninterruptible sleep of kernel
    /// threads does not make them active there.
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

    /// Adds exited tasks. Only their sums are known, so the tasks are active if one thread with these sums would be active.
    /// `stacks`: what the exited tasks were blocked on, as far as their stacks are known.
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

    /// True if some blocked time is unknown or left out.
    pub fn is_partial(&self) -> bool {
        let all_ns = self.time_ns().saturating_add(self.left_out_ns);
        self.has_unread || is_share(self.left_out_ns, all_ns, NAMED_PERCENT)
    }

    pub fn time_ns(&self) -> u64 {
        self.wanted_ns().saturating_add(self.blocked.total())
    }

    /// Time on a CPU or waiting for one.
    pub fn wanted_ns(&self) -> u64 {
        self.on_cpu_ns.saturating_add(self.by_cause.total())
    }

    pub fn throttled_ns(&self) -> u64 {
        self.by_cause.get(Cause::Throttled)
    }

    pub fn wakeup_ns(&self) -> u64 {
        self.by_cause.get(Cause::Wakeup)
    }

    /// Time on a run queue or waking up.
    pub fn in_line_ns(&self) -> u64 {
        self.by_cause.total().saturating_sub(self.by_cause.limited_ns())
    }

    /// Time on a run queue, including unknown causes.
    pub fn queued_ns(&self) -> u64 {
        self.in_line_ns().saturating_sub(self.wakeup_ns())
    }

    /// Time blocked on the kinds that belong to this class.
    pub fn blocked_ns(&self, class: Class) -> u64 {
        let kinds = self.blocked.iter().filter(|(kind, _)| Class::blocked_on(*kind) == class);
        sum::total(kinds.map(|(_, ns)| ns))
    }

    fn of_task(task: &TaskInterval, classes: &Classes) -> Self {
        let mut by_cause = task.wait.by_cause;
        if let Some(pending) = &task.reading.pending {
            // A pending wait may have begun long before the interval.
            by_cause.add(&pending.by_cause.at_most(classes.interval.duration_ns));
        }
        let activity = Self::new(task.totals.on_cpu_ns, by_cause, task.reading.cgroup_id, classes);
        // The rest of the interval cannot be taken as blocked time, because the task may have started or exited in the interval.
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

    /// Adds all times but not `threads`, which the caller counts.
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

/// Splits the blocked time of exited tasks: by kind where stacks or states show the kind, and the unknown rest.
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

/// True if the thread was in uninterruptible sleep for long enough, without waiting for work.
fn is_stuck(task: &TaskInterval, classes: &Classes) -> bool {
    let serial = task.reading.serial;
    let blocked = task.accounts.as_deref().and_then(|accounts| accounts.blocked).unwrap_or_default();
    let stuck_ns =
        blocked.get(BlockedState::Iowait).saturating_add(blocked.get(BlockedState::Uninterruptible));
    let stuck_ns = stuck_ns.saturating_sub(classes.blocked.stuck_for_work_ns(serial));
    is_share(stuck_ns, classes.interval.duration_ns, BUSY_THREAD_PERCENT)
}
