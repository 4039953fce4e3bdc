//! CPUs and NUMA nodes: what they did, and which tasks are restricted to them.
//!
//! Parsers are plain functions on text. All paths are below a root that tests choose.

mod affinity;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use cgscope_model::{CpuReading, NodeReading, ProcessMemory, Selection, TaskReading, placement::cpu_list};

use crate::{
    Failure, clock,
    facts::{self, has_no_numa, parse_cpu_list},
    memory::MemoryFiles,
};
pub(crate) use affinity::Active;
use affinity::{Affinities, CpusetFiles};

pub(crate) type NodesOfCpus = BTreeMap<u32, u32>;

#[derive(Debug)]
pub(crate) struct PlacementFiles {
    root: PathBuf,
    tick_ns: u64,
    online: Vec<u32>,
    pub(crate) cpu_nodes: NodesOfCpus,
    /// Whether CPUs went online or offline before the last call of [`cpus`](Self::cpus).
    pub(crate) has_changed: bool,
    /// `None` if thread ids here differ from those of the BPF side.
    affinities: Option<Affinities>,
    memory: Option<MemoryFiles>,
}

impl PlacementFiles {
    /// Creates a reader. `root` is `/` except in tests. `memory`: also read the memory of processes.
    pub(crate) fn new(root: &Path, memory: bool) -> Self {
        let ids_are_ours = || facts::gather(root).initial_pid_namespace != Some(false);
        let affinities = ids_are_ours().then(Affinities::default);
        let memory = memory.then(|| MemoryFiles::new(root));
        Self {
            root: root.into(),
            tick_ns: clock::tick_ns(),
            online: Vec::new(),
            cpu_nodes: cpu_nodes(root),
            has_changed: false,
            affinities,
            memory,
        }
    }

    pub(crate) fn has_several_nodes(&self) -> bool {
        let mut nodes = self.cpu_nodes.values();
        nodes.next().is_some_and(|first| nodes.any(|node| node != first))
    }

    /// Returns the online CPUs, ascending. Reading `/proc/stat` takes about 1 ms with several hundred CPUs, because the kernel
    /// sums their interrupts.
    pub(crate) fn cpus(&mut self) -> Vec<CpuReading> {
        let stat = fs::read_to_string(self.root.join("proc/stat")).unwrap_or_default();
        let mut cpus = cpu_times(&stat, self.tick_ns);
        let online: Vec<u32> = cpus.iter().map(|cpu| cpu.cpu).collect();
        self.has_changed = !self.online.is_empty() && online != self.online;
        if self.has_changed {
            self.cpu_nodes = cpu_nodes(&self.root);
        }
        self.online = online;
        for cpu in &mut cpus {
            cpu.node = self.cpu_nodes.get(&cpu.cpu).copied();
        }
        cpus
    }

    /// Returns the online nodes, ascending. They are read every time, because memory can be added and removed without CPUs.
    pub(crate) fn nodes(&self) -> Vec<NodeReading> {
        let system = self.root.join("sys/devices/system");
        let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        if has_no_numa(&self.root) {
            return vec![node_memory(0, &text(self.root.join("proc/meminfo")))];
        }
        let online = parse_cpu_list(&text(system.join("node/online"))).unwrap_or_default();
        let meminfo = |node| text(system.join(format!("node/node{node}/meminfo")));
        online.into_iter().map(|node| node_memory(node, &meminfo(node))).collect()
    }

    /// Sets the node of tasks whose CPU may have another one, and for busy tasks the scheduling and what restricts them to their
    /// CPUs. Returns the places of changed tasks. `active`: the tasks that are not as in the last sample.
    pub(crate) fn place(
        &mut self,
        tasks: &mut [Arc<TaskReading>],
        active: &[Active],
        mono_ns: u64,
    ) -> Vec<usize> {
        let mut changed = Vec::new();
        if self.has_changed {
            for (place, task) in tasks.iter_mut().enumerate() {
                let node = self.cpu_nodes.get(&task.cpu).copied();
                if task.node != node {
                    Arc::make_mut(task).node = node;
                    changed.push(place);
                }
            }
        }
        if let Some(affinities) = &mut self.affinities {
            let cpusets = CpusetFiles {
                root: &self.root,
                online: &self.online,
                mount: None,
                narrowing: HashMap::new(),
                masks: HashMap::new(),
            };
            changed.extend(affinities.look_at(tasks, active, mono_ns, cpusets));
        }
        changed
    }

