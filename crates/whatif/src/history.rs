//! What samples have of cgroups with a quota: their demand, their limits and the kernel's own counters.
//!
//! Time is divided into blocks. Only the blocks of some windows of ten minutes are kept, so that a recording may have any length.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::RangeBounds,
    sync::Arc,
};

use cgscope_model::{CgroupReading, DemandReading, DemandSlot, Sample, demand::ns_of};

use crate::{
    answer::Target,
    demand::{Demand, Part},
};

/// Binary logarithm of the length of a block, ns: 69 s.
pub(crate) const BLOCK_SHIFT: u32 = 36;
/// Number of blocks in a window: ten minutes.
pub(crate) const WINDOW: u64 = 9;
/// Slots are at least 2^22 ns long: 4 ms.
pub(crate) const SHORTEST: u32 = 22;
/// Maximum number of slots of all cgroups together, of 10 bytes: 100 MB. It suffices for a window of 256 cgroups with slots of 17 ms.
const MOST_SLOTS: usize = 10_000_000;

/// What a [`DemandReading`] lists of a slot, in its order. Each amount is limited to that of 2,047 tasks.
type Amounts = [u16; 5];

/// Memory of a block without its slots, in slots.
const BLOCK_SLOTS: usize = 50;

/// The quota, the period and the burst, us.
pub(crate) fn limit_us(reading: &CgroupReading) -> [Option<u64>; 3] {
    [reading.quota_us, reading.period_us, reading.burst_us]
}

/// A cgroup in one block of time.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub first: CgroupReading,
    /// The quota, the period or the burst was changed.
    pub has_changed: bool,
    /// Binary logarithm of the length of a slot, ns.
    pub shift: u32,
    slots: Vec<Amounts>,
}

impl Block {
    fn new(first: &CgroupReading) -> Self {
        Self { first: first.clone(), has_changed: false, shift: SHORTEST, slots: Vec::new() }
    }

    pub fn slots(&self) -> impl Iterator<Item = DemandSlot> {
        let ns = |parts: u16| ns_of(parts.into(), self.shift);
        self.slots.iter().map(move |[ran, wanted, useful, throttled, runnable]| DemandSlot {
            ran_ns: ns(*ran),
            wanted_ns: ns(*wanted),
            throttled_ns: ns(*throttled),
            waited_ns: ns(runnable.saturating_sub(*ran).saturating_sub(*throttled)),
            presumed_ns: ns(useful.saturating_sub(*wanted)),
        })
    }
}

/// A cgroup with a quota.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cgroup {
    /// By number: those of the latest window, and of the busiest windows of all cgroups that share a quota with this one.
    pub blocks: BTreeMap<u64, Block>,
    /// The reading before the latest one.
    pub last: CgroupReading,
    latest: CgroupReading,
    /// The path of the topmost cgroup with a quota at or above this one.
    root: Arc<str>,
    /// The window with the largest run and throttled time: this time, ns, and the window's first block.
    busiest: (u64, u64),
    throttled_before_ns: u64,
    /// There was no room for its demand.
    pub is_dropped: bool,
}

impl Cgroup {
    fn new(reading: &CgroupReading, oldest: u64) -> Self {
        Self {
            last: reading.clone(),
            latest: reading.clone(),
            busiest: (0, oldest),
            throttled_before_ns: reading.throttled_ns.unwrap_or(0),
            ..Self::default()
        }
    }

    fn take(&mut self, reading: &CgroupReading, block: u64) {
        let block = self.blocks.entry(block).or_insert_with(|| Block::new(reading));
        block.has_changed |= limit_us(reading) != limit_us(&self.latest);
        self.latest = reading.clone();
    }

    /// The latest reading becomes the one before. `oldest`: the first block of the latest window.
    fn step(&mut self, oldest: u64) {
        self.last = self.latest.clone();
        let busy_ns = |reading: &CgroupReading| {
            reading.usage_ns.unwrap_or(0).saturating_add(reading.throttled_ns.unwrap_or(0))
        };
        if let Some((_, block)) = self.blocks.range(oldest..).next() {
            let busy_ns = busy_ns(&self.last).saturating_sub(busy_ns(&block.first));
            if busy_ns >= self.busiest.0 {
                self.busiest = (busy_ns, oldest);
            }
        }
    }

