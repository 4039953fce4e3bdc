//! Readings of where tasks run and where memory lies: CPUs and NUMA nodes.
//!
//! CPU and node numbers are the kernel's own and may have gaps.

use std::{collections::BTreeSet, sync::Arc};

use crate::{ByCause, Hist};

/// One CPU that is online. Cumulative; `None`: could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuReading {
    /// Number of the CPU.
    pub cpu: u32,
    /// Its NUMA node, if the host reports it.
    pub node: Option<u32>,
    /// Busy time, interrupts included, ns: `/proc/stat`, in steps of 10 ms. Time taken by a hypervisor (steal) is neither
    /// here nor in `idle_ns`.
    pub busy_ns: Option<u64>,
    /// Idle time, ns: also from `/proc/stat`, including time spent waiting for I/O.
    pub idle_ns: Option<u64>,
    /// Waits of followed tasks that ended on this CPU, and moves from other nodes; `None` if they are not counted by CPU.
    pub waits: Option<CpuWaits>,
    /// Time in which some followed task waited for this CPU, ns, without time at a limit; `None`: coarse mode.
    pub contention_ns: Option<u64>,
    /// Time in which tasks on this CPU were at a limit and none waited for it, ns.
    pub throttled_pressure_ns: Option<u64>,
}

/// The figures that the hook counts by CPU. Cumulative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuWaits {
    /// The longest completed wait so far, ns.
    pub max_ns: u64,
    /// The waits by cause, ns.
    pub by_cause: ByCause,
    /// The distribution of the waits.
    pub hist: Arc<Hist>,
    /// Number of moves to this CPU of tasks that last ran on another node: `(other node, moves)`, ascending by node.
    pub came_from: Vec<(u32, u64)>,
}

/// One NUMA node, from `/sys/devices/system/node/nodeN/meminfo`. On a kernel without NUMA: node 0, from `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeReading {
    /// Number of the node.
    pub node: u32,
    /// Total memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Free memory, bytes.
    pub free_bytes: Option<u64>,
}

/// Where a task ran, on a host with several nodes, and where it may run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Number of moves to a CPU on another node so far; `None` if not counted.
    pub node_migrations: Option<u64>,
    /// Time on a CPU so far by node, ns: `(node, ns)`, ascending by node. `None` if not counted.
    pub ran_ns: Option<Vec<(u32, u64)>>,
    /// The node that the kernel's balancing prefers for the task (`task_struct.numa_preferred_nid`, CONFIG_NUMA_BALANCING).
    pub preferred_node: Option<u32>,
    /// CPUs that the task may run on, as a list like `0-3,8` (`sched_getaffinity`); read for some tasks only.
    ///
    /// The kernel returns the affinity mask within the cpuset, limited to online CPUs.
    pub cpus_allowed: Option<Arc<str>>,
    /// The cpuset that narrows `cpus_allowed`. If `cpus_allowed` is known and this is `None`, no cpuset narrows it.
    pub cpuset: Option<Arc<Cpuset>>,
}

/// A cgroup whose cpuset leaves out CPUs that are online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpuset {
    /// The path in the hierarchy of the cpuset controller, relative to the mount. If ancestors have the same CPUs, the
    /// highest of them: the CPUs were set there.
    pub path: Arc<str>,
    /// The CPUs, as a list like `0-3,8`: v2 `cpuset.cpus.effective`, v1 `cpuset.effective_cpus`.
    pub cpus: Arc<str>,
}

/// Where the memory of a process lies, from `/proc/PID/numa_maps`. Not cumulative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Process id.
    pub tgid: u32,
    /// Resident bytes by node, ascending by node. Pages shared by several processes count in each.
    pub by_node: Vec<(u32, u64)>,
    /// The same bytes by the memory policy of their mapping, named as in the kernel (`default`, `bind:1`, `interleave:0-1`),
    /// the largest first.
    pub policies: Vec<(Arc<str>, u64)>,
}

/// Parses a CPU list: `0-3,8` is 0, 1, 2, 3, 8. `None` for other text and for numbers too large to be CPUs.
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
    let mut out = String::new();
    let mut rest = cpus;
    while let Some(first) = rest.first() {
        let length = rest.windows(2).take_while(|pair| pair[1] == pair[0] + 1).count();
        let last = rest[length];
        let comma = if out.is_empty() { "" } else { "," };
        out += &match length {
            0 => format!("{comma}{first}"),
            _ => format!("{comma}{first}-{last}"),
        };
        rest = &rest[length + 1..];
    }
    out
}
