//! A simulated scheduler. It keeps what the kernel keeps of tasks (`sched_info`) and calls the ledger where the kernel calls the
//! hooks. The clocks of its CPUs are hours apart.

extern crate std;

use std::{boxed::Box, vec::Vec};

use super::{
    host::{CPUS, Facts, Maps, Simulated},
    reference::{Log, Segment},
};
use crate::{
    ByCause, Cause,
    history::{FOLD_NS, IDLE, KERNEL},
    ledger, segment,
    wire::TaskStorage,
};

const TASKS: usize = 9;
/// The root, which has no quota, and three others.
pub(super) const ROOT: u64 = 1;
const CGROUPS: [u64; 4] = [ROOT, 2, 3, 4];
/// A task without a special role.
const STARVED: usize = 2;
const HOUR_NS: u64 = 3_600_000_000_000;

/// What the kernel takes off a CPU when a quota is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flavour {
    /// Tasks one by one (Linux 6.18).
    ThrottlesTasks,
    /// Whole queues.
    ThrottlesQueues,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Sleeping,
    /// Since Linux 6.12.
    SleepingOnQueue,
    Queued,
    Running,
}

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Preempted,
    /// On its way to sleep, with its state set: the kernel does not stamp it.
    PreemptedUnstamped,
    Sleeps,
    SleepsOnQueue,
}

struct Sim {
    state: State,
    cpu: u32,
    cgroup: u64,
    is_kernel_thread: bool,
    is_real_time: bool,
    is_throttled: bool,
    switches: u64,
    run_delay_ns: u64,
    last_queued_ns: u64,
    storage: Box<TaskStorage>,
    // What the reference keeps.
    /// When the current segment began.
    since_ns: Option<u64>,
    /// As in [`Segment`].
    throttled_since_ns: Option<u64>,
    is_phantom: bool,
    has_no_clock: bool,
    /// The cgroup whose throttled time counts, if it is still the task's.
    base: u64,
    /// The hook saw the segment begin.
    is_seen: bool,
    /// When, where and in which cgroup it last switched in.
    ran: (u64, u32, u64),
    unstamped_since_ns: Option<u64>,
    unstamped_ns: u64,
    /// The segments of the current wait that have ended.
    moved: ByCause,
    parts: ByCause,
    waits: u64,
    missed_ns: u64,
    /// The sum of [`Log::uncertain_ns`].
    uncertain_ns: u64,
    /// Segments that are longer than the history, and whose beginning the hook saw.
    beyond: u64,
}

pub(super) struct Kernel {
    random: u64,
    seed: u64,
    flavour: Flavour,
    pub(super) misses_moves: bool,
    /// One task waits until as many chances of it have passed, on average; 0: none does.
    pub(super) starves_one: u64,
    /// That task has no throttled time and keeps its cgroup, so the sums of a CPU explain what is older than its history.
    pub(super) is_plain: bool,
    now_ns: u64,
    tasks: Vec<Sim>,
    current: [Option<usize>; CPUS],
    /// Since when the current task runs.
    since_ns: [u64; CPUS],
    /// The switch to the current task was not seen by the hook.
    is_unseen: [bool; CPUS],
    /// A task that the kernel hides from the hook has the CPU: no task of ours.
    is_hidden: [bool; CPUS],
    /// By cgroup and CPU: the sum of its throttled phases, and the start of the current one or 0.
    queues: [[(u64, u64); CPUS]; CGROUPS.len()],
    /// Whether the queue is throttled although its clock stands still.
    stopped: [[bool; CPUS]; CGROUPS.len()],
    log: Log,
    _maps: Maps,
}

impl Kernel {
    pub(super) fn new(seed: u64, flavour: Flavour) -> Self {
        let maps = Maps::new(flavour == Flavour::ThrottlesTasks);
        let mut kernel = Self {
            random: seed,
            seed,
            flavour,
            misses_moves: false,
            starves_one: 0,
            is_plain: false,
            now_ns: 1_000,
            tasks: Vec::new(),
            current: [None; CPUS],
            since_ns: [1_000; CPUS],
            is_unseen: [false; CPUS],
            is_hidden: [false; CPUS],
            queues: [[(0, 0); CPUS]; CGROUPS.len()],
            stopped: [[false; CPUS]; CGROUPS.len()],
            log: Log::default(),
            _maps: maps,
        };
        for cpu in 0..CPUS as u32 {
            let clock_ns = kernel.clock_ns(cpu);
            <Simulated as crate::host::Host>::ring(cpu).expect("a CPU").push(IDLE, clock_ns, |_| {});
            kernel.log.ran(cpu, kernel.now_ns, IDLE);
        }
        for number in 0..TASKS {
            let task = kernel.new_task(number);
            kernel.tasks.push(task);
        }
        kernel
    }

