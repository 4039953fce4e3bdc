//! Takes samples of the running host.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_ledger::{Loss, history::KERNEL};
use cgscope_model::{
    Blame, CgroupName, CgroupReading, ContainerReading, Mode, REST, REST_NAME, Sample, Selection,
    TaskReading, follower::Followed, names::near, selection::cgroup_of_unit, sum,
};

use crate::{
    Failure,
    cgroups::{CgroupTree, all_paths},
    clock::{monotonic_ns, unix_ns},
    facts::{self, CgroupMounts},
    limits::LimitFiles,
    own_cost::OwnCost,
    own_memory,
    placement::{self, PlacementFiles, check_places},
    source::{BpfSource, Changes, CoarseSource, Source, coarse::text},
};

/// Maximum number of cgroups whose settings a sample re-reads (about 20 ms). With 10,000 cgroups, we notice a changed quota
/// within 20 samples. We notice throttling earlier, because each sample reads the effects of quotas, and the hook sees all
/// throttling.
const SETTINGS_AT_ONCE: u64 = 500;
/// Maximum time that a sample spends on reading files of cgroups. The first read of a cgroup takes 140 us, a later read of a
/// cgroup with a quota 40 us. If the time runs out, the next sample begins with the unread cgroups.
const READS: Duration = Duration::from_millis(500);
/// Maximum number of cgroups that a sample reads only because they have a quota (a few ms). No figure refers to them.
const UNNAMED_QUOTAS: usize = 200;

/// What to collect.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which tasks to follow.
    pub selection: Selection,
    /// Whether to count waits by CPU even if the host has only one NUMA node.
    pub by_cpu: bool,
    /// Whether to read on which NUMA nodes the memory of the selected processes is. `memory.rs` describes the cost.
    pub memory: bool,
    /// What to read about the time that tasks spend outside of waits, if anything.
    pub accounts: Option<Accounting>,
    /// Whether to count the demand of cgroups with a quota. The hook then takes longer for tasks in these cgroups.
    pub demand: bool,
    /// Whether to count for whom tasks sleep. This follows every task of the host.
    pub chains: bool,
    /// Whether several viewers share the readings: see [`Collector::followed`] and [`Collector::changes`].
    pub shared: bool,
}

/// What to read about the time outside of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// Take the stack of a blocked task each time this period has passed; `None` takes no stacks.
    pub stack_every: Option<Duration>,
}

/// Finds the containers among the given cgroups (id and path) and returns their names.
pub type NameContainers = Box<dyn FnMut(&[(u64, Arc<str>)]) -> Vec<ContainerReading> + Send>;

/// Reads the running host. Dropping it detaches and unloads the BPF side, if one is loaded.
pub struct Collector {
    source: Box<dyn Source>,
    tree: Option<CgroupTree>,
    limits: LimitFiles,
    /// Id of the first cgroup that the latest sample had no time to read. The next sample begins there. 0 if it read all.
    read_next: u64,
    /// Total wait time caused by each cgroup's quota so far, ns.
    limited: BTreeMap<u64, u64>,
    placement: PlacementFiles,
    /// Whether to read all files of each cgroup. True if only a part of the host is selected.
    whole_limits: bool,
    cost: OwnCost,
    has_sampled: bool,
    /// Names the containers of all later samples.
    pub name_containers: Option<NameContainers>,
    /// Which tasks to follow for which viewer from the next sample on; see [`Options::shared`].
    pub changes: Changes,
}

/// Numbers of items that are kept between samples. These numbers are limited by what exists on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Cgroups with a known path.
    pub names: usize,
    /// Cgroups with figures of exited tasks.
    pub places: usize,
    /// Pairs of a victim and a culprit.
    pub pairs: usize,
}

