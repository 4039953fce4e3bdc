//! Counts the demand of cgroups with a quota, see [`cgscope_ledger::demand`].

use cgscope_ledger::{
    demand::{self, DemandHost, Running, Slots},
    history::Ring,
    verifier::{get, set},
    wire::TaskStorage,
};

use crate::{
    host::{Kernel, exported},
    kernel::{Task, cgroup_above, cgroup_id_at, cgroup_of, counts_demand, inlined},
    maps::{self, demand_place, demand_turn},
    slots::storage,
};

/// Maximum number of levels that are searched for a quota: the task's own cgroup and its ancestors.
const LEVELS: usize = 16;

/// Counts the run of `prev`, which switches out, if a quota applies to `prev`.
#[inline(always)]
pub fn left(prev: Task, ring: &mut Ring, cpu: u32, clock_ns: u64, is_blocked: bool) {
    if counts_demand() && get(&mut ring.running.place) != 0 {
        count_run(prev, ring, cpu, clock_ns, is_blocked.into());
    }
}

/// This function is not inlined, like the others in this module. After each call, the verifier follows the rest of the hook only
/// once.
#[inline(never)]
fn count_run(prev: Task, ring: &mut Ring, cpu: u32, clock_ns: u64, is_blocked: u64) {
    if let Some(storage) = storage(prev) {
        let position_ns = &mut storage.position_ns;
        demand::left::<Kernel>(position_ns, &mut ring.running, cpu, clock_ns, is_blocked != 0);
    }
    set(&mut ring.running.place, 0);
}

/// Computes when the wait of `next` began. Call this function before the ledger records the wait: when `next` switches in, or
/// when the hook finds that it has.
#[inline(always)]
pub fn ends_wait(next: Task, storage: &mut TaskStorage, ring: &mut Ring, clock_ns: u64) {
    if counts_demand() {
        let turn = demand_turn();
        if turn != 0 {
            find_wait(next, storage, ring, clock_ns, turn);
        }
    }
}

#[inline(never)]
fn find_wait(next: Task, storage: &mut TaskStorage, ring: &mut Ring, clock_ns: u64, turn: u32) {
    if get(&mut storage.quota.turn) != turn {
        find_place(next, storage, turn);
    }
    if get(&mut storage.quota.place) != 0 {
        let expected_run_delay_ns = storage.waits.expected_run_delay_ns;
        demand::ends_wait(next, expected_run_delay_ns, &storage.by_cause, &mut ring.running, clock_ns);
    }
}

/// Counts the wait of the task, if a quota applies to the task.
#[inline(always)]
pub fn arrived(storage: &mut TaskStorage, ring: &mut Ring, cpu: u32, clock_ns: u64) {
    if counts_demand() && get(&mut storage.quota.place) != 0 {
        count_wait(storage, ring, cpu, clock_ns);
    }
}

#[inline(never)]
fn count_wait(storage: &mut TaskStorage, ring: &mut Ring, cpu: u32, clock_ns: u64) {
    let place = get(&mut storage.quota.place);
    let (by_cause, position_ns) = (&storage.by_cause, &mut storage.position_ns);
    demand::arrived::<Kernel>(by_cause, place, position_ns, &mut ring.running, cpu, clock_ns);
}

#[inline(never)]
fn find_place(next: Task, storage: &mut TaskStorage, turn: u32) {
    let mut cgroup = cgroup_of(next.pointer() as u64);
    let mut place = 0;
    for _ in 0..LEVELS {
        place = demand_place(cgroup_id_at(cgroup));
        if place != 0 {
            break;
        }
        cgroup = cgroup_above(cgroup);
        if cgroup == 0 {
            break;
        }
    }
    if place != get(&mut storage.quota.place) {
        // The demand from before this moment does not belong to this cgroup.
        set(&mut storage.position_ns, 0);
    }
    set(&mut storage.quota.place, place);
    set(&mut storage.quota.turn, turn);
}

/// Looks up the quota again, because the task has moved and another quota may apply.
#[inline(always)]
pub fn moved(storage: &mut TaskStorage) {
    set(&mut storage.quota.turn, 0);
}

impl<const CHARGES: bool, const IS_TRUSTED: bool> DemandHost for Kernel<CHARGES, IS_TRUSTED> {
    inlined! {
        fn running(cpu: u32) -> Option<&'static mut Running> { maps::ring(cpu).map(|ring| &mut ring.running) }
        fn slots(place: u64) -> Option<&'static mut Slots> { maps::demand(place as u32) }
    }

    exported! {
        fn count_demand_wait(cpu: u32, clock_ns: u64) = demand::count_wait::<Kernel>(cpu, clock_ns);
        fn count_demand_run(cpu: u32, clock_ns: u64) = demand::count_run::<Kernel>(cpu, clock_ns);
        fn spread(cpu: u32) = demand::spread_all::<Kernel>(cpu);
    }
}
