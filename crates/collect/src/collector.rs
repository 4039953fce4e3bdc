//! The collector: Samples of the running host.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_model::{
    Blame, CgroupReading, Mode, REST, Sample, Selection,
    access::{Access, Follower},
    selection::cgroup_of_unit,
};

use crate::{
    Failure,
    cgroups::{CgroupTree, all_paths},
    clock::{monotonic_ns, unix_ns},
    facts::CgroupMounts,
    limits::LimitFiles,
    own_cost::OwnCost,
    placement::{self, NodesOfCpus, PlacementFiles, check_places},
    proc,
    source::{BpfSource, CoarseSource, Found, Source},
};

/// Of so many cgroups the settings are read again for a Sample: some 20 ms. Up to five times as many that makes every fifth Sample;
/// with 10,000 cgroups a quota that somebody changes is seen within 20 Samples. What a quota does is read for each Sample, and that
/// it throttles is seen by the hook whatever its files say.
const SETTINGS_AT_ONCE: u64 = 500;

/// The counters of at most so many cgroups are read that have a quota and that no figure names: a few milliseconds.
const UNNAMED_QUOTAS: usize = 200;

/// What to collect.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whose waits.
    pub selection: Selection,
    /// Count waits by CPU, also where that is not needed to tell them by node.
    pub by_cpu: bool,
    /// Read where the memory of the selected processes lies: see [`crate::memory`] for what that costs.
    pub memory: bool,
    /// Read where the time of tasks goes beside their waits.
    pub accounts: Option<Accounting>,
    /// Readings are for viewers of several users: see [`Collector::access`] and [`Collector::follow`].
    pub shared: bool,
}

/// What is read of where time goes beside waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// Take the stack of a task whenever it has been blocked for so long since the last time; `None`: never.
    pub stack_every: Option<Duration>,
}

/// Reads the running host. Dropping it detaches and unloads the BPF side, if there is one.
pub struct Collector {
    source: Box<dyn Source>,
    tree: Option<CgroupTree>,
    limits: LimitFiles,
    /// How long the quota of each cgroup had tasks wait so far, ns.
    limited: HashMap<u64, u64>,
    placement: PlacementFiles,
    /// All that the files of a cgroup tell is read where not the whole host is asked for.
    whole_limits: bool,
    cost: OwnCost,
}

/// How much is held from one Sample to the next. It is bounded by what is there on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Cgroups whose path is known.
    pub names: usize,
    /// Cgroups of which the BPF side has figures of exited tasks.
    pub places: usize,
    /// Pairs of a victim and a culprit.
    pub pairs: usize,
}

impl Collector {
    /// Checks the selection, loads and attaches the BPF side, and begins to follow the selected tasks.
    pub fn start(options: &Options) -> Result<Self, Failure> {
        Self::with_source(options, |mounts, tree, nodes| {
            Ok(Box::new(BpfSource::start(options, mounts, tree, nodes)?))
        })
    }

    /// The same without BPF, from `/proc` and the files of cgroups: [`Mode::Coarse`]. Needs no privilege.
    pub fn start_coarse(options: &Options) -> Result<Self, Failure> {
        Self::with_source(options, |mounts, _, nodes| {
            Ok(Box::new(CoarseSource::start(options, mounts, nodes)?))
        })
    }

    fn with_source(
        options: &Options,
        source: impl FnOnce(&CgroupMounts, Option<&CgroupTree>, NodesOfCpus) -> Result<Box<dyn Source>, Failure>,
    ) -> Result<Self, Failure> {
        let host = Path::new("/");
        let mounts = CgroupMounts::read(host);
        let tree = mounts.cpu().map(CgroupTree::new);
        let placement = PlacementFiles::new(host, options.memory);
        check(&options.selection, tree.as_ref(), &placement.cpu_nodes)?;
        let mut limits = LimitFiles::new(host);
        (limits.reads_memory, limits.settings_at_once) = (placement.has_several_nodes(), SETTINGS_AT_ONCE);
        let source = source(&mounts, tree.as_ref(), placement.cpu_nodes.clone())?;
        // Reading the kernel's types takes 15 MiB for a moment; without this the C library keeps them.
        // SAFETY: no preconditions.
        unsafe { libc::malloc_trim(0) };
        Ok(Self {
            source,
            tree,
            limits,
            limited: HashMap::new(),
            placement,
            whole_limits: !options.selection.is_whole_host(),
            cost: OwnCost::default(),
        })
    }

