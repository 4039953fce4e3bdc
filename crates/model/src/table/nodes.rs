//! NUMA nodes: their memory, their figures over an interval, the memory of processes by node, and the share of remote accesses.

use std::{collections::BTreeMap, sync::Arc};

use crate::placement::{ByNode, amount, sum_by_node, total};
use crate::table::{Selected, Table, cpus::CpuInterval, merge};
use crate::{Interval, Sample, TaskInterval, TaskReading, Wait, sum, units::busy_percent};

table! {
    /// The table: one row per online node.
    Nodes: NodeReading, by u32: |row| row.node, "its nodes are not in the order of their numbers";

    fn between(_: &Sample, b: &Sample, into: &mut Interval) {
        into.nodes.clone_from(&b.nodes);
    }

    fn append(into: &mut Interval, next: &mut Interval) {
        into.nodes = std::mem::take(&mut next.nodes);
    }

    fn select(interval: &mut Interval, selected: &Selected<'_>) {
        interval.nodes.retain(|node| selected.filter.wants_node(Some(node.node)));
    }
}

/// One NUMA node, from `/sys/devices/system/node/nodeN/meminfo`. On a kernel without NUMA: node 0, from `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeReading {
    pub node: u32,
    /// Total memory, bytes.
    pub memory_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
}

impl TaskInterval {
    /// Returns the time on a CPU by node, ns. If it is not counted by node, the node of the last CPU, if known, gets all of it.
    pub fn ran_by_node(&self) -> ByNode {
        self.ran_on().collect()
    }

    pub(crate) fn ran_on(&self) -> impl Iterator<Item = (u32, u64)> {
        let known = self.placement.ran_ns.as_deref();
        let last = self.reading.node.filter(|_| known.is_none());
        known.unwrap_or_default().iter().copied().chain(last.map(|node| (node, self.totals.on_cpu_ns)))
    }
}

/// A node over an interval. `None`: could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeGroup {
    pub node: u32,
    /// Its online CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Time in which its CPUs were busy with any task of the host, ns, summed over CPUs.
    pub busy_ns: Option<u64>,
    pub idle_ns: Option<u64>,
    /// Run time of this interval's tasks on the node, ns: see [`TaskInterval::ran_by_node`].
    pub ran_ns: u64,
    /// Waits that ended on its CPUs. If waits are not counted by CPU: the waits of tasks that were last on the node.
    pub wait: Wait,
    /// Mean number of tasks that ran on its CPUs or waited for them, without throttled tasks.
    pub runnable_avg: Option<f64>,
    pub migrations_in: Option<u64>,
    pub migrations_out: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    /// Used memory of the node, bytes: by the host, or by the selected tasks if known.
    pub used_bytes: Option<u64>,
    /// Time in which some task waited for a CPU of the node, ns: see [`CgroupReading::contention_ns`](crate::CgroupReading).
    pub contention_ns: Option<u64>,
    /// Time in which tasks on its CPUs were at a limit and none waited for a CPU, ns.
    pub throttled_pressure_ns: Option<u64>,
}

impl NodeGroup {
    pub fn busy_percent(&self) -> Option<f64> {
        busy_percent(self.busy_ns, self.idle_ns)
    }
}

impl Interval {
    /// Returns each node, ascending; empty if neither CPUs nor nodes could be read. Exited tasks are included only if waits are
    /// counted by CPU or there is only one node.
    pub fn by_node(&self) -> Vec<NodeGroup> {
        let of_cpus = self.cpus.iter().filter_map(|cpu| cpu.node);
        let numbers = self.nodes.iter().map(|node| node.node).chain(of_cpus);
        let group = |node| (node, NodeGroup { node, ..NodeGroup::default() });
        let mut nodes: BTreeMap<u32, NodeGroup> = numbers.map(group).collect();
        for group in nodes.values_mut() {
            self.add_cpus(group);
            self.add_pressure(group);
            self.add_memory(group);
        }
        self.add_tasks(&mut nodes);
        for group in nodes.values_mut() {
            // The busy time of CPUs includes exited tasks, but also tasks that are not selected.
            let running_ns = if self.is_selection { Some(group.ran_ns) } else { group.busy_ns };
            let runnable_ns = running_ns.map(|ns| ns.saturating_add(group.wait.contended_ns()));
            let average = |ns| (self.duration_ns != 0).then(|| ns as f64 / self.duration_ns as f64);
            group.runnable_avg = runnable_ns.and_then(average);
        }
        nodes.into_values().collect()
    }

    /// Returns each CPU with the waits that ended there or, if they are not counted by CPU, of the tasks that were last there.
    pub fn by_cpu(&self) -> Vec<(&CpuInterval, Wait)> {
        let is_counted = self.counts_by_cpu();
        let wait = |cpu: &CpuInterval| {
            let mut wait = cpu.wait.clone().unwrap_or_default();
            let last_there = self.tasks.iter().filter(|task| !is_counted && task.reading.cpu == cpu.cpu);
            last_there.for_each(|task| wait.add(&task.wait));
            wait
        };
        self.cpus.iter().map(|cpu| (cpu, wait(cpu))).collect()
    }

    /// Returns the time on a CPU by node, ns, of tasks for which `which` is true: see [`TaskInterval::ran_by_node`].
    pub fn ran_by_node(&self, which: impl Fn(&TaskReading) -> bool) -> ByNode {
        let tasks = self.tasks.iter().filter(|task| which(&task.reading));
        sum_by_node(tasks.flat_map(TaskInterval::ran_on))
    }