    /// Returns the memory of these tasks' processes, ascending by id; empty unless requested.
    pub(crate) fn memory(&mut self, tasks: &[Arc<TaskReading>]) -> Vec<ProcessMemory> {
        self.memory.as_mut().map_or_else(Vec::new, |memory| memory.read(tasks, Instant::now()))
    }
}

pub(crate) fn check_places(selection: &Selection, nodes: &BTreeMap<u32, u32>) -> Result<(), Failure> {
    // If the nodes could not be read, they cannot be checked.
    if nodes.is_empty() {
        return Ok(());
    }
    let cpus: Vec<u32> = nodes.keys().copied().collect();
    let nodes: BTreeSet<u32> = nodes.values().copied().collect();
    let nodes: Vec<u32> = nodes.into_iter().collect();
    let asked =
        [("CPU", &selection.cpus, cpus, "online CPUs"), ("node", &selection.nodes, nodes, "nodes with CPUs")];
    for (what, asked, there, those) in asked {
        if let Some(missing) = asked.iter().find(|number| !there.contains(number)) {
            let what = format!("there is no {what} {missing}");
            return Err(Failure::new(what, "", format!("the {those} are {}", cpu_list(&there))));
        }
    }
    Ok(())
}

pub(crate) fn add_waits(cpus: &mut [CpuReading], counted: Vec<CpuReading>) {
    for CpuReading { cpu: number, waits, .. } in counted {
        if let Ok(i) = cpus.binary_search_by_key(&number, |cpu| cpu.cpu) {
            cpus[i].waits = waits;
        }
    }
}

/// Returns the node of each online CPU; empty if they could not be read.
pub(crate) fn cpu_nodes(root: &Path) -> BTreeMap<u32, u32> {
    if !has_no_numa(root) {
        return facts::cpu_to_node(root);
    }
    let online = fs::read_to_string(root.join("sys/devices/system/cpu/online")).unwrap_or_default();
    parse_cpu_list(&online).unwrap_or_default().into_iter().map(|cpu| (cpu, 0)).collect()
}

/// Parses the `cpuN` lines of `/proc/stat`, ascending: USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL GUEST GUEST_NICE. Only
/// online CPUs have a line. USER includes GUEST.
pub(crate) fn cpu_times(stat: &str, tick_ns: u64) -> Vec<CpuReading> {
    let cpu = |line: &str| {
        let (name, times) = line.strip_prefix("cpu")?.split_once(' ')?;
        let cpu = name.parse().ok()?;
        let ticks: Option<Vec<u64>> = times.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        let ticks = ticks.filter(|ticks| ticks.len() >= 7);
        let ns = |of: [usize; 5]| {
            let ticks = ticks.as_ref()?;
            let sum: u64 = of.iter().filter_map(|i| ticks.get(*i)).sum();
            sum.checked_mul(tick_ns)
        };
        // Field 7 (STEAL) is neither busy nor idle time: another guest ran.
        let (busy_ns, idle_ns) = (ns([0, 1, 2, 5, 6]), ns([3, 4, usize::MAX, usize::MAX, usize::MAX]));
        Some(CpuReading { cpu, busy_ns, idle_ns, ..CpuReading::default() })
    };
    let mut cpus: Vec<CpuReading> = stat.lines().filter_map(cpu).collect();
    cpus.sort_unstable_by_key(|cpu| cpu.cpu);
    cpus.dedup_by_key(|cpu| cpu.cpu);
    cpus
}

/// Parses lines like `Node 8 MemTotal:  1000 kB`, or those of `/proc/meminfo`, which lack the node.
fn node_memory(node: u32, meminfo: &str) -> NodeReading {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.split_once(name).map(|(_, rest)| rest))?;
        line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
    };
    NodeReading { node, memory_bytes: bytes("MemTotal:"), free_bytes: bytes("MemFree:") }
}

#[cfg(test)]
mod tests;
