//! Reads the times of CPUs, the memory of NUMA nodes, and which tasks are restricted to some CPUs.
//!
//! Parsers are plain functions on text. All paths are below a root that tests choose.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use cgscope_model::{
    Autogroup, CpuReading, Cpuset, NodeReading, Placement, ProcessMemory, Scheduling, Selection, TaskReading,
    placement::cpu_list,
};

use crate::{
    Failure, clock,
    facts::{self, cgroup_mounts, has_no_numa, mount_v1, parse_cpu_list},
    memory::MemoryFiles,
    source::coarse::text,
};

pub(crate) type NodesOfCpus = BTreeMap<u32, u32>;

pub(crate) struct PlacementFiles {
    root: PathBuf,
    tick_ns: u64,
    online: Vec<u32>,
    pub(crate) cpu_nodes: NodesOfCpus,
    /// Whether CPUs went online or offline between the last two calls of [`cpus`](Self::cpus).
    pub(crate) has_changed: bool,
    has_autogroups: bool,
    isolated: Vec<PathBuf>,
    /// `None` in another PID namespace, where the BPF side's thread ids are not ours.
    affinities: Option<Affinities>,
    memory: Option<MemoryFiles>,
}

impl PlacementFiles {
    /// Creates a reader. `root` is `/` except in tests. `memory` requests the memory of processes, too.
    pub(crate) fn new(root: &Path, memory: bool) -> Self {
        let facts = facts::gather(root);
        let ids_are_ours = facts.initial_pid_namespace != Some(false);
        Self {
            root: root.into(),
            tick_ns: clock::tick_ns(),
            online: Vec::new(),
            cpu_nodes: cpu_nodes(root),
            has_changed: false,
            has_autogroups: facts.autogroup == Some(true),
            isolated: isolated_files(root),
            affinities: ids_are_ours.then(Affinities::default),
            memory: memory.then(|| MemoryFiles::new(root)),
        }
    }

    pub(crate) fn has_several_nodes(&self) -> bool {
        let mut nodes = self.cpu_nodes.values();
        nodes.next().is_some_and(|first| nodes.any(|node| node != first))
    }

    /// Returns the online CPUs, ascending. With several hundred CPUs this takes about 1 ms, because the kernel adds up its
    /// interrupt counters.
    pub(crate) fn cpus(&mut self) -> Vec<CpuReading> {
        let stat = fs::read_to_string(self.root.join("proc/stat")).unwrap_or_default();
        let mut cpus = cpu_times(&stat, self.tick_ns);
        let online: Vec<u32> = cpus.iter().map(|cpu| cpu.cpu).collect();
        self.has_changed = !self.online.is_empty() && online != self.online;
        if self.has_changed {
            self.cpu_nodes = cpu_nodes(&self.root);
        }
        self.online = online;
        let isolated =
            self.isolated.iter().filter_map(|file| parse_cpu_list(&fs::read_to_string(file).ok()?));
        let isolated: BTreeSet<u32> = isolated.flatten().collect();
        for cpu in &mut cpus {
            cpu.node = self.cpu_nodes.get(&cpu.cpu).copied();
            cpu.is_isolated = isolated.contains(&cpu.cpu);
        }
        cpus
    }

    /// Returns the online nodes, ascending. Reads their list every time: it can change without a change of the CPUs.
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

    /// Updates the node of each task if CPUs have gone online or offline. Also sets the scheduling policy and the CPU
    /// restrictions of busy tasks. Returns the indices of changed tasks. `active` holds the tasks that differ from the last
    /// sample.
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
                has_autogroups: self.has_autogroups,
                mount: None,
                narrowing: HashMap::new(),
            };
            changed.extend(affinities.look_at(tasks, active, mono_ns, cpusets));
        }
        changed
    }

    pub(crate) fn memory(&mut self, tasks: &[Arc<TaskReading>]) -> Vec<ProcessMemory> {
        self.memory.as_mut().map_or_else(Vec::new, |memory| memory.read(tasks, Instant::now()))
    }
}

