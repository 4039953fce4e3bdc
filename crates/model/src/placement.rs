//! Where tasks run and where memory lies: CPUs and NUMA nodes, as read.
//!
//! CPU and node numbers are the kernel's own and may have gaps.

use std::{collections::BTreeSet, sync::Arc};

use crate::{ByCause, Hist};

/// One CPU that is online. Cumulative; what could not be read is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuReading {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node, where the host tells.
    pub node: Option<u32>,
    /// Time in which it ran anything, interrupts included, ns: `/proc/stat`, in steps of 10 ms. Time that a hypervisor
    /// took (steal) is neither here nor in `idle_ns`.
    pub busy_ns: Option<u64>,
    /// Time in which it ran nothing, ns: as above, with the time waited for I/O.
    pub idle_ns: Option<u64>,
    /// Waits of followed tasks that ended on it, and whence tasks came; `None` where they are not counted by CPU.
    pub waits: Option<CpuWaits>,
}

/// What the hook counts by CPU. Cumulative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuWaits {
    /// The longest completed wait so far, ns.
    pub max_ns: u64,
    /// Their sum by cause.
    pub by_cause: ByCause,
    /// Their distribution.
    pub hist: Arc<Hist>,
    /// Times that a task which had last run on that other node came on this CPU: `(node, times)`, ascending by node.
    pub came_from: Vec<(u32, u64)>,
}

/// One NUMA node, as `/sys/devices/system/node/nodeN/meminfo` tells; of a kernel without NUMA node 0, as `/proc/meminfo`
/// tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeReading {
    /// Its number.
    pub node: u32,
    /// Memory that it has, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory of it that nobody uses, bytes.
    pub free_bytes: Option<u64>,
}

/// Where a task ran, on a host with several nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Times so far that it came on a CPU of another node than the one it had run on last; `None` where that is not
    /// counted.
    pub node_migrations: Option<u64>,
    /// Time on a CPU so far by node, ns: `(node, ns)`, ascending by node. `None` where that is not counted.
    pub ran_ns: Option<Vec<(u32, u64)>>,
    /// The node that the kernel's balancing prefers for it (`task_struct.numa_preferred_nid`, CONFIG_NUMA_BALANCING).
    pub preferred_node: Option<u32>,
    /// CPUs that it may run on, as a list like `0-3,8` (`sched_getaffinity`), of tasks that were looked at for it. The
    /// kernel gives what is left of the affinity mask within the cpuset, CPUs that are online only.
    pub cpus_allowed: Option<Arc<str>>,
    /// The cpuset that narrows this, where one does: with the mask known and this `None`, no cpuset does.
    pub cpuset: Option<Arc<Cpuset>>,
}

/// A cgroup whose cpuset leaves out CPUs that are online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpuset {
    /// Its path in the hierarchy of the cpuset controller, as under the mount: of those above each other with the same
    /// CPUs the highest, which is where they were set.
    pub path: Arc<str>,
    /// The CPUs, as a list like `0-3,8`: v2 `cpuset.cpus.effective`, v1 `cpuset.effective_cpus`.
    pub cpus: Arc<str>,
}

/// Where the memory of a process lies, from `/proc/PID/numa_maps`. Not cumulative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Process id.
    pub tgid: u32,
    /// Bytes of it in memory by node, ascending by node. Pages that processes share count in each.
    pub by_node: Vec<(u32, u64)>,
    /// The same bytes by the memory policy of their mapping, as the kernel writes it (`default`, `bind:1`,
    /// `interleave:0-1`), the most first.
    pub policies: Vec<(Arc<str>, u64)>,
}

/// `0-3,8` is 0, 1, 2, 3, 8. `None` for anything else, also for a range too long to be meant.
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

/// `0-3,8` of an ascending list.
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
