//! The demand for CPU time of cgroups with a quota, by time slot. `whatif` uses it to simulate other quotas.
//!
//! Each run of a task counts twice: at the time when it happened, and at the time when it would have happened without any wait
//! since the task's last wakeup. The second time is the position of the run. Example: a task that wakes at `t` and needs 3 ms has
//! a demand from `t` to `t` + 3 ms, whenever it gets the CPU.

use crate::{
    ByCause, Cause, Loss,
    host::{Host, Step, Task, without_ended},
    verifier::{add_atomic, get, set},
};

/// Number of slots that are kept for a cgroup. A power of two.
pub const SLOTS: usize = 512;
const SLOT_MASK: u64 = SLOTS as u64 - 1;
/// Maximum number of slots by which a task's position may lag behind the clock. A task that lags more has not slept for long, so
/// it counts as a busy loop. Its position moves forward to this limit, and the skipped time counts as [`Amount::Presumed`].
pub const LONGEST_LAG: u64 = 32;
/// Maximum number of slots that one run or wait covers. Earlier time is dropped.
pub const LONGEST: u64 = SLOTS as u64 / 2;
/// If this many slots pass between two readings, some are lost: a run or wait adds to up to [`LONGEST`] slots before its end.
pub const KEPT: u64 = SLOTS as u64 - LONGEST;

/// Binary logarithms of the shortest and longest slot, ns: 4 and 17 ms.
const SHIFTS: core::ops::RangeInclusive<u32> = 22..=24;

crate::named! {
    /// A sum that each slot keeps, ns. The discriminant is its index.
    Amount {
        /// Time on a CPU, at the times when the runs happened.
        Ran = "ran",
        /// Time on a CPU, at the positions of the runs.
        Wanted = "wanted",
        /// Time that tasks waited because a quota was used up.
        Throttled = "throttled",
        /// Time that tasks waited for a CPU.
        Waited = "waited",
        /// Additional time that busy loops could have used, see [`LONGEST_LAG`].
        Presumed = "presumed",
    }
}

/// Number of amounts.
pub const AMOUNTS: usize = Amount::ALL.len();

/// The slots of a cgroup: for its own tasks, and for those of its descendants that have no quota. All sums only rise.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Binary logarithm of a slot's length, ns of `rq->clock`.
    pub shift: u64,
    /// Slot `n` is at index `n` modulo [`SLOTS`], with an entry for each [`Amount`].
    pub slots: [[u64; AMOUNTS]; SLOTS],
}

impl Slots {
    /// Creates empty slots of 2^`shift` ns.
    pub const fn new(shift: u32) -> Self {
        Self { shift: shift as u64, slots: [[0; AMOUNTS]; SLOTS] }
    }

    #[inline(always)]
    fn add(&mut self, slot: u64, amount: u64, ns: u64) {
        // Always true, but the verifier requires the check.
        if amount < AMOUNTS as u64 {
            let at = (slot & SLOT_MASK) as usize * AMOUNTS + amount as usize;
            // SAFETY: checked above.
            add_atomic(unsafe { &mut *self.slots.as_mut_ptr().cast::<u64>().add(at) }, ns);
        }
    }
}

/// Returns the shift of the slots for a quota's period, so that a period has at least four slots if possible.
pub fn shift_for(period_ns: u64) -> u32 {
    (period_ns / 4).checked_ilog2().unwrap_or(0).clamp(*SHIFTS.start(), *SHIFTS.end())
}

/// The demand of a task, kept in its storage.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The value of [`DEMAND_TURN`](crate::wire::names::DEMAND_TURN) when `place` was looked up.
    pub turn: u32,
    /// Index of the [`Slots`] of the task's cgroup; 0: no quota applies to the task.
    pub place: u32,
    /// When the task's next run would begin if it had never waited since its wakeup, ns of `rq->clock`; 0: the task sleeps.
    pub position_ns: u64,
}

/// Value of [`Running::place`] if the hook did not see the task switch in and the time is unknown. The run is not counted.
pub const UNSEEN: u64 = u64::MAX;

/// The demand of the task that runs on a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Running {
    /// [`Demand::place`] of the current task, or [`UNSEEN`].
    pub place: u64,
    /// When the task switched in, ns of `rq->clock`.
    pub since_ns: u64,
    position_ns: u64,
    /// When the wait before the switch in began, ns of `rq->clock`.
    ready_ns: u64,
    /// Throttled time, ns. Until the wait is recorded: the task's sum of earlier waits. After that: the part in this wait.
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

/// What this module needs of its host.
pub trait DemandHost: Host {
    /// Returns the demand of the task that runs on a CPU.
    fn running(cpu: u32) -> Option<&'static mut Running>;
    /// Returns the slots at index `place`.
    fn slots(place: u64) -> Option<&'static mut Slots>;
    /// Calls [`count_wait`] through a function that the verifier checks only once. Such a function takes only numbers.
    fn count_demand_wait(cpu: u32, clock_ns: u64);
    /// Calls [`count_run`] in the same way as [`Self::count_demand_wait`].
    fn count_demand_run(cpu: u32, clock_ns: u64);
    /// Calls [`spread_all`] in the same way as [`Self::count_demand_wait`].
    fn spread(cpu: u32);
}