pub(crate) fn check_places(selection: &Selection, nodes: &BTreeMap<u32, u32>) -> Result<(), Failure> {
    // If we could not read the nodes, we cannot check the selection.
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

/// Returns the lists of CPUs without load balancing: those of `isolcpus=`, and of isolated cpuset partitions (Linux 6.7).
fn isolated_files(root: &Path) -> Vec<PathBuf> {
    let v2 = cgroup_mounts(&facts::mountinfo(root)).unified.map(|mount| facts::below(root, &mount));
    let files = [root.join("sys/devices/system/cpu/isolated")].into_iter();
    files.chain(v2.map(|mount| mount.join("cpuset.cpus.isolated"))).filter(|file| file.exists()).collect()
}

pub(crate) fn add_waits(cpus: &mut [CpuReading], counted: Vec<CpuReading>) {
    for CpuReading { cpu: number, waits, .. } in counted {
        if let Ok(i) = cpus.binary_search_by_key(&number, |cpu| cpu.cpu) {
            cpus[i].waits = waits;
        }
    }
}

/// Returns the node of each online CPU; empty if the nodes are unreadable.
pub(crate) fn cpu_nodes(root: &Path) -> BTreeMap<u32, u32> {
    if !has_no_numa(root) {
        return facts::cpu_to_node(root);
    }
    let online = fs::read_to_string(root.join("sys/devices/system/cpu/online")).unwrap_or_default();
    parse_cpu_list(&online).unwrap_or_default().into_iter().map(|cpu| (cpu, 0)).collect()
}

/// Parses the `cpuN` lines of `/proc/stat`, ascending: USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL GUEST GUEST_NICE. Only
/// online CPUs have a line. USER includes GUEST time.
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
        // Field 7 (STEAL) is neither busy nor idle time. It is the time in which the hypervisor ran another guest.
        let (busy_ns, idle_ns) = (ns([0, 1, 2, 5, 6]), ns([3, 4, usize::MAX, usize::MAX, usize::MAX]));
        Some(CpuReading { cpu, busy_ns, idle_ns, ..CpuReading::default() })
    };
    let mut cpus: Vec<CpuReading> = stat.lines().filter_map(cpu).collect();
    cpus.sort_unstable_by_key(|cpu| cpu.cpu);
    cpus.dedup_by_key(|cpu| cpu.cpu);
    cpus
}

/// Parses lines such as `Node 8 MemTotal:  1000 kB`, or the lines of `/proc/meminfo`, which lack the node.
fn node_memory(node: u32, meminfo: &str) -> NodeReading {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.split_once(name).map(|(_, rest)| rest))?;
        line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
    };
    NodeReading { node, memory_bytes: bytes("MemTotal:"), free_bytes: bytes("MemFree:") }
}

#[cfg(test)]
mod tests;

/// Minimum activity of a task that we read: run and wait time, in percent of the time since the last sample. Less active tasks
/// put no load on a node.
const BUSY_PERCENT: u64 = 1;
/// Maximum number of tasks to read per sample, the busiest first. `sched_getaffinity` and `sched_getscheduler` take about 0.3 µs
/// each. The files of a task that is bound to CPUs, or in the root cgroup with autogroups, take about 20 µs more. The total is at most 5 ms, and only in every fifth sample.
const TASKS: usize = 256;
/// Number of samples after which we re-read the affinity mask of a task.
const GOOD_FOR: u64 = 5;
/// Size of our affinity masks, CPUs: at least the largest NR_CPUS, because the kernel refuses only masks that are too short.
const MOST_CPUS: usize = 8192;
/// Flag of `sched_getscheduler`: children do not inherit the policy (2.6.32).
const SCHED_RESET_ON_FORK: libc::c_long = 0x4000_0000;
/// Id of the root of each cgroup hierarchy (`kernfs_create_root`). Autogroups apply only to tasks there.
const ROOT_CGROUP: u64 = 1;
/// Task flag since Linux 3.10: no program can change the affinity of the task.
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// A task that ran, waited or changed since the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    /// See [`TaskReading::serial`].
    pub(crate) serial: u64,
    /// Run and wait time since the last sample, without the current wait, ns.
    pub(crate) since_ns: u64,
    /// Run time since the last sample, ns; 0 if the task is new.
    pub(crate) ran_ns: u64,
}

impl Active {
    pub(crate) fn between(before: Option<&TaskReading>, now: &TaskReading) -> Self {
        let active_ns = |task: &TaskReading| task.totals.on_cpu_ns.saturating_add(task.totals.wait_ns);
        let since_ns = active_ns(now).saturating_sub(before.map_or(0, active_ns));
        let before_ns = before.map_or(u64::MAX, |before| before.totals.on_cpu_ns);
        Self { serial: now.serial, since_ns, ran_ns: now.totals.on_cpu_ns.saturating_sub(before_ns) }
    }
}

