//! Handles tasks that move to another cgroup. The figures from before a move still count for the former cgroup.
//!
//! [`on_leave_group`] and [`on_enter_group`] run for each thread whose scheduler group changes, under the run queue lock. If the
//! thread waits, its wait in the former cgroup ends, and a new wait in the new cgroup begins. Some moves do not change the
//! scheduler group (real-time tasks, and cgroups without the cpu controller). For these moves, [`on_cgroup_attach`] runs. If a
//! whole process moves, the kernel calls it only for the main thread. The move of another thread is detected by the hook when the
//! thread next switches in, or by the reader when it reads the thread.
//!
//! At a move, the unreported figures are added to the former cgroup's entry, as at an exit. After that, user space receives the
//! task with a new serial. The task's counts at the move are its base.

use aya_ebpf::{
    macros::{btf_tracepoint, fentry, fexit},
    programs::{BtfTracePointContext, FEntryContext, FExitContext},
};
use cgscope_ledger::{
    Loss,
    host::Task as _,
    verifier::{exchange, get, set},
    waits,
    wire::{Histogram, Sleeper, TaskStorage, next_serial},
};

use crate::{
    accounts,
    changes::all_may_have_changed,
    demand,
    exits::hand_over_rest,
    history,
    host::{Kernel, exported},
    kernel::{Cgroup, Task, argument, keeps_accounts},
    maps::{exited, histogram, lost, make_moved, make_place, no_waits, ring, sleeper},
    slots::storage,
};

/// Handles the move of a task, or of a process. For a process, the kernel passes the main thread. The kernel calls
/// `cgroup_attach_task` after all steps that can fail (Linux 4.19 to 7.3). As in [`crate::cgroups`], memory may be allocated
/// here.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn on_cgroup_attach(ctx: BtfTracePointContext) -> i32 {
    let cgroup = Cgroup::new(argument(&ctx, 0));
    let task = Task::new(argument(&ctx, 2));
    if !cgroup.is_in_our_hierarchy() {
        return 0;
    }
    // If a whole process moves, its other threads have moved too.
    all_may_have_changed();
    let id = task.cgroup_id_rarely();
    // A wait counts for the cgroup in which it began. If the task waits, the figures are added after the wait, by the hook or the
    // reader.
    let is_quiet = !task.is_exiting() && task.last_queued_ns() == 0;
    if let Some(storage) = storage(task) {
        make_place(id);
        if is_quiet {
            moved(task, storage, id);
        } else if storage.cgroup_id != id {
            // The scheduler group has changed, and no program saw the change.
            storage.start.left_ns = task.clock_ns();
        }
    } else if let Some(sleeper) = sleeper(task) {
        make_place(id);
        if is_quiet {
            moved_asleep(sleeper, id);
        }
    }
    0
}

/// Handles the move of a task without storage, which has no figures. The serial is written first. If the hook uses the entry
/// after that, the hook also detects the move.
#[inline(always)]
fn moved_asleep(sleeper: &mut Sleeper, to: u64) {
    if sleeper.cgroup_id != to {
        let serial = next_serial(sleeper.serial);
        set(&mut sleeper.serial, serial);
        set(&mut sleeper.cgroup_id, to);
    }
}

/// Handles a task that is about to leave its scheduler group. Its run queue is locked, and the clock is up to date
/// (`sched_move_task`, Linux 4.7 to 7.2). The task is already in its new cgroup, but still has the old queue. Compilers do not
/// inline this kernel function, because the kernel takes its address.
#[fentry(function = "task_change_group_fair")]
pub fn on_leave_group(ctx: FEntryContext) -> i32 {
    let task = Task::new(argument(&ctx, 0));
    if task.is_exiting() {
        return 0;
    }
    let to = task.cgroup_id_rarely();
    if let Some(storage) = storage(task) {
        if waits::has_stamp_of_wait(task) {
            // A task that sleeps on its queue can also have `last_queued` set.
            if keeps_accounts() && !task.sleeps_on_queue() {
                accounts::woke(task, storage, task.clock_ns(), true);
            }
            waits::leave_group::<Kernel>(task, storage);
        }
        moved(task, storage, to);
    } else if let Some(sleeper) = sleeper(task) {
        moved_asleep(sleeper, to);
    }
    0
}

/// Handles a task that has just received the queue of its new group. The run queue is still locked.
#[fexit(function = "task_change_group_fair")]
pub fn on_enter_group(ctx: FExitContext) -> i32 {
    let task = Task::new(argument(&ctx, 0));
    if let Some(storage) = storage(task) {
        waits::enter_group::<Kernel>(task, &mut storage.start);
    }
    if task.on_cpu()
        && let Some(queue) = task.run_queue()
        && let Some(ring) = ring(queue.cpu())
        // If the tids differ, the hook does not know yet that the task runs.
        && ring.tid == task.tid()
    {
        history::begin(ring, task, history::who(task), queue.clock_ns());
    }
    0
}

/// Records that `task` has moved from the cgroup `storage.cgroup_id` to `to`. If the storage is locked, the move is recorded by a
/// later call.
#[inline(never)]
pub fn moved(task: Task, storage: &mut TaskStorage, to: u64) {
    let histogram = histogram(task);
    let has_histogram = histogram.is_some().into();
    if let Some(histogram) = histogram.or_else(no_waits) {
        record_move(storage, histogram, has_histogram, to);
    }
}

exported! {
    fn record_move([storage: TaskStorage], [histogram: Histogram], has_histogram: u64, to: u64) = if try_lock(storage) {
        hand_over(storage, histogram, has_histogram != 0, to);
        unlock(storage);
    };
}

/// Detects whether a throttled task has just moved into the cgroup that is out of quota. If so, the wait counts for that cgroup.
#[inline(always)]
pub fn settle(task: Task, storage: &mut TaskStorage) {
    let id = task.cgroup_id_rarely();
    if storage.cgroup_id != id {
        moved(task, storage, id);
    }
}

/// Does the same as [`moved`], but the caller holds the lock of the storage. `histogram` is that of the task, or [`no_waits`].
#[inline(always)]
pub fn hand_over(storage: &mut TaskStorage, histogram: &mut Histogram, has_histogram: bool, to: u64) {
    let from = storage.cgroup_id;
    if from == to || storage.is_handed_over != 0 {
        return;
    }
    storage.cgroup_id = to;
    demand::moved(storage);
    let Some(place) = exited(from) else {
        // The table of exited tasks is full, so all figures count for the new cgroup.
        lost(Loss::ExitedInOtherCgroup);
        return;
    };
    let has_waits = has_histogram || get(&mut storage.taken) as u32 != get(&mut storage.logged);
    let moved = if has_waits { make_moved(storage.reported.serial) } else { None };
    if has_waits && moved.is_none() {
        // The task's own row lacks these waits; the rows of cgroups have them.
        lost(Loss::StorageNotCreated);
    }
    hand_over_rest(Task::of(storage), storage, histogram, place, moved);
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
