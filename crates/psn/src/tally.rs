//! States of threads, and the number of thread readings in each group.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use cgscope_ledger::named;
use cgscope_model::{Names, Selection, TaskState, comm, selection::SelectionFilter};
use itertools::Itertools;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThreadReading {
    pub tid: u32,
    pub tgid: u32,
    /// The name, padded with NUL.
    pub comm: [u8; 16],
    pub state: ThreadState,
    /// The current or last CPU.
    pub cpu: Option<u32>,
    pub cgroup_id: Option<u64>,
    /// The real user id.
    pub uid: Option<u32>,
    /// The number of the system call that the thread is blocked in.
    pub syscall: Option<i32>,
    /// Number of the place in the kernel where the thread is blocked, as the reader counts places; 0 if unknown.
    pub place: u32,
}

/// Looks up names for the numbers in readings. `None` means unknown.
pub trait ThreadNames {
    /// Returns the name of a reading's system call, place, cgroup, user or process, by column.
    fn name(&self, column: GroupBy, reading: &ThreadReading) -> Option<Arc<str>>;
    fn node(&self, cpu: u32) -> Option<u32>;
}

/// Maximum number of groups. Any user can rename a thread before each reading. Further groups share a row without names.
const MOST_GROUPS: usize = 50_000;

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub(crate) columns: Vec<GroupBy>,
    pub(crate) counts: HashMap<ThreadReading, u64>,
    pub threads: HashSet<u32>,
    pub(crate) processes: HashSet<u32>,
    /// Number of readings that were counted without their names, because there were too many groups.
    pub(crate) nameless: u64,
    pub(crate) rounds: u64,
}

/// Threads that are equal in all columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    pub samples: u64,
    /// The values by column; `None` if unknown or absent.
    pub cells: Vec<Option<GroupCell>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupCell {
    Number(u64),
    State(ThreadState),
    Text(Arc<str>),
}

