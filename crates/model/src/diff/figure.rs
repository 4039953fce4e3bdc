//! The table of figures: how each is computed, its unit and name, and the least change that matters.

use cgscope_layout::Cause;
use serde::Serialize;

use super::blocks::{Measure, of_cause, of_counter};
use crate::{Counter, Mode, causes::shown};

/// The unit of a figure's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Share of wall time, summed over tasks or CPUs: 0.5 is half the time of one task, or half a CPU.
    WallShare,
    /// Events per second.
    PerSecond,
    /// Share of a total, 0 to 1.
    Share,
    /// Nanoseconds.
    Ns,
}

/// The pairs of recordings in which a figure has the same meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedIn {
    Any,
    /// Both recordings are exact, or both are coarse.
    Alike,
    /// Both recordings are exact.
    Exact,
    /// At least one recording is coarse.
    Coarse,
}

/// A figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name in JSON.
    #[serde(rename = "figure")]
    pub name: &'static str,
    /// Unit of the values.
    pub unit: FigureUnit,
    /// Name in sentences and tables.
    #[serde(skip)]
    pub words: &'static str,
    /// The least change that matters: in the figure's unit, and as a share of the larger side. A change must reach both.
    #[serde(skip)]
    pub(super) least: (f64, f64),
    /// The cells of the numerator and of the divisor (divisor `None`: wall time).
    #[serde(skip)]
    pub(super) ratio: (usize, Option<usize>),
    /// The quantile of waits that this figure shows; `None`: the figure is a ratio.
    #[serde(skip)]
    pub(super) quantile: Option<f64>,
    /// The cell that counts the figure's events. With few events the figure is not tested.
    #[serde(skip)]
    pub(super) events: Option<usize>,
    /// True if the figure covers only the cgroup itself, without the cgroups below it.
    #[serde(skip)]
    pub(super) is_own: bool,
    #[serde(skip)]
    compared_in: ComparedIn,
}

impl Figure {
    fn new(name: &'static str, words: &'static str, unit: FigureUnit, sum: usize) -> Self {
        let least = match unit {
            FigureUnit::WallShare => (0.005, 0.05),
            FigureUnit::PerSecond => (100.0, 0.1),
            FigureUnit::Share => (0.02, 0.05),
            // Two buckets of the histogram.
            FigureUnit::Ns => (5_000.0, 0.2),
        };
        let (quantile, events, is_own, compared_in) = (None, None, false, ComparedIn::Any);
        Self { name, unit, words, least, ratio: (sum, None), quantile, events, is_own, compared_in }
    }

    fn of_waits(self) -> Self {
        Self { events: Some(Measure::Waits as usize), ..self }
    }

    fn cause(cause: Cause) -> Self {
        let compared_in = match cause {
            Cause::Throttled => ComparedIn::Any,
            // Coarse recordings count every wait that no quota explains as unattributed.
            Cause::Unattributed => ComparedIn::Alike,
            _ => ComparedIn::Exact,
        };
        let figure = Self::new(cause.name(), shown(cause).words, FigureUnit::WallShare, of_cause(cause));
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
            ..Self::new(info.name, compared.words, FigureUnit::PerSecond, at)
        })
    }

    /// True if recordings of these two modes both have the figure, with the same meaning.
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

/// All figures that are compared.
pub fn figures() -> Vec<Figure> {
    let wall = |name, words, sum: Measure| Figure::new(name, words, FigureUnit::WallShare, sum as usize);
    let share = |name, words, part: Measure, whole: Measure| Figure {
        ratio: (part as usize, Some(whole as usize)),
        ..Figure::new(name, words, FigureUnit::Share, 0)
    };
    let wait_ns = |name, words, compared_in| Figure {
        ratio: (Measure::Wait as usize, Some(Measure::Waits as usize)),
        compared_in,
        ..Figure::new(name, words, FigureUnit::Ns, 0).of_waits()
    };
    let quantile = |name, words, quantile| Figure {
        quantile: Some(quantile),
        ..wait_ns(name, words, ComparedIn::Exact)
    };
    let periods =
        share("throttled_periods", "periods out of quota", Measure::ThrottledPeriods, Measure::Periods);
    let stood = wall("stood_throttled", "stood out of quota", Measure::Stood);
    let remote = share("remote_share", "memory on other nodes", Measure::Remote, Measure::RemoteOf);
    let behind = wall("behind", "waiting", Measure::Behind);
    let hook = wall("hook", "time in the hook", Measure::Hook);
    let collector = wall("collector", "CPU time of the collector", Measure::Collector);
    let own_cost = (0.001, 0.1);
    let mut figures = vec![wall("wait", "waiting", Measure::Wait).of_waits()];
    figures.extend(Cause::ALL.map(Figure::cause));
    figures.extend([
        Figure::new("waits", "waits", FigureUnit::PerSecond, Measure::Waits as usize).of_waits(),
        wait_ns("mean_wait", "mean wait", ComparedIn::Coarse),
        wall("on_cpu", "on CPU", Measure::OnCpu),
    ]);
    figures.extend(Counter::ALL.into_iter().filter_map(Figure::counter));
    figures.extend([
        Figure { is_own: true, events: Some(Measure::Periods as usize), ..periods },
        Figure { is_own: true, ..stood },
        Figure { is_own: true, ..remote },
        share("cpu_busy", "CPUs busy", Measure::Busy, Measure::Online),
        Figure { compared_in: ComparedIn::Exact, ..behind },
        Figure { compared_in: ComparedIn::Exact, least: own_cost, ..hook },
        Figure { compared_in: ComparedIn::Alike, least: own_cost, ..collector },
        quantile("p50", "median wait", 0.5),
        quantile("p90", "p90 of waits", 0.9),
        quantile("p99", "p99 of waits", 0.99),
    ]);
    figures
}