#[derive(Default)]
pub(super) struct Affinities {
    sample: u64,
    before_ns: u64,
    /// Tasks that we read recently, by serial. The number is the number of the sample in which we read the task.
    looks: HashMap<u64, (u64, Look)>,
}

struct Look {
    /// Only what is read here.
    placement: Placement,
    scheduling: Option<Scheduling>,
}

impl Affinities {
    /// Reads busy tasks, and updates `tasks`, which ascend by serial. Returns the indices of the changed tasks.
    pub(super) fn look_at(
        &mut self,
        tasks: &mut [Arc<TaskReading>],
        active: &[Active],
        mono_ns: u64,
        mut cpusets: CpusetFiles<'_>,
    ) -> Vec<usize> {
        self.sample += 1;
        let busy_ns = mono_ns.saturating_sub(self.before_ns) / 100 * BUSY_PERCENT;
        self.before_ns = mono_ns;
        let active = active.iter().filter_map(|active| {
            let at = place_of(tasks, active.serial)?;
            Some((active.since_ns.saturating_add(tasks[at].pending_ns().unwrap_or(0)), at))
        });
        let mut busy: Vec<(u64, usize)> = active.filter(|(ns, _)| *ns >= busy_ns.max(1)).collect();
        busy.sort_unstable_by(|a, b| b.cmp(a));
        for (_, at) in busy.into_iter().take(TASKS) {
            let (serial, tid) = (tasks[at].serial, tasks[at].tid);
            if self.looks.get(&serial).is_none_or(|(at, _)| self.sample - at >= GOOD_FOR) {
                let is_in_root = tasks[at].cgroup_id == ROOT_CGROUP;
                self.looks.insert(serial, (self.sample, cpusets.look(tid, is_in_root)));
            }
        }
        self.apply(tasks)
    }

    fn apply(&mut self, tasks: &mut [Arc<TaskReading>]) -> Vec<usize> {
        let mut changed = Vec::new();
        self.looks.retain(|serial, (at, look)| {
            let Some(place) = place_of(tasks, *serial) else { return false };
            let is_valid = self.sample - *at < GOOD_FOR;
            let task = &mut tasks[place];
            // Keep the policy when the mask expires: policies rarely change, and reports also use them for earlier waits.
            let none = Placement::default();
            let seen = if is_valid { &look.placement } else { &none };
            let has = task.placement.as_deref().unwrap_or(&none);
            fn read_here(placement: &Placement) -> impl PartialEq + use<'_> {
                (&placement.cpus_allowed, &placement.cpuset, placement.parent, placement.autogroup)
            }
            if task.scheduling != look.scheduling || read_here(has) != read_here(seen) {
                let Placement { cpus_allowed, cpuset, parent, autogroup, .. } = seen.clone();
                let placement = Placement { cpus_allowed, cpuset, parent, autogroup, ..has.clone() };
                let task = Arc::make_mut(task);
                task.scheduling = look.scheduling;
                task.placement = (placement != Placement::default()).then(|| placement.into());
                changed.push(place);
            }
            is_valid
        });
        changed
    }
}

fn place_of(tasks: &[Arc<TaskReading>], serial: u64) -> Option<usize> {
    tasks.binary_search_by_key(&serial, |task| task.serial).ok()
}

pub(super) struct CpusetFiles<'a> {
    pub(super) root: &'a Path,
    pub(super) online: &'a [u32],
    pub(super) has_autogroups: bool,
    /// Mount point of the cpuset hierarchy, and whether it is v2. `None` until the first task that is bound to CPUs.
    pub(super) mount: Option<Option<(PathBuf, bool)>>,
    pub(super) narrowing: HashMap<String, Option<Arc<Cpuset>>>,
}