/// Finds when the wait that ends now began. `next` is the task that waited. Call this before the ledger records the wait, with
/// [`Waits::expected_run_delay_ns`](crate::wire::Waits::expected_run_delay_ns).
#[inline(always)]
pub fn ends_wait<H: DemandHost>(
    next: impl Task,
    expected_run_delay_ns: u64,
    by_cause: &ByCause,
    cpu: u32,
    clock_ns: u64,
) {
    let elsewhere_ns = next.run_delay_ns().wrapping_sub(expected_run_delay_ns);
    let (queued_ns, elsewhere_ns) = without_ended(next.last_queued_ns(), elsewhere_ns);
    let here_ns = if queued_ns == 0 { 0 } else { clock_ns.saturating_sub(queued_ns) };
    let elsewhere_ns = if (elsewhere_ns as i64) < 0 { 0 } else { elsewhere_ns };
    let Some(running) = H::running(cpu) else { return };
    set(&mut running.ready_ns, clock_ns.saturating_sub(here_ns).saturating_sub(elsewhere_ns));
    set(&mut running.limited_ns, by_cause[Cause::Throttled as usize]);
}

/// Counts the wait that ended, after the ledger has split it by cause.
#[inline(always)]
pub fn arrived<H: DemandHost>(by_cause: &ByCause, demand: &mut Demand, cpu: u32, clock_ns: u64) {
    let Some(running) = H::running(cpu) else { return };
    let before_ns = get(&mut running.limited_ns);
    set(&mut running.limited_ns, by_cause[Cause::Throttled as usize].wrapping_sub(before_ns));
    set(&mut running.place, get(&mut demand.place).into());
    set(&mut running.position_ns, get(&mut demand.position_ns));
    H::count_demand_wait(cpu, clock_ns);
    set(&mut demand.position_ns, get(&mut running.position_ns));
}

/// Counts the wait of the task that switches in on a CPU.
#[inline(always)]
pub fn count_wait<H: DemandHost>(cpu: u32, clock_ns: u64) {
    let Some(running) = H::running(cpu) else { return };
    let (place, ready_ns) = (get(&mut running.place), get(&mut running.ready_ns));
    // Throttled time comes first, see `split`.
    let free_ns = ready_ns.wrapping_add(get(&mut running.limited_ns)).min(clock_ns);
    let Some(shift) = H::slots(place).map(|slots| get(&mut slots.shift)) else {
        set(&mut running.place, 0);
        return;
    };
    set(&mut running.since_ns, clock_ns);
    let mut position_ns = get(&mut running.position_ns);
    if position_ns == 0 {
        position_ns = ready_ns;
    }
    let latest_ns = position_ns.max(clock_ns.saturating_sub(LONGEST_LAG << (shift & 63)));
    set(&mut running.position_ns, latest_ns);
    spread::<H>(cpu, place, Amount::Throttled, ready_ns, free_ns);
    spread::<H>(cpu, place, Amount::Waited, free_ns, clock_ns);
    spread::<H>(cpu, place, Amount::Presumed, position_ns, latest_ns);
}

/// Counts the run of the task that switches out.
#[inline(always)]
pub fn left<H: DemandHost>(demand: &mut Demand, cpu: u32, clock_ns: u64, is_blocked: bool) {
    let Some(running) = H::running(cpu) else { return };
    if get(&mut running.place) != UNSEEN {
        H::count_demand_run(cpu, clock_ns);
        set(&mut demand.position_ns, get(&mut running.position_ns));
    }
    if is_blocked {
        set(&mut demand.position_ns, 0);
    }
}

/// Counts the run of the task that has run on a CPU.
#[inline(always)]
pub fn count_run<H: DemandHost>(cpu: u32, clock_ns: u64) {
    let Some(running) = H::running(cpu) else { return };
    let (place, since_ns) = (get(&mut running.place), get(&mut running.since_ns));
    let position_ns = get(&mut running.position_ns);
    let end_ns = position_ns + clock_ns.saturating_sub(since_ns);
    set(&mut running.position_ns, end_ns);
    spread::<H>(cpu, place, Amount::Ran, since_ns, clock_ns);
    spread::<H>(cpu, place, Amount::Wanted, position_ns, end_ns);
}

/// Adds the time from `from_ns` to `to_ns` to the slots that it covers.
#[inline(always)]
fn spread<H: DemandHost>(cpu: u32, place: u64, amount: Amount, from_ns: u64, to_ns: u64) {
    let Some(slots) = H::slots(place) else { return };
    let shift = get(&mut slots.shift) & 63;
    if from_ns >= to_ns {
        return;
    }
    if from_ns >> shift == to_ns >> shift {
        slots.add(to_ns >> shift, amount as u64, to_ns - from_ns);
        return;
    }
    let Some(running) = H::running(cpu) else { return };
    let spread = &mut running.spread;
    set(&mut spread.place, place);
    set(&mut spread.amount, amount as u64);
    set(&mut spread.from_ns, from_ns);
    set(&mut spread.to_ns, to_ns);
    H::spread(cpu);
}

/// Adds the span in [`Running`] to the slots that it covers.
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
    H::repeat(LONGEST as u32, Step::Spread, cpu);
}

/// Adds the part of the span that lies in the next slot. Returns true if no part is left.
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
