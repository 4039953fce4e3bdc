//! The blocked time of an interval by kind: of each thread, and of what threads are taken together as.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cgscope_layout::BlockedState;

use super::{BlockedTime, Kind, rules};
use crate::{ByState, Interval, StackReading, TaskInterval, Tree};

/// What the threads of an interval were blocked on. Of each it is all of its blocked time: that without a stack is of the kind that
/// its state tells, or unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockedOn {
    /// By serial.
    threads: BTreeMap<u64, BlockedTime>,
    /// Of those that have stacks and have exited: their process and their time. What they were blocked without a stack is not in it.
    exited: BTreeMap<u64, (u32, BlockedTime)>,
    /// What stacks tell of threads beside, by serial: of those of which they tell something.
    asides: BTreeMap<u64, Aside>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Aside {
    /// Waited for work in a way that no signal ends, ns.
    stuck_for_work_ns: u64,
    /// Its stacks begin where those of kernel threads do.
    is_kernel: bool,
}

impl BlockedOn {
    /// Of an interval whose return addresses are of these functions; `name` gives `None` for an address that it does not know.
    pub fn new<'a>(interval: &Interval, name: impl Fn(u64) -> Option<&'a str>) -> Self {
        let mut kinds = Kinds { name, known: HashMap::new() };
        let mut of_stacks: BTreeMap<u64, OfStacks> = BTreeMap::new();
        for stack in &interval.stacks {
            of_stacks
                .entry(stack.serial)
                .or_insert_with(|| OfStacks::new(stack.tgid))
                .add(stack, kinds.of(stack).kind);
        }
        let mut blocked = Self { asides: asides(interval, &mut kinds), ..Self::default() };
        for task in &interval.tasks {
            let serial = task.reading.serial;
            let Some(by_state) = task.accounts.as_deref().and_then(|accounts| accounts.blocked) else {
                of_stacks.remove(&serial);
                continue;
            };
            match of_stacks.get_mut(&serial) {
                // Of one that went in a longer interval the stacks are told to its end, and its time until it was read last: the
                // rest is with those that exited.
                Some(stacks) if went(task) && stacks.by_state.total() > by_state.total() => {
                    let told = stacks.take(by_state.total());
                    blocked.threads.insert(serial, told);
                }
                stacks => {
                    blocked.threads.insert(serial, whole(&by_state, stacks.as_deref()));
                    of_stacks.remove(&serial);
                }
            }
        }
        let exited = of_stacks.into_iter().map(|(serial, gone)| (serial, (gone.tgid, gone.time)));
        blocked.exited = exited.collect();
        blocked
    }

    /// Of one thread that was there at the end, by its serial; `None` where its blocked time is not known.
    pub fn thread(&self, serial: u64) -> Option<&BlockedTime> {
        self.threads.get(&serial)
    }

    /// Of all threads, as far as known; of those that exited what has a stack.
    pub fn total(&self) -> BlockedTime {
        let mut total = self.exited();
        self.threads.values().for_each(|time| total.add(time));
        total
    }

    /// Of threads that exited, what has a stack.
    pub fn exited(&self) -> BlockedTime {
        sum(self.exited.values().map(|(_, time)| time))
    }

    /// By process, exited threads included as far as they have stacks.
    pub fn by_process(&self, interval: &Interval) -> BTreeMap<u32, BlockedTime> {
        let mut by_process: BTreeMap<u32, BlockedTime> = BTreeMap::new();
        for (tgid, time) in self.exited.values() {
            by_process.entry(*tgid).or_default().add(time);
        }
        for task in &interval.tasks {
            if let Some(time) = self.thread(task.reading.serial) {
                by_process.entry(task.reading.tgid).or_default().add(time);
            }
        }
        by_process
    }

    /// By cgroup, each with all below it, living threads only.
    pub fn by_cgroup(&self, interval: &Interval, tree: &Tree) -> BTreeMap<Arc<str>, BlockedTime> {
        let nodes = tree.nodes().iter().enumerate().filter(|(_, node)| node.has_tasks);
        nodes.map(|(at, node)| (node.path.clone(), self.of_tasks(interval, tree.tasks_below(at)))).collect()
    }

    /// Of some tasks, given as their places in the interval.
    pub fn of_tasks(&self, interval: &Interval, places: &[usize]) -> BlockedTime {
        sum(places.iter().filter_map(|place| self.of_task(&interval.tasks[*place])))
    }

    /// The same, but `None` where it is known of none of them, though there are some.
    pub(crate) fn known_of_tasks(&self, interval: &Interval, places: &[usize]) -> Option<BlockedTime> {
        let is_known = |place: &usize| self.of_task(&interval.tasks[*place]).is_some();
        (places.is_empty() || places.iter().any(is_known)).then(|| self.of_tasks(interval, places))
    }

    /// As [`Self::total`], but `None` where nothing is known.
    pub(crate) fn known_total(&self, interval: &Interval) -> Option<BlockedTime> {
        let is_known = !self.threads.is_empty() || !self.exited.is_empty() || interval.tasks.is_empty();
        is_known.then(|| self.total())
    }

    /// Of a thread: that part of its time in iowait and uninterruptible in which it waited for work
    /// ([`Kind::is_for_work`]), as the parent of a vfork does for its child; ns, as far as stacks tell.
    pub fn stuck_for_work_ns(&self, serial: u64) -> u64 {
        self.asides.get(&serial).map_or(0, |aside| aside.stuck_for_work_ns)
    }

    /// True of a thread of the kernel, as far as stacks tell.
    pub fn is_kernel_thread(&self, serial: u64) -> bool {
        self.asides.get(&serial).is_some_and(|aside| aside.is_kernel)
    }

    pub(crate) fn of_task(&self, task: &TaskInterval) -> Option<&BlockedTime> {
        self.thread(task.reading.serial)
    }
}

