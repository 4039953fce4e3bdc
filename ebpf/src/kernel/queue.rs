//! Reads the run queue of a CPU, and the queue of a group on a CPU.

use cgscope_ledger::ABSENT;

use super::{Base, cgroup_hierarchy, peek, root_cgroup_id};

/// A `struct cfs_rq *`: a group's queue on one CPU.
#[derive(Clone, Copy)]
pub struct CfsRunQueue(pub(super) Base);

impl CfsRunQueue {
    inlined! {
        pub fn run_queue(self) -> Option<RunQueue> { field!(self.0, cfs_rq_rq: Option<Base>).map(RunQueue) }
        /// Returns how many levels are out of quota: the queue's own level and its ancestors.
        pub fn levels_out_of_quota(self) -> u32 { field!(self.0, cfs_rq_throttle_count) }
    }

    /// Returns how long the queue had been in a hierarchy out of quota at the time `clock_ns`, ns, by the kernel's own clock.
    #[inline(always)]
    pub fn kernels_throttled_ns(self, clock_ns: u64) -> u64 {
        until(field!(self.0, cfs_rq_throttled_ns), field!(self.0, cfs_rq_throttled_since), clock_ns)
    }
}

/// Returns a sum at the time `clock_ns`, if it has grown since `since_ns`; 0: it does not grow.
#[inline(always)]
fn until(sum_ns: u64, since_ns: u64, clock_ns: u64) -> u64 {
    if since_ns == 0 { sum_ns } else { sum_ns.wrapping_add(clock_ns.saturating_sub(since_ns)) }
}

inlined! {
    /// Returns the same as [`CfsRunQueue::kernels_throttled_ns`]. For rare code paths, see [`peek`].
    pub fn kernels_throttled_ns_rarely(queue: u64, clock_ns: u64) -> u64 {
        until(peek(queue, offset!(cfs_rq_throttled_ns)), peek(queue, offset!(cfs_rq_throttled_since)), clock_ns)
    }
    /// Returns how many levels are out of quota for the queue at address `queue`.
    pub fn levels_out_of_quota_at(queue: u64) -> u32 { peek(queue, offset!(cfs_rq_throttle_count)) as u32 }
    /// Returns the throttled time of the queue at address `queue`, by the kernel's own clock. If the queue is throttled, the
    /// result is negative (as `i64`), and the caller must add a clock.
    pub fn kernels_throttled_ns_at_0(queue: u64) -> u64 {
        peek(queue, offset!(cfs_rq_throttled_ns)).wrapping_sub(peek(queue, offset!(cfs_rq_throttled_since)))
    }
    /// Returns the address of the cgroup that owns the queue of a task. `task` is the address of the task.
    pub fn cgroup_of_queue(task: u64) -> u64 {
        peek(peek(peek(task, offset!(task_cfs_rq)), offset!(cfs_rq_group)), offset!(task_group_cgroup))
    }
    /// Returns the address of the parent of the cgroup at address `cgroup`; 0 for the root.
    pub fn cgroup_above(cgroup: u64) -> u64 {
        peek(peek(cgroup, offset!(cgroup_parent)), offset!(css_cgroup))
    }
}

/// Returns the throttled time, at the time `clock_ns`, of the queue at address `queue`, by the kernel's own clock. Returns 0 if
/// the queue does not belong to `group`, because the memory of a removed group may be reused.
#[inline(never)]
pub fn left_throttled_ns(queue: u64, group: u64, clock_ns: u64) -> u64 {
    if peek(queue, offset!(cfs_rq_group)) != group {
        return 0;
    }
    let at_0_ns = kernels_throttled_ns_at_0(queue);
    if (at_0_ns as i64) < 0 { at_0_ns.wrapping_add(clock_ns) } else { at_0_ns }
}

/// A queue that enters or leaves a hierarchy out of quota. It comes from the arguments of the kernel functions that walk the
/// hierarchy.
#[derive(Clone, Copy)]
pub struct Throttled {
    pub cpu: u32,
    pub clock_ns: u64,
    pub cfs_rq: u64,
    /// How many levels are out of quota.
    pub levels: u32,
}

