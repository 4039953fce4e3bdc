//! Kinds of blocked time: what tasks are blocked on. The names of the functions that a task sleeps in decide.

mod rules;

use std::collections::{BTreeMap, HashMap};

use cgscope_layout::BlockedState;

use crate::{
    ByState, Interval, StackReading, TaskInterval,
    named::by_name,
    sum::{self, by},
};

cgscope_layout::named! {
    /// What a task is blocked on, in the order of every output. From [`BlockedKind::Accept`] the kinds mean that the task waits
    /// for work.
    BlockedKind {
        /// Data of a socket, connecting a socket, or a network file system.
        Network = "network",
        /// A block device, or data on its way to one: the page cache, journals, fsync.
        Disk = "disk",
        /// A pipe, a fifo or a message queue.
        Pipe = "pipe",
        /// Completions of io_uring.
        IoUring = "io_uring",
        /// A futex or a System V semaphore: mutexes, condition variables, joins. A thread pool may also wait for work this way.
        Lock = "lock",
        /// A lock on a file: flock, fcntl, leases.
        FileLock = "file lock",
        /// A lock or a grace period in the kernel: mutexes, semaphores, RCU.
        KernelLock = "kernel lock",
        /// Memory: reclaim, compaction, limits, pages under migration.
        Memory = "memory",
        /// A stack whose functions match no rule.
        Other = "other",
        /// No stack, or a stack without function names.
        Unknown = "unknown",
        /// A connection to accept.
        Accept = "accept",
        /// Events: poll, select, epoll, eventfd, inotify, signalfd.
        Poll = "poll",
        /// A point in time.
        Timer = "timer",
        /// The exit of a child.
        Child = "child",
        /// A signal.
        Signal = "signal",
        /// Input or output of a terminal.
        Terminal = "terminal",
        /// Stopped by a signal or a tracer.
        Stopped = "stopped",
        /// Frozen: its cgroup is frozen, or the host suspends.
        Frozen = "frozen",
        /// A kernel thread that waits for work.
        KernelWorker = "kernel worker",
    }
}
by_name!(BlockedKind);

/// Number of kinds.
pub const KINDS: usize = BlockedKind::ALL.len();

impl BlockedKind {
    /// True if the task has nothing to do: it waits for work, for a point in time or to be resumed. A task in poll may instead
    /// wait for answers; the kernel cannot distinguish the two.
    pub const fn is_for_work(self) -> bool {
        self as usize >= Self::Accept as usize
    }

    /// The kind of a stack, from the names of its functions, innermost first. The first function that matches a rule decides: its
    /// callers are the reason for the sleep, and its callees are how the kernel sleeps.
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

    /// The kind that the state alone implies.
    pub fn of_state(state: BlockedState) -> Option<Self> {
        match state {
            // The kernel sets in_iowait for waits on a block device. Only io_uring may set it for other waits.
            BlockedState::Iowait => Some(Self::Disk),
            BlockedState::Idle => Some(Self::KernelWorker),
            BlockedState::Stopped => Some(Self::Stopped),
            BlockedState::Sleeping | BlockedState::Uninterruptible => None,
        }
    }
}

by! {
    /// Blocked time by kind, ns.
    BlockedTime: BlockedKind, KINDS
}

impl BlockedTime {
    /// Time in which threads waited for work ([`BlockedKind::is_for_work`]), ns.
    pub fn for_work(&self) -> u64 {
        sum::total(self.iter().filter(|(kind, _)| kind.is_for_work()).map(|(_, ns)| ns))
    }
}

/// What the threads of an interval were blocked on. Time without a stack has the kind of its state, or is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockedOn {
    /// Blocked time of the interval's threads, by serial; only threads with a known time.
    threads: BTreeMap<u64, ThreadBlocked>,
    /// Time with stacks of exited threads; `None`: no exited thread has a stack.
    exited: Option<BlockedTime>,
}

