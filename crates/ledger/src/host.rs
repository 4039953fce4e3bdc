//! What the arithmetic needs of its host. The BPF side reads kernel memory and its maps; tests simulate a host. Each domain adds a
//! trait: [`WaitHost`](crate::waits::WaitHost), [`PressureHost`](crate::pressure::PressureHost), [`DemandHost`](crate::demand::DemandHost).

use crate::Loss;

/// In place of the id of a cgroup: nobody ran.
pub const IDLE: u64 = 0;
/// In place of the id of a cgroup: a kernel thread ran. No cgroup has this id.
pub const KERNEL: u64 = u64::MAX;

/// A task as the scheduler sees it at this moment.
pub trait Task: Copy {
    /// A number that stands for the task where no task can be passed: its address.
    fn handle(self) -> u64;
    /// Number of times that the task switched out, including the switch that the hook handles.
    fn switches(self) -> u64;
    /// `sched_info.run_delay`: the kernel's own sum of waits, ns.
    fn run_delay_ns(self) -> u64;
    /// `sched_info.last_queued`: since when the task waits, ns of the clock of its CPU; 0: it does not.
    fn last_queued_ns(self) -> u64;
    /// The CPU of its run queue.
    fn cpu(self) -> u32;
    /// The clock of its run queue, ns.
    fn clock_ns(self) -> u64;
    /// Id of its cgroup.
    fn cgroup_id(self) -> u64;
    /// Address of its group, to compare.
    fn group(self) -> u64;
    /// How long its group and all groups below it have run on its CPU, ns; 0 for a task of the root.
    fn group_ran_ns(self) -> u64;
    /// The same sum of its group on another CPU, as the kernel last updated it; 0: unknown.
    fn far_group_ran_ns(self, cpu: u32) -> u64;
    /// Whether it is a real-time or deadline task: quotas do not apply to it, but a runtime may.
    fn is_real_time(self) -> bool;
    /// Whether it is a deadline task.
    fn is_deadline(self) -> bool;
    /// Whether a BPF scheduler has it. Then the kernel does not count the run time of its group.
    fn is_of_bpf_scheduler(self) -> bool;
    /// Whether a real-time or deadline task has used up its runtime.
    fn is_out_of_runtime(self) -> bool;
    /// Whether an exhausted quota took it off its CPU (Linux 6.18).
    fn is_throttled(self) -> bool;
    /// Whether it sleeps although it is still on its queue (Linux 6.12).
    fn sleeps_on_queue(self) -> bool;
    /// Whether it is on its queue. A task that sleeps may have a stamp nevertheless, see [`ASLEEP`](crate::segment::ASLEEP).
    fn is_on_queue(self) -> bool;
    /// Address of the queue of its group on its CPU.
    fn queue(self) -> u64;
    /// How long that queue was in a hierarchy out of quota until `clock_ns`. `address`: its own address, from memory.
    fn throttled_ns(self, address: &u64, cpu: u32, clock_ns: u64) -> u64;
    /// The same of a queue that the task has left for another group, and that belongs to `group`; 0 if it does not any more.
    fn left_throttled_ns(self, queue: u64, group: u64, clock_ns: u64) -> u64;
    /// The queue of its group on another CPU.
    fn far_queue(self, cpu: u32) -> FarQueue;
    /// The queue of its group on its CPU, as [`Self::far_queue`] describes one.
    fn near_queue(self) -> FarQueue;
    /// Finds the cgroup whose quota ran out. Leaves `limit` unchanged if there is none.
    fn find_limit(self, limit: &mut u64);
}

/// The queue of a group on a CPU that is not locked.
#[derive(Clone, Copy, Debug)]
pub struct FarQueue {
    /// Its address; 0: unknown.
    pub address: u64,
    /// Whether this level or one above it is out of quota, or may be.
    pub is_throttled: bool,
    /// Its throttled time until clock 0, because the clock of its CPU is not known: negative (as `i64`) if it is throttled.
    pub throttled_ns_at_0: u64,
}

/// What each domain needs.
pub trait Host {
    /// Whether the kernel throttles tasks one by one, and not whole queues (Linux 6.18).
    fn throttles_tasks() -> bool;
    /// Entries of tables that were used since then keep their place, ns of `rq->clock`. Older ones have been read by user space.
    fn kept_since_ns() -> u64;
    /// Counts a loss.
    fn lost(loss: Loss);
    /// Calls `step` with `which` until it returns true, at most `times` times. The BPF side does so with a helper.
    fn repeat(times: u32, step: Step, which: u32);
}

/// A step of [`Host::repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`look_back::step`](crate::look_back::step)
    Slices,
    /// [`look_back::step_of_blocks`](crate::look_back::step_of_blocks)
    Blocks,
    /// [`pressure::find_level`](crate::pressure::find_level); its number is that of the CPU. The same holds for the next two.
    FindLevels,
    /// [`pressure::add_level`](crate::pressure::add_level)
    AddLevels,
    /// [`pressure::count_level`](crate::pressure::count_level)
    CountLevels,
    /// [`demand::spread_step`](crate::demand::spread_step)
    Spread,
}

/// Returns when the current wait was queued on this CPU, and its part on other CPUs, without what is counted already: if that part is
/// negative (as `i64`), the kernel's stamp is from before [`leave_group`](crate::waits::leave_group).
#[inline(always)]
pub(crate) fn without_ended(queued_ns: u64, elsewhere_ns: u64) -> (u64, u64) {
    if (elsewhere_ns as i64) < 0 && queued_ns != 0 {
        (queued_ns.wrapping_sub(elsewhere_ns), 0)
    } else {
        (queued_ns, elsewhere_ns)
    }
}
