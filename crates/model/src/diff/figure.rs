//! The figures that are compared: what each is made of, its unit and words, and the least change that matters.

use cgscope_layout::Cause;
use serde::{Serialize, Serializer};

use super::blocks::{Measure, of_cause, of_counter};
use crate::{Counter, Mode, causes::shown};

/// What a figure's values are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Share of wall time, summed over tasks or CPUs: 0.5 is half of the time of one task, or half a CPU.
    WallShare,
    /// Times a second.
    PerSecond,
    /// Share of a whole, 0 to 1.
    Share,
    /// Nanoseconds.
    Ns,
}

/// The least change that matters, however sure it is: both must be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Least {
    /// In the unit of the figure.
    pub change: f64,
    /// Share of the larger side.
    pub relative: f64,
}

/// A figure of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// Waited for a CPU.
    Wait,
    /// Waited for this cause.
    Cause(Cause),
    /// Completed waits.
    Waits,
    /// A wait's length on average, where there are no histograms.
    MeanWait,
    /// A quantile of the waits' lengths, in thousandths: one of `QUANTILES`.
    Quantile(u16),
    /// On a CPU.
    OnCpu,
    /// A counter of tasks that the table of counters says to compare.
    Counted(Counter),
    /// Periods in which the quota ran out.
    ThrottledPeriods,
    /// Time that stood throttled, each CPU by itself: the kernel's `throttled_ns`.
    Stood,
    /// Memory on other nodes than its threads ran.
    RemoteShare,
    /// CPUs of the host that ran anything.
    CpuBusy,
    /// Waited behind one culprit.
    Behind,
    /// cgscope's time in the kernel.
    Hook,
    /// cgscope's own CPU time.
    Collector,
}

/// The quantiles that are compared, in thousandths.
pub(super) const QUANTILES: [u16; 3] = [500, 900, 990];
/// A quantile needs so many waits beyond it, on both sides together.
pub(super) const BEYOND: f64 = 10.0;

/// A row of the table of figures.
#[derive(Clone, Copy, Debug)]
pub struct FigureInfo {
    /// The name in JSON.
    pub name: &'static str,
    /// The name in sentences and tables.
    pub words: &'static str,
    /// What its values are in.
    pub unit: Unit,
    /// The sum that it is made of.
    pub(super) sum: usize,
    /// What the sum is divided by; `None`: wall time.
    pub(super) divisor: Option<usize>,
}

impl Figure {
    /// All but the quantiles.
    pub(super) fn counted() -> impl Iterator<Item = Self> {
        let causes = Cause::ALL.into_iter().map(Self::Cause);
        let counters = Counter::compared().map(Self::Counted);
        let first = std::iter::once(Self::Wait).chain(causes);
        first.chain([Self::Waits, Self::MeanWait, Self::OnCpu]).chain(counters).chain([
            Self::ThrottledPeriods,
            Self::Stood,
            Self::RemoteShare,
            Self::CpuBusy,
            Self::Behind,
            Self::Hook,
            Self::Collector,
        ])
    }

    /// Its row of the table.
    pub fn info(self) -> FigureInfo {
        use Unit::{Ns, PerSecond, Share, WallShare};
        let row = |name, words, unit, sum: usize, divisor: Option<Measure>| FigureInfo {
            name,
            words,
            unit,
            sum,
            divisor: divisor.map(|measure| measure as usize),
        };
        let wall = |name, words, sum: Measure| row(name, words, WallShare, sum as usize, None);
        let share = |name, words, sum: Measure, of: Measure| row(name, words, Share, sum as usize, Some(of));
        let wait_ns = |name, words| row(name, words, Ns, Measure::Wait as usize, Some(Measure::Waits));
        match self {
            Self::Wait => wall("wait", "waiting", Measure::Wait),
            Self::Cause(cause) => row(cause.name(), shown(cause).words, WallShare, of_cause(cause), None),
            Self::Waits => row("waits", "waits", PerSecond, Measure::Waits as usize, None),
            Self::MeanWait => wait_ns("mean_wait", "mean wait"),
            // A quantile comes from the histogram instead.
            Self::Quantile(500) => wait_ns("p50", "median wait"),
            Self::Quantile(900) => wait_ns("p90", "p90 of waits"),
            Self::Quantile(_) => wait_ns("p99", "p99 of waits"),
            Self::OnCpu => wall("on_cpu", "on CPU", Measure::OnCpu),
            Self::Counted(counter) => {
                let words = counter.info().diff.map_or(counter.name(), |compared| compared.words);
                row(counter.name(), words, PerSecond, of_counter(counter), None)
            }
            Self::ThrottledPeriods => share(
                "throttled_periods",
                "periods out of quota",
                Measure::ThrottledPeriods,
                Measure::Periods,
            ),
            Self::Stood => wall("stood_throttled", "stood out of quota", Measure::Stood),
            Self::RemoteShare => {
                share("remote_share", "memory on other nodes", Measure::Remote, Measure::RemoteOf)
            }
            Self::CpuBusy => share("cpu_busy", "CPUs busy", Measure::Busy, Measure::Online),
            Self::Behind => wall("behind", "waiting", Measure::Behind),
            Self::Hook => wall("hook", "time in the hook", Measure::Hook),
            Self::Collector => wall("collector", "CPU time of the collector", Measure::Collector),
        }
    }

    /// The counter of its events: with fewer than [`super::FEW_EVENTS`] on both sides together it is not tested.
    pub(super) fn events(self) -> Option<usize> {
        match self {
            Self::Wait | Self::Cause(_) | Self::Waits | Self::MeanWait | Self::Quantile(_) => {
                Some(Measure::Waits as usize)
            }
            Self::Counted(counter) => Some(of_counter(counter)),
            Self::ThrottledPeriods => Some(Measure::Periods as usize),
            _ => None,
        }
    }

    /// The least change that matters.
    pub fn least(self) -> Least {
        let (change, relative) = match (self, self.info().unit) {
            (Self::Hook | Self::Collector, _) => (0.001, 0.1),
            (_, Unit::WallShare) => (0.005, 0.05),
            (Self::Counted(counter), _) => {
                (counter.info().diff.map_or(f64::INFINITY, |compared| compared.least), 0.1)
            }
            (_, Unit::PerSecond) => (100.0, 0.1),
            (_, Unit::Share) => (0.02, 0.05),
            // Two buckets of the histogram.
            (_, Unit::Ns) => (5_000.0, 0.2),
        };
        Least { change, relative }
    }

    /// True if recordings of these modes both have it, and mean the same by it.
    pub(super) fn is_comparable(self, [before, after]: [Mode; 2]) -> bool {
        let is_exact = before == Mode::Bpf && after == Mode::Bpf;
        match self {
            Self::Cause(Cause::Throttled) => true,
            // In coarse recordings it is whatever no quota explains.
            Self::Cause(Cause::Unattributed) | Self::Collector => before == after,
            Self::Counted(counter) => {
                let info = counter.info();
                is_exact || !(info.exact_only || info.is_partial)
            }
            Self::Cause(_) | Self::Behind | Self::Hook | Self::Quantile(_) => is_exact,
            Self::MeanWait => !is_exact,
            _ => true,
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.info().name)
    }
}
