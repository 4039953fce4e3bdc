//! What a recording has of cgroups with a quota: their demand, their limits and the kernel's own counters.

use std::collections::{BTreeMap, BTreeSet};

use cgscope_model::{CgroupReading, DemandReading, DemandSlot, Sample};
use cgscope_whatif::{Limit, Node, Profile, Slot, Tree};

/// Maximum length of a history: an hour in the longest slots.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A cgroup with a quota.
#[derive(Clone, Debug)]
pub struct Cgroup {
    slots: Vec<DemandSlot>,
    shift: u32,
    first: CgroupReading,
    last: CgroupReading,
    /// The quota, the period or the burst was changed during the recording.
    pub has_changed: bool,
}

/// Cgroups with a quota over the same time.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The cgroups to keep; `None`: all.
    chosen: Option<BTreeSet<u64>>,
    pub cgroups: BTreeMap<u64, Cgroup>,
    begin_ns: Option<u64>,
    end_ns: u64,
    /// CPUs of the host.
    cpus: u32,
    /// A sample had no demand.
    pub has_gaps: bool,
}

impl Cgroup {
    fn new(reading: &CgroupReading) -> Self {
        Self {
            slots: Vec::new(),
            shift: 0,
            first: reading.clone(),
            last: reading.clone(),
            has_changed: false,
        }
    }

    /// The limit at the end; `None`: it had none then.
    pub fn limit(&self) -> Option<Limit> {
        let (quota_us, period_us) = (self.last.quota_us?, self.last.period_us?);
        let burst_ns = self.last.burst_us.unwrap_or(0).saturating_mul(1_000);
        let limit = Limit {
            quota_ns: quota_us.checked_mul(1_000)?,
            period_ns: period_us.checked_mul(1_000)?,
            burst_ns,
        };
        (limit.quota_ns != 0 && limit.period_ns != 0).then_some(limit)
    }

    /// The increase of its counters, with the limits at the end.
    pub fn counted(&self) -> CgroupReading {
        self.last.since(Some(&self.first))
    }

    /// CPU time of its own tasks, ns.
    pub fn ran_ns(&self) -> u64 {
        self.slots.iter().map(|slot| slot.ran_ns).sum()
    }

    fn take(&mut self, reading: &CgroupReading) {
        let limit = |reading: &CgroupReading| [reading.quota_us, reading.period_us, reading.burst_us];
        self.has_changed |= limit(reading) != limit(&self.last);
        self.last = reading.clone();
    }

    /// Adds slots. `begin_ns`: the start of the history.
    fn add(&mut self, demand: &DemandReading, begin_ns: u64) {
        self.shift = demand.slot_shift.min(40);
        let begin = begin_ns >> self.shift;
        let longest = (LONGEST_NS >> self.shift) as usize;
        demand.each_slot(|number, more| {
            let at = number.wrapping_sub(begin) as usize;
            if at >= longest {
                return;
            }
            if at >= self.slots.len() {
                self.slots.resize(at + 1, DemandSlot::default());
            }
            add(&mut self.slots[at], more);
        });
    }

    /// The slots, each joined from several to 2^`shift` ns, until `length`.
    fn joined(&self, shift: u32, length: usize) -> Vec<DemandSlot> {
        let mut slots = vec![DemandSlot::default(); length];
        let by = 1usize << shift.saturating_sub(self.shift).min(20);
        for (slot, parts) in slots.iter_mut().zip(self.slots.chunks(by)) {
            parts.iter().for_each(|part| add(slot, *part));
        }
        slots
    }
}

/// What a cgroup would do about waits for CPUs that others had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// They let it run: such waits end.
    Yield,
    /// They make it wait as before.
    Stay,
}

/// A slot of demand for the simulation.
fn simulated(slot: DemandSlot, slot_ns: u64, neighbours: Neighbours) -> Slot {
    let DemandSlot { ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns } = slot;
    let active_ns = ran_ns + waited_ns;
    let (mut late_ns, mut presumed_ns) = (throttled_ns + waited_ns, presumed_ns);
    if neighbours == Neighbours::Stay && active_ns != 0 {
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

/// Reduces `more_ns` if the sum is a little more than a whole number of CPUs: each amount was rounded to a 16th of a slot.
fn whole(ns: u64, more_ns: u64, slot_ns: u64) -> u64 {
    let sum_ns = ns + more_ns;
    let over_ns = sum_ns % slot_ns;
    if sum_ns > slot_ns && over_ns <= slot_ns / 8 { more_ns.saturating_sub(over_ns) } else { more_ns }
}

fn add(slot: &mut DemandSlot, more: DemandSlot) {
    slot.ran_ns += more.ran_ns;
    slot.wanted_ns += more.wanted_ns;
    slot.throttled_ns += more.throttled_ns;
    slot.waited_ns += more.waited_ns;
    slot.presumed_ns += more.presumed_ns;
}

impl History {
    /// A history of these cgroups only.
    pub fn of(chosen: BTreeSet<u64>) -> Self {
        Self { chosen: Some(chosen), ..Self::default() }
    }

    /// Adds the next sample.
    pub fn add(&mut self, sample: &Sample) {
        let Some(now_ns) = sample.demand_until_ns else {
            self.has_gaps = true;
            return;
        };
        let is_first = self.begin_ns.is_none();
        let begin_ns = *self.begin_ns.get_or_insert(now_ns);
        self.end_ns = now_ns;
        let is_chosen = |id: u64| self.chosen.as_ref().is_none_or(|chosen| chosen.contains(&id));
        for reading in
            sample.limits.iter().filter(|reading| reading.quota_us.is_some() && is_chosen(reading.id))
        {
            self.cgroups.entry(reading.id).or_insert_with(|| Cgroup::new(reading)).take(reading);
        }
        if !is_first {
            for demand in &sample.demand {
                if let Some(cgroup) = self.cgroups.get_mut(&demand.cgroup_id) {
                    cgroup.add(demand, begin_ns);
                }
            }
        }
        self.cpus = self.cpus.max(sample.cpus.len() as u32);
    }

    /// The time covered, ns.
    pub fn span_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns.unwrap_or(self.end_ns)).min(LONGEST_NS)
    }

    /// The tree of these cgroups, whose parents come before their children, each with its parent's index.
    pub fn tree(&self, family: &[(u64, Option<usize>)], neighbours: Neighbours) -> Tree {
        let known = || family.iter().filter_map(|(id, _)| self.cgroups.get(id));
        let shift = known().map(|cgroup| cgroup.shift).max().unwrap_or(0).max(22);
        let length = (self.span_ns() >> shift) as usize;
        let node = |(id, parent): &(u64, Option<usize>)| {
            let cgroup = self.cgroups.get(id);
            let slots = cgroup.map(|cgroup| cgroup.joined(shift, length)).unwrap_or_default();

            let slots = slots.into_iter().map(|slot| simulated(slot, 1 << shift, neighbours)).collect();
            let profile = Profile { slot_ns: 1 << shift, slots };
            Node { parent: *parent, limit: cgroup.and_then(Cgroup::limit), threads: None, profile }
        };
        let cpuset = known().filter_map(|cgroup| cgroup.last.cpus).max().unwrap_or(self.cpus);
        Tree {
            nodes: family.iter().map(node).collect(),
            capacity: vec![f64::from(cpuset.min(self.cpus).max(1))],
        }
    }
}
