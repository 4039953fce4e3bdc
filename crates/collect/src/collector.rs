//! The collector: Samples of the running host.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
    time::Instant,
};

use cgscope_layout::{Loss, ledger::KERNEL, wire::Config};
use cgscope_model::{
    CgroupReading, CpuReading, ExitedReading, Losses, Mode, PairReading, Sample, Selection, TaskReading,
};

use crate::{
    Failure,
    by_cpu::{CpuCounts, Places},
    cgroups::{self, CgroupTree, Event, Remains},
    clock::{monotonic_ns, unix_ns},
    facts::{self, CgroupMounts},
    kernel_side::KernelSide,
    ledger::Ledger,
    limits::LimitFiles,
    offsets,
    own_cost::OwnCost,
    placement::{PlacementFiles, Wanted, check_places},
    proc,
    readings::{Known, exited_reading, keep, pending, reading},
    stream::{End, read_records},
};

/// Longer than starting ever takes, and shorter than an id takes to come back.
const STARTING_NS: u64 = 2_000_000_000;

/// What to collect.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whose waits.
    pub selection: Selection,
    /// Count waits by CPU, also where that is not needed to tell them by node.
    pub by_cpu: bool,
    /// Read where the memory of the selected processes lies: see [`crate::memory`] for what that costs.
    pub memory: bool,
}

