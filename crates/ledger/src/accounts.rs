//! Where a task's time goes besides waits. Reported only if [`crate::wire::Config::accounts`] is set.

crate::named! {
    /// The state of a task that is off its CPU and does not wait for one. The discriminant is its index in [`ByState`].
    BlockedState {
        /// Interruptible (S): a signal may end the sleep.
        Sleeping = "sleeping",
        /// The task waits for a device: `task_struct.in_iowait` was set, whatever the state.
        Iowait = "iowait",
        /// Uninterruptible (D) for any other reason: a kernel lock, a network file system, or the task is frozen.
        Uninterruptible = "uninterruptible",
        /// A kernel thread without work (TASK_IDLE, since Linux 4.14).
        Idle = "idle",
        /// Stopped, traced or parked.
        Stopped = "stopped",
    }
}

/// Number of blocked states.
pub const BLOCKED_STATES: usize = BlockedState::ALL.len();

/// ns by state, in the order of [`BlockedState::ALL`].
pub type ByState = [u64; BLOCKED_STATES];

/// Maximum number of return addresses in a [`Stack`].
pub const FRAMES: usize = 62;

/// The return addresses of a kernel stack, the innermost first. Unused entries are 0.
pub type Stack = [u64; FRAMES];
