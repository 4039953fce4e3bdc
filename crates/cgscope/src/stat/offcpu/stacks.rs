//! The blocked time of a run, by stack.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cgscope_model::{BlockedState, ByState, Interval, blocked_on::without_stack, table::exited::ENDED};

/// Where threads of one name were blocked, and in which state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockedAt {
    pub comm: Arc<str>,
    pub state: BlockedState,
    /// Return addresses, the innermost first; empty: no stack.
    pub stack: Arc<[u64]>,
}

/// Blocked time at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    pub ns: u64,
    /// How many stack walks found this place; 0 without a stack.
    pub count: u64,
}

/// The blocked time of a run.
#[derive(Debug, Default)]
pub struct Stacks {
    times: HashMap<BlockedAt, Time>,
    /// By task serial.
    threads: BTreeMap<u64, Thread>,
    /// The time that exited tasks were blocked after their last reading.
    exited: ByState,
    exited_threads: u64,
}

/// The blocked time of a thread, and the part of it that has a stack.
#[derive(Debug)]
struct Thread {
    comm: Arc<str>,
    blocked: ByState,
    stacks: ByState,
}

impl Thread {
    fn new(comm: &Arc<str>) -> Self {
        Self { comm: comm.clone(), blocked: ByState::default(), stacks: ByState::default() }
    }
}

impl Stacks {
    pub fn push(&mut self, interval: &Interval) {
        for task in &interval.tasks {
            let Some(blocked) = task.accounts.as_deref().and_then(|accounts| accounts.blocked) else {
                continue;
            };
            let thread = self.threads.entry(task.reading.serial);
            thread.or_insert_with(|| Thread::new(&task.reading.comm)).blocked.add(&blocked);
        }
        for exited in &interval.exited {
            self.exited.add(&exited.accounts.and_then(|accounts| accounts.blocked).unwrap_or_default());
            self.exited_threads += exited.tasks;
        }
        for stack in &interval.stacks {
            let thread = self.threads.entry(stack.serial).or_insert_with(|| Thread::new(&stack.comm));
            thread.stacks.0[stack.state as usize] += stack.ns;
            // An empty stack means that the stack could not be walked.
            let place =
                BlockedAt { comm: stack.comm.clone(), state: stack.state, stack: stack.stack.clone() };
            let time = self.times.entry(place).or_default();
            time.ns += stack.ns;
            time.count += stack.count;
        }
    }

    /// All places, including those without a stack, the longest time first. Their times add up to [`Self::total_ns`].
    pub fn places(&self) -> Vec<(BlockedAt, Time)> {
        let mut times = self.times.clone();
        for (comm, rest) in self.without_stack() {
            for (state, ns) in rest.iter().filter(|(_, ns)| *ns != 0) {
                let place = BlockedAt { comm: comm.clone(), state, stack: Arc::default() };
                times.entry(place).or_default().ns += ns;
            }
        }
        let mut places: Vec<_> = times.into_iter().filter(|(_, time)| time.ns != 0).collect();
        places.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.cmp(&b.0)));
        places
    }

    /// Blocked time, ns summed over threads. If the stacks have more time, because they include time just before the run, their
    /// sum counts.
    pub fn total_ns(&self) -> u64 {
        self.blocked_ns().max(self.stacks_ns())
    }

    /// The part of the total that has a stack.
    pub fn with_stack_ns(&self) -> u64 {
        self.times.iter().filter(|(place, _)| !place.stack.is_empty()).map(|(_, time)| time.ns).sum()
    }

    /// The number of threads.
    pub fn threads(&self) -> u64 {
        // The two overlap: an exited thread may have been read before.
        (self.threads.len() as u64).max(self.exited_threads)
    }

    fn blocked_ns(&self) -> u64 {
        self.threads.values().map(|thread| thread.blocked.total()).sum::<u64>() + self.exited.total()
    }

    fn stacks_ns(&self) -> u64 {
        self.times.values().map(|time| time.ns).sum()
    }

    /// The blocked time without a stack, by thread, limited to the total without a stack. Without the limit, time of exited
    /// threads would count twice: their stacks cover time that the sums of exited tasks already include.
    fn without_stack(&self) -> Vec<(Arc<str>, ByState)> {
        let mut rest_ns = self.blocked_ns().saturating_sub(self.stacks_ns());
        let ended = (Arc::from(ENDED), self.exited);
        let threads = self
            .threads
            .values()
            .map(|thread| (thread.comm.clone(), without_stack(&thread.blocked, &thread.stacks)));
        let mut all: Vec<_> = threads.chain([ended]).collect();
        for (_, by_state) in &mut all {
            for ns in &mut by_state.0 {
                *ns = (*ns).min(rest_ns);
                rest_ns -= *ns;
            }
        }
        all
    }
}
