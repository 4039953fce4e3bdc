//! The BPF side as a source. The BPF side reports single waits with their causes.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::Arc,
    time::Instant,
};

use cgscope_ledger::{
    Feature, Loss,
    wire::{Config, names},
};
use cgscope_model::{
    Losses, Sample, TaskReading,
    follower::{Followed, Follower},
};

use super::Source;
use crate::{
    Failure, Held, Options,
    cgroups::{self, CgroupTree, TreeEvent},
    clock::{monotonic_ns, refresh_run_queue},
    domain::{
        Domain, Domains, Draft, Setup,
        cpus::NodePlaces,
        stacks::{self, UnderWay},
    },
    facts::{self, CgroupMounts},
    kernel_side::{KernelSide, Plan, begin_loading},
    known::{Around, KnownTasks, Reading},
    offsets::{self, Resolved},
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
    side: KernelSide,
    memory: OwnMemory,
    nodes: BTreeMap<u32, u32>,
    node_places: NodePlaces,
    known: KnownTasks,
    /// Number of the latest reading of changed tasks.
    list_turn: u64,
    /// Whether the next reading must visit all tasks, because we have changed which viewers follow which tasks.
    all_next: bool,
    domains: Vec<Box<dyn Domain>>,
    /// The latest run queue clock up to the last reading of tasks, ns.
    clock_ns: u64,
    /// `clock_ns` of the previous reading.
    clock_before_ns: u64,
    config: Config,
    /// Losses of the BPF side before the first reading. We ignore them, because the BPF side was still adding tasks one by one.
    losses_at_start: Losses,
    /// Number of cgroup events that were lost until the last reading.
    events_lost: u64,
    /// When we last read the cgroup events, ns.
    events_reported_ns: u64,
    own_losses: Losses,
    buffer: Buffer,
    /// Which viewers follow each task of the latest reading, ascending by serial; empty unless readings are shared.
    followed: Vec<Followed>,
    changes: Changes,
}

impl Source for BpfSource {
    fn read(&mut self) -> Result<Sample, Failure> {
        if let Some(room) = self.memory.room() {
            self.side.set_room(room)?;
        }
        let Changes { clear, bits } = &self.changes;
        let has_changes = *clear != 0 || !bits.is_empty();
        if has_changes {
            self.side.mark(*clear, bits)?;
            self.all_next = true;
        }
        let (tasks, under_way) = self.read_tasks()?;
        if has_changes {
            self.changes = Changes::default();
            self.side.mark(0, &BTreeMap::new())?;
        }
        let mut sample = Sample { tasks, ..Sample::default() };
        self.in_domains(&mut sample, under_way, |domain, draft| domain.read(draft))?;
        // All culprits and pressure are read: let the BPF side reuse entries unused since the previous reading.
        let since_ns = std::mem::replace(&mut self.clock_before_ns, self.clock_ns);
        self.side.set_first("free old entries of culprits and of pressure", names::KEPT_SINCE, since_ns)?;
        Ok(sample)
    }

