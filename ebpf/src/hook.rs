//! The main hook, which runs at every switch of every CPU, under the run queue lock.
//!
//! At this point of `__schedule`, the kernel has already updated the switch counters of `prev`. `next->sched_info` still
//! describes the wait that ends now, because `sched_info_switch` runs after the tracepoint (Linux 5.5 to 7.3).

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_ledger::{
    Loss,
    history::{KERNEL, Ring},
    host::Task as _,
    segment, task_state,
    verifier::{get, opaque, set},
    waits,
    wire::{TaskStorage, UNCHANGED},
};

use crate::{
    accounts, chains, changes, demand,
    exits::report_exit,
    history,
    host::{Exported, Kernel, exported},
    kernel::{RunQueue, Task, argument, follow_all, has_nodes, hook_allocates, keeps_accounts},
    maps::{cpu_counters, create_missing, first_read_ns, lost, node_place, placement, ring, sleeper, wake},
    moves,
    slots::storage,
};

#[btf_tracepoint(function = "sched_switch")]
pub fn on_switch(ctx: BtfTracePointContext) -> i32 {
    let prev = Task::new(argument(&ctx, 1));
    let next = Task::new(argument(&ctx, 2));
    // Every task has a run queue.
    let Some(queue) = next.run_queue() else { return 0 };
    let (clock_ns, cpu) = (queue.clock_ns(), queue.cpu());
    // The ring always exists, because every possible CPU has one.
    let Some(ring) = ring(cpu) else { return 0 };
    set(&mut ring.coming, history::who(next));
    // Rare and long code paths are first and join afterwards, so that the verifier follows the rest only once.
    history::settle(ring, prev, queue);
    if get(&mut ring.is_late) != 0 {
        set(&mut ring.is_late, 0);
        arrived_late(prev, ring, queue);
    }
    let state = prev.state();
    if state != 0 {
        // Only the low byte of this argument contains the `bool`.
        let preempted = ctx.arg::<u64>(0) as u8 != 0;
        leave(prev, state, preempted, ring, cpu, clock_ns);
    } else if prev.tid() != 0
        && let Some(storage) = storage(prev)
    {
        segment::leave::<Kernel>(prev, storage, ring, cpu, clock_ns);
        if prev.is_throttled() {
            moves::settle(prev, storage);
        }
        demand::left(prev, ring, cpu, clock_ns, false);
    }
    let who = get(&mut ring.coming);
    if next.tid() != 0 {
        let mut found = storage(next);
        if found.is_none() {
            wake_or_count(next, ring);
            found = storage(next);
        }
        if let Some(storage) = found {
            if get(&mut storage.has_changed) == UNCHANGED {
                changes::changed(next, storage, queue);
            }
            if keeps_accounts() {
                accounts::woke(next, storage, clock_ns, true);
            }
            demand::ends_wait(next, storage, ring, clock_ns);
            waits::arrive::<Kernel>(next, storage, cpu, clock_ns, ring);
            demand::arrived(storage, ring, cpu, clock_ns);
            chains::arrived(next, storage, clock_ns, false);
            segment::run::<Kernel>(next, &mut storage.start, cpu, clock_ns);
            if has_nodes() && storage.start.ran_on != cpu {
                change_node(next, cpu);
                storage.start.ran_on = cpu;
            }
            if storage.cgroup_id != who && who != KERNEL {
                moves::moved(next, storage, who);
            }
        }
    }
    history::begin(ring, next, who, clock_ns);
    0
}

/// Handles the task `prev`, which goes to sleep or exits. `prev` is never the idle task.
#[inline(always)]
fn leave(prev: Task, state: u32, preempted: bool, ring: &mut Ring, cpu: u32, clock_ns: u64) {
    if state & task_state::DEAD != 0 {
        demand::left(prev, ring, cpu, clock_ns, true);
        report_exit(prev);
        return;
    }
    demand::left(prev, ring, cpu, clock_ns, !preempted);
    if preempted {
        if let Some(storage) = storage(prev) {
            waits::begin_unstamped(prev, storage, clock_ns);
        }
    } else if keeps_accounts()
        && let Some(storage) = storage(prev)
    {
        accounts::slept(prev, storage, state, clock_ns);
    }
    if !preempted {
        chains::slept(prev, clock_ns);
    }
}