    fn new_task(&mut self, number: usize) -> Sim {
        let is_kernel_thread = number == 0;
        let cgroup = if is_kernel_thread { ROOT } else { CGROUPS[self.below(CGROUPS.len() as u64) as usize] };
        Sim {
            state: State::Sleeping,
            cpu: self.below(CPUS as u64) as u32,
            cgroup,
            is_kernel_thread,
            is_real_time: number == 1,
            is_throttled: false,
            switches: 0,
            run_delay_ns: 0,
            last_queued_ns: 0,
            // SAFETY: it holds only integers; the kernel's map starts with the same zeroes.
            storage: unsafe { Box::<TaskStorage>::new_zeroed().assume_init() },
            since_ns: None,
            throttled_since_ns: None,
            is_phantom: false,
            has_no_clock: false,
            base: cgroup,
            is_seen: false,
            ran: (0, u32::MAX, 0),
            unstamped_since_ns: None,
            unstamped_ns: 0,
            moved: ByCause::default(),
            parts: ByCause::default(),
            waits: 0,
            missed_ns: 0,
            uncertain_ns: 0,
            beyond: 0,
        }
    }

    /// A number below `end` (splitmix64).
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    fn offset_ns(cpu: u32) -> u64 {
        (u64::from(cpu) * 5 + 3) % 7 * HOUR_NS
    }

    fn clock_ns(&self, cpu: u32) -> u64 {
        self.now_ns + Self::offset_ns(cpu)
    }

    fn facts(&self, at: usize) -> Facts {
        let task = &self.tasks[at];
        let mut queues = self.queues[task.cgroup as usize - 1];
        for (cpu, queue) in queues.iter_mut().enumerate().filter(|(_, queue)| queue.1 != 0) {
            queue.1 += Self::offset_ns(cpu as u32);
        }
        Facts {
            switches: task.switches,
            run_delay_ns: task.run_delay_ns,
            last_queued_ns: task.last_queued_ns,
            cpu: task.cpu,
            clock_ns: self.clock_ns(task.cpu),
            cgroup: task.cgroup,
            is_real_time: task.is_real_time,
            is_throttled: task.is_throttled,
            sleeps_on_queue: task.state == State::SleepingOnQueue,
            queues,
            stopped: self.stopped[task.cgroup as usize - 1],
            group_ran_ns: core::array::from_fn(|cpu| self.log.ran_ns(task.cgroup, cpu as u32, self.now_ns)),
        }
    }

    /// Makes one task starve in a cgroup with sums of its run time, and with nothing that these sums cannot explain.
    pub(super) fn starve_plainly(&mut self, chances: u64) {
        (self.starves_one, self.is_plain) = (chances, true);
        (self.tasks[STARVED].cgroup, self.tasks[STARVED].base) = (CGROUPS[1], CGROUPS[1]);
    }

    fn who(&self, next: Option<usize>) -> u64 {
        match next.map(|next| &self.tasks[next]) {
            None => IDLE,
            Some(task) if task.is_kernel_thread => KERNEL,
            Some(task) => task.cgroup,
        }
    }

    fn is_queue_throttled(&self, cgroup: u64, cpu: u32) -> bool {
        let (cgroup, cpu) = (cgroup as usize - 1, cpu as usize);
        self.queues[cgroup][cpu].1 != 0 || self.stopped[cgroup][cpu]
    }

    fn can_run(&self, at: usize, cpu: u32) -> bool {
        let task = &self.tasks[at];
        let is_held = match self.flavour {
            Flavour::ThrottlesTasks => task.is_throttled,
            Flavour::ThrottlesQueues => !task.is_real_time && self.is_queue_throttled(task.cgroup, cpu),
        };
        task.state == State::Queued && task.cpu == cpu && !is_held
    }

