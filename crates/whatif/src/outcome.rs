//! The figures of a replay, as bounds over loops and phases, and how they fit what was recorded.

use crate::{Loop, Setting};

/// Buckets per power of two: a length is known to about 1 %.
const PARTS: u64 = 64;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// The lengths of all stalls: times in which one CPU of a cgroup was throttled. A histogram with buckets of about 1 % width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stalls {
    buckets: Vec<u32>,
    pub count: u64,
    pub total_ns: f64,
    pub longest_ns: u64,
}

/// The bucket of a length: lengths below [`PARTS`] have their own, others one of [`PARTS`] per power of two.
fn bucket(length_ns: u64) -> usize {
    let shift = (u64::BITS - length_ns.leading_zeros()).saturating_sub(PART_BITS + 1);
    (u64::from(shift) * PARTS + (length_ns >> shift)) as usize
}

fn middle_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    let first_ns = (bucket - shift * PARTS) << shift;
    first_ns + ((1 << shift) - 1) / 2
}

impl Stalls {
    pub(crate) fn add(&mut self, length_ns: f64) {
        self.total_ns += length_ns;
        let length_ns = length_ns as u64;
        let bucket = bucket(length_ns);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
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
}

/// The lowest and the highest value of a figure.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bounds<T> {
    pub low: T,
    pub high: T,
}

impl<T: Copy + PartialOrd> Bounds<T> {
    /// The bounds of some values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = T>) -> Option<Self> {
        let values = values.into_iter().map(|value| Self { low: value, high: value });
        values.reduce(|all, one| Self {
            low: if one.low < all.low { one.low } else { all.low },
            high: if one.high > all.high { one.high } else { all.high },
        })
    }
}

/// Usual number of phases.
pub const PHASES: u32 = 8;
/// See [`Setting::longest`].
const LONGEST: u32 = 8;

/// The settings for a cgroup whose limit has this period, ns. The grids of other cgroups are at another distance in each phase.
///
/// Equal parts of a period would all meet a load on a clock alike: with one every 130 ms, phases of a period of 100 ms that are 25 ms
/// apart differ by 5 ms at most. Multiples of the golden ratio are spread over each part of a period, too.
pub fn settings(loops: &[Loop], phases: u32, node: usize, period_ns: u64) -> Vec<Setting> {
    let setting = |replay: Loop, phase: u32| {
        let own_ns = part_of(period_ns, HALF.wrapping_add(GOLDEN.wrapping_mul(phase)));
        let spread_ns = part_of(period_ns, ROOT.wrapping_mul(phase));
        let setting = Setting { spread_ns, longest: LONGEST, ..Setting::new(replay, own_ns) };
        // `phase_ns` is that of the first cgroup.
        let phase_ns = (2 * own_ns + period_ns - setting.phase_of(node, period_ns)) % period_ns;
        Setting { phase_ns, ..setting }
    };
    loops.iter().flat_map(|replay| (0..phases).map(|phase| setting(*replay, phase))).collect()
}

/// Parts of a period, in 2^32ths: no refill falls together with the start, and the two steps (the golden ratio, and the square root of 2,
/// less 1) do not repeat each other.
const HALF: u32 = 1 << 31;
const GOLDEN: u32 = 2_654_435_769;
const ROOT: u32 = 1_779_033_704;

fn part_of(length_ns: u64, part: u32) -> u64 {
    ((u128::from(length_ns) * u128::from(part)) >> 32) as u64
}

/// The figures of one cgroup under a limit, as bounds over all cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Throttled periods as a share of all periods, 0 to 1.
    pub throttled_share: Bounds<f64>,
    /// Throttled time per second, ns, summed over CPUs.
    pub throttled_ns_per_s: Bounds<f64>,
    /// Wall time per second in which at least one CPU was throttled, ns.
    pub limited_ns_per_s: Bounds<f64>,
    /// The length that half of the stalls do not exceed, ns; 0 without stalls.
    pub stall_p50_ns: Bounds<u64>,
    /// The length that 99 % of the stalls do not exceed, ns; 0 without stalls.
    pub stall_p99_ns: Bounds<u64>,
    /// Time at which all recorded work was done, ns; `None` if work was left in some cell.
    pub done_ns: Option<Bounds<u64>>,
    /// The unused part of what the quota would have allowed, 0 to 1; `None` without a limit.
    pub unused_share: Option<Bounds<f64>>,
}

