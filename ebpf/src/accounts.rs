//! Counts how long tasks are blocked, by state and by stack. Optional, see [`keeps_accounts`](crate::kernel::keeps_accounts).
//!
//! When a task switches in, the hook walks its stack if enough blocked time is uncounted ([`stack_every_ns`]). All of the
//! uncounted time counts for this stack. So the number of walks depends on the blocked time, not on the number of switches. At
//! this moment the task is not on a CPU yet, so its stack still shows where it slept.

use cgscope_ledger::{
    BlockedState, Loss, Stack,
    host::Task as _,
    task_state::{FROZEN, IDLE, PARKED, RTLOCK_WAIT, STOPPED, TRACED, UNINTERRUPTIBLE},
    verifier::{get, opaque, set},
    wire::{AccountsRecord, Blocked, ExitedThreads, StackCount, TaskStorage},
};

use crate::{
    kernel::{RunQueue, Task, stack_every_ns},
    maps::{add_stack, lost, stack_count, stack_key},
};

#[inline(always)]
fn blocked_state(task: Task, state: u32) -> u64 {
    let which = if task.in_iowait() {
        BlockedState::Iowait
    } else if state & (STOPPED | TRACED | PARKED) != 0 {
        BlockedState::Stopped
    } else if state & IDLE == IDLE {
        BlockedState::Idle
    } else if state & (UNINTERRUPTIBLE | RTLOCK_WAIT | FROZEN) != 0 {
        BlockedState::Uninterruptible
    } else {
        BlockedState::Sleeping
    };
    which as u64
}

#[inline(always)]
pub fn slept(prev: Task, storage: &mut TaskStorage, state: u32, clock_ns: u64) {
    storage.blocked.state = blocked_state(prev, state);
    storage.blocked.since_ns = clock_ns;
}

/// If a newly followed task is already blocked, records its state and the current time.
#[inline(always)]
pub fn was_blocked(task: Task, blocked: &mut Blocked) {
    *blocked = Blocked::default();
    let state = task.state();
    if state != 0 && !task.on_cpu() && task.last_queued_ns() == 0 {
        blocked.state = blocked_state(task, state);
        blocked.since_ns = now_ns(task);
    }
}

/// Returns the current time as exactly as possible without a helper call. The clock of an idle CPU stands still; the clock of our
/// own CPU is at most a tick old.
#[inline(always)]
pub fn now_ns(task: Task) -> u64 {
    let current = Task::current();
    let clock_ns = |task: Task| task.run_queue().map_or(0, RunQueue::clock_ns);
    let (here_ns, there_ns) = (clock_ns(current), clock_ns(task));
    if here_ns > there_ns { here_ns } else { there_ns }
}

/// Counts the blocked time of `next`, which switches in. Call this function before the wait is recorded. If `next` switched in
/// earlier without the hook (`is_off_cpu` is false), its stack no longer shows where it slept, so the time counts for an empty
/// stack.
#[inline(always)]
pub fn woke(next: Task, storage: &mut TaskStorage, clock_ns: u64, is_off_cpu: bool) {
    if end_sleep(next, storage, clock_ns) {
        count_stack(next, storage, is_off_cpu.into());
    }
}

/// Counts the blocked time of `next`: its time off the CPU, less its wait. Returns whether this time must now be counted for a
/// stack.
#[inline(always)]
fn end_sleep(next: Task, storage: &mut TaskStorage, clock_ns: u64) -> bool {
    let blocked = &mut storage.blocked;
    if blocked.since_ns == 0 {
        return false;
    }
    let queued_ns = next.last_queued_ns();
    let here_ns = if queued_ns == 0 { 0 } else { clock_ns.saturating_sub(queued_ns) };
    let elsewhere_ns = next.run_delay_ns().wrapping_sub(storage.waits.expected_run_delay_ns);
    let ns = clock_ns.saturating_sub(blocked.since_ns).saturating_sub(here_ns).saturating_sub(elsewhere_ns);
    // The start is cleared first. A reader between the two writes misses this time, but the next reading includes it.
    set(&mut blocked.since_ns, 0);
    // The index is always in bounds, but the verifier requires the check.
    if let Some(sum) = blocked.ns.get_mut(opaque(blocked.state as usize)) {
        *sum += ns;
    }
    if stack_every_ns() == 0 {
        return false;
    }
    blocked.uncounted_ns += ns;
    blocked.uncounted_ns >= stack_every_ns()
}

/// Walks the stack of a task that is off its CPU, and counts all uncounted blocked time for this stack.
#[inline(never)]
fn count_stack(task: Task, storage: &mut TaskStorage, is_off_cpu: u64) {
    let Some(key) = stack_key() else { return };
    let ns = storage.blocked.uncounted_ns;
    storage.blocked.uncounted_ns = 0;
    key.tid = task.tid();
    key.state = storage.blocked.state as u32;
    if is_off_cpu != 0 {
        take_stack(task, &mut key.stack);
    } else {
        key.stack.iter_mut().for_each(|frame| set(frame, 0));
    }
    match stack_count(key) {
        Some(count) => {
            count.ns += ns;
            count.count += 1;
        }
        None => {
            let (serial, tgid, comm) = (storage.serial, task.tgid(), task.comm());
            if !add_stack(key, &StackCount { ns, count: 1, serial, tgid, padding: 0, comm }) {
                lost(Loss::StackNotCounted);
            }
        }
    }
}

/// Writes the task's stack to `stack`, or zeroes if the stack cannot be walked. The kernel fills the unused entries with zeroes.
#[inline(always)]
pub fn take_stack(task: Task, stack: &mut Stack) {
    // SAFETY: `stack` has the given size.
    unsafe { task.stack(stack.as_mut_ptr(), size_of::<Stack>() as u32) };
}

/// Fills the record for user space. The record includes the blocked time up to now.
#[inline(never)]
pub fn emit(task: Task, blocked: &mut Blocked, record: &mut AccountsRecord) {
    let before_ns = get(&mut blocked.since_ns);
    record.own = task.accounts();
    record.own.blocked_ns = blocked.ns;
    record.uncounted_ns = blocked.uncounted_ns;
    (record.state, record.is_due) = (0, 0);
    record.exited_threads = ExitedThreads::default();
    if task.tid() == task.tgid() {
        record.exited_threads = task.exited_threads();
    }
    let state = blocked.state;
    // If the task switched in while this code runs, the sums already include the time.
    if before_ns == 0 || get(&mut blocked.since_ns) != before_ns {
        return;
    }
    // A sleeping task can have `last_queued` set, see `Loss::MovedAsleep`.
    let queued_ns = if task.state() == 0 { task.last_queued_ns() } else { 0 };
    let until_ns = if queued_ns == 0 { now_ns(task) } else { queued_ns };
    let ns = until_ns.saturating_sub(before_ns);
    // The index is always in bounds, but the verifier requires the check.
    if let Some(sum) = record.own.blocked_ns.get_mut(opaque(state as usize)) {
        *sum += ns;
    }
    record.uncounted_ns += ns;
    if queued_ns == 0 {
        record.state = state + 1;
    }
    // At the next switch in, the hook counts the time for this stack, even if by then the task is awake and waits for a CPU. So
    // up to `every_ns` of blocked time may count for the wrong stack.
    let every_ns = stack_every_ns();
    if every_ns != 0 && record.uncounted_ns >= every_ns {
        record.is_due = state + 1;
    }
}
