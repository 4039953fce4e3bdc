//! One reading of everything: cumulative counters, names and losses. Nothing here is subtracted or judged.

use std::{fmt, sync::Arc};

use cgscope_layout::Loss;
use serde::Serialize;

use crate::{
    Accounts, ByCause, CgroupReading, ContainerReading, CpuReading, DemandReading, Hist, NodeReading,
    PairReading, Placement, ProcessMemory, SchedExt, StackReading, TaskState, Totals, accounts, sum,
};

/// Replaces characters that control a terminal or change the order of displayed text.
///
/// Any user can name a thread, a cgroup or a file, and a recording may come from any source.
pub fn printable(text: &str) -> Arc<str> {
    if !text.contains(steers) {
        return text.into();
    }
    let printable = text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c });
    printable.collect::<String>().into()
}

/// The [`printable`] name of a task, up to its NUL.
pub fn comm(bytes: &[u8; 16]) -> Arc<str> {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    printable(&String::from_utf8_lossy(name))
}

/// The [`printable`] lines of a message; keeps line ends.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// True for control characters (C0, delete, C1), line and paragraph separators, characters that set the direction of text, and those
/// that nobody sees: with them, two names look the same.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{ad}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Where readings come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// From the hook in the kernel's scheduler: every single wait, with its cause.
    #[default]
    Bpf,
    /// From `/proc` and the files of cgroups: sums of waits, no lengths, and only the causes that `cpu.stat` reports.
    Coarse,
}

impl Mode {
    /// A value that only the hook can measure: `None` in the coarse mode.
    pub fn exact<T>(self, value: impl FnOnce() -> T) -> Option<T> {
        (self == Self::Bpf).then(value)
    }
}

/// Everything read at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
    /// CLOCK_MONOTONIC, ns; used for durations.
    pub mono_ns: u64,
    /// Where the readings come from.
    pub mode: Mode,
    /// The BPF scheduler; `None`: unknown, as in older recordings.
    pub sched_ext: Option<SchedExt>,
    /// One entry per followed task, ascending by `serial`. Shared with the previous Sample if nothing in it changed.
    pub tasks: Vec<Arc<TaskReading>>,
    /// Readings of exited tasks that no earlier Sample reported, by cgroup, ascending by id.
    pub exited: Vec<ExitedReading>,
    /// Wait time by victim and culprit so far, ascending by key.
    pub pairs: Vec<PairReading>,
    /// Limits of the cgroups named above and of their ancestors, ascending by id.
    pub limits: Vec<CgroupReading>,
    /// Paths of the cgroups named above, relative to the mount, ascending by id. Missing: removed before the path could be
    /// read.
    pub cgroups: Vec<(u64, Arc<str>)>,
    /// What the container runtime calls these cgroups, ascending by id.
    pub containers: Vec<ContainerReading>,
    /// The scheduler's clock up to which demand was read, ns; `None`: demand was not read, as in the coarse mode and in older
    /// recordings.
    pub demand_until_ns: Option<u64>,
    /// The demand of cgroups with a quota since the previous Sample, ascending by cgroup id.
    pub demand: Vec<DemandReading>,
    /// The CPUs that are online, ascending by number.
    pub cpus: Vec<CpuReading>,
    /// The NUMA nodes that are online, ascending by number; empty if they could not be read.
    pub nodes: Vec<NodeReading>,
    /// Where the memory of processes lies, ascending by process id. Only processes for which this was requested.
    pub memory: Vec<ProcessMemory>,
    /// Where tasks were blocked so far, ascending by key. Only on request; not recorded.
    pub stacks: Vec<StackReading>,
    /// Losses so far.
    pub losses: Losses,
    /// The cost of cgscope itself so far.
    pub cost: Cost,
}