    fn report_cgroups(&mut self, tree: &mut CgroupTree, now: Instant) {
        let reported_ns = std::mem::replace(&mut self.events_reported_ns, monotonic_ns());
        self.side.cgroup_events(|bytes| {
            if let Some(event) = TreeEvent::parse(bytes) {
                tree.receive_since(event, reported_ns, now);
            }
        });
        // If we cannot read the losses now, the next sample notices lost events.
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

    fn complete(&mut self, sample: &mut Sample, tree: Option<&CgroupTree>) -> Result<(), Failure> {
        self.in_domains(sample, Vec::new(), |domain, draft| domain.complete(draft, tree))
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

    fn count_held(&self, held: &mut Held) {
        self.domains.iter().for_each(|domain| domain.count_held(held));
    }

    fn followed(&self) -> &[Followed] {
        &self.followed
    }

    fn changes(&mut self) -> Option<&mut Changes> {
        Some(&mut self.changes)
    }
}

impl BpfSource {
    fn in_domains(
        &mut self,
        sample: &mut Sample,
        under_way: Vec<UnderWay>,
        mut step: impl FnMut(&mut dyn Domain, &mut Draft<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut draft = Draft {
            sample: std::mem::take(sample),
            side: &mut self.side,
            config: &self.config,
            buffer: &mut self.buffer,
            tasks: &mut self.known,
            nodes: &self.nodes,
            node_places: &self.node_places,
            clock_ns: self.clock_ns,
            under_way,
            kept_pressure: Vec::new(),
            losses: &mut self.own_losses,
        };
        self.domains.iter_mut().try_for_each(|domain| step(domain.as_mut(), &mut draft))?;
        *sample = draft.sample;
        Ok(())
    }

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
        };
        let side = KernelSide::start(loading, &plan)?;
        let mut source = Self {
            side,
            memory,
            nodes,
            node_places,
            known: KnownTasks::default(),
            list_turn: 0,
            all_next: false,
            domains: domains.started,
            clock_ns: 0,
            clock_before_ns: 0,
            config,
            losses_at_start: Losses::default(),
            events_lost: 0,
            events_reported_ns: config.born_after_ns,
            own_losses: Losses::default(),
            buffer: Buffer::default(),
            followed: Vec::new(),
            changes: Changes::default(),
        };
        // From now on, we follow every selected task. The BPF side reports changes only once, so `known` keeps them.
        source.read_tasks()?;
        // All tasks were new, so this list is long. Free it, because later lists of changed tasks are short (Linux 6.18).
        source.known.active = Vec::new();
        // If a task that started later switches in without storage, the BPF side now counts a loss.
        source.side.set_first("mark the first reading", names::FIRST_READ, monotonic_ns())?;
        source.losses_at_start = source.side.losses()?;
        Ok(Box::new(source))
    }

    /// Reads tasks, ascending by serial, and the stacks of blocked tasks.
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
            let end = read_records(&mut stream, buffer, |reported| {
                if let (Some(kept), Reported::Task(task)) = (reading.take(&reported), &reported) {
                    stacks.extend(stacks::under_way(task, kept));
                }
            });
            count_cut(end, losses)?;
        }
        self.clock_ns = self.clock_ns.max(reading.end());
        self.followed.clear();
        if self.config.shared != 0 {
            self.followed.extend(self.known.followed());
        }
        Ok((self.known.readings(), stacks))
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
        side.set_first("begin to read the changed tasks", names::TURN, *turn)?;
        while let Some(mut stream) = side.read_changes()? {
            let end = read_records(&mut stream, buffer, |reported| _ = reading.take(&reported));
            let end = count_cut(end, losses)?;
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
    let needed = resolved.off.iter().filter(|off| off.feature.is_needed());
    let missing: Vec<&str> = needed.flat_map(|off| &off.missing).map(String::as_str).collect();
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
    nodes: usize,
) -> Config {
    let selection = &options.selection;
    let now_ns = monotonic_ns();
    let stack_every = options.accounts.and_then(|asked| asked.stack_every);
    let own_cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // Without the paths of all cgroups, events would be useless.
    let hierarchy = tree.filter(|tree| tree.shows_all);
    let hierarchy = hierarchy.and_then(|_| cgroups::hierarchy(&own_cgroup, mounts.cpu_is_v2()));
    let throttle_functions_alone =
        !resolved.has(Feature::ThrottleClock) && resolved.has(Feature::ThrottleFunctions);
    Config {
        follow_all: selection.follows_all().into(),
        born_after_ns: now_ns,
        select_born_before_ns: now_ns + STARTING_NS,
        cgroup_v2: mounts.cpu_is_v2().into(),
        root_cgroup_id: tree.and_then(CgroupTree::root_id).unwrap_or_default(),
        blame_tasks: (!selection.follows_all()).into(),
        cgroup_hierarchy: hierarchy.unwrap_or(u64::MAX),
        nodes: nodes as u64,
        count_by_cpu: (options.by_cpu || nodes > 1).into(),
        accounts: options.accounts.is_some().into(),
        stack_every_ns: stack_every.map_or(0, |every| every.as_nanos() as u64),
        shared: options.shared.into(),
        cpus: facts::possible_cpus(Path::new(HOST)).into(),
        demand: options.demand.into(),
        keep_throttle_clock: throttle_functions_alone.into(),
    }
}

/// Which viewers will follow which tasks, if several viewers share the readings.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    clear: u64,
    bits: BTreeMap<u32, u64>,
}

impl Changes {
    /// Follows all threads of these processes, and their descendants, from the next reading on.
    pub(crate) fn follow(&mut self, follower: Follower, pids: &[u32]) {
        for pid in pids {
            *self.bits.entry(*pid).or_default() |= follower.bit();
        }
    }

    /// Stops following all tasks for this viewer, from the next reading on.
    pub(crate) fn stop(&mut self, follower: Follower) {
        self.clear |= follower.bit();
        for bits in self.bits.values_mut() {
            *bits &= !follower.bit();
        }
    }
}
