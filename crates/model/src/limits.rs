//! The CPU limits of a cgroup and what they did to it, as its files tell.

use std::sync::Arc;

use crate::{Interval, sum};

/// What the files of one cgroup say about its CPU limits, at one moment. Times are cumulative.
///
/// What could not be read is `None`, never 0. The versions named are the first kernels with the file or the line.
/// v2 tells times in microseconds: there the nanoseconds are multiples of 1000.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupReading {
    /// Inode number of the cgroup's directory, as in [`Sample::cgroups`](crate::Sample).
    pub id: u64,
    /// It was made at this moment or later, ns of CLOCK_MONOTONIC, with counters at 0; `None`: not known.
    pub made_after_ns: Option<u64>,
    /// CPU time it may use in a period, µs: v2 `cpu.max` (4.15), v1 `cpu.cfs_quota_us` (3.2). `None`: it has no
    /// limit of its own (then `period_us` is set, and an ancestor may still have one), or it could not be read.
    pub quota_us: Option<u64>,
    /// Length of a period, µs, also where there is no quota: v2 `cpu.max`, v1 `cpu.cfs_period_us`.
    pub period_us: Option<u64>,
    /// What it may save up and use above the quota, µs: v2 `cpu.max.burst`, v1 `cpu.cfs_burst_us` (5.14).
    pub burst_us: Option<u64>,
    /// Its share among its siblings, 1 to 10000, by default 100: v2 `cpu.weight` (4.15), where 0 is a cgroup with
    /// `cpu.idle` before 6.12. v1 `cpu.shares` is brought to this scale by [`weight_of_shares`].
    pub weight: Option<u64>,
    /// How many CPUs its tasks may run on: v2 `cpuset.cpus.effective` (5.0) of it or of the nearest ancestor that has
    /// the file; v1 `cpuset.effective_cpus` (3.17), else `cpuset.cpus`, of the same path in the hierarchy of cpuset.
    /// `None` also for an empty set: no task can run there.
    pub cpus: Option<u32>,
    /// The same CPUs as a list like `0-3,8`.
    pub cpuset: Option<Arc<str>>,
    /// Memory charged to it and those below it by node, bytes: `(node, bytes)`, ascending by node; empty: not read, as on
    /// hosts with one node. v2 `memory.numa_stat` (5.10): `anon`, `file`, `kernel_stack`, `pagetables` and both
    /// `slab_...`, of which none is part of another. v1 `hierarchical_total` (3.17) of the same path in the hierarchy of
    /// memory, else `total`: what is on the lists for reclaim, without the kernel's own.
    pub memory_by_node: Vec<(u32, u64)>,
    /// CPU time used by it and those below it, ns: v2 `cpu.stat` (4.15), v1 `cpuacct.usage`.
    pub usage_ns: Option<u64>,
    /// Its part in user mode, ns: v2 `cpu.stat`, v1 `cpuacct.usage_user` (4.7). In v1 the kernel does not make the
    /// two parts add up to the usage.
    pub user_ns: Option<u64>,
    /// Its part in the kernel, ns: v2 `cpu.stat`, v1 `cpuacct.usage_sys` (4.7).
    pub system_ns: Option<u64>,
    /// Periods that passed while it had something to run: `cpu.stat`.
    pub nr_periods: Option<u64>,
    /// Those in which its quota ran out: `cpu.stat`.
    pub nr_throttled: Option<u64>,
    /// Time its own quota kept it from running, ns, summed over CPUs, so that it may exceed the time that passed:
    /// `cpu.stat`.
    pub throttled_ns: Option<u64>,
    /// Periods in which it used more than its quota: `cpu.stat` (5.16).
    pub nr_bursts: Option<u64>,
    /// What it used above its quota, ns, summed over CPUs: `cpu.stat` (5.16).
    pub burst_ns: Option<u64>,
    /// Time in which tasks of its own could have run but for a quota, its own or an ancestor's, ns, summed over CPUs:
    /// `cpu.stat.local` (6.6).
    pub local_throttled_ns: Option<u64>,
    /// Time in which some task of it or below it waited for a CPU, ns: v2 `cpu.pressure` (4.20).
    pub pressure_some_ns: Option<u64>,
    /// Time in which tasks waited and none ran, ns: v2 `cpu.pressure` (5.13).
    pub pressure_full_ns: Option<u64>,
}

