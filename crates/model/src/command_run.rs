//! The measurements of a command, from its start to its end.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use crate::{
    Blame, BlockedTime, Interval, class::Classified, findings::Host, path::is_at_or_below,
    quota_use::QuotaUse, sum,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(u8),
    Killed {
        signal: i32,
        /// True if a core was dumped.
        dumped: bool,
    },
}

impl Ending {
    /// Returns the exit code that a shell reports.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed { signal, .. } => u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX),
        }
    }
}

/// Resource usage of a process, and of its children whose exit was waited for, as the kernel reports it (`getrusage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
    /// Largest resident memory of a single process, bytes.
    pub max_rss_bytes: u64,
    /// Page faults without device I/O.
    pub minor_faults: u64,
    /// Page faults that read from a device.
    pub major_faults: u64,
    pub voluntary: u64,
    pub involuntary: u64,
    /// Blocks of 512 bytes read from devices.
    pub blocks_in: u64,
    /// Blocks of 512 bytes to be written to devices.
    pub blocks_out: u64,
}

/// CPU time of all processes that a command started, waited for or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    pub usage_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
}

/// A process that was running at the time of the reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedProcess {
    pub pid: u32,
    pub comm: String,
}

/// Use of a quota that applied to the command, while the command ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldBy {
    pub quota: QuotaUse,
    /// Processes in the quota's cgroup or its descendants, not of the command, when the command ended. Includes cgscope itself.
    pub others: Vec<NamedProcess>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CommandRun {
    pub command: Vec<String>,
    pub ending: Ending,
    /// Time from the start of the command itself to its end, ns.
    pub wall_ns: u64,
    pub usage: Usage,
    /// CPU time from the command's own cgroup; `None`: the command had no cgroup of its own.
    pub cpu: Option<CpuUse>,
    /// Path of the command's own cgroup, relative to the v2 mount.
    pub own_cgroup: Option<String>,
    /// True if waits are attributed by this cgroup. Then the cause "own cgroup" means only the command's own threads.
    pub own_is_distinct: bool,
    /// Quotas that applied to the command, sorted by throttled time, the longest first.
    pub quotas: Vec<HeldBy>,
    pub peak_threads: u64,
    pub peak_processes: u64,
    /// Time between two counts of threads and processes, ns.
    pub every_ns: u64,
    pub outlived: Vec<NamedProcess>,
    /// All threads of the command, from start to end.
    pub interval: Interval,
    pub blocked_on: Option<BlockedTime>,
    pub class: Option<Classified>,
    pub host: Host,
    /// Remarks on what limited the measurement; sentences without a full stop.
    pub remarks: Vec<String>,
}

impl CommandRun {
    /// Returns the CPU time in user space and in the kernel, ns. The time covers all processes of the command if it had its own
    /// cgroup, else only the processes whose exit was waited for.
    pub fn cpu_use(&self) -> CpuUse {
        let Usage { user_ns, system_ns, .. } = self.usage;
        self.cpu.unwrap_or(CpuUse { usage_ns: user_ns.saturating_add(system_ns), user_ns, system_ns })
    }

    /// Returns the CPU time of all tasks under a quota, ns, from the files of its cgroup. If unknown: the command's CPU time.
    pub fn ran_under(&self, quota: &QuotaUse) -> u64 {
        quota.delta.usage_ns.unwrap_or_else(|| self.cpu_use().usage_ns)
    }

    /// Returns the time that the quota of this cgroup throttled the command's threads, ns, summed over threads.
    pub fn held_ns(&self, cgroup: u64) -> u64 {
        let pairs = self.interval.pairs.iter();
        let held = pairs.filter(|pair| pair.blame == Blame::Limited && pair.culprit == cgroup);
        sum::total(held.map(|pair| pair.ns))
    }
}

/// Returns the cgroups of the tasks of an interval, as paths relative to the mount.
pub fn places(interval: &Interval) -> BTreeSet<Arc<str>> {
    let tasks = interval.readings().map(|task| task.cgroup_id);
    let exited = interval.exited.iter().map(|exited| exited.cgroup_id);
    tasks.chain(exited).filter_map(|id| interval.cgroup_path(id)).cloned().collect()
}

/// Returns the quotas that applied to one of these cgroups, the longest throttled time first; if equal, the tightest quota first.
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
    fn the_exit_code_is_that_of_a_shell() {
        assert_eq!(Ending::Exited(3).code(), 3);
        assert_eq!(Ending::Killed { signal: 15, dumped: false }.code(), 143);
        assert_eq!(Ending::Killed { signal: 6, dumped: true }.code(), 134);
        assert_eq!(Ending::Killed { signal: 300, dumped: false }.code(), 255);
    }

    #[test]
    fn the_quotas_of_a_command_are_those_of_its_cgroups_and_their_ancestors() {
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
