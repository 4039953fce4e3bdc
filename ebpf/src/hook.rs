//! The one hook, which runs at every switch of every CPU, under the run queue lock.
//!
//! At this point of `__schedule` the switch counters of `prev` are already updated. `next->sched_info` still describes the wait
//! that ends now, because `sched_info_switch` comes after the tracepoint (Linux 5.5 to 7.3).

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_layout::{
    Loss, bucket_of,
    history::Ring,
    ledger::{KERNEL, Start},
    task_state,
    verifier::{get, set},
    wire::{TaskStorage, Waits},
};
use core::ffi::c_void;

use crate::{
    accounts,
    burial::bury,
    by_cpu, history,
    kernel::{RunQueue, Task, born_after_ns, counts_by_cpu, follow_all, keeps_accounts},
    ledger,
    look_back::Wait,
    maps::{lost, ring, storage},
    moves,
};

#[btf_tracepoint(function = "sched_switch")]
pub fn on_switch(ctx: BtfTracePointContext) -> i32 {
    let prev = Task::new(ctx.arg::<*const c_void>(1));
    let next = Task::new(ctx.arg::<*const c_void>(2));
    let queue = next.run_queue();
    let clock_ns = queue.clock_ns();
    // Always present: every possible CPU has a ring.
    let Some(ring) = ring(queue.cpu()) else { return 0 };
    // The rare and long code paths come first and then join again, so that the verifier follows each of them only once.
    history::settle(ring, prev, queue);
    let state = prev.state();
    if state != 0 {
        // Only the low byte holds the bool.
        let preempted = ctx.arg::<u64>(0) as u8 != 0;
        leave(prev, state, preempted, clock_ns);
    } else if prev.tid() != 0
        && let Some(storage) = storage(prev)
    {
        ledger::leave(prev, next, storage, ring, queue.cpu(), clock_ns);
    }
    set(&mut ring.coming, history::who(next));
    let who = get(&mut ring.coming);
    if next.tid() != 0 {
        match storage(next) {
            Some(storage) => {
                if keeps_accounts() {
                    accounts::woke(next, storage, clock_ns);
                }
                arrive(next, who, storage, queue, ring);
                ledger::came(next, storage, queue.cpu(), clock_ns);
                if storage.cgroup_id != who && who != KERNEL {
                    moves::moved(next, storage, who);
                }
            }
            None => not_followed(next),
        }
    }
    history::begin(ring, next, who, clock_ns);
    0
}

/// Handles a `prev` that goes to sleep or exits. The idle task never does.
#[inline(always)]
fn leave(prev: Task, state: u32, preempted: bool, clock_ns: u64) {
    if state & task_state::DEAD != 0 {
        bury(prev);
    } else if preempted {
        stamp(prev);
    } else if keeps_accounts()
        && let Some(storage) = storage(prev)
    {
        accounts::slept(prev, storage, state, clock_ns);
    }
}

/// Handles a `next` without storage: it is not selected, or something went wrong. Not inlined, because it is rare.
#[inline(never)]
fn not_followed(next: Task) {
    if !follow_all() {
        return;
    }
    let born_later = next.start_ns() > born_after_ns();
    lost(if born_later { Loss::SwitchWithoutStorage } else { Loss::SwitchOfHiddenTask });
}

/// Records the wait of `next`, which ends as `next` switches in.
#[inline(always)]
fn arrive(next: Task, who: u64, storage: &mut TaskStorage, queue: RunQueue, ring: &mut Ring) {
    let clock_ns = queue.clock_ns();
    let queued_ns = next.last_queued_ns();
    let run_delay_ns = next.run_delay_ns();
    let waits = &mut storage.waits;

    // The kernel's increase since the last switch in is the part of the wait on other CPUs: `on_move` has split it.
    let elsewhere_ns = run_delay_ns.wrapping_sub(waits.expected_run_delay_ns);
    // The kernel adds this part after the tracepoint, and wraps if the stamp is later than the clock. Do the same.
    let here_ns = if queued_ns == 0 { 0 } else { clock_ns.wrapping_sub(queued_ns) };
    waits.expected_run_delay_ns = run_delay_ns.wrapping_add(here_ns);

    if waits.unstamped_since_ns != 0 {
        end_unstamped(next, waits, &storage.start, clock_ns);
    }
    if queued_ns == 0 && elsewhere_ns == 0 {
        return;
    }
    if queued_ns > clock_ns {
        lost(Loss::StampAfterClock);
        storage.moved.ns = 0;
        return;
    }
    let wait_ns = elsewhere_ns.wrapping_add(here_ns);
    waits.total_ns += wait_ns;
    waits.count += 1;
    if wait_ns > waits.max_ns {
        waits.max_ns = wait_ns;
    }
    let bucket = bucket_of(wait_ns);
    // Always in bounds, but the verifier requires the check.
    if let Some(count) = storage.histogram.counts.get_mut(bucket) {
        *count = count.wrapping_add(1);
    }
    if counts_by_cpu() {
        by_cpu::count(queue.cpu(), bucket as u64, wait_ns);
    }
    if wait_ns != 0 {
        let (bucket, cpu) = (bucket as u64, queue.cpu());
        let wait = Wait { queued_ns, clock_ns, elsewhere_ns, ns: wait_ns, bucket, cpu, padding: 0 };
        ledger::enter(next, who, storage, wait, ring);
    }
}

/// Stamps a `prev` that was preempted on its way to sleep, with its state already set. Such a task waits on the run queue, but
/// the kernel does not stamp it (`sched_info_depart` checks the state). Rare.
#[inline(always)]
fn stamp(prev: Task) {
    if let Some(storage) = storage(prev) {
        storage.waits.unstamped_since_ns = prev.run_queue().clock_ns();
        storage.start.is_seen = 0;
        storage.start.limit = 0;
        storage.start.switches = prev.switches();
    }
}

/// Ends what `stamp` began. After a switch in that the hook did not see (see `burial`), our stamp belongs to an earlier wait and
/// is dropped.
#[inline(always)]
fn end_unstamped(task: Task, waits: &mut Waits, start: &Start, clock_ns: u64) {
    if start.switches == task.switches() {
        waits.unstamped_ns += clock_ns.saturating_sub(waits.unstamped_since_ns);
        waits.unstamped_count += 1;
    }
    waits.unstamped_since_ns = 0;
}

/// A task moves to another CPU. If it waits, the wait segment on its old CPU has just ended. It is split here and now: this CPU
/// holds the lock of the old run queue, so the history of the old CPU stands still, and the clock of that queue is the end of the
/// segment. (`set_task_cpu` calls the tracepoint after `deactivate_task` and before it changes the task's queue, Linux 4.19 to 7.2.)
#[btf_tracepoint(function = "sched_migrate_task")]
pub fn on_move(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    // Other tasks are woken on another CPU: their wait has not begun.
    if !task.moves() {
        return 0;
    }
    let Some(storage) = storage(task) else { return 0 };
    if storage.waits.unstamped_since_ns != 0 {
        let clock_ns = task.run_queue().clock_ns();
        end_unstamped(task, &mut storage.waits, &storage.start, clock_ns);
    }
    ledger::end_segment(task, storage);
    ledger::move_to(task, &mut storage.start, ctx.arg::<u64>(1) as u32);
    0
}
