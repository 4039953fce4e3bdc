//! One reading of all tables: cumulative counters, names and losses. Nothing is subtracted or judged here.

use std::{collections::BTreeMap, fmt, sync::Arc};

use cgscope_ledger::Loss;
use serde::Serialize;

use crate::{
    CgroupReading, ChainReading, ContainerReading, CpuReading, DemandReading, ExitedReading, Mode,
    NodeReading, PairReading, ProcessMemory, StackReading, TaskReading, sum,
};

/// All data read at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
    /// CLOCK_MONOTONIC, ns; used for durations.
    pub mono_ns: u64,
    pub mode: Mode,
    /// BPF scheduler; `None`: unknown, as in older recordings.
    pub sched_ext: Option<SchedExt>,
    /// One row per followed task, ascending by `serial`. An unchanged row is shared with the previous Sample.
    pub tasks: Vec<Arc<TaskReading>>,
    /// Work of exited tasks that no earlier Sample reported, by cgroup, ascending by id.
    pub exited: Vec<ExitedReading>,
    /// Wait time by victim and culprit so far, ascending by key.
    pub pairs: Vec<PairReading>,
    /// Limits of the cgroups named above and of their ancestors, ascending by id.
    pub limits: Vec<CgroupReading>,
    /// Paths of the cgroups named above, ascending by id. A cgroup removed before its path was read is missing.
    pub cgroups: Vec<(u64, Arc<str>)>,
    /// The container runtime's names for these cgroups, ascending by id.
    pub containers: Vec<ContainerReading>,
    /// Scheduler clock up to which demand was read, ns; `None`: not read, as in the coarse mode and in older recordings.
    pub demand_until_ns: Option<u64>,
    /// Demand of cgroups with a quota since the previous Sample, ascending by cgroup id.
    pub demand: Vec<DemandReading>,
    /// Online CPUs, ascending by number.
    pub cpus: Vec<CpuReading>,
    /// Online NUMA nodes, ascending by number; empty if they could not be read.
    pub nodes: Vec<NodeReading>,
    /// Memory of processes by node, ascending by process id. Only processes for which this was requested.
    pub memory: Vec<ProcessMemory>,
    /// Whether it was counted for whom tasks sleep.
    pub has_chains: bool,
    /// For whom tasks slept so far, ascending by key. Only on request.
    pub chains: Vec<ChainReading>,
    /// Stacks in which tasks were blocked so far, ascending by key. Only on request; not recorded.
    pub stacks: Vec<StackReading>,
    pub losses: Losses,
    pub cost: Cost,
}

/// The counter of each [`Loss`], without zeros. Files store the counters by name, because the numbers of losses change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<Loss, u64>);

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
    pub fn add(&mut self, loss: Loss, n: u64) {
        if n != 0 {
            sum::add(self.0.entry(loss).or_default(), n);
        }
    }

    pub fn get(&self, loss: Loss) -> u64 {
        self.0.get(&loss).copied().unwrap_or(0)
    }

    pub fn nonzero(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        self.0.iter().map(|(loss, count)| (*loss, *count))
    }

    /// Returns the non-zero losses that affect measured figures. Only `whatif` uses demand, and reports its loss.
    pub fn shown(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        self.nonzero().filter(|(loss, _)| *loss != Loss::DemandForgotten)
    }

    pub fn append(&mut self, later: &Self) {
        later.nonzero().for_each(|(loss, count)| self.add(loss, count));
    }

    /// Returns the increase since `before`. A counter that decreased was reset: its new value is the increase.
    pub fn since(&self, before: &Self) -> Self {
        let mut out = Self::default();
        for (loss, count) in self.nonzero() {
            out.add(loss, count.checked_sub(before.get(loss)).unwrap_or(count));
        }
        out
    }
}

impl fmt::Display for Losses {
    /// Formats each [shown](Self::shown) loss by name with its counter, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.shown().map(|(loss, count)| format!("{} {count}", loss.name())).collect();
        if shown.is_empty() { f.write_str("none") } else { f.write_str(&shown.join(", ")) }
    }
}

/// Cost of cgscope itself so far. `None`: could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Switches of the host since boot. Each switch ran the hook once.
    pub switches: Option<u64>,
    /// Time per run of the hook, ns. The kernel (`bpf_stats`) measures it in short windows.
    pub hook_ns_per_run: Option<f64>,
    pub cpu_ns: Option<u64>,
    pub rss_bytes: Option<u64>,
}

/// What the kernel reports about sched_ext: the BPF scheduler, which replaces the kernel's own scheduling rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SchedExt {
    /// Name of the BPF scheduler; `None`: not loaded.
    pub scheduler: Option<Arc<str>>,
    /// True if the BPF scheduler schedules all normal tasks, not only tasks with the policy SCHED_EXT.
    pub takes_all: bool,
}

impl SchedExt {
    /// Returns the state between two readings. A scheduler that was loaded at only one of them counts.
    pub(crate) fn between(a: Option<&Self>, b: Option<&Self>) -> Option<Self> {
        let is_loaded = |reading: &&Self| reading.scheduler.is_some();
        b.filter(is_loaded).or_else(|| a.filter(is_loaded)).or(b).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn reading(scheduler: Option<&str>, takes_all: bool) -> Option<SchedExt> {
        Some(SchedExt { scheduler: scheduler.map(Into::into), takes_all })
    }

    #[test]
    fn a_scheduler_that_was_loaded_at_one_of_two_readings_counts() {
        let (none, simple, other) =
            (reading(None, false), reading(Some("simple"), true), reading(Some("b"), true));
        for (a, b, expected) in [
            (&none, &simple, &simple),
            (&simple, &none, &simple),
            (&simple, &other, &other),
            (&none, &none, &none),
            (&simple, &None, &simple),
            (&none, &None, &None),
            (&None, &None, &None),
        ] {
            assert_eq!(SchedExt::between(a.as_ref(), b.as_ref()), *expected);
        }
    }

    #[test]
    fn quotas_apply_beside_a_scheduler_of_some_tasks() {
        let of = |sched_ext| {
            let interval = crate::Interval { sched_ext, ..crate::Interval::default() };
            interval.scheduler_instead_of_quotas().map(ToString::to_string)
        };
        assert_eq!(of(reading(Some("simple"), true)).as_deref(), Some("simple"));
        assert_eq!(of(reading(Some("simple"), false)), None);
        assert_eq!((of(reading(None, true)), of(None)), (None, None));
    }
}
