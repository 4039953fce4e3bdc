//! The BPF side as a source: single waits with their causes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Read,
    path::Path,
    sync::Arc,
    time::Instant,
};

use cgscope_ledger::{
    Feature, Loss,
    wire::{Config, EXITED_CGROUPS},
};
use cgscope_model::{
    CgroupReading, CpuReading, ExitedReading, Losses, Mode, Sample, StackReading, TaskReading,
    follower::Followed, selection::family, skipped::ExitedSums,
};

use super::{
    Source,
    exited::{Crowd, ExitedPlace, surplus},
};
use crate::{
    Failure, Options,
    by_cpu::{CpuCounts, NodePlaces},
    cgroups::{self, CgroupTree, Remains, TreeEvent},
    clock::{monotonic_ns, refresh_run_queue},
    demand::{self, Demands},
    facts::{self, CgroupMounts},
    kernel_side::{KernelSide, Loader, Plan},
    known::{Around, KnownTasks, Reading},
    ledger::{Ledger, Origin},
    offsets::{self, Resolved},
    own_memory::OwnMemory,
    placement::Active,
    pressure::CgroupPressures,
    readings::exited_reading,
    shared::Changes,
    stacks::{self, Stacks, UnderWay},
    stream::{self, Buffer, Reported, StreamEnd, read_records},
};

const HOST: &str = "/";
/// Longer than the start of a measurement takes, and shorter than the time until an id is reused, ns.
const STARTING_NS: u64 = 2_000_000_000;

/// Each reading of this number visits all tasks, as a safeguard.
const VISIT_ALL: u64 = 64;
/// How often the changed tasks are read before a reading visits all tasks: during a pass, others are woken.
const CHANGE_PASSES: usize = 2;

/// The BPF side and the data kept between readings. Dropping it detaches and unloads the BPF side.
pub(crate) struct BpfSource {
    side: KernelSide,
    memory: OwnMemory,
    nodes: BTreeMap<u32, u32>,
    node_places: NodePlaces,
    /// `None` if waits are not counted by CPU.
    cpu_counts: Option<CpuCounts>,
    known: KnownTasks,
    /// Number of the latest reading of changed tasks.
    list_turn: u64,
    /// Whether the next reading must visit all tasks, because user space itself changes them.
    all_next: bool,
    ledger: Ledger,
    pressure: CgroupPressures,
    demands: Demands,
    stacks: Stacks,
    /// The latest run-queue clock in the last reading of tasks, ns.
    clock_ns: u64,
    /// The same in the reading before.
    clock_before_ns: u64,
    remains: Remains,
    /// The entries of cgroups with exited tasks, as last read.
    places: HashMap<u64, ExitedPlace>,
    /// Those that the latest reading found for the first time.
    new_places: Vec<u64>,
    /// The figures of freed entries. They are kept because the kernel counts from 0 if it creates such an entry again.
    given_back: ExitedSums,
    config: Config,
    /// Losses of the BPF side before the first reading, while tasks were added one by one.
    losses_at_start: Losses,
    /// Number of cgroup events lost until the last reading.
    events_lost: u64,
    /// When cgroup events were last read, ns. All earlier events have been read.
    events_reported_ns: u64,
    own_losses: Losses,
    buffer: Buffer,
    /// Exited tasks that had stacks at the latest reading, by serial.
    exited: HashSet<u64>,
    /// For whom the tasks of the latest reading are followed, ascending by serial; empty unless readings are shared.
    followed: Vec<Followed>,
    changes: Changes,
}

impl Source for BpfSource {
    fn mode(&self) -> Mode {
        Mode::Bpf
    }

    fn read(&mut self) -> Result<Sample, Failure> {
        if let Some(room) = self.memory.room() {
            self.side.set_room(room)?;
        }
        self.all_next |= self.changes.report(&mut self.side)?;
        let (tasks, under_way) = self.read_tasks()?;
        self.changes.were_read(&mut self.side)?;
        let counted = if self.config.stack_every_ns != 0 { self.read_stacks()? } else { Vec::new() };
        let exited = self.read_exited()?;
        let ledger = &mut self.ledger;
        self.side.pairs(|cpu, table| ledger.take(Origin::Cpu(cpu), &table.pairs))?;
        let pressure = &mut self.pressure;
        pressure.begin();
        self.side.pressures(|cpu, table| pressure.take(cpu, table))?;
        self.places.iter().for_each(|(id, place)| pressure.take_kept(*id, &place.pressure));
        self.side.keep_entries_since(std::mem::replace(&mut self.clock_before_ns, self.clock_ns))?;
        self.ledger.book(&self.known.throttled, || self.known.waiting_cgroups());
        let pairs = self.ledger.readings();
        self.own_losses.add(Loss::CulpritMerged, self.ledger.take_merged());
        let demand = self.demands.read(&self.side, self.clock_ns, &mut self.own_losses)?;
        let cpus = self.read_cpus()?;
        let stacks = self.stacks.merged(counted, under_way);
        Ok(Sample {
            tasks,
            exited,
            pairs,
            demand_until_ns: self.counts_demand().then_some(self.clock_ns),
            demand,
            cpus,
            stacks,
            ..Sample::default()
        })
    }

