//! The cgroups: their paths, the names from container runtimes, and their CPU limits with the effects of these limits.

use std::{collections::BTreeMap, sync::Arc};

use crate::table::{Table, later, merge};
use crate::{ContainerReading, Interval, Sample, sum};

table! {
    /// The table of paths: one row per cgroup, by id.
    Cgroups: (u64, Arc<str>), by u64: |row| row.0, "its cgroups are not in the order of their ids";
    cgroups = |a, b| later(&a.cgroups, &b.cgroups, Self::key), by Self::key, |old, new| *old = new;
}

table! {
    /// The table of container names: one row per container and per pod. Intervals hold them as [`Names`](crate::Names).
    Containers: ContainerReading, by u64: |row| row.cgroup_id, "its containers are not in the order of their cgroups";

    fn between(a: &Sample, b: &Sample, into: &mut Interval) {
        into.set_names(&a.containers, &b.containers);
    }

    fn append(into: &mut Interval, next: &mut Interval) {
        if *into.names != *next.names {
            Arc::make_mut(&mut into.names).append(&next.names);
        }
    }
}

table! {
    /// The table of limits: one row per cgroup that the Sample names, and per ancestor.
    Limits: CgroupReading, by u64: |row| row.id, "its limits are not in the order of their cgroups";
    limits = |a, b| between(&a.limits, &b.limits, a.mono_ns), by Self::key, CgroupReading::append;
}