/// Reads the running host. Dropping it detaches and unloads the BPF side.
pub struct Collector {
    side: KernelSide,
    tree: Option<CgroupTree>,
    node_places: Places,
    /// What was counted by CPU, where that is done.
    cpu_counts: Option<CpuCounts>,
    /// What is kept of each task from one reading to the next.
    known: HashMap<u64, Known>,
    ledger: Ledger,
    /// The latest clock of any run queue at the latest reading of the tasks, ns.
    clock_ns: u64,
    remains: Remains,
    /// Places among the exited after the last Sample.
    places: usize,
    limits: LimitFiles,
    placement: PlacementFiles,
    /// All that the files of a cgroup tell is read where not the whole host is asked for.
    whole_limits: bool,
    cost: OwnCost,
    /// Losses of the BPF side before the first Sample: while tasks were taken in one after the other.
    losses_at_start: Losses,
    /// Events of cgroups that were lost until the last Sample.
    events_lost: u64,
    own_losses: Losses,
    buffer: Vec<u8>,
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
        let selection = &options.selection;
        let host = Path::new("/");
        let mounts = CgroupMounts::read(host);
        let tree = mounts.cpu().map(CgroupTree::new);
        check(selection, tree.as_ref())?;
        let placement = PlacementFiles::new(host, Wanted { memory: options.memory });
        check_places(selection, placement.cpu_nodes())?;
        let resolved = offsets::resolve(Path::new(offsets::VMLINUX_BTF))?;
        let missing = resolved.missing_required();
        if !missing.is_empty() {
            return Err(Failure::of_host(
                format!("this kernel does not have {}", missing.join(", ")),
                "waits cannot be measured",
                "`cgscope doctor` says which kernel option each of them needs",
            ));
        }
        let now_ns = monotonic_ns();
        let node_places = Places::new(placement.cpu_nodes());
        let count_by_cpu = options.by_cpu || node_places.len() > 1;
        let config = Config {
            follow_all: selection.follows_all().into(),
            born_after_ns: now_ns,
            select_born_before_ns: now_ns + STARTING_NS,
            cgroup_v2: mounts.cpu_is_v2().into(),
            root_cgroup_id: tree.as_ref().and_then(CgroupTree::root_id).unwrap_or_default(),
            blame_tasks: (!selection.follows_all()).into(),
            cgroup_hierarchy: hierarchy_to_hear_of(tree.as_ref(), mounts.cpu_is_v2()),
            nodes: node_places.len() as u64,
            count_by_cpu: count_by_cpu.into(),
        };
        let cpus = facts::possible_cpus(host);
        let cpu_places = |(cpu, node): (&u32, &u32)| (*cpu, node_places.number_of(*node));
        let cpu_places: Vec<_> = placement.cpu_nodes().iter().map(cpu_places).collect();
        let mut collector = Self {
            side: KernelSide::start(
                resolved.offsets,
                config,
                cpus,
                &cpu_places,
                &selection.pids,
                &selection.tids,
            )?,
            tree,
            node_places,
            cpu_counts: count_by_cpu.then(CpuCounts::default),
            known: HashMap::new(),
            ledger: Ledger::default(),
            clock_ns: 0,
            remains: Remains::default(),
            places: 0,
            limits: LimitFiles::new(host).with_memory_by_node(placement.has_several_nodes()),
            placement,
            whole_limits: !selection.is_whole_host(),
            cost: OwnCost::default(),
            losses_at_start: Losses::default(),
            events_lost: 0,
            own_losses: Losses::default(),
            buffer: Vec::new(),
        };
        // From here on every selected task is followed. What is told now is not told again: it is kept.
        collector.read_tasks()?;
        collector.losses_at_start = collector.kernel_losses()?;
        // Reading the kernel's types takes 15 MiB for a moment; without this the C library keeps them.
        // SAFETY: no preconditions.
        unsafe { libc::malloc_trim(0) };
        Ok(collector)
    }

    /// Reads everything once.
    pub fn sample(&mut self) -> Result<Sample, Failure> {
        let (unix_ns, mono_ns) = (unix_ns(), monotonic_ns());
        let mut cpus = self.placement.cpus();
        if self.placement.has_changed() {
            self.learn_nodes()?;
        }
        let mut tasks = self.read_tasks()?;
        self.placement.place(&mut tasks, mono_ns);
        self.read_waits_of(&mut cpus)?;
        let exited = self.read_exited()?;
        let ledger = &mut self.ledger;
        self.side.pairs(|cpu, table| ledger.take(cpu, table))?;
        self.side.pairs_were_read(self.clock_ns)?;
        let pairs = self.ledger.readings();
        // After all that may name a cgroup: whatever it names was told of before, if at all.
        let now = Instant::now();
        self.hear_of_cgroups(now);
        let mut losses = self.kernel_losses()?.since(&self.losses_at_start);
        for (loss, count) in self.own_losses.nonzero() {
            losses.add(loss, count);
        }
        self.heed_lost_events(losses.get(Loss::CgroupEventLost));
        let mut cgroups = self.name_cgroups(&tasks, &exited, &pairs, now);
        let limits = self.read_limits(&mut cgroups);
        self.give_back(&tasks, &exited, &pairs, now)?;
        let cost = self.cost.read(&self.side);
        let mode = Mode::Bpf;
        let nodes = self.placement.nodes();
        let memory = self.placement.memory(&tasks);
        Ok(Sample {
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

    /// What is held now.
    pub fn held(&self) -> Held {
        let names = self.tree.as_ref().map_or(0, CgroupTree::len);
        Held { names, places: self.places, pairs: self.ledger.len() }
    }

    fn hear_of_cgroups(&mut self, now: Instant) {
        let Some(tree) = &mut self.tree else { return };
        self.side.cgroup_events(|bytes| {
            if let Some(event) = Event::parse(bytes) {
                tree.hear(event, now);
            }
        });
    }

    fn heed_lost_events(&mut self, lost: u64) {
        if lost != self.events_lost {
            self.events_lost = lost;
            if let Some(tree) = &mut self.tree {
                tree.has_missed_events();
            }
        }
    }

    /// Gives back what is held for cgroups that are gone, once nothing comes on top any more: a task on its way out may do
    /// its last switch after its cgroup was removed. The Sample just read still has it all.
    fn give_back(
        &mut self,
        tasks: &[TaskReading],
        exited: &[ExitedReading],
        pairs: &[PairReading],
        now: Instant,
    ) -> Result<(), Failure> {
        self.places = exited.len();
        let Some(tree) = &self.tree else { return Ok(()) };
        let mut figures: HashMap<u64, u64> = HashMap::new();
        let of_places = exited.iter().map(|place| (place.cgroup_id, motion(place)));
        let of_pairs = pairs.iter().flat_map(|pair| [(pair.victim, pair.ns), (pair.culprit, pair.ns)]);
        for (id, figure) in of_places.chain(of_pairs).filter(|(id, _)| tree.is_long_gone(*id, now)) {
            let sum = figures.entry(id).or_default();
            *sum = sum.wrapping_add(figure);
        }
        for task in tasks {
            figures.remove(&task.cgroup_id);
        }
        let settled = self.remains.settled(figures);
        if settled.is_empty() {
            return Ok(());
        }
        let places = exited.iter().map(|place| place.cgroup_id).filter(|id| settled.contains(id));
        let places: Vec<u64> = places.collect();
        self.places -= places.len();
        self.ledger.forget(|id| settled.contains(&id));
        self.side.give_back(places)
    }

    /// Reads the limits of the cgroups in `named` and of their ancestors, and names these, too.
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
                Some(reading) => limits.push(reading),
                None => tree.suspect(*id),
            }
        }
        self.limits.forget_unread();
        limits
    }

    fn read_tasks(&mut self) -> Result<Vec<TaskReading>, Failure> {
        let mut stream = self.side.read_tasks()?;
        let before = std::mem::take(&mut self.known);
        let mut known = HashMap::with_capacity(before.len());
        let mut tasks = Vec::with_capacity(before.len());
        // The clock of an idle CPU stands still; the latest clock of any is the best "now" that there is.
        let mut now_ns = 0;
        let end = read_records(&mut stream, &mut self.buffer, |record, placement, histogram| {
            now_ns = now_ns.max(record.rq_clock_ns);
            let kept = keep(before.get(&record.serial), record, histogram);
            let placement = placement.map(|raw| self.node_places.placement(raw, record.totals.on_cpu_ns));
            tasks.push((reading(record, placement, &kept, self.placement.cpu_nodes()), *record));
            known.insert(record.serial, kept);
        })
        .map_err(reading_failed)?;
        if end == End::CutShort {
            self.own_losses.add(Loss::ReadingCutShort, 1);
        }
        self.known = known;
        self.clock_ns = now_ns;
        let mut tasks: Vec<TaskReading> = tasks
            .into_iter()
            .map(|(mut task, record)| {
                task.pending = pending(&record, now_ns);
                task
            })
            .collect();
        tasks.sort_unstable_by_key(|task| task.serial);
        // A task whose record did not fit is shown twice only if it fitted the second time; keep what came last.
        tasks.dedup_by_key(|task| task.serial);
        Ok(tasks)
    }

    /// Adds what is counted on these CPUs.
    fn read_waits_of(&mut self, cpus: &mut [CpuReading]) -> Result<(), Failure> {
        let Some(counts) = &mut self.cpu_counts else { return Ok(()) };
        self.side.cpus(|number, counters| {
            let waits = counts.take(number, counters, &self.node_places);
            if let Ok(i) = cpus.binary_search_by_key(&number, |cpu| cpu.cpu) {
                cpus[i].waits = Some(waits);
            }
        })
    }

    /// Tells the BPF side the nodes of CPUs that came.
    fn learn_nodes(&mut self) -> Result<(), Failure> {
        let nodes = self.placement.cpu_nodes();
        self.node_places.learn(nodes);
        let places = &self.node_places;
        self.side.set_nodes(nodes.iter().map(|(cpu, node)| (*cpu, places.number_of(*node))))
    }

    fn read_exited(&mut self) -> Result<Vec<ExitedReading>, Failure> {
        let mut exited = Vec::new();
        self.side.exited(|cgroup_id, place| exited.push(exited_reading(cgroup_id, place)))?;
        exited.sort_unstable_by_key(|place| place.cgroup_id);
        exited.dedup_by_key(|place| place.cgroup_id);
        Ok(exited)
    }

    fn kernel_losses(&self) -> Result<Losses, Failure> {
        let mut losses = Losses::default();
        for (loss, count) in self.side.losses()? {
            losses.add(loss, count);
        }
        Ok(losses)
    }

    fn name_cgroups(
        &mut self,
        tasks: &[TaskReading],
        exited: &[ExitedReading],
        pairs: &[PairReading],
        now: Instant,
    ) -> Vec<(u64, Arc<str>)> {
        let Some(tree) = &mut self.tree else { return Vec::new() };
        let ids: HashSet<u64> = tasks
            .iter()
            .map(|task| task.cgroup_id)
            .chain(exited.iter().map(|place| place.cgroup_id))
            .chain(pairs.iter().flat_map(|pair| [pair.victim, pair.culprit]))
            .filter(|id| *id != KERNEL)
            .collect();
        tree.learn(ids.iter().copied(), now);
        tree.forget(|id| ids.contains(&id), now);
        let mut named: Vec<_> = ids.into_iter().filter_map(|id| Some((id, tree.path(id)?.clone()))).collect();
        named.sort_unstable_by_key(|(id, _)| *id);
        named
    }
}

