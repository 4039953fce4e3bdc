//! The use of a quota between two readings, from the kernel's counters, and figures derived from it.

use std::sync::Arc;

use crate::{CgroupReading, units};

/// A program is CPU-bound if its time in user mode is at least this many times its time in the kernel.
pub const CPU_BOUND_TIMES: u64 = 5;

/// Two readings of a cgroup with a quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaUse {
    pub path: Arc<str>,
    /// The earlier reading; all 0 if the cgroup was created later.
    pub before: CgroupReading,
    pub after: CgroupReading,
    /// The increase of the counters, with the limits at the end.
    pub delta: CgroupReading,
}

impl QuotaUse {
    /// Creates the value from two readings of one cgroup. `None`: the cgroup was created between the readings.
    pub fn new(path: Arc<str>, before: Option<&CgroupReading>, after: CgroupReading) -> Self {
        let before = before.cloned().unwrap_or_else(|| after.since(Some(&after)));
        Self { path, delta: after.since(Some(&before)), before, after }
    }

    /// Returns the share of periods in which the quota ran out, percent; `None`: no period passed, or unknown.
    pub fn throttled_percent(&self) -> Option<f64> {
        units::percent(self.delta.nr_throttled?, self.delta.nr_periods?)
    }

    /// Returns the total length of the counted periods, ns: the time in which the cgroup had something to run.
    pub fn periods_ns(&self) -> Option<u64> {
        Some(self.delta.period_us?.saturating_mul(1_000).saturating_mul(self.delta.nr_periods?))
    }

    /// Returns the throttled time, summed over CPUs, as a multiple of the run time `ran_ns`.
    pub fn times_throttled(&self, ran_ns: u64) -> Option<f64> {
        (ran_ns != 0).then_some(self.delta.throttled_ns? as f64 / ran_ns as f64)
    }

    /// True if at least one period of the quota passed.
    pub fn is_used(&self) -> bool {
        self.delta.nr_periods.is_some_and(|periods| periods != 0)
    }
}

/// Where most CPU time was spent: in user mode or in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    CpuBound,
    InKernel,
    Mixed,
}

/// Returns where most CPU time was spent; `None` without CPU time.
pub fn mode(user_ns: u64, system_ns: u64) -> Option<Mode> {
    match (user_ns, system_ns) {
        (0, 0) => None,
        (user, system) if user != 0 && user >= system.saturating_mul(CPU_BOUND_TIMES) => Some(Mode::CpuBound),
        (user, system) if system > user => Some(Mode::InKernel),
        _ => Some(Mode::Mixed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(us: [u64; 3], periods: [u64; 2], throttled_us: u64) -> CgroupReading {
        let [usage, user, system] = us.map(|us| Some(us * 1_000));
        CgroupReading {
            quota_us: Some(100_000),
            period_us: Some(100_000),
            usage_ns: usage,
            user_ns: user,
            system_ns: system,
            nr_periods: Some(periods[0]),
            nr_throttled: Some(periods[1]),
            throttled_ns: Some(throttled_us * 1_000),
            ..CgroupReading::default()
        }
    }

    #[test]
    fn the_published_table_gives_the_published_figures() {
        let before = reading([4_363_848, 2_201_217, 2_162_630], [3_106, 0], 0);
        let after = reading([124_702_078, 117_993_908, 6_708_170], [4_499, 1_194], 263_624_194);
        let quota = QuotaUse::new("/pod".into(), Some(&before), after);
        let delta = &quota.delta;
        assert_eq!(delta.usage_ns, Some(120_338_230_000));
        assert_eq!((delta.user_ns, delta.system_ns), (Some(115_792_691_000), Some(4_545_540_000)));
        assert_eq!(format!("{:.1}", quota.throttled_percent().unwrap()), "85.7");
        assert_eq!(format!("{:.1}", quota.times_throttled(120_338_230_000).unwrap()), "2.2");
        assert_eq!(quota.periods_ns(), Some(139_300_000_000));
        assert_eq!(mode(delta.user_ns.unwrap(), delta.system_ns.unwrap()), Some(Mode::CpuBound));
    }

    #[test]
    fn a_new_cgroup_counts_from_0_and_unknown_counters_stay_unknown() {
        let after = CgroupReading { usage_ns: None, ..reading([0; 3], [4, 1], 50) };
        let quota = QuotaUse::new("/new".into(), None, after);
        assert_eq!((quota.delta.nr_periods, quota.delta.throttled_ns), (Some(4), Some(50_000)));
        assert_eq!((quota.before.usage_ns, quota.delta.usage_ns), (None, None));
        assert!(quota.is_used() && !QuotaUse::default().is_used());
        assert_eq!(QuotaUse::default().times_throttled(1), None);
        assert_eq!(quota.times_throttled(0), None);
    }

    #[test]
    fn the_times_in_user_mode_and_in_the_kernel_decide_the_mode() {
        assert_eq!(mode(0, 0), None);
        assert_eq!(mode(5, 1), Some(Mode::CpuBound));
        assert_eq!(mode(49, 10), Some(Mode::Mixed));
        assert_eq!(mode(1, 2), Some(Mode::InKernel));
        assert_eq!(mode(7, 0), Some(Mode::CpuBound));
    }
}
