//! The demand of cgroups over the time to simulate, and what it shows.

use std::{iter, ops::Range};

use cgscope_model::{CgroupReading, DemandSlot};

use crate::{
    Limit, Loop, Node, Profile, Slot, Tree,
    answer::Target,
    history::{BLOCK_SHIFT, Block, Cgroup, SHORTEST, limit_us},
};

/// Maximum number of slots of a simulated tree, of 32 bytes: some of these are needed at a time, on up to four threads.
const MOST_SIMULATED: u64 = 2_000_000;

/// Maximum length of a time whose slots are divided for the simulation, ns.
const REFINED_NS: u64 = 600_000_000_000;

/// The demand of a cgroup, and of all that share its quotas, over the same time.
pub struct Demand<'h> {
    pub(crate) target: &'h Target,
    /// Those of the target's family. `None`: the cgroup had no quota in this time.
    pub(crate) family: Vec<Option<Part<'h>>>,
    pub span_ns: u64,
    /// Start of the time after the first sample, ns; `None`: it is the whole time.
    pub start_ns: Option<u64>,
    pub(crate) host_cpus: u32,
}

/// The demand of one cgroup.
pub(crate) struct Part<'h> {
    cgroup: &'h Cgroup,
    blocks: Range<u64>,
    /// Binary logarithm of the length of a slot, ns.
    shift: u32,
    /// The readings at the start and at the end.
    first: &'h CgroupReading,
    last: &'h CgroupReading,
}

impl<'h> Part<'h> {
    pub fn new(cgroup: &'h Cgroup, blocks: &Range<u64>) -> Option<Self> {
        let (_, first) = cgroup.blocks.range(blocks.clone()).next()?;
        Some(Self {
            cgroup,
            blocks: blocks.clone(),
            shift: cgroup.blocks.range(blocks.clone()).map(|(_, block)| block.shift).max()?,
            first: &first.first,
            last: cgroup.blocks.get(&blocks.end).map_or(&cgroup.last, |block| &block.first),
        })
    }

    /// The limit at the end; `None`: it had none then.
    pub fn limit(&self) -> Option<Limit> {
        let us = [self.last.quota_us?, self.last.period_us?, self.last.burst_us.unwrap_or(0)];
        if us[0] == 0 || us[1] == 0 || us.iter().any(|us| *us > Limit::MOST_US) {
            return None;
        }
        let [quota_ns, period_ns, burst_ns] = us.map(|us| us * 1_000);
        Some(Limit { quota_ns, period_ns, burst_ns })
    }

    /// The increase of its counters, with the limits at the end.
    pub fn counted(&self) -> CgroupReading {
        self.last.since(Some(self.first))
    }

    /// The limit was changed in this time, or after it.
    fn has_changed(&self) -> bool {
        let is_other = |other: &CgroupReading| limit_us(self.last) != limit_us(other);
        is_other(self.first)
            || is_other(&self.cgroup.last)
            || self.cgroup.blocks.range(self.blocks.clone()).any(|(_, block)| block.has_changed)
    }

    /// The slots without end, each joined from several to 2^`shift` ns.
    fn joined(&self, shift: u32) -> impl Iterator<Item = DemandSlot> {
        let (cgroup, in_block) = (self.cgroup, 1 << (BLOCK_SHIFT - self.shift));
        let slots = self.blocks.clone().flat_map(move |number| {
            let known = cgroup.blocks.get(&number).into_iter().flat_map(Block::slots);
            known.chain(iter::repeat_n(DemandSlot::default(), in_block)).take(in_block)
        });
        let mut slots = slots.chain(iter::repeat(DemandSlot::default()));
        let by = 1 << shift.saturating_sub(self.shift);
        iter::repeat_with(move || slots.by_ref().take(by).fold(DemandSlot::default(), joined))
    }

    /// The slots for the simulation, and those in which tasks were throttled.
    fn simulated(&self, shift: u32, length: usize, assumption: Assumption) -> (Vec<Slot>, Vec<bool>) {
        let slots = self.joined(shift).take(length);
        slots.map(|slot| (simulated(slot, 1 << shift, assumption), slot.throttled_ns != 0)).unzip()
    }
}

