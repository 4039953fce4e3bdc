//! The host of the arithmetic. The BPF side reads kernel memory and its maps; tests simulate a host. Each domain adds a trait:
//! [`WaitHost`](crate::waits::WaitHost), [`PressureHost`](crate::pressure::PressureHost),
//! [`DemandHost`](crate::demand::DemandHost).

use crate::Loss;

/// In place of a cgroup id: the CPU ran no task.
pub const IDLE: u64 = 0;
/// In place of a cgroup id: a kernel thread ran. No cgroup has this id.
pub const KERNEL: u64 = u64::MAX;

/// A task as the scheduler sees it at this moment.
pub trait Task: Copy {
    /// Returns the address of the task, which stands for it in functions that take only numbers.
    fn handle(self) -> u64;
    /// Returns how often the task has switched out, including the switch that the hook handles now.
    fn switches(self) -> u64;
    /// Returns `sched_info.run_delay`: the kernel's own sum of waits, ns.
    fn run_delay_ns(self) -> u64;
    /// Returns `sched_info.last_queued`: since when the task waits, ns of its CPU's clock; 0: it does not wait.
    fn last_queued_ns(self) -> u64;
    /// Returns the CPU of the task's run queue.
    fn cpu(self) -> u32;
    /// Returns the clock of the task's run queue, ns.
    fn clock_ns(self) -> u64;
    /// Returns the id of the task's cgroup.
    fn cgroup_id(self) -> u64;
    /// Returns the address of the task's scheduler group, only to compare it.
    fn group(self) -> u64;
    /// Returns how long the task's group and its descendants have run on the task's CPU, ns; 0 for a task of the root.
    fn group_ran_ns(self) -> u64;
    /// Returns the same sum for another CPU, as the kernel last updated it; 0: unknown.
    fn far_group_ran_ns(self, cpu: u32) -> u64;
    /// Returns whether it is a real-time or deadline task. Such a task has no quota, but may have a runtime.
    fn is_real_time(self) -> bool;
    /// Returns whether it is a deadline task.
    fn is_deadline(self) -> bool;
    /// Returns whether a BPF scheduler runs the task. Then the kernel does not count the run time of its group.
    fn is_of_bpf_scheduler(self) -> bool;
    /// Returns whether the real-time or deadline task has used up its runtime.
    fn is_out_of_runtime(self) -> bool;
    /// Returns whether an exhausted quota took the task off its CPU (Linux 6.18).
    fn is_throttled(self) -> bool;
    /// Returns whether the task sleeps although it is still on its queue (Linux 6.12).
    fn sleeps_on_queue(self) -> bool;
    /// Returns whether the task is on its queue. Even a sleeping task may have a stamp, see [`ASLEEP`](crate::segment::ASLEEP).
    fn is_on_queue(self) -> bool;
    /// Returns the address of the queue of the task's group on the task's CPU.
    fn queue(self) -> u64;
    /// Returns how long [`Self::queue`] was in a hierarchy out of quota until `clock_ns`, ns. `address`: its address, in memory.
    fn throttled_ns(self, address: &u64, cpu: u32, clock_ns: u64) -> u64;
    /// Returns the same time for the queue that the task has left for another group; 0 if `queue` no longer belongs to `group`.
    fn left_throttled_ns(self, queue: u64, group: u64, clock_ns: u64) -> u64;
    /// Returns the queue of the task's group on another CPU.
    fn far_queue(self, cpu: u32) -> FarQueue;
    /// Returns the queue of the task's group on the task's own CPU, in the same form.
    fn near_queue(self) -> FarQueue;
    /// Writes the id of the cgroup whose quota ran out to `limit`. Leaves `limit` unchanged if there is none.
    fn find_limit(self, limit: &mut u64);
}

/// The queue of a group on a CPU whose run queue is not locked.
#[derive(Clone, Copy, Debug)]
pub struct FarQueue {
    /// Address of the queue; 0: unknown.
    pub address: u64,
    /// Whether this level or an ancestor is, or may be, out of quota.
    pub is_throttled: bool,
    /// Throttled time until clock 0, ns, because the CPU's clock is unknown. Negative (as `i64`) if the queue is throttled.
    pub throttled_ns_at_0: u64,
}

/// What every domain needs of its host.
pub trait Host {
    /// Returns whether the kernel throttles tasks one by one (Linux 6.18), not whole queues.
    fn throttles_tasks() -> bool;
    /// Returns the time since which used table entries must keep their place, ns of `rq->clock`. User space has read older
    /// entries.
    fn kept_since_ns() -> u64;
    /// Counts a loss.
    fn lost(loss: Loss);
    /// Calls `step` with `which` until it returns true, at most `times` times. The BPF side uses a helper.
    fn repeat(times: u32, step: Step, which: u32);
}

/// A step of [`Host::repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`look_back::step`](crate::look_back::step)
    Slices,
    /// [`look_back::step_of_blocks`](crate::look_back::step_of_blocks)
    Blocks,
    /// [`pressure::find_level`](crate::pressure::find_level). For this step and the next two, `which` is the CPU.
    FindLevels,
    /// [`pressure::add_level`](crate::pressure::add_level)
    AddLevels,
    /// [`pressure::count_level`](crate::pressure::count_level)
    CountLevels,
    /// [`demand::spread_step`](crate::demand::spread_step)
    Spread,
}

/// Returns when the current wait was queued on this CPU, and its part on other CPUs, both without the part that is already
/// counted. A negative `elsewhere_ns` (as `i64`) means that the kernel's stamp is from before
/// [`leave_group`](crate::waits::leave_group).
#[inline(always)]
pub(crate) fn without_ended(queued_ns: u64, elsewhere_ns: u64) -> (u64, u64) {
    if (elsewhere_ns as i64) < 0 && queued_ns != 0 {
        (queued_ns.wrapping_sub(elsewhere_ns), 0)
    } else {
        (queued_ns, elsewhere_ns)
    }
}