/// The CPU limits of one cgroup and their effects, from its files, at one moment. Times are cumulative. `None`: could not be
/// read; never 0 instead. Each version is the first kernel with the file or the line. v2 reports times in microseconds, so
/// nanoseconds from v2 are multiples of 1000.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupReading {
    /// Inode number of the cgroup's directory, as in [`Sample::cgroups`](crate::Sample).
    pub id: u64,
    /// The cgroup was created at this time or later, ns of CLOCK_MONOTONIC, with counters at 0; `None`: unknown.
    pub made_after_ns: Option<u64>,
    /// CPU time allowed per period, µs: v2 `cpu.max` (4.15), v1 `cpu.cfs_quota_us` (3.2). `None`: the cgroup has no limit of its
    /// own, or the file could not be read. Without a limit, `period_us` is set, and an ancestor may still have a limit.
    pub quota_us: Option<u64>,
    /// Length of a period, µs, set even without a quota: v2 `cpu.max`, v1 `cpu.cfs_period_us`.
    pub period_us: Option<u64>,
    /// Maximum unused CPU time to save and use above the quota, µs: v2 `cpu.max.burst`, v1 `cpu.cfs_burst_us` (5.14).
    pub burst_us: Option<u64>,
    /// Weight among siblings, 1 to 10000, default 100: v2 `cpu.weight` (4.15). Before 6.12, a cgroup with `cpu.idle` has 0.
    /// [`weight_of_shares`] converts v1 `cpu.shares` to this scale.
    pub weight: Option<u64>,
    /// 1: its tasks only get the CPU time that its siblings leave, and the kernel refuses a weight: `cpu.idle` (5.15).
    pub idle: Option<u64>,
    /// Real-time run time allowed per real-time period, µs: v1 `cpu.rt_runtime_us` (2.6.25, CONFIG_RT_GROUP_SCHED). With 0, as in
    /// each new cgroup, the kernel refuses real-time policies to the cgroup's tasks.
    pub rt_runtime_us: Option<u64>,
    /// Number of CPUs that the cgroup's tasks may use. v2 `cpuset.cpus.effective` (5.0) of the cgroup or of the nearest ancestor
    /// with this file. v1 `cpuset.effective_cpus` (3.17), else `cpuset.cpus`, of the same path in the cpuset hierarchy. `None`
    /// also for an empty set: no task can run there.
    pub cpus: Option<u32>,
    /// The same CPUs as a list like `0-3,8`.
    pub cpuset: Option<Arc<str>>,
    /// Memory charged to the cgroup and its descendants, by node: `(node, bytes)`, ascending by node. Empty: not read, as on
    /// hosts with one node. v2 `memory.numa_stat` (5.10): `anon`, `file`, `kernel_stack`, `pagetables` and both `slab_...`, which
    /// do not overlap. v1 `hierarchical_total` (3.17) of the same path in the memory hierarchy, else `total`: memory on the
    /// reclaim lists, without kernel memory.
    pub memory_by_node: Vec<(u32, u64)>,
    /// CPU time used by the cgroup and its descendants, ns: v2 `cpu.stat` (4.15), v1 `cpuacct.usage`.
    pub usage_ns: Option<u64>,
    /// Part of the usage in user mode, ns: v2 `cpu.stat`, v1 `cpuacct.usage_user` (4.7). In v1, `user_ns` and `system_ns` need
    /// not sum to `usage_ns`.
    pub user_ns: Option<u64>,
    /// Part of the usage in the kernel, ns: v2 `cpu.stat`, v1 `cpuacct.usage_sys` (4.7).
    pub system_ns: Option<u64>,
    /// Periods in which the cgroup had something to run: `cpu.stat`.
    pub nr_periods: Option<u64>,
    /// Periods in which the quota ran out: `cpu.stat`.
    pub nr_throttled: Option<u64>,
    /// Time that the cgroup's own quota kept it from running, ns: `cpu.stat`. Summed over CPUs, so it may exceed elapsed time.
    pub throttled_ns: Option<u64>,
    /// Periods in which the cgroup used more than its quota: `cpu.stat` (5.16).
    pub nr_bursts: Option<u64>,
    /// CPU time used above the quota, ns, summed over CPUs: `cpu.stat` (5.16).
    pub burst_ns: Option<u64>,
    /// Throttled time of tasks directly in the cgroup, by any quota above them, ns, summed over CPUs: `cpu.stat.local` (6.6).
    pub local_throttled_ns: Option<u64>,
    /// Time in which some task of the cgroup or its descendants waited for a CPU, ns: v2 `cpu.pressure` (4.20).
    pub pressure_some_ns: Option<u64>,
    /// Time in which tasks waited and none ran, ns: v2 `cpu.pressure` (5.13).
    pub pressure_full_ns: Option<u64>,
    /// Time in which some followed task of the cgroup or its descendants waited for a CPU, ns, excluding time at a limit; `None`:
    /// coarse mode. Like `pressure_some_ns`, a mean over CPUs, weighted by the time in which tasks ran or waited on each.
    pub contention_ns: Option<u64>,
    /// Time in which tasks were at a limit (quota or real-time runtime) and none waited for a CPU, ns. The sum with
    /// `contention_ns` is the kernel's `some`.
    pub throttled_pressure_ns: Option<u64>,
    /// Maximum error of `contention_ns` and `throttled_pressure_ns`, ns: the order of some overlapping waits was unknown.
    pub pressure_uncertain_ns: Option<u64>,
}

impl CgroupReading {
    /// Returns the cgroup's own quota in CPUs; `None`: no quota.
    pub fn quota_cores(&self) -> Option<f64> {
        Some(self.quota_us? as f64 / self.period_us.filter(|period| *period > 0)? as f64)
    }
}

macro_rules! counters {
    ($($name:ident)*) => {
        impl CgroupReading {
            /// Returns the increase since `before`: the current limits, with the counters as differences. A counter is `None` if
            /// either reading is missing or the counter decreased.
            pub fn since(&self, before: Option<&Self>) -> Self {
                let since = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
                Self { $($name: since(self.$name, before.and_then(|before| before.$name)),)* ..self.clone() }
            }

            /// Appends a later interval: takes its limits and adds its counters. A counter known in only one interval keeps its
            /// value.
            pub fn append(&mut self, later: Self) {
                *self = Self { $($name: sum::known(self.$name, later.$name),)* ..later };
            }
        }
    };
}

