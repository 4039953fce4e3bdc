//! Records on which NUMA nodes tasks run.

use cgscope_ledger::{
    verifier::opaque,
    wire::{Placement, TaskStorage},
};

use crate::{
    kernel::Task,
    maps::{cpu_counters, node_place},
};

#[inline(always)]
pub fn ran(task: Task, storage: &mut TaskStorage, cpu: u32) {
    if storage.start.ran_on != cpu {
        moved(task, &mut storage.placement, cpu);
        storage.start.ran_on = cpu;
    }
}

/// Records that `task` has switched in on a different CPU than before. This function is not inlined, because it is rarely called.
#[inline(never)]
fn moved(task: Task, placement: &mut Placement, cpu: u32) {
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
