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
    /// What a task is blocked on. In the order of every output: first what it needs, then from [`BlockedKind::Accept`] on what it waits for
    /// work in.
    BlockedKind {
        /// Data from or to a socket, and connecting one; also sockets of the same host, and file systems over the network.
        Network = "network",
        /// A block device, and what is written to one: reads, writes, the page cache, journals, fsync.
        Disk = "disk",
        /// A pipe, a fifo or a message queue.
        Pipe = "pipe",
        /// Completions of io_uring.
        IoUring = "io_uring",
        /// A futex or a System V semaphore: mutexes, condition variables, joins. A pool that waits for work does so in one, too.
        Lock = "lock",
        /// A lock on a file: flock, fcntl, leases.
        FileLock = "file lock",
        /// A lock or a grace period within the kernel: mutexes, semaphores, RCU.
        KernelLock = "kernel lock",
        /// Memory: reclaim, compaction, limits, pages under migration.
        Memory = "memory",
        /// What these rules have no name for.
        Other = "other",
        /// No stack, or none of a known place.
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
        /// It was stopped: by a signal or by who traces it.
        Stopped = "stopped",
        /// Its cgroup was frozen, or the host goes to sleep.
        Frozen = "frozen",
        /// A kernel thread waits for work.
        KernelWorker = "kernel worker",
    }
}
by_name!(BlockedKind);

/// Number of kinds.
pub const KINDS: usize = BlockedKind::ALL.len();

impl BlockedKind {
    /// True where a task has nothing to do: it waits for work, for a point in time or to be resumed. A task that waits in poll may
    /// wait for answers as well as for work; the kernel cannot tell.
    pub const fn is_for_work(self) -> bool {
        self as usize >= Self::Accept as usize
    }

    /// The kind of a stack, by the names of its functions, the innermost first; `None` for one without a name. The first function that a
    /// rule knows decides: what called it is the reason, what it called is how the kernel sleeps.
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

    /// As far as the state alone tells.
    pub fn of_state(state: BlockedState) -> Option<Self> {
        match state {
            // Whoever sets in_iowait waits for a block device; io_uring may do so for what else it waits for.
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
    /// Sum of those that wait for work ([`BlockedKind::is_for_work`]), ns.
    pub fn for_work(&self) -> u64 {
        sum::total(self.iter().filter(|(kind, _)| kind.is_for_work()).map(|(_, ns)| ns))
    }
}

#[cfg(test)]
mod tests;