impl Collector {
    /// Checks the selection, attaches the BPF side and follows the selected tasks. In [`Mode::Coarse`], the collector only reads
    /// `/proc` and cgroup files, which needs no privileges.
    pub fn start(options: &Options, mode: Mode) -> Result<Self, Failure> {
        let host = Path::new("/");
        let mounts = CgroupMounts::read(host);
        let tree = mounts.cpu().map(CgroupTree::new);
        let placement = PlacementFiles::new(host, options.memory);
        check(&options.selection, tree.as_ref(), &placement.cpu_nodes)?;
        let mut limits = LimitFiles::new(host);
        (limits.reads_memory, limits.settings_at_once) = (placement.has_several_nodes(), SETTINGS_AT_ONCE);
        let nodes = placement.cpu_nodes.clone();
        let source = match mode {
            Mode::Bpf => BpfSource::start(options, &mounts, tree.as_ref(), nodes)?,
            Mode::Coarse => CoarseSource::start(options, &mounts, nodes)?,
        };
        Ok(Self {
            source,
            tree,
            limits,
            read_next: 0,
            limited: BTreeMap::new(),
            placement,
            whole_limits: !options.selection.is_whole_host(),
            cost: OwnCost::default(),
            has_sampled: false,
            name_containers: None,
            changes: Changes::default(),
        })
    }

    /// Returns the mode of the readings.
    pub fn mode(&self) -> Mode {
        if self.source.hook().is_some() { Mode::Bpf } else { Mode::Coarse }
    }

    /// Takes a sample.
    pub fn sample(&mut self) -> Result<Sample, Failure> {
        let mut cpus = self.placement.cpus();
        if self.placement.has_changed {
            self.source.learn_nodes(&self.placement.cpu_nodes)?;
        }
        let (unix_ns, mono_ns) = (unix_ns(), monotonic_ns());
        let mut sample = Sample { unix_ns, mono_ns, ..self.source.read(&mut self.changes)? };
        self.place(&mut sample.tasks, mono_ns);
        placement::add_waits(&mut cpus, std::mem::take(&mut sample.cpus));
        sample.cpus = cpus;
        // Read the cgroup events after all figures. Then we have the creation event of every cgroup that a figure refers to,
        // unless the event was lost.
        let now = Instant::now();
        if let Some(tree) = &mut self.tree {
            self.source.report_cgroups(tree, now);
        }
        sample.losses = self.source.losses()?;
        sample.cgroups = self.name_cgroups(&sample, now);
        sample.losses.add(Loss::CgroupMerged, self.tree.as_mut().map_or(0, CgroupTree::count_merged));
        self.note_limited(&sample);
        sample.limits = self.read_limits(&mut sample.cgroups);
        self.source.complete(&mut sample, self.tree.as_ref())?;
        sample.cgroups.extend(rest_name(&sample));
        if let Some(name) = &mut self.name_containers {
            sample.containers = name(&sample.cgroups);
        }
        sample.cost = self.cost.read(self.source.hook());
        (sample.mode, sample.sched_ext) = (self.mode(), facts::sched_ext(Path::new("/")));
        (sample.nodes, sample.memory) = (self.placement.nodes(), self.placement.memory(&sample.tasks));
        if !std::mem::replace(&mut self.has_sampled, true) {
            own_memory::return_unused();
        }
        Ok(sample)
    }

    /// Reads the tasks of `sample` again. Without this second read, a command that cgscope holds before its start would count as
    /// blocked while the rest of the sample is taken (about a millisecond).
    pub fn read_tasks_again(&mut self, sample: &mut Sample) -> Result<(), Failure> {
        let (unix_ns, mono_ns) = (unix_ns(), monotonic_ns());
        let mut found = self.source.read(&mut self.changes)?;
        self.place(&mut found.tasks, mono_ns);
        if sample.cgroups.last().is_none_or(|(id, _)| *id != REST) {
            sample.cgroups.extend(rest_name(&found));
        }
        let Sample { tasks, exited, pairs, stacks, chains, .. } = found;
        *sample = Sample { unix_ns, mono_ns, tasks, exited, pairs, stacks, chains, ..std::mem::take(sample) };
        Ok(())
    }

    fn place(&mut self, tasks: &mut [Arc<TaskReading>], mono_ns: u64) {
        let changed = self.placement.place(tasks, self.source.active(), mono_ns);
        self.source.keep(tasks, &changed);
    }

    /// Reads cgroup settings, so that the next sample takes less time. After the first call, call this after each sample.
    pub fn read_ahead(&mut self) {
        self.limits.read_deferred();
    }

