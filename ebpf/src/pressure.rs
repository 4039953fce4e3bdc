//! Counts the pressure of cgroups, see [`cgscope_ledger::pressure`].

use cgscope_ledger::pressure::{self, Batch, Ended, KeptPressure, PressureHost, Pressures};

use crate::{
    host::{Kernel, exported, pass_on},
    kernel, maps,
};

impl<const CHARGES: bool> PressureHost for Kernel<CHARGES> {
    #[inline(always)]
    fn batch(cpu: u32) -> Option<&'static mut Batch> {
        maps::ring(cpu).map(|ring| &mut ring.batch)
    }

    #[inline(always)]
    fn count_batch(cpu: u32) {
        count_batch(cpu);
    }

    #[inline(always)]
    fn keep(cgroup_id: u64, more: KeptPressure) -> bool {
        let Some(place) = maps::exited(cgroup_id) else { return false };
        // SAFETY: the entry is a map value. Programs on several CPUs change the entry only by atomic additions, or under the
        // entry's lock.
        unsafe { (*place).keep_pressure(more) };
        true
    }

    pass_on! {
        fn pressures(cpu: u32) -> Option<&'static mut Pressures> = maps::pressures;
        fn is_alone(task: u64) -> bool = kernel::is_alone;
        fn cgroup_of(task: u64) -> u64 = kernel::cgroup_of;
        fn cgroup_of_queue(task: u64) -> u64 = kernel::cgroup_of_queue;
        fn id_of(cgroup: u64) -> u64 = kernel::cgroup_id_at;
        fn above(cgroup: u64) -> u64 = kernel::cgroup_above;
    }
}

exported! {
    fn press(cpu: u32, who: u64, queued_ns: u64, clock_ns: u64, limit_ns: u64) =
        pressure::press::<Kernel>(Ended { cpu, who, queued_ns, clock_ns, limit_ns });
    fn count_batch(cpu: u32) = pressure::count_batch::<Kernel>(cpu);
}
