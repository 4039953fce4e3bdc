//! How a task spends its time, except for waits: user, kernel, guest and blocked time. These figures are reported only if
//! [`crate::wire::Config::accounts`] is set.

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

/// Number of blocked states.
pub const BLOCKED_STATES: usize = BlockedState::ALL.len();

/// Blocked time by state, ns, in the order of [`BlockedState::ALL`].
pub type ByState = [u64; BLOCKED_STATES];

/// Maximum number of return addresses in a [`Stack`].
pub const FRAMES: usize = 62;

/// The return addresses of a kernel stack, innermost first. Unused entries are 0.
pub type Stack = [u64; FRAMES];
