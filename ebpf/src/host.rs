//! Connects [`cgscope_ledger`] to the kernel: implements the traits of the host.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
};

use aya_ebpf::helpers::generated::bpf_loop;
use cgscope_ledger::{
    Loss, culprits,
    culprits::{Pairs, TaskNames},
    history::Ring,
    host::{FarQueue, Host},
    look_back,
    pressure::{self, Batch, Ended, KeptPressure, PressureHost, Pressures},
    segment,
    split::{self, Work},
    verifier::set,
    waits::{self, WaitHost, log},
    wire::{CpuCounters, Exited, Histogram, TaskStorage},
};

use crate::{
    kernel::{self, Task, inlined},
    maps, throttle,
};

/// Defines functions that call an exported function. Its parameters are pointers to structures and numbers, so the verifier checks
/// it once, and not at each call. Usage: `fn name([a: Structure], n: u32) = expression;`.
macro_rules! exported {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($([$at:ident: $value:ty] $(,)?)* $($arg:ident: $type:ty),*) $(-> $result:ty)? = $call:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        $vis fn $name($($at: &mut $value,)* $($arg: $type),*) $(-> $result)? {
            #[unsafe(no_mangle)]
            #[inline(never)]
            extern "C" fn $name($($at: *mut $value,)* $($arg: $type),*) -> u32 {
                // SAFETY: the caller passes references.
                $(let Some($at) = (unsafe { $at.as_mut() }) else { return 0 };)*
                $crate::host::Returned::number($call)
            }
            $crate::host::Returned::from_number($name($($at,)* $($arg),*))
        }
    )*};
}
pub(crate) use exported;

/// What an exported function returns: a number, or nothing.
pub trait Returned {
    fn number(self) -> u32;
    fn from_number(number: u32) -> Self;
}

impl Returned for u32 {
    inlined! {
        fn number(self) -> u32 { self }
        fn from_number(number: u32) -> Self { number }
    }
}

impl Returned for () {
    inlined! {
        fn number(self) -> u32 { 0 }
        fn from_number(_: u32) -> Self { () }
    }
}

/// The running kernel as host of the ledger. The reader has a separate type, because it charges no culprits. Without the code for
/// culprits, the verifier checks the reader's programs faster. Exported functions have no [`Task`] that the verifier trusts.
pub enum Kernel<const CHARGES: bool = true, const IS_TRUSTED: bool = true> {}

/// The host of exported functions.
pub type Exported = Kernel<true, false>;

impl<const CHARGES: bool, const IS_TRUSTED: bool> Host for Kernel<CHARGES, IS_TRUSTED> {
    inlined! {
        fn throttles_tasks() -> bool { kernel::throttles_tasks() }
        fn kept_since_ns() -> u64 { maps::kept_since_ns() }
        fn lost(loss: Loss) { maps::lost(loss) }
    }

    #[inline(always)]
    fn repeat<C, F: Fn(&mut C) -> bool>(times: u32, _: F, context: &mut C) {
        // This helper exists since Linux 5.17. The verifier checks the body of the loop only once.
        // SAFETY: the callback has the expected signature, and `context` lives longer than the call.
        unsafe { bpf_loop(times, take_step::<C, F> as *mut c_void, ptr::from_mut(context).cast(), 0) };
    }
}

/// The loop body for [`Host::repeat`]. The type `F` names a single function, so its value takes no memory and the call is direct.
extern "C" fn take_step<C, F: Fn(&mut C) -> bool>(_: u64, context: *mut c_void) -> i64 {
    const { assert!(size_of::<F>() == 0) };
    // SAFETY: `repeat` passes this pointer, and a value without a size can be anywhere.
    unsafe { NonNull::<F>::dangling().as_ref()(&mut *context.cast()).into() }
}

impl<const CHARGES: bool, const IS_TRUSTED: bool> WaitHost for Kernel<CHARGES, IS_TRUSTED> {
    type Task = Task<IS_TRUSTED>;

    inlined! {
        fn throttled_ns(task: Task<IS_TRUSTED>, address: &u64, cpu: u32, clock_ns: u64) -> u64 {
            throttle::throttled_ns(task, address, cpu, clock_ns)
        }
        fn far_queue(task: Task<IS_TRUSTED>, cpu: u32) -> FarQueue { throttle::far_queue(task, cpu) }
        fn near_queue(task: Task<IS_TRUSTED>) -> FarQueue { throttle::near_queue(task) }
        fn blames_tasks() -> bool { kernel::blame_tasks() }
        fn counts_by_cpu() -> bool { kernel::counts_by_cpu() }
        fn ring(cpu: u32) -> Option<&'static mut Ring> { maps::ring(cpu) }
        fn pairs(cpu: u32) -> Option<&'static mut Pairs> { maps::pairs(cpu) }
        fn task_names(cpu: u32) -> Option<&'static mut TaskNames> { maps::task_names(cpu) }
        fn exited(cgroup_id: u64) -> Option<&'static mut Exited> { maps::exited(cgroup_id) }
        // Exported functions do not need it.
        fn histogram(task: Task<IS_TRUSTED>) -> Option<&'static mut Histogram> {
            if IS_TRUSTED { maps::make_histogram(task.trusted()) } else { None }
        }
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

    #[inline(always)]
    fn leave_limited(_: Task<IS_TRUSTED>, storage: &mut TaskStorage, cpu: u32, clock_ns: u64) {
        leave_limited(storage, cpu, clock_ns);
    }

    #[inline(always)]
    fn enter_composed(_: Task<IS_TRUSTED>, storage: &mut TaskStorage) {
        enter_composed(storage);
    }

    exported! {
        fn press_split() = split::press_split::<Kernel>();
    }
}

/// Calls [`log::count`]. This function is exported, too, but some of its pointers may be null.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn count_log(storage: *mut TaskStorage, histogram: *mut Histogram, place: *mut Exited) -> u32 {
    // SAFETY: the caller passes references, or null.
    unsafe {
        if let Some(storage) = storage.as_mut() {
            log::count::<Exported>(storage, histogram.as_mut(), place.as_mut());
        }
    }
    0
}

impl<const CHARGES: bool, const IS_TRUSTED: bool> PressureHost for Kernel<CHARGES, IS_TRUSTED> {
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
    fn leave_limited([storage: TaskStorage], cpu: u32, clock_ns: u64) =
        segment::leave_limited::<Exported>(Task::of(storage), &mut storage.start, cpu, clock_ns);
    fn enter_composed([storage: TaskStorage]) = if let Some(work) = maps::work(Work::HOOK) {
        waits::enter_composed::<Exported>(Task::of(storage), storage, work);
    };
}