    fn report_cgroups(&mut self, tree: &mut CgroupTree, now: Instant) {
        let reported_ns = std::mem::replace(&mut self.events_reported_ns, monotonic_ns());
        self.side.cgroup_events(|bytes| {
            if let Some(event) = TreeEvent::parse(bytes) {
                tree.receive_since(event, reported_ns, now);
            }
        });
        // If the losses cannot be read now, they are read with the next sample.
        let lost = self.side.losses().map_or(self.events_lost, |losses| losses.get(Loss::CgroupEventLost));
        if lost != self.events_lost {
            self.events_lost = lost;
            tree.has_missed = true;
        }
    }

    fn losses(&self) -> Result<Losses, Failure> {
        let mut losses = self.side.losses()?.since(&self.losses_at_start);
        losses.append(&self.own_losses);
        Ok(losses)
    }

    /// Frees the data of removed cgroups when their figures no longer change: an exiting task may switch after its cgroup was
    /// removed. If there are many of them, they get less time, so that cgroups that are made get entries.
    fn give_back(&mut self, found: &Sample, tree: &CgroupTree, now: Instant) -> Result<(), Failure> {
        let living = self.known.cgroups();
        let mut figures: HashMap<u64, u64> = HashMap::new();
        let of_places = found.exited.iter().map(|place| (place.cgroup_id, motion(place)));
        let of_pairs = found.pairs.iter().flat_map(|pair| [(pair.victim, pair.ns), (pair.culprit, pair.ns)]);
        let is_crowded = self.places.len() > EXITED_CGROUPS / 4;
        let is_over = |id| if is_crowded { tree.is_removed(id) } else { tree.was_removed_long_ago(id, now) };
        for (id, figure) in of_places.chain(of_pairs).filter(|(id, _)| is_over(*id)) {
            let sum = figures.entry(id).or_default();
            *sum = sum.wrapping_add(figure);
        }
        figures.retain(|id, _| !living.contains(id));
        let crowd = Crowd::of(&living, tree);
        self.make_missing(&living, crowd.as_ref())?;
        self.make_places_above(tree)?;
        let settled = self.remains.settled(figures);
        let surplus = surplus(&self.places, &living, self.config.root_cgroup_id, crowd.as_ref());
        if settled.is_empty() && surplus.is_empty() {
            return Ok(());
        }
        let places = found.exited.iter().map(|place| place.cgroup_id).filter(|id| settled.contains(id));
        let places: Vec<u64> = places.collect();
        for id in places.iter().chain(&surplus) {
            self.places.remove(id);
            self.ledger.forget_kept(*id);
        }
        self.ledger.drop_entries(|id| settled.contains(&id));
        self.side.give_back(places)?;
        let (given_back, accounts) = (&mut self.given_back, self.config.accounts != 0);
        self.side.take_back(surplus, |id, place| given_back.take(exited_reading(id, place, accounts)))
    }

    fn add_pressure(&mut self, sample: &mut Sample, tree: Option<&CgroupTree>) {
        let above = |id| tree.into_iter().flat_map(move |tree| tree.ancestors(id));
        let root_id = self.config.root_cgroup_id;
        self.pressure.add_to(sample, &self.known.active, self.clock_ns, root_id, above);
    }

    fn keep_demand(&mut self, limits: &[CgroupReading], tree: Option<&CgroupTree>) -> Result<(), Failure> {
        if !self.counts_demand() {
            return Ok(());
        }
        let family = |id| family(tree.and_then(|tree| tree.path(id)).map_or("", |path| path)).into();
        self.demands.give_places(&mut self.side, limits, family, &mut self.own_losses)
    }

