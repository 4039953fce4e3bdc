//! An interval and the data that the screen derives from it once.

use std::{cell::OnceCell, sync::Arc};

use cgscope_ledger::chains::Waker;
use cgscope_model::{
    CgroupReading, ChainReading, Finding, Group, Interval, Mode, Names, Observed, Party, TaskInterval,
    TaskReading, Totals, Wait, chains,
    findings::{Host, findings_in},
    nodes::NodeGroup,
    pairs::Culprit,
    sum,
    table::interval::Process,
    tree::{Node, Tree},
    units::percent,
};
use itertools::Itertools;

use crate::{causes::UNNAMED, states::State};

/// An interval, with figures summed over groups of tasks.
#[derive(Debug)]
pub struct Data {
    pub interval: Arc<Interval>,
    pub tree: Tree,
    /// All tasks, including exited ones.
    pub total: Group,
    /// The findings, in the order of [`findings_in`].
    pub findings: Vec<Finding>,
    processes: OnceCell<Vec<Process>>,
    idle: OnceCell<Vec<TaskInterval>>,
    nodes: OnceCell<Vec<NodeGroup>>,
}

impl Data {
    pub fn new(interval: Arc<Interval>, host: &Host) -> Self {
        let tree = Tree::new(&interval);
        let total = tree.total(&interval);
        let findings = findings_in(&interval, &tree, host);
        let (processes, idle, nodes) = Default::default();
        Self { tree, total, findings, interval, processes, idle, nodes }
    }

    pub fn processes(&self) -> &[Process] {
        self.processes.get_or_init(|| self.interval.processes())
    }

    /// Returns the NUMA nodes, ascending.
    pub fn nodes(&self) -> &[NodeGroup] {
        self.nodes.get_or_init(|| self.interval.by_node())
    }

    /// Returns the process with this id. If several processes had the id, returns the latest one.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        let processes = self.processes();
        let after = processes.partition_point(|process| process.pid <= pid);
        processes[..after].last().filter(|process| process.pid == pid)
    }

    pub fn process_name(&self, pid: u32) -> Option<&Arc<str>> {
        self.process(pid).map(|process| &self.interval.reading(process.named_by).comm)
    }

    /// Returns the task at a [place](Interval::places).
    pub fn task_at(&self, place: usize) -> Option<&TaskInterval> {
        let tasks = &self.interval.tasks;
        // Computed on first use: the figures of idle tasks take much memory, and most views do not show them.
        let idle = || self.idle.get_or_init(|| self.interval.idle_figures().collect());
        tasks.get(place).or_else(|| idle().get(place - tasks.len()))
    }

    pub fn places_in<'a>(&'a self, key: &'a Key) -> Box<dyn Iterator<Item = usize> + 'a> {
        let interval = &*self.interval;
        let is_in = move |task: &TaskReading| match key {
            Key::Unknown => interval.cgroup_path(task.cgroup_id).is_none(),
            Key::Process(pid) => task.tgid == *pid,
            _ => true,
        };
        match key {
            Key::Cgroup(path) => Box::new(self.tree.find(path).into_iter().flat_map(|node| {
                let idle = self.tree.idle_below(node).iter().map(|idle| self.interval.tasks.len() + idle);
                self.tree.tasks_below(node).iter().copied().chain(idle)
            })),
            Key::Task(serial) => Box::new(interval.place_of(*serial).into_iter()),
            _ => Box::new(interval.places().filter(move |place| is_in(interval.reading(*place)))),
        }
    }

    pub fn subject(&self, key: &Key) -> Option<Subject<'_>> {
        match key {
            Key::All => Some(Subject::All(&self.total)),
            Key::Cgroup(path) => self.tree.find(path).map(|at| Subject::Cgroup(&self.tree.nodes()[at])),
            Key::Unknown => self.tree.unknown.as_ref().map(Subject::Unknown),
            Key::Process(pid) => self.process(*pid).and_then(|process| self.of_process(process)),
            Key::Task(serial) => self.task_at(self.interval.place_of(*serial)?).map(Subject::Task),
            Key::State(..) => None,
        }
    }

    pub fn of_process<'a>(&'a self, process: &'a Process) -> Option<Subject<'a>> {
        Some(Subject::Process(process, self.task_at(process.named_by)?))
    }

    /// Returns the CPU time that a subject used, ns. In coarse mode, or for a selection of tasks, the cgroup's files have this
    /// time.
    pub fn used_ns(&self, subject: &Subject<'_>) -> u64 {
        let interval = &*self.interval;
        let measured_ns = subject.totals().on_cpu_ns;
        if interval.mode == Mode::Bpf && !interval.is_selection {
            // Prefer the measured time: it is read with the tasks, and the files are read a moment later.
            return measured_ns;
        }
        subject.limits(interval).and_then(|limits| limits.usage_ns).unwrap_or(measured_ns)
    }
}

/// Returns the busy share of all CPUs' time, percent; `None` if the times were not read.
pub fn busy_percent(interval: &Interval) -> Option<f64> {
    let times = || interval.cpus.iter().filter_map(|cpu| cpu.busy_ns.zip(cpu.idle_ns));
    let busy = sum::total(times().map(|(busy, _)| busy));
    percent(busy, sum::total(times().map(|(_, idle)| idle)).saturating_add(busy))
}

/// Identifies a subject in every interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Everything that is measured.
    #[default]
    All,
    /// A cgroup and its descendants, by path.
    Cgroup(Arc<str>),
    /// The tasks of cgroups with unknown paths.
    Unknown,
    /// A process, by pid.
    Process(u32),
    /// A thread, by serial number.
    Task(u64),
    /// Threads with this name in this state. A row of such threads has no subject.
    State(Arc<str>, State),
}