/// `u64::MAX` where what the BPF side could tell would be of no use.
fn hierarchy_to_hear_of(tree: Option<&CgroupTree>, is_v2: bool) -> u64 {
    if !tree.is_some_and(CgroupTree::shows_all) {
        return u64::MAX;
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    cgroups::hierarchy(&own, is_v2).unwrap_or(u64::MAX)
}

/// A sum that is another one whenever a task was added.
fn motion(place: &ExitedReading) -> u64 {
    let totals = &place.totals;
    [
        totals.waits,
        totals.wait_ns,
        totals.run_delay_ns,
        totals.on_cpu_ns,
        totals.voluntary,
        totals.involuntary,
    ]
    .iter()
    .fold(place.tasks, |sum, figure| sum.wrapping_add(*figure))
}

fn check(selection: &Selection, tree: Option<&CgroupTree>) -> Result<(), Failure> {
    if !selection.follows_all() && facts::gather(Path::new("/")).initial_pid_namespace == Some(false) {
        return Err(Failure::new(
            "this is not the initial PID namespace, where the kernel side counts ids",
            "processes and threads cannot be selected by id",
            "run cgscope on the host, or select by --cgroup or --comm",
        ));
    }
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
    let Some(path) = &selection.cgroup else { return Ok(()) };
    match tree {
        Some(tree) if tree.exists(path) => Ok(()),
        Some(tree) => Err(Failure::new(
            format!("there is no cgroup {path} under {}", tree.mount().display()),
            "",
            "give the path as under that mount",
        )),
        None => Err(Failure::new(
            "no cgroup hierarchy with the cpu controller is mounted",
            "tasks cannot be selected by cgroup",
            "mount -t cgroup2 none /sys/fs/cgroup",
        )),
    }
}

fn reading_failed(error: std::io::Error) -> Failure {
    Failure::new(
        format!("the kernel's tasks could not be read ({error})"),
        "this interval has no figures",
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_was_added_moves_a_place() {
        let mut place = ExitedReading {
            cgroup_id: 7,
            tasks: 1,
            max_ns: 0,
            totals: cgscope_model::Totals::default(),
            hist: Arc::default(),
        };
        let before = motion(&place);
        place.tasks += 1;
        let after = motion(&place);
        place.totals.wait_ns += 1;
        assert!(before != after && after != motion(&place));
    }
}
