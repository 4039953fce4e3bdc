//! Our own clock of throttled time, for kernels without one (before Linux 6.6).
//!
//! `throttle_cfs_rq` and `unthrottle_cfs_rq` walk a group and all groups below it under the run queue lock. For each queue they
//! call one of the two functions hooked here. The kernel takes the addresses of both functions, so compilers do not inline them.

use core::ptr::{from_mut, read_volatile};

use aya_ebpf::{macros::fentry, programs::FEntryContext};
use cgscope_ledger::{
    Loss,
    host::FarQueue,
    throttle::{CLOCK_PROBES, CLOCKS, ThrottleClock, ThrottleClocks, clock_place_of},
};

use crate::{
    kernel::{
        CfsRunQueue, Task, Throttled, keeps_throttle_clock, kernels_throttled_ns_at_0, levels_out_of_quota_at,
    },
    maps::{lost, throttle_clocks},
};

/// Starts the clock of a queue. Runs before the kernel raises the queue's number of levels out of quota.
#[fentry(function = "tg_throttle_down")]
pub fn on_throttle(ctx: FEntryContext) -> i32 {
    let queue = Throttled::of(ctx.arg::<u64>(0), ctx.arg::<u64>(1));
    if queue.levels == 0
        && let Some(clocks) = throttle_clocks(queue.cpu)
    {
        place(clocks, queue.cfs_rq).since_ns = queue.clock_ns;
    }
    0
}

/// Stops the clock of a queue. Runs before the kernel lowers the queue's number of levels out of quota.
#[fentry(function = "tg_unthrottle_up")]
pub fn on_unthrottle(ctx: FEntryContext) -> i32 {
    let queue = Throttled::of(ctx.arg::<u64>(0), ctx.arg::<u64>(1));
    if queue.levels == 1
        && let Some(clocks) = throttle_clocks(queue.cpu)
        && let Some(clock) = find(clocks, queue.cfs_rq)
        && clock.since_ns != 0
    {
        let stood_ns = queue.clock_ns.saturating_sub(clock.since_ns);
        // In this order, a reader without the lock may miss the phase for a moment, but cannot count it twice.
        clock.since_ns = 0;
        clock.sum_ns += stood_ns;
    }
    0
}

#[inline(always)]
fn at(clocks: &mut ThrottleClocks, place: usize) -> &mut ThrottleClock {
    // SAFETY: the mask keeps it within the array.
    unsafe { clocks.clocks.as_mut_ptr().add(place & (CLOCKS - 1)).as_mut_unchecked() }
}

#[inline(always)]
fn find(clocks: &mut ThrottleClocks, cfs_rq: u64) -> Option<&mut ThrottleClock> {
    let first = clock_place_of(cfs_rq);
    for probe in 0..CLOCK_PROBES {
        if at(clocks, first + probe).cfs_rq == cfs_rq {
            return Some(at(clocks, first + probe));
        }
    }
    None
}

/// Returns the entry of a queue's clock. A new clock takes an empty entry, or else one whose clock stands still, or else the
/// clock that has run longest: the clock of a cgroup that is removed while throttled never stops.
#[inline(always)]
fn place(clocks: &mut ThrottleClocks, cfs_rq: u64) -> &mut ThrottleClock {
    let first = clock_place_of(cfs_rq);
    let mut oldest = first;
    let mut oldest_ns = u64::MAX;
    for probe in 0..CLOCK_PROBES {
        let clock = at(clocks, first + probe);
        if clock.cfs_rq == cfs_rq {
            return at(clocks, first + probe);
        }
        if clock.since_ns < oldest_ns {
            (oldest, oldest_ns) = (first + probe, clock.since_ns);
        }
        if clock.cfs_rq == 0 {
            break;
        }
    }
    let clock = at(clocks, oldest);
    if clock.since_ns != 0 {
        lost(Loss::ThrottleClockForgotten);
    }
    clocks.used += 1;
    // The entry keeps its sum. A wait that began under another clock yields at most its own length, and a clock that returns to
    // its entry has lost nothing.
    let clock = at(clocks, oldest);
    clock.cfs_rq = cfs_rq;
    clock
}

/// Returns the throttled time of a queue until `clock_ns`; until 0 it is negative (as `i64`) if the queue is throttled. It takes
/// only numbers and is exported, so that the verifier checks it once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn stood_ns(cpu: u64, cfs_rq: u64, clock_ns: u64) -> u64 {
    let Some(clocks) = throttle_clocks(cpu as u32) else { return 0 };
    // Fast path for hosts without quotas.
    if clocks.used == 0 {
        return 0;
    }
    let first = clock_place_of(cfs_rq);
    let mut stood_ns = 0;
    for probe in 0..CLOCK_PROBES {
        let clock = from_mut(at(clocks, first + probe));
        // SAFETY: a reference. Volatile, so that the verifier does not know the value and all code paths look alike to it.
        let ThrottleClock { cfs_rq: whose, since_ns, sum_ns } = unsafe { read_volatile(clock) };
        if whose == cfs_rq {
            let runs = since_ns != 0 && (clock_ns == 0 || clock_ns > since_ns);
            stood_ns = if runs { sum_ns.wrapping_add(clock_ns.wrapping_sub(since_ns)) } else { sum_ns };
            break;
        }
    }
    stood_ns
}

impl CfsRunQueue {
    /// Throttled time until `clock_ns`. The kernel's clock rises only while the queue has runnable tasks. `address`: the queue's
    /// own address, as a number from memory, which the verifier does not take for a pointer.
    #[inline(always)]
    pub fn throttled_ns(self, address: &u64, cpu: u32, clock_ns: u64) -> u64 {
        if keeps_throttle_clock() {
            // SAFETY: a reference.
            return stood_ns(u64::from(cpu), unsafe { read_volatile(address) }, clock_ns);
        }
        self.kernels_throttled_ns(clock_ns)
    }
}

impl Task {
    /// The queue of its group on another CPU, whose clock is not known.
    #[inline(always)]
    pub fn far_queue(self, cpu: u32) -> FarQueue {
        let address = self.queue_address_on(cpu);
        if address == 0 {
            return FarQueue { address, is_throttled: true, throttled_ns_at_0: 0 };
        }
        queue_at(address, cpu)
    }

    /// The queue of its group on its CPU, described in the same way.
    #[inline(always)]
    pub fn near_queue(self) -> FarQueue {
        queue_at(self.queue_address(), self.run_queue().cpu())
    }
}

#[inline(always)]
fn queue_at(address: u64, cpu: u32) -> FarQueue {
    let throttled_ns_at_0 = if keeps_throttle_clock() {
        stood_ns(u64::from(cpu), address, 0)
    } else {
        kernels_throttled_ns_at_0(address)
    };
    FarQueue { address, is_throttled: levels_out_of_quota_at(address) != 0, throttled_ns_at_0 }
}