/// What is assumed about what a recording cannot show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// Waits for CPUs that others had would end, and tasks would not sleep while others of them are throttled.
    NeighboursYield,
    /// Others would make the tasks wait for CPUs as before, and the tasks would sleep as before.
    NeighboursStay,
    /// The tasks would always use as many CPUs as they did when they used many. For a cgroup that was throttled nearly all the time: its
    /// tasks may sleep only because others of them, for whose results they wait, are throttled.
    AlwaysBusy,
}

#[derive(Clone, Debug, Default)]
pub struct Runnable {
    pub slot_ns: u64,
    /// Time that tasks ran or waited in each slot, ns.
    pub slots_ns: Vec<u64>,
    pub ran_ns: u64,
    /// CPU time that they would have run besides if no other cgroup had used CPUs: waits behind own tasks do not count, ns.
    pub waited_ns: u64,
    /// What busy loops would have run besides, ns.
    pub presumed_ns: u64,
    /// Time that tasks slept while others were throttled, although they usually run, ns.
    pub slept_ns: u64,
}

fn joined(one: DemandSlot, other: DemandSlot) -> DemandSlot {
    DemandSlot {
        ran_ns: one.ran_ns + other.ran_ns,
        wanted_ns: one.wanted_ns + other.wanted_ns,
        throttled_ns: one.throttled_ns + other.throttled_ns,
        waited_ns: one.waited_ns + other.waited_ns,
        presumed_ns: one.presumed_ns + other.presumed_ns,
    }
}

/// The part of the time of all CPUs in which the tasks of a cgroup, which are throttled together, were not throttled, ns.
fn usable_ns(slot: &DemandSlot, cpus_ns: u64) -> u64 {
    let active_ns = u128::from(slot.ran_ns + slot.waited_ns);
    (u128::from(cpus_ns) * active_ns / (active_ns + u128::from(slot.throttled_ns)).max(1)) as u64
}

fn simulated(slot: DemandSlot, slot_ns: u64, assumption: Assumption) -> Slot {
    let DemandSlot { ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns } = slot;
    let active_ns = ran_ns + waited_ns;
    let (mut late_ns, mut presumed_ns) = (throttled_ns + waited_ns, presumed_ns);
    if assumption == Assumption::NeighboursStay && active_ns != 0 {
        // The tasks run and wait for CPUs in turn, as before: only a part of each second of demand is served.
        let part = |ns: u64| (u128::from(ns) * u128::from(ran_ns) / u128::from(active_ns)) as u64;
        (late_ns, presumed_ns) = (part(throttled_ns), part(presumed_ns));
    }
    Slot {
        ran_ns,
        waited_ns: whole(ran_ns, late_ns, slot_ns),
        firm_ns: wanted_ns,
        presumed_ns: whole(wanted_ns, presumed_ns, slot_ns),
    }
}

/// Reduces `more_ns` if the sum is a little more than a whole number of CPUs: each amount was rounded to a 32nd of a slot.
fn whole(ns: u64, more_ns: u64, slot_ns: u64) -> u64 {
    let sum_ns = ns + more_ns;
    let over_ns = sum_ns % slot_ns;
    if sum_ns > slot_ns && over_ns <= slot_ns / 8 { more_ns.saturating_sub(over_ns) } else { more_ns }
}

/// Slots on either side of one that show what is usual.
const AROUND: usize = 30;

/// The slots in which a quota was used up and fewer tasks could run than is usual around them: their places, and what is usual, ns. When
/// some tasks are throttled, others that wait for their results sleep, although they would run.
fn usual(slots: &[Slot], is_throttled: &[bool], slot_ns: u64) -> Vec<(usize, u64)> {
    let mut sums = vec![(0, 0)];
    for (slot, is_throttled) in slots.iter().zip(is_throttled) {
        let (sum_ns, count) = sums[sums.len() - 1];
        let runnable_ns = if *is_throttled { 0 } else { slot.ran_ns + slot.waited_ns };
        sums.push((sum_ns + runnable_ns, count + u64::from(runnable_ns != 0)));
    }
    let around = |at: usize| {
        let (first, end) = (sums[at.saturating_sub(AROUND)], sums[(at + AROUND + 1).min(slots.len())]);
        whole(0, (end.0 - first.0).checked_div(end.1 - first.1).unwrap_or(0), slot_ns)
    };
    // Below one CPU, the others would not run beside it.
    let throttled = (0..slots.len()).filter(|at| is_throttled[*at]).map(|at| (at, around(at)));
    throttled
        .filter(|(at, usual_ns)| *usual_ns > slot_ns.max(slots[*at].ran_ns + slots[*at].waited_ns))
        .collect()
}

