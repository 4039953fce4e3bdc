//! An interval and what the screen derives of it, made once when it comes.

use std::{cell::OnceCell, collections::BTreeMap, sync::Arc};

use cgscope_model::{
    Finding, Group, Interval, Mode, TaskInterval,
    findings::{Host, findings_in},
    nodes::NodeGroup,
    tree::Tree,
};

use crate::subject::{Key, Subject};

/// A process: its threads together.
#[derive(Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// The thread that names it, by its place in [`Interval::tasks`]: the main thread, or where that has gone any other.
    pub named_by: usize,
    /// Its threads together.
    pub group: Group,
}

/// An interval, and its figures taken together.
#[derive(Debug)]
pub struct Data {
    /// The interval.
    pub interval: Arc<Interval>,
    /// Its cgroups.
    pub tree: Tree,
    /// All tasks and all that exited.
    pub total: Group,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    processes: OnceCell<Vec<Process>>,
    nodes: OnceCell<Vec<NodeGroup>>,
}

impl Data {
    /// Derived of an interval, judged for this host.
    pub fn new(interval: Arc<Interval>, host: &Host) -> Self {
        let tree = Tree::new(&interval);
        let total = interval.total();
        let findings = findings_in(&interval, &tree, host);
        Self { tree, total, findings, interval, processes: OnceCell::new(), nodes: OnceCell::new() }
    }

    /// Ascending by process id.
    pub fn processes(&self) -> &[Process] {
        self.processes.get_or_init(|| {
            let mut named_by: BTreeMap<u32, usize> = BTreeMap::new();
            for (at, task) in self.interval.tasks.iter().enumerate() {
                let name = named_by.entry(task.reading.tgid).or_insert(at);
                if task.reading.tid == task.reading.tgid {
                    *name = at;
                }
            }
            let groups = self.interval.by_process().into_iter().zip(named_by.into_values());
            groups.map(|((pid, group), named_by)| Process { pid, named_by, group }).collect()
        })
    }

    /// The NUMA nodes, ascending.
    pub fn nodes(&self) -> &[NodeGroup] {
        self.nodes.get_or_init(|| self.interval.by_node())
    }

    /// One process.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        let processes = self.processes();
        processes.binary_search_by_key(&pid, |process| process.pid).ok().map(|at| &processes[at])
    }

    /// The name of a process.
    pub fn process_name(&self, pid: u32) -> Option<&Arc<str>> {
        self.process(pid).map(|process| &self.interval.tasks[process.named_by].reading.comm)
    }

    /// One task, by its serial.
    pub fn task(&self, serial: u64) -> Option<&TaskInterval> {
        let tasks = &self.interval.tasks;
        tasks.binary_search_by_key(&serial, |task| task.reading.serial).ok().map(|at| &tasks[at])
    }

    /// What a key stands for in this interval; `None`: it is not there any more.
    pub fn subject(&self, key: &Key) -> Option<Subject<'_>> {
        match key {
            Key::All => Some(Subject::All(&self.total)),
            Key::Cgroup(path) => self.tree.find(path).map(|at| Subject::Cgroup(&self.tree.nodes()[at])),
            Key::Unknown => self.tree.unknown.as_ref().map(Subject::Unknown),
            Key::Process(pid) => self.process(*pid).map(|process| self.of_process(process)),
            Key::Task(serial) => self.task(*serial).map(Subject::Task),
            Key::State(..) => None,
        }
    }

    /// A process as what a row is of.
    pub fn of_process<'a>(&'a self, process: &'a Process) -> Subject<'a> {
        Subject::Process(process, &self.interval.tasks[process.named_by])
    }

    /// CPU time that a subject used, ns. Where only a part of its tasks is measured, as its files tell.
    pub fn used_ns(&self, subject: &Subject<'_>) -> u64 {
        let interval = &*self.interval;
        let measured_ns = subject.totals().on_cpu_ns;
        if interval.mode == Mode::Bpf && !interval.is_selection {
            // Read with the tasks, at the ends of the interval; files are read some moments later.
            return measured_ns;
        }
        subject.limits(interval).and_then(|limits| limits.usage_ns).unwrap_or(measured_ns)
    }

    /// The share of the CPUs' time in which they were busy, percent; `None` where that was not read.
    pub fn busy_percent(&self) -> Option<f64> {
        busy_percent(&self.interval)
    }
}

/// See [`Data::busy_percent`].
pub fn busy_percent(interval: &Interval) -> Option<f64> {
    let (mut busy, mut all) = (0u64, 0u64);
    for cpu in &interval.cpus {
        let (Some(ran), Some(idle)) = (cpu.busy_ns, cpu.idle_ns) else { continue };
        busy = busy.saturating_add(ran);
        all = all.saturating_add(ran).saturating_add(idle);
    }
    cgscope_model::units::percent(busy, all)
}
