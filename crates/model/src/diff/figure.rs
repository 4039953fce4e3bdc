//! The table of figures: what each is made of, its unit and words, and the least change that matters.

use cgscope_layout::Cause;
use serde::Serialize;

use super::blocks::{Measure, of_cause, of_counter};
use crate::{Counter, Mode, causes::shown};

/// What a figure's values are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Share of wall time, summed over tasks or CPUs: 0.5 is half of the time of one task, or half a CPU.
    WallShare,
    /// Times a second.
    PerSecond,
    /// Share of a whole, 0 to 1.
    Share,
    /// Nanoseconds.
    Ns,
}

/// The recordings in which a figure means the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedIn {
    Any,
    /// Both exact, or both coarse.
    Alike,
    /// Both exact.
    Exact,
    /// One of them coarse.
    Coarse,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The name in JSON.
    #[serde(rename = "figure")]
    pub name: &'static str,
    /// What its values are in.
    pub unit: FigureUnit,
    /// The name in sentences and tables.
    #[serde(skip)]
    pub words: &'static str,
    /// The least change that matters, however sure it is: in its unit, and as a share of the larger side. Both must be reached.
    #[serde(skip)]
    pub(super) least: (f64, f64),
    /// The sum that it is made of, and what that is divided by (`None`: wall time).
    #[serde(skip)]
    pub(super) ratio: (usize, Option<usize>),
    /// It is this quantile of waits instead of a ratio.
    #[serde(skip)]
    pub(super) quantile: Option<f64>,
    /// The counter of its events: with fewer than [`FEW_EVENTS`](super::FEW_EVENTS) on both sides together it is not tested.
    #[serde(skip)]
    pub(super) events: Option<usize>,
    /// A cgroup has it by itself: it is no sum over what is below the cgroup.
    #[serde(skip)]
    pub(super) is_own: bool,
    #[serde(skip)]
    compared_in: ComparedIn,
}

impl Figure {
    fn new(
        name: &'static str,
        words: &'static str,
        unit: FigureUnit,
        sum: usize,
        divisor: Option<Measure>,
    ) -> Self {
        let least = match unit {
            FigureUnit::WallShare => (0.005, 0.05),
            FigureUnit::PerSecond => (100.0, 0.1),
            FigureUnit::Share => (0.02, 0.05),
            // Two buckets of the histogram.
            FigureUnit::Ns => (5_000.0, 0.2),
        };
        let ratio = (sum, divisor.map(|measure| measure as usize));
        let (quantile, events, is_own, compared_in) = (None, None, false, ComparedIn::Any);
        Self { name, unit, words, least, ratio, quantile, events, is_own, compared_in }
    }

    /// A share of wall time.
    fn wall(name: &'static str, words: &'static str, sum: Measure) -> Self {
        Self::new(name, words, FigureUnit::WallShare, sum as usize, None)
    }

    fn share(name: &'static str, words: &'static str, sum: Measure, whole: Measure) -> Self {
        Self::new(name, words, FigureUnit::Share, sum as usize, Some(whole))
    }

    /// A length of waits.
    fn wait_ns(name: &'static str, words: &'static str, compared_in: ComparedIn) -> Self {
        let mean = Self::new(name, words, FigureUnit::Ns, Measure::Wait as usize, Some(Measure::Waits));
        Self { compared_in, ..mean.of_waits() }
    }

    fn of_waits(self) -> Self {
        Self { events: Some(Measure::Waits as usize), ..self }
    }

    fn cause(cause: Cause) -> Self {
        let compared_in = match cause {
            Cause::Throttled => ComparedIn::Any,
            // In coarse recordings it is whatever no quota explains.
            Cause::Unattributed => ComparedIn::Alike,
            _ => ComparedIn::Exact,
        };
        let figure =
            Self::new(cause.name(), shown(cause).words, FigureUnit::WallShare, of_cause(cause), None);
        Self { compared_in, ..figure.of_waits() }
    }

    fn counter(counter: Counter) -> Option<Self> {
        let (info, at) = (counter.info(), of_counter(counter));
        let compared = info.diff?;
        let is_exact = info.exact_only || info.is_partial;
        Some(Self {
            least: (compared.least, 0.1),
            events: Some(at),
            compared_in: if is_exact { ComparedIn::Exact } else { ComparedIn::Any },
            ..Self::new(info.name, compared.words, FigureUnit::PerSecond, at, None)
        })
    }

    /// True if recordings of these modes both have it, and mean the same by it.
    pub(super) fn is_comparable(&self, modes: [Mode; 2]) -> bool {
        let is_exact = modes == [Mode::Bpf; 2];
        match self.compared_in {
            ComparedIn::Any => true,
            ComparedIn::Alike => modes[0] == modes[1],
            ComparedIn::Exact => is_exact,
            ComparedIn::Coarse => !is_exact,
        }
    }
}

/// The table.
pub fn figures() -> Vec<Figure> {
    let waits = Figure::new("waits", "waits", FigureUnit::PerSecond, Measure::Waits as usize, None);
    let periods = Figure::share(
        "throttled_periods",
        "periods out of quota",
        Measure::ThrottledPeriods,
        Measure::Periods,
    );
    let stood = Figure::wall("stood_throttled", "stood out of quota", Measure::Stood);
    let remote = Figure::share("remote_share", "memory on other nodes", Measure::Remote, Measure::RemoteOf);
    let behind = Figure::wall("behind", "waiting", Measure::Behind);
    let hook = Figure::wall("hook", "time in the hook", Measure::Hook);
    let collector = Figure::wall("collector", "CPU time of the collector", Measure::Collector);
    let own_cost = (0.001, 0.1);
    let mut figures = vec![Figure::wall("wait", "waiting", Measure::Wait).of_waits()];
    figures.extend(Cause::ALL.map(Figure::cause));
    figures.push(waits.of_waits());
    figures.push(Figure::wait_ns("mean_wait", "mean wait", ComparedIn::Coarse));
    figures.push(Figure::wall("on_cpu", "on CPU", Measure::OnCpu));
    figures.extend(Counter::ALL.into_iter().filter_map(Figure::counter));
    figures.extend([
        Figure { is_own: true, events: Some(Measure::Periods as usize), ..periods },
        Figure { is_own: true, ..stood },
        Figure { is_own: true, ..remote },
        Figure::share("cpu_busy", "CPUs busy", Measure::Busy, Measure::Online),
        Figure { compared_in: ComparedIn::Exact, ..behind },
        Figure { compared_in: ComparedIn::Exact, least: own_cost, ..hook },
        Figure { compared_in: ComparedIn::Alike, least: own_cost, ..collector },
    ]);
    let quantiles =
        [("p50", "median wait", 0.5), ("p90", "p90 of waits", 0.9), ("p99", "p99 of waits", 0.99)];
    figures.extend(quantiles.map(|(name, words, quantile)| Figure {
        quantile: Some(quantile),
        ..Figure::wait_ns(name, words, ComparedIn::Exact)
    }));
    figures
}
