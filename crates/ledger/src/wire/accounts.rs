//! Records of a task's time besides waits.

use crate::accounts::{BLOCKED_STATES, ByState, Stack};

/// A task's time in user space and in the kernel, counted by ticks, and its blocked time. Kept if [`super::Config::accounts`] is
/// set.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// `task_struct.utime`, ns, including guests. Not yet scaled to the run time.
    pub user_ns: u64,
    /// `task_struct.stime`, ns. Not yet scaled to the run time.
    pub system_ns: u64,
    /// `task_struct.gtime`, ns: time running a guest, a part of `user_ns`.
    pub guest_ns: u64,
    /// Time off the CPU without waiting for one, ns, including the time blocked until now.
    pub blocked_ns: ByState,
}

impl Accounts {
    /// Returns the increase since `base`. A decrease counts as 0, because the clocks of two CPUs may differ.
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

/// Sums of the exited threads of a process (`task_struct.signal`), reported with the main thread.
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
    /// Sums of the exited threads of the task's process. Only the record of the main thread has them; others have 0.
    pub exited_threads: ExitedThreads,
    /// Index of the [`crate::BlockedState`] in which the task is blocked now, plus one; 0: it is not blocked.
    pub state: u64,
    /// Not 0: `uncounted_ns` belongs to the stack at which the task is, or was last, blocked. The number is the index of its
    /// [`crate::BlockedState`] plus one. If no stack follows this record, the stack is the one that was reported before.
    pub is_due: u64,
    /// Blocked time until now that does not count for a stack yet, ns.
    pub uncounted_ns: u64,
}

/// The blocked times of a task, kept by the hook.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// When the task left its CPU to sleep, ns of `rq->clock`; 0: it does not sleep, or the hook did not see that moment.
    pub since_ns: u64,
    /// Index of the [`crate::BlockedState`].
    pub state: u64,
    /// Completed blocked time that does not count for a stack yet, ns.
    pub uncounted_ns: u64,
    /// Completed blocked time by state, ns.
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
    /// Kernel stack at which the task was blocked.
    pub stack: Stack,
}

/// Value of the table of stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCount {
    /// Blocked time that counts for this stack, ns.
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
