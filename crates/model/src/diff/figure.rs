//! The figures that are compared: what each is made of, its unit, and from which change on it is worth telling.

use cgscope_layout::Cause;
use serde::{Serialize, Serializer};

use super::blocks::{Measure, of_cause};
use crate::Mode;

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
    /// Voluntary switches.
    Voluntary,
    /// Involuntary switches.
    Involuntary,
    /// Moves between CPUs.
    Migrations,
    /// Moves between NUMA nodes.
    NodeMigrations,
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
        std::iter::once(Self::Wait).chain(causes).chain([
            Self::Waits,
            Self::MeanWait,
            Self::OnCpu,
            Self::Voluntary,
            Self::Involuntary,
            Self::Migrations,
            Self::NodeMigrations,
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
            Self::Quantile(_) => return None,
            Self::Wait => (Measure::Wait, Of::Wall),
            Self::Waits => (Measure::Waits, Of::Wall),
            Self::MeanWait => (Measure::Wait, Of::Measure(Measure::Waits)),
            Self::OnCpu => (Measure::OnCpu, Of::Wall),
            Self::Voluntary => (Measure::Voluntary, Of::Wall),
            Self::Involuntary => (Measure::Involuntary, Of::Wall),
            Self::Migrations => (Measure::Migrations, Of::Wall),
            Self::NodeMigrations => (Measure::NodeMigrations, Of::Wall),
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
            Self::Waits | Self::Voluntary | Self::Involuntary | Self::Migrations | Self::NodeMigrations => {
                Unit::PerSecond
            }
            Self::MeanWait | Self::Quantile(_) => Unit::Ns,
            Self::ThrottledPeriods | Self::RemoteShare | Self::CpuBusy => Unit::Share,
            _ => Unit::WallShare,
        }
    }

    /// What its events are counted by: fewer than [`super::FEW_EVENTS`] of them on both sides together are no figure.
    pub(super) fn events(self) -> Option<Measure> {
        match self {
            Self::Wait | Self::Cause(_) | Self::Waits | Self::MeanWait | Self::Quantile(_) => {
                Some(Measure::Waits)
            }
            Self::Voluntary => Some(Measure::Voluntary),
            Self::Involuntary => Some(Measure::Involuntary),
            Self::Migrations => Some(Measure::Migrations),
            Self::NodeMigrations => Some(Measure::NodeMigrations),
            Self::ThrottledPeriods => Some(Measure::Periods),
            _ => None,
        }
    }

    /// The least change worth telling.
    pub fn least(self) -> Least {
        let (change, relative) = match (self, self.unit()) {
            (Self::Hook | Self::Collector, _) => (0.001, 0.1),
            (_, Unit::WallShare) => (0.005, 0.05),
            // Each costs some microseconds, a move of its caches more: below it is less than 0.1 % of a CPU. What waits cost
            // besides is in the shares of time.
            (Self::Migrations | Self::NodeMigrations, _) => (20.0, 0.1),
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
            Self::Cause(_) | Self::Migrations | Self::NodeMigrations | Self::Behind | Self::Hook => is_exact,
            Self::Quantile(_) => is_exact,
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
            Self::Voluntary => "voluntary",
            Self::Involuntary => "involuntary",
            Self::Migrations => "migrations",
            Self::NodeMigrations => "node_migrations",
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
