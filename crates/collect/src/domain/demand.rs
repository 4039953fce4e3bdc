//! Gives places in the demand table to cgroups with a quota, and reads the slots that changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use cgscope_ledger::{
    Loss,
    demand::{AMOUNTS, KEPT, SLOTS, Slots, shift_for},
    wire::names,
};
use cgscope_model::{
    CgroupReading, DemandReading,
    demand::{ns_of, parts},
    path::family,
};

use crate::{
    Failure,
    bpf_calls::Raw,
    cgroups::CgroupTree,
    domain::{Domain, Draft, Setup},
    kernel_side::{KernelSide, if_there, step},
};

/// Minimum and maximum number of places. Each place takes 20 KiB of kernel memory.
const PLACES: std::ops::RangeInclusive<usize> = 32..=256;

#[derive(Default)]
pub(crate) struct Demands {
    places: BTreeMap<u64, Place>,
    /// Throttled time of each cgroup with a quota.
    throttled: BTreeMap<u64, Throttled>,
    free: Vec<u32>,
    /// Number of the latest change of places.
    turn: u32,
    read_ns: u64,
}

struct Place {
    at: u32,
    /// The slots of the latest reading.
    seen: Box<Slots>,
    /// Remainder of each amount after rounding, ns. The remainder is added to the next slot that is not empty.
    left_ns: [u64; AMOUNTS],
}

/// Throttled time of a cgroup. The most throttled cgroups get places.
#[derive(Clone, Copy, Debug, Default)]
struct Throttled {
    total_ns: u64,
    /// Recent throttled time, ns per reading: an exponential average over about eight readings.
    lately_ns: u64,
}

impl Throttled {
    fn next(before: Option<&Self>, total_ns: u64) -> Self {
        // Ignore the time before the first reading, because it is not recent.
        let before = before.copied().unwrap_or(Self { total_ns, lately_ns: 0 });
        let more_ns = total_ns.saturating_sub(before.total_ns);
        Self { total_ns, lately_ns: before.lately_ns - before.lately_ns / 8 + more_ns / 8 }
    }
}

/// A cgroup with a quota: its recent throttled time, its id, and its [`family`].
type Candidate = (u64, u64, Arc<str>);

/// Minimum throttled time with which a cgroup can take the place of another cgroup, ns per reading.
const LEAST_NS: u64 = 1_000_000;

/// Returns pairs of cgroups: the first loses its place to the second. A throttled cgroup can take a place in two cases. First, it
/// can take a place of the family with the most places, if that family has more than twice as many places as the cgroup's own
/// family would have. Second, it can take the place of a cgroup that was throttled less than half as long, in its own family or
/// in a family with more places.
fn exchange(mut waiting: Vec<Candidate>, placed: Vec<Candidate>) -> Vec<(u64, u64)> {
    waiting.sort_unstable_by(|a, b| b.cmp(a));
    let mut by_family: BTreeMap<Arc<str>, BTreeSet<(u64, u64)>> = BTreeMap::new();
    for (ns, id, family) in placed {
        by_family.entry(family).or_default().insert((ns, id));
    }
    let mut exchanged = Vec::new();
    for (waits_ns, next, family) in waiting.into_iter().take_while(|(ns, ..)| *ns >= LEAST_NS) {
        let own = by_family.get(&family).map_or(0, BTreeSet::len);
        let largest = by_family.iter().max_by_key(|(_, places)| places.len());
        let of_largest = largest.filter(|(_, places)| places.len() > 2 * (own + 1));
        let is_larger = |(name, places): &(&Arc<str>, &BTreeSet<_>)| **name == family || places.len() > own;
        let larger = by_family.iter().filter(is_larger);
        let least = larger.min_by_key(|(_, places)| places.first().map_or(u64::MAX, |(ns, _)| *ns));
        let has_less = |(_, places): &(&Arc<str>, &BTreeSet<(u64, u64)>)| {
            places.first().is_some_and(|(ns, _)| waits_ns > ns.saturating_mul(2))
        };
        let Some(loser) = of_largest.or(least.filter(has_less)).map(|(family, _)| family.clone()) else {
            continue;
        };
        let Some((_, holder)) = by_family.get_mut(&loser).and_then(BTreeSet::pop_first) else { continue };
        by_family.entry(family).or_default().insert((u64::MAX, next));
        exchanged.push((holder, next));
    }
    exchanged
}

