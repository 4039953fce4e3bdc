//! The figures that are compared: what each is made of, its unit, and from which change on it is worth telling.

use cgscope_layout::Cause;
use serde::{Serialize, Serializer};

use super::blocks::{Measure, of_cause, of_counter};
use crate::{Counter, Mode};

/// What a figure is told in.
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

/// What a sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The length of the block.
    Wall,
    Measure(Measure),
}

/// The least change that is worth telling, however sure it is: both must be reached.
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
    /// A wait's length on average; told where there are no histograms.
    MeanWait,
    /// A quantile of the waits' lengths, in thousandths.
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

    /// The counter, and what it is divided by. `None` for a quantile.
    pub(super) fn made_of(self) -> Option<(usize, Of)> {
        let (measure, of) = match self {
            Self::Cause(cause) => return Some((of_cause(cause), Of::Wall)),
            Self::Counted(counter) => return Some((of_counter(counter), Of::Wall)),
            Self::Quantile(_) => return None,
            Self::Wait => (Measure::Wait, Of::Wall),
            Self::Waits => (Measure::Waits, Of::Wall),
            Self::MeanWait => (Measure::Wait, Of::Measure(Measure::Waits)),
            Self::OnCpu => (Measure::OnCpu, Of::Wall),
            Self::ThrottledPeriods => (Measure::ThrottledPeriods, Of::Measure(Measure::Periods)),
            Self::Stood => (Measure::Stood, Of::Wall),
            Self::RemoteShare => (Measure::Remote, Of::Measure(Measure::RemoteOf)),
            Self::CpuBusy => (Measure::Busy, Of::Measure(Measure::Online)),
            Self::Behind => (Measure::Behind, Of::Wall),
            Self::Hook => (Measure::Hook, Of::Wall),
            Self::Collector => (Measure::Collector, Of::Wall),
        };
        Some((measure as usize, of))
    }

    /// What its value is told in.
    pub fn unit(self) -> Unit {
        match self {
            Self::Waits | Self::Counted(_) => Unit::PerSecond,
            Self::MeanWait | Self::Quantile(_) => Unit::Ns,
            Self::ThrottledPeriods | Self::RemoteShare | Self::CpuBusy => Unit::Share,
            _ => Unit::WallShare,
        }
    }

    /// The counter of its events: fewer than [`super::FEW_EVENTS`] of them on both sides together are no figure.
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

    /// The least change worth telling.
    pub fn least(self) -> Least {
        let (change, relative) = match (self, self.unit()) {
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
    pub(super) fn is_told(self, before: Mode, after: Mode) -> bool {
        let is_exact = before == Mode::Bpf && after == Mode::Bpf;
        match self {
            Self::Cause(Cause::Throttled) => true,
            // Coarsely it is whatever no quota explains.
            Self::Cause(Cause::Unattributed) => before == after,
            Self::Counted(counter) => {
                let info = counter.info();
                is_exact || !(info.exact_only || info.is_partial)
            }
            Self::Cause(_) | Self::Behind | Self::Hook | Self::Quantile(_) => is_exact,
            Self::MeanWait => !is_exact,
            Self::Collector => before == after,
            _ => true,
        }
    }

    /// The name in JSON.
    pub fn name(self) -> String {
        let name = match self {
            Self::Wait => "wait",
            Self::Cause(cause) => return cause.name().into(),
            Self::Quantile(thousandths) if thousandths % 10 == 0 => return format!("p{}", thousandths / 10),
            Self::Quantile(thousandths) => return format!("p{thousandths}"),
            Self::Waits => "waits",
            Self::MeanWait => "mean_wait",
            Self::OnCpu => "on_cpu",
            Self::Counted(counter) => counter.name(),
            Self::ThrottledPeriods => "throttled_periods",
            Self::Stood => "stood_throttled",
            Self::RemoteShare => "remote_share",
            Self::CpuBusy => "cpu_busy",
            Self::Behind => "behind",
            Self::Hook => "hook",
            Self::Collector => "collector",
        };
        name.into()
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}
