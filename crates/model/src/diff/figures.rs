//! The figures that are compared.

use cgscope_ledger::Cause;
use serde::Serialize;

use super::side::Cell;
use crate::{Counter, causes::shown};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Share of wall time, summed over tasks or CPUs. 0.5 is half the time of one task, or half a CPU.
    WallShare,
    PerSecond,
    /// Share of a total, 0 to 1.
    Share,
    Ns,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    /// A cell over another. `None`: over wall time.
    Ratio(Cell, Option<Cell>),
    Quantile(f64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// Name in JSON.
    pub name: &'static str,
    /// Name in sentences and tables.
    pub words: &'static str,
    pub unit: FigureUnit,
    pub value: Value,
    /// The least change that matters: in the unit, and as a share of the larger side. A change must reach both limits.
    pub least: (f64, f64),
    /// Counts the figure's events. A figure with few events is not tested.
    pub events: Option<Cell>,
    /// True if the figure covers only the cgroup itself, without its descendants.
    pub is_own: bool,
}

pub(super) fn figures() -> Vec<Figure> {
    let figure = |name, words, unit, least, value| {
        let (events, is_own) = (None, false);
        Figure { name, words, unit, value, least, events, is_own }
    };
    let wall = |name, words, cell| {
        figure(name, words, FigureUnit::WallShare, (0.005, 0.05), Value::Ratio(cell, None))
    };
    let rate = |name, words, cell, least| {
        let value = Value::Ratio(cell, None);
        Figure { events: Some(cell), ..figure(name, words, FigureUnit::PerSecond, (least, 0.1), value) }
    };
    let quantile = |name, words, quantile| {
        // 20 %: two buckets of the histogram.
        figure(name, words, FigureUnit::Ns, (5_000.0, 0.2), Value::Quantile(quantile))
    };
    let counter = Cell::Counter;
    let (waits, periods) = (counter(Counter::Waits), counter(Counter::Periods));
    let ran_out = Value::Ratio(counter(Counter::ThrottledPeriods), Some(periods));
    let throttled_periods =
        figure("throttled_periods", "periods out of quota", FigureUnit::Share, (0.02, 0.05), ran_out);
    let throttled_ns = counter(Counter::ThrottledNs);
    let mut figures = vec![
        Figure { events: Some(waits), ..wall("wait", "waiting", Cell::Wait) },
        rate("waits", "waits", waits, 100.0),
        wall("on_cpu", "on CPU", counter(Counter::OnCpu)),
        Figure { is_own: true, events: Some(periods), ..throttled_periods },
        Figure { is_own: true, ..wall("stood_throttled", "stood out of quota", throttled_ns) },
        wall("behind", "waiting", Cell::Behind),
        quantile("p50", "median wait", 0.5),
        quantile("p90", "p90 of waits", 0.9),
        quantile("p99", "p99 of waits", 0.99),
    ];
    figures.extend(Cause::ALL.map(|cause| Figure {
        events: Some(waits),
        ..wall(cause.name(), shown(cause).words, Cell::Cause(cause))
    }));
    figures.extend(Counter::compared().map(|(counter, compared)| {
        rate(counter.name(), compared.words, Cell::Counter(counter), compared.least)
    }));
    figures
}
