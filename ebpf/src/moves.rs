//! Handles moves of tasks to another cgroup. What a task did before a move still counts for its former cgroup.
//!
//! [`on_cgroup_attach`] sees a move when it happens. If a whole process moves, the kernel names only its main thread: the hook or
//! the reader finds out about the other threads, when they next switch in or are read. Figures that were not reported before the
//! move are added to the former cgroup's entry, as at an exit. User space then receives the task under a new serial, with its
//! counts at the move as the base.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_layout::{
    Loss,
    verifier::{exchange, set},
    wire::{TaskStorage, Totals, next_serial},
};

use crate::{
    changes::all_may_have_changed,
    demand,
    exits::hand_over_rest,
    kernel::{Cgroup, Task},
    maps::{exited, lost, make_place, sleeper, storage},
};

/// A task has moved, or a process, which is named by its main thread. The kernel calls `cgroup_attach_task` after everything that
/// can fail (Linux 4.19 to 7.3). As in [`crate::cgroups`], allocating is allowed here.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn on_cgroup_attach(ctx: BtfTracePointContext) -> i32 {
    let cgroup = Cgroup::new(ctx.arg::<*const c_void>(0));
    let task = Task::new(ctx.arg::<*const c_void>(2));
    if !cgroup.is_in_our_hierarchy() {
        return 0;
    }
    // The process may have other threads.
    all_may_have_changed();
    let id = task.cgroup_id_rarely();
    // A wait counts for the cgroup in which it began. If the task waits now, the hook hands over at the end of the wait, or the
    // reader does.
    let is_quiet = !task.is_exiting() && task.last_queued_ns() == 0;
    if let Some(storage) = storage(task) {
        make_place(id);
        if is_quiet {
            moved(task, storage, id);
        }
    } else if let Some(sleeper) = sleeper(task) {
        make_place(id);
        if is_quiet && sleeper.cgroup_id != id {
            // Nothing to hand over. In this order: if the hook uses the entry in between, it finds the move, too.
            let serial = next_serial(sleeper.serial);
            set(&mut sleeper.serial, serial);
            set(&mut sleeper.cgroup_id, id);
        }
    }
    0
}

/// Records that `task` has moved from the cgroup `storage.cgroup_id` to `to`. If another program holds the lock, a later call
/// does it.
#[inline(never)]
pub fn moved(task: Task, storage: &mut TaskStorage, to: u64) {
    if try_lock(storage) {
        hand_over(task, storage, to);
        unlock(storage);
    }
}

/// Does the same as [`moved`] for a caller that holds the lock.
#[inline(always)]
pub fn hand_over(task: Task, storage: &mut TaskStorage, to: u64) {
    let from = storage.cgroup_id;
    if from == to || storage.is_handed_over != 0 {
        return;
    }
    storage.cgroup_id = to;
    demand::moved(storage);
    let Some(place) = exited(from) else {
        // The map is full: all figures count for the new cgroup.
        lost(Loss::ExitedInOtherCgroup);
        return;
    };
    // Includes the wait that ends with this switch, which the kernel adds only after the hook. At least what was reported, which
    // may include the first part of an unfinished wait.
    let run_delay_ns = storage.waits.expected_run_delay_ns.max(storage.reported.totals.run_delay_ns);
    let now = Totals { run_delay_ns, ..task.all_totals(&storage.waits, storage) };
    // SAFETY: a map value; each write to it is atomic, or harmless if lost.
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
