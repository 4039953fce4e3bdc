//! Where the time of a task went beside its waits.

use crate::accounts::{BLOCKED_STATES, ByState, Stack};

/// What a task's time went to, as the kernel counts it by ticks, and how long it was blocked. Kept where
/// [`super::Config::accounts`] is set.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// `task_struct.utime`, ns: not yet scaled to the run time, guests included.
    pub user_ns: u64,
    /// `task_struct.stime`, ns: as above.
    pub system_ns: u64,
    /// `task_struct.gtime`, ns: running a guest, part of `user_ns`.
    pub guest_ns: u64,
    /// Time off a CPU without waiting for one, that which is not over included.
    pub blocked_ns: ByState,
}

impl Accounts {
    /// What came since `base`. Clocks of two CPUs may differ: what went backwards by that is nothing.
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

    /// Nothing.
    pub const NONE: Self = Self { user_ns: 0, system_ns: 0, guest_ns: 0, blocked_ns: [0; BLOCKED_STATES] };
}

impl Gone {
    /// What came since `base`.
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

/// What threads of a process had done when they exited (`task_struct.signal`), told with its main thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
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

/// The accounts of a task as the iterator reports them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountsRecord {
    /// Its own.
    pub own: Accounts,
    /// Of the threads of its process that have exited; 0 but in a main thread.
    pub gone: Gone,
    /// A [`crate::BlockedState`] plus one: it is blocked now. 0: it is not.
    pub state: u64,
    /// 1: `uncounted_ns` will count for the stack that it is blocked at now. Where none follows it is the one told before.
    pub is_due: u64,
    /// Its time blocked for which no stack has been counted yet, that which is not over included, ns.
    pub uncounted_ns: u64,
}

/// How a task is blocked, kept by the hook.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// ns of `rq->clock` when it left its CPU to sleep; 0: it did not, or that was not seen.
    pub since_ns: u64,
    /// A [`crate::BlockedState`].
    pub state: u64,
    /// Time blocked that is over and for which no stack has been counted yet.
    pub uncounted_ns: u64,
    /// Time blocked that is over.
    pub ns: ByState,
    /// [`Self::since_ns`] when user space was last told the stack.
    pub told_since_ns: u64,
}

/// Key of the table of stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackKey {
    /// Thread id.
    pub tid: u32,
    /// A [`crate::BlockedState`].
    pub state: u32,
    /// Where it slept.
    pub stack: Stack,
}

/// Value of the table of stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCount {
    /// Time blocked that this stack stands for, ns.
    pub ns: u64,
    /// Times that the stack was taken.
    pub count: u64,
    /// See [`super::serial`].
    pub serial: u64,
    /// Process id.
    pub tgid: u32,
    /// No meaning.
    pub padding: u32,
    /// NUL-padded name of the thread.
    pub comm: [u8; 16],
}