impl CgroupReading {
    /// The quota in CPUs; `None` without a quota of its own.
    pub fn quota_cores(&self) -> Option<f64> {
        let period = self.period_us.filter(|period| *period > 0)?;
        Some(self.quota_us? as f64 / period as f64)
    }
}

macro_rules! counters {
    ($($name:ident),*) => {
        impl CgroupReading {
            /// What came since `before`: the limits as they are now, the counters as differences. A counter is `None`
            /// where one of both readings is missing or it went backwards.
            pub fn since(&self, before: Option<&Self>) -> Self {
                let since = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
                Self { $($name: since(self.$name, before.and_then(|before| before.$name)),)* ..self.clone() }
            }

            /// Adds what came later: its limits hold now, its counters come on top where both are known.
            pub fn append(&mut self, later: Self) {
                *self = Self { $($name: sum::known(self.$name, later.$name),)* ..later };
            }
        }
    };
}

counters!(
    usage_ns,
    user_ns,
    system_ns,
    nr_periods,
    nr_throttled,
    throttled_ns,
    nr_bursts,
    burst_ns,
    local_throttled_ns,
    pressure_some_ns,
    pressure_full_ns
);

impl Interval {
    /// The limits of a cgroup by its path, its counters over this interval; of one that was removed and made again, those of
    /// the later one.
    pub fn limits_at(&self, path: &str) -> Option<&CgroupReading> {
        self.limits.iter().rev().find(|limits| self.cgroup_path(limits.id).is_some_and(|at| &**at == path))
    }
}

/// What came between two readings, the first at `since_ns`; ascending by id. A cgroup made after that counts from 0.
pub(crate) fn between(a: &[CgroupReading], b: &[CgroupReading], since_ns: u64) -> Vec<CgroupReading> {
    let mut earlier = sum::earlier(a, |limits| limits.id);
    let since = |now: &CgroupReading| match earlier(now.id) {
        None if now.made_after_ns.is_some_and(|made_ns| made_ns >= since_ns) => now.clone(),
        before => now.since(before),
    };
    b.iter().map(since).collect()
}

/// v1 `cpu.shares` on the scale of v2 `cpu.weight`, as the kernel converts (`sched_weight_to_cgroup` in
/// `kernel/sched/sched.h`, 6.12): `shares * 100 / 1024`, to the nearest and no less than 1, no more than 10000.
pub fn weight_of_shares(shares: u64) -> u64 {
    (shares.saturating_mul(100).saturating_add(512) / 1024).clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_quota_in_cpus_need_both_numbers() {
        let with = |quota_us, period_us| CgroupReading { quota_us, period_us, ..Default::default() };
        assert_eq!(with(Some(250_000), Some(100_000)).quota_cores(), Some(2.5));
        assert_eq!(with(Some(250_000), None).quota_cores(), None);
        assert_eq!(with(None, Some(100_000)).quota_cores(), None);
        assert_eq!(with(Some(250_000), Some(0)).quota_cores(), None);
    }

    #[test]
    fn the_counters_of_a_cgroup_made_after_the_first_reading_count_from_its_beginning() {
        let made =
            |made_after_ns| CgroupReading { id: 7, made_after_ns, nr_periods: Some(5), ..Default::default() };
        let periods = |a: &[CgroupReading], b: CgroupReading| between(a, &[b], 100)[0].nr_periods;
        assert_eq!(periods(&[], made(Some(100))), Some(5));
        assert_eq!(periods(&[], made(Some(99))), None, "it may have been there");
        assert_eq!(periods(&[], made(None)), None);
        assert_eq!(periods(&[made(None)], made(Some(100))), Some(0));
    }

    #[test]
    fn shares_become_weights_as_in_the_kernel() {
        let weights = [0, 2, 3, 15, 16, 1024, 2048, 10_240, 262_144, u64::MAX].map(weight_of_shares);
        assert_eq!(weights, [1, 1, 1, 1, 2, 100, 200, 1000, 10_000, 10_000]);
    }
}
