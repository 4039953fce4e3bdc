//! Pressure. [`cgscope_ledger::pressure`] says what that is.

use core::ffi::c_void;

use cgscope_ledger::pressure::{self, Batch, Ended, KeptPressure, PressureHost, Pressures};

use crate::{host::Kernel, kernel, maps};

impl<const CHARGES: bool> PressureHost for Kernel<CHARGES> {
    #[inline(always)]
    fn pressures(cpu: u32) -> Option<&'static mut Pressures> {
        maps::pressures(cpu)
    }

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
        // SAFETY: a map value. Programs on several CPUs change it by atomic additions, or under its lock.
        unsafe { (*place).keep_pressure(more) };
        true
    }

    #[inline(always)]
    fn is_alone(task: u64) -> bool {
        kernel::is_alone(task)
    }

    #[inline(always)]
    fn cgroup_of(task: u64) -> u64 {
        kernel::cgroup_of(task)
    }

    #[inline(always)]
    fn cgroup_of_queue(task: u64) -> u64 {
        kernel::cgroup_of_queue(task)
    }

    #[inline(always)]
    fn id_of(cgroup: u64) -> u64 {
        kernel::cgroup_id_at(cgroup)
    }

    #[inline(always)]
    fn above(cgroup: u64) -> u64 {
        kernel::cgroup_above(cgroup)
    }
}

/// Takes only numbers and is exported, so that the verifier checks it once, not at each call.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn press(cpu: u32, who: u64, queued_ns: u64, clock_ns: u64, limit_ns: u64) -> u32 {
    pressure::press::<Kernel>(Ended { cpu, who, queued_ns, clock_ns, limit_ns });
    0
}

/// Exported for the same reason.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn count_batch(cpu: u32) -> u32 {
    pressure::count_batch::<Kernel>(cpu);
    0
}

pub extern "C" fn find_level(_: u64, cpu: *mut c_void) -> i64 {
    // SAFETY: the pointer that `repeat` passes.
    pressure::find_level::<Kernel>(unsafe { *cpu.cast::<u32>() }).into()
}

pub extern "C" fn add_level(_: u64, cpu: *mut c_void) -> i64 {
    // SAFETY: the pointer that `repeat` passes.
    pressure::add_level::<Kernel>(unsafe { *cpu.cast::<u32>() }).into()
}

pub extern "C" fn count_level(_: u64, cpu: *mut c_void) -> i64 {
    // SAFETY: the pointer that `repeat` passes.
    pressure::count_level::<Kernel>(unsafe { *cpu.cast::<u32>() }).into()
}
