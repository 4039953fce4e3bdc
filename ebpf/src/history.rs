//! Records who ran on each CPU lately, as the hook sees it. [`cgscope_ledger::history`] keeps the records.

use cgscope_ledger::{
    demand::UNSEEN,
    history::{IDLE, KERNEL, LEAST_TAKEN_NS, Ring, Taken},
};

use crate::kernel::{RunQueue, Task, blame_tasks};

/// Returns the party of `task` in the history: [`IDLE`], [`KERNEL`] or the id of its cgroup.
#[inline(always)]
pub fn who(task: Task) -> u64 {
    if task.tid() == 0 {
        IDLE
    } else if task.is_kernel_thread() {
        KERNEL
    } else {
        task.cgroup_id()
    }
}

/// Adds interrupt time and stolen time to the latest slice if they have reached [`LEAST_TAKEN_NS`]. If the hook did not see the
/// switch to `prev`, adds a slice for `prev`, and marks the wait that ended then as not recorded. (A hardened kernel runs no
/// tracing program while a process that it hides is on the CPU.) Call it before a wait is split.
#[inline(always)]
pub fn settle(ring: &mut Ring, prev: Task, queue: RunQueue) {
    let taken = Taken { irq_ns: queue.irq_ns(), stolen_ns: queue.stolen_ns() };
    // True also after the kernel's sums have restarted, because the difference then wraps.
    if taken.ns().wrapping_sub(ring.taken_seen.ns()) >= LEAST_TAKEN_NS {
        ring.take(taken);
    }
    if prev.tid() != ring.tid {
        unseen(ring, prev, queue);
    }
}

/// Adds a slice for `prev`, which switched in unseen, if the time of that switch is known. Each CPU's first switch after the
/// start is such a case.
#[inline(never)]
fn unseen(ring: &mut Ring, prev: Task, queue: RunQueue) {
    let since_ns = if prev.tid() == 0 { queue.idle_since_ns() } else { prev.last_arrival_ns() };
    let latest = ring.head;
    // A mark that is already set belongs to another task's wait, and `running` to another task's run.
    ring.is_late = 0;
    ring.running.place = UNSEEN;
    if since_ns > ring.slice(latest).since_ns && since_ns <= queue.clock_ns() {
        begin(ring, prev, who(prev), since_ns);
        ring.is_late = u32::from(prev.tid() != 0);
    }
}

/// Records that `next` has the CPU from now on. `who`: the result of [`who`] for `next`.
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
    ring.push(who, clock_ns, |slice| {
        if blame_tasks() {
            slice.tid = tid;
            slice.comm = next.comm();
        }
    });
}