impl Tally {
    /// Creates a tally that groups by these columns. Repeated columns count once.
    pub fn new(columns: &[GroupBy]) -> Self {
        Self { columns: columns.iter().copied().unique().collect(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, reading: &ThreadReading) {
        self.threads.insert(reading.tid);
        self.processes.insert(reading.tgid);
        let mut group = self.group(reading);
        if self.counts.len() >= MOST_GROUPS && !self.counts.contains_key(&group) {
            let state = group.state;
            (group, self.nameless) = (ThreadReading { state, ..ThreadReading::default() }, self.nameless + 1);
        }
        *self.counts.entry(group).or_default() += 1;
    }

    /// Clears the fields of columns that are not requested. The state is kept, because a place without a state is meaningless.
    fn group(&self, reading: &ThreadReading) -> ThreadReading {
        use GroupBy::*;
        let has = |columns: &[GroupBy]| columns.iter().any(|column| self.columns.contains(column));
        let at_place = has(&[Kstack]) || has(&[Wchan]) && reading.state.is_blocked();
        ThreadReading {
            tid: if has(&[Tid]) { reading.tid } else { 0 },
            tgid: if has(&[Tgid, Exe, Cmdline]) { reading.tgid } else { 0 },
            comm: if has(&[Comm]) { folded(reading.comm) } else { [0; 16] },
            state: reading.state,
            cpu: reading.cpu.filter(|_| has(&[Cpu, Node])),
            cgroup_id: reading.cgroup_id.filter(|_| has(&[Cgroup])),
            uid: reading.uid.filter(|_| has(&[Username])),
            syscall: reading.syscall.filter(|_| has(&[Syscall])),
            place: if at_place { reading.place } else { 0 },
        }
    }

    /// Returns the rows so far, with the most samples first. Groups with different numbers but the same names become one row.
    pub(crate) fn rows(&self, names: &impl ThreadNames) -> Vec<GroupRow> {
        let mut groups: BTreeMap<Vec<Option<GroupCell>>, u64> = BTreeMap::new();
        for (reading, samples) in &self.counts {
            let cells = self.columns.iter().map(|column| cell(*column, reading, names)).collect();
            *groups.entry(cells).or_default() += samples;
        }
        let rows = groups.into_iter().map(|(cells, samples)| GroupRow { samples, cells });
        rows.sorted_by_key(|row| Reverse(row.samples)).collect()
    }
}

fn cell(column: GroupBy, reading: &ThreadReading, names: &impl ThreadNames) -> Option<GroupCell> {
    let number = |number: u32| Some(GroupCell::Number(number.into()));
    match column {
        GroupBy::Comm => Some(GroupCell::Text(comm(&reading.comm))),
        GroupBy::Tgid => number(reading.tgid),
        GroupBy::Tid => number(reading.tid),
        GroupBy::State => Some(GroupCell::State(reading.state)),
        GroupBy::Node => number(names.node(reading.cpu?)?),
        GroupBy::Cpu => number(reading.cpu?),
        GroupBy::Wchan if !reading.state.is_blocked() => None,
        _ => names.name(column, reading).map(GroupCell::Text),
    }
}

/// Replaces each run of digits in a NUL-padded name by one `*`, as psn does, so that the threads of a pool form one row.
fn folded(comm: [u8; 16]) -> [u8; 16] {
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut folded = [0; 16];
    for (to, run) in folded.iter_mut().zip(name.chunk_by(|a, b| a.is_ascii_digit() && b.is_ascii_digit())) {
        *to = if run[0].is_ascii_digit() { b'*' } else { run[0] };
    }
    folded
}

named! {
    /// A column of the table. Threads that are equal in all columns form one row.
    GroupBy {
        /// The thread's name, with each run of digits as one `*`.
        Comm = "comm",
        Tgid = "tgid",
        Tid = "tid",
        State = "state",
        /// The system call that the thread is blocked in.
        Syscall = "syscall",
        /// The kernel function that the thread is blocked in.
        Wchan = "wchan",
        Kstack = "kstack",
        /// The thread's cgroup, in the hierarchy of the cpu controller.
        Cgroup = "cgroup",
        /// The NUMA node of the thread's CPU.
        Node = "node",
        /// The thread's current or last CPU.
        Cpu = "cpu",
        Username = "username",
        Exe = "exe",
        Cmdline = "cmdline",
    }
}

impl GroupBy {
    pub const DEFAULT: [Self; 2] = [Self::Comm, Self::State];

    /// Returns the column with this name, or with psn's name for it.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "pid" => Some(Self::Tgid),
            "task" => Some(Self::Tid),
            "user" => Some(Self::Username),
            _ => Self::ALL.into_iter().find(|column| column.name() == name),
        }
    }

    /// Whether the column holds numbers, which are aligned to the right.
    pub(crate) const fn is_number(self) -> bool {
        matches!(self, Self::Tgid | Self::Tid | Self::Node | Self::Cpu)
    }
}

named! {
    /// The state of a thread at one moment. The kernel's letters ([`TaskState`]) do not show why a thread is off its CPU.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ThreadState (letter, name, words) {
        /// The kernel's letter, as psn shows it.
        letter: char,
        /// The name in JSON objects.
        name: &'static str,
        /// The words in tables.
        words: &'static str,
    }

    OnCpu = 'R', "on_cpu", "Running (on CPU)";
    Runnable = 'R', "runnable", "Runnable (waiting for a CPU)";
    /// Any state with the letter R, in coarse mode.
    Running = 'R', "running", "Running or runnable";
    Throttled = 'R', "throttled", "Throttled (out of quota)";
    Iowait = 'D', "iowait", "Disk (uninterruptible, iowait)";
    /// In D for a reason other than I/O. In coarse mode, in D for any reason.
    Uninterruptible = 'D', "uninterruptible", "Disk (uninterruptible)";
    Stopped = 'T', "stopped", "Stopped";
    Traced = 't', "traced", "Stopped (traced)";
    /// Exited, and about to be removed.
    Dead = 'X', "dead", "Dead";
    Sleeping = 'S', "sleeping", "Sleep (interruptible)";
    Idle = 'I', "idle", "Idle (kernel thread)";
    /// A kernel thread that is not needed, for example while its CPU is offline.
    Parked = 'P', "parked", "Parked";
    /// Exited, but not reaped yet.
    Zombie = 'Z', "zombie", "Zombie";
    #[default]
    Unknown = '?', "unknown", "Unknown";
}