/// The reading of one task.
///
/// In this order, what is read of each idle task in each interval is in one line of the CPU's cache.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskReading {
    /// Unique id of the task; unlike a tid, it is never reused.
    pub serial: u64,
    /// The cgroup's id; 0: unknown.
    pub cgroup_id: u64,
    /// Where the time went outside the waits; `None`: not requested. Not recorded.
    pub accounts: Option<Arc<Accounts>>,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// The CPU that the task is on, or was on last.
    pub cpu: u32,
    /// True if the task is on a CPU at this moment.
    pub on_cpu: bool,
    /// The state at this moment; running if the task is on a CPU or waits for one, whatever state the kernel has stored.
    ///
    /// `None`: unknown, as in older recordings. In the coarse mode this is the state when the task last ran or was first
    /// seen. So a task that was woken and has not run since still shows as sleeping.
    pub state: Option<TaskState>,
    /// Set while the task waits for a CPU. Few tasks do, so it takes no space in the others.
    pub pending: Option<Arc<Pending>>,
    /// Name of the thread.
    pub comm: Arc<str>,
    /// Start, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// When the task was first read in its cgroup, ns of CLOCK_MONOTONIC. `None`: the task started in this cgroup, or was there
    /// before cgscope started.
    ///
    /// Each move to another cgroup gives the task a new `serial`. Readings from before the move stay with the old cgroup.
    pub moved_ns: Option<u64>,
    /// What the task did before that move, since it is followed; `None`: it did not move, or a recording by an older version.
    pub before_move: Option<Arc<BeforeMove>>,
    /// The NUMA node of that CPU, if the host reports it.
    pub node: Option<u32>,
    /// Where the task ran and may run; `None` if this was not read.
    pub placement: Option<Arc<Placement>>,
    /// How the kernel schedules the task; `None`: the task was never busy, or this was not read.
    pub scheduling: Option<Scheduling>,
    /// The longest completed wait so far, ns.
    pub max_ns: u64,
    /// Cumulative readings.
    pub totals: Totals,
    /// Completed waits so far. Shared with the previous Sample if no wait was added.
    pub hist: Arc<Hist>,
}

/// What a task did before its latest move to another cgroup. It counts for the cgroups before, and for the task's own row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeMove {
    /// Sums.
    pub totals: Totals,
    /// Where the time went outside the waits; `None`: not requested. Not recorded.
    pub accounts: Option<Arc<Accounts>>,
    /// Completed waits.
    pub hist: Arc<Hist>,
}

/// How the kernel schedules a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// The kernel's number of the policy (`sched_getscheduler`): 1 is SCHED_FIFO.
    pub policy: u32,
    /// True for a kernel thread that is kept on some CPUs and whose affinity cannot be changed (PF_NO_SETAFFINITY).
    pub is_bound: bool,
}

impl Scheduling {
    /// The name of the policy if it is a real-time policy. `cpu.weight` and `cpu.max` do not apply to real-time tasks.
    pub fn realtime(self) -> Option<&'static str> {
        match self.policy {
            1 => Some("SCHED_FIFO"),
            2 => Some("SCHED_RR"),
            6 => Some("SCHED_DEADLINE"),
            _ => None,
        }
    }
}

impl TaskReading {
    /// The moment from which the readings count from 0, ns of CLOCK_MONOTONIC.
    pub fn counts_from_ns(&self) -> u64 {
        self.moved_ns.unwrap_or(self.start_ns)
    }

    /// How long the task has waited for a CPU so far, ns, if it waits.
    pub fn pending_ns(&self) -> Option<u64> {
        self.pending.as_ref().map(|pending| pending.ns)
    }
}

/// A wait that is not over yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Length so far, ns.
    pub ns: u64,
    /// The part that the kernel has already added to its own sum: the wait on another CPU before a migration.
    pub booked_ns: u64,
    /// The wait so far by cause; the parts sum to `ns`.
    pub by_cause: ByCause,
}

/// The exited tasks of a cgroup: readings that were not reported before they exited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExitedReading {
    /// The cgroup's id; 0: unknown.
    pub cgroup_id: u64,
    /// Tasks that exited.
    pub tasks: u64,
    /// The longest wait in the life of any of these tasks, ns.
    pub max_ns: u64,
    /// Sums over these tasks.
    pub totals: Totals,
    /// Sums of their accounts; `None`: not requested. Not recorded.
    pub accounts: Option<Arc<Accounts>>,
    /// The waits of these tasks.
    pub hist: Arc<Hist>,
}

impl ExitedReading {
    /// Adds the readings of other tasks of the same cgroup.
    pub fn add(&mut self, other: &Self) {
        sum::add(&mut self.tasks, other.tasks);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.totals.add(&other.totals);
        let mut accounts = self.accounts.as_deref().copied();
        accounts::add_known(&mut accounts, other.accounts.as_deref());
        self.accounts = accounts.map(Arc::new);
        if !other.hist.is_empty() {
            Arc::make_mut(&mut self.hist).add(&other.hist);
        }
    }

