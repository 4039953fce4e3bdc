//! Where a task's time goes besides waits: in user space, in the kernel, and blocked, by state. Reported only if requested
//! ([`crate::wire::Config::accounts`]).

crate::named! {
    /// How a task is off its CPU without waiting for one. The discriminant is its index in [`ByState`].
    BlockedState {
        /// Interruptible (S): a signal may end the sleep.
        Sleeping = "sleeping",
        /// The task waits for a device: `task_struct.in_iowait` was set, whatever the state.
        Iowait = "iowait",
        /// Uninterruptible (D) for another reason: kernel locks, network file systems, frozen.
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

/// Maximum number of return addresses in a [`Stack`], the innermost first; unused entries are 0.
pub const FRAMES: usize = 62;

/// A kernel stack.
pub type Stack = [u64; FRAMES];
