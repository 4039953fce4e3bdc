//! Handles moves of tasks to another cgroup. What a task did before a move still counts for its former cgroup.
//!
//! [`on_leave_group`] and [`on_enter_group`] see each thread as its scheduler group changes, under the lock of its run queue: a wait ends
//! in the former cgroup, and goes on as another wait in the new one. Where the group stays the same (real-time tasks, and cgroups
//! without the cpu controller) [`on_cgroup_attach`] sees the move. If a whole process moves, the kernel names only its main thread there:
//! the hook or the reader finds out about the other threads, when they next switch in or are read. Figures that were not reported before the
//! move are added to the former cgroup's entry, as at an exit. User space then receives the task under a new serial, with its
//! counts at the move as the base.

use core::ffi::c_void;

use aya_ebpf::{
    macros::{btf_tracepoint, fentry, fexit},
    programs::{BtfTracePointContext, FEntryContext, FExitContext},
};
use cgscope_ledger::{
    Loss,
    verifier::{exchange, set},
    waits,
    wire::{Sleeper, TaskStorage, Totals, next_serial},
};

use crate::{
    accounts,
    changes::all_may_have_changed,
    demand,
    exits::hand_over_rest,
    history,
    host::Kernel,
    kernel::{Cgroup, Task, keeps_accounts},
    maps::{exited, lost, make_place, ring, sleeper, storage},
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
        } else if storage.cgroup_id != id {
            // No program saw the change of the group.
            storage.start.left_ns = task.run_queue().clock_ns();
        }
    } else if let Some(sleeper) = sleeper(task) {
        make_place(id);
        if is_quiet {
            moved_asleep(sleeper, id);
        }
    }
    0
}

/// The same for a task without storage: nothing is to hand over. In this order: if the hook uses the entry in between, it finds the move,
/// too.
#[inline(always)]
fn moved_asleep(sleeper: &mut Sleeper, to: u64) {
    if sleeper.cgroup_id != to {
        let serial = next_serial(sleeper.serial);
        set(&mut sleeper.serial, serial);
        set(&mut sleeper.cgroup_id, to);
    }
}

/// A task leaves its scheduler group for another one. Its run queue is locked, and its clock is up to date (`sched_move_task`,
/// Linux 4.7 to 7.2). The task has its new cgroup already, but not the new queue. The kernel takes the address of this function, so
/// compilers do not inline it.
#[fentry(function = "task_change_group_fair")]
pub fn on_leave_group(ctx: FEntryContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    if task.is_exiting() {
        return 0;
    }
    let to = task.cgroup_id_rarely();
    if let Some(storage) = storage(task) {
        if waits::has_stamp_of_wait(task) {
            // A task that sleeps on its queue has a stamp, too.
            if keeps_accounts() && !task.sleeps_on_queue() {
                accounts::woke(task, storage, task.run_queue().clock_ns());
            }
            waits::leave_group::<Kernel>(task, storage);
        }
        moved(task, storage, to);
    } else if let Some(sleeper) = sleeper(task) {
        moved_asleep(sleeper, to);
    }
    0
}

/// The task has the queue of its new group, and the lock is still held.
#[fexit(function = "task_change_group_fair")]
pub fn on_enter_group(ctx: FExitContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    if let Some(storage) = storage(task) {
        waits::enter_group::<Kernel>(task, &mut storage.start);
    }
    let queue = task.run_queue();
    if task.on_cpu()
        && let Some(ring) = ring(queue.cpu())
        // Otherwise the hook does not know yet that it runs.
        && ring.tid == task.tid()
    {
        history::begin(ring, task, history::who(task), queue.clock_ns());
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

/// A task that is throttled may have just moved to the cgroup that is out of quota: its wait counts for that one.
#[inline(always)]
pub fn settle(task: Task, storage: &mut TaskStorage) {
    let id = task.cgroup_id_rarely();
    if storage.cgroup_id != id {
        moved(task, storage, id);
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
