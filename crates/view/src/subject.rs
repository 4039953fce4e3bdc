//! The subject of a row: a cgroup, a process or a thread. All of them have the same figures.

use std::sync::Arc;

use cgscope_model::{
    CgroupReading, ChainReading, Group, Interval, Names, Observed, Party, TaskInterval, Totals, Wait, chains,
    pairs::Culprit, table::interval::Process, tree::Node,
};
use itertools::Itertools;

use crate::{causes::UNNAMED, data::Data, states::State};

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

    /// Returns the sleeps of [`Self::sleepers`].
    pub fn sleeps<'i>(&self, interval: &'i Interval) -> impl Iterator<Item = &'i ChainReading> {
        let rows = interval.chains.as_deref().unwrap_or_default();
        self.sleepers(interval).flat_map(|sleeper| chains::of(rows, sleeper))
    }
}
