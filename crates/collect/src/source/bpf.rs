//! The BPF side as a source. The BPF side reports single waits with their causes.

use std::collections::{BTreeMap, HashSet};
use std::{mem, path::Path, sync::Arc, time::Instant};

use cgscope_ledger::changes::TURN_SHIFT;
use cgscope_ledger::wire::{Config, names, slot_factor};
use cgscope_ledger::{Feature, Loss};
use cgscope_model::follower::{Followed, Follower};
use cgscope_model::{Losses, Sample, TaskReading};

use super::Source;
use crate::{
    Failure, Held, Options,
    cgroups::{self, CgroupTree, TreeEvent},
    clock::{monotonic_ns, refresh_run_queue},
    domain::{Domain, Domains, Draft, Setup, chains, cpus::NodePlaces, stacks},
    facts::{self, CgroupMounts},
    kernel_side::{KernelSide, Plan, begin_loading},
    known::{Around, KnownTasks, Reading},
    offsets::{self, PreemptCount, Resolved},
    own_memory::OwnMemory,
    placement::Active,
    stream::{Buffer, Reported, StreamEnd, count_cut, read_records},
};

const HOST: &str = "/";
/// Time after which the measurement has certainly started, but no thread id has been reused yet, ns.
const STARTING_NS: u64 = 2_000_000_000;

/// After this many readings, one reading visits all tasks, as a safeguard.
const VISIT_ALL: u64 = 64;
/// Number of times that we read the lists of changed tasks before we visit all tasks. One time may not suffice, because other
/// tasks can wake up while we read.
const CHANGE_PASSES: usize = 2;

/// The BPF side and the data kept between readings. Dropping it detaches and unloads the BPF side.
pub(crate) struct BpfSource {
    draft: Draft,
    memory: OwnMemory,
    /// Number of the latest reading of changed tasks.
    list_turn: u64,
    /// Whether the next reading must visit all tasks, because we have changed which viewers follow which tasks.
    all_next: bool,
    domains: Vec<Box<dyn Domain>>,
    /// [`Draft::clock_ns`] of the previous reading.
    clock_before_ns: u64,
    /// Losses of the BPF side before the first reading. We ignore them, because the BPF side was still adding tasks one by one.
    losses_at_start: Losses,
    /// Number of cgroup events that were lost until the last reading.
    events_lost: u64,
    /// When we last read the cgroup events, ns.
    events_reported_ns: u64,
}

impl Source for BpfSource {
    fn read(&mut self, changes: &mut Changes) -> Result<Sample, Failure> {
        if let Some(room) = self.memory.room() {
            self.draft.side.set_room(room)?;
        }
        let has_changes = changes.clear != 0 || !changes.bits.is_empty();
        if has_changes {
            self.draft.side.mark(changes.clear, &changes.bits)?;
            self.all_next = true;
        }
        self.read_tasks()?;
        let draft = &mut self.draft;
        if has_changes {
            *changes = Changes::default();
            draft.side.mark(0, &BTreeMap::new())?;
        }
        // A reading that failed may have left figures.
        draft.sample = Sample { tasks: draft.tasks.readings(), ..Sample::default() };
        self.domains.iter_mut().try_for_each(|domain| domain.read(draft))?;
        // All culprits and pressure are read: let the BPF side reuse entries unused since the previous reading.
        let since_ns = mem::replace(&mut self.clock_before_ns, draft.clock_ns);
        draft.side.set_first("free old entries of culprits and of pressure", names::KEPT_SINCE, since_ns)?;
        Ok(mem::take(&mut draft.sample))
    }

    fn report_cgroups(&mut self, tree: &mut CgroupTree, now: Instant) {
        let reported_ns = mem::replace(&mut self.events_reported_ns, monotonic_ns());
        let side = &mut self.draft.side;
        let read = side.cgroup_events(|bytes| {
            if let Some(event) = TreeEvent::parse(bytes) {
                tree.receive_since(event, reported_ns, now);
            }
        });
        // If we cannot read the losses now, the next sample notices lost events.
        let lost = side.losses().map_or(self.events_lost, |losses| losses.get(Loss::CgroupEventLost));
        if lost != self.events_lost || read.is_err() {
            self.events_lost = lost;
            tree.has_missed = true;
        }
    }

    fn losses(&self) -> Result<Losses, Failure> {
        let mut losses = self.draft.side.losses()?.since(&self.losses_at_start);
        losses.append(&self.draft.losses);
        Ok(losses)
    }

    fn complete(&mut self, sample: &mut Sample, tree: Option<&CgroupTree>) -> Result<(), Failure> {
        self.draft.sample = mem::take(sample);
        self.domains.iter_mut().try_for_each(|domain| domain.complete(&mut self.draft, tree))?;
        *sample = mem::take(&mut self.draft.sample);
        Ok(())
    }

