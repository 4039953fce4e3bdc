//! What a task's time went to beside its waits: in user space and in the kernel, and blocked, by state. Told only where
//! that is asked for ([`crate::wire::Config::accounts`]).

crate::named! {
    /// How a task is off its CPU without waiting for one. The discriminant is its place in [`ByState`].
    BlockedState {
        /// Interruptible: it waits for something that a signal may end (S).
        Sleeping = "sleeping",
        /// It waits for a device: `task_struct.in_iowait` was set, whatever its state.
        Iowait = "iowait",
        /// Uninterruptible for another reason (D): locks of the kernel, file systems over the network, frozen.
        Uninterruptible = "uninterruptible",
        /// A kernel thread without work (TASK_IDLE, since Linux 4.14).
        Idle = "idle",
        /// Stopped, traced or parked.
        Stopped = "stopped",
    }
}

/// Number of these states.
pub const BLOCKED_STATES: usize = BlockedState::ALL.len();

/// ns by state, in the order of [`BlockedState::ALL`].
pub type ByState = [u64; BLOCKED_STATES];

/// Return addresses that are kept of a stack in the kernel, the innermost first; 0 where it ends before.
pub const FRAMES: usize = 62;

/// A stack in the kernel.
pub type Stack = [u64; FRAMES];