    /// Where its readings come from.
    pub fn mode(&self) -> Mode {
        self.source.mode()
    }

    /// Reads everything once.
    pub fn sample(&mut self) -> Result<Sample, Failure> {
        let mut cpus = self.placement.cpus();
        if self.placement.has_changed {
            self.source.learn_nodes(&self.placement.cpu_nodes)?;
        }
        // The moment of what is counted by task.
        let (unix_ns, mono_ns) = (unix_ns(), monotonic_ns());
        let mut found = self.source.read()?;
        self.placement.place(&mut found.tasks, mono_ns);
        placement::add_waits(&mut cpus, std::mem::take(&mut found.cpus));
        // After all that may name a cgroup: whatever it names was told of before, if at all.
        let now = Instant::now();
        if let Some(tree) = &mut self.tree {
            self.source.tell_of_cgroups(tree, now);
        }
        let losses = self.source.losses()?;
        let mut cgroups = self.name_cgroups(&found, now);
        self.note_limited(&found);
        let limits = self.read_limits(&mut cgroups);
        // Its id is the highest.
        cgroups.extend(found.rest_name());
        if let Some(tree) = &self.tree {
            self.source.give_back(&found, tree, now)?;
        }
        let cost = self.cost.read(self.source.hook());
        let mode = self.source.mode();
        let Found { tasks, exited, pairs, stacks, .. } = found;
        let (nodes, memory) = (self.placement.nodes(), self.placement.memory(&tasks));
        Ok(Sample {
            stacks,
            unix_ns,
            mono_ns,
            mode,
            tasks,
            exited,
            pairs,
            limits,
            cgroups,
            cpus,
            nodes,
            memory,
            losses,
            cost,
        })
    }

    /// Reads again what is told of tasks, for a Sample that was just taken: the rest of it takes a millisecond or more, in which
    /// a task that we hold back would be blocked by us.
    pub fn read_tasks_again(&mut self, sample: &mut Sample) -> Result<(), Failure> {
        let (unix_ns, mono_ns) = (unix_ns(), monotonic_ns());
        let mut found = self.source.read()?;
        self.placement.place(&mut found.tasks, mono_ns);
        if sample.cgroups.last().is_none_or(|(id, _)| *id != REST) {
            sample.cgroups.extend(found.rest_name());
        }
        let Found { tasks, exited, pairs, stacks, .. } = found;
        *sample = Sample { unix_ns, mono_ns, tasks, exited, pairs, stacks, ..std::mem::take(sample) };
        Ok(())
    }

    /// What the kernel refused of what measuring can do without, in sentences.
    pub fn refused(&self) -> &[String] {
        self.source.hook().map_or(&[], |hook| &hook.refused)
    }

    /// Of each task of the latest Sample, ascending by serial: whose it is. Empty where readings are not [shared](Options::shared).
    pub fn access(&self) -> &[Access] {
        self.source.access()
    }

    /// From the next Sample on all threads of these processes are followed for this viewer, and what they start later.
    pub fn follow(&mut self, follower: Follower, pids: &[u32]) {
        if let Some(changes) = self.source.changes() {
            changes.follow(follower, pids);
        }
    }

    /// From the next Sample on nobody is followed for this viewer.
    pub fn follow_no_longer(&mut self, follower: Follower) {
        if let Some(changes) = self.source.changes() {
            changes.stop(follower);
        }
    }

    /// Measures the hook over so many runs, or for so long if they do not come. Later Samples have that figure where the privilege to
    /// measure it (`CAP_SYS_ADMIN`) has been given up.
    pub fn measure_hook(&mut self, runs: u64, longest: Duration) {
        if let Some(side) = self.source.hook() {
            self.cost.measure(side, runs, longest);
        }
    }

    /// What is held now.
    pub fn held(&self) -> Held {
        let names = self.tree.as_ref().map_or(0, CgroupTree::len);
        let (places, pairs) = self.source.held();
        Held { names, places, pairs }
    }

