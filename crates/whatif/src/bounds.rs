//! Figures as bounds over loops and phases, and how they fit what was recorded.

use crate::{Loop, Outcome, Setting};

/// The lowest and the highest value of a figure.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bounds<T> {
    /// The lowest value.
    pub low: T,
    /// The highest value.
    pub high: T,
}

impl<T: Copy + PartialOrd> Bounds<T> {
    /// The bounds of some values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = T>) -> Option<Self> {
        values.into_iter().fold(None, |bounds: Option<Self>, value| {
            let Self { low, high } = bounds.unwrap_or(Self { low: value, high: value });
            Some(Self {
                low: if value < low { value } else { low },
                high: if value > high { value } else { high },
            })
        })
    }
}

/// Which settings are replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// The loops.
    pub loops: Vec<Loop>,
    /// Number of phases; at least 1.
    pub phases: u32,
    /// See [`Setting::tick_ns`].
    pub tick_ns: u64,
    /// See [`Setting::longest`].
    pub longest: u32,
}

impl Default for Cells {
    /// Both loops, eight phases.
    fn default() -> Self {
        Self { loops: vec![Loop::Open, Loop::Closed], phases: 8, tick_ns: 0, longest: 8 }
    }
}

impl Cells {
    /// The settings for a cgroup whose limit has this period, ns. The grids of other cgroups are at another distance in each phase.
    ///
    /// Equal parts of a period would all meet a load on a clock alike: with one every 130 ms, phases of a period of 100 ms that are 25 ms
    /// apart differ by 5 ms at most. Multiples of the golden ratio are spread over each part of a period, too.
    pub fn settings(&self, node: usize, period_ns: u64) -> impl Iterator<Item = Setting> {
        let phases = self.phases.max(1);
        self.loops.iter().flat_map(move |replay| {
            (0..phases).map(move |phase| {
                let own_ns = part_of(period_ns, HALF.wrapping_add(GOLDEN.wrapping_mul(phase)));
                let spread_ns = part_of(period_ns, ROOT.wrapping_mul(phase));
                let setting = Setting { spread_ns, ..Setting::new(*replay, own_ns) };
                // `phase_ns` is that of the first cgroup.
                let phase_ns = (2 * own_ns + period_ns - setting.phase_of(node, period_ns)) % period_ns;
                Setting { phase_ns, tick_ns: self.tick_ns, longest: self.longest, ..setting }
            })
        })
    }
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
    /// Replayed throttled periods as a share of all periods, 0 to 1.
    pub share: Bounds<f64>,
    /// The share that was recorded.
    pub recorded_share: f64,
    /// Replayed throttled time per second, ns.
    pub throttled_ns_per_s: Bounds<f64>,
    /// The time that was recorded, per second of the profile, ns.
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
    /// True if both the periods and the times agree.
    pub fn agrees(&self) -> bool {
        self.periods_agree() && self.times_agree()
    }

    /// True if the throttled periods are within 10 % of the bounds, or off by at most 2 points.
    pub fn periods_agree(&self) -> bool {
        is_near(self.share, self.recorded_share, 1.0)
    }

    /// True if the throttled time is within 10 % of the bounds, or off by at most 2 % of one CPU's time.
    pub fn times_agree(&self) -> bool {
        is_near(self.throttled_ns_per_s, self.recorded_ns_per_s, 1e9)
    }

    /// The figures of another limit with wider bounds: by as much as what was recorded is outside of those of the limit in force.
    #[must_use]
    pub fn widened(&self, figures: Figures) -> Figures {
        let share = widened(figures.throttled_share, self.share, self.recorded_share);
        Figures {
            throttled_share: Bounds { high: share.high.min(1.0), ..share },
            throttled_ns_per_s: widened(
                figures.throttled_ns_per_s,
                self.throttled_ns_per_s,
                self.recorded_ns_per_s,
            ),
            ..figures
        }
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
