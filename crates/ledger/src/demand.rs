//! The demand: how much CPU time the tasks of a cgroup with a quota need, by time slot. `cgscope whatif` uses the demand to
//! simulate other quotas.
//!
//! Each run of a task is counted at two times: when it happened, and when it would have happened if the task had never waited
//! since its last wakeup. The second time is called the position of the run. Example: a task that wakes at `t` and needs 3 ms of
//! CPU time has the positions from `t` to `t` + 3 ms, whenever it gets the CPU.

use crate::{
    ByCause, Cause, Loss,
    host::{Host, Task, without_ended},
    verifier::{add_atomic, get, set},
};

/// Number of slots of a cgroup, a power of two.
pub const SLOTS: usize = 512;
const SLOT_MASK: u64 = SLOTS as u64 - 1;
/// Maximum number of slots by which a task's position may lag behind the clock. A task with a longer lag has not slept for a long
/// time, so it counts as a busy loop. Its position moves forward to this limit, and the skipped time counts as
/// [`Amount::Presumed`].
pub const LONGEST_LAG: u64 = 32;
/// Maximum number of slots to which one run or wait is added. The earlier part of a longer run or wait is dropped.
pub const LONGEST: u64 = SLOTS as u64 / 2;
/// Maximum number of slots between two readings. If more slots pass, some figures are lost, because a run or wait changes up to
/// [`LONGEST`] slots before its end.
pub const KEPT: u64 = SLOTS as u64 - LONGEST;

/// Binary logarithms of the shortest and longest slot, ns: slots have 4 to 17 ms.
const SHIFTS: core::ops::RangeInclusive<u32> = 22..=24;

crate::named! {
    /// The sums that each slot has, in ns. The discriminant is the index of the sum.
    Amount {
        /// Time that tasks ran, counted when they ran.
        Ran = "ran",
        /// Time that tasks ran, counted at the positions of the runs.
        Wanted = "wanted",
        /// Time that tasks waited because a quota was used up.
        Throttled = "throttled",
        /// Time that tasks waited for a CPU while they had quota.
        Waited = "waited",
        /// Time that busy loops could have used in addition, see [`LONGEST_LAG`].
        Presumed = "presumed",
    }
}

pub const AMOUNTS: usize = Amount::ALL.len();

/// The slots of a cgroup with a quota. They include the tasks of all descendants that have no quota of their own. The sums never
/// decrease.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Binary logarithm of a slot's length, ns of `rq->clock`.
    pub shift: u64,
    /// The sums of each slot, indexed by [`Amount`]. Slot `n` is at index `n` modulo [`SLOTS`].
    pub slots: [[u64; AMOUNTS]; SLOTS],
}

impl Slots {
    /// Creates empty slots with a length of 2^`shift` ns.
    pub const fn new(shift: u32) -> Self {
        Self { shift: shift as u64, slots: [[0; AMOUNTS]; SLOTS] }
    }

    #[inline(always)]
    fn add(&mut self, slot: u64, amount: u64, ns: u64) {
        // The condition is always true, but the verifier requires the check.
        if amount < AMOUNTS as u64 {
            let at = (slot & SLOT_MASK) as usize * AMOUNTS + amount as usize;
            // SAFETY: the check above keeps the index within the array.
            add_atomic(unsafe { &mut *self.slots.as_mut_ptr().cast::<u64>().add(at) }, ns);
        }
    }
}

/// Returns the binary logarithm of the slot length, ns, for a quota with this period. A period has at least four slots if
/// possible.
pub fn shift_for(period_ns: u64) -> u32 {
    (period_ns / 4).checked_ilog2().unwrap_or(0).clamp(*SHIFTS.start(), *SHIFTS.end())
}

/// Which quota applies to a task, in the task's storage.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The value of [`DEMAND_TURN`](crate::wire::names::DEMAND_TURN) when `place` was set.
    pub turn: u32,
    /// Index of the [`Slots`] of the task's cgroup; 0: no quota applies to the task.
    pub place: u32,
}

/// Value of [`Running::place`] if the hook did not see when the current task switched in. Such a run is not counted.
pub const UNSEEN: u64 = u64::MAX;

