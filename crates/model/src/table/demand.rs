//! The demand for CPU time of cgroups with a quota, by time slot. [`cgscope_ledger::demand`] explains what is counted.

use cgscope_ledger::demand::AMOUNTS;

use crate::table::Table;

table! {
    /// The table: one row per cgroup with a quota. Intervals do not use it; `whatif` reads it from Samples.
    Demand: DemandReading, by u64: |row| row.cgroup_id, "its demand is not in the order of its cgroups";
}

/// Amounts are recorded in units of 2^-`PARTS_SHIFT` of a slot.
const PARTS_SHIFT: u32 = 5;

/// The demand of a cgroup since the previous Sample: of its own tasks, and of descendants without a quota. Unlike other readings,
/// it is not cumulative: all slots together would be most of a Sample. A slot in two Samples is summed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemandReading {
    pub cgroup_id: u64,
    /// Log2 of the length of a slot, ns. Amounts are in 32nds of this length.
    pub slot_shift: u32,
    /// Number of the slot with index 0. A slot's number is its time on the scheduler's clock divided by the length of a slot.
    pub first: u64,
    /// Time on a CPU by slot index. Like the other lists: (index, amount), ascending, without zero amounts. Lists of sums equal
    /// each other where tasks did not wait, and are constant where tasks never sleep. Both need little space in a recording.
    pub ran: Vec<(u32, u64)>,
    pub wanted: Vec<(u32, u64)>,
    /// The sum of [`DemandSlot::wanted_ns`] and `presumed_ns`.
    pub useful: Vec<(u32, u64)>,
    pub throttled: Vec<(u32, u64)>,
    /// The sum of [`DemandSlot::ran_ns`], `throttled_ns` and `waited_ns`.
    pub runnable: Vec<(u32, u64)>,
}

/// The activity and the demand of a cgroup's tasks in a time slot. All values are sums over tasks, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DemandSlot {
    pub ran_ns: u64,
    /// Time on a CPU, counted in the slots where the tasks would have run if they had not waited since their last wakeup.
    pub wanted_ns: u64,
    /// Time waited because a quota had run out.
    pub throttled_ns: u64,
    /// Time waited for a CPU.
    pub waited_ns: u64,
    /// Additional time that tasks that never sleep could have used, besides `wanted_ns`.
    pub presumed_ns: u64,
}

/// Returns the number of parts of a slot in `ns`, rounded down.
pub fn parts(ns: u64, slot_shift: u32) -> u64 {
    ns >> slot_shift.saturating_sub(PARTS_SHIFT)
}

pub fn ns_of(parts: u64, slot_shift: u32) -> u64 {
    parts << slot_shift.saturating_sub(PARTS_SHIFT)
}

impl DemandReading {
    /// Creates the reading of slots from number `first` on; `None`: all amounts are 0. `slots` holds the amounts of each slot in
    /// [`parts`], in the order of [`Amount`](cgscope_ledger::demand::Amount).
    pub fn new(cgroup_id: u64, slot_shift: u32, first: u64, slots: &[[u64; AMOUNTS]]) -> Option<Self> {
        let skipped = slots.iter().position(|slot| *slot != [0; AMOUNTS])?;
        let mut lists: [Vec<(u32, u64)>; AMOUNTS] = Default::default();
        for (index, [ran, wanted, throttled, waited, presumed]) in (0..).zip(&slots[skipped..]) {
            let amounts = [*ran, *wanted, wanted + presumed, *throttled, ran + throttled + waited];
            let nonzero = lists.iter_mut().zip(amounts).filter(|(_, amount)| *amount != 0);
            nonzero.for_each(|(list, amount)| list.push((index, amount)));
        }
        let first = first.wrapping_add(skipped as u64);
        let [ran, wanted, useful, throttled, runnable] = lists;
        Some(Self { cgroup_id, slot_shift, first, ran, wanted, useful, throttled, runnable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recordings hold amounts without their unit. With another unit, older recordings would be misread.
    #[test]
    fn a_slot_has_32_parts() {
        assert_eq!((parts(1 << 24, 24), ns_of(32, 24)), (32, 1 << 24));
        assert_eq!(parts((1 << 24) - 1, 24), 31);
    }

    #[test]
    fn slots_are_those_that_were_given() {
        let slots = [[0; AMOUNTS], [1, 3, 0, 0, 0], [0; AMOUNTS], [5, 2, 9, 16, 0], [0, 0, 0, 0, 7]];
        let reading = DemandReading::new(9, 24, 100, &slots).expect("slots");
        assert_eq!(reading.first, 101);
        assert_eq!((reading.ran, reading.throttled), (vec![(0, 1), (2, 5)], vec![(2, 9)]));
        assert_eq!((reading.wanted, reading.useful), (vec![(0, 3), (2, 2)], vec![(0, 3), (2, 2), (3, 7)]));
        assert_eq!(reading.runnable, [(0, 1), (2, 30)]);
        assert_eq!(DemandReading::new(9, 24, 100, &[[0; AMOUNTS]; 3]), None);
    }
}
