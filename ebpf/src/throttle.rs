//! The clock of throttled time that cgscope keeps on kernels without such a clock (before Linux 6.6).
//!
//! `throttle_cfs_rq` and `unthrottle_cfs_rq` visit the queues of a group and of its descendants under the run queue lock. For
//! each queue, they call one of the two functions to which the programs below are attached. The kernel takes the addresses of
//! both functions, so compilers do not inline them.

use core::ptr::read_volatile;

use aya_ebpf::{macros::fentry, programs::FEntryContext};
use cgscope_ledger::{
    Loss,
    host::{FarQueue, Task as _},
    verifier::{get, wrapped},
};

use crate::{
    kernel::{
        Task, Throttled, keeps_throttle_clock, kernels_throttled_ns_at_0, kernels_throttled_ns_rarely,
        levels_out_of_quota_at, throttles_tasks,
    },
    maps::{lost, throttle_clocks},
};

/// Number of clocks of each CPU, a power of two.
const CLOCKS: usize = 256;
/// Number of entries that a clock may use, starting at the entry of its hash.
const PROBES: u64 = 8;

/// The clock of one queue: how long the queue was in a hierarchy out of quota.
#[repr(C)]
struct ThrottleClock {
    /// Address of the queue; 0 if the entry is empty.
    cfs_rq: u64,
    /// Since when the queue has been throttled, ns of `rq->clock`; 0 if it is not throttled.
    since_ns: u64,
    /// Total length of the throttled phases that have ended, ns.
    sum_ns: u64,
}

/// The clocks of one CPU. Programs write these clocks only under the CPU's run queue lock. Programs on other CPUs read them
/// without the lock.
#[repr(C)]
pub struct ThrottleClocks {
    /// Number of clocks added so far.
    used: u64,
    /// The entries of a hash table, see [`first_place`].
    clocks: [ThrottleClock; CLOCKS],
}

/// Returns the index of the first entry that the clock of this queue may use.
#[inline(always)]
fn first_place(cfs_rq: u64) -> u64 {
    cfs_rq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56
}

/// Starts the clock of a queue. The program runs before the kernel increases the number of levels that are out of quota.
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

/// Stops the clock of a queue. The program runs before the kernel decreases the number of levels that are out of quota.
#[fentry(function = "tg_unthrottle_up")]
pub fn on_unthrottle(ctx: FEntryContext) -> i32 {
    let queue = Throttled::of(ctx.arg::<u64>(0), ctx.arg::<u64>(1));
    if queue.levels == 1
        && let Some(clocks) = throttle_clocks(queue.cpu)
        && let Some(clock) = find(clocks, queue.cfs_rq)
        && clock.since_ns != 0
    {
        let stood_ns = queue.clock_ns.saturating_sub(clock.since_ns);
        // With this order of writes, a reader without the lock may briefly miss the phase that ends, but cannot count it twice.
        clock.since_ns = 0;
        clock.sum_ns += stood_ns;
    }
    0
}

#[inline(always)]
fn find(clocks: &mut ThrottleClocks, cfs_rq: u64) -> Option<&mut ThrottleClock> {
    let first = first_place(cfs_rq);
    for probe in 0..PROBES {
        if wrapped(&mut clocks.clocks, first + probe).cfs_rq == cfs_rq {
            return Some(wrapped(&mut clocks.clocks, first + probe));
        }
    }
    None
}

/// Returns the entry for the clock of a queue. A new clock takes an empty entry. If there is none, it replaces a clock that
/// stands still. If all clocks run, it replaces the clock that has run longest. (If a cgroup is removed while it is throttled,
/// its clock never stops.)
#[inline(always)]
fn place(clocks: &mut ThrottleClocks, cfs_rq: u64) -> &mut ThrottleClock {
    let first = first_place(cfs_rq);
    let mut oldest = first;
    let mut oldest_ns = u64::MAX;
    for probe in 0..PROBES {
        let clock = wrapped(&mut clocks.clocks, first + probe);
        if clock.cfs_rq == cfs_rq {
            return wrapped(&mut clocks.clocks, first + probe);
        }
        if clock.since_ns < oldest_ns {
            (oldest, oldest_ns) = (first + probe, clock.since_ns);
        }
        if clock.cfs_rq == 0 {
            break;
        }
    }
    let clock = wrapped(&mut clocks.clocks, oldest);
    if clock.since_ns != 0 {
        lost(Loss::ThrottleClockForgotten);
    }
    clocks.used += 1;
    // The entry keeps the sum of its former clock. A wait may have begun under the former clock. For this wait, the result is at
    // most the length of the wait. If the former clock returns to this entry, none of its time is lost.
    let clock = wrapped(&mut clocks.clocks, oldest);
    clock.cfs_rq = cfs_rq;
    clock
}

/// Returns the throttled time of a queue at the time `clock_ns`. If `clock_ns` is 0 and the queue is throttled, the result is
/// negative (as `i64`). The function is exported and its parameters are numbers, so that the verifier checks it once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn stood_ns(cpu: u64, cfs_rq: u64, clock_ns: u64) -> u64 {
    let Some(clocks) = throttle_clocks(cpu as u32) else { return 0 };
    if clocks.used == 0 {
        return 0;
    }
    let first = first_place(cfs_rq);
    let mut stood_ns = 0;
    for probe in 0..PROBES {
        // The read is volatile, so that the verifier does not know the value and all code paths look the same to it.
        let ThrottleClock { cfs_rq: whose, since_ns, sum_ns } =
            get(wrapped(&mut clocks.clocks, first + probe));
        if whose == cfs_rq {
            let runs = since_ns != 0 && (clock_ns == 0 || clock_ns > since_ns);
            stood_ns = if runs { sum_ns.wrapping_add(clock_ns.wrapping_sub(since_ns)) } else { sum_ns };
            break;
        }
    }
    stood_ns
}

/// Returns the throttled time of the task's queue at the time `clock_ns`, ns. The kernel's clock advances only while the queue
/// has runnable tasks. `address` points to the queue's address. It is read from memory, so that the verifier takes it for a
/// number and not for a pointer.
#[inline(always)]
pub fn throttled_ns<const IS_TRUSTED: bool>(
    task: Task<IS_TRUSTED>,
    address: &u64,
    cpu: u32,
    clock_ns: u64,
) -> u64 {
    // SAFETY: the pointer comes from a reference.
    let queue = unsafe { read_volatile(address) };
    if keeps_throttle_clock() {
        return stood_ns(u64::from(cpu), queue, clock_ns);
    }
    if throttles_tasks() {
        // Few tasks are throttled. On other kernels, this code runs at each switch.
        return kernels_throttled_ns_rarely(queue, clock_ns);
    }
    task.kernels_throttled_ns(clock_ns)
}

/// Returns the queue that the task's group has on another CPU. The clock of that CPU is unknown.
#[inline(always)]
pub fn far_queue<const IS_TRUSTED: bool>(task: Task<IS_TRUSTED>, cpu: u32) -> FarQueue {
    let address = task.queue_address_on(cpu);
    if address == 0 {
        return FarQueue { address, is_throttled: true, throttled_ns_at_0: 0 };
    }
    queue_at(address, cpu)
}

/// Returns the queue that the task's group has on the task's own CPU.
#[inline(always)]
pub fn near_queue<const IS_TRUSTED: bool>(task: Task<IS_TRUSTED>) -> FarQueue {
    queue_at(task.queue_rarely(), task.cpu())
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
