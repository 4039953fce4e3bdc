//! Moves to another cgroup. What a task did before stays with its former cgroup.
//!
//! [`on_cgroup_attach`] sees a move when it happens; it does not name the other threads of a process, which are seen when they next
//! switch in or are read. What was not reported by then goes to the place of the former cgroup, as at exit, and user space gets the
//! task under another serial, with its counts at the move as the base.

use core::{arch::asm, ffi::c_void};

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_layout::{
    Loss,
    wire::{TaskStorage, Totals, next_serial},
};

use crate::{
    burial::hand_over_rest,
    kernel::{Cgroup, Task},
    maps::{exited, lost, make_place, storage},
};

/// A task, or a process by its main thread, has moved (`cgroup_attach_task` after everything that can fail; Linux 4.19 to 7.3). As in
/// `cgroups`, a place can be made here.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn on_cgroup_attach(ctx: BtfTracePointContext) -> i32 {
    let cgroup = Cgroup::new(ctx.arg::<*const c_void>(0));
    let task = Task::new(ctx.arg::<*const c_void>(2));
    if !cgroup.is_in_our_hierarchy() {
        return 0;
    }
    let Some(storage) = storage(task) else { return 0 };
    let id = task.cgroup_id_rarely();
    make_place(id);
    // A wait counts where it began: the hook hands over at its end, or the reader.
    if !task.is_exiting() && task.last_queued_ns() == 0 {
        moved(task, storage, id);
    }
    0
}

/// `task` has moved from the cgroup `storage.cgroup_id` to `to`. Left for later if another program has the lock.
#[inline(never)]
pub fn moved(task: Task, storage: &mut TaskStorage, to: u64) {
    if try_lock(storage) {
        hand_over(task, storage, to);
        unlock(storage);
    }
}

/// The same if the caller holds the lock.
#[inline(always)]
pub fn hand_over(task: Task, storage: &mut TaskStorage, to: u64) {
    let from = storage.cgroup_id;
    if from == to || storage.is_handed_over != 0 {
        return;
    }
    storage.cgroup_id = to;
    let Some(place) = exited(from) else {
        // The map is full: everything counts where the task is now.
        lost(Loss::ExitedInOtherCgroup);
        return;
    };
    // With the wait that ends with this switch, which the kernel will add; without a part that was reported of a wait that is not over.
    let run_delay_ns = storage.waits.expected_run_delay_ns.max(storage.told.totals.run_delay_ns);
    let now = Totals { run_delay_ns, ..task.all_totals(&storage.waits, storage) };
    // SAFETY: a map value; all writes to it are atomic or may be lost without harm.
    hand_over_rest(task, storage, unsafe { &mut *place }, &now);
    storage.waits.max_ns = 0;
    storage.serial = next_serial(storage.serial);
}

#[inline(always)]
pub fn try_lock(storage: &mut TaskStorage) -> bool {
    exchange(&mut storage.lock, 1) == 0
}

#[inline(always)]
pub fn unlock(storage: &mut TaskStorage) {
    exchange(&mut storage.lock, 0);
}

/// In assembly: core has no atomics for a machine without compare-and-swap, which BPF before Linux 5.12 is.
#[inline(always)]
fn exchange(word: &mut u64, value: u64) -> u64 {
    let mut value = value;
    // SAFETY: an aligned word of a map value.
    unsafe { asm!("{value} = xchg_64({word} + 0, {value})", word = in(reg) word, value = inout(reg) value) };
    value
}