impl BlockedOn {
    /// Computes the blocked time of an interval; `name` returns the function at a return address.
    pub fn new<'a>(interval: &Interval, name: impl Fn(u64) -> Option<&'a str>) -> Self {
        // Threads of a pool share stacks, so each stack is looked up once.
        let mut known: HashMap<(BlockedState, &[u64]), (BlockedKind, bool)> = HashMap::new();
        let mut of_stacks: BTreeMap<u64, ThreadBlocked> = BTreeMap::new();
        for stack in &interval.stacks {
            let (kind, is_kernel) = *known.entry((stack.state, &*stack.stack)).or_insert_with(|| {
                let names = || stack.stack.iter().map(|addr| name(*addr));
                let is_kernel = names().flatten().any(rules::is_of_kernel_threads);
                (BlockedKind::of(stack.state, names()), is_kernel)
            });
            of_stacks.entry(stack.serial).or_default().add(stack, kind, is_kernel);
        }
        let mut threads = BTreeMap::new();
        for task in &interval.tasks {
            let serial = task.reading.serial;
            let Some(by_state) = task.accounts.as_deref().and_then(|accounts| accounts.blocked) else {
                of_stacks.remove(&serial);
                continue;
            };
            let thread = match of_stacks.get_mut(&serial) {
                // In an appended interval, the stacks of an exited thread cover its time until it exited. Its blocked time covers
                // only the time until its last reading. The rest counts for exited threads.
                Some(stacks)
                    if task.reading.state.is_none() && stacks.by_state.total() > by_state.total() =>
                {
                    ThreadBlocked { time: stacks.take(by_state.total()), ..*stacks }
                }
                _ => of_stacks.remove(&serial).unwrap_or_default().whole(&by_state),
            };
            threads.insert(serial, thread);
        }
        let exited = (!of_stacks.is_empty()).then(|| total(of_stacks.values().map(|thread| &thread.time)));
        Self { threads, exited }
    }

    /// The blocked time of a thread in the interval, by its serial; `None` if unknown.
    pub fn thread(&self, serial: u64) -> Option<&BlockedTime> {
        self.threads.get(&serial).map(|thread| &thread.time)
    }

    /// The sum over all threads with a known time; for exited threads only time with a stack.
    pub fn total(&self) -> BlockedTime {
        total(self.threads.values().map(|thread| &thread.time).chain(&self.exited))
    }

    /// Time with stacks of exited threads.
    pub fn exited(&self) -> BlockedTime {
        self.exited.unwrap_or_default()
    }

    /// The sum over the tasks at these indices of the interval; `None` if there are tasks but no known time.
    pub(crate) fn known_of_tasks(&self, interval: &Interval, places: &[usize]) -> Option<BlockedTime> {
        let known = || places.iter().filter_map(|place| self.of_task(&interval.tasks[*place]));
        (places.is_empty() || known().next().is_some()).then(|| total(known()))
    }

    /// Like [`Self::total`], but `None` if there are tasks but no known time.
    pub(crate) fn known_total(&self, interval: &Interval) -> Option<BlockedTime> {
        let is_known = !self.threads.is_empty() || self.exited.is_some() || interval.tasks.is_empty();
        is_known.then(|| self.total())
    }

    /// Time in iowait and uninterruptible sleep in which a thread waited for work ([`BlockedKind::is_for_work`]), ns, from its
    /// stacks. An example is the parent of a vfork, which waits for its child.
    pub fn stuck_for_work_ns(&self, serial: u64) -> u64 {
        self.threads.get(&serial).map_or(0, |thread| thread.stuck_for_work_ns)
    }

    /// True if the thread's stacks are those of a kernel thread.
    pub fn is_kernel_thread(&self, serial: u64) -> bool {
        self.threads.get(&serial).is_some_and(|thread| thread.is_kernel)
    }

    pub(crate) fn of_task(&self, task: &TaskInterval) -> Option<&BlockedTime> {
        self.thread(task.reading.serial)
    }
}

fn total<'a>(times: impl Iterator<Item = &'a BlockedTime>) -> BlockedTime {
    times.fold(BlockedTime::default(), |mut sum, time| {
        sum.add(time);
        sum
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadBlocked {
    time: BlockedTime,
    /// The part of `time` that has stacks, by state.
    by_state: ByState,
    /// Time in iowait or uninterruptible sleep in which the thread waited for work, ns.
    stuck_for_work_ns: u64,
    is_kernel: bool,
}

impl ThreadBlocked {
    fn add(&mut self, stack: &StackReading, kind: BlockedKind, is_kernel: bool) {
        self.time.add_ns(kind, stack.ns);
        sum::add(&mut self.by_state.0[stack.state as usize], stack.ns);
        self.is_kernel |= is_kernel;
        if kind.is_for_work() && matches!(stack.state, BlockedState::Iowait | BlockedState::Uninterruptible) {
            sum::add(&mut self.stuck_for_work_ns, stack.ns);
        }
    }

    /// Removes and returns `ns` of the time, from each kind in proportion.
    fn take(&mut self, ns: u64) -> BlockedTime {
        let taken = self.time.at_most(ns);
        self.time.0.iter_mut().zip(taken.0).for_each(|(left, taken)| *left -= taken);
        taken
    }

    /// Adds the time without a stack; `all` is the total time by state.
    fn whole(mut self, all: &ByState) -> Self {
        for (state, ns) in without_stack(all, &self.by_state).iter() {
            self.time.add_ns(BlockedKind::of_state(state).unwrap_or(BlockedKind::Unknown), ns);
        }
        self
    }
}

/// The part of a thread's blocked time that has no stack. A stack counts for the time since the previous stack. So the stacks of
/// one state may cover more time than the thread spent in that state, and those of another state less.
pub fn without_stack(blocked: &ByState, stacks: &ByState) -> ByState {
    let mut rest_ns = blocked.total().saturating_sub(stacks.total());
    let mut without = blocked.since(stacks);
    for ns in &mut without.0 {
        *ns = (*ns).min(rest_ns);
        rest_ns -= *ns;
    }
    without
}

#[cfg(test)]
mod tests;
