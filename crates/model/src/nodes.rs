//! Figures of each CPU and each NUMA node over an interval, and the distance of tasks from their memory.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    CpuReading, CpuWaits, Hist, Interval, Placement, TaskInterval, TaskReading, Totals, Tree, Wait, sum,
};

/// Amounts by node: `(node, amount)`, ascending by node.
pub type ByNode = Vec<(u32, u64)>;

/// One CPU over an interval. `None`: could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuInterval {
    /// Number of the CPU.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Time in which the CPU was busy with any task of the host, ns. If the CPU was offline for some time, `busy_ns` and
    /// `idle_ns` sum to less than the interval.
    pub busy_ns: Option<u64>,
    /// Time in which the CPU was idle, ns.
    pub idle_ns: Option<u64>,
    /// Waits of followed tasks that ended on this CPU; `None` if they are not counted by CPU or a selection left out tasks.
    pub wait: Option<Wait>,
    /// Number of moves of tasks to this CPU from other nodes, by the node that they left; `None` as for `wait`.
    pub came_from: Option<ByNode>,
    /// Time in which some followed task waited for this CPU, ns, without time at a limit; `None`: coarse mode.
    pub contention_ns: Option<u64>,
    /// Time in which tasks on this CPU were at a limit and none waited for it, ns.
    pub throttled_pressure_ns: Option<u64>,
}

impl CpuInterval {
    pub(crate) fn append(&mut self, next: Self) {
        self.node = next.node;
        self.busy_ns = sum::known(self.busy_ns, next.busy_ns);
        self.idle_ns = sum::known(self.idle_ns, next.idle_ns);
        self.contention_ns = sum::known(self.contention_ns, next.contention_ns);
        self.throttled_pressure_ns = sum::known(self.throttled_pressure_ns, next.throttled_pressure_ns);
        match (&mut self.wait, next.wait) {
            (Some(wait), Some(more)) => wait.add(&more),
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
        match (&mut self.came_from, next.came_from) {
            (Some(came), Some(more)) => {
                more.iter().for_each(|(node, times)| add_by_node(came, *node, *times))
            }
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
    }
}

/// Where a task ran over an interval. `None`: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPlacement {
    /// Number of moves to a CPU on another node.
    pub node_migrations: Option<u64>,
    /// Time on a CPU by node, ns.
    pub ran_ns: Option<ByNode>,
}

impl TaskPlacement {
    /// The placement on a host whose CPUs are all on one node.
    pub(crate) fn on(node: u32, ran_ns: u64) -> Self {
        let ran_ns = if ran_ns == 0 { Vec::new() } else { vec![(node, ran_ns)] };
        Self { node_migrations: Some(0), ran_ns: Some(ran_ns) }
    }

    /// The increase since `before`, or since the task started.
    pub(crate) fn between(before: Option<Option<&Placement>>, now: Option<&Placement>) -> Self {
        let Some(now) = now else { return Self::default() };
        let forks = Placement { node_migrations: Some(0), ran_ns: Some(Vec::new()), ..Placement::default() };
        let Some(before) = before.unwrap_or(Some(&forks)) else { return Self::default() };
        let moves = now.node_migrations.zip(before.node_migrations);
        let ran = now.ran_ns.as_ref().zip(before.ran_ns.as_ref());
        Self {
            node_migrations: moves.and_then(|(now, before)| now.checked_sub(before)),
            ran_ns: ran.and_then(|(now, before)| since_by_node(now, before)),
        }
    }

    pub(crate) fn append(&mut self, next: Self) {
        self.node_migrations =
            self.node_migrations.zip(next.node_migrations).map(|(a, b)| a.saturating_add(b));
        self.ran_ns = self.ran_ns.take().zip(next.ran_ns).map(|(a, b)| sum_by_node(a.iter().chain(&b)));
    }
}

impl TaskInterval {
    /// Time on a CPU by node, ns. If not counted by node, all time goes to the node of the last CPU; empty if that is also
    /// unknown.
    pub fn ran_by_node(&self) -> ByNode {
        self.ran_on().collect()
    }

