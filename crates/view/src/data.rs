//! An interval and what the screen derives of it, made once when it comes.

use std::{cell::OnceCell, sync::Arc};

use cgscope_model::{
    Finding, Group, Interval, Mode, TaskInterval,
    findings::{Host, findings_in},
    interval::Process,
    nodes::NodeGroup,
    tree::Tree,
};

use crate::subject::{Key, Subject};

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

    /// As [`Interval::processes`] has them.
    pub fn processes(&self) -> &[Process] {
        self.processes.get_or_init(|| self.interval.processes())
    }

    /// The NUMA nodes, ascending.
    pub fn nodes(&self) -> &[NodeGroup] {
        self.nodes.get_or_init(|| self.interval.by_node())
    }

    /// One process; of those that had one id the latest.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        let processes = self.processes();
        let after = processes.partition_point(|process| process.pid <= pid);
        processes[..after].last().filter(|process| process.pid == pid)
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
