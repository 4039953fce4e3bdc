//! What the active threads of a target did with their time.

use cgscope_layout::{BlockedState, Cause};

use super::{BESIDE_BUSIEST_PERCENT, TOLD_PERCENT};
use crate::{
    BlockedOn, BlockedTime, ByCause, ByState, Kind, TaskInterval,
    findings::{BUSY_THREAD_PERCENT, is_share},
    interval::ExitedInterval,
    sum,
};

/// The time of threads, ns summed over them. The parts sum to the time that they were there, as far as that is known.
///
/// Active is a thread that was blocked in a way that no signal ends (I/O, locks of the kernel) for [`BUSY_THREAD_PERCENT`] of the
/// interval, and one that ran or waited for a CPU for so long and for [`BESIDE_BUSIEST_PERCENT`] of what the busiest thread of the
/// target did. Where none is, all count. Blocked for work in that way (the parent of a vfork) does not make active; nor does it
/// a thread of the kernel, where the target is not that thread alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Length of the interval.
    pub duration_ns: u64,
    /// Active threads, and tasks that exited.
    pub threads: u64,
    /// Threads that are not active, and not counted below unless none is.
    pub idle_threads: u64,
    /// Ran.
    pub on_cpu_ns: u64,
    /// Waited because a quota had run out.
    pub throttled_ns: u64,
    /// Waited on a run queue for another reason, the unknown ones included.
    pub queued_ns: u64,
    /// Waited until an idle CPU took it.
    pub wakeup_ns: u64,
    /// All of these waits by cause.
    pub by_cause: ByCause,
    /// Of what it waited behind its own cgroup, that in `/`: on many hosts all that has no other cgroup is there.
    pub behind_root_ns: u64,
    /// The part of its wait behind other cgroups that real-time tasks had.
    pub realtime_ns: u64,
    /// Blocked, by kind. Of tasks that exited that whose kind is known.
    pub blocked: BlockedTime,
    /// Blocked time of tasks that exited whose kind is not known: not in `blocked`, as most of it may be that of idle threads.
    pub left_out_ns: u64,
    /// Of some threads blocked time is not known at all, and not in `blocked`: how long each was there is not known either.
    pub has_unread: bool,
    /// What the busiest thread ran or waited for a CPU; tasks that exited count as one.
    pub busiest_ns: u64,
}

/// What the threads of a target are looked at with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub blocked: &'a BlockedOn,
    pub duration_ns: u64,
    /// Ids of the cgroup `/`.
    pub roots: &'a [u64],
    /// The target is a cgroup or the host: threads of the kernel are not what it is about.
    pub is_wide: bool,
}

