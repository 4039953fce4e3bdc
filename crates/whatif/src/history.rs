//! What a recording has of cgroups with a quota: their demand, their limits and the kernel's own counters.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use crate::{Limit, Loop, Node, Profile, Slot, Tree};
use cgscope_model::{CgroupReading, DemandReading, DemandSlot, Sample, demand};

/// Maximum length of a history: an hour in the longest slots.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Maximum length of a history whose slots are divided for the simulation.
const REFINED_NS: u64 = 600_000_000_000;

/// No kernel allows longer quotas, periods and bursts: `max_cfs_runtime`, which is 2^44 us (`kernel/sched/core.c`, Linux 5.14).
pub const MOST_US: u64 = 1 << 44;
/// Maximum number of slots of all cgroups together: 200 MB. What comes later is left out, and its cgroups are refused as incomplete.
const MOST_SLOTS: usize = 10_000_000;
/// Maximum number of slots of a simulated tree, of 32 bytes: some of these are needed at a time, on up to four threads.
const MOST_SIMULATED: u64 = 2_000_000;
/// Slots are at least 2^22 ns long: 4 ms.
const SHORTEST: u32 = 22;
/// Maximum number of tasks that one slot may claim, so that no sum overflows.
const MOST_TASKS: u64 = 1 << 13;

/// A cgroup with a quota.
#[derive(Clone, Debug)]
pub struct Cgroup {
    slots: Vec<Packed>,
    shift: u32,
    first: CgroupReading,
    /// The reading before the latest one.
    last: CgroupReading,
    latest: CgroupReading,
    /// The quota, the period or the burst was changed during the recording.
    pub has_changed: bool,
}

/// A [`DemandSlot`] in half the memory: recorded amounts are 32nds of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Packed([u32; 5]);

impl Packed {
    fn of(slot: DemandSlot, shift: u32) -> Self {
        let DemandSlot { ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns } = slot;
        let amounts = [ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns];
        // Sums are limited to `MOST_TASKS`, which is 2^18 parts.
        Self(amounts.map(|ns| u32::try_from(demand::parts(ns, shift)).unwrap_or(u32::MAX)))
    }

    fn slot(self, shift: u32) -> DemandSlot {
        let [ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns] =
            self.0.map(|parts| demand::ns_of(parts.into(), shift));
        DemandSlot { ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns }
    }
}

/// Cgroups with a quota over the same time.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The cgroups to keep; `None`: all.
    chosen: Option<BTreeSet<u64>>,
    /// The cgroups by id.
    pub cgroups: BTreeMap<u64, Cgroup>,
    samples: u64,
    begin_ns: Option<u64>,
    end_ns: u64,
    /// The time of the latest sample.
    now_ns: u64,
    /// CPUs of the host.
    cpus: u32,
    /// A sample had no demand.
    pub has_gaps: bool,
    /// Maximum number of slots of all cgroups together; `None`: [`MOST_SLOTS`].
    most: Option<usize>,
    /// There was no room for some slots.
    pub is_cut: bool,
}

impl Cgroup {
    fn new(reading: &CgroupReading) -> Self {
        Self {
            slots: Vec::new(),
            shift: SHORTEST,
            first: reading.clone(),
            last: reading.clone(),
            latest: reading.clone(),
            has_changed: false,
        }
    }

    /// The limit at the end; `None`: it had none then.
    pub fn limit(&self) -> Option<Limit> {
        let us = [self.last.quota_us?, self.last.period_us?, self.last.burst_us.unwrap_or(0)];
        if us[0] == 0 || us[1] == 0 || us.iter().any(|us| *us > MOST_US) {
            return None;
        }
        let [quota_ns, period_ns, burst_ns] = us.map(|us| us * 1_000);
        Some(Limit { quota_ns, period_ns, burst_ns })
    }

    /// The increase of its counters, with the limits at the end.
    pub fn counted(&self) -> CgroupReading {
        self.last.since(Some(&self.first))
    }

