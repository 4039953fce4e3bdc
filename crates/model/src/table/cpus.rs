//! The CPUs that are online.

use std::sync::Arc;

use crate::placement::{ByNode, add_by_node, since_by_node};
use crate::table::{Selected, Table, merge};
use crate::{ByCause, Hist, Interval, Sample, Totals, Wait, sum};

table! {
    /// The table: one row per online CPU.
    Cpus: CpuReading, by u32: |row| row.cpu, "its CPUs are not in the order of their numbers";
    cpus = |a, b| between(&a.cpus, &b.cpus), by |cpu| cpu.cpu, CpuInterval::append;

    /// Waits by CPU cover all followed tasks. If a selection removes tasks, waits are known only by the last CPU of each task.
    fn select(interval: &mut Interval, selected: &Selected<'_>) {
        interval.cpus.retain(|cpu| selected.filter.wants_cpu(cpu.cpu, cpu.node));
        if selected.filter.is_by_task() || selected.cgroups.is_some() {
            interval.cpus.iter_mut().for_each(|cpu| (cpu.wait, cpu.came_from) = (None, None));
        }
    }
}

/// One online CPU. Cumulative; `None`: could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuReading {
    pub cpu: u32,
    /// Its NUMA node, if the host reports it.
    pub node: Option<u32>,
    /// True if the scheduler moves no tasks to or from this CPU to balance the load (`isolcpus`, or an isolated cpuset partition).
    pub is_isolated: bool,
    /// Busy time with interrupts, ns, in steps of 10 ms: `/proc/stat`. Neither this nor `idle_ns` includes stolen time (steal).
    pub busy_ns: Option<u64>,
    /// Idle time, including time waiting for I/O, ns: `/proc/stat`.
    pub idle_ns: Option<u64>,
    /// Waits of followed tasks that ended on this CPU, and moves from other nodes; `None`: not counted by CPU.
    pub waits: Option<CpuWaits>,
    /// Time in which some followed task waited for this CPU, ns, excluding time at a limit; `None`: coarse mode.
    pub contention_ns: Option<u64>,
    /// Time in which tasks on this CPU were at a limit and none waited for the CPU, ns.
    pub throttled_pressure_ns: Option<u64>,
}

/// Cumulative figures that the hook counts by CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuWaits {
    pub max_ns: u64,
    pub by_cause: ByCause,
    pub hist: Arc<Hist>,
    /// Number of moves to this CPU, of tasks that last ran on another node: `(other node, moves)`, ascending by node.
    pub came_from: Vec<(u32, u64)>,
}

/// One CPU over an interval, with the increase of the figures in [`CpuReading`]. `None`: could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuInterval {
    pub cpu: u32,
    pub node: Option<u32>,
    pub is_isolated: bool,
    /// Busy time with any task of the host, ns. `busy_ns` and `idle_ns` sum to less than the interval if the CPU was offline.
    pub busy_ns: Option<u64>,
    pub idle_ns: Option<u64>,
    /// Waits of followed tasks that ended on this CPU; `None`: not counted by CPU, or a selection removed tasks.
    pub wait: Option<Wait>,
    /// Number of moves of tasks to this CPU from other nodes, by other node; `None` as for `wait`.
    pub came_from: Option<ByNode>,
    pub contention_ns: Option<u64>,
    pub throttled_pressure_ns: Option<u64>,
}

impl CpuInterval {
    fn append(&mut self, next: Self) {
        (self.node, self.is_isolated) = (next.node, next.is_isolated);
        self.busy_ns = sum::known(self.busy_ns, next.busy_ns);
        self.idle_ns = sum::known(self.idle_ns, next.idle_ns);
        self.contention_ns = sum::known(self.contention_ns, next.contention_ns);
        self.throttled_pressure_ns = sum::known(self.throttled_pressure_ns, next.throttled_pressure_ns);
        sum::add_known(&mut self.wait, next.wait, |wait, more| wait.add(&more));
        sum::add_known(&mut self.came_from, next.came_from, |came, more| {
            more.iter().for_each(|(node, times)| add_by_node(came, *node, *times));
        });
    }
}

/// Returns the increase between two readings for each CPU that is online at the end, ascending by number. If the set of online
/// CPUs changed, neither reading covers the whole host, so all figures by CPU are unknown.
fn between(a: &[CpuReading], b: &[CpuReading]) -> Vec<CpuInterval> {
    if a.iter().map(|cpu| cpu.cpu).ne(b.iter().map(|cpu| cpu.cpu)) {
        return b.iter().map(known).collect();
    }
    let between = |(before, now): (&CpuReading, &CpuReading)| {
        let since = |of: fn(&CpuReading) -> Option<u64>| of(now)?.checked_sub(of(before)?);
        let waits = now.waits.as_ref().zip(before.waits.as_ref());
        let (wait, came_from) = waits.and_then(|(now, before)| waits_between(before, now)).unzip();
        CpuInterval {
            busy_ns: since(|cpu| cpu.busy_ns),
            idle_ns: since(|cpu| cpu.idle_ns),
            wait,
            came_from,
            contention_ns: since(|cpu| cpu.contention_ns),
            throttled_pressure_ns: since(|cpu| cpu.throttled_pressure_ns),
            ..known(now)
        }
    };
    a.iter().zip(b).map(between).collect()
}

/// What one reading shows.
fn known(now: &CpuReading) -> CpuInterval {
    CpuInterval { cpu: now.cpu, node: now.node, is_isolated: now.is_isolated, ..CpuInterval::default() }
}

fn waits_between(before: &CpuWaits, now: &CpuWaits) -> Option<(Wait, ByNode)> {
    let unchanged = Arc::ptr_eq(&before.hist, &now.hist);
    let hist = if unchanged { Hist::default() } else { now.hist.since(&before.hist)? };
    let by_cause = now.by_cause.since(&before.by_cause)?;
    let totals = Totals { waits: hist.count(), wait_ns: by_cause.total(), by_cause, ..Totals::default() };
    let came_from = since_by_node(&now.came_from, &before.came_from)?;
    Some((Wait::new(&totals, hist, before.max_ns, now.max_ns), came_from))
}

/// Returns the node of all CPUs, if they share one node.
pub(crate) fn only_node(cpus: &[CpuReading]) -> Option<u32> {
    let node = cpus.first()?.node?;
    cpus.iter().all(|cpu| cpu.node == Some(node)).then_some(node)
}