    /// Adds slots until now. Returns how many are new. `begin_ns`: the start of the history; `oldest`: the first block of the latest window.
    fn add(&mut self, demand: &DemandReading, begin_ns: u64, now_ns: u64, oldest: u64) -> usize {
        if self.is_dropped {
            return 0;
        }
        // A hostile recording may have very short slots, which would fill the memory.
        let shift = demand.slot_shift.clamp(SHORTEST, BLOCK_SHIFT);
        let begin = demand.first.wrapping_sub(begin_ns >> shift);
        // A busy loop counts up to the present, which may be a slot later than the reading.
        let end = (now_ns.saturating_sub(begin_ns) >> shift) + 2;
        let at = |part: &(u32, u64)| begin.wrapping_add(part.0.into());
        let block_of = |part: &(u32, u64)| at(part) >> (BLOCK_SHIFT - shift);
        let DemandReading { ran, wanted, useful, throttled, runnable, .. } = demand;
        let mut added = 0;
        for (place, list) in [ran, wanted, useful, throttled, runnable].into_iter().enumerate() {
            let mut left = &list[list.partition_point(|part| at(part).cast_signed() < 0)..];
            left = &left[..left.partition_point(|part| at(part) < end)];
            while let Some(number) = left.first().map(block_of) {
                let parts;
                (parts, left) = left.split_at(left.partition_point(|part| block_of(part) == number));
                if number < oldest && !self.blocks.contains_key(&number) {
                    continue;
                }
                let block = self.blocks.entry(number).or_insert_with(|| Block::new(&self.latest));
                if block.slots.is_empty() {
                    block.shift = shift;
                } else if block.shift != shift {
                    block.has_changed = true;
                    continue;
                }
                let before = block.slots.len();
                let place_of = |part: &(u32, u64)| (at(part) - (number << (BLOCK_SHIFT - shift))) as usize;
                let until = parts.last().map_or(0, |last| place_of(last) + 1);
                block.slots.resize(until.max(before), Amounts::default());
                for part in parts {
                    let amount = &mut block.slots[place_of(part)][place];
                    *amount = amount.saturating_add(part.1.min(u16::MAX.into()) as u16);
                }
                added += block.slots.len() - before;
            }
        }
        added
    }

    fn slots(&self, blocks: impl RangeBounds<u64>) -> usize {
        self.blocks.range(blocks).map(|(_, block)| block.slots.len() + BLOCK_SLOTS).sum()
    }

    fn throttled_ns(&self) -> u64 {
        self.latest.throttled_ns.unwrap_or(0).saturating_sub(self.throttled_before_ns)
    }
}

/// Cgroups with a quota over the same time.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The cgroups to keep; `None`: all.
    chosen: Option<BTreeSet<u64>>,
    /// Keeps the latest window alone.
    is_latest: bool,
    pub(crate) cgroups: BTreeMap<u64, Cgroup>,
    samples: u64,
    started_ns: u64,
    begin_ns: u64,
    end_ns: u64,
    now_ns: u64,
    block: u64,
    /// Number of slots of all cgroups at the start of the block, and of those that came since. Each block counts as some, too.
    slots: usize,
    cpus: u32,
    /// A sample had no demand.
    pub has_gaps: bool,
}

impl History {
    pub fn of(chosen: BTreeSet<u64>) -> Self {
        Self { chosen: Some(chosen), ..Self::default() }
    }

    /// A history of the latest window of these cgroups.
    pub fn latest_of(chosen: BTreeSet<u64>) -> Self {
        Self { is_latest: true, ..Self::of(chosen) }
    }

    /// Adds the next sample. What came before the second one is left out, because cgroups get their slots with the first; and what comes
    /// with the last one, because tasks that run at its end are not counted yet.
    pub fn add(&mut self, sample: &Sample) {
        let Some(now_ns) = sample.demand_until_ns else {
            self.has_gaps = true;
            return;
        };
        self.samples += 1;
        self.end_ns = std::mem::replace(&mut self.now_ns, now_ns);
        let oldest = self.oldest();
        self.cgroups.values_mut().for_each(|cgroup| cgroup.step(oldest));
        match self.samples {
            1 => {
                self.started_ns = now_ns;
                return;
            }
            2 => self.begin_ns = now_ns,
            _ => {}
        }
        let before = std::mem::replace(&mut self.block, now_ns.saturating_sub(self.begin_ns) >> BLOCK_SHIFT);
        let (block, oldest) = (self.block, self.oldest());
        let is_chosen = |id: u64| self.chosen.as_ref().is_none_or(|chosen| chosen.contains(&id));
        for reading in sample.limits.iter().filter(|reading| is_chosen(reading.id)) {
            if reading.quota_us.is_some() {
                let cgroup = self.cgroups.entry(reading.id).or_insert_with(|| Cgroup::new(reading, oldest));
                cgroup.take(reading, block);
            } else if let Some(cgroup) = self.cgroups.get_mut(&reading.id) {
                cgroup.blocks.entry(block).or_insert_with(|| Block::new(&cgroup.latest)).has_changed = true;
            }
        }
        if self.samples > 2 {
            for demand in &sample.demand {
                if let Some(cgroup) = self.cgroups.get_mut(&demand.cgroup_id) {
                    let added = cgroup.add(demand, self.begin_ns, now_ns, oldest);
                    self.slots += added;
                    // Where all demand is dropped already, this would take time for each row.
                    if added != 0 {
                        self.make_room();
                    }
                }
            }
        }
        if block > before {
            self.drop_blocks(sample);
        }
        self.cpus = self.cpus.max(sample.cpus.len() as u32);
    }

