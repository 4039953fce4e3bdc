//! An interval and the data that the screen derives from it once.

use std::{cell::OnceCell, sync::Arc};

use cgscope_model::findings::{Host, findings_in};
use cgscope_model::{
    Finding, Group, Interval, Mode, TaskInterval, TaskReading, nodes::NodeGroup, sum,
    table::interval::Process, tree::Tree, units::percent,
};

use crate::subject::{Key, Subject};

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
