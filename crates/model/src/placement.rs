//! Where tasks run and may run. CPU and node numbers are the kernel's and may have gaps.

use std::{collections::BTreeSet, sync::Arc};

use crate::sum;

/// The nodes on which a task ran, on a host with several nodes, and the CPUs that it may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Number of moves to a CPU on another node so far; `None`: not counted.
    pub node_migrations: Option<u64>,
    /// Time on a CPU so far by node: `(node, ns)`, ascending by node. `None`: not counted.
    pub ran_ns: Option<Vec<(u32, u64)>>,
    /// Node that the kernel's NUMA balancing prefers for the task (`task_struct.numa_preferred_nid`, CONFIG_NUMA_BALANCING).
    pub preferred_node: Option<u32>,
    /// CPUs that the task may use, as a list like `0-3,8` (`sched_getaffinity`). Read for some tasks only. The kernel returns the
    /// affinity mask within the cpuset, limited to online CPUs.
    pub cpus_allowed: Option<Arc<str>>,
    /// Cpuset that narrows `cpus_allowed`; `None`: no cpuset narrows it, or `cpus_allowed` is unknown.
    pub cpuset: Option<Arc<Cpuset>>,
    /// Process that created the task, if the task may not use all CPUs: an affinity mask is inherited. `None`: not read.
    pub parent: Option<u32>,
    /// Read for tasks in the root cgroup, if the kernel has autogroups. `None` also for a session whose weight somebody has set.
    pub autogroup: Option<Autogroup>,
}

/// The autogroup of a task: autogroups share the CPUs of the root cgroup equally, whatever the nice values of their tasks are. The
/// kernel creates one for each session, that is, for each call of setsid (`kernel/sched/autogroup.c`, Linux 2.6.38 to 7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Autogroup {
    /// The number in `/proc/PID/autogroup`.
    pub number: u64,
    /// The task's own nice value. It counts only among the tasks of the autogroup.
    pub nice: i32,
}

/// A cgroup whose cpuset excludes some online CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpuset {
    /// Path in the hierarchy of the cpuset controller, relative to the mount. Among ancestors with the same CPUs, this is the
    /// highest: the CPUs were set there.
    pub path: Arc<str>,
    /// The CPUs, as a list like `0-3,8`: v2 `cpuset.cpus.effective`, v1 `cpuset.effective_cpus`.
    pub cpus: Arc<str>,
}

/// Amounts by node: `(node, amount)`, ascending by node.
pub type ByNode = Vec<(u32, u64)>;

/// The nodes on which a task ran over an interval. `None`: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPlacement {
    pub node_migrations: Option<u64>,
    pub ran_ns: Option<ByNode>,
}

impl TaskPlacement {
    /// Returns the placement of a task on a host whose CPUs are all on one node.
    pub(crate) fn on(node: u32, ran_ns: u64) -> Self {
        let ran_ns = if ran_ns == 0 { Vec::new() } else { vec![(node, ran_ns)] };
        Self { node_migrations: Some(0), ran_ns: Some(ran_ns) }
    }

    /// Returns the increase since `before`, or since the task started.
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
        self.ran_ns = self.ran_ns.take().zip(next.ran_ns).map(|(a, b)| sum_by_node(a.into_iter().chain(b)));
    }
}

pub fn sum_by_node(amounts: impl IntoIterator<Item = (u32, u64)>) -> ByNode {
    let mut sums = ByNode::new();
    amounts.into_iter().for_each(|(node, amount)| add_by_node(&mut sums, node, amount));
    sums
}

pub fn add_by_node(sums: &mut ByNode, node: u32, amount: u64) {
    match sums.binary_search_by_key(&node, |(at, _)| *at) {
        Ok(at) => sum::add(&mut sums[at].1, amount),
        Err(at) => sums.insert(at, (node, amount)),
    }
}

pub fn amount(amounts: &[(u32, u64)], node: u32) -> u64 {
    total(amounts.iter().filter(|(at, _)| *at == node))
}

pub(crate) fn total<'a>(amounts: impl IntoIterator<Item = &'a (u32, u64)>) -> u64 {
    sum::total(amounts.into_iter().map(|(_, amount)| *amount))
}

/// Returns the increase by node, without zeros; `None` if an amount decreased.
pub(crate) fn since_by_node(now: &[(u32, u64)], before: &[(u32, u64)]) -> Option<ByNode> {
    if before.iter().any(|(node, _)| !now.iter().any(|(at, _)| at == node)) {
        return None;
    }
    let since = now.iter().map(|(node, ns)| Some((*node, ns.checked_sub(amount(before, *node))?)));
    since.filter(|since| since.is_none_or(|(_, amount)| amount != 0)).collect()
}

/// Parses a CPU list: `0-3,8` is 0, 1, 2, 3, 8. `None` for other text, and for numbers too large for a CPU.
pub fn parse_cpu_list(list: &str) -> Option<Vec<u32>> {
    /// Above the largest NR_CPUS of any architecture (8192).
    const MOST: u32 = 1 << 16;
    let list = list.trim();
    let mut out = BTreeSet::new();
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        out.extend(first..=last);
    }
    Some(out.into_iter().collect())
}

/// Formats an ascending list of CPUs, such as `0-3,8`.
pub fn cpu_list(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|cpu, next| *next == cpu + 1).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        single => single[0].to_string(),
    });
    runs.collect::<Vec<_>>().join(",")
}
