//! Connects [`cgscope_ledger`] to the kernel: implements the traits of the host.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use cgscope_ledger::{
    Loss, culprits,
    culprits::Pairs,
    history::Ring,
    host::{self, FarQueue, Host},
    look_back,
    pressure::Ended,
    split::{self, Work},
    verifier::set,
    waits::WaitHost,
    wire::{CpuCounters, Exited},
};

use crate::{
    kernel::{self, Task, blame_tasks, counts_by_cpu, throttles_tasks},
    maps, pressure,
};

/// Defines trait functions that only pass their arguments to another function.
macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? = $to:path;)*) => {$(
        #[inline(always)]
        fn $name($($arg: $type),*) $(-> $out)? {
            $to($($arg),*)
        }
    )*};
}

/// Defines exported functions whose parameters are numbers. The verifier checks such a function once, and not at each call.
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) = $call:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub extern "C" fn $name($($arg: $type),*) -> u32 {
            $call;
            0
        }
    )*};
}
pub(crate) use {exported, pass_on};

/// The running kernel as host of the ledger. The reader has a separate type, because it charges no culprits. Without the code for
/// culprits, the verifier checks the reader's programs faster.
pub enum Kernel<const CHARGES: bool = true> {}

impl<const CHARGES: bool> Host for Kernel<CHARGES> {
    pass_on! {
        fn throttles_tasks() -> bool = throttles_tasks;
        fn kept_since_ns() -> u64 = maps::kept_since_ns;
        fn lost(loss: Loss) = maps::lost;
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

    pass_on! {
        fn blames_tasks() -> bool = blame_tasks;
        fn counts_by_cpu() -> bool = counts_by_cpu;
        fn ring(cpu: u32) -> Option<&'static mut Ring> = maps::ring;
        fn pairs(cpu: u32) -> Option<&'static mut Pairs> = maps::pairs;
        fn cpu_counters(cpu: u32) -> Option<&'static mut CpuCounters> = maps::cpu_counters;
        fn work(which: u32) -> Option<&'static mut Work> = maps::work;
    }

    #[inline(always)]
    fn exited(cgroup_id: u64) -> Option<&'static mut Exited> {
        // SAFETY: the entry is a map value. Programs on several CPUs change the entry by atomic additions, or under the entry's
        // lock.
        maps::exited(cgroup_id).map(|place| unsafe { &mut *place })
    }

    #[inline(always)]
    fn look_back(which: u32) {
        if CHARGES {
            look_back(which)
        } else {
            look_back_silently(which)
        };
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
        pressure::press(ended.cpu, ended.who, ended.queued_ns, ended.clock_ns, ended.limit_ns);
    }

    #[inline(always)]
    fn press_split() {
        press_split();
    }
}

exported! {
    fn look_back(which: u32) = look_back::look_back::<Kernel>(which);
    /// Does the same as `look_back` for the reader, which charges no culprits.
    fn look_back_silently(which: u32) = look_back::look_back::<Kernel<false>>(which);
    fn enter_charge(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) =
        culprits::enter::<Kernel>(victim, who, ns, clock_ns, packed);
    fn press_split() = split::press_split::<Kernel>();
}

impl host::Task for Task {
    pass_on! {
        fn switches(self: Self) -> u64 = Self::switches;
        fn run_delay_ns(self: Self) -> u64 = Self::run_delay_ns;
        fn last_queued_ns(self: Self) -> u64 = Self::last_queued_ns;
        fn cgroup_id(self: Self) -> u64 = Self::cgroup_id_rarely;
        fn group(self: Self) -> u64 = Self::group_address;
        fn group_ran_ns(self: Self) -> u64 = Self::group_ran_ns;
        fn far_group_ran_ns(self: Self, cpu: u32) -> u64 = Self::far_group_ran_ns;
        fn is_real_time(self: Self) -> bool = Self::is_real_time;
        fn is_deadline(self: Self) -> bool = Self::is_deadline;
        fn is_of_bpf_scheduler(self: Self) -> bool = Self::is_of_bpf_scheduler;
        fn is_out_of_runtime(self: Self) -> bool = Self::is_out_of_runtime;
        fn is_throttled(self: Self) -> bool = Self::is_throttled;
        fn sleeps_on_queue(self: Self) -> bool = Self::sleeps_on_queue;
        fn is_on_queue(self: Self) -> bool = Self::on_rq;
        fn far_queue(self: Self, cpu: u32) -> FarQueue = Self::far_queue;
        fn near_queue(self: Self) -> FarQueue = Self::near_queue;
        fn find_limit(self: Self, limit: &mut u64) = Self::find_limit;
    }

    #[inline(always)]
    fn handle(self) -> u64 {
        self.pointer() as u64
    }

    #[inline(always)]
    fn cpu(self) -> u32 {
        self.run_queue().cpu()
    }

    #[inline(always)]
    fn clock_ns(self) -> u64 {
        self.run_queue().clock_ns()
    }

    #[inline(always)]
    fn queue(self) -> u64 {
        self.cfs_rq().address()
    }

    #[inline(always)]
    fn throttled_ns(self, address: &u64, cpu: u32, clock_ns: u64) -> u64 {
        self.cfs_rq().throttled_ns(address, cpu, clock_ns)
    }

    #[inline(always)]
    fn left_throttled_ns(self, queue: u64, group: u64, clock_ns: u64) -> u64 {
        kernel::left_throttled_ns(queue, group, clock_ns)
    }
}