    /// Returns whether nothing may happen to the task now, because it waits for very long.
    fn is_starved(&mut self, at: usize) -> bool {
        let task = &self.tasks[at];
        let may_starve = self.starves_one != 0 && at == STARVED && task.state == State::Queued;
        may_starve && (task.is_seen || !self.is_plain) && self.below(self.starves_one) != 0
    }

    /// Runs a schedule of random steps, and then lets the hook see who runs on each CPU.
    pub(super) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now_ns += match self.below(10) {
                0 => 0,
                1 => self.below(3_000_000),
                _ => self.below(200_000),
            };
            let (mut at, cpu) = (self.below(TASKS as u64) as usize, self.below(CPUS as u64) as u32);
            at += usize::from(self.is_starved(at));
            let limited = CGROUPS[1 + self.below(3) as usize];
            match self.below(20) {
                0..8 => self.pick(cpu),
                8..12 => self.wake(at, cpu),
                12..16 => self.change_cpu(at, cpu),
                16 => self.throttle(limited, cpu),
                17 => self.unthrottle(limited, cpu),
                18 if self.below(2) == 0 => self.hide(cpu),
                18 => self.hold(cpu),
                _ => self.change_cgroup(at),
            }
        }
        self.now_ns += 1_000;
        (0..CPUS as u32).for_each(|cpu| self.hide(cpu));
        self.now_ns += 1_000;
    }

    fn pick(&mut self, cpu: u32) {
        let mut able: Vec<usize> = (0..TASKS).filter(|at| self.can_run(*at, cpu)).collect();
        able.retain(|at| !self.is_starved(*at));
        let next = match able.len() as u64 {
            0 => None,
            count => Some(able[self.below(count) as usize]).filter(|_| self.below(8) != 0),
        };
        let fate = match self.below(8) {
            0..4 => Fate::Preempted,
            4 => Fate::PreemptedUnstamped,
            5..7 => Fate::Sleeps,
            _ => Fate::SleepsOnQueue,
        };
        self.switch(cpu, next, fate);
    }

    /// Gives the CPU to a task that the kernel hides from the hook: the hook does not run when it switches out.
    fn hide(&mut self, cpu: u32) {
        let (at, is_hidden) = (cpu as usize, self.is_hidden[cpu as usize]);
        if self.misses_moves || is_hidden {
            return;
        }
        if self.current[at].is_some() {
            self.switch(cpu, None, Fate::Sleeps);
        }
        self.settle(cpu, None);
        // It is in the root.
        let (now_ns, clock_ns) = (self.now_ns, self.clock_ns(cpu));
        let ring = <Simulated as crate::host::Host>::ring(cpu).expect("a CPU");
        if !ring.latest_is(ROOT) && !ring.fold(ROOT, clock_ns) {
            ring.push(ROOT, clock_ns, |_| {});
        }
        self.log.ran(cpu, now_ns, ROOT);
        (self.is_hidden[at], self.since_ns[at]) = (true, now_ns);
    }

    fn switch(&mut self, cpu: u32, next: Option<usize>, fate: Fate) {
        let prev = self.current[cpu as usize];
        let is_hidden = core::mem::take(&mut self.is_hidden[cpu as usize]);
        if prev == next && !is_hidden {
            return;
        }
        // The kernel's sum does not show a wait of 0 ns.
        self.now_ns += u64::from(is_hidden);
        // Shorter runs are folded, which is exact only to a 64th: see `history`.
        let since_ns = self.since_ns[cpu as usize];
        if self.who(prev) == KERNEL && self.now_ns < since_ns + FOLD_NS {
            self.now_ns = since_ns + FOLD_NS;
        }
        prev.into_iter().for_each(|prev| self.tasks[prev].switches += 1);
        if !is_hidden {
            self.settle(cpu, prev);
            self.on_switch(cpu, prev, next, fate);
        }
        self.is_unseen[cpu as usize] = is_hidden;
        let (now_ns, clock_ns, who) = (self.now_ns, self.clock_ns(cpu), self.who(next));
        if let Some(prev) = prev {
            self.depart(prev, fate);
        }
        if let Some(next) = next {
            self.end_segment(next, true);
            let task = &mut self.tasks[next];
            if task.last_queued_ns != 0 {
                task.run_delay_ns += clock_ns - task.last_queued_ns;
            }
            task.last_queued_ns = 0;
            (task.state, task.ran) = (State::Running, (now_ns, cpu, task.cgroup));
        }
        self.log.ran(cpu, now_ns, who);
        (self.current[cpu as usize], self.since_ns[cpu as usize]) = (next, now_ns);
    }

    /// What the hook does after a switch that it did not see.
    fn settle(&mut self, cpu: u32, prev: Option<usize>) {
        if !core::mem::take(&mut self.is_unseen[cpu as usize]) {
            return;
        }
        let clock_ns = self.clock_ns(cpu);
        let since_ns = self.since_ns[cpu as usize] + Self::offset_ns(cpu);
        let ring = <Simulated as crate::host::Host>::ring(cpu).expect("a CPU");
        ring.push(self.who(prev), since_ns, |_| {});
        if let Some(prev) = prev {
            let facts = self.facts(prev);
            let storage = &mut self.tasks[prev].storage;
            ledger::arrived_unseen::<Simulated>(facts, storage, cpu, since_ns);
            segment::run::<Simulated>(facts, &mut storage.start, cpu, clock_ns);
        }
    }

    /// What the hook at `sched_switch` does.
    fn on_switch(&mut self, cpu: u32, prev: Option<usize>, next: Option<usize>, fate: Fate) {
        let clock_ns = self.clock_ns(cpu);
        let ring = <Simulated as crate::host::Host>::ring(cpu).expect("a CPU");
        if let Some(prev) = prev {
            let facts = self.facts(prev);
            let storage = &mut self.tasks[prev].storage;
            match fate {
                Fate::Preempted => {
                    segment::leave::<Simulated>(facts, facts, &mut storage.start, ring, cpu, clock_ns);
                }
                Fate::PreemptedUnstamped => ledger::begin_unstamped(facts, storage, clock_ns),
                Fate::Sleeps | Fate::SleepsOnQueue => {}
            }
        }
        let who = self.who(next);
        if let Some(next) = next {
            let facts = self.facts(next);
            let storage = &mut self.tasks[next].storage;
            ledger::arrive::<Simulated>(facts, who, storage, cpu, clock_ns, ring);
            segment::run::<Simulated>(facts, &mut storage.start, cpu, clock_ns);
        }
        if !ring.latest_is(who) && !ring.fold(who, clock_ns) {
            ring.push(who, clock_ns, |_| {});
        }
    }

    /// A task leaves its CPU (`sched_info_depart`).
    fn depart(&mut self, at: usize, fate: Fate) {
        let (now_ns, clock_ns) = (self.now_ns, self.clock_ns(self.tasks[at].cpu));
        let throttles_tasks = self.flavour == Flavour::ThrottlesTasks;
        let task = &mut self.tasks[at];
        task.state = match fate {
            Fate::Preempted | Fate::PreemptedUnstamped => State::Queued,
            Fate::Sleeps => State::Sleeping,
            Fate::SleepsOnQueue => State::SleepingOnQueue,
        };
        match fate {
            Fate::Preempted => {
                task.last_queued_ns = clock_ns;
                (task.since_ns, task.is_phantom, task.is_seen) = (Some(now_ns), false, true);
                task.has_no_clock = false;
                // Whole queues: the clock at the switch in is the base, in the cgroup of that time.
                let counts = !throttles_tasks || task.is_throttled;
                task.base = if throttles_tasks { task.cgroup } else { task.ran.2 };
                task.throttled_since_ns = counts.then_some(if throttles_tasks { now_ns } else { task.ran.0 });
            }
            Fate::PreemptedUnstamped => task.unstamped_since_ns = Some(now_ns),
            _ => {}
        }
    }

    fn wake(&mut self, at: usize, cpu: u32) {
        let now_ns = self.now_ns;
        let stays = self.tasks[at].state == State::SleepingOnQueue || self.tasks[at].last_queued_ns != 0;
        let cpu = if stays { self.tasks[at].cpu } else { cpu };
        let clock_ns = self.clock_ns(cpu);
        let throttles_tasks = self.flavour == Flavour::ThrottlesTasks;
        // The hour of the task on the queue may also end without a wakeup.
        let falls_asleep = self.tasks[at].state == State::SleepingOnQueue && self.below(2) == 0;
        let task = &mut self.tasks[at];
        if falls_asleep {
            task.state = State::Sleeping;
        } else if matches!(task.state, State::Sleeping | State::SleepingOnQueue) {
            (task.state, task.cpu) = (State::Queued, cpu);
            if task.last_queued_ns == 0 {
                task.last_queued_ns = clock_ns;
                (task.since_ns, task.is_phantom, task.is_seen) = (Some(now_ns), false, false);
                task.has_no_clock = false;
                task.base = task.ran.2;
                let is_base = !throttles_tasks && task.ran.1 == cpu;
                task.throttled_since_ns = is_base.then_some(task.ran.0);
            }
        }
    }

    /// Moves a task that is on a queue to another CPU.
    fn change_cpu(&mut self, at: usize, to: u32) {
        let on_queue = matches!(self.tasks[at].state, State::Queued | State::SleepingOnQueue);
        // Until the next switch of this CPU, its history lacks the task that runs.
        let is_unseen = self.is_unseen[self.tasks[at].cpu as usize];
        if !on_queue || self.tasks[at].cpu == to || is_unseen {
            return;
        }
        let (now_ns, old_clock_ns, clock_ns) =
            (self.now_ns, self.clock_ns(self.tasks[at].cpu), self.clock_ns(to));
        let is_missed = self.misses_moves
            && self.tasks[at].is_seen
            && self.tasks[at].state == State::Queued
            && self.below(3) == 0;
        let throttles_tasks = self.flavour == Flavour::ThrottlesTasks;
        let cgroup = self.tasks[at].cgroup;
        let stays_throttled = self.is_queue_throttled(cgroup, to);
        let clock_stands = self.stopped[cgroup as usize - 1][to as usize];
        let task = &mut self.tasks[at];
        if task.last_queued_ns != 0 {
            task.run_delay_ns += old_clock_ns - task.last_queued_ns;
        }
        task.last_queued_ns = 0;
        if is_missed {
            task.missed_ns += now_ns - task.since_ns.unwrap_or(now_ns);
            task.unstamped_since_ns = None;
        } else {
            let facts = self.facts(at);
            ledger::change_cpu::<Simulated>(facts, &mut self.tasks[at].storage, to);
            let task = &mut self.tasks[at];
            if let Some(since_ns) = task.unstamped_since_ns.take() {
                task.unstamped_ns += now_ns - since_ns;
            }
        }
        self.end_segment(at, false);
        let task = &mut self.tasks[at];
        task.is_throttled &= stays_throttled;
        (task.cpu, task.last_queued_ns, task.since_ns) = (to, clock_ns, Some(now_ns));
        (task.is_phantom, task.is_seen, task.base) =
            (task.state == State::SleepingOnQueue, !is_missed, task.cgroup);
        task.throttled_since_ns = (!throttles_tasks || task.is_throttled).then_some(now_ns);
        task.has_no_clock = task.is_throttled && clock_stands;
    }

    /// The current segment, if it ended now.
    fn segment(&self, at: usize) -> Option<Segment> {
        let task = &self.tasks[at];
        let since_ns = task.since_ns?;
        let counts =
            task.base == task.cgroup && !(task.is_real_time && self.flavour == Flavour::ThrottlesQueues);
        Some(Segment {
            victim: task.cgroup,
            limit: task.base,
            cpu: task.cpu,
            span: (since_ns, self.now_ns),
            throttled_since_ns: task.throttled_since_ns.filter(|_| counts),
            is_phantom: task.is_phantom,
            has_no_clock: task.has_no_clock,
            is_real_time: task.is_real_time,
            is_seen: task.is_seen,
        })
    }

    fn end_segment(&mut self, at: usize, is_last: bool) {
        let Some(segment) = self.segment(at) else {
            // Not stamped.
            let now_ns = self.now_ns;
            let task = &mut self.tasks[at];
            if let Some(since_ns) = task.unstamped_since_ns.take() {
                task.unstamped_ns += now_ns - since_ns;
            }
            return;
        };
        let parts = self.log.split(&segment, true);
        let uncertain_ns = if self.starves_one == 0 { 0 } else { self.log.uncertain_ns(&segment) };
        let is_beyond = segment.is_seen && !segment.is_phantom && self.log.is_beyond_history(&segment);
        let task = &mut self.tasks[at];
        task.beyond += u64::from(is_beyond);
        task.uncertain_ns += uncertain_ns;
        task.since_ns = None;
        task.moved.iter_mut().zip(parts).for_each(|(sum, ns)| *sum += ns);
        if is_last {
            task.parts.iter_mut().zip(task.moved).for_each(|(sum, ns)| *sum += ns);
            task.moved = ByCause::default();
            task.waits += 1;
        }
    }

    fn throttle(&mut self, cgroup: u64, cpu: u32) {
        if self.is_queue_throttled(cgroup, cpu) || self.is_plain {
            return;
        }
        let current = self.current[cpu as usize].map(|at| self.tasks[at].cgroup);
        // Linux 6.18 starts the clock with the first task that it throttles there.
        if self.flavour == Flavour::ThrottlesTasks && current != Some(cgroup) && self.below(2) == 0 {
            self.stopped[cgroup as usize - 1][cpu as usize] = true;
            return;
        }
        self.start_clock(cgroup, cpu);
        self.hold(cpu);
    }

    fn start_clock(&mut self, cgroup: u64, cpu: u32) {
        self.queues[cgroup as usize - 1][cpu as usize].1 = self.now_ns;
        self.log.throttle(cgroup, cpu, self.now_ns);
    }

    /// Takes the current task off the CPU if its quota is used up.
    fn hold(&mut self, cpu: u32) {
        let Some(at) = self.current[cpu as usize] else { return };
        let task = &mut self.tasks[at];
        let cgroup = task.cgroup;
        if task.is_real_time || task.is_kernel_thread || !self.is_queue_throttled(cgroup, cpu) {
            return;
        }
        self.tasks[at].is_throttled = self.flavour == Flavour::ThrottlesTasks;
        if core::mem::take(&mut self.stopped[cgroup as usize - 1][cpu as usize]) {
            self.start_clock(cgroup, cpu);
        }
        let next = (0..TASKS).find(|at| self.can_run(*at, cpu) && !self.is_starved(*at));
        self.switch(cpu, next, Fate::Preempted);
    }

    fn unthrottle(&mut self, cgroup: u64, cpu: u32) {
        // A throttled phase of its queue that begins and ends while an unseen task runs counts for that task, if it was throttled.
        let is_unseen = self.is_unseen[cpu as usize];
        if !self.is_queue_throttled(cgroup, cpu) || is_unseen {
            return;
        }
        if !core::mem::take(&mut self.stopped[cgroup as usize - 1][cpu as usize]) {
            let queue = &mut self.queues[cgroup as usize - 1][cpu as usize];
            queue.0 += self.now_ns - queue.1;
            queue.1 = 0;
            self.log.unthrottle(cgroup, cpu, self.now_ns);
        }
        let held = self.tasks.iter_mut().filter(|task| (task.cgroup, task.cpu) == (cgroup, cpu));
        held.for_each(|task| task.is_throttled = false);
    }

    fn change_cgroup(&mut self, at: usize) {
        let to = CGROUPS[self.below(CGROUPS.len() as u64) as usize];
        if self.is_plain && at == STARVED {
            return;
        }
        let task = &mut self.tasks[at];
        // Whole queues: a running task cannot be in a throttled queue.
        let fits =
            task.state != State::Running || !self.queues[to as usize - 1].iter().any(|queue| queue.1 != 0);
        // The history has one cgroup for each run.
        let is_unseen = task.state == State::Running && self.is_unseen[task.cpu as usize];
        if !task.is_kernel_thread && !task.is_throttled && fits && !is_unseen {
            task.cgroup = to;
        }
    }

    /// The unfinished wait of a task by cause: ours and the reference's.
    fn pending(&mut self, at: usize) -> (ByCause, ByCause) {
        let mut ours = ByCause::default();
        let facts = self.facts(at);
        ledger::pending::<Simulated>(facts, &self.tasks[at].storage, &mut ours);
        let mut theirs = self.tasks[at].moved;
        let current = self.segment(at).filter(|segment| segment.span.0 < segment.span.1);
        let current = current.map(|segment| self.log.split(&segment, false)).unwrap_or_default();
        theirs.iter_mut().zip(current).for_each(|(sum, ns)| *sum += ns);
        (ours, theirs)
    }

    /// Compares everything with the reference. Returns the number of waits.
    pub(super) fn check(&mut self) -> u64 {
        let (seed, flavour) = (self.seed, self.flavour);
        let is_cut = Maps::losses().contains_key("look_back_cut");
        assert!(!is_cut, "schedule {seed}: too dense");
        for at in 0..TASKS {
            let (ours, theirs) = self.pending(at);
            let task = &self.tasks[at];
            let storage = &task.storage;
            let of = std::format!("schedule {seed} ({flavour:?}), task {at}");
            assert_eq!(storage.by_cause, task.parts, "{of}");
            assert_eq!(storage.waits.count, task.waits, "{of}");
            assert_eq!(storage.waits.total_ns, task.parts.iter().sum::<u64>(), "{of}");
            assert_eq!(storage.waits.unstamped_ns, task.unstamped_ns, "{of}");
            if matches!(task.state, State::Queued) {
                assert_eq!(ours, theirs, "{of}: unfinished");
            }
            let booked_ns: u64 = task.moved.iter().sum();
            assert_eq!(storage.waits.total_ns + booked_ns, task.run_delay_ns, "{of}: the kernel's own sum");
            let counts: u32 = storage.histogram.counts.iter().sum();
            assert_eq!(u64::from(counts), task.waits, "{of}");
        }
        assert_eq!(Maps::charges(), self.log.charges, "schedule {seed} ({flavour:?})");
        self.tasks.iter().map(|task| task.waits).sum()
    }

    /// Compares ended waits with the reference, up to what is uncertain. Returns the sums of the waiting and of what is uncertain, ns.
    pub(super) fn check_long(&mut self) -> (u64, u64) {
        let seed = self.seed;
        // The history explains all waits, unless they are longer on purpose.
        let is_cut = Maps::losses().contains_key("look_back_cut");
        assert!(self.is_plain || !is_cut, "schedule {seed}: too dense");
        for (at, task) in self.tasks.iter().enumerate() {
            let (ours, theirs) = (task.storage.by_cause, task.parts);
            assert_eq!(ours.iter().sum::<u64>(), theirs.iter().sum::<u64>(), "schedule {seed}, task {at}");
            for cause in Cause::ALL {
                let (ours, theirs) = (ours[cause as usize], theirs[cause as usize]);
                let of = std::format!("schedule {seed}, task {at}, {cause:?}: {ours} {theirs}");
                assert!(ours.abs_diff(theirs) <= task.uncertain_ns, "{of}, {} uncertain", task.uncertain_ns);
            }
        }
        let uncertain_ns = self.tasks.iter().map(|task| task.uncertain_ns).sum();
        let ours = Maps::charges();
        for of in ours.keys().chain(self.log.charges.keys()) {
            let [ours, theirs] = [&ours, &self.log.charges].map(|sums| sums.get(of).copied().unwrap_or(0));
            // Who ran before the history is not known.
            let is_missing = self.is_plain && ours < theirs;
            assert!(
                is_missing || ours.abs_diff(theirs) <= uncertain_ns,
                "schedule {seed}, {of:?}: {ours} {theirs}"
            );
        }
        (self.tasks.iter().flat_map(|task| task.parts).sum(), uncertain_ns)
    }

    pub(super) fn segments_beyond_history(&self) -> u64 {
        self.tasks.iter().map(|task| task.beyond).sum()
    }

    /// Checks that no cause but `Unattributed` has more than in the reference. Returns the time of segments that were missed.
    pub(super) fn check_missed(&mut self) -> u64 {
        let seed = self.seed;
        for (at, task) in self.tasks.iter().enumerate() {
            let (ours, theirs) = (task.storage.by_cause, task.parts);
            assert_eq!(task.storage.waits.total_ns, theirs.iter().sum::<u64>(), "schedule {seed}, task {at}");
            assert_eq!(ours.iter().sum::<u64>(), theirs.iter().sum::<u64>(), "schedule {seed}, task {at}");
            for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::Unattributed) {
                let (ours, theirs) = (ours[cause as usize], theirs[cause as usize]);
                assert!(ours <= theirs, "schedule {seed}, task {at}, {cause:?}: {ours} > {theirs}");
            }
        }
        let missed_ns = self.tasks.iter().map(|task| task.missed_ns).sum();
        let is_counted = Maps::losses().contains_key("moved_unseen");
        let waited_ns = |cause: Cause| -> u64 {
            self.tasks.iter().map(|task| task.storage.by_cause[cause as usize]).sum()
        };
        let more_ns = waited_ns(Cause::Unattributed)
            - self.tasks.iter().map(|task| task.parts[Cause::Unattributed as usize]).sum::<u64>();
        assert!(is_counted || more_ns == 0, "schedule {seed}: {more_ns} ns without a loss");
        missed_ns
    }
}
