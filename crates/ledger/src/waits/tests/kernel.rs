//! A simulated scheduler. It maintains the kernel's data about tasks (`sched_info`), and calls the ledger wherever the kernel
//! calls the hooks. The clocks of the simulated CPUs differ by hours.

extern crate std;

mod check;
mod lifecycle;
mod quota;
mod switch;
mod task;
mod wait;

use std::vec::Vec;

pub(super) use self::lifecycle::Events;
use self::task::{Sim, State};
use super::{
    host::{CPUS, Facts, Maps, Simulated},
    reference::{Log, Segment},
};
use crate::history::{IDLE, KERNEL};

const TASKS: usize = 9;
/// The root cgroup, which has no quota.
pub(super) const ROOT: u64 = 1;
/// The initial ids of the cgroups. A new cgroup's id is that of the replaced cgroup plus the length of this array.
const CGROUPS: [u64; 4] = [ROOT, 2, 3, 4];
/// The task that starves if [`Kernel::starves_one`] is set.
const STARVED: usize = 2;
const HOUR_NS: u64 = 3_600_000_000_000;

/// What the kernel does when a quota runs out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flavour {
    /// The kernel takes single tasks off their queue (since Linux 6.18).
    ThrottlesTasks,
    /// The kernel takes whole queues off a CPU (before Linux 6.18).
    ThrottlesQueues,
}

/// Returns the index of a cgroup among those that exist now.
fn place(cgroup: u64) -> usize {
    (cgroup as usize - 1) % CGROUPS.len()
}

pub(super) fn existed_before(cgroup: u64) -> bool {
    CGROUPS.contains(&cgroup)
}

pub(super) struct Kernel {
    random: u64,
    seed: u64,
    flavour: Flavour,
    pub(super) misses_moves: bool,
    pub(super) has_bpf_scheduler: bool,
    /// Average number of times that the starving task is passed over before it runs; 0 if no task starves.
    pub(super) starves_one: u64,
    /// Whether the starving task is never throttled and never moves to another cgroup. Then a CPU's sums explain the part of its
    /// wait that is older than the history.
    pub(super) is_plain: bool,
    now_ns: u64,
    tasks: Vec<Sim>,
    /// Exited tasks whose slots are used by other tasks now.
    finished: Vec<Sim>,
    cgroups: [u64; CGROUPS.len()],
    /// Factor by which exits of tasks and removals of cgroups are rarer than in a short schedule.
    rarity: u64,
    /// The number of each CPU's latest slice when a cgroup was last replaced.
    replaced_at: [u64; CPUS],
    events: Events,
    current: [Option<usize>; CPUS],
    since_ns: [u64; CPUS],
    /// Whether the hook missed the switch to the current task.
    is_unseen: [bool; CPUS],
    /// Whether a task that the kernel hides from the hook has the CPU. That task is not in `tasks`.
    is_hidden: [bool; CPUS],
    /// For each queue, by cgroup and CPU: the total of past throttled phases, and the start of the current phase or 0.
    queues: [[(u64, u64); CPUS]; CGROUPS.len()],
    /// Whether the queue is throttled although its clock stands still.
    stopped: [[bool; CPUS]; CGROUPS.len()],
    log: Log,
    pub(super) maps: Maps,
}

impl Kernel {
    pub(super) fn new(seed: u64, flavour: Flavour) -> Self {
        let maps = Maps::new(flavour == Flavour::ThrottlesTasks);
        let mut kernel = Self {
            random: seed,
            seed,
            flavour,
            misses_moves: false,
            has_bpf_scheduler: false,
            starves_one: 0,
            is_plain: false,
            now_ns: 1_000,
            tasks: Vec::new(),
            finished: Vec::new(),
            cgroups: CGROUPS,
            rarity: 1,
            replaced_at: [0; CPUS],
            events: Events::default(),
            current: [None; CPUS],
            since_ns: [1_000; CPUS],
            is_unseen: [false; CPUS],
            is_hidden: [false; CPUS],
            queues: [[(0, 0); CPUS]; CGROUPS.len()],
            stopped: [[false; CPUS]; CGROUPS.len()],
            log: Log::default(),
            maps,
        };
        for cpu in 0..CPUS as u32 {
            let clock_ns = kernel.clock_ns(cpu);
            <Simulated as crate::waits::WaitHost>::ring(cpu).expect("a CPU").push(IDLE, clock_ns);
            kernel.log.ran(cpu, kernel.now_ns, IDLE);
        }
        for number in 0..TASKS {
            let place = kernel.below(CGROUPS.len() as u64) as usize;
            let cgroup = if number == 0 { ROOT } else { CGROUPS[place] };
            let cpu = kernel.below(CPUS as u64) as u32;
            let task = kernel.new_task(number, cgroup, cpu);
            kernel.tasks.push(task);
        }
        kernel
    }

