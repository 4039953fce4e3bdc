//! Where the time of a task goes besides waits.

use crate::accounts::{BLOCKED_STATES, ByState, Stack};

/// A task's time in user space and in the kernel, as the kernel counts it by ticks, and its time blocked. Kept if
/// [`super::Config::accounts`] is set.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// `task_struct.utime`, ns: not yet scaled to the run time; includes guests.
    pub user_ns: u64,
    /// `task_struct.stime`, ns: not yet scaled to the run time.
    pub system_ns: u64,
    /// `task_struct.gtime`, ns: time running a guest, a part of `user_ns`.
    pub guest_ns: u64,
    /// Time off the CPU without waiting for one, ns, including unfinished time blocked.
    pub blocked_ns: ByState,
}

impl Accounts {
    /// Returns the increase since `base`. A decrease counts as 0: the clocks of two CPUs may differ.
    pub fn since(&self, base: &Self) -> Self {
        let mut blocked_ns = self.blocked_ns;
        for (now, base) in blocked_ns.iter_mut().zip(base.blocked_ns) {
            *now = now.saturating_sub(base);
        }
        Self {
            user_ns: self.user_ns.saturating_sub(base.user_ns),
            system_ns: self.system_ns.saturating_sub(base.system_ns),
            guest_ns: self.guest_ns.saturating_sub(base.guest_ns),
            blocked_ns,
        }
    }

    /// All zero.
    pub const NONE: Self = Self { user_ns: 0, system_ns: 0, guest_ns: 0, blocked_ns: [0; BLOCKED_STATES] };
}

impl ExitedThreads {
    /// Returns the increase since `base`.
    pub fn since(&self, base: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(base.user_ns),
            system_ns: self.system_ns.saturating_sub(base.system_ns),
            guest_ns: self.guest_ns.saturating_sub(base.guest_ns),
            on_cpu_ns: self.on_cpu_ns.saturating_sub(base.on_cpu_ns),
            voluntary: self.voluntary.saturating_sub(base.voluntary),
            involuntary: self.involuntary.saturating_sub(base.involuntary),
        }
    }
}

/// Sums of the exited threads of a process (`task_struct.signal`), reported with its main thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitedThreads {
    /// `utime`, ns.
    pub user_ns: u64,
    /// `stime`, ns.
    pub system_ns: u64,
    /// `gtime`, ns.
    pub guest_ns: u64,
    /// `sum_sched_runtime`, ns.
    pub on_cpu_ns: u64,
    /// `nvcsw`.
    pub voluntary: u64,
    /// `nivcsw`.
    pub involuntary: u64,
}

/// The time of a task besides waits, as the iterator reports it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountsRecord {
    /// The task's own time.
    pub own: Accounts,
    /// Sums of the exited threads of its process, only in the record of the main thread; all 0 elsewhere.
    pub exited_threads: ExitedThreads,
    /// Index of a [`crate::BlockedState`] plus one if the task is blocked now, else 0.
    pub state: u64,
    /// Not 0: `uncounted_ns` will count for the stack at which the task is blocked, or was until it was woken, and for this state: the
    /// index of a [`crate::BlockedState`] plus one. If no stack follows, it is the one reported before.
    pub is_due: u64,
    /// Time blocked that no stack has been counted for yet, including unfinished time, ns.
    pub uncounted_ns: u64,
}

/// How a task is blocked, kept by the hook.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// ns of `rq->clock` when the task left its CPU to sleep; 0: it is not asleep, or the hook did not see that moment.
    pub since_ns: u64,
    /// A [`crate::BlockedState`].
    pub state: u64,
    /// Completed time blocked that no stack has been counted for yet, ns.
    pub uncounted_ns: u64,
    /// Completed time blocked by state.
    pub ns: ByState,
    /// The value of [`Self::since_ns`] when the stack was last reported to user space.
    pub reported_since_ns: u64,
}

/// Key of the table of stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackKey {
    /// Thread id.
    pub tid: u32,
    /// A [`crate::BlockedState`].
    pub state: u32,
    /// The kernel stack at which the task was blocked.
    pub stack: Stack,
}

/// Value of the table of stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCount {
    /// Time blocked that counts for this stack, ns.
    pub ns: u64,
    /// Number of times that the stack was taken.
    pub count: u64,
    /// See [`super::serial`].
    pub serial: u64,
    /// Process id.
    pub tgid: u32,
    /// Unused.
    pub padding: u32,
    /// NUL-padded name of the thread.
    pub comm: [u8; 16],
}