    pub(crate) fn ran_on(&self) -> impl Iterator<Item = (u32, u64)> {
        let known = self.placement.ran_ns.as_deref();
        let last = self.reading.node.filter(|_| known.is_none());
        let last = last.map(|node| (node, self.totals.on_cpu_ns));
        known.unwrap_or_default().iter().copied().chain(last)
    }
}

/// A node over an interval. `None`: could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeGroup {
    /// Number of the node.
    pub node: u32,
    /// Its CPUs that were online, ascending.
    pub cpus: Vec<u32>,
    /// Time in which its CPUs were busy with any task of the host, ns, summed over CPUs.
    pub busy_ns: Option<u64>,
    /// Time in which its CPUs were idle, ns, summed over CPUs.
    pub idle_ns: Option<u64>,
    /// Time that the tasks of this interval ran on the node, ns: see [`TaskInterval::ran_by_node`].
    pub ran_ns: u64,
    /// Waits that ended on its CPUs. If waits are not counted by CPU: the waits of the tasks that were last on the node.
    pub wait: Wait,
    /// Average number of tasks that ran on its CPUs or waited for them, without throttled tasks.
    pub runnable_avg: Option<f64>,
    /// Number of moves of tasks to this node from other nodes.
    pub migrations_in: Option<u64>,
    /// Number of moves of tasks from this node to other nodes.
    pub migrations_out: Option<u64>,
    /// Total memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Free memory, bytes.
    pub free_bytes: Option<u64>,
    /// Memory in use on the node, bytes: by the host, or by the selected tasks if that is known.
    pub used_bytes: Option<u64>,
    /// Time in which some task waited for a CPU of the node, ns: see [`CgroupReading::contention_ns`](crate::CgroupReading).
    pub contention_ns: Option<u64>,
    /// Time in which tasks on its CPUs were at a limit and none waited for a CPU, ns.
    pub throttled_pressure_ns: Option<u64>,
}

impl NodeGroup {
    /// Share of the time in which its CPUs were busy, percent.
    pub fn busy_percent(&self) -> Option<f64> {
        let busy_ns = self.busy_ns?;
        crate::units::percent(busy_ns, busy_ns.saturating_add(self.idle_ns?))
    }

    /// Waits for its CPUs without the time at a limit, ns: the task could not run on another node either.
    pub fn contended_ns(&self) -> u64 {
        self.wait.total_ns.saturating_sub(self.wait.by_cause.limited_ns())
    }
}

impl Interval {
    /// Each node, ascending; empty if no CPU and no node could be read.
    ///
    /// Exited tasks are included only if waits are counted by CPU or there is only one node.
    pub fn by_node(&self) -> Vec<NodeGroup> {
        self.by_node_of(&self.ran_by_node(|_| true))
    }

    /// Like [`Self::by_node`], with the run time of the tasks by node, ns, already computed.
    pub(crate) fn by_node_of(&self, ran_ns: &[(u32, u64)]) -> Vec<NodeGroup> {
        let mut nodes: BTreeMap<u32, NodeGroup> = BTreeMap::new();
        for node in self.nodes.iter().map(|node| node.node).chain(self.cpus.iter().filter_map(|cpu| cpu.node))
        {
            nodes.entry(node).or_insert_with(|| NodeGroup { node, ..NodeGroup::default() });
        }
        for group in nodes.values_mut() {
            self.add_cpus(group);
            self.add_pressure(group);
            self.add_memory(group);
        }
        self.add_tasks(&mut nodes, ran_ns);
        for group in nodes.values_mut() {
            group.runnable_avg = self.runnable_avg(group);
        }
        nodes.into_values().collect()
    }

    /// Each CPU with the waits that ended there. If waits are not counted by CPU: the waits of the tasks that were last on this
    /// CPU.
    pub fn by_cpu(&self) -> Vec<(&CpuInterval, Wait)> {
        let is_counted = self.counts_by_cpu();
        let of_tasks = |cpu: u32| {
            let mut wait = Wait::default();
            self.tasks.iter().filter(|task| task.reading.cpu == cpu).for_each(|task| wait.add(&task.wait));
            wait
        };
        let wait = |cpu: &CpuInterval| match &cpu.wait {
            _ if !is_counted => of_tasks(cpu.cpu),
            wait => wait.clone().unwrap_or_default(),
        };
        self.cpus.iter().map(|cpu| (cpu, wait(cpu))).collect()
    }

    /// Time on a CPU by node of the tasks for which `which` is true, ns: see [`TaskInterval::ran_by_node`].
    pub fn ran_by_node(&self, which: impl Fn(&TaskReading) -> bool) -> ByNode {
        let mut ran = ByNode::new();
        for task in self.tasks.iter().filter(|task| which(&task.reading)) {
            task.ran_on().for_each(|(node, ns)| add_by_node(&mut ran, node, ns));
        }
        ran
    }

    /// Time on a CPU by node, by the path of the cgroup, each with all cgroups below it.
    pub fn ran_by_cgroup(&self) -> BTreeMap<Arc<str>, ByNode> {
        let nodes = Tree::new(self).into_nodes().into_iter();
        nodes.filter(|node| node.group.threads != 0).map(|node| (node.path, node.ran)).collect()
    }