    fn learn_nodes(&mut self, nodes: &BTreeMap<u32, u32>) -> Result<(), Failure> {
        self.nodes = nodes.clone();
        self.node_places.learn(nodes);
        let places = &self.node_places;
        self.side.set_nodes(nodes.iter().map(|(cpu, node)| (*cpu, places.number_of(*node))))
    }

    fn active(&self) -> &[Active] {
        &self.known.active
    }

    fn cgroups_of_tasks(&self) -> HashSet<u64> {
        self.known.cgroups()
    }

    fn keep(&mut self, tasks: &[Arc<TaskReading>], places: &[usize]) {
        self.known.keep(tasks, places);
    }

    fn hook(&self) -> Option<&KernelSide> {
        Some(&self.side)
    }

    fn held(&self) -> (usize, usize) {
        (self.places.len(), self.ledger.len())
    }

    fn followed(&self) -> &[Followed] {
        &self.followed
    }

    fn changes(&mut self) -> Option<&mut Changes> {
        Some(&mut self.changes)
    }
}

impl BpfSource {
    fn counts_demand(&self) -> bool {
        self.config.demand != 0
    }

    pub fn start(
        options: &Options,
        mounts: &CgroupMounts,
        tree: Option<&CgroupTree>,
        nodes: BTreeMap<u32, u32>,
    ) -> Result<Self, Failure> {
        let loader = Loader::begin();
        let resolved = resolved(options)?;
        let node_places = NodePlaces::new(&nodes);
        let count_by_cpu = options.by_cpu || node_places.len() > 1;
        let config = Config {
            nodes: node_places.len() as u64,
            count_by_cpu: count_by_cpu.into(),
            ..config(options, mounts, tree, &resolved)
        };
        let memory = OwnMemory::new(Path::new(HOST));
        // Includes offline CPUs: a task may move to a CPU that has just gone online.
        let present = facts::present_cpu_to_node(Path::new(HOST)).into_iter().chain(nodes.clone());
        let cpu_places: Vec<_> = present.map(|(cpu, node)| (cpu, node_places.number_of(node))).collect();
        // A throttled task that was woken is on no list before Linux 6.18.
        let needed = [Feature::StorageCache, Feature::TaskThrottling];
        let lists_changes = options.selection.follows_all()
            && options.accounts.is_none()
            && needed.iter().all(|feature| resolved.has(*feature));
        let task_by_id = resolved.task_by_id.filter(|_| lists_changes);
        let cgroups = tree.map_or(0, CgroupTree::len);
        let demand_places = if options.demand { demand::table_size(cgroups, options.shared) } else { 1 };
        let plan = Plan {
            resolved: &resolved,
            config,
            task_by_id,
            cpus: facts::possible_cpus(Path::new(HOST)),
            nodes: &cpu_places,
            selection: &options.selection,
            room: memory.room_at_start(),
            demand_places,
        };
        let side = KernelSide::start(loader, &plan)?;
        let mut source = Self {
            side,
            memory,
            nodes,
            node_places,
            cpu_counts: count_by_cpu.then(CpuCounts::default),
            known: KnownTasks::default(),
            list_turn: 0,
            all_next: false,
            ledger: Ledger::default(),
            pressure: CgroupPressures::default(),
            demands: Demands::new(demand_places),
            stacks: Stacks::default(),
            clock_ns: 0,
            clock_before_ns: 0,
            remains: Remains::default(),
            places: HashMap::new(),
            new_places: Vec::new(),
            given_back: ExitedSums::default(),
            config,
            losses_at_start: Losses::default(),
            events_lost: 0,
            events_reported_ns: config.born_after_ns,
            own_losses: Losses::default(),
            buffer: Buffer::default(),
            exited: HashSet::new(),
            followed: Vec::new(),
            changes: Changes::default(),
        };
        // From now on every selected task is followed. The BPF side does not return the same data again, so `known` keeps it.
        source.read_tasks()?;
        // All tasks were new. Their list would keep its size, although later lists of changed tasks are short (Linux 6.18).
        source.known.active = Vec::new();
        source.side.mark_first_read(monotonic_ns())?;
        source.losses_at_start = source.side.losses()?;
        Ok(source)
    }

    /// Makes entries for cgroups with tasks and without an entry: it was freed, or a task moved there and no program could make one.
    fn make_missing(&mut self, living: &HashSet<u64>, crowd: Option<&Crowd>) -> Result<(), Failure> {
        let missing = living.iter().copied().filter(|id| !self.places.contains_key(id));
        let mut kept = crowd.map(|crowd| crowd.kept(self.places.keys().copied()));
        let missing = missing.filter(|id| kept.as_mut().is_none_or(|kept| kept.has_room(*id)));
        // Where the table is full, each would only be refused, at every reading.
        self.side.make_places(missing.take(EXITED_CGROUPS.saturating_sub(self.places.len())))
    }