    /// CPU time of its own tasks in the first `span_ns`, ns.
    pub fn ran_ns(&self, span_ns: u64) -> u64 {
        let slots = self.slots.iter().take((span_ns >> self.shift) as usize);
        slots.map(|slot| slot.slot(self.shift).ran_ns).sum()
    }

    fn take(&mut self, reading: &CgroupReading) {
        let limit = |reading: &CgroupReading| [reading.quota_us, reading.period_us, reading.burst_us];
        self.has_changed |= limit(reading) != limit(&self.latest);
        self.latest = reading.clone();
    }

    /// The latest reading becomes the one before.
    fn step(&mut self) {
        self.last = self.latest.clone();
    }

    /// Adds slots until now. `begin_ns`: the start of the history; `room`: the number of slots that may be new. Returns what is left of
    /// it.
    fn add(&mut self, demand: &DemandReading, begin_ns: u64, now_ns: u64, room: usize) -> usize {
        // A hostile recording may have very short slots, of which an hour would fill the memory.
        self.shift = demand.slot_shift.clamp(SHORTEST, 40);
        let begin = begin_ns >> self.shift;
        // A busy loop counts up to the present, which may be a slot later than the reading.
        let longest = ((now_ns.saturating_sub(begin_ns).min(LONGEST_NS) >> self.shift) + 2) as usize;
        let before = self.slots.len();
        demand.each_slot(|number, more| {
            let at = number.wrapping_sub(begin) as usize;
            if at >= longest || at >= before + room {
                return;
            }
            if at >= self.slots.len() {
                self.slots.resize(at + 1, Packed::default());
            }
            let mut slot = self.slots[at].slot(self.shift);
            add(&mut slot, more, MOST_TASKS << self.shift);
            self.slots[at] = Packed::of(slot, self.shift);
        });
        room - (self.slots.len() - before)
    }

    /// The slots for the simulation, and those in which tasks were throttled.
    fn simulated(&self, shift: u32, length: usize, assumption: Assumption) -> (Vec<Slot>, Vec<bool>) {
        let slots = self.joined(shift, length);
        slots.map(|slot| (simulated(slot, 1 << shift, assumption), slot.throttled_ns != 0)).unzip()
    }

    /// The slots, each joined from several to 2^`shift` ns, until `length`.
    fn joined(&self, shift: u32, length: usize) -> impl Iterator<Item = DemandSlot> + '_ {
        let by = 1usize << shift.saturating_sub(self.shift).min(20);
        let sum = move |parts: &[Packed]| {
            let mut slot = DemandSlot::default();
            parts.iter().for_each(|part| add(&mut slot, part.slot(self.shift), MOST_TASKS << shift));
            slot
        };
        self.slots.chunks(by).map(sum).chain(iter::repeat(DemandSlot::default())).take(length)
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

/// How many tasks could run.
#[derive(Clone, Debug, Default)]
pub struct Runnable {
    /// Length of a slot, ns.
    pub slot_ns: u64,
    /// Time that tasks ran or waited in each slot, ns.
    pub slots_ns: Vec<u64>,
    /// Time that tasks ran, ns.
    pub ran_ns: u64,
    /// Time that tasks waited for CPUs, ns.
    pub waited_ns: u64,
    /// What busy loops would have run besides, ns.
    pub presumed_ns: u64,
    /// Time that tasks slept while others were throttled, although they usually run, ns.
    pub slept_ns: u64,
}

/// A slot of demand for the simulation.
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

fn add(slot: &mut DemandSlot, more: DemandSlot, most_ns: u64) {
    let add = |sum: &mut u64, ns: u64| *sum = sum.saturating_add(ns).min(most_ns);
    add(&mut slot.ran_ns, more.ran_ns);
    add(&mut slot.wanted_ns, more.wanted_ns);
    add(&mut slot.throttled_ns, more.throttled_ns);
    add(&mut slot.waited_ns, more.waited_ns);
    add(&mut slot.presumed_ns, more.presumed_ns);
}

impl History {
    /// A history of these cgroups only.
    pub fn of(chosen: BTreeSet<u64>) -> Self {
        Self { chosen: Some(chosen), ..Self::default() }
    }

