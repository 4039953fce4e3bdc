//! One reading of everything: cumulative counters, names and losses. Nothing here is subtracted or judged.

use std::{fmt, sync::Arc};

use crate::{
    CgroupReading, ContainerReading, CpuReading, DemandReading, ExitedReading, Mode, NodeReading,
    PairReading, ProcessMemory, SchedExt, StackReading, TaskReading,
};
use cgscope_ledger::Loss;

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
