//! What a row is of: a cgroup, a process, a thread. All are told by the same figures.

use std::sync::Arc;

use cgscope_model::{
    CgroupReading, Group, Interval, Observed, TaskInterval, Totals, Wait, culprits::Culprit,
    interval::Process, tree::Node,
};

use crate::{causes::UNNAMED, states::State};

/// Tells a subject in every interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// All that is measured.
    #[default]
    All,
    /// A cgroup with all below it, by its path.
    Cgroup(Arc<str>),
    /// The tasks of cgroups whose path is not known.
    Unknown,
    /// A process, by its id.
    Process(u32),
    /// A thread, by its serial.
    Task(u64),
    /// Threads of a name in a state: no subject, but a row.
    State(Arc<str>, State),
}

/// What a row is of, in one interval.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// All that is measured.
    All(&'a Group),
    /// A cgroup with all below it.
    Cgroup(&'a Node),
    /// The tasks of cgroups whose path is not known.
    Unknown(&'a Group),
    /// A process, and the thread that names it.
    Process(&'a Process, &'a TaskInterval),
    /// A thread.
    Task(&'a TaskInterval),
}

impl<'a> Subject<'a> {
    /// What tells it.
    pub fn key(&self) -> Key {
        match self {
            Self::All(_) => Key::All,
            Self::Cgroup(node) => Key::Cgroup(node.path.clone()),
            Self::Unknown(_) => Key::Unknown,
            Self::Process(process, _) => Key::Process(process.pid),
            Self::Task(task) => Key::Task(task.reading.serial),
        }
    }

    /// The tasks taken together; `None`: it is one.
    pub fn group(&self) -> Option<&'a Group> {
        match self {
            Self::All(group) | Self::Unknown(group) => Some(group),
            Self::Cgroup(node) => Some(&node.group),
            Self::Process(process, _) => Some(&process.group),
            Self::Task(_) => None,
        }
    }

    /// The task whose names and places it has: a thread, or the one that names a process.
    pub fn task(&self) -> Option<&'a TaskInterval> {
        match self {
            Self::Process(_, task) | Self::Task(task) => Some(task),
            _ => None,
        }
    }

    /// Completed waits.
    pub fn wait(&self) -> &'a Wait {
        match (self, self.group()) {
            (_, Some(group)) => &group.wait,
            (Self::Task(task), None) => &task.wait,
            _ => unreachable!("what is no group is a task"),
        }
    }

    /// What came on top in the interval.
    pub fn totals(&self) -> &'a Totals {
        match (self, self.group()) {
            (_, Some(group)) => &group.totals,
            (Self::Task(task), None) => &task.totals,
            _ => unreachable!("what is no group is a task"),
        }
    }

    /// What its counters are taken from.
    pub fn observed<'i: 'a>(&self, interval: &'i Interval) -> Observed<'a> {
        let observed = match (self, self.group()) {
            (Self::Task(task), _) => Observed::task(task, interval.mode),
            (_, Some(group)) => Observed::group(group, interval.mode),
            (_, None) => Observed::default(),
        };
        Observed { limits: self.limits(interval), ..observed }
    }

    /// The longest wait that is not over, ns so far; `None`: nobody waits now.
    pub fn pending_ns(&self) -> Option<u64> {
        match (self.group(), self.task()) {
            (Some(group), _) => (group.pending != 0).then_some(group.pending_max_ns),
            (None, task) => task?.reading.pending.map(|pending| pending.ns),
        }
    }

    /// What its tasks have waited so far in waits that are not over, ns summed over them.
    pub fn waiting_ns(&self) -> u64 {
        match (self.group(), self.task()) {
            (Some(group), _) => group.pending_by_cause.total(),
            (None, task) => task.and_then(|task| task.reading.pending).map_or(0, |pending| pending.ns),
        }
    }

    /// Its threads.
    pub fn threads(&self) -> u64 {
        self.group().map_or(1, |group| group.threads)
    }

    /// The path of its cgroup; of a process, that of the thread which names it.
    pub fn cgroup<'i: 'a>(&self, interval: &'i Interval) -> Option<&'a Arc<str>> {
        match self {
            Self::Cgroup(node) => Some(&node.path),
            Self::All(_) | Self::Unknown(_) => None,
            Self::Process(_, task) | Self::Task(task) => interval.cgroup_path(task.reading.cgroup_id),
        }
    }

    /// The limits of its cgroup; only of a cgroup.
    pub fn limits<'i: 'a>(&self, interval: &'i Interval) -> Option<&'a CgroupReading> {
        match self {
            Self::Cgroup(node) => node.limits.map(|at| &interval.limits[at]),
            _ => None,
        }
    }

    /// In a few words, as a heading.
    pub fn title(&self) -> String {
        match self {
            Self::All(_) => "all tasks".into(),
            Self::Cgroup(node) => node.path.to_string(),
            Self::Unknown(_) => UNNAMED.into(),
            Self::Process(process, task) => format!("{} [process {}]", task.reading.comm, process.pid),
            Self::Task(task) => format!("{} [thread {}]", task.reading.comm, task.reading.tid),
        }
    }

    /// Who ran while its tasks waited, the worst first. Of processes and threads that is not known: who is to blame is counted
    /// by cgroup.
    pub fn culprits(&self, interval: &Interval) -> Vec<Culprit> {
        match self {
            Self::All(_) => interval.culprits(),
            Self::Cgroup(node) => node.culprits.clone(),
            _ => Vec::new(),
        }
    }
}