    /// Returns one sentence for each optional part that the kernel refused.
    pub fn refused(&self) -> &[String] {
        self.source.hook().map_or(&[], |hook| &hook.refused)
    }

    /// Returns which viewers follow each task of the latest sample, by serial. Empty without [`Options::shared`].
    pub fn followed(&self) -> Vec<Followed> {
        self.source.followed()
    }

    /// Measures the hook over `runs`, for at most `longest`. Call this before dropping `CAP_SYS_ADMIN`, which this measurement
    /// needs. Later samples use the result.
    pub fn measure_hook(&mut self, runs: u64, longest: Duration) {
        if let Some(side) = self.source.hook() {
            self.cost.measure(side, runs, longest);
        }
    }

    /// Counts the items that are kept now.
    pub fn held(&self) -> Held {
        let mut held = Held { names: self.tree.as_ref().map_or(0, CgroupTree::len), ..Held::default() };
        self.source.count_held(&mut held);
        held
    }

    /// Notes which cgroups were throttled since the last sample. They have a quota, even if an earlier read found none.
    fn note_limited(&mut self, sample: &Sample) {
        let limited = sample.pairs.iter().filter(|pair| pair.blame == Blame::Limited);
        let sums = sum::tally(limited.map(|pair| (pair.culprit, pair.ns)));
        for (id, _) in sums.iter().filter(|(id, ns)| self.limited.get(id) != Some(ns)) {
            self.limits.was_out_of_quota(*id);
        }
        self.limited = sums;
    }

    /// Reads the limits of the cgroups in `named` and of their ancestors, and adds the ancestors to `named`. Also reads other
    /// cgroups with a quota: if a task later moves to such a cgroup, its earlier counters must be known.
    fn read_limits(&mut self, named: &mut Vec<(u64, Arc<str>)>) -> Vec<CgroupReading> {
        let Some(tree) = &mut self.tree else { return Vec::new() };
        let mut ancestors = Vec::new();
        let mut parent = None;
        for (id, path) in named.iter() {
            // Look up the ancestors once for adjacent siblings. They are frequent, because later cgroups have higher ids.
            let above = path.rsplit_once('/').map(|(above, _)| above);
            if above != parent || parent.is_none() {
                ancestors.extend(tree.ancestors(*id));
                parent = above;
            }
        }
        named.extend(ancestors.into_iter().filter_map(|id| Some((id, tree.path(id)?.clone()))));
        named.sort_unstable_by_key(|(id, _)| *id);
        named.dedup_by_key(|(id, _)| *id);
        let mut limits = Vec::new();
        let (known, begun) = (&mut self.limits, Instant::now());
        for (id, path) in starting_at(named, std::mem::take(&mut self.read_next)) {
            if tree.is_removed(*id) || tree.merged.contains_key(id) {
                continue;
            }
            if begun.elapsed() >= READS {
                known.keep(*id);
                if self.read_next == 0 {
                    self.read_next = *id;
                }
            } else if let Some(reading) = known.read(*id, path, self.whole_limits) {
                limits.push(reading);
            } else {
                tree.suspect(*id);
            }
        }
        let is_named = |id: &u64| named.binary_search_by_key(id, |(id, _)| *id).is_ok();
        let others = tree.living().filter(|(id, _)| !is_named(id));
        let others = others.filter_map(|(id, path)| {
            if begun.elapsed() >= READS {
                known.keep(id);
                return None;
            }
            known.read(id, path, false).filter(|reading| reading.quota_us.is_some())
        });
        limits.extend(others.take(UNNAMED_QUOTAS));
        limits.iter_mut().for_each(|limits| limits.made_after_ns = tree.made.get(&limits.id).copied());
        limits.sort_unstable_by_key(|limits| limits.id);
        self.limits.drop_unread();
        limits
    }