    /// The first block of the latest window.
    fn oldest(&self) -> u64 {
        self.block.saturating_sub(WINDOW - 1)
    }

    /// Drops demand while there are too many slots, first that of the cgroups that were throttled least, and share a quota with none that
    /// was throttled more: the busiest windows, unless they are the latest ones, and then all demand.
    fn make_room(&mut self) {
        let oldest = self.oldest();
        while self.slots > MOST_SLOTS {
            let mut most_ns: HashMap<Arc<str>, u64> = HashMap::new();
            for cgroup in self.cgroups.values() {
                let most_ns = most_ns.entry(cgroup.root.clone()).or_default();
                *most_ns = cgroup.throttled_ns().max(*most_ns);
            }
            let order = |cgroup: &&mut Cgroup| {
                (cgroup.slots(..oldest) == 0, most_ns[&cgroup.root], cgroup.throttled_ns())
            };
            let kept = self.cgroups.values_mut().filter(|cgroup| !cgroup.is_dropped);
            let Some(least) = kept.min_by_key(order) else { return };
            if least.slots(..oldest) == 0 {
                least.is_dropped = true;
                least.blocks.values_mut().for_each(|block| block.slots = Vec::new());
            } else {
                let root = least.root.clone();
                for cgroup in self.cgroups.values_mut().filter(|cgroup| cgroup.root == root) {
                    cgroup.blocks = cgroup.blocks.split_off(&oldest);
                    cgroup.busiest = (0, oldest);
                }
            }
            self.slots = self.cgroups.values().map(|cgroup| cgroup.slots(..)).sum();
        }
    }

    /// Drops blocks that are neither in the latest window nor in the busiest one of a cgroup that shares a quota.
    fn drop_blocks(&mut self, sample: &Sample) {
        let path = |id: u64| {
            let at = sample.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok()?;
            Some(&*sample.cgroups[at].1)
        };
        let limited: HashSet<&str> = self.cgroups.keys().filter_map(|id| path(*id)).collect();
        let mut needed: HashMap<Arc<str>, BTreeSet<u64>> = HashMap::new();
        for (id, cgroup) in &mut self.cgroups {
            if let Some(path) = path(*id) {
                let above = path.match_indices('/').map(|(end, _)| &path[..end]);
                cgroup.root =
                    above.chain([path]).find(|above| limited.contains(above)).unwrap_or(path).into();
            }
            let (_, first) = cgroup.busiest;
            needed.entry(cgroup.root.clone()).or_default().extend(first..=first + WINDOW);
        }
        let oldest = self.oldest();
        for cgroup in self.cgroups.values_mut() {
            let needed = &needed[&cgroup.root];
            let has_busiest = !self.is_latest && !cgroup.is_dropped;
            let is_kept = |number: u64| number >= oldest || has_busiest && needed.contains(&number);
            cgroup.blocks.retain(|number, _| is_kept(*number));
        }
        self.slots = self.cgroups.values().map(|cgroup| cgroup.slots(..)).sum();
        self.make_room();
    }

    /// The demand of a cgroup and of those that share its quotas, in the window in which it was busiest. `None`: it had no quota.
    pub(crate) fn busiest<'h>(&'h self, target: &'h Target) -> Option<Demand<'h>> {
        self.demand(target, self.cgroups.get(&target.id())?.busiest.1)
    }

    /// The same in the latest window.
    pub(crate) fn latest<'h>(&'h self, target: &'h Target) -> Option<Demand<'h>> {
        Some(Demand { start_ns: None, ..self.demand(target, self.oldest())? })
    }

    fn demand<'h>(&'h self, target: &'h Target, first: u64) -> Option<Demand<'h>> {
        let own = self.cgroups.get(&target.id())?;
        // The counters are known at the start of a block, and at the end.
        let goes_on = own.blocks.range(first + WINDOW..).next().is_some();
        let last = own.blocks.range(first..=first + WINDOW).next_back().filter(|_| goes_on);
        let blocks = first..last.map_or(first + WINDOW, |(number, _)| (*number).max(first + 1));
        let (after_ns, window_ns) = (first << BLOCK_SHIFT, (blocks.end - first) << BLOCK_SHIFT);
        let is_part = self.span_ns() > WINDOW << BLOCK_SHIFT;
        Some(Demand {
            family: target.family.iter().map(|(id, _)| Part::new(self.cgroups.get(id)?, &blocks)).collect(),
            target,
            span_ns: self.span_ns().saturating_sub(after_ns).min(window_ns),
            start_ns: is_part.then(|| self.begin_ns.saturating_sub(self.started_ns) + after_ns),
            host_cpus: self.cpus,
        })
    }

    pub fn span_ns(&self) -> u64 {
        if self.samples < 2 { 0 } else { self.end_ns.saturating_sub(self.begin_ns) }
    }
}

#[cfg(test)]
mod tests;
