//! CPUs and nodes.

use std::sync::Arc;

use cgscope_model::{ByCause, Cause, CpuReading, CpuWaits, Hist, NodeReading};

use crate::{CPUS, Chance, ROUND_NS};

/// CLOCK_MONOTONIC at round 0, ns: it has been up for a while.
pub(crate) const BOOTED_NS: u64 = 3_600 * 1_000_000_000;

/// The node of a CPU.
pub(crate) fn node_of(cpu: u32) -> u32 {
    cpu / (CPUS / 2)
}

pub(crate) fn cpus(round: u64) -> Vec<CpuReading> {
    (0..CPUS).map(|cpu| cpu_of(cpu, round)).collect()
}

fn cpu_of(cpu: u32, round: u64) -> CpuReading {
    let mut chance = Chance::of(u64::from(cpu) | 1 << 40);
    let busy_ns = ROUND_NS / 2 + chance.below(ROUND_NS / 5 * 2);
    let cells = (40..100).map(|bucket| (bucket, (1 + chance.below(20)) * round));
    let hist = Hist::from_cells(cells.filter(|(_, count)| *count != 0), []).unwrap_or_default();
    CpuReading {
        cpu,
        node: Some(node_of(cpu)),
        busy_ns: Some(busy_ns * round),
        idle_ns: Some((ROUND_NS - busy_ns) * round),
        waits: Some(CpuWaits {
            max_ns: hist.highest_ns().unwrap_or(0),
            by_cause: ByCause::only(Cause::Wakeup, hist.count() * 10_000),
            hist: Arc::new(hist),
            came_from: if round == 0 { Vec::new() } else { vec![(1 - node_of(cpu), 30 * round)] },
        }),
    }
}

pub(crate) fn nodes() -> Vec<NodeReading> {
    let node = |node| NodeReading {
        node,
        memory_bytes: Some(256 << 30),
        free_bytes: Some((40 + 20 * u64::from(node)) << 30),
    };
    vec![node(0), node(1)]
}