    fn learn_nodes(&mut self, nodes: &BTreeMap<u32, u32>) -> Result<(), Failure> {
        let Draft { side, node_places: places, .. } = &mut self.draft;
        places.learn(nodes);
        side.set_nodes(nodes.iter().map(|(cpu, node)| (*cpu, places.number_of(*node))))?;
        self.draft.nodes = nodes.clone();
        Ok(())
    }

    fn active(&self) -> &[Active] {
        &self.draft.tasks.active
    }

    fn cgroups_of_tasks(&self) -> HashSet<u64> {
        self.draft.tasks.cgroups()
    }

    fn keep(&mut self, tasks: &[Arc<TaskReading>], places: &[usize]) {
        self.draft.tasks.keep(tasks, places);
    }

    fn hook(&self) -> Option<&KernelSide> {
        Some(&self.draft.side)
    }

    fn count_held(&self, held: &mut Held) {
        self.domains.iter().for_each(|domain| domain.count_held(held));
    }

    fn followed(&self) -> Vec<Followed> {
        if self.draft.config.shared != 0 { self.draft.tasks.followed().collect() } else { Vec::new() }
    }
}

impl BpfSource {
    pub(crate) fn start(
        options: &Options,
        mounts: &CgroupMounts,
        tree: Option<&CgroupTree>,
        nodes: BTreeMap<u32, u32>,
    ) -> Result<Box<dyn Source>, Failure> {
        let loading = begin_loading();
        let resolved = resolved(options)?;
        let node_places = NodePlaces::new(&nodes);
        let config = config(options, mounts, tree, &resolved, node_places.len());
        let memory = OwnMemory::new(Path::new(HOST));
        // Include offline CPUs, because a task may move to a CPU that has just gone online.
        let present = facts::present_cpu_to_node(Path::new(HOST)).into_iter().chain(nodes.clone());
        let cpu_places: Vec<_> = present.map(|(cpu, node)| (cpu, node_places.number_of(node))).collect();
        // Lists need Linux 6.18: on earlier kernels, a throttled task that woke up is on no list.
        let needed = [Feature::StorageCache, Feature::TaskThrottling];
        let lists_changes = options.selection.follows_all()
            && options.accounts.is_none()
            && !options.chains
            && needed.iter().all(|feature| resolved.has(*feature));
        let task_by_id = resolved.task_by_id.filter(|_| lists_changes);
        let cpus = facts::possible_cpus(Path::new(HOST));
        let cgroups = tree.map_or(0, CgroupTree::len);
        let domains = Domains::start(&Setup { options, config: &config, cpus, cgroups });
        let plan = Plan {
            resolved: &resolved,
            config,
            task_by_id,
            cpus,
            nodes: &cpu_places,
            selection: &options.selection,
            room: memory.room_at_start(),
            maps: &domains.maps,
            calls: [chains::sending_calls(), chains::file_calls()],
        };
        let side = KernelSide::start(loading, &plan)?;
        let draft = Draft {
            sample: Sample::default(),
            side,
            config,
            buffer: Buffer::default(),
            tasks: KnownTasks::default(),
            nodes,
            node_places,
            clock_ns: 0,
            under_way: Vec::new(),
            kept_pressure: Vec::new(),
            losses: Losses::default(),
        };
        let mut source = Self {
            draft,
            memory,
            list_turn: 0,
            all_next: false,
            domains: domains.started,
            clock_before_ns: 0,
            losses_at_start: Losses::default(),
            events_lost: 0,
            events_reported_ns: config.born_after_ns,
        };
        // From now on, we follow every selected task. The BPF side reports changes only once, so `tasks` keeps them.
        source.read_tasks()?;
        let Draft { side, tasks, .. } = &mut source.draft;
        // All tasks were new, so this list is long. Free it, because later lists of changed tasks are short (Linux 6.18).
        tasks.active = Vec::new();
        // If a task that started later switches in without storage, the BPF side now counts a loss.
        side.set_first("mark the first reading", names::FIRST_READ, monotonic_ns())?;
        source.losses_at_start = side.losses()?;
        Ok(Box::new(source))
    }

    /// Reads the tasks, and the stacks of blocked tasks.
    fn read_tasks(&mut self) -> Result<(), Failure> {
        refresh_run_queue();
        let Draft { side, buffer, tasks, nodes, node_places: places, clock_ns, under_way, losses, .. } =
            &mut self.draft;
        let is_due = mem::take(&mut self.all_next) || tasks.turn.is_multiple_of(VISIT_ALL);
        let mut reading = tasks.begin(Around { nodes, places, read_ns: monotonic_ns() });
        under_way.clear();
        if is_due
            || side.changes.is_none()
            || !read_changes(side, buffer, losses, &mut self.list_turn, &mut reading)?
        {
            reading.visit_all();
            let mut stream = side.read_tasks()?;
            let end = read_records(&mut stream, buffer, |reported| {
                if let (Some(kept), Reported::Task(task)) = (reading.take(&reported), &reported) {
                    under_way.extend(stacks::under_way(task, kept));
                }
            });
            if count_cut(end, losses)? == StreamEnd::CutShort {
                reading.keep_others();
            }
        }
        *clock_ns = (*clock_ns).max(reading.end());
        Ok(())
    }
}