    /// Makes entries for the cgroups above those with new entries: their waits may find no entry in the table of pressure.
    fn make_places_above(&mut self, tree: &CgroupTree) -> Result<(), Failure> {
        let above = self.new_places.drain(..).flat_map(|id| tree.ancestors(id));
        let missing: HashSet<u64> = above.filter(|id| !self.places.contains_key(id)).collect();
        self.side.make_places(missing)
    }

    /// Reads tasks, ascending by serial, and the stacks of blocked ones.
    fn read_tasks(&mut self) -> Result<(Vec<Arc<TaskReading>>, Vec<UnderWay>), Failure> {
        refresh_run_queue();
        let is_due = std::mem::take(&mut self.all_next) || self.known.turn.is_multiple_of(VISIT_ALL);
        let around = Around { nodes: &self.nodes, places: &self.node_places, read_ns: monotonic_ns() };
        let mut reading = self.known.begin(around);
        let (side, buffer, losses) = (&mut self.side, &mut self.buffer, &mut self.own_losses);
        let mut stacks = Vec::new();
        if is_due
            || !side.has_changes()
            || !read_changes(side, buffer, losses, &mut self.list_turn, &mut reading)?
        {
            reading.visit_all();
            let mut stream = side.read_tasks()?;
            take_records(&mut stream, buffer, losses, |reported| {
                if let (Some(kept), Reported::Task(task)) = (reading.take(&reported), &reported) {
                    stacks.extend(stacks::under_way(task, kept));
                }
            })?;
        }
        self.clock_ns = self.clock_ns.max(reading.end());
        self.followed.clear();
        if self.config.shared != 0 {
            self.followed.extend(self.known.followed());
        }
        Ok((self.known.readings(), stacks))
    }

    fn read_cpus(&mut self) -> Result<Vec<CpuReading>, Failure> {
        let Some(counts) = &mut self.cpu_counts else { return Ok(Vec::new()) };
        let mut cpus = Vec::new();
        self.side.cpus(|cpu, counters| {
            let waits = counts.take(cpu, counters, &self.node_places);
            let node = self.nodes.get(&cpu).copied();
            cpus.push(CpuReading { cpu, node, waits: Some(waits), ..CpuReading::default() });
        })?;
        Ok(cpus)
    }

    /// Reads the counted stacks. Removes those of tasks that had already exited at the reading before, because they have been
    /// reported.
    fn read_stacks(&mut self) -> Result<Vec<StackReading>, Failure> {
        let (mut counted, mut over, mut exited) = (Vec::new(), Vec::new(), HashSet::new());
        let (known, before) = (&self.known, &self.exited);
        self.side.stacks(|key, count| {
            counted.extend(stacks::counted(key, count));
            if known.contains(count.serial) {
                return;
            }
            exited.insert(count.serial);
            if before.contains(&count.serial) {
                over.push(*key);
            }
        })?;
        self.exited = exited;
        self.side.drop_stacks(&over)?;
        Ok(counted)
    }

    fn read_exited(&mut self) -> Result<Vec<ExitedReading>, Failure> {
        let mut stream = self.side.read_exited()?;
        let (turn, accounts, places) = (self.known.turn, self.config.accounts != 0, &mut self.places);
        let (ledger, new) = (&mut self.ledger, &mut self.new_places);
        let throttled = &mut self.known.throttled;
        let end = stream::read_exited(&mut stream, &mut self.buffer, |cgroup_id, reported| {
            let place = places.entry(cgroup_id).or_insert_with(|| {
                new.push(cgroup_id);
                ExitedPlace::new(cgroup_id, accounts)
            });
            (place.reported_in, place.is_quiet) = (turn, reported.is_none());
            if let Some(reported) = reported {
                let before = place.reading.totals.by_cause;
                place.reading = exited_reading(cgroup_id, reported, accounts);
                throttled.add(cgroup_id, &before, &place.reading.totals.by_cause);
                place.pressure = reported.pressure;
                ledger.take_kept(cgroup_id, &reported.kept);
            }
        })
        .map_err(|error| Failure::of_interval("the kernel's tasks", &error))?;
        if end == StreamEnd::CutShort {
            self.own_losses.add(Loss::ReadingCutShort, 1);
        } else {
            self.places.retain(|_, place| place.reported_in == turn);
        }
        let mut exited: Vec<_> = self.places.values().map(|place| place.reading.clone()).collect();
        exited.sort_unstable_by_key(|place| place.cgroup_id);
        self.given_back.add_to(&mut exited);
        Ok(exited)
    }
}

