//! The figures of a replay.

use crate::Limit;

/// Buckets per power of two: a length is known to about 1 %.
const PARTS: u64 = 64;
/// Bits of [`PARTS`].
const PART_BITS: u32 = PARTS.trailing_zeros();

/// The lengths of all stalls: times in which one CPU of a cgroup was throttled. A histogram with buckets of about 1 % width.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Stalls in each bucket.
    buckets: Vec<u32>,
    /// Number of stalls.
    pub count: u64,
    /// Sum of all lengths, ns.
    pub total_ns: u64,
    /// The longest one, ns.
    pub longest_ns: u64,
}

/// The bucket of a length: lengths below [`PARTS`] have their own, others one of [`PARTS`] per power of two.
fn bucket(length_ns: u64) -> usize {
    let shift = (u64::BITS - length_ns.leading_zeros()).saturating_sub(PART_BITS + 1);
    (u64::from(shift) * PARTS + (length_ns >> shift)) as usize
}

/// The middle of a bucket, ns.
fn middle_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    let first_ns = (bucket - shift * PARTS) << shift;
    first_ns + ((1 << shift) - 1) / 2
}

impl Stalls {
    /// Adds a stall.
    pub(crate) fn add(&mut self, length_ns: f64) {
        let length_ns = length_ns as u64;
        let bucket = bucket(length_ns);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.total_ns += length_ns;
        self.longest_ns = self.longest_ns.max(length_ns);
    }

    /// The length that this share (0 to 1) of the stalls does not exceed, ns, to about 1 %; `None` without stalls.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        })?;
        Some(middle_ns(bucket).min(self.longest_ns))
    }
}

/// What a limit did to a cgroup. Counters include all cgroups below it, as those of `cpu.stat` do; the throttled ones only count its
/// own limit, and are 0 without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Length of the replay, ns. Open loop: of the profile. Closed loop: until the profile is used up.
    pub duration_ns: u64,
    /// Periods in which the timer ran: `nr_periods`.
    pub periods: u64,
    /// Periods at whose end a CPU was throttled: `nr_throttled`.
    pub throttled_periods: u64,
    /// Throttled time, ns, summed over CPUs: `throttled_usec`. A stall at the end of the replay counts up to there.
    pub throttled_ns: u64,
    /// Wall time in which at least one CPU was throttled, ns.
    pub limited_ns: u64,
    /// Wall time in which tasks wanted to run and none ran, ns, for whatever limit of this cgroup or one above.
    pub stalled_ns: u64,
    /// CPU time used, ns, with that of busy loops.
    pub ran_ns: u64,
    /// CPU time that the quota would have allowed over the whole duration and nobody used, ns; `None` without a limit.
    pub unused_quota_ns: Option<u64>,
    /// Time from the start at which all recorded work was done, ns; `None` if the replay ended before.
    pub done_ns: Option<u64>,
    /// Work that had arrived but was not done at the end of the duration, ns of CPU time.
    pub backlog_ns: u64,
    /// Lengths of the stalls of single CPUs; their sum is `throttled_ns`.
    pub stalls: Stalls,
    /// Its own limit throttled no CPU until all work was done.
    pub is_free: bool,
}

impl Outcome {
    /// Throttled periods as a share of all periods, 0 to 1; 0 without periods.
    pub fn throttled_share(&self) -> f64 {
        if self.periods == 0 { 0.0 } else { self.throttled_periods as f64 / self.periods as f64 }
    }

    /// Throttled time per second, ns, summed over CPUs.
    pub fn throttled_ns_per_s(&self) -> f64 {
        self.per_s(self.throttled_ns)
    }

    /// [`Self::limited_ns`] per second, ns.
    pub fn limited_ns_per_s(&self) -> f64 {
        self.per_s(self.limited_ns)
    }

    fn per_s(&self, ns: u64) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { ns as f64 / self.duration_ns as f64 * 1e9 }
    }

    /// The unused part of what the quota would have allowed, 0 to 1.
    pub fn unused_share(&self) -> Option<f64> {
        let unused_ns = self.unused_quota_ns? as f64;
        let allowed_ns = unused_ns + self.ran_ns as f64;
        Some(if allowed_ns == 0.0 { 0.0 } else { unused_ns / allowed_ns })
    }

    /// The part of a quota that nobody used, ns.
    pub(crate) fn unused_of(&self, limit: &Limit) -> u64 {
        (limit.cpus() * self.duration_ns as f64 - self.ran_ns as f64).max(0.0) as u64
    }

    /// The outcome under a limit with a higher quota, if [`Self::is_free`]: only more is unused.
    #[must_use]
    pub fn under_higher(&self, limit: &Limit) -> Self {
        Self { unused_quota_ns: Some(self.unused_of(limit)), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_one_percent() {
        let mut stalls = Stalls::default();
        assert_eq!(stalls.quantile_ns(0.5), None);
        (1..=1_000).for_each(|ms| stalls.add(f64::from(ms) * 1e6));
        for (share, ms) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found_ms = stalls.quantile_ns(share).unwrap() as f64 / 1e6;
            assert!((found_ms / ms - 1.0).abs() < 0.01, "{share}: {found_ms} ms");
        }
        assert_eq!(
            (stalls.count, stalls.total_ns, stalls.longest_ns),
            (1_000, 500_500_000_000, 1_000_000_000)
        );
    }

    #[test]
    fn buckets_follow_one_another_without_gaps() {
        let mut last = 0;
        for length_ns in 0..1u64 << 16 {
            let bucket = bucket(length_ns);
            assert!(bucket == last || bucket == last + 1, "{length_ns}");
            assert!(
                middle_ns(bucket).abs_diff(length_ns) * 64 <= length_ns.max(63),
                "{length_ns} {}",
                middle_ns(bucket)
            );
            last = bucket;
        }
        assert!(bucket(u64::MAX) < 64 * 64);
    }
}