/// The demand of the task that runs on a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Running {
    /// [`Quota::place`] of the current task, or [`UNSEEN`].
    pub place: u64,
    /// When the task switched in, ns of `rq->clock`.
    pub since_ns: u64,
    /// The position of the task's next run: when it would begin if the task had not waited since its wakeup, ns of `rq->clock`.
    /// 0: the task sleeps. While the task is off its CPU, its storage has this figure.
    pub position_ns: u64,
    /// When the task's last wait began, ns of `rq->clock`.
    ready_ns: u64,
    /// Before the wait is recorded: the throttled time of the task's earlier waits, ns. After that: the throttled time of this
    /// wait, ns.
    limited_ns: u64,
    spread: Spread,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    place: u64,
    amount: u64,
    from_ns: u64,
    to_ns: u64,
}

pub trait DemandHost: Host {
    fn running(cpu: u32) -> Option<&'static mut Running>;
    fn slots(place: u64) -> Option<&'static mut Slots>;
    /// Calls [`count_wait`] from a separate function, so that the verifier checks it only once. The parameters of such a function
    /// must be numbers.
    fn count_demand_wait(cpu: u32, clock_ns: u64);
    /// Calls [`count_run`] in the same way as [`Self::count_demand_wait`].
    fn count_demand_run(cpu: u32, clock_ns: u64);
    /// Calls [`spread_all`] in the same way as [`Self::count_demand_wait`].
    fn spread(cpu: u32);
}

/// Computes when the wait of the task `next`, which ends now, began. Call this function before the ledger records the wait, and
/// pass the current [`Waits::expected_run_delay_ns`](crate::wire::Waits::expected_run_delay_ns).
#[inline(always)]
pub fn ends_wait(
    next: impl Task,
    expected_run_delay_ns: u64,
    by_cause: &ByCause,
    running: &mut Running,
    clock_ns: u64,
) {
    let elsewhere_ns = next.run_delay_ns().wrapping_sub(expected_run_delay_ns);
    let (queued_ns, elsewhere_ns) = without_ended(next.last_queued_ns(), elsewhere_ns);
    let here_ns = if queued_ns == 0 { 0 } else { clock_ns.saturating_sub(queued_ns) };
    let elsewhere_ns = if (elsewhere_ns as i64) < 0 { 0 } else { elsewhere_ns };
    set(&mut running.ready_ns, clock_ns.saturating_sub(here_ns).saturating_sub(elsewhere_ns));
    set(&mut running.limited_ns, by_cause[Cause::Throttled as usize]);
}

/// Counts the wait that has just ended. The ledger must have split the wait by cause.
#[inline(always)]
pub fn arrived<H: DemandHost>(
    by_cause: &ByCause,
    place: u32,
    position_ns: &mut u64,
    running: &mut Running,
    cpu: u32,
    clock_ns: u64,
) {
    let before_ns = get(&mut running.limited_ns);
    set(&mut running.limited_ns, by_cause[Cause::Throttled as usize].wrapping_sub(before_ns));
    set(&mut running.place, place.into());
    set(&mut running.position_ns, get(position_ns));
    H::count_demand_wait(cpu, clock_ns);
    set(position_ns, get(&mut running.position_ns));
}

/// Counts the wait of the task that switches in on a CPU.
#[inline(always)]
pub fn count_wait<H: DemandHost>(cpu: u32, clock_ns: u64) {
    let Some(running) = H::running(cpu) else { return };
    let (place, ready_ns) = (get(&mut running.place), get(&mut running.ready_ns));
    // Throttled time is at the start of a wait, see `split`.
    let free_ns = ready_ns.wrapping_add(get(&mut running.limited_ns)).min(clock_ns);
    let Some(slots) = H::slots(place) else {
        set(&mut running.place, 0);
        return;
    };
    let shift = get(&mut slots.shift);
    set(&mut running.since_ns, clock_ns);
    let mut position_ns = get(&mut running.position_ns);
    if position_ns == 0 {
        position_ns = ready_ns;
    }
    let latest_ns = position_ns.max(clock_ns.saturating_sub(LONGEST_LAG << (shift & 63)));
    set(&mut running.position_ns, latest_ns);
    let mut spread = |amount, from_ns, to_ns| spread::<H>(cpu, running, slots, amount, from_ns, to_ns);
    spread(Amount::Throttled, ready_ns, free_ns);
    spread(Amount::Waited, free_ns, clock_ns);
    spread(Amount::Presumed, position_ns, latest_ns);
}