impl Domain for Demands {
    /// The first entry of the map is unused. A daemon gets the maximum size, because cgroups may be created later.
    fn start(Setup { options, cgroups, .. }: &Setup<'_>) -> Option<(Self, u32)> {
        let (least, most) = PLACES.into_inner();
        let places = if options.shared { most } else { (*cgroups).clamp(least, most) } as u32;
        let free = (1..=places).rev().collect();
        options.demand.then(|| (Self { free, ..Self::default() }, 1 + places))
    }

    fn read(&mut self, draft: &mut Draft) -> Result<(), Failure> {
        draft.sample.demand = self.changed(draft)?;
        draft.sample.demand_until_ns = Some(draft.clock_ns);
        Ok(())
    }

    fn complete(&mut self, draft: &mut Draft, tree: Option<&CgroupTree>) -> Result<(), Failure> {
        let family = |id| family(tree.and_then(|tree| tree.path(id)).map_or("", |path| path)).into();
        self.give_places(draft, family)
    }
}

/// Sets or removes the place of a cgroup in the table. The change takes effect when the number in `DEMAND_TURN` changes.
fn set_place(side: &mut KernelSide, cgroup_id: u64, place: Option<u32>) -> Result<(), Failure> {
    step("set the places of demand", || {
        let mut places = side.hash_table::<u64, u32>(names::DEMAND_PLACES)?;
        match place {
            Some(place) => places.insert(cgroup_id, place, 0)?,
            None => _ = if_there(places.remove(&cgroup_id))?,
        }
        Ok(())
    })
}

impl Demands {
    /// Returns the slots that changed since the previous reading.
    fn changed(&mut self, draft: &mut Draft) -> Result<Vec<DemandReading>, Failure> {
        let clock_ns = draft.clock_ns;
        let before_ns = mem::replace(&mut self.read_ns, clock_ns);
        let mut readings = Vec::new();
        for (id, place) in &mut self.places {
            let now = step("read the demand", || {
                Ok(draft.side.array::<Raw<Slots>>(names::DEMAND)?.get(&place.at, 0)?.0)
            })?;
            let before = mem::replace(&mut *place.seen, now);
            let shift = before.shift as u32;
            if clock_ns.saturating_sub(before_ns) >> shift >= KEPT {
                // The kernel may have reused a slot since the previous reading.
                draft.losses.add(Loss::DemandForgotten, 1);
                continue;
            }
            readings.extend(changed(*id, &before, &place.seen, clock_ns, &mut place.left_ns));
        }
        Ok(readings)
    }