counters! {
    usage_ns user_ns system_ns nr_periods nr_throttled throttled_ns nr_bursts burst_ns local_throttled_ns
    pressure_some_ns pressure_full_ns contention_ns throttled_pressure_ns pressure_uncertain_ns
}

impl Interval {
    /// Returns the limits of a cgroup by its path, with its counters over this interval. If the cgroup was removed and created
    /// again, returns the later cgroup's limits.
    pub fn limits_at(&self, path: &str) -> Option<&CgroupReading> {
        self.limits.iter().rev().find(|limits| self.cgroup_path(limits.id).is_some_and(|at| &**at == path))
    }
}

/// Returns the increase since the reading at `since_ns`, ascending by id. A cgroup created after `since_ns` counts from 0.
fn between(a: &[CgroupReading], b: &[CgroupReading], since_ns: u64) -> Vec<CgroupReading> {
    let mut earlier = sum::earlier(a, |limits| limits.id);
    let since = |now: &CgroupReading| match earlier(now.id) {
        None if now.made_after_ns.is_some_and(|made_ns| made_ns >= since_ns) => now.clone(),
        before => now.since(before),
    };
    b.iter().map(since).collect()
}

/// Converts v1 `cpu.shares` to the scale of v2 `cpu.weight`. This is the kernel's conversion (`sched_weight_to_cgroup` in
/// `kernel/sched/sched.h`, 6.12): `shares * 100 / 1024`, rounded to the nearest integer, at least 1 and at most 10000.
pub fn weight_of_shares(shares: u64) -> u64 {
    (shares.saturating_mul(100).saturating_add(512) / 1024).clamp(1, 10_000)
}

/// The time constants of the averages, s.
pub const AVERAGED_S: [u64; 3] = [10, 60, 300];
/// An average below this share counts as 0.
const LEAST: f64 = 1e-4;

/// The averages of a cgroup over each of [`AVERAGED_S`], as shares of the time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Averages {
    /// See [`CgroupReading::contention_ns`](crate::CgroupReading::contention_ns).
    pub contention: [f64; 3],
    /// See [`CgroupReading::throttled_pressure_ns`](crate::CgroupReading::throttled_pressure_ns).
    pub limit: [f64; 3],
}

/// The averages of all cgroups. Older intervals count exponentially less, as in the kernel (`calc_avgs` in `kernel/sched/psi.c`).
/// The kernel's averages start at 0. These averages start with the first interval, so they are correct from the beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PressureAverages {
    /// The known part of each average, 0 to 1.
    known: [f64; 3],
    sums: BTreeMap<Arc<str>, Averages>,
}

impl PressureAverages {
    pub fn push(&mut self, interval: &Interval) {
        let length_ns = interval.duration_ns as f64;
        if length_ns == 0.0 {
            return;
        }
        let decay = AVERAGED_S.map(|seconds| (-length_ns / (seconds as f64 * 1e9)).exp());
        let add = |sums: &mut [f64; 3], share: f64| {
            sums.iter_mut().zip(decay).for_each(|(sum, decay)| *sum = *sum * decay + share * (1.0 - decay));
        };
        add(&mut self.known, 1.0);
        let before = std::mem::take(&mut self.sums);
        for limits in &interval.limits {
            let pressure = limits.contention_ns.zip(limits.throttled_pressure_ns);
            let (Some((contention, limit)), Some(path)) = (pressure, interval.cgroup_path(limits.id)) else {
                continue;
            };
            let mut sums = before.get(path).copied().unwrap_or_default();
            add(&mut sums.contention, contention as f64 / length_ns);
            add(&mut sums.limit, limit as f64 / length_ns);
            if sums.contention.iter().chain(&sums.limit).any(|sum| *sum >= LEAST) {
                self.sums.insert(path.clone(), sums);
            }
        }
    }

