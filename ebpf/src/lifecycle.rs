//! Tasks that are born, and tasks that are gone.

use core::{arch::asm, ffi::c_void};

use aya_ebpf::{
    helpers::generated::bpf_get_current_task_btf, macros::btf_tracepoint, programs::BtfTracePointContext,
};
use cgscope_layout::{
    BUCKETS, Loss,
    wire::{Exited, INHERIT, TaskStorage, Totals},
};

use crate::{
    kernel::{Task, follow_all, root_cgroup_id},
    maps::{create_storage, exited, lost, storage},
};

/// A task was made and cannot have run yet (`copy_process` after everything that can fail). Allocating is allowed.
#[btf_tracepoint(function = "task_newtask")]
pub fn on_new_task(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    if follow_all() {
        create_storage(task);
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let parent = Task::new(unsafe { bpf_get_current_task_btf() }.cast());
    let Some(parent) = storage(parent) else { return 0 };
    if parent.waits.flags & INHERIT == 0 {
        return 0;
    }
    if let Some(child) = create_storage(task) {
        child.waits.flags |= INHERIT;
    }
    0
}

/// A task is gone for good: reaped, and off its CPU for the last time (`delayed_put_task_struct` runs when both have
/// happened), so all of its counters are final. What user space has not been told yet goes to its cgroup. Not under
/// the run queue lock, unlike the last switch.
#[btf_tracepoint(function = "sched_process_free")]
pub fn on_task_free(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    let Some(storage) = storage(task) else { return 0 };
    let place = match exited(task.cgroup_id()) {
        Some(place) => Some(place),
        None => {
            lost(Loss::ExitedWithoutCgroup);
            exited(root_cgroup_id())
        }
    };
    match place {
        // SAFETY: a map value; all writes to it are atomic or may be lost without harm.
        Some(place) => hand_over(task, storage, unsafe { &mut *place }),
        None => lost(Loss::ExitedNotCounted),
    }
    0
}

#[inline(always)]
fn hand_over(task: Task, storage: &mut TaskStorage, place: &mut Exited) {
    let waits = &storage.waits;
    let now = Totals {
        waits: waits.count,
        wait_ns: waits.total_ns,
        unstamped: waits.unstamped_count,
        unstamped_ns: waits.unstamped_ns,
        ..task.totals()
    };
    let told = &storage.told;
    add(&mut place.tasks, 1);
    let sums = &mut place.totals;
    add(&mut sums.waits, now.waits.wrapping_sub(told.waits));
    add(&mut sums.wait_ns, now.wait_ns.wrapping_sub(told.wait_ns));
    add(&mut sums.run_delay_ns, now.run_delay_ns.wrapping_sub(told.run_delay_ns));
    add(&mut sums.unstamped, now.unstamped.wrapping_sub(told.unstamped));
    add(&mut sums.unstamped_ns, now.unstamped_ns.wrapping_sub(told.unstamped_ns));
    add(&mut sums.on_cpu_ns, now.on_cpu_ns.wrapping_sub(told.on_cpu_ns));
    add(&mut sums.voluntary, now.voluntary.wrapping_sub(told.voluntary));
    add(&mut sums.involuntary, now.involuntary.wrapping_sub(told.involuntary));
    add(&mut sums.migrations, now.migrations.wrapping_sub(told.migrations));
    if waits.max_ns > place.max_ns {
        // Two CPUs at once may lose the smaller: the histogram still has it.
        place.max_ns = waits.max_ns;
    }
    if now.waits == told.waits {
        return;
    }
    for bucket in 0..BUCKETS {
        let rest = storage.counts[bucket].wrapping_sub(storage.told_counts[bucket]);
        if rest != 0 {
            add(&mut place.counts[bucket], u64::from(rest));
        }
    }
}

/// Tasks of one cgroup may be freed on several CPUs at once. By hand: core has no `fetch_add` for a machine without
/// compare-and-swap, which BPF before Linux 5.12 is.
#[inline(always)]
fn add(sum: &mut u64, value: u64) {
    // SAFETY: an aligned word of a map value.
    unsafe { asm!("lock *(u64 *)({sum} + 0) += {value}", sum = in(reg) sum, value = in(reg) value) };
}