impl CpusetFiles<'_> {
    fn look(&mut self, tid: u32, is_in_root: bool) -> Look {
        let mask = affinity(tid);
        let is_narrow = mask.as_ref().is_some_and(|mask| self.online.iter().any(|cpu| !mask.contains(cpu)));
        let autogroup = if is_in_root && self.has_autogroups { autogroup(self.root, tid) } else { None };
        // The `stat` file of the process would cost a sum over all threads.
        let read = || fs::read(self.root.join(format!("proc/{tid}/task/{tid}/stat"))).unwrap_or_default();
        let text = if is_narrow || autogroup.is_some() { read() } else { Vec::new() };
        let stat = text::stat(&text);
        let is_bound = is_narrow && stat.is_some_and(|stat| stat.flags & PF_NO_SETAFFINITY != 0);
        let scheduling = policy(tid).map(|policy| Scheduling { policy, is_bound });
        let placement = Placement {
            cpus_allowed: mask.map(|mask| cpu_list(&mask).into()),
            cpuset: if is_narrow { self.cpuset_of(tid) } else { None },
            parent: stat.filter(|stat| is_narrow && stat.ppid != 0).map(|stat| stat.ppid),
            autogroup: autogroup.zip(stat).map(|(number, stat)| Autogroup { number, nice: stat.nice }),
            ..Placement::default()
        };
        Look { placement, scheduling }
    }

    fn cpuset_of(&mut self, tid: u32) -> Option<Arc<Cpuset>> {
        let (mount, is_v2) = self.mount.get_or_insert_with(|| cpuset_mount(self.root)).clone()?;
        let cgroups = fs::read(self.root.join(format!("proc/{tid}/cgroup"))).ok()?;
        let path = cpuset_path(&String::from_utf8_lossy(&cgroups), is_v2)?;
        let narrowing = |path: &String| narrowing(&mount, is_v2, path, self.online);
        self.narrowing.entry(path).or_insert_with_key(narrowing).clone()
    }
}

fn affinity(tid: u32) -> Option<Vec<u32>> {
    let mut mask = [0u64; MOST_CPUS / 64];
    // SAFETY: the kernel writes at most the given length.
    let length = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr().cast::<u8>())
    };
    (length > 0).then(|| {
        let bits = (0..MOST_CPUS).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1);
        bits.map(|cpu| cpu as u32).collect()
    })
}

fn policy(tid: u32) -> Option<u8> {
    // Make the system call directly, because the function in musl always fails.
    // SAFETY: the call takes no pointers.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
    u8::try_from(policy & !SCHED_RESET_ON_FORK).ok()
}

/// Parses `/autogroup-NUMBER nice NICE`. `None` also if somebody has set the weight of the session: then it is as intended.
fn autogroup(root: &Path, tid: u32) -> Option<u64> {
    let text = fs::read_to_string(root.join(format!("proc/{tid}/autogroup"))).ok()?;
    let (number, nice) = text.trim().strip_prefix("/autogroup-")?.split_once(" nice ")?;
    number.parse().ok().filter(|_| nice == "0")
}

fn cpuset_mount(root: &Path) -> Option<(PathBuf, bool)> {
    let mountinfo = facts::mountinfo(root);
    let v1 = mount_v1(&mountinfo, "cpuset").map(|mount| (mount, false));
    let (mount, is_v2) = v1.or_else(|| Some((cgroup_mounts(&mountinfo).unified?, true)))?;
    Some((facts::below(root, &mount), is_v2))
}

/// Finds the path of a task's cpuset in the text of `/proc/PID/cgroup`. In v2, the cpuset is the task's cgroup.
pub(super) fn cpuset_path(cgroups: &str, is_v2: bool) -> Option<String> {
    let (_, path) = text::hierarchy(cgroups.as_bytes(), (!is_v2).then_some("cpuset"))?;
    let path = std::str::from_utf8(path).ok()?;
    (!path.split('/').any(|name| name == "..")).then(|| path.to_owned())
}

/// Returns the cpuset at `path` if it lacks some online CPUs. The returned path is the highest ancestor with the same CPUs.
pub(super) fn narrowing(mount: &Path, is_v2: bool, path: &str, online: &[u32]) -> Option<Arc<Cpuset>> {
    let names: &[&str] =
        if is_v2 { &["cpuset.cpus.effective"] } else { &["cpuset.effective_cpus", "cpuset.cpus"] };
    // A v2 cgroup without the cpuset controller has no such file; the cpuset of its parent applies.
    let cpus = |at: &Path| {
        let directory = mount.join(at);
        let text = names.iter().find_map(|name| fs::read_to_string(directory.join(name)).ok())?;
        parse_cpu_list(&text)
    };
    let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
    let mut sets = ancestors.filter_map(|at| Some((at, cpus(at)?)));
    let (own, cpus) = sets.next()?;
    let at = sets.take_while(|(_, above)| *above == cpus).last().map_or(own, |(at, _)| at);
    if online.iter().all(|cpu| cpus.contains(cpu)) {
        return None;
    }
    let path = format!("/{}", at.display()).into();
    Some(Arc::new(Cpuset { path, cpus: cpu_list(&cpus).into() }))
}