    /// True if waits are counted by the CPU where they ended.
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
                sum::add(&mut came, total(came_from.filter(|(from, _)| *from != group.node)));
            } else {
                sum::add(&mut left, total(came_from.filter(|(from, _)| *from == group.node)));
            }
        }
        // With only one node, no task moves to another, so the numbers are known even if they are not counted.
        let is_known = self.one_node.is_some() || self.cpus.iter().any(|cpu| cpu.came_from.is_some());
        (group.migrations_in, group.migrations_out) = is_known.then_some((came, left)).unzip();
    }

    /// The mean over the node's CPUs, weighted as that of a cgroup.
    fn add_pressure(&self, group: &mut NodeGroup) {
        let cpus = || self.cpus.iter().filter(|cpu| cpu.node == Some(group.node));
        let weight = |cpu: &CpuInterval| {
            let waited_ns = cpu.contention_ns?.saturating_add(cpu.throttled_pressure_ns?);
            Some(cpu.busy_ns?.saturating_add(waited_ns).min(self.duration_ns))
        };
        let mean = |of: fn(&CpuInterval) -> Option<u64>| {
            let (mut sum, mut weights) = (0u128, 0u128);
            for cpu in cpus() {
                let weight = u128::from(weight(cpu)?);
                // A recording may have any numbers.
                sum = sum.saturating_add(u128::from(of(cpu)?) * weight);
                weights = weights.saturating_add(weight);
            }
            Some(u64::try_from(sum / weights.max(1)).unwrap_or(u64::MAX))
        };
        let contention_ns = mean(|cpu| cpu.contention_ns);
        let throttled_pressure_ns = mean(|cpu| cpu.throttled_pressure_ns);
        (group.contention_ns, group.throttled_pressure_ns) = (contention_ns, throttled_pressure_ns);
    }

    fn add_memory(&self, group: &mut NodeGroup) {
        let node = self.nodes.iter().find(|node| node.node == group.node);
        (group.memory_bytes, group.free_bytes) =
            node.map_or((None, None), |node| (node.memory_bytes, node.free_bytes));
        let of_host = group.memory_bytes.zip(group.free_bytes).and_then(|(all, free)| all.checked_sub(free));
        group.used_bytes = match &self.target_memory() {
            Some(by_node) => Some(amount(by_node, group.node)),
            None if self.is_selection => None,
            None => of_host,
        };
    }

    /// Where the memory of the selected tasks lies. This is the memory of processes if it was read, else that of the cgroup.
    fn target_memory(&self) -> Option<ByNode> {
        if !self.memory.is_empty() {
            return Some(sum_by_node(self.memory.iter().flat_map(|memory| &memory.by_node)));
        }
        let limits = self.limits_at(self.selected_cgroup.as_deref()?)?;
        (!limits.memory_by_node.is_empty()).then(|| limits.memory_by_node.clone())
    }

    fn add_tasks(&self, nodes: &mut BTreeMap<u32, NodeGroup>, ran_ns: &[(u32, u64)]) {
        let by_cpu = self.counts_by_cpu();
        for cpu in self.cpus.iter().filter(|_| by_cpu) {
            if let (Some(group), Some(wait)) = (cpu.node.and_then(|node| nodes.get_mut(&node)), &cpu.wait) {
                group.wait.add(wait);
            }
        }
        for (node, ns) in ran_ns {
            if let Some(group) = nodes.get_mut(node) {
                sum::add(&mut group.ran_ns, *ns);
            }
        }
        for task in self.tasks.iter().filter(|_| !by_cpu) {
            let last = task.reading.node.or(self.one_node);
            if let Some(group) = last.and_then(|node| nodes.get_mut(&node)) {
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

    /// Uses the busy time of CPUs for the whole host, which includes exited tasks. For a selection, uses the run time of tasks.
    fn runnable_avg(&self, group: &NodeGroup) -> Option<f64> {
        let running_ns = if self.is_selection { group.ran_ns } else { group.busy_ns? };
        (self.duration_ns != 0)
            .then(|| running_ns.saturating_add(group.contended_ns()) as f64 / self.duration_ns as f64)
    }
}

/// The estimated share of memory accesses that go to another node, 0 to 1; `None` without memory or run time.
///
/// Assumes that each thread uses each byte equally: the sum over nodes of the share of memory on the node times the share of
/// run time elsewhere.
pub fn remote_share(memory: &[(u32, u64)], ran_ns: &[(u32, u64)]) -> Option<f64> {
    let (bytes, ran) = (total(memory), total(ran_ns));
    if bytes == 0 || ran == 0 {
        return None;
    }
    let local = memory.iter().map(|(node, there)| *there as f64 * amount(ran_ns, *node) as f64);
    Some((1.0 - local.sum::<f64>() / (bytes as f64 * ran as f64)).clamp(0.0, 1.0))
}

/// The sum of amounts, by node.
pub fn sum_by_node<'a>(amounts: impl IntoIterator<Item = &'a (u32, u64)>) -> ByNode {
    let mut sums = ByNode::new();
    amounts.into_iter().for_each(|(node, amount)| add_by_node(&mut sums, *node, *amount));
    sums
}

/// Adds to the amount of one node.
pub fn add_by_node(sums: &mut ByNode, node: u32, amount: u64) {
    match sums.binary_search_by_key(&node, |(at, _)| *at) {
        Ok(at) => sum::add(&mut sums[at].1, amount),
        Err(at) => sums.insert(at, (node, amount)),
    }
}

/// The amount of one node.
pub fn amount(amounts: &[(u32, u64)], node: u32) -> u64 {
    total(amounts.iter().filter(|(at, _)| *at == node))
}

/// The sum over all nodes.
pub(crate) fn total<'a>(amounts: impl IntoIterator<Item = &'a (u32, u64)>) -> u64 {
    sum::total(amounts.into_iter().map(|(_, amount)| *amount))
}