    fn counts_by_cpu(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.wait.is_some())
    }

    fn add_cpus(&self, group: &mut NodeGroup) {
        let (mut came, mut left) = (0u64, 0u64);
        for cpu in &self.cpus {
            let came_from = cpu.came_from.iter().flatten();
            if cpu.node == Some(group.node) {
                group.cpus.push(cpu.cpu);
                group.busy_ns = sum::known(group.busy_ns, cpu.busy_ns);
                group.idle_ns = sum::known(group.idle_ns, cpu.idle_ns);
                cpu.wait.iter().for_each(|wait| group.wait.add(wait));
                sum::add(&mut came, total(came_from.filter(|(from, _)| *from != group.node)));
            } else {
                sum::add(&mut left, total(came_from.filter(|(from, _)| *from == group.node)));
            }
        }
        // With only one node, no task moves between nodes, so the numbers are known even if they are not counted.
        let is_known = self.one_node.is_some() || self.cpus.iter().any(|cpu| cpu.came_from.is_some());
        (group.migrations_in, group.migrations_out) = is_known.then_some((came, left)).unzip();
    }

    /// Sets the means over the node's CPUs, weighted like a cgroup's.
    fn add_pressure(&self, group: &mut NodeGroup) {
        let node = Some(group.node);
        let weight = |cpu: &CpuInterval| {
            let waited_ns = cpu.contention_ns?.saturating_add(cpu.throttled_pressure_ns?);
            Some(cpu.busy_ns?.saturating_add(waited_ns).min(self.duration_ns))
        };
        let mean = |of: fn(&CpuInterval) -> Option<u64>| {
            let (mut sum, mut weights) = (0u128, 0u128);
            for cpu in self.cpus.iter().filter(|cpu| cpu.node == node) {
                let weight = u128::from(weight(cpu)?);
                // A recording may contain any number.
                sum = sum.saturating_add(u128::from(of(cpu)?) * weight);
                weights = weights.saturating_add(weight);
            }
            Some(u64::try_from(sum / weights.max(1)).unwrap_or(u64::MAX))
        };
        group.contention_ns = mean(|cpu| cpu.contention_ns);
        group.throttled_pressure_ns = mean(|cpu| cpu.throttled_pressure_ns);
    }

    fn add_memory(&self, group: &mut NodeGroup) {
        let node = self.nodes.iter().find(|node| node.node == group.node).copied().unwrap_or_default();
        (group.memory_bytes, group.free_bytes) = (node.memory_bytes, node.free_bytes);
        let of_host = group.memory_bytes.zip(group.free_bytes).and_then(|(all, free)| all.checked_sub(free));
        group.used_bytes = match &self.target_memory() {
            Some(by_node) => Some(amount(by_node, group.node)),
            None if self.is_selection => None,
            None => of_host,
        };
    }

    /// Returns the memory of the selected tasks by node: of processes if it was read, else of the cgroup.
    fn target_memory(&self) -> Option<ByNode> {
        if !self.memory.is_empty() {
            return Some(sum_by_node(self.memory.iter().flat_map(|memory| memory.by_node.iter().copied())));
        }
        let limits = self.limits_at(self.selected_cgroup.as_deref()?)?;
        (!limits.memory_by_node.is_empty()).then(|| limits.memory_by_node.clone())
    }

    fn add_tasks(&self, nodes: &mut BTreeMap<u32, NodeGroup>) {
        let by_cpu = self.counts_by_cpu();
        for (node, ns) in self.tasks.iter().flat_map(TaskInterval::ran_on) {
            if let Some(group) = nodes.get_mut(&node) {
                sum::add(&mut group.ran_ns, ns);
            }
        }
        for task in self.tasks.iter().filter(|_| !by_cpu) {
            if let Some(group) = task.reading.node.or(self.one_node).and_then(|node| nodes.get_mut(&node)) {
                group.wait.add(&task.wait);
            }
        }
        let Some(group) = self.one_node.and_then(|node| nodes.get_mut(&node)) else { return };
        for exited in &self.exited {
            sum::add(&mut group.ran_ns, exited.totals.on_cpu_ns);
            if !by_cpu {
                group.wait.add(&exited.wait);
            }
        }
    }
}

/// Returns the estimated share of memory accesses to other nodes, 0 to 1; `None` without memory or run time. Assumes that each
/// thread uses each byte equally: sums, over nodes, the share of memory there times the share of run time elsewhere.
pub fn remote_share(memory: &[(u32, u64)], ran_ns: &[(u32, u64)]) -> Option<f64> {
    let (bytes, ran) = (total(memory), total(ran_ns));
    if bytes == 0 || ran == 0 {
        return None;
    }
    let local = memory.iter().map(|(node, there)| *there as f64 * amount(ran_ns, *node) as f64);
    Some((1.0 - local.sum::<f64>() / (bytes as f64 * ran as f64)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;

table! {
    /// The table: one row per process whose memory was requested.
    Memory: ProcessMemory, by u32: |row| row.tgid, "the memory of its processes is not in the order of their ids";
    memory = |_a, b| b.memory.clone(), by Self::key, |old, new| *old = new;
}

/// Memory of a process by node, from `/proc/PID/numa_maps`. Not cumulative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    pub tgid: u32,
    /// Resident bytes by node, ascending by node. Pages shared by several processes count in each process.
    pub by_node: Vec<(u32, u64)>,
    /// The same bytes by memory policy of the mapping, as the kernel names it (`default`, `bind:1`), the largest first.
    pub policies: Vec<(Arc<str>, u64)>,
}