    /// What came after an earlier reading. `None` if this one began to count after that.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let accounts = self
            .accounts
            .as_deref()
            .map(|now| Arc::new(now.since(before.accounts.as_deref().unwrap_or(&Accounts::default()))));
        Some(Self {
            cgroup_id: self.cgroup_id,
            tasks: self.tasks.checked_sub(before.tasks)?,
            max_ns: self.max_ns,
            totals: self.totals.since(&before.totals)?,
            accounts,
            hist: Arc::new(self.hist.since(&before.hist)?),
        })
    }
}

/// A counter for each [`Loss`]. Files store them by name, because numbers change with the version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(Vec<u64>);

impl<N: AsRef<str>> FromIterator<(N, u64)> for Losses {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(named: I) -> Self {
        let mut losses = Self::default();
        for (name, count) in named {
            let loss = Loss::ALL.iter().find(|loss| loss.name() == name.as_ref());
            losses.add(*loss.unwrap_or(&Loss::Other), count);
        }
        losses
    }
}

impl Losses {
    /// Counts `n` more losses.
    pub fn add(&mut self, loss: Loss, n: u64) {
        if n == 0 {
            return;
        }
        let index = loss as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = self.0[index].saturating_add(n);
    }

    /// The count of one kind of loss.
    pub fn get(&self, loss: Loss) -> u64 {
        self.0.get(loss as usize).copied().unwrap_or(0)
    }

    /// The kinds with a count.
    pub fn nonzero(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        Loss::ALL.iter().map(|loss| (*loss, self.get(*loss))).filter(|(_, count)| *count != 0)
    }

    /// The kinds with a count that belong beside measured figures. Demand is in none of them: only `whatif` uses it, and says what it
    /// lacks.
    pub fn shown(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        self.nonzero().filter(|(loss, _)| *loss != Loss::DemandForgotten)
    }

    /// Adds later losses.
    pub fn append(&mut self, later: &Self) {
        for (loss, count) in later.nonzero() {
            self.add(loss, count);
        }
    }

    /// The increase since `before`. If a counter decreased, it was reset: its new value is the increase.
    pub fn since(&self, before: &Self) -> Self {
        let mut out = Self::default();
        for (loss, count) in self.nonzero() {
            out.add(loss, count.checked_sub(before.get(loss)).unwrap_or(count));
        }
        out
    }
}

impl fmt::Display for Losses {
    /// Each [shown](Self::shown) kind by name with its count, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (loss, count) in self.shown() {
            write!(f, "{separator}{} {count}", loss.name())?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// The cost of cgscope itself so far. `None`: could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Switches of the host since boot: each ran the hook once.
    pub switches: Option<u64>,
    /// Time of one run of the hook, ns, measured by the kernel (`bpf_stats`) in short windows.
    pub hook_ns_per_run: Option<f64>,
    /// CPU time of this process, ns.
    pub cpu_ns: Option<u64>,
    /// Resident memory of this process, bytes.
    pub rss_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_control_a_terminal_or_reverse_its_text() {
        for steering in [
            '\x07', '\x1b', '\t', '\n', '\u{7f}', '\u{85}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{200f}',
            '\u{2028}', '\u{2029}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
            '\u{2067}', '\u{2068}', '\u{2069}',
        ] {
            assert_eq!(&*printable(&format!("a{steering}b")), "a\u{fffd}b", "{steering:?}");
        }
        let names = "web-1 (日本) שלום مرحبا é e\u{301} 👩\u{200d}🔧";
        assert_eq!(&*printable(names), names);
        assert_eq!(printable_lines("a\u{202e}\nb\x1b"), "a\u{fffd}\nb\u{fffd}");
    }

    #[test]
    fn a_name_ends_at_its_first_nul_and_need_not_be_utf8() {
        assert_eq!(&*comm(b"bash\0\0\0\0\0\0\0\0\0\0\0\0"), "bash");
        assert_eq!(&*comm(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(&*comm(b"a\x1b[2Jb\0xxxxxxxxx"), "a\u{fffd}[2Jb", "a name must not steer a terminal");
        assert_eq!(&*comm(b"\xff\0xxxxxxxxxxxxxx"), "\u{fffd}");
    }
}
