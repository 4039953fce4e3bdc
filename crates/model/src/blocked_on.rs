//! What tasks are blocked on, in words, by the names of the functions that they sleep in.

mod rules;
mod sums;

use cgscope_layout::BlockedState;

pub use sums::{BlockedOn, without_stack};

use crate::{
    named::by_name,
    sum::{self, by},
};

cgscope_layout::named! {
    /// What a task is blocked on, in the order of every output. From [`BlockedKind::Accept`] on it waits for work.
    BlockedKind {
        /// Data of a socket, connecting one, or a file system over the network.
        Network = "network",
        /// A block device, and what is written to one: the page cache, journals, fsync.
        Disk = "disk",
        /// A pipe, a fifo or a message queue.
        Pipe = "pipe",
        /// Completions of io_uring.
        IoUring = "io_uring",
        /// A futex or a System V semaphore: mutexes, condition variables, joins; also of a pool that waits for work.
        Lock = "lock",
        /// A lock on a file: flock, fcntl, leases.
        FileLock = "file lock",
        /// A lock or a grace period within the kernel: mutexes, semaphores, RCU.
        KernelLock = "kernel lock",
        /// Memory: reclaim, compaction, limits, pages under migration.
        Memory = "memory",
        /// No rule knows it.
        Other = "other",
        /// No stack, or none with a name.
        Unknown = "unknown",
        /// A connection to accept.
        Accept = "accept",
        /// Events: poll, select, epoll, eventfd, inotify, signalfd.
        Poll = "poll",
        /// A point in time.
        Timer = "timer",
        /// The end of a child.
        Child = "child",
        /// A signal.
        Signal = "signal",
        /// Input or output of a terminal.
        Terminal = "terminal",
        /// Stopped by a signal or a tracer.
        Stopped = "stopped",
        /// Frozen with its cgroup, or as the host goes to sleep.
        Frozen = "frozen",
        /// A kernel thread waits for work.
        KernelWorker = "kernel worker",
    }
}
by_name!(BlockedKind);

/// Number of kinds.
pub const KINDS: usize = BlockedKind::ALL.len();

impl BlockedKind {
    /// True where a task has nothing to do: it waits for work, for a point in time or to be resumed. In poll it may also wait for
    /// answers; the kernel does not know.
    pub const fn is_for_work(self) -> bool {
        self as usize >= Self::Accept as usize
    }

    /// The kind of a stack, by the names of its functions, the innermost first. The first function that a rule knows decides: its
    /// callers are the reason, its callees are how the kernel sleeps.
    pub fn of<'a>(state: BlockedState, innermost_first: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut any = false;
        for name in innermost_first.into_iter().flatten() {
            any = true;
            if let Some(kind) = rules::of_function(name) {
                return kind;
            }
        }
        Self::of_state(state).unwrap_or(if any { Self::Other } else { Self::Unknown })
    }

    /// The kind by the state alone.
    pub fn of_state(state: BlockedState) -> Option<Self> {
        match state {
            // Code that sets in_iowait waits for a block device; only io_uring may set it for other waits.
            BlockedState::Iowait => Some(Self::Disk),
            BlockedState::Idle => Some(Self::KernelWorker),
            BlockedState::Stopped => Some(Self::Stopped),
            BlockedState::Sleeping | BlockedState::Uninterruptible => None,
        }
    }
}

by! {
    /// ns blocked, by kind.
    BlockedTime: BlockedKind, KINDS
}

impl BlockedTime {
    /// Waiting for work ([`BlockedKind::is_for_work`]), ns.
    pub fn for_work(&self) -> u64 {
        sum::total(self.iter().filter(|(kind, _)| kind.is_for_work()).map(|(_, ns)| ns))
    }
}

#[cfg(test)]
mod tests;
