//! Our own clock of throttled time, for kernels that keep none (before Linux 6.6).
//!
//! `throttle_cfs_rq` and `unthrottle_cfs_rq` walk a group and all below it, and call one of two functions for each queue, under
//! the run queue lock. Their addresses are taken, so no compiler folds them into their caller.

use core::ptr::{from_mut, read_volatile};

use aya_ebpf::{macros::fentry, programs::FEntryContext};
use cgscope_layout::{
    Loss,
    throttle::{CLOCK_PROBES, CLOCKS, ThrottleClock, ThrottleClocks, clock_place_of},
};

use crate::{
    kernel::{CfsRunQueue, Throttled, keeps_throttle_clock},
    maps::{lost, throttle_clocks},
};

/// Before the queue's count of levels out of quota rises.
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

/// Before it falls.
#[fentry(function = "tg_unthrottle_up")]
pub fn on_unthrottle(ctx: FEntryContext) -> i32 {
    let queue = Throttled::of(ctx.arg::<u64>(0), ctx.arg::<u64>(1));
    if queue.levels == 1
        && let Some(clocks) = throttle_clocks(queue.cpu)
        && let Some(clock) = find(clocks, queue.cfs_rq)
        && clock.since_ns != 0
    {
        let stood_ns = queue.clock_ns.saturating_sub(clock.since_ns);
        // In this order: whoever reads along without the lock may miss the phase for a moment, and not count it twice.
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

/// The clock of a queue, if it has one.
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

/// The place of a queue's clock. A new one takes an empty place, or else that of the one that has stood for longest or does not
/// stand: a queue whose cgroup was removed while it stood is never told to end.
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
    // It goes on from the sum that is there: a wait that began under another clock of this place is bounded by its own length, and
    // one under this very clock, come back, does not lose what it had.
    let clock = at(clocks, oldest);
    clock.cfs_rq = cfs_rq;
    clock
}

/// How long the queue has stood in a hierarchy out of quota until `clock_ns`. Numbers alone, and exported: verified by itself,
/// once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn stood_ns(cpu: u64, cfs_rq: u64, clock_ns: u64) -> u64 {
    let Some(clocks) = throttle_clocks(cpu as u32) else { return 0 };
    // On a host without quotas that is all.
    if clocks.used == 0 {
        return 0;
    }
    let first = clock_place_of(cfs_rq);
    let mut stood_ns = 0;
    for probe in 0..CLOCK_PROBES {
        let clock = from_mut(at(clocks, first + probe));
        // SAFETY: a reference. As volatile, so that the verifier knows nothing of what it finds, and all ways look alike.
        let ThrottleClock { cfs_rq: whose, since_ns, sum_ns } = unsafe { read_volatile(clock) };
        if whose == cfs_rq {
            stood_ns = if since_ns == 0 { sum_ns } else { sum_ns + clock_ns.saturating_sub(since_ns) };
            break;
        }
    }
    stood_ns
}

impl CfsRunQueue {
    /// How long it has stood in a hierarchy out of quota until `clock_ns`. It rises only while a task of it could run. `cpu`:
    /// whose queue it is. `address`: its own as a number out of memory, where the verifier takes it for one.
    #[inline(always)]
    pub fn throttled_ns(self, address: &u64, cpu: u32, clock_ns: u64) -> u64 {
        if keeps_throttle_clock() {
            // SAFETY: a reference.
            return stood_ns(u64::from(cpu), unsafe { read_volatile(address) }, clock_ns);
        }
        self.kernels_throttled_ns(clock_ns)
    }

    /// The same for a queue of which only the address is known, as long as its group lives: a wait that ended elsewhere. `cpu`:
    /// whose queue it is.
    #[inline(always)]
    pub fn throttled_ns_at(address: u64, cpu: u32, clock_ns: u64) -> Option<u64> {
        if keeps_throttle_clock() {
            return Some(stood_ns(u64::from(cpu), address, clock_ns));
        }
        Self::kernels_throttled_ns_at(address, clock_ns)
    }
}