    /// Gives places to the cgroups that now have a quota, the most throttled first (see [`exchange`]). Frees the places of
    /// cgroups without a quota.
    fn give_places(&mut self, draft: &mut Draft, family: impl Fn(u64) -> Box<str>) -> Result<(), Failure> {
        let Draft { side, sample, losses, .. } = draft;
        let shift = |limits: &CgroupReading| shift_for(limits.period_us.unwrap_or(0).saturating_mul(1_000));
        let with_quota = || sample.limits.iter().filter(|limits| limits.quota_us.is_some());
        let wanted: BTreeMap<u64, u32> = with_quota().map(|limits| (limits.id, shift(limits))).collect();
        let is_kept = |id: &u64, place: &Place| {
            wanted.get(id).is_some_and(|shift| place.seen.shift == u64::from(*shift))
        };
        let mut gone: Vec<u64> =
            self.places.iter().filter(|(id, place)| !is_kept(id, place)).map(|(id, _)| *id).collect();
        let throttled = with_quota().map(|limits| {
            let total_ns = limits.throttled_ns.unwrap_or(0);
            (limits.id, Throttled::next(self.throttled.get(&limits.id), total_ns))
        });
        self.throttled = throttled.collect();
        let mut chosen: BTreeSet<u64> = BTreeSet::new();
        if wanted.len() > self.places.len() + self.free.len() {
            let lately =
                |id: u64| (self.throttled.get(&id).map_or(0, |of| of.lately_ns), id, Arc::from(family(id)));
            let waiting = wanted.keys().filter(|id| !self.places.contains_key(id)).map(|id| lately(*id));
            let placed = self.places.keys().filter(|id| !gone.contains(id)).map(|id| lately(*id));
            let exchanged = exchange(waiting.collect(), placed.collect());
            gone.extend(exchanged.iter().map(|(holder, _)| *holder));
            chosen = exchanged.into_iter().map(|(_, next)| next).collect();
        }
        let mut has_changed = !gone.is_empty();
        for id in &gone {
            set_place(side, *id, None)?;
            self.free.extend(self.places.remove(id).map(|place| place.at));
        }
        let lately_ns = |id: &u64| self.throttled.get(id).map_or(0, |of| of.lately_ns);
        let waiting = wanted.into_iter().filter(|(id, _)| !self.places.contains_key(id));
        let mut waiting: Vec<(u64, u32)> = waiting.collect();
        waiting.sort_by_key(|(id, _)| std::cmp::Reverse((chosen.contains(id), lately_ns(id))));
        for (id, shift) in waiting {
            let Some(at) = self.free.pop() else {
                losses.add(Loss::DemandForgotten, 1);
                continue;
            };
            let seen = Box::new(Slots::new(shift));
            step("reset the demand", || Ok(side.array_mut(names::DEMAND)?.set(at, Raw(*seen), 0)?))?;
            set_place(side, id, Some(at))?;
            self.places.insert(id, Place { at, seen, left_ns: [0; AMOUNTS] });
            has_changed = true;
        }
        if has_changed {
            self.turn = self.turn.wrapping_add(1).max(1);
            side.set_first("set the places of demand", names::DEMAND_TURN, self.turn)?;
        }
        Ok(())
    }
}

/// Returns the slots of a cgroup that changed. Includes one slot after `clock_ns`, because the clock of a CPU can be ahead by
/// less than a slot.
fn changed(
    id: u64,
    before: &Slots,
    now: &Slots,
    clock_ns: u64,
    left_ns: &mut [u64; AMOUNTS],
) -> Option<DemandReading> {
    let shift = now.shift as u32;
    let end = (clock_ns >> shift) + 2;
    let first = end.saturating_sub(SLOTS as u64);
    let slots: Vec<[u64; AMOUNTS]> = (first..end)
        .map(|number| {
            let at = number as usize % SLOTS;
            let (now, before) = (&now.slots[at], &before.slots[at]);
            std::array::from_fn(|amount| match now[amount].wrapping_sub(before[amount]) {
                0 => 0,
                ns => rounded(ns, shift, &mut left_ns[amount]),
            })
        })
        .collect();
    DemandReading::new(id, shift, first, &slots)
}

