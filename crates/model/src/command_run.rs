//! A command that was run from its beginning to its end, and all that is known of it then.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use crate::{
    Blame, BlockedTime, Interval, class::Classified, findings::Host, quota_use::QuotaUse,
    selection::is_at_or_below, sum,
};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(u8),
    /// By a signal of this number; with `dumped` a core was written.
    Killed {
        /// The signal.
        signal: i32,
        /// A core was written.
        dumped: bool,
    },
}

impl Ending {
    /// What a shell makes of it.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed { signal, .. } => {
                u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
            }
        }
    }
}

/// What the kernel tells whoever waits for a process: of it, and of those of its children that were waited for in turn
/// (`getrusage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// CPU time in user space, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, ns.
    pub system_ns: u64,
    /// The most memory that one of these processes had resident, bytes.
    pub max_rss_bytes: u64,
    /// Page faults that needed no device.
    pub minor_faults: u64,
    /// Page faults that were read from a device.
    pub major_faults: u64,
    /// Voluntary switches.
    pub voluntary: u64,
    /// Involuntary switches.
    pub involuntary: u64,
    /// Blocks of 512 bytes read from devices.
    pub blocks_in: u64,
    /// Blocks of 512 bytes to be written to devices.
    pub blocks_out: u64,
}

/// CPU time of all that a command started, whoever waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuUse {
    /// In user space and in the kernel, ns.
    pub usage_ns: u64,
    /// In user space, ns.
    pub user_ns: u64,
    /// In the kernel, ns.
    pub system_ns: u64,
}

/// A process that was still there when the command had ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outlived {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// What a quota that held for the command did meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldBy {
    /// The kernel's counters.
    pub quota: QuotaUse,
    /// Processes in that cgroup or below it that are none of the command's, at its end; those of cgscope itself included.
    pub others: Vec<Outlived>,
}

/// A command that was run.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandRun {
    /// As it was typed.
    pub command: Vec<String>,
    /// How it ended.
    pub ending: Ending,
    /// From when it was let go to its end, ns.
    pub wall_ns: u64,
    /// What whoever waits for it is told.
    pub usage: Usage,
    /// By its own cgroup; `None`: it had none.
    pub cpu: Option<CpuUse>,
    /// The path of its own cgroup, as under the mount of v2.
    pub own_cgroup: Option<String>,
    /// That cgroup is also the one that waits are told by: "its own" then are its own threads alone.
    pub own_is_told_apart: bool,
    /// The quotas that held for it, the one that ran out longest first.
    pub quotas: Vec<HeldBy>,
    /// The most threads that were there at one time.
    pub peak_threads: u64,
    /// The most processes that were there at one time.
    pub peak_processes: u64,
    /// So often that was looked at, ns.
    pub every_ns: u64,
    /// Processes that outlived it.
    pub outlived: Vec<Outlived>,
    /// All of its threads from the beginning to its end.
    pub interval: Interval,
    /// What its threads were blocked on; `None`: not known.
    pub blocked_on: Option<BlockedTime>,
    /// What kept it from being faster.
    pub class: Option<Classified>,
    /// What findings are judged by.
    pub host: Host,
    /// What made the figures less than they could be: sentences without a full stop.
    pub remarks: Vec<String>,
}

impl CommandRun {
    /// CPU time in user space and in the kernel, ns: of everything it started where its cgroup tells that, else of what was
    /// waited for.
    pub fn cpu_use(&self) -> CpuUse {
        let Usage { user_ns, system_ns, .. } = self.usage;
        self.cpu.unwrap_or(CpuUse { usage_ns: user_ns.saturating_add(system_ns), user_ns, system_ns })
    }

    /// How long what is under a quota ran, ns: as the files of that cgroup have it, else the command alone.
    pub fn ran_under(&self, quota: &QuotaUse) -> u64 {
        quota.delta.usage_ns.unwrap_or_else(|| self.cpu_use().usage_ns)
    }

    /// How long its threads were throttled because the quota of that cgroup had run out, ns summed over threads.
    pub fn held_ns(&self, cgroup: u64) -> u64 {
        let pairs = self.interval.pairs.iter();
        let held = pairs.filter(|pair| pair.blame == Blame::Limited && pair.culprit == cgroup);
        sum::total(held.map(|pair| pair.ns))
    }
}

/// The cgroups that tasks of an interval were in, as under the mount.
pub fn places(interval: &Interval) -> BTreeSet<Arc<str>> {
    let tasks = interval.tasks.iter().map(|task| task.reading.cgroup_id);
    let exited = interval.exited.iter().map(|exited| exited.cgroup_id);
    tasks.chain(exited).filter_map(|id| interval.cgroup_path(id)).cloned().collect()
}

/// Those quotas that held for one of these cgroups, that which throttled longest first; of the same, the tightest.
pub fn quotas_of(places: &BTreeSet<Arc<str>>, quotas: impl IntoIterator<Item = QuotaUse>) -> Vec<QuotaUse> {
    let mut held: Vec<QuotaUse> = quotas
        .into_iter()
        .filter(|quota| places.iter().any(|place| is_at_or_below(place, &quota.path)))
        .collect();
    let throttled = |quota: &QuotaUse| quota.delta.throttled_ns.unwrap_or(0);
    let cores = |quota: &QuotaUse| quota.delta.quota_cores().unwrap_or(f64::INFINITY);
    held.sort_by(|a, b| {
        throttled(b).cmp(&throttled(a)).then(cores(a).total_cmp(&cores(b))).then(a.path.cmp(&b.path))
    });
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CgroupReading;

    #[test]
    fn an_ending_is_what_a_shell_makes_of_it() {
        assert_eq!(Ending::Exited(3).code(), 3);
        assert_eq!(Ending::Killed { signal: 15, dumped: false }.code(), 143);
        assert_eq!(Ending::Killed { signal: 6, dumped: true }.code(), 134);
        assert_eq!(Ending::Killed { signal: 300, dumped: false }.code(), 255);
    }

    #[test]
    fn quotas_that_hold_are_those_of_its_cgroups_and_of_those_above() {
        let quota = |path: &str, cores: u64, throttled_ns| {
            let after = CgroupReading {
                quota_us: Some(cores * 100_000),
                period_us: Some(100_000),
                nr_periods: Some(1),
                throttled_ns: Some(throttled_ns),
                ..CgroupReading::default()
            };
            QuotaUse::new(path.into(), None, after)
        };
        let places = BTreeSet::from([Arc::from("/a/b/c"), Arc::from("/d")]);
        let all = [
            quota("/a", 4, 0),
            quota("/a/b", 2, 0),
            quota("/a/bb", 1, 9),
            quota("/d", 8, 7),
            quota("/x", 1, 9),
        ];
        let held: Vec<_> = quotas_of(&places, all).into_iter().map(|quota| quota.path.to_string()).collect();
        assert_eq!(held, ["/d", "/a/b", "/a"]);
    }
}