impl Throttled {
    /// Returns the queue of a group on a CPU. `group` is the address of the group's `struct task_group`; `queue` is the address
    /// of the CPU's `struct rq`.
    #[inline(always)]
    pub fn of(group: u64, queue: u64) -> Self {
        let cpu = peek(queue, offset!(rq_cpu)) as u32;
        let queues = peek(group, offset!(task_group_cfs_rqs));
        let cfs_rq = peek(queues, cpu * size_of::<u64>() as u32);
        let levels = peek(cfs_rq, offset!(cfs_rq_throttle_count)) as u32;
        Self { cpu, clock_ns: peek(queue, offset!(rq_clock)), cfs_rq, levels }
    }
}

/// Returns whether no other task waits on the run queue of the task at address `task`. A task that sleeps on the queue does not
/// wait. Kernels before Linux 6.14 do not count such sleeping tasks.
#[inline(always)]
pub fn is_alone(task: u64) -> bool {
    let queue = peek(peek(task, offset!(task_cfs_rq)), offset!(cfs_rq_rq));
    let asleep =
        (peek(queue, offset!(rq_queued)) as u32).wrapping_sub(peek(queue, offset!(rq_runnable)) as u32);
    (peek(queue, offset!(rq_running)) as u32).wrapping_sub(asleep) <= 1
}

/// Returns the id of the cgroup at address `cgroup`; for address 0, the id of the root.
#[inline(always)]
pub fn cgroup_id_at(cgroup: u64) -> u64 {
    match peek(peek(cgroup, offset!(cgroup_kn)), offset!(kernfs_id)) {
        0 => root_cgroup_id(),
        id => id,
    }
}

/// A `struct cgroup *`.
#[derive(Clone, Copy)]
pub struct Cgroup(Base);

impl Cgroup {
    inlined! {
        pub fn new(cgroup: Base) -> Self { Self(cgroup) }
        /// Returns 0 if the cgroup has no directory.
        pub fn id(self) -> u64 { field!(self.0, cgroup_kn: Option<Base>).map_or(0, |kn| field!(kn, kernfs_id)) }
    }

    /// Returns false if the kernel lacks the fields, because cgroups of two hierarchies may have the same id.
    #[inline(always)]
    pub fn is_in_our_hierarchy(self) -> bool {
        let known = offset!(cgroup_root) != ABSENT && offset!(cgroup_root_hierarchy) != ABSENT;
        let root = field!(self.0, cgroup_root: Option<Base>);
        let hierarchy = root.map(|root| field!(root, cgroup_root_hierarchy: u32));
        known && hierarchy.map(u64::from) == Some(cgroup_hierarchy())
    }
}

/// A `struct rq *`.
#[derive(Clone, Copy)]
pub struct RunQueue(Base);

impl RunQueue {
    inlined! {
        /// Returns the clock that `last_queued` is taken from, ns. It is up to date if the scheduler has just worked on this run
        /// queue.
        pub fn clock_ns(self) -> u64 { field!(self.0, rq_clock) }
        pub fn cpu(self) -> u32 { field!(self.0, rq_cpu) }
        pub fn address(self) -> u64 { self.0.pointer() as u64 }
        /// Returns the number of tasks that run or wait on the run queue at address `queue`; 0 for address 0.
        pub fn running_at(queue: u64) -> u64 {
            if queue == 0 { 0 } else { peek(queue, offset!(rq_running)) & u64::from(u32::MAX) }
        }
        /// Returns when the CPU last went idle, ns; 0 if the kernel lacks the field.
        pub fn idle_since_ns(self) -> u64 { field!(self.0, rq_clock_idle) }
        /// Returns how long the CPU was in interrupts, ns; 0 if the kernel does not account for this time.
        pub fn irq_ns(self) -> u64 { field!(self.0, rq_irq_time) }
        /// Returns how long the hypervisor used the CPU, ns; 0 if the kernel does not count this time.
        pub fn stolen_ns(self) -> u64 { field!(self.0, rq_stolen_time) }
    }
}