    /// A cgroup whose quota kept tasks from running since the last Sample has a quota, whatever was read before.
    fn note_limited(&mut self, found: &Found) {
        let mut sums: HashMap<u64, u64> = HashMap::new();
        for pair in found.pairs.iter().filter(|pair| pair.blame == Blame::Limited) {
            let sum = sums.entry(pair.culprit).or_default();
            *sum = sum.saturating_add(pair.ns);
        }
        for (id, _) in sums.iter().filter(|(id, ns)| self.limited.get(id) != Some(ns)) {
            self.limits.was_out_of_quota(*id);
        }
        self.limited = sums;
    }

    /// Reads the limits of the cgroups in `named` and of their ancestors, and names these, too. Also those of others that have a
    /// quota: a task may come into one of them, and what its counters were before that is then known.
    fn read_limits(&mut self, named: &mut Vec<(u64, Arc<str>)>) -> Vec<CgroupReading> {
        let Some(tree) = &mut self.tree else { return Vec::new() };
        let ancestors: Vec<u64> = named.iter().flat_map(|(id, _)| tree.ancestors(*id)).collect();
        named.extend(ancestors.into_iter().filter_map(|id| Some((id, tree.path(id)?.clone()))));
        named.sort_unstable_by_key(|(id, _)| *id);
        named.dedup_by_key(|(id, _)| *id);
        let mut limits = Vec::new();
        for (id, path) in named.iter() {
            if tree.is_gone(*id) {
                continue;
            }
            match self.limits.read(*id, path, self.whole_limits) {
                Some(reading) => {
                    limits.push(CgroupReading { made_after_ns: tree.made_after_ns(*id), ..reading });
                }
                None => tree.suspect(*id),
            }
        }
        let is_named = |id: &u64| named.binary_search_by_key(id, |(id, _)| *id).is_ok();
        let others = tree.living().filter(|(id, _)| !is_named(id));
        let others = others.filter_map(|(id, path)| {
            let reading = self.limits.read(id, path, false).filter(|reading| reading.quota_us.is_some())?;
            Some(CgroupReading { made_after_ns: tree.made_after_ns(id), ..reading })
        });
        limits.extend(others.take(UNNAMED_QUOTAS));
        limits.sort_unstable_by_key(|limits| limits.id);
        self.limits.forget_unread();
        limits
    }

    fn name_cgroups(&mut self, found: &Found, now: Instant) -> Vec<(u64, Arc<str>)> {
        let Some(tree) = &mut self.tree else { return Vec::new() };
        let ids: HashSet<u64> = found.cgroup_ids().collect();
        tree.learn(ids.iter().copied(), now);
        tree.forget(|id| ids.contains(&id), now);
        let mut named: Vec<_> = ids.into_iter().filter_map(|id| Some((id, tree.path(id)?.clone()))).collect();
        named.sort_unstable_by_key(|(id, _)| *id);
        named
    }
}

/// Everything that a selection names must exist.
pub fn check(
    selection: &Selection,
    tree: Option<&CgroupTree>,
    nodes: &BTreeMap<u32, u32>,
) -> Result<(), Failure> {
    check_places(selection, nodes)?;
    for pid in &selection.pids {
        match proc::process_of(*pid) {
            Some(tgid) if tgid == *pid => {}
            Some(tgid) => {
                return Err(Failure::new(
                    format!("{pid} is a thread of process {tgid}"),
                    "",
                    format!("use --pid {tgid} for the process or --tid {pid} for the thread"),
                ));
            }
            None => return Err(Failure::new(format!("there is no process {pid}"), "", "")),
        }
    }
    for tid in &selection.tids {
        if proc::process_of(*tid).is_none() {
            return Err(Failure::new(format!("there is no thread {tid}"), "", ""));
        }
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
        return missing(format!("cgroup {path}"), "give the path as under that mount");
    }
    let is_there =
        |unit: &str| all_paths(&tree.mount).values().any(|path| cgroup_of_unit(path, unit).is_some());
    if let Some(unit) = selection.unit.as_ref().filter(|unit| !is_there(unit)) {
        return missing(
            format!("cgroup of unit {unit}"),
            "`systemctl list-units` names the units; select a slice with --cgroup",
        );
    }
    Ok(())
}