/// The increase by node, without zeros. `None` if an amount went backwards.
fn since_by_node(now: &[(u32, u64)], before: &[(u32, u64)]) -> Option<ByNode> {
    if before.iter().any(|(node, _)| !now.iter().any(|(at, _)| at == node)) {
        return None;
    }
    let since: Option<ByNode> =
        now.iter().map(|(node, ns)| Some((*node, ns.checked_sub(amount(before, *node))?))).collect();
    since.map(|amounts| amounts.into_iter().filter(|(_, amount)| *amount != 0).collect())
}

/// The increase between two readings for the CPUs that are online at the end, ascending by number.
///
/// If the set of online CPUs changed, neither reading covers the whole host: then all figures by CPU are unknown.
pub(crate) fn between(a: &[CpuReading], b: &[CpuReading]) -> Vec<CpuInterval> {
    let numbers = |cpus: &[CpuReading]| cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>();
    if numbers(a) != numbers(b) {
        let unknown =
            |cpu: &CpuReading| CpuInterval { cpu: cpu.cpu, node: cpu.node, ..CpuInterval::default() };
        return b.iter().map(unknown).collect();
    }
    let mut earlier = sum::earlier(a, |cpu| cpu.cpu);
    b.iter()
        .map(|now| {
            let before = earlier(now.cpu);
            let since = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
            let waits = now.waits.as_ref().zip(before.and_then(|before| before.waits.as_ref()));
            let (wait, came_from) = waits.and_then(|(now, before)| waits_between(before, now)).unzip();
            CpuInterval {
                cpu: now.cpu,
                node: now.node,
                busy_ns: since(now.busy_ns, before.and_then(|before| before.busy_ns)),
                idle_ns: since(now.idle_ns, before.and_then(|before| before.idle_ns)),
                wait,
                came_from,
                contention_ns: since(now.contention_ns, before.and_then(|before| before.contention_ns)),
                throttled_pressure_ns: since(
                    now.throttled_pressure_ns,
                    before.and_then(|before| before.throttled_pressure_ns),
                ),
            }
        })
        .collect()
}

fn waits_between(before: &CpuWaits, now: &CpuWaits) -> Option<(Wait, ByNode)> {
    let unchanged = Arc::ptr_eq(&before.hist, &now.hist);
    let hist = if unchanged { Hist::default() } else { now.hist.since(&before.hist)? };
    let by_cause = now.by_cause.since(&before.by_cause)?;
    let totals = Totals { waits: hist.count(), wait_ns: by_cause.total(), by_cause, ..Totals::default() };
    let came_from = since_by_node(&now.came_from, &before.came_from)?;
    Some((Wait::new(&totals, hist, before.max_ns, now.max_ns), came_from))
}

/// The node of all CPUs, if all CPUs are on the same node.
pub(crate) fn only_node(cpus: &[CpuReading]) -> Option<u32> {
    let node = cpus.first()?.node?;
    cpus.iter().all(|cpu| cpu.node == Some(node)).then_some(node)
}

#[cfg(test)]
mod tests;
