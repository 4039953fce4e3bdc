//! How a task spends its time, except for waits: user, kernel, guest and blocked time. These figures are reported only if
//! [`super::Config::accounts`] is set.

crate::named! {
    /// The state of a blocked task: a task that is off its CPU and does not wait for a CPU. The discriminant is its index in
    /// [`ByState`].
    BlockedState {
        /// Interruptible sleep (S), which a signal can end.
        Sleeping = "sleeping",
        /// The task waits for a device. This holds in every task state in which `task_struct.in_iowait` was set.
        Iowait = "iowait",
        /// Uninterruptible sleep (D) without `in_iowait`: the task waits for a kernel lock or a network file system, or it is
        /// frozen.
        Uninterruptible = "uninterruptible",
        /// A kernel thread that has no work (TASK_IDLE, since Linux 4.14).
        Idle = "idle",
        /// The task is stopped, traced or parked.
        Stopped = "stopped",
    }
}

pub const BLOCKED_STATES: usize = BlockedState::ALL.len();

/// Blocked time by state, ns, in the order of [`BlockedState::ALL`].
pub type ByState = [u64; BLOCKED_STATES];

/// Maximum number of return addresses in a [`Stack`].
pub const FRAMES: usize = 62;

/// The return addresses of a kernel stack, innermost first. Unused entries are 0.
pub type Stack = [u64; FRAMES];

/// The time of a task in user space and in the kernel, counted at ticks, and its blocked time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// `task_struct.utime`, ns, which includes time running a guest. The time is not scaled to the run time yet.
    pub user_ns: u64,
    /// `task_struct.stime`, ns. The time is not scaled to the run time yet.
    pub system_ns: u64,
    /// `task_struct.gtime`, ns: time spent running a guest. It is a part of `user_ns`.
    pub guest_ns: u64,
    /// Blocked time by state, ns. It includes the current block, up to now.
    pub blocked_ns: ByState,
}

impl Accounts {
    /// Returns the increase of each time since `base`. If a time has decreased, its increase counts as 0, because the clocks of
    /// two CPUs may differ.
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
}

impl ExitedThreads {
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

/// Sums over the exited threads of a process (`task_struct.signal`), reported with the main thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitedThreads {
    pub user_ns: u64,
    pub system_ns: u64,
    pub guest_ns: u64,
    pub on_cpu_ns: u64,
    pub voluntary: u64,
    pub involuntary: u64,
}

/// The iterator's record of how a task spends its time, except for waits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountsRecord {
    pub own: Accounts,
    /// Sums of the exited threads of the task's process. They are in the record of the main thread; other records have 0.
    pub exited_threads: ExitedThreads,
    /// Index of the [`BlockedState`] in which the task is blocked now, plus one; 0 if it is not blocked.
    pub state: u64,
    /// If this is not 0, `uncounted_ns` belongs to the stack at which the task is blocked or was last blocked. This number is the
    /// index of the task's [`BlockedState`] plus one. If no stack follows this record, the stack that was last reported is
    /// meant.
    pub is_due: u64,
    /// Blocked time up to now that is not counted for a stack yet, ns.
    pub uncounted_ns: u64,
}

/// The blocked times of a task, kept by the hook.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// When the task left its CPU to sleep, ns of `rq->clock`; 0 if it does not sleep, or if the hook did not see this switch.
    pub since_ns: u64,
    /// Index of the [`BlockedState`] in which the task sleeps.
    pub state: u64,
    /// Blocked time that has ended and is not counted for a stack yet, ns.
    pub uncounted_ns: u64,
    /// Blocked time that has ended, by state, ns.
    pub ns: ByState,
    /// The value of [`Self::since_ns`] when the stack was last reported to user space.
    pub reported_since_ns: u64,
}

/// The key of the table of stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackKey {
    pub tid: u32,
    /// Index of a [`BlockedState`].
    pub state: u32,
    pub stack: Stack,
}

/// The value of the table of stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCount {
    /// Blocked time that counts for this stack, ns.
    pub ns: u64,
    /// How often the stack was read.
    pub count: u64,
    pub serial: u64,
    pub tgid: u32,
    pub padding: u32,
    /// Name of the thread, padded with NUL bytes.
    pub comm: [u8; 16],
}