impl ThreadState {
    /// Returns the state for the kernel's letter alone.
    pub const fn of_letter(state: Option<TaskState>) -> Self {
        match state {
            Some(TaskState::Running) => Self::Running,
            Some(TaskState::Sleeping) => Self::Sleeping,
            Some(TaskState::DiskSleep) => Self::Uninterruptible,
            Some(TaskState::Idle) => Self::Idle,
            Some(TaskState::Stopped) => Self::Stopped,
            Some(TaskState::Traced) => Self::Traced,
            Some(TaskState::Parked) => Self::Parked,
            Some(TaskState::Zombie) => Self::Zombie,
            Some(TaskState::Dead) => Self::Dead,
            None => Self::Unknown,
        }
    }

    /// Whether psn shows the state by default: the thread is neither asleep, idle nor parked, and is not a zombie.
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Sleeping | Self::Idle | Self::Parked | Self::Zombie)
    }

    /// Whether the thread is blocked in the kernel. Only a blocked thread has a place and a system call.
    pub const fn is_blocked(self) -> bool {
        !matches!(self.letter(), 'R' | 'Z' | 'X' | '?')
    }
}

pub struct ThreadFilter {
    filter: SelectionFilter,
    names: Names,
    /// Whether a cgroup is selected, by id. Contains only cgroups with a known path.
    cgroups: HashMap<u64, bool>,
}

impl ThreadFilter {
    /// Creates a filter. It ignores the selection's processes and threads, because the reader selects them. `names` has the pods
    /// and containers of this host. Fails if `comm` is not a regular expression.
    pub fn new(selection: &Selection, names: Names) -> Result<Self, regex::Error> {
        Ok(Self { filter: SelectionFilter::new(selection)?, names, cgroups: HashMap::new() })
    }

    pub(crate) fn needs_cgroups(&self) -> bool {
        self.filter.is_by_cgroup()
    }

    /// Whether the filter selects all threads.
    pub(crate) fn is_open(&self) -> bool {
        !self.filter.is_by_cgroup() && !self.filter.is_by_task()
    }

    pub(crate) fn unknown_cgroups(&self, readings: &[ThreadReading]) -> HashSet<u64> {
        let ids = readings.iter().filter_map(|reading| reading.cgroup_id);
        ids.filter(|id| !self.cgroups.contains_key(id)).collect()
    }

    /// Whether a thread is selected. If the filter needs a cgroup, CPU or node that is unknown, the thread is not selected.
    pub(crate) fn wants(&mut self, reading: &ThreadReading, names: &impl ThreadNames) -> bool {
        let comm = reading.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let node = reading.cpu.and_then(|cpu| names.node(cpu));
        self.filter.wants_task(&String::from_utf8_lossy(comm), reading.cpu, node)
            && (!self.needs_cgroups() || self.is_in_cgroup(reading, names))
    }

    fn is_in_cgroup(&mut self, reading: &ThreadReading, names: &impl ThreadNames) -> bool {
        let Some(id) = reading.cgroup_id else { return false };
        if let Some(is_in) = self.cgroups.get(&id) {
            return *is_in;
        }
        let Some(path) = names.name(GroupBy::Cgroup, reading) else { return false };
        *self.cgroups.entry(id).or_insert(self.filter.wants_cgroup(&path, &self.names))
    }
}

#[cfg(test)]
mod tests;
