//! Reads the hook's counts by CPU and by node, and uses the host's node numbers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cgscope_ledger::wire::{self, CpuCounters, NODES, names};
use cgscope_model::{ByCause, CpuReading, CpuWaits, Hist, Placement};

use crate::{
    Failure,
    domain::{Domain, Draft, Setup},
};

/// Numbers of the nodes with CPUs. They can have gaps, so the BPF side counts by the index in this list, which never changes.
#[derive(Debug, Default)]
pub(crate) struct NodePlaces(Vec<u32>);

impl NodePlaces {
    /// Creates the list from the node of each CPU. If there are more than [`NODES`] nodes, the list is empty, because the BPF
    /// side cannot count them.
    pub(crate) fn new(node_of_cpu: &BTreeMap<u32, u32>) -> Self {
        let mut places = Self::default();
        places.learn(node_of_cpu);
        if places.0.len() > NODES { Self::default() } else { places }
    }

    pub(crate) fn learn(&mut self, node_of_cpu: &BTreeMap<u32, u32>) {
        for node in node_of_cpu.values() {
            if !self.0.contains(node) {
                self.0.push(*node);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len().min(NODES)
    }

    /// Returns the index of a node plus one, as the BPF side uses it; 0 for a node without an index.
    pub(crate) fn number_of(&self, node: u32) -> u32 {
        let place = self.0.iter().take(NODES).position(|known| *known == node);
        place.map_or(0, |place| place as u32 + 1)
    }

    fn by_node(&self, counts: &[u64; NODES]) -> Vec<(u32, u64)> {
        let counts = self.0.iter().copied().zip(counts.iter().copied());
        let mut counts: Vec<_> = counts.filter(|(_, count)| *count != 0).collect();
        counts.sort_unstable();
        counts
    }

    pub(crate) fn placement(&self, raw: &wire::Placement, on_cpu_ns: u64) -> Placement {
        let mut ran_ns = raw.ran_ns;
        if let Some(sum) = (raw.place as usize).checked_sub(1).and_then(|place| ran_ns.get_mut(place)) {
            *sum = sum.saturating_add(on_cpu_ns.saturating_sub(raw.since_ran_ns));
        }
        Placement {
            node_migrations: Some(raw.node_migrations),
            ran_ns: Some(self.by_node(&ran_ns)),
            preferred_node: u32::try_from(raw.preferred_node).ok(),
            ..Placement::default()
        }
    }
}

/// The last counts of each CPU. We keep them because the counters of the BPF side wrap at 2^32.
#[derive(Debug, Default)]
pub(crate) struct CpuCounts(HashMap<u32, Arc<Hist>>);

impl Domain for CpuCounts {
    fn start(setup: &Setup<'_>) -> Option<(Self, u32)> {
        (setup.config.count_by_cpu != 0).then(|| (Self::default(), setup.cpus))
    }

    fn read(&mut self, draft: &mut Draft) -> Result<(), Failure> {
        let (cpus, places) = (&mut draft.sample.cpus, &draft.node_places);
        draft.side.each_cpu("read the counts by CPU", names::CPUS, |cpu, counters| {
            let (node, waits) = (draft.nodes.get(&cpu).copied(), Some(self.take(cpu, counters, places)));
            cpus.push(CpuReading { cpu, node, waits, ..CpuReading::default() });
        })
    }
}

impl CpuCounts {
    fn take(&mut self, cpu: u32, counters: &CpuCounters, places: &NodePlaces) -> CpuWaits {
        let hist = self.0.entry(cpu).or_default();
        let now = hist.advanced_to(&counters.histogram.counts, &counters.histogram.shares);
        if now != **hist {
            *hist = Arc::new(now);
        }
        CpuWaits {
            max_ns: counters.max_ns,
            by_cause: ByCause(counters.by_cause),
            hist: hist.clone(),
            came_from: places.by_node(&counters.came_from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(nodes: &[u32]) -> BTreeMap<u32, u32> {
        nodes.iter().enumerate().map(|(cpu, node)| (cpu as u32, *node)).collect()
    }

    #[test]
    fn nodes_keep_their_index_even_with_gaps() {
        let mut places = NodePlaces::new(&host(&[0, 0, 8, 252]));
        assert_eq!((places.number_of(0), places.number_of(8), places.number_of(252)), (1, 2, 3));
        assert_eq!(places.number_of(4), 0);
        places.learn(&host(&[0, 4, 8]));
        assert_eq!((places.number_of(252), places.number_of(4)), (3, 4));
    }

    #[test]
    fn too_many_nodes_have_no_index() {
        let many: Vec<u32> = (0..=NODES as u32).collect();
        assert_eq!(NodePlaces::new(&host(&many)).len(), 0);
        assert_eq!(NodePlaces::new(&host(&many[1..])).len(), NODES);
    }

    #[test]
    fn time_since_a_task_moved_to_its_node_counts_for_that_node() {
        let places = NodePlaces::new(&host(&[3, 1]));
        let mut raw =
            wire::Placement { place: 2, since_ran_ns: 700, node_migrations: 1, ..Default::default() };
        (raw.preferred_node, raw.ran_ns[0], raw.ran_ns[1]) = (-1, 500, 200);
        let placement = places.placement(&raw, 1_000);
        assert_eq!(placement.ran_ns, Some(vec![(1, 500), (3, 500)]));
        assert_eq!((placement.node_migrations, placement.preferred_node), (Some(1), None));
    }
}