/// The subject of a row, with its figures in one interval.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    All(&'a Group),
    Cgroup(&'a Node),
    Unknown(&'a Group),
    /// A process, and the thread that names the process.
    Process(&'a Process, &'a TaskInterval),
    Task(&'a TaskInterval),
}

impl<'a> Subject<'a> {
    pub fn key(&self) -> Key {
        match self {
            Self::All(_) => Key::All,
            Self::Cgroup(node) => Key::Cgroup(node.path.clone()),
            Self::Unknown(_) => Key::Unknown,
            Self::Process(process, _) => Key::Process(process.pid),
            Self::Task(task) => Key::Task(task.reading.serial),
        }
    }

    fn figures(&self) -> Result<&'a Group, &'a TaskInterval> {
        match self {
            Self::All(group) | Self::Unknown(group) => Ok(group),
            Self::Cgroup(node) => Ok(&node.group),
            Self::Process(process, _) => Ok(&process.group),
            Self::Task(task) => Err(task),
        }
    }

    pub fn group(&self) -> Option<&'a Group> {
        self.figures().ok()
    }

    /// Returns the task that provides names, ids and CPU: a thread, or the thread that names the process.
    pub fn task(&self) -> Option<&'a TaskInterval> {
        match self {
            Self::Process(_, task) | Self::Task(task) => Some(task),
            _ => None,
        }
    }

    /// Returns the completed waits.
    pub fn wait(&self) -> &'a Wait {
        self.figures().map_or_else(TaskInterval::all_waits, |group| &group.wait)
    }

    /// Returns the increase of the totals in the interval.
    pub fn totals(&self) -> &'a Totals {
        self.figures().map_or_else(TaskInterval::all_totals, |group| &group.totals)
    }

    pub fn observed<'i: 'a>(&self, interval: &'i Interval) -> Observed<'a> {
        let observed = match self.figures() {
            Ok(group) => Observed::group(group, interval.mode),
            Err(task) => Observed::task(task, interval.mode),
        };
        Observed { limits: self.limits(interval), ..observed }
    }

    /// Returns the length so far of the longest wait that has not ended, ns; `None` if no task waits now.
    pub fn pending_ns(&self) -> Option<u64> {
        match self.figures() {
            Ok(group) => (group.pending != 0).then_some(group.pending_max_ns),
            Err(task) => task.reading.pending_ns(),
        }
    }

    /// Returns the waiting time so far of waits that have not ended, ns, summed over tasks.
    pub fn waiting_ns(&self) -> u64 {
        match self.figures() {
            Ok(group) => group.pending_by_cause.total(),
            Err(task) => task.reading.pending_ns().unwrap_or(0),
        }
    }

    pub fn threads(&self) -> u64 {
        self.group().map_or(1, |group| group.threads)
    }

    /// Returns the path of the cgroup. The cgroup of a process is the cgroup of the thread that names the process.
    pub fn cgroup<'i: 'a>(&self, interval: &'i Interval) -> Option<&'a Arc<str>> {
        match self {
            Self::Cgroup(node) => Some(&node.path),
            Self::All(_) | Self::Unknown(_) => None,
            Self::Process(_, task) | Self::Task(task) => interval.cgroup_path(task.reading.cgroup_id),
        }
    }

    pub fn limits<'i: 'a>(&self, interval: &'i Interval) -> Option<&'a CgroupReading> {
        match self {
            Self::Cgroup(node) => node.limits.map(|at| &interval.limits[at]),
            _ => None,
        }
    }

    pub fn title(&self, names: &Names) -> String {
        match self {
            Self::All(_) => "all tasks".into(),
            Self::Cgroup(node) => names.of(&node.path).into(),
            Self::Unknown(_) => UNNAMED.into(),
            Self::Process(process, task) => format!("{} [process {}]", task.reading.comm, process.pid),
            Self::Task(task) => format!("{} [thread {}]", task.reading.comm, task.reading.tid),
        }
    }

    /// Returns the culprits of this subject's waits, worst first. Empty for processes and threads: culprits are counted by
    /// cgroup.
    pub fn culprits(&self, data: &Data) -> Vec<Culprit> {
        match self {
            Self::All(_) => data.tree.culprits(&data.interval),
            Self::Cgroup(node) => node.culprits.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns the sleepers that this subject consists of, without cgroups below it. Empty without `--chains`.
    pub fn sleepers<'i>(&self, interval: &'i Interval) -> impl Iterator<Item = Party> + use<'i, 'a> {
        let subject = *self;
        let is_own = move |(cgroup, tid): &Party| match subject {
            Self::Cgroup(node) => {
                *tid == 0 && interval.cgroup_path(*cgroup).is_some_and(|path| *path == node.path)
            }
            Self::Task(task) => *tid == task.reading.tid,
            _ => false,
        };
        // The rows of a sleeper are adjacent.
        interval.chains.iter().flatten().map(ChainReading::sleeper).dedup().filter(is_own)
    }

    /// Returns the sleeps of [`Self::sleepers`] that another task ended.
    pub fn sleeps<'i>(&self, interval: &'i Interval) -> impl Iterator<Item = &'i ChainReading> {
        let rows = interval.chains.as_deref().unwrap_or_default();
        let all = self.sleepers(interval).flat_map(|sleeper| chains::of(rows, sleeper));
        all.filter(|row| row.waker == Waker::Task)
    }
}