    /// A history of all cgroups, while they have at most this many slots together, of 20 bytes.
    pub fn within(slots: usize) -> Self {
        Self { most: Some(slots), ..Self::default() }
    }

    /// It keeps all of these cgroups.
    pub fn has(&self, ids: &BTreeSet<u64>) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| ids.is_subset(chosen))
    }

    /// Adds the next sample. What came before the second one is left out, because cgroups get their slots with the first; and what comes
    /// with the last one, because tasks that run at its end are not counted yet.
    pub fn add(&mut self, sample: &Sample) {
        let Some(now_ns) = sample.demand_until_ns else {
            self.has_gaps = true;
            return;
        };
        if self.begin_ns.is_some_and(|begin_ns| self.now_ns.saturating_sub(begin_ns) > LONGEST_NS) {
            // The counters must be of the same time as the slots.
            return;
        }
        self.samples += 1;
        self.end_ns = std::mem::replace(&mut self.now_ns, now_ns);
        for cgroup in self.cgroups.values_mut() {
            cgroup.step();
        }
        if self.samples < 2 {
            return;
        }
        let begin_ns = *self.begin_ns.get_or_insert(now_ns);
        let is_chosen = |id: u64| self.chosen.as_ref().is_none_or(|chosen| chosen.contains(&id));
        for reading in sample.limits.iter().filter(|reading| is_chosen(reading.id)) {
            if reading.quota_us.is_some() {
                self.cgroups.entry(reading.id).or_insert_with(|| Cgroup::new(reading)).take(reading);
            } else if let Some(cgroup) = self.cgroups.get_mut(&reading.id) {
                cgroup.has_changed = true;
            }
        }
        if self.samples > 2 {
            let most = self.most.unwrap_or(MOST_SLOTS);
            let mut room = most.saturating_sub(self.cgroups.values().map(|cgroup| cgroup.slots.len()).sum());
            for demand in &sample.demand {
                if let Some(cgroup) = self.cgroups.get_mut(&demand.cgroup_id) {
                    room = cgroup.add(demand, begin_ns, now_ns, room);
                    self.is_cut |= room == 0;
                }
            }
        }
        self.cpus = self.cpus.max(sample.cpus.len() as u32);
    }

    /// The time covered, ns.
    pub fn span_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns.unwrap_or(self.end_ns)).min(LONGEST_NS)
    }

    /// How many parts of a slot are simulated. A long history has enough bursts that what happens within slots evens out; many
    /// cgroups would take too much memory.
    fn refinement(&self, slots: u64) -> u32 {
        if self.span_ns() <= REFINED_NS && slots <= MOST_SIMULATED / 4 { 4 } else { 1 }
    }

    /// Whether the memory suffices to simulate these cgroups together for this time.
    pub fn is_bounded(&self, family: &[(u64, Option<usize>)]) -> bool {
        self.simulated_slots(family) <= MOST_SIMULATED
    }

    fn simulated_slots(&self, family: &[(u64, Option<usize>)]) -> u64 {
        let known = family.iter().filter_map(|(id, _)| self.cgroups.get(id));
        let shift = known.map(|cgroup| cgroup.shift).max().unwrap_or(SHORTEST);
        (self.span_ns() >> shift).saturating_mul(family.len() as u64)
    }

    /// What the recording shows about arrivals: the loops that it does not contradict for the cgroup at `own`, or the one that is known; and
    /// for each cgroup whether requests queue in the program. From whole slots: where work was in a slot is a guess.
    pub fn arrivals(
        &self,
        family: &[(u64, Option<usize>)],
        own: usize,
        known: Option<Loop>,
    ) -> (Vec<Loop>, Vec<bool>) {
        let mut loops = known.map_or_else(|| Profile::default().loops(None), |known| vec![known]);
        let mut has_queue = |(at, (id, _)): (usize, &(u64, Option<usize>))| {
            let cgroup = self.cgroups.get(id)?;
            let (profile, limit) = (self.profile(cgroup), cgroup.limit());
            if at == own && known.is_none() {
                loops = profile.loops(limit.as_ref());
            }
            // Requests on a clock are where they came, or wait for a quota above.
            let may_queue = || at == own && known == Some(Loop::Open) && profile.loops(None) != [Loop::Open];
            Some(profile.has_queue(&limit?).unwrap_or_else(may_queue))
        };
        let queues = family.iter().enumerate().map(|cgroup| has_queue(cgroup).unwrap_or(false)).collect();
        (loops, queues)
    }

    /// The demand of a cgroup, with stalls by quotas alone: work that takes long also waits long for CPUs.
    fn profile(&self, cgroup: &Cgroup) -> Profile {
        let length = (self.span_ns() >> cgroup.shift) as usize;
        let slot_ns = 1 << cgroup.shift;
        let without_waits = |slot| DemandSlot { waited_ns: 0, ..slot };
        let slots = cgroup.joined(cgroup.shift, length).map(without_waits);
        let slots = slots.map(|slot| simulated(slot, slot_ns, Assumption::NeighboursYield));
        Profile { slot_ns, slots: slots.collect() }
    }

    /// How many tasks of these cgroups could run.
    pub fn runnable(&self, ids: impl Iterator<Item = u64>) -> Runnable {
        let cgroups: Vec<&Cgroup> = ids.filter_map(|id| self.cgroups.get(&id)).collect();
        let shift = cgroups.iter().map(|cgroup| cgroup.shift).max().unwrap_or(SHORTEST);
        let length = (self.span_ns() >> shift) as usize;
        let mut all = Runnable { slot_ns: 1 << shift, slots_ns: vec![0; length], ..Runnable::default() };
        for cgroup in cgroups {
            let (slots, is_throttled) = cgroup.simulated(shift, length, Assumption::NeighboursYield);
            let usual = usual(&slots, &is_throttled, all.slot_ns).into_iter();
            all.slept_ns += usual.map(|(at, ns)| ns - slots[at].ran_ns - slots[at].waited_ns).sum::<u64>();
            for (sum_ns, slot) in all.slots_ns.iter_mut().zip(cgroup.joined(shift, length)) {
                *sum_ns += slot.ran_ns + slot.throttled_ns + slot.waited_ns;
                all.ran_ns += slot.ran_ns;
                all.waited_ns += slot.waited_ns;
                all.presumed_ns += slot.presumed_ns;
            }
        }
        all
    }

    /// The tree of these cgroups, whose parents come before their children, each with its parent's index. `has_queue`: as from
    /// [`Self::arrivals`].
    pub fn tree(&self, family: &[(u64, Option<usize>)], has_queue: &[bool], assumption: Assumption) -> Tree {
        let known = || family.iter().filter_map(|(id, _)| self.cgroups.get(id));
        let shift = known().map(|cgroup| cgroup.shift).max().unwrap_or(SHORTEST);
        let length = (self.span_ns() >> shift) as usize;
        let refinement = self.refinement(self.simulated_slots(family));
        let node = |((id, parent), has_queue): (&(u64, Option<usize>), &bool)| {
            let cgroup = self.cgroups.get(id);
            let (mut slots, is_throttled) =
                cgroup.map(|cgroup| cgroup.simulated(shift, length, assumption)).unwrap_or_default();
            if assumption != Assumption::NeighboursStay {
                raise_throttled(&mut slots, &is_throttled, 1 << shift);
            }
            if assumption == Assumption::AlwaysBusy {
                raise_all(&mut slots, 1 << shift);
            }
            let limit = cgroup.and_then(Cgroup::limit);
            let mut profile = Profile { slot_ns: 1 << shift, slots };
            if *has_queue {
                profile = profile.unqueued();
            }
            Node { parent: *parent, limit, threads: None, profile: profile.refined(refinement) }
        };
        let cpuset = known().filter_map(|cgroup| cgroup.last.cpus).max().unwrap_or(self.cpus);
        Tree {
            nodes: family.iter().zip(has_queue).map(node).collect(),
            capacity: vec![f64::from(cpuset.min(self.cpus).max(1))],
        }
    }
}

#[cfg(test)]
mod tests;