/// Raises the demand of slots in which a quota was used up to what is usual around them.
fn raise_throttled(slots: &mut [Slot], is_throttled: &[bool], slot_ns: u64) {
    for (at, usual_ns) in usual(slots, is_throttled, slot_ns) {
        let slot = &mut slots[at];
        if slot.ran_ns != 0 {
            slot.waited_ns = usual_ns - slot.ran_ns;
        }
    }
}

/// Raises the demand of all slots to that of the busiest ones, and leaves out those in which nobody ran.
fn raise_all(slots: &mut [Slot], slot_ns: u64) {
    let runnable_ns = |slot: &Slot| slot.ran_ns + slot.waited_ns;
    let mut all: Vec<u64> = slots.iter().map(runnable_ns).filter(|ns| *ns != 0).collect();
    all.sort_unstable();
    let Some(most_ns) = all.get(all.len() * 95 / 100).map(|ns| whole(0, *ns, slot_ns)) else { return };
    for slot in slots {
        // All of a slot, or they would sleep in the rest.
        slot.waited_ns = most_ns.max(slot_ns).saturating_sub(slot.ran_ns).max(1);
    }
}

impl<'h> Demand<'h> {
    pub(crate) fn own(&self) -> Option<&Part<'h>> {
        self.family[self.target.at].as_ref()
    }

    fn known(&self) -> impl Iterator<Item = &Part<'h>> {
        self.family.iter().flatten()
    }

    /// The target's own, and those of the cgroups below it.
    fn below(&self) -> impl Iterator<Item = &Part<'h>> {
        let is_below = move |at: usize| {
            iter::successors(Some(at), |at| self.target.family[*at].1).any(|at| at == self.target.at)
        };
        let parts = self.family.iter().enumerate().filter(move |(at, _)| is_below(*at));
        parts.filter_map(|(_, part)| part.as_ref())
    }

    fn shift(&self) -> u32 {
        self.known().map(|part| part.shift).max().unwrap_or(SHORTEST)
    }

    /// A quota, period or burst was changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.known().any(Part::has_changed)
    }

    pub(crate) fn ran_ns(&self) -> u64 {
        if self.below().any(|part| part.cgroup.is_dropped) {
            return 0;
        }
        let ran_ns = |part: &Part<'h>| -> u64 {
            let length = (self.span_ns >> part.shift) as usize;
            part.joined(part.shift).take(length).map(|slot| slot.ran_ns).sum()
        };
        self.below().map(ran_ns).sum()
    }

    /// Whether the memory suffices to simulate these cgroups together.
    pub(crate) fn is_bounded(&self) -> bool {
        self.simulated_slots() <= MOST_SIMULATED
    }

    fn simulated_slots(&self) -> u64 {
        (self.span_ns >> self.shift()).saturating_mul(self.family.len() as u64)
    }

    /// What the recording shows about arrivals: the loops that it does not contradict for the target, or the one that is known; and for each
    /// cgroup whether requests queue in the program. From whole slots: where work was in a slot is a guess.
    pub(crate) fn arrivals(&self, known: Option<Loop>) -> (Vec<Loop>, Vec<bool>) {
        let mut loops = known.map_or_else(|| Loop::BOTH.to_vec(), |known| vec![known]);
        let mut has_queue = |(at, part): (usize, &Option<Part<'h>>)| {
            let part = part.as_ref()?;
            let (profile, limit) = (self.profile(part), part.limit());
            let is_own = at == self.target.at;
            if is_own && known.is_none() {
                loops = profile.loops(limit.as_ref());
            }
            // Requests on a clock are where they came, or wait for a quota above.
            let may_queue = || is_own && known == Some(Loop::Open) && profile.loops(None) != [Loop::Open];
            Some(profile.has_queue(&limit?).unwrap_or_else(may_queue))
        };
        let queues = self.family.iter().enumerate().map(|part| has_queue(part).unwrap_or(false)).collect();
        (loops, queues)
    }

    /// The demand of a cgroup, with stalls by quotas alone: work that takes long also waits long for CPUs.
    fn profile(&self, part: &Part<'h>) -> Profile {
        let slot_ns = 1 << part.shift;
        let slots = part.joined(part.shift).take((self.span_ns >> part.shift) as usize);
        let slots = slots
            .map(|slot| simulated(DemandSlot { waited_ns: 0, ..slot }, slot_ns, Assumption::NeighboursYield));
        Profile { slot_ns, slots: slots.collect() }
    }

    pub(crate) fn runnable(&self) -> Runnable {
        let shift = self.below().map(|part| part.shift).max().unwrap_or(SHORTEST);
        let length = (self.span_ns >> shift) as usize;
        let mut all = Runnable { slot_ns: 1 << shift, ..Runnable::default() };
        let mut sums = vec![(DemandSlot::default(), 0); length];
        let cpus_ns = self.cpus() as u64 * all.slot_ns;
        for part in self.below() {
            let (slots, is_throttled) = part.simulated(shift, length, Assumption::NeighboursYield);
            let usual = usual(&slots, &is_throttled, all.slot_ns).into_iter();
            all.slept_ns += usual.map(|(at, ns)| ns - slots[at].ran_ns - slots[at].waited_ns).sum::<u64>();
            for ((sum, usable), slot) in sums.iter_mut().zip(part.joined(shift)) {
                (*sum, *usable) = (joined(*sum, slot), usable_ns(&slot, cpus_ns).max(*usable));
            }
        }
        for (slot, usable_ns) in sums {
            all.slots_ns.push(slot.ran_ns + slot.throttled_ns + slot.waited_ns);
            all.ran_ns += slot.ran_ns;
            all.waited_ns += slot.waited_ns.min(usable_ns.saturating_sub(slot.ran_ns));
            all.presumed_ns += slot.presumed_ns;
        }
        all
    }

    /// The tree of these cgroups. `has_queue`: as from [`Self::arrivals`].
    pub(crate) fn tree(&self, has_queue: &[bool], assumption: Assumption) -> Tree {
        let shift = self.shift();
        let length = (self.span_ns >> shift) as usize;
        // A long time has enough bursts that what happens within slots evens out; many cgroups would take too much memory.
        let is_refined = self.span_ns <= REFINED_NS && self.simulated_slots() <= MOST_SIMULATED / 4;
        let parts = if is_refined { 4 } else { 1 };
        let node = |(at, part): (usize, &Option<Part<'h>>)| {
            let (mut slots, is_throttled) =
                part.as_ref().map(|part| part.simulated(shift, length, assumption)).unwrap_or_default();
            if assumption != Assumption::NeighboursStay {
                raise_throttled(&mut slots, &is_throttled, 1 << shift);
            }
            if assumption == Assumption::AlwaysBusy {
                raise_all(&mut slots, 1 << shift);
            }
            let mut profile = Profile { slot_ns: 1 << shift, slots };
            if has_queue[at] {
                profile = profile.unqueued();
            }
            Node {
                parent: self.target.family[at].1,
                limit: part.as_ref().and_then(Part::limit),
                threads: None,
                profile: profile.refined(parts),
            }
        };
        Tree { nodes: self.family.iter().enumerate().map(node).collect(), capacity: self.cpus() }
    }

    /// The most CPUs that the target can use.
    pub(crate) fn cpus(&self) -> f64 {
        let cpuset = self.known().filter_map(|part| part.last.cpus).max().unwrap_or(self.host_cpus);
        f64::from(cpuset.min(self.host_cpus).max(1))
    }

    pub(crate) fn limits(&self) -> Vec<Option<Limit>> {
        self.family.iter().map(|part| part.as_ref()?.limit()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two CPUs, slots of 100 ns.
    #[test]
    fn a_wait_behind_own_tasks_is_not_due_to_others() {
        let of = |ran_ns, waited_ns, throttled_ns| {
            usable_ns(&DemandSlot { ran_ns, waited_ns, throttled_ns, ..DemandSlot::default() }, 200)
        };
        // Nine tasks have both CPUs for all of the slot, and for half of it. They use all that they can.
        assert_eq!([of(200, 700, 0), of(100, 350, 450)], [200, 100]);
        // They have one of the CPUs. One task waits; one is throttled at the end, or all the time; nobody is there.
        assert_eq!(
            [of(100, 800, 0), of(40, 60, 0), of(20, 60, 20), of(0, 0, 100), of(0, 0, 0)],
            [200, 200, 160, 0, 0]
        );
    }
}