impl Figures {
    /// The bounds of these outcomes; `None` without any.
    pub fn of(outcomes: &[Outcome]) -> Option<Self> {
        let quantile =
            |share| Bounds::of(outcomes.iter().map(move |one| one.stalls.quantile_ns(share).unwrap_or(0)));
        let done_ns: Option<Vec<u64>> = outcomes.iter().map(|one| one.done_ns).collect();
        let unused: Option<Vec<f64>> = outcomes.iter().map(Outcome::unused_share).collect();
        Some(Self {
            throttled_share: Bounds::of(outcomes.iter().map(Outcome::throttled_share))?,
            throttled_ns_per_s: Bounds::of(outcomes.iter().map(Outcome::throttled_ns_per_s))?,
            limited_ns_per_s: Bounds::of(outcomes.iter().map(Outcome::limited_ns_per_s))?,
            stall_p50_ns: quantile(0.5)?,
            stall_p99_ns: quantile(0.99)?,
            done_ns: done_ns.and_then(Bounds::of),
            unused_share: unused.and_then(Bounds::of),
        })
    }
}

/// How a replay of the limit in force compares with what the kernel counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    pub figures: Figures,
    /// Throttled periods that were recorded, as a share of all periods, 0 to 1.
    pub recorded_share: f64,
    /// Throttled time that was recorded, per second of the profile, ns.
    pub recorded_ns_per_s: f64,
}

/// Tolerance of a check, as a share of the bounds.
const TOLERANCE: f64 = 0.1;
/// Tolerance of a check, as a share of periods or of the time of one CPU.
const POINTS: f64 = 0.02;

/// True if a value is within bounds, or off by no more than the tolerance. `scale`: what [`POINTS`] refers to.
fn is_near(bounds: Bounds<f64>, value: f64, scale: f64) -> bool {
    let below = (bounds.low * TOLERANCE).max(POINTS * scale);
    let above = (bounds.high * TOLERANCE).max(POINTS * scale);
    value >= bounds.low - below && value <= bounds.high + above
}

impl Check {
    /// True if the throttled periods and the throttled time are within 10 % of the bounds, or off by at most 2 points or 2 % of one CPU's time.
    pub fn agrees(&self) -> bool {
        is_near(self.figures.throttled_share, self.recorded_share, 1.0)
            && is_near(self.figures.throttled_ns_per_s, self.recorded_ns_per_s, 1e9)
    }

    /// The figures of another limit with wider bounds: by as much as what was recorded is outside of those of the limit in force.
    #[must_use]
    pub fn widened(&self, figures: Figures) -> Figures {
        let own = &self.figures;
        let share = widened(figures.throttled_share, own.throttled_share, self.recorded_share);
        let per_s = widened(figures.throttled_ns_per_s, own.throttled_ns_per_s, self.recorded_ns_per_s);
        let throttled_share = Bounds { high: share.high.min(1.0), ..share };
        Figures { throttled_share, throttled_ns_per_s: per_s, ..figures }
    }
}

/// Widens bounds by the factor by which a value is outside of others, at most by [`TOLERANCE`]: of small values, [`POINTS`] may be many
/// times as much.
fn widened(bounds: Bounds<f64>, others: Bounds<f64>, value: f64) -> Bounds<f64> {
    let below = if value < others.low { (value / others.low).max(1.0 - TOLERANCE) } else { 1.0 };
    let is_above = value > others.high && others.high > 0.0;
    let above = if is_above { (value / others.high).min(1.0 + TOLERANCE) } else { 1.0 };
    Bounds { low: bounds.low * below, high: bounds.high * above }
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
        assert_eq!((stalls.count, stalls.longest_ns), (1_000, 1_000_000_000));
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
