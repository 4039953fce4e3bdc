//! The host: the environment in which the ledger runs. On the BPF side, the host reads kernel memory and BPF maps; in tests, the
//! host is simulated. Each module adds a trait: [`WaitHost`](crate::waits::WaitHost),
//! [`PressureHost`](crate::pressure::PressureHost), [`DemandHost`](crate::demand::DemandHost).

use crate::Loss;

/// Used instead of a cgroup id: the CPU ran no task.
pub const IDLE: u64 = 0;
/// Used instead of a cgroup id: a kernel thread ran. No cgroup has this id.
pub const KERNEL: u64 = u64::MAX;

/// A task as the scheduler sees it at this moment.
pub trait Task: Copy {
    /// Returns the task's handle: its address, which represents the task in functions whose parameters must be numbers.
    fn handle(self) -> u64;
    /// Returns how often the task has switched out, including the switch that the hook handles now.
    fn switches(self) -> u64;
    /// Returns `sched_info.run_delay`: the sum of waits that the kernel keeps, ns.
    fn run_delay_ns(self) -> u64;
    /// Returns `sched_info.last_queued`: since when the task has waited, ns of its CPU's clock; 0 if it does not wait.
    fn last_queued_ns(self) -> u64;
    fn cpu(self) -> u32;
    /// Returns the clock of the task's run queue, ns.
    fn clock_ns(self) -> u64;
    /// Returns the address of the task's scheduler group. Use it only for comparisons.
    fn group(self) -> u64;
    /// Returns how long the task's group and its descendants have run on the task's CPU, ns; 0 for a task of the root.
    fn group_ran_ns(self) -> u64;
    /// Returns the value of [`Self::group_ran_ns`] for another CPU, as the kernel last updated it; 0 if unknown.
    fn far_group_ran_ns(self, cpu: u32) -> u64;
    /// Returns whether the task is a real-time or deadline task. No quota applies to such a task, but its runtime may be limited.
    fn is_real_time(self) -> bool;
    fn is_deadline(self) -> bool;
    /// Returns whether a BPF scheduler runs the task. If so, the kernel does not count the run time of the task's group.
    fn is_of_bpf_scheduler(self) -> bool;
    /// Returns whether the real-time or deadline task has used up its runtime.
    fn is_out_of_runtime(self) -> bool;
    /// Returns whether the task was taken off its CPU because a quota ran out (Linux 6.18).
    fn is_throttled(self) -> bool;
    /// Returns whether the task sleeps although it is still on its queue (Linux 6.12).
    fn sleeps_on_queue(self) -> bool;
    /// Returns whether the task is on its queue. Even a sleeping task can have `last_queued` set, see
    /// [`ASLEEP`](crate::segment::ASLEEP).
    fn is_on_queue(self) -> bool;
    /// Returns the address of the queue that the task's group has on the task's CPU.
    fn queue(self) -> u64;
    /// Returns the throttled time of a queue that the task has left for another group, ns; 0 if `queue` no longer belongs to
    /// `group`.
    /// Returns the same as [`Self::queue`]. On rare code paths, the verifier checks this and the next two functions faster.
    fn queue_rarely(self) -> u64;
    fn group_rarely(self) -> u64;
    fn group_ran_ns_rarely(self) -> u64;
    fn left_throttled_ns(self, queue: u64, group: u64, clock_ns: u64) -> u64;
    /// Finds the cgroup whose quota ran out and writes its id to `limit`. Leaves `limit` unchanged if there is no such cgroup.
    fn find_limit(self, limit: &mut u64);
}

/// The queue of a group on a CPU. The CPU's run queue need not be locked.
#[derive(Clone, Copy, Debug)]
pub struct FarQueue {
    /// Address of the queue; 0 if unknown.
    pub address: u64,
    /// Whether the queue's group or an ancestor is out of quota, or may be.
    pub is_throttled: bool,
    /// Throttled time of the queue, ns. If the queue is throttled, the number is negative (as `i64`), and the time when the task
    /// was queued must be added to it.
    pub throttled_ns_at_0: u64,
}

/// The functions that every module needs from its host.
pub trait Host {
    /// Returns whether the kernel throttles tasks one by one (Linux 6.18) and not whole queues.
    fn throttles_tasks() -> bool;
    /// Returns a time, ns of `rq->clock`. A table entry that was used after this time must not be replaced. User space has
    /// already read the entries that were last used before this time.
    fn kept_since_ns() -> u64;
    fn lost(loss: Loss);
    /// Calls `step` up to `times` times, until it returns true. The BPF side uses a BPF helper for this. `step` must capture
    /// nothing, and `context` must be on the stack.
    fn repeat<C, F: Fn(&mut C) -> bool>(times: u32, step: F, context: &mut C);
}

/// Returns since when the current wait has been on this CPU, and how long it was on other CPUs. Both exclude the part that is
/// already counted. A negative `elsewhere_ns` (as `i64`) means that the kernel set `last_queued` before
/// [`leave_group`](crate::waits::leave_group).
#[inline(always)]
pub(crate) fn without_ended(queued_ns: u64, elsewhere_ns: u64) -> (u64, u64) {
    if (elsewhere_ns as i64) < 0 && queued_ns != 0 {
        (queued_ns.wrapping_sub(elsewhere_ns), 0)
    } else {
        (queued_ns, elsewhere_ns)
    }
}
