//! What tasks are blocked on, derived from the names of the functions in which they sleep.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use cgscope_ledger::BlockedState;

use crate::sum::{self, by};
use crate::{BlockedKind, ByState, Interval, StackReading};

by! {
    BlockedTime: BlockedKind, BlockedKind::ALL.len()
}

impl BlockedTime {
    pub fn for_work(&self) -> u64 {
        sum::total(self.iter().filter(|(kind, _)| kind.is_for_work()).map(|(_, ns)| ns))
    }
}

/// What the threads of an interval were blocked on. Time without a stack gets the kind of its state, or `Unknown`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockedOn {
    /// Blocked time by thread serial; only threads whose blocked time is known.
    threads: BTreeMap<u64, ThreadBlocked>,
    /// Blocked time of exited threads that has stacks; `None`: no exited thread has a stack.
    pub exited: Option<BlockedTime>,
}

impl BlockedOn {
    /// Computes the blocked time of an interval. `name` returns the function at a return address.
    pub fn new<'a>(interval: &Interval, name: impl Fn(u64) -> Option<&'a str>) -> Self {
        // Threads of a pool share stacks, so each stack is looked up once.
        let mut known: HashMap<(BlockedState, &[u64]), (BlockedKind, bool)> = HashMap::new();
        let mut of_stacks: BTreeMap<u64, ThreadBlocked> = BTreeMap::new();
        for stack in &interval.stacks {
            let (kind, is_kernel) = *known.entry((stack.state, &*stack.stack)).or_insert_with(|| {
                let names = || stack.stack.iter().map(|addr| name(*addr));
                (BlockedKind::of(stack.state, names()), names().flatten().any(is_of_kernel_threads))
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
                // In an appended interval, the stacks of an exited thread cover the thread's time until it exited. Its blocked
                // time covers only the time until its last reading. The excess counts for exited threads.
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

    pub fn thread(&self, serial: u64) -> Option<&BlockedTime> {
        self.threads.get(&serial).map(|thread| &thread.time)
    }

    /// Returns the sum over all threads whose blocked time is known. For exited threads, only time with a stack counts.
    pub fn total(&self) -> BlockedTime {
        total(self.threads.values().map(|thread| &thread.time).chain(&self.exited))
    }

    /// Returns the sum over the tasks at these indexes; `None` if there are tasks but no blocked time is known.
    pub(crate) fn known_of_tasks(&self, interval: &Interval, places: &[usize]) -> Option<BlockedTime> {
        let known = || interval.tasks_at(places).filter_map(|task| self.thread(task.reading.serial));
        (places.is_empty() || known().next().is_some()).then(|| total(known()))
    }

    /// Like [`Self::total`], but `None` if there are tasks but no blocked time is known.
    pub(crate) fn known_total(&self, interval: &Interval) -> Option<BlockedTime> {
        let is_known = !self.threads.is_empty() || self.exited.is_some() || interval.tasks.is_empty();
        is_known.then(|| self.total())
    }

    /// Returns the time in iowait or uninterruptible sleep in which the thread waited for work, ns, from its stacks. See
    /// [`BlockedKind::is_for_work`]. An example is the parent of a vfork, which waits for its child.
    pub fn stuck_for_work_ns(&self, serial: u64) -> u64 {
        self.threads.get(&serial).map_or(0, |thread| thread.stuck_for_work_ns)
    }

    pub fn is_kernel_thread(&self, serial: u64) -> bool {
        self.threads.get(&serial).is_some_and(|thread| thread.is_kernel)
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

    /// Removes `ns` from the time, from each kind in proportion, and returns the removed part.
    fn take(&mut self, ns: u64) -> BlockedTime {
        let taken = self.time.at_most(ns);
        self.time.0.iter_mut().zip(taken.0).for_each(|(left, taken)| *left -= taken);
        taken
    }

    /// Adds the time without a stack. `all` is the total blocked time by state.
    fn whole(mut self, all: &ByState) -> Self {
        for (state, ns) in without_stack(all, &self.by_state).iter() {
            self.time.add_ns(BlockedKind::of_state(state).unwrap_or(BlockedKind::Unknown), ns);
        }
        self
    }
}

/// Returns the part of a thread's blocked time that has no stack. Each stack stands for the time since the previous stack. So the
/// stacks of one state may cover more time than the thread spent in that state, and the stacks of another state less.
pub fn without_stack(blocked: &ByState, stacks: &ByState) -> ByState {
    let mut rest_ns = blocked.total().saturating_sub(stacks.total());
    let mut without = blocked.since(stacks);
    for ns in &mut without.0 {
        *ns = (*ns).min(rest_ns);
        rest_ns -= *ns;
    }
    without
}

/// True for functions in which only kernel threads start. Threads that io_uring creates in a process start elsewhere.
pub(crate) fn is_of_kernel_threads(name: &str) -> bool {
    matches!(name.split([' ', '.']).next(), Some("kthread" | "kthreadd"))
}