/// Counts a migration to another NUMA node. `task` has switched in on a different CPU than before. This function is not inlined,
/// because it is rarely called.
#[inline(never)]
fn change_node(task: Task, cpu: u32) {
    let Some(placement) = placement(task) else { return };
    let (place, before) = (node_place(cpu), placement.place);
    if place == 0 || place == before {
        return;
    }
    let ran_ns = task.ran_ns();
    if before != 0 {
        placement.node_migrations += 1;
        let before = opaque((before - 1) as usize);
        // The index is always in bounds, but the verifier requires the check.
        if let Some(sum) = placement.ran_ns.get_mut(before) {
            *sum += ran_ns.wrapping_sub(placement.since_ran_ns);
        }
        if let Some(counters) = cpu_counters(cpu)
            && let Some(count) = counters.came_from.get_mut(before)
        {
            *count += 1;
        }
    }
    placement.place = place;
    placement.since_ran_ns = ran_ns;
}

/// Handles the task `next`, which has no storage: it has slept until now, or it is not selected, or its storage is missing. This
/// function is not inlined, because it is rarely called.
#[inline(never)]
fn wake_or_count(next: Task, ring: &mut Ring) {
    wake(next);
    if storage(next).is_some() {
        return;
    }
    if sleeper(next).is_some() {
        // The storage could not be created: this CPU was already creating another storage, or its cache is empty.
        set(&mut ring.is_late, 1);
    } else if follow_all() {
        // If cgscope runs in a PID namespace, the first reading sees only the tasks of that namespace.
        let is_known = first_read_ns() != 0 && next.start_ns() > first_read_ns();
        if is_known && hook_allocates() && create_missing(next) {
            return;
        }
        lost(if is_known { Loss::SwitchWithoutStorage } else { Loss::SwitchOfHiddenTask });
    }
}

/// Records a late wait, which ended when `prev` switched in: the hook did not see that switch, or could not create the storage
/// then.
#[inline(never)]
fn arrived_late(prev: Task, ring: &mut Ring, queue: RunQueue) {
    wake(prev);
    let Some(storage) = storage(prev) else {
        // A task that has neither a storage nor an entry in `SLEEPERS` is not followed.
        if sleeper(prev).is_some() {
            lost(Loss::SwitchWithoutStorage);
        }
        return;
    };
    let arrived_ns = prev.last_arrival_ns();
    if keeps_accounts() {
        accounts::woke(prev, storage, arrived_ns, false);
    }
    demand::ends_wait(prev, storage, ring, arrived_ns);
    waits::arrived_unseen::<Kernel>(prev, storage, queue.cpu(), arrived_ns);
    demand::arrived(storage, ring, queue.cpu(), arrived_ns);
    chains::arrived(prev, storage, arrived_ns, true);
    segment::run::<Kernel>(prev, &mut storage.start, queue.cpu(), queue.clock_ns());
    if get(&mut storage.has_changed) == UNCHANGED {
        changes::changed(prev, storage, queue);
    }
}

/// Handles a task that moves to another CPU. If the task waits, the segment of its wait on the old CPU has just ended, and is
/// split here. This CPU holds the lock of the old run queue. So the history of the old CPU does not change, and the clock of the
/// old run queue is the end of the segment. (`set_task_cpu` calls the tracepoint after `deactivate_task` and before it changes
/// the task's queue, Linux 4.19 to 7.2.)
#[btf_tracepoint(function = "sched_migrate_task")]
pub fn on_move(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(argument(&ctx, 0));
    // Otherwise the task is just being woken on another CPU, so its wait has not begun.
    if !task.moves() {
        return 0;
    }
    if storage(task).is_none() {
        wake(task);
    }
    if let Some(storage) = storage(task) {
        change_cpu(storage, ctx.arg::<u64>(1) as u32);
    }
    0
}

exported! {
    fn change_cpu([storage: TaskStorage], to: u32) = waits::change_cpu::<Exported>(Task::of(storage), storage, to);
}