/// Counts the run of the task that switches out.
#[inline(always)]
pub fn left<H: DemandHost>(
    position_ns: &mut u64,
    running: &mut Running,
    cpu: u32,
    clock_ns: u64,
    is_blocked: bool,
) {
    if get(&mut running.place) != UNSEEN {
        H::count_demand_run(cpu, clock_ns);
        set(position_ns, get(&mut running.position_ns));
    }
    if is_blocked {
        set(position_ns, 0);
    }
}

/// Counts the run of the current task of a CPU, up to now.
#[inline(always)]
pub fn count_run<H: DemandHost>(cpu: u32, clock_ns: u64) {
    let Some(running) = H::running(cpu) else { return };
    let (place, since_ns) = (get(&mut running.place), get(&mut running.since_ns));
    let position_ns = get(&mut running.position_ns);
    let end_ns = position_ns + clock_ns.saturating_sub(since_ns);
    set(&mut running.position_ns, end_ns);
    let Some(slots) = H::slots(place) else { return };
    spread::<H>(cpu, running, slots, Amount::Ran, since_ns, clock_ns);
    spread::<H>(cpu, running, slots, Amount::Wanted, position_ns, end_ns);
}

/// Adds the time from `from_ns` to `to_ns` to each slot that overlaps it.
#[inline(always)]
fn spread<H: DemandHost>(
    cpu: u32,
    running: &mut Running,
    slots: &mut Slots,
    amount: Amount,
    from_ns: u64,
    to_ns: u64,
) {
    let shift = get(&mut slots.shift) & 63;
    if from_ns >= to_ns {
        return;
    }
    if from_ns >> shift == to_ns >> shift {
        slots.add(to_ns >> shift, amount as u64, to_ns - from_ns);
        return;
    }
    let place = get(&mut running.place);
    let spread = &mut running.spread;
    set(&mut spread.place, place);
    set(&mut spread.amount, amount as u64);
    set(&mut spread.from_ns, from_ns);
    set(&mut spread.to_ns, to_ns);
    H::spread(cpu);
}

/// Adds the time span in [`Running`] to each slot that overlaps the span.
#[inline(always)]
pub fn spread_all<H: DemandHost>(cpu: u32) {
    let Some(running) = H::running(cpu) else { return };
    let spread = &mut running.spread;
    let Some(slots) = H::slots(get(&mut spread.place)) else { return };
    let shift = get(&mut slots.shift) & 63;
    let first_ns = get(&mut spread.to_ns).saturating_sub((LONGEST - 1) << shift);
    if get(&mut spread.from_ns) < first_ns {
        set(&mut spread.from_ns, first_ns);
        H::lost(Loss::DemandForgotten);
    }
    H::repeat(LONGEST as u32, |cpu| spread_step::<H>(*cpu), &mut { cpu });
}

/// Adds the part of the time span that lies in the next slot. Returns true if no part of the span is left.
#[inline(always)]
pub fn spread_step<H: DemandHost>(cpu: u32) -> bool {
    let Some(running) = H::running(cpu) else { return true };
    let spread = &mut running.spread;
    let Some(slots) = H::slots(get(&mut spread.place)) else { return true };
    let shift = get(&mut slots.shift) & 63;
    let (from_ns, to_ns) = (get(&mut spread.from_ns), get(&mut spread.to_ns));
    if from_ns >= to_ns {
        return true;
    }
    let slot = from_ns >> shift;
    let end_ns = ((slot + 1) << shift).min(to_ns);
    slots.add(slot, get(&mut spread.amount), end_ns - from_ns);
    set(&mut spread.from_ns, end_ns);
    false
}

#[cfg(test)]
mod tests;