    /// Returns a random number below `end` (splitmix64).
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
        let mut queues = self.queues[place(task.cgroup)];
        for (cpu, queue) in queues.iter_mut().enumerate().filter(|(_, queue)| queue.1 != 0) {
            queue.1 += Self::offset_ns(cpu as u32);
        }
        Facts {
            serial: task.storage.serial,
            switches: task.switches,
            run_delay_ns: task.run_delay_ns,
            last_queued_ns: task.last_queued_ns,
            cpu: task.cpu,
            clock_ns: self.clock_ns(task.cpu),
            cgroup: task.cgroup,
            bound_for: 0,
            left_queue: (0, 0, 0),
            is_real_time: task.is_real_time,
            is_deadline: task.is_deadline,
            is_of_bpf_scheduler: self.has_bpf_scheduler,
            is_out_of_runtime: task.is_out_of_runtime,
            is_throttled: task.is_throttled,
            sleeps_on_queue: task.state == State::SleepingOnQueue,
            is_on_queue: matches!(task.state, State::Queued | State::SleepingOnQueue | State::Running),
            is_alone: self.is_alone(at),
            queues,
            stopped: self.stopped[place(task.cgroup)],
            group_ran_ns: core::array::from_fn(|cpu| match self.has_bpf_scheduler {
                // The kernel does not count the run time, so the sums do not change.
                true => u64::from(task.cgroup != ROOT),
                false => self.log.ran_ns(task.cgroup, cpu as u32, self.now_ns),
            }),
        }
    }

    fn is_alone(&self, at: usize) -> bool {
        let is_other = |other: &usize| *other != at && self.tasks[*other].cpu == self.tasks[at].cpu;
        !(0..TASKS).filter(is_other).any(|other| self.tasks[other].state == State::Queued)
    }

    /// Makes one task starve in a cgroup other than the root. The kernel counts the run time of this cgroup, and its sums explain
    /// everything that happens.
    pub(super) fn starve_plainly(&mut self, chances: u64) {
        (self.starves_one, self.is_plain) = (chances, true);
        let task = &mut self.tasks[STARVED];
        (task.cgroup, task.base, task.storage.cgroup_id) = (CGROUPS[1], CGROUPS[1], CGROUPS[1]);
    }

    fn who(&self, next: Option<usize>) -> u64 {
        match next.map(|next| &self.tasks[next]) {
            None => IDLE,
            Some(task) if task.is_kernel_thread => KERNEL,
            Some(task) => task.cgroup,
        }
    }

    fn is_queue_throttled(&self, cgroup: u64, cpu: u32) -> bool {
        let (cgroup, cpu) = (place(cgroup), cpu as usize);
        self.queues[cgroup][cpu].1 != 0 || self.stopped[cgroup][cpu]
    }

    fn can_run(&self, at: usize, cpu: u32) -> bool {
        let task = &self.tasks[at];
        let is_held = match self.flavour {
            Flavour::ThrottlesTasks => task.is_throttled,
            Flavour::ThrottlesQueues => !task.is_real_time && self.is_queue_throttled(task.cgroup, cpu),
        };
        task.state == State::Queued && task.cpu == cpu && !is_held && !task.is_out_of_runtime
    }

    /// Returns whether the task must not change now, because it is the starving task.
    fn is_starved(&mut self, at: usize) -> bool {
        let task = &self.tasks[at];
        let may_starve = self.starves_one != 0 && at == STARVED && task.state == State::Queued;
        may_starve && (task.is_seen || !self.is_plain) && self.below(self.starves_one) != 0
    }

    /// Runs a schedule of random steps. At the end, lets the hook see which task runs on each CPU.
    pub(super) fn run(&mut self, steps: usize) {
        self.rarity = (steps as u64 / 5_000).max(1);
        for _ in 0..steps {
            self.now_ns += match self.below(10) {
                0 => 0,
                1 => self.below(3_000_000),
                _ => self.below(200_000),
            };
            let (mut at, cpu) = (self.below(TASKS as u64) as usize, self.below(CPUS as u64) as u32);
            at += usize::from(self.is_starved(at));
            self.come_and_go(cpu);
            if self.below(8) == 0 {
                self.replenish();
            }
            let limited = self.cgroups[1 + self.below(3) as usize];
            if self.below(16) == 0 {
                self.report(at.min(TASKS - 1));
            }
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
}