/// Converts `ns` to parts of a slot, rounded down. `left_ns` carries the remainder between calls.
fn rounded(ns: u64, shift: u32, left_ns: &mut u64) -> u64 {
    let sum_ns = ns.saturating_add(*left_ns);
    let parts = parts(sum_ns, shift);
    *left_ns = sum_ns - ns_of(parts, shift);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIFT: u32 = 24;
    const SLOT: u64 = 1 << SHIFT;

    fn add(slots: &mut Slots, number: u64, amounts: [u64; AMOUNTS]) {
        let slot = &mut slots.slots[number as usize % SLOTS];
        slot.iter_mut().zip(amounts).for_each(|(sum, more)| *sum += more);
    }

    #[test]
    fn slots_are_counted_once_and_rounding_loses_nothing() {
        let mut before = Slots::new(SHIFT);
        let (mut sums, mut numbers, mut left_ns) = ([0; 3], Vec::new(), [0; AMOUNTS]);
        // The turns go around the ring three times. Each turn adds 3/4 of a part to `ran_ns`.
        let part = SLOT / 16;
        for turn in 1..=1_600u64 {
            let mut now = before;
            add(&mut now, turn, [part * 3 / 4, part / 4, 0, 0, SLOT]);
            let reading = changed(5, &before, &now, turn * SLOT, &mut left_ns).expect("a change");
            numbers.extend(reading.useful.iter().map(|(index, _)| reading.first + u64::from(*index)));
            for (sum, parts) in sums.iter_mut().zip([&reading.ran, &reading.wanted, &reading.useful]) {
                *sum += ns_of(parts.iter().map(|(_, parts)| parts).sum(), SHIFT);
            }
            before = now;
        }
        assert_eq!(numbers, (1..=1_600).collect::<Vec<_>>());
        let [ran_ns, wanted_ns, useful_ns] = sums;
        assert_eq!(useful_ns - wanted_ns, 1_600 * SLOT, "presumed");
        assert!(ran_ns.abs_diff(1_200 * part) <= part && wanted_ns.abs_diff(400 * part) <= part, "{sums:?}");
        assert_eq!(changed(5, &before, &before, 1_600 * SLOT, &mut left_ns), None);
    }

    #[test]
    fn places_go_to_those_that_are_throttled_most() {
        let of = |family: &str, ns: u64, ids: std::ops::RangeInclusive<u64>| -> Vec<Candidate> {
            ids.map(|id| (ns, id, family.into())).collect()
        };
        let (waits, holds) = (80_000_000, 8_000_000);
        assert_eq!(exchange(of("/a", waits, 300..=300), of("/a", holds, 1..=256)), [(1, 300)]);
        assert_eq!(
            exchange(of("/a", 2 * holds, 300..=300), of("/a", holds, 1..=256)),
            [],
            "not more than twice"
        );
        assert_eq!(exchange(of("/a", LEAST_NS - 1, 300..=300), of("/a", 0, 1..=1)), []);
        let two = [of("/a", waits, 301..=301), of("/a", LEAST_NS, 300..=300)].concat();
        assert_eq!(exchange(two, of("/a", 0, 7..=9)), [(7, 301), (8, 300)]);
        // The cgroups of one user are throttled all the time, and the cgroups of another user are throttled at times. Both users
        // get places.
        let (hostile, mut other) = (of("/user", 1_000_000_000, 1..=256), of("/pods", 2_000_000, 300..=420));
        let exchanged = exchange(other.clone(), hostile.clone());
        assert_eq!(exchanged.len(), 85, "a third of 256");
        other.truncate(85);
        let left = hostile.into_iter().skip(85).chain(other).collect();
        assert_eq!(exchange(of("/user", 1_000_000_000, 1..=85), left), [], "and keep them");
        let mut throttled = Throttled::next(None, 1 << 60);
        assert_eq!(throttled.lately_ns, 0);
        for reading in 1..=100 {
            throttled = Throttled::next(Some(&throttled), (1 << 60) + reading * 8_000_000);
        }
        assert!((7_900_000..=8_000_000).contains(&throttled.lately_ns), "{throttled:?}");
    }

    #[test]
    fn a_run_that_ends_late_counts_in_the_slots_where_it_was() {
        let before = Slots::new(SHIFT);
        let mut now = before;
        (100..160).for_each(|number| add(&mut now, number, [SLOT, SLOT, 0, 0, 0]));
        let reading = changed(5, &before, &now, 160 * SLOT, &mut [0; AMOUNTS]).expect("a change");
        assert_eq!((reading.first, reading.ran.len()), (100, 60));
        assert!(reading.throttled.is_empty() && reading.wanted == reading.ran);
    }
}