fn asides<'a>(
    interval: &Interval,
    kinds: &mut Kinds<impl Fn(u64) -> Option<&'a str>>,
) -> BTreeMap<u64, Aside> {
    let mut asides: BTreeMap<u64, Aside> = BTreeMap::new();
    for stack in &interval.stacks {
        let Place { kind, is_kernel } = kinds.of(stack);
        let is_stuck = matches!(stack.state, BlockedState::Iowait | BlockedState::Uninterruptible);
        let stuck_ns = if is_stuck && kind.is_for_work() { stack.ns } else { 0 };
        if is_kernel || stuck_ns != 0 {
            let aside = asides.entry(stack.serial).or_default();
            crate::sum::add(&mut aside.stuck_for_work_ns, stuck_ns);
            aside.is_kernel |= is_kernel;
        }
    }
    asides
}

/// It is not there any more at the end of an appended interval ([`Interval::append`]).
fn went(task: &TaskInterval) -> bool {
    task.reading.state.is_none()
}

fn sum<'a>(times: impl Iterator<Item = &'a BlockedTime>) -> BlockedTime {
    times.fold(BlockedTime::default(), |mut sum, time| {
        sum.add(time);
        sum
    })
}

/// What the stacks of a thread stand for.
struct OfStacks {
    tgid: u32,
    time: BlockedTime,
    by_state: ByState,
}

impl OfStacks {
    fn new(tgid: u32) -> Self {
        Self { tgid, time: BlockedTime::default(), by_state: ByState::default() }
    }

    /// So much of its time, which has at least that, of each kind in proportion.
    fn take(&mut self, ns: u64) -> BlockedTime {
        let all_ns = self.time.total();
        let part = |of_kind: u64| {
            let part = u128::from(of_kind) * u128::from(ns) / u128::from(all_ns.max(1));
            u64::try_from(part).unwrap_or(of_kind)
        };
        let taken = BlockedTime(self.time.0.map(part));
        for (left, taken) in self.time.0.iter_mut().zip(taken.0) {
            *left -= taken;
        }
        taken
    }

    fn add(&mut self, stack: &StackReading, kind: Kind) {
        self.time.add_ns(kind, stack.ns);
        crate::sum::add(&mut self.by_state.0[stack.state as usize], stack.ns);
    }
}

/// All blocked time: what has stacks, and the rest.
fn whole(by_state: &ByState, stacks: Option<&OfStacks>) -> BlockedTime {
    let Some(stacks) = stacks else {
        return sum_states(by_state.iter());
    };
    let mut time = stacks.time;
    time.add(&sum_states(without_stack(by_state, &stacks.by_state).iter()));
    time
}

/// What of the blocked time of a thread has no stack. A stack stands for all since the one before it, so that of one state the
/// stacks may have more, and of another less, than the thread was blocked in it.
pub fn without_stack(blocked: &ByState, stacks: &ByState) -> ByState {
    let mut rest_ns = blocked.total().saturating_sub(stacks.total());
    let mut without = blocked.since(stacks);
    for ns in &mut without.0 {
        *ns = (*ns).min(rest_ns);
        rest_ns -= *ns;
    }
    without
}

fn sum_states(states: impl Iterator<Item = (BlockedState, u64)>) -> BlockedTime {
    states.fold(BlockedTime::default(), |mut sum, (state, ns)| {
        sum.add_ns(Kind::of_state(state).unwrap_or(Kind::Unknown), ns);
        sum
    })
}

/// Kinds of stacks, each looked up once: threads of a pool share theirs.
struct Kinds<N> {
    name: N,
    known: HashMap<(BlockedState, Arc<[u64]>), Place>,
}

/// What a stack tells.
#[derive(Clone, Copy)]
struct Place {
    kind: Kind,
    /// Only a kernel thread has it.
    is_kernel: bool,
}

impl<'a, N: Fn(u64) -> Option<&'a str>> Kinds<N> {
    fn of(&mut self, stack: &StackReading) -> Place {
        let name = &self.name;
        *self.known.entry((stack.state, stack.stack.clone())).or_insert_with(|| {
            let names = || stack.stack.iter().map(|addr| name(*addr));
            Place {
                kind: Kind::of(stack.state, names()),
                is_kernel: names().flatten().any(rules::is_of_kernel_threads),
            }
        })
    }
}