    /// Returns the averages of a cgroup; all 0 without pressure.
    pub fn of(&self, path: &str) -> Averages {
        let mut averages = self.sums.get(path).copied().unwrap_or_default();
        for shares in [&mut averages.contention, &mut averages.limit] {
            for (share, known) in shares.iter_mut().zip(self.known) {
                *share = if known > 0.0 { *share / known } else { 0.0 };
            }
        }
        averages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_in_cpus_needs_quota_and_period() {
        let with = |quota_us, period_us| CgroupReading { quota_us, period_us, ..Default::default() };
        assert_eq!(with(Some(250_000), Some(100_000)).quota_cores(), Some(2.5));
        assert_eq!(with(Some(250_000), None).quota_cores(), None);
        assert_eq!(with(None, Some(100_000)).quota_cores(), None);
        assert_eq!(with(Some(250_000), Some(0)).quota_cores(), None);
    }

    #[test]
    fn the_counters_of_a_new_cgroup_count_from_0() {
        let made =
            |made_after_ns| CgroupReading { id: 7, made_after_ns, nr_periods: Some(5), ..Default::default() };
        let periods = |a: &[CgroupReading], b: CgroupReading| between(a, &[b], 100)[0].nr_periods;
        assert_eq!(periods(&[], made(Some(100))), Some(5));
        assert_eq!(periods(&[], made(Some(99))), None, "the cgroup may be older");
        assert_eq!(periods(&[], made(None)), None);
        assert_eq!(periods(&[made(None)], made(Some(100))), Some(0));
    }

    #[test]
    fn shares_become_weights_as_in_the_kernel() {
        let weights = [0, 2, 3, 15, 16, 1024, 2048, 10_240, 262_144, u64::MAX].map(weight_of_shares);
        assert_eq!(weights, [1, 1, 1, 1, 2, 100, 200, 1000, 10_000, 10_000]);
    }
}

#[cfg(test)]
mod averages_tests {
    use super::*;
    use crate::{CgroupReading, Sample};

    const SECOND: u64 = 1_000_000_000;

    fn second(contention_ns: u64) -> Interval {
        let at = |mono_ns: u64, ns: u64| Sample {
            mono_ns,
            limits: vec![CgroupReading {
                id: 7,
                contention_ns: Some(ns),
                throttled_pressure_ns: Some(ns / 4),
                ..CgroupReading::default()
            }],
            cgroups: vec![(7, "/a".into())],
            ..Sample::default()
        };
        Interval::between(&at(SECOND, 0), &at(2 * SECOND, contention_ns))
    }

    #[test]
    fn averages_are_right_from_the_start_and_follow_as_in_the_kernel() {
        let mut averages = PressureAverages::default();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        for _ in 0..5 {
            averages.push(&second(SECOND / 2));
            let Averages { contention, limit } = averages.of("/a");
            assert!(contention.iter().all(|share| near(*share, 0.5)), "{contention:?}");
            assert!(limit.iter().all(|share| near(*share, 0.125)), "{limit:?}");
        }
        for _ in 0..10 {
            averages.push(&second(0));
        }
        // After these 10 s, the weight of the first 5 s has dropped to 1/e. Only 15 s of the average are known.
        let known = 1.0 - (-1.5f64).exp();
        let expected = 0.5 * (1.0 - (-0.5f64).exp()) * (-1.0f64).exp() / known;
        let [ten, minute, _] = averages.of("/a").contention;
        assert!(near(ten, expected), "{ten} {expected}");
        assert!(minute > ten);
        assert_eq!(averages.of("/b"), Averages::default());
    }

    #[test]
    fn a_cgroup_without_pressure_is_dropped_in_the_end() {
        let mut averages = PressureAverages::default();
        averages.push(&second(SECOND));
        (0..3_600).for_each(|_| averages.push(&second(0)));
        assert!(averages.sums.is_empty());
    }
}
