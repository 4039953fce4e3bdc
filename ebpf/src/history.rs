//! Records which tasks ran on each CPU recently. [`cgscope_ledger::history`] stores the records.

use cgscope_ledger::{
    culprits::TaskName,
    demand::UNSEEN,
    history::{IDLE, KERNEL, LEAST_TAKEN_NS, Ring, Taken},
};

use crate::{
    kernel::{RunQueue, Task, blame_tasks},
    maps::task_names,
};

/// Returns the party of `task` in the history: [`IDLE`], [`KERNEL`] or the id of its cgroup.
#[inline(always)]
pub fn who(task: Task) -> u64 {
    party(task, Task::cgroup_id)
}

#[inline(always)]
fn party(task: Task, cgroup_id: impl FnOnce(Task) -> u64) -> u64 {
    if task.tid() == 0 {
        IDLE
    } else if task.is_kernel_thread() {
        KERNEL
    } else {
        cgroup_id(task)
    }
}

/// Adds interrupt time and stolen time to the latest slice if they have reached [`LEAST_TAKEN_NS`]. If the hook did not see
/// `prev` switch in, adds a slice for `prev`, and marks its wait as not recorded yet. (A hardened kernel runs no tracing program
/// while a process that it hides is on the CPU.) Call this function before a wait is split.
#[inline(always)]
pub fn settle(ring: &mut Ring, prev: Task, queue: RunQueue) {
    let taken = Taken { irq_ns: queue.irq_ns(), stolen_ns: queue.stolen_ns() };
    // This is also true after the kernel has restarted its sums, because then the difference wraps.
    if taken.ns().wrapping_sub(ring.taken_seen.ns()) >= LEAST_TAKEN_NS {
        ring.take(taken);
    }
    if prev.tid() != ring.tid {
        unseen(ring, prev, queue);
    }
}

/// Adds a slice for `prev`, whose switch in the hook did not see, if the time of that switch is known. This also happens at the
/// first switch of each CPU after the start.
#[inline(never)]
fn unseen(ring: &mut Ring, prev: Task, queue: RunQueue) {
    let since_ns = if prev.tid() == 0 { queue.idle_since_ns() } else { prev.last_arrival_ns() };
    let latest = ring.head;
    // If a mark is already set, it belongs to the wait of another task, and `running` belongs to the run of another task.
    ring.is_late = 0;
    ring.running.place = UNSEEN;
    if since_ns > ring.slice(latest).since_ns && since_ns <= queue.clock_ns() {
        begin(ring, prev, party(prev, Task::cgroup_id_rarely), since_ns);
        ring.is_late = u32::from(prev.tid() != 0);
    }
}

/// Records that `next` has the CPU from `clock_ns` on. `who` is the result of the function [`who`] for `next`.
#[inline(always)]
pub fn begin(ring: &mut Ring, next: Task, who: u64, clock_ns: u64) {
    let tid = next.tid();
    let changes = blame_tasks() && ring.tid != tid;
    ring.tid = tid;
    if ring.latest_is(who) && !changes {
        return;
    }
    if !blame_tasks() && ring.fold(who, clock_ns) {
        return;
    }
    if blame_tasks()
        && let Some(queue) = next.run_queue()
        && let Some(names) = task_names(queue.cpu())
    {
        // The name is written before the slice, for readers on other CPUs.
        *names.slice(ring.head + 1) = TaskName { comm: next.comm_words(), tid: tid.into() };
    }
    ring.push(who, clock_ns);
}