impl Activity {
    /// Of these threads.
    pub(super) fn of<'a>(tasks: impl IntoIterator<Item = &'a TaskInterval>, scope: &Scope<'_>) -> Self {
        let of_tasks: Vec<_> = tasks.into_iter().map(|task| (task, Self::of_task(task, scope))).collect();
        let most_ns = of_tasks.iter().map(|(_, of_task)| of_task.wanted_ns()).max().unwrap_or(0);
        let empty = Self { duration_ns: scope.duration_ns, ..Self::default() };
        let (mut active, mut all) = (empty.clone(), empty);
        for (task, of_task) in of_tasks {
            all.add(&of_task);
            let keeps_pace = is_share(of_task.wanted_ns(), most_ns, BESIDE_BUSIEST_PERCENT);
            if task.is_busy(scope.duration_ns) && keeps_pace || is_stuck(task, scope) {
                active.add(&of_task);
                active.threads += 1;
            } else {
                active.idle_threads += 1;
            }
        }
        if active.threads == 0 { Self { idle_threads: active.idle_threads, ..all } } else { active }
    }

    /// Adds tasks that exited, of which only the sums are known: they count as active where these are those of an active thread.
    /// `stacks` is what their stacks tell of what they were blocked on.
    pub(super) fn add_exited<'a>(
        &mut self,
        exited: impl IntoIterator<Item = &'a ExitedInterval>,
        stacks: &BlockedTime,
        scope: &Scope<'_>,
    ) {
        let (mut ended, mut by_state) = (Self::default(), ByState::default());
        for exited in exited {
            ended.add(&Self::of_exited(exited, scope));
            sum::add(&mut ended.threads, exited.tasks);
            by_state.add(&exited.accounts.and_then(|accounts| accounts.blocked).unwrap_or_default());
        }
        ended.busiest_ns = ended.wanted_ns();
        let are_active =
            ended.threads != 0 && is_share(ended.busiest_ns, scope.duration_ns, BUSY_THREAD_PERCENT);
        if self.threads == 0 && are_active {
            *self =
                Self { duration_ns: self.duration_ns, idle_threads: self.idle_threads, ..Self::default() };
        }
        if are_active || self.threads == 0 && ended.threads != 0 {
            (ended.blocked, ended.left_out_ns) = known(&by_state, stacks);
        }
        self.add(&ended);
        if self.threads != 0 || are_active {
            sum::add(&mut self.threads, ended.threads);
        }
    }

    fn of_exited(exited: &ExitedInterval, scope: &Scope<'_>) -> Self {
        let ended = Self::new(exited.totals.on_cpu_ns, exited.wait.by_cause, exited.cgroup_id, scope);
        let is_read = exited.accounts.is_some_and(|accounts| accounts.blocked.is_some());
        Self { has_unread: exited.tasks != 0 && !is_read, ..ended }
    }

    /// Of some of its time it is not known what it was blocked on, and that is left out.
    pub(super) fn is_partial(&self) -> bool {
        let all_ns = self.time_ns().saturating_add(self.left_out_ns);
        self.has_unread || is_share(self.left_out_ns, all_ns, TOLD_PERCENT)
    }

    /// All parts, ns.
    pub fn time_ns(&self) -> u64 {
        self.wanted_ns().saturating_add(self.blocked.total())
    }

    fn of_task(task: &TaskInterval, scope: &Scope<'_>) -> Self {
        let mut by_cause = task.wait.by_cause;
        if let Some(pending) = &task.reading.pending {
            by_cause.add(&within(&pending.by_cause, scope.duration_ns));
        }
        let of_task = Self::new(task.totals.on_cpu_ns, by_cause, task.reading.cgroup_id, scope);
        // What is left of the interval is no measure: it may have been born in it, or have gone.
        let blocked = scope.blocked.of_task(task);
        Self {
            blocked: blocked.copied().unwrap_or_default(),
            has_unread: blocked.is_none(),
            busiest_ns: of_task.wanted_ns(),
            realtime_ns: task.realtime().map_or(0, |_| of_task.waited_ns(Cause::OtherCgroup)),
            ..of_task
        }
    }

    /// What ran and waited so in a cgroup.
    fn new(on_cpu_ns: u64, by_cause: ByCause, cgroup_id: u64, scope: &Scope<'_>) -> Self {
        let throttled_ns = by_cause.get(Cause::Throttled);
        let wakeup_ns = by_cause.get(Cause::Wakeup);
        let queued_ns = by_cause.total() - throttled_ns - wakeup_ns;
        let is_root = scope.roots.contains(&cgroup_id);
        let behind_root_ns = if is_root { by_cause.get(Cause::OwnCgroup) } else { 0 };
        Self { on_cpu_ns, throttled_ns, queued_ns, wakeup_ns, by_cause, behind_root_ns, ..Self::default() }
    }

    /// Adds the time of others; how many they are is for who calls it.
    fn add(&mut self, other: &Self) {
        sum::add(&mut self.on_cpu_ns, other.on_cpu_ns);
        sum::add(&mut self.throttled_ns, other.throttled_ns);
        sum::add(&mut self.queued_ns, other.queued_ns);
        sum::add(&mut self.wakeup_ns, other.wakeup_ns);
        self.by_cause.add(&other.by_cause);
        sum::add(&mut self.behind_root_ns, other.behind_root_ns);
        sum::add(&mut self.realtime_ns, other.realtime_ns);
        self.blocked.add(&other.blocked);
        sum::add(&mut self.left_out_ns, other.left_out_ns);
        self.has_unread |= other.has_unread;
        self.busiest_ns = self.busiest_ns.max(other.busiest_ns);
    }
}

/// Of what tasks that exited were blocked, that whose kind is known by stacks or states, and how much is not.
fn known(by_state: &ByState, stacks: &BlockedTime) -> (BlockedTime, u64) {
    let mut known = *stacks;
    let nameless_ns = std::mem::take(&mut known.0[Kind::Unknown as usize]);
    let mut rest_ns = by_state.total().saturating_sub(stacks.total());
    for (state, ns) in by_state.iter() {
        let Some(kind) = Kind::of_state(state) else { continue };
        let more_ns = ns.saturating_sub(stacks.get(kind)).min(rest_ns);
        known.add_ns(kind, more_ns);
        rest_ns -= more_ns;
    }
    (known, rest_ns.saturating_add(nameless_ns))
}

/// For a share of the interval that makes it count, it was blocked in a way that no signal ends, and not for work.
fn is_stuck(task: &TaskInterval, scope: &Scope<'_>) -> bool {
    let serial = task.reading.serial;
    if scope.is_wide && scope.blocked.is_kernel_thread(serial) {
        return false;
    }
    let blocked = task.accounts.as_deref().and_then(|accounts| accounts.blocked).unwrap_or_default();
    let stuck_ns =
        blocked.get(BlockedState::Iowait).saturating_add(blocked.get(BlockedState::Uninterruptible));
    let stuck_ns = stuck_ns.saturating_sub(scope.blocked.stuck_for_work_ns(serial));
    is_share(stuck_ns, scope.duration_ns, BUSY_THREAD_PERCENT)
}

/// A wait that is not over may have begun long before the interval: of one that did, the causes in proportion.
fn within(by_cause: &ByCause, duration_ns: u64) -> ByCause {
    let total_ns = by_cause.total();
    if total_ns <= duration_ns {
        return *by_cause;
    }
    ByCause(by_cause.0.map(|ns| {
        let part = u128::from(ns) * u128::from(duration_ns) / u128::from(total_ns);
        u64::try_from(part).unwrap_or(duration_ns)
    }))
}