/// Reads the tasks that changed. Returns false if there may be others: then all must be visited.
fn read_changes(
    side: &mut KernelSide,
    buffer: &mut Buffer,
    losses: &mut Losses,
    turn: &mut u64,
    reading: &mut Reading<'_>,
) -> Result<bool, Failure> {
    for _ in 0..CHANGE_PASSES {
        *turn += 1;
        side.begin_changes(*turn)?;
        while let Some(mut stream) = side.read_changes()? {
            let end = take_records(&mut stream, buffer, losses, |reported| {
                reading.take(&reported);
            })?;
            if end == StreamEnd::CutShort || !reading.has_more() {
                break;
            }
        }
        if !reading.misses_tasks() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn take_records(
    stream: &mut impl Read,
    buffer: &mut Buffer,
    losses: &mut Losses,
    each: impl FnMut(Reported<'_>),
) -> Result<StreamEnd, Failure> {
    let end = read_records(stream, buffer, each)
        .map_err(|error| Failure::of_interval("the kernel's tasks", &error))?;
    if end == StreamEnd::CutShort {
        losses.add(Loss::ReadingCutShort, 1);
    }
    Ok(end)
}

fn resolved(options: &Options) -> Result<Resolved, Failure> {
    if !options.selection.follows_all() && facts::gather(Path::new(HOST)).initial_pid_namespace == Some(false)
    {
        return Err(Failure::of_mode(
            "this is not the initial PID namespace, whose ids the kernel side uses",
            "processes and threads cannot be selected by id",
            "run cgscope on the host, or select by --cgroup or --comm",
        ));
    }
    let resolved = offsets::resolve(Path::new(offsets::VMLINUX_BTF))?;
    let missing = resolved.missing_required();
    if missing.is_empty() {
        return Ok(resolved);
    }
    Err(Failure::of_host(
        format!("this kernel does not have {}", missing.join(", ")),
        "waits cannot be measured",
        "`cgscope doctor` shows which kernel option each of them needs",
    ))
}

fn config(
    options: &Options,
    mounts: &CgroupMounts,
    tree: Option<&CgroupTree>,
    resolved: &Resolved,
) -> Config {
    let selection = &options.selection;
    let now_ns = monotonic_ns();
    let stack_every = options.accounts.and_then(|asked| asked.stack_every);
    let throttle_functions_alone =
        !resolved.has(Feature::ThrottleClock) && resolved.has(Feature::ThrottleFunctions);
    Config {
        follow_all: selection.follows_all().into(),
        born_after_ns: now_ns,
        select_born_before_ns: now_ns + STARTING_NS,
        cgroup_v2: mounts.cpu_is_v2().into(),
        root_cgroup_id: tree.and_then(CgroupTree::root_id).unwrap_or_default(),
        blame_tasks: (!selection.follows_all()).into(),
        cgroup_hierarchy: hierarchy_with_events(tree, mounts.cpu_is_v2()),
        nodes: 0,
        count_by_cpu: 0,
        accounts: options.accounts.is_some().into(),
        stack_every_ns: stack_every.map_or(0, |every| every.as_nanos() as u64),
        shared: options.shared.into(),
        cpus: facts::possible_cpus(Path::new(HOST)).into(),
        demand: options.demand.into(),
        keep_throttle_clock: throttle_functions_alone.into(),
    }
}

/// Returns the hierarchy whose events are reported, or `u64::MAX` for none if events would be useless.
fn hierarchy_with_events(tree: Option<&CgroupTree>, is_v2: bool) -> u64 {
    if !tree.is_some_and(|tree| tree.shows_all) {
        return u64::MAX;
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    cgroups::hierarchy(&own, is_v2).unwrap_or(u64::MAX)
}

/// Returns a checksum that changes whenever a task is added.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_added_task_changes_the_checksum() {
        let mut place = ExitedReading { cgroup_id: 7, tasks: 1, ..ExitedReading::default() };
        let before = motion(&place);
        place.tasks += 1;
        let after = motion(&place);
        place.totals.wait_ns += 1;
        assert!(before != after && after != motion(&place));
    }
}