/// Reads the changed tasks. Returns false if more tasks may have changed. The caller must then visit all tasks.
fn read_changes(
    side: &mut KernelSide,
    buffer: &mut Buffer,
    losses: &mut Losses,
    turn: &mut u64,
    reading: &mut Reading<'_>,
) -> Result<bool, Failure> {
    for _ in 0..CHANGE_PASSES {
        *turn += 1;
        let mut first_list = Some(0);
        while let Some(first) = first_list {
            side.set_first("begin to read the changed tasks", names::TURN, *turn << TURN_SHIFT | first)?;
            let Some(mut stream) = side.read_changes()? else { return Ok(false) };
            let end = read_records(&mut stream, buffer, |reported| _ = reading.take(&reported));
            let end = count_cut(end, losses)?;
            first_list = reading.more_from().filter(|_| end == StreamEnd::Complete);
        }
        if !reading.misses_tasks() {
            return Ok(true);
        }
    }
    Ok(false)
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
    let remedy = "`cgscope doctor` shows which kernel option each of them needs";
    resolved.check(Feature::is_needed, "waits cannot be measured", remedy)?;
    Ok(resolved)
}

fn config(
    options: &Options,
    mounts: &CgroupMounts,
    tree: Option<&CgroupTree>,
    resolved: &Resolved,
    nodes: usize,
) -> Config {
    let selection = &options.selection;
    let now_ns = monotonic_ns();
    let stack_every = options.accounts.and_then(|asked| asked.stack_every);
    let own_cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // Without the paths of all cgroups, events would be useless.
    let hierarchy = tree.filter(|tree| tree.shows_all);
    let hierarchy = hierarchy.and_then(|_| cgroups::hierarchy(&own_cgroup, mounts.cpu_is_v2()));
    let (preempt_count_in, preempt_count_at) = match resolved.preempt_count {
        Some(PreemptCount::OfCpu(at)) => (1, at.cast_unsigned()),
        Some(PreemptCount::OfTask(at)) => (2, at.into()),
        None => (0, 0),
    };
    let throttle_functions_alone =
        !resolved.has(Feature::ThrottleClock) && resolved.has(Feature::ThrottleFunctions);
    // Those for whom the selected tasks sleep are followed, too.
    let follows_all = selection.follows_all() || options.chains;
    Config {
        follow_all: follows_all.into(),
        born_after_ns: now_ns,
        select_born_before_ns: now_ns + STARTING_NS,
        cgroup_v2: mounts.cpu_is_v2().into(),
        root_cgroup_id: tree.and_then(CgroupTree::root_id).unwrap_or_default(),
        blame_tasks: (!follows_all).into(),
        cgroup_hierarchy: hierarchy.unwrap_or(u64::MAX),
        nodes: nodes as u64,
        count_by_cpu: (options.by_cpu || nodes > 1).into(),
        accounts: options.accounts.is_some().into(),
        stack_every_ns: stack_every.map_or(0, |every| every.as_nanos() as u64),
        shared: (options.shared || options.chains && !selection.follows_all()).into(),
        cpus: facts::possible_cpus(Path::new(HOST)).into(),
        last_slot: u64::from(slots(facts::threads(Path::new(HOST)))) - 1,
        slot_factor: slot_factor(facts::task_bytes(Path::new(HOST))),
        demand: options.demand.into(),
        chains: options.chains.into(),
        preempt_count_in,
        preempt_count_at,
        interrupt_bits: resolved.interrupt_bits.into(),
        keep_throttle_clock: throttle_functions_alone.into(),
    }
}

/// Returns the number of slots for the storages of tasks, 1 KiB each. At a switch of a task whose slot is in use by another task, the
/// hook takes about a fifth longer.
fn slots(threads: u32) -> u32 {
    threads.saturating_mul(8).clamp(2048, 4096).next_power_of_two()
}

/// Which viewers will follow which tasks, if several viewers share the readings.
#[derive(Debug, Default)]
pub struct Changes {
    clear: u64,
    bits: BTreeMap<u32, u64>,
}

impl Changes {
    /// Follows all threads of these processes, and their descendants, from the next reading on.
    pub fn follow(&mut self, follower: Follower, pids: &[u32]) {
        pids.iter().for_each(|pid| *self.bits.entry(*pid).or_default() |= follower.bit());
    }

    /// Stops following all tasks for this viewer, from the next reading on.
    pub fn stop(&mut self, follower: Follower) {
        self.clear |= follower.bit();
        self.bits.values_mut().for_each(|bits| *bits &= !follower.bit());
    }
}