    fn name_cgroups(&mut self, sample: &Sample, now: Instant) -> Vec<(u64, Arc<str>)> {
        let Some(tree) = &mut self.tree else { return Vec::new() };
        let mut ids = self.source.cgroups_of_tasks();
        ids.extend(sample.exited.iter().map(|place| place.cgroup_id));
        ids.extend(sample.pairs.iter().flat_map(|pair| [pair.victim, pair.culprit]));
        ids.extend(sample.chains.iter().flat_map(|chain| [chain.sleeper, chain.waker_cgroup]));
        ids.retain(|id| ![KERNEL, REST].contains(id));
        tree.learn(ids.iter().copied(), now);
        tree.drop_entries(|id| ids.contains(&id), now);
        let mut named: Vec<_> = ids.into_iter().filter_map(|id| Some((id, tree.path(id)?.clone()))).collect();
        named.sort_unstable_by_key(|(id, _)| *id);
        named
    }
}

/// Returns the id and the name of [`REST`] if `REST` is among the culprits. No cgroup has a higher id.
fn rest_name(sample: &Sample) -> Option<(u64, Arc<str>)> {
    let has_rest = sample.pairs.iter().any(|pair| pair.culprit == REST);
    has_rest.then(|| (REST, REST_NAME.into()))
}

/// Returns the process of thread `tid`; `None` if the thread does not exist.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    text::value(&std::fs::read(format!("/proc/{tid}/status")).ok()?, b"Tgid:")?.try_into().ok()
}

/// Checks that everything in the selection exists.
pub fn check(
    selection: &Selection,
    tree: Option<&CgroupTree>,
    nodes: &BTreeMap<u32, u32>,
) -> Result<(), Failure> {
    check_places(selection, nodes)?;
    for pid in &selection.pids {
        let tgid = process_of(*pid);
        let tgid = tgid.ok_or_else(|| Failure::new(format!("there is no process {pid}"), "", ""))?;
        if tgid != *pid {
            let remedy = format!("use --pid {tgid} for the process or --tid {pid} for the thread");
            return Err(Failure::new(format!("{pid} is a thread of process {tgid}"), "", remedy));
        }
    }
    if let Some(tid) = selection.tids.iter().find(|tid| process_of(**tid).is_none()) {
        return Err(Failure::new(format!("there is no thread {tid}"), "", ""));
    }
    check_cgroups(selection, tree)
}

fn check_cgroups(selection: &Selection, tree: Option<&CgroupTree>) -> Result<(), Failure> {
    if selection.cgroup.is_none() && selection.unit.is_none() {
        return Ok(());
    }
    let Some(tree) = tree else {
        return Err(Failure::new(
            "no cgroup hierarchy with the cpu controller is mounted",
            "tasks cannot be selected by cgroup",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ));
    };
    let missing = |what: String, remedy: &str| {
        Err(Failure::new(format!("there is no {what} under {}", tree.mount.display()), "", remedy))
    };
    if let Some(path) = selection.cgroup.as_ref().filter(|path| !tree.exists(path)) {
        return missing(format!("cgroup {path}"), "give the path below that mount");
    }
    let Some(unit) = &selection.unit else { return Ok(()) };
    let paths = all_paths(&tree.mount);
    if paths.values().any(|path| cgroup_of_unit(path, unit).is_some()) {
        return Ok(());
    }
    let units = paths.values().filter_map(|path| CgroupName::of(path).unit);
    let similar = near(unit, units);
    missing(
        format!("cgroup of unit {unit}"),
        &format!("`systemctl list-units` lists the units{similar}; select a slice with --cgroup"),
    )
}

/// Returns the rows from the id `first` on, and then the rows before it. The rows ascend by id.
fn starting_at<T>(rows: &[(u64, T)], first: u64) -> impl Iterator<Item = &(u64, T)> {
    let (before, after) = rows.split_at(rows.partition_point(|(id, _)| *id < first));
    after.iter().chain(before)
}

#[cfg(test)]
mod tests {
    use super::starting_at;

    #[test]
    fn a_reading_that_ran_out_of_time_continues_where_it_stopped() {
        let rows: Vec<(u64, ())> = (1..=9).map(|id| (id, ())).collect();
        for first in 0..=10 {
            let ids: Vec<u64> = starting_at(&rows, first).map(|(id, ())| *id).collect();
            let expected: Vec<u64> = (first.max(1)..=9).chain(1..first.min(10)).collect();
            assert_eq!(ids, expected, "from {first}");
        }
    }
}
