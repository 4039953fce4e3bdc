//! Connects [`cgscope_ledger`] to the kernel: implements the traits of the host.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::bpf_loop;
use cgscope_ledger::{
    Loss, culprits,
    culprits::Pairs,
    history::Ring,
    host::{FarQueue, Host},
    look_back,
    pressure::{self, Batch, Ended, KeptPressure, PressureHost, Pressures},
    split::{self, Work},
    verifier::set,
    waits::{WaitHost, log},
    wire::{CpuCounters, Exited, Histogram, TaskStorage},
};

use crate::{
    kernel::{self, Task, inlined},
    maps, throttle,
};

/// Defines functions that call an exported function. Its parameters are numbers, so the verifier checks it once, and not at each
/// call.
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) = $call:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        fn $name($($arg: $type),*) {
            #[unsafe(no_mangle)]
            #[inline(never)]
            extern "C" fn $name($($arg: $type),*) -> u32 {
                $call;
                0
            }
            $name($($arg),*);
        }
    )*};
}
pub(crate) use exported;

/// The running kernel as host of the ledger. The reader has a separate type, because it charges no culprits. Without the code for
/// culprits, the verifier checks the reader's programs faster.
pub enum Kernel<const CHARGES: bool = true> {}

impl<const CHARGES: bool> Host for Kernel<CHARGES> {
    inlined! {
        fn throttles_tasks() -> bool { kernel::throttles_tasks() }
        fn kept_since_ns() -> u64 { maps::kept_since_ns() }
        fn lost(loss: Loss) { maps::lost(loss) }
    }

    #[inline(always)]
    fn repeat<F: Fn(u32) -> bool>(times: u32, step: F, which: u32) {
        let mut step = (step, which);
        // This helper exists since Linux 5.17. The verifier checks the body of the loop only once.
        // SAFETY: the callback has the expected signature, and `step` lives longer than the call.
        unsafe { bpf_loop(times, take_step::<F> as *mut c_void, (&raw mut step).cast(), 0) };
    }
}

/// The loop body for [`Host::repeat`]. The type `F` names a single function, so its value takes no memory and the call is direct.
extern "C" fn take_step<F: Fn(u32) -> bool>(_: u64, step: *mut c_void) -> i64 {
    // SAFETY: `repeat` passes this pointer.
    let (step, which) = unsafe { &*step.cast::<(F, u32)>() };
    step(*which).into()
}

impl<const CHARGES: bool> WaitHost for Kernel<CHARGES> {
    type Task = Task;

    inlined! {
        fn throttled_ns(task: Task, address: &u64, cpu: u32, clock_ns: u64) -> u64 {
            throttle::throttled_ns(task, address, cpu, clock_ns)
        }
        fn far_queue(task: Task, cpu: u32) -> FarQueue { throttle::far_queue(task, cpu) }
        fn near_queue(task: Task) -> FarQueue { throttle::near_queue(task) }
        fn blames_tasks() -> bool { kernel::blame_tasks() }
        fn counts_by_cpu() -> bool { kernel::counts_by_cpu() }
        fn ring(cpu: u32) -> Option<&'static mut Ring> { maps::ring(cpu) }
        fn pairs(cpu: u32) -> Option<&'static mut Pairs> { maps::pairs(cpu) }
        fn exited(cgroup_id: u64) -> Option<&'static mut Exited> { maps::exited(cgroup_id) }
        fn histogram(task: Task) -> Option<&'static mut Histogram> { maps::make_histogram(task) }
        fn cpu_counters(cpu: u32) -> Option<&'static mut CpuCounters> { maps::cpu_counters(cpu) }
        fn work(which: u32) -> Option<&'static mut Work> { maps::work(which) }
        fn look_back(which: u32) { if CHARGES { look_back(which) } else { look_back_silently(which) } }
    }

    #[inline(always)]
    fn charge(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) {
        if CHARGES {
            enter_charge(victim, who, ns, clock_ns, packed);
        }
    }

    #[inline(always)]
    fn press(task: u64, ended: Ended) {
        let Some(table) = maps::pressures(ended.cpu) else { return };
        set(&mut table.task, task);
        press(ended.cpu, ended.who, ended.queued_ns, ended.clock_ns, ended.limit_ns);
    }

    #[inline(always)]
    fn count(storage: &mut TaskStorage, histogram: Option<&mut Histogram>, place: Option<&mut Exited>) {
        let histogram = histogram.map_or(ptr::null_mut(), ptr::from_mut);
        count_log(storage, histogram, place.map_or(ptr::null_mut(), ptr::from_mut));
    }

    exported! {
        fn press_split() = split::press_split::<Kernel>();
    }
}

/// Calls [`log::count`]. The parameters point to structures of known size, so the verifier checks this function once, too.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn count_log(storage: *mut TaskStorage, histogram: *mut Histogram, place: *mut Exited) -> u32 {
    // SAFETY: the caller passes references, or null.
    unsafe {
        if let Some(storage) = storage.as_mut() {
            log::count(storage, histogram.as_mut(), place.as_mut());
        }
    }
    0
}

impl<const CHARGES: bool> PressureHost for Kernel<CHARGES> {
    inlined! {
        fn pressures(cpu: u32) -> Option<&'static mut Pressures> { maps::pressures(cpu) }
        fn batch(cpu: u32) -> Option<&'static mut Batch> { maps::ring(cpu).map(|ring| &mut ring.batch) }
        fn keep(cgroup_id: u64, more: KeptPressure) -> bool {
            maps::exited(cgroup_id).map(|place| place.keep_pressure(more)).is_some()
        }
        fn is_alone(task: u64) -> bool { kernel::is_alone(task) }
        fn cgroup_of(task: u64) -> u64 { kernel::cgroup_of(task) }
        fn cgroup_of_queue(task: u64) -> u64 { kernel::cgroup_of_queue(task) }
        fn id_of(cgroup: u64) -> u64 { kernel::cgroup_id_at(cgroup) }
        fn above(cgroup: u64) -> u64 { kernel::cgroup_above(cgroup) }
    }

    exported! {
        fn count_batch(cpu: u32) = pressure::count_batch::<Kernel>(cpu);
    }
}

exported! {
    fn look_back(which: u32) = look_back::look_back::<Kernel>(which);
    /// Does the same as `look_back` for the reader, which charges no culprits.
    fn look_back_silently(which: u32) = look_back::look_back::<Kernel<false>>(which);
    fn enter_charge(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) =
        culprits::enter::<Kernel>(victim, who, ns, clock_ns, packed);
    fn press(cpu: u32, who: u64, queued_ns: u64, clock_ns: u64, limit_ns: u64) =
        pressure::press::<Kernel>(Ended { cpu, who, queued_ns, clock_ns, limit_ns });
}
