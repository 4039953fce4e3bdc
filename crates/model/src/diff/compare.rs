//! Chooses the subjects and figures to compare, and tests them together.

use std::{cmp::Ordering, collections::BTreeSet};

use cgscope_ledger::{BUCKETS, Cause, bucket_of};
use itertools::Itertools;

use super::{
    Change, Diff, DiffSubject, ERROR, FigureUnit, Length, LimitChange, Side, Verdict,
    resample::{DEALS, RatioSeries, Shape, bootstrap, draws, family_wise, interval},
    side::{Block, Cell, UNKNOWN, align},
};
use crate::{Counter, Hist, Mode, causes::shown, path::is_at_or_below, sum};

/// Minimum number of events, on both sides together, to test a rate. Also the minimum number of waits beyond a quantile.
const FEW_EVENTS: f64 = 10.0;
/// Minimum share of wall time that a subject must run and wait on at least one side. Less active subjects are omitted.
const LEAST_ACTIVITY: f64 = 0.001;
/// Maximum number of compared subjects. The most active subjects are kept.
const MOST_SUBJECTS: usize = 100;
/// Maximum number of subjects for which quantiles of waits are compared: the most expensive figures.
const WITH_QUANTILES: usize = 60;

/// Compares two recordings. Swapping them mirrors the result, unless both start at the same time.
pub fn compare(before: Side, after: Side) -> Diff {
    // The random permutations use the recordings in the order of time.
    let is_swapped = after.start_unix_ns < before.start_unix_ns;
    let mut sides = if is_swapped { [after, before] } else { [before, after] };
    align(&mut sides);
    let whole = sides.each_mut().map(Side::finish);
    let shape = Shape {
        blocks: sides.each_ref().map(|side| side.blocks.len()),
        lengths: whole.each_ref().map(|whole| whole.duration_ns as f64),
    };
    let (draws, changes, series) = (draws(&shape), Vec::new(), Vec::new());
    let mut compared = Comparison { sides: &sides, whole: &whole, is_swapped, shape, draws, changes, series };
    compared.add_all();
    let changes = compared.judged();
    let order: [usize; 2] = if is_swapped { [1, 0] } else { [0, 1] };
    let [before, after] = order.map(|side| &sides[side].limits);
    let limits = before.iter().filter_map(|(path, before)| {
        let (path, before, after) = (path.clone(), before.clone(), after.get(path)?.clone());
        (before != after).then_some(LimitChange { path, before, after })
    });
    Diff {
        lengths: order.map(|side| Length {
            mode: sides[side].mode,
            intervals: sides[side].intervals,
            blocks: sides[side].blocks.len(),
            duration_ns: whole[side].duration_ns,
        }),
        tested: changes.iter().filter(|change| change.p.is_some()).count(),
        changes,
        limits: limits.collect(),
    }
}

struct Comparison<'a> {
    sides: &'a [Side; 2],
    /// True if the first of `sides` is the recording after the change.
    is_swapped: bool,
    /// For each side, the sum of all blocks.
    whole: &'a [Block; 2],
    shape: Shape,
    draws: Vec<Vec<u64>>,
    changes: Vec<Change>,
    series: Vec<RatioSeries>,
}

/// The values of a figure on both sides, the series to test, and the difference in each draw. Not tested without a series.
type Compared = ([Option<f64>; 2], Option<(RatioSeries, Vec<f64>)>);

impl<'a> Comparison<'a> {
    fn add_all(&mut self) {
        let figures = figures();
        for (place, (subject, is_shadow)) in self.chosen().into_iter().enumerate() {
            let has_quantiles = !is_shadow && place < WITH_QUANTILES;
            let drawn = if has_quantiles { self.drawn_hists(subject) } else { Vec::new() };
            for figure in figures.iter().filter(|figure| figure.is_own || !is_shadow) {
                let compared = match figure.value {
                    Value::Ratio(part, whole) => self.ratio(subject, figure, part, whole),
                    Value::Quantile(_) if !has_quantiles => None,
                    Value::Quantile(quantile) => self.quantile(subject, quantile, &drawn),
                };
                if let Some(compared) = compared {
                    self.add(subject, figure, compared);
                }
            }
        }
    }

    /// Returns a time of a subject as a share of wall time, on the side where this share is larger.
    fn share(&self, subject: &DiffSubject, cells: &[Cell]) -> f64 {
        let share = |side: usize| {
            let of = |cell: &Cell| self.whole[side].of(subject).get(*cell) as f64;
            cells.iter().map(of).sum::<f64>() / self.shape.lengths[side].max(1.0)
        };
        share(0).max(share(1))
    }

    /// Returns the most active subjects. The flag marks a cgroup that is exactly as active as one of its descendants. Only the
    /// figures marked `is_own` are compared for such a cgroup.
    fn chosen(&self) -> Vec<(&'a DiffSubject, bool)> {
        let times = [Cell::Wait, Cell::Counter(Counter::OnCpu), Cell::Behind];
        let is_exact = self.sides.iter().all(|side| side.mode == Mode::Bpf);
        let subjects: BTreeSet<_> = self.whole.iter().flat_map(|side| side.sums.keys()).collect();
        let is_chosen = |(activity, subject): &(f64, &DiffSubject)| match subject {
            DiffSubject::All => true,
            DiffSubject::Cgroup { path } if &**path == "/" => false,
            DiffSubject::Behind { .. } if !is_exact => false,
            _ => *activity >= LEAST_ACTIVITY,
        };
        let activity = subjects.iter().map(|subject| (self.share(subject, &times), *subject));
        let chosen = activity.filter(is_chosen).sorted_by(|a, b| b.0.total_cmp(&a.0));
        let cells = [times[0], times[1], Cell::Counter(Counter::Waits)];
        let sums = |subject: &DiffSubject| {
            self.whole.each_ref().map(|side| cells.map(|cell| side.of(subject).get(cell)))
        };
        let is_shadow = |subject: &DiffSubject| {
            let DiffSubject::Cgroup { path } = subject else { return false };
            subjects.iter().any(|other| {
                let DiffSubject::Cgroup { path: below } = other else { return false };
                below != path && is_at_or_below(below, path) && sums(other) == sums(subject)
            })
        };
        chosen.take(MOST_SUBJECTS).map(|(_, subject)| (subject, is_shadow(subject))).collect()
    }

    /// Builds a series. `parts` returns the numerator and denominator of a block.
    fn series(&self, parts: impl Fn(&Block) -> (f64, f64), small: f64) -> RatioSeries {
        RatioSeries { blocks: self.sides.iter().flat_map(|side| &side.blocks).map(parts).collect(), small }
    }

    /// Compares a ratio of two cells; returns `None` if it is unknown or too small to matter.
    fn ratio(
        &self,
        subject: &DiffSubject,
        figure: &Figure,
        part: Cell,
        whole: Option<Cell>,
    ) -> Option<Compared> {
        let sums = |cell| self.whole.each_ref().map(|side| side.of(subject).get(cell));
        // An older version of cgscope or the coarse mode did not record it.
        if sums(part).contains(&UNKNOWN) {
            return None;
        }
        let parts = |block: &Block| {
            let whole = whole.map_or(block.duration_ns, |cell| block.of(subject).get(cell));
            (block.of(subject).get(part) as f64, whole as f64)
        };
        let scale = if figure.unit == FigureUnit::PerSecond { 1e9 } else { 1.0 };
        let value = |(part, whole): (f64, f64)| (whole > 0.0).then(|| part / whole * scale);
        let values = self.whole.each_ref().map(|side| value(parts(side)));
        if values.into_iter().flatten().fold(0.0, f64::max) < figure.least.0 / 2.0 {
            return None;
        }
        let is_rare = figure.events.is_some_and(|events| (sum::total(sums(events)) as f64) < FEW_EVENTS);
        let tested = (!is_rare).then(|| {
            let series = self.series(parts, figure.least.0 / scale / 10.0);
            let drawn = series.drawn_differences(&self.draws, &self.shape);
            (series, drawn.into_iter().map(|difference| difference * scale).collect())
        });
        Some((values, tested))
    }

    /// Returns the histograms of a subject on both sides, for each draw in which both sides have waits.
    fn drawn_hists(&self, subject: &DiffSubject) -> Vec<[Hist; 2]> {
        let waits = |block: &Block| block.of(subject).buckets().collect::<Vec<_>>();
        let blocks = self.sides.each_ref().map(|side| side.blocks.iter().map(waits).collect::<Vec<_>>());
        if blocks.iter().any(|blocks| blocks.iter().all(Vec::is_empty)) {
            return Vec::new();
        }
        bootstrap(&self.draws, &self.shape, |side, times| {
            let mut counts = [0; BUCKETS];
            for (block, times) in blocks[side].iter().zip(times).filter(|(_, times)| **times != 0) {
                for (bucket, count) in block {
                    sum::add(&mut counts[*bucket], count.saturating_mul(*times));
                }
            }
            Some(Hist::from_counts(counts, [])).filter(|hist| !hist.is_empty())
        })
    }

    /// Compares a quantile of the waits; returns `None` if a side has no waits. Tests the share of waits above the middle of the
    /// bucket that holds the quantile of both sides together.
    fn quantile(&self, subject: &DiffSubject, quantile: f64, drawn: &[[Hist; 2]]) -> Option<Compared> {
        let value = |side: usize, hist: &Hist| {
            hist.quantile_ns(quantile, self.whole[side].of(subject).longest_ns).map(|ns| ns as f64)
        };
        let hists = self.whole.each_ref().map(|side| side.of(subject).hist());
        let values = [Some(value(0, &hists[0])?), Some(value(1, &hists[1])?)];
        let [mut both, second] = hists;
        both.add(&second);
        let middle = bucket_of(both.quantile_low_ns(quantile)?);
        let parts = |block: &Block| {
            let (mut above, mut all) = (0.0, 0.0);
            for (bucket, count) in block.of(subject).buckets() {
                all += count as f64;
                let halves = u8::from(bucket > middle) + u8::from(bucket >= middle);
                above += count as f64 * f64::from(halves) / 2.0;
            }
            (above, all)
        };
        let beyond = quantile.min(1.0 - quantile);
        let tested = (both.count() as f64 * beyond >= FEW_EVENTS).then(|| {
            let difference = |[first, second]: &[Hist; 2]| Some(value(1, second)? - value(0, first)?);
            (self.series(parts, beyond / 50.0), drawn.iter().filter_map(difference).collect())
        });
        Some((values, tested))
    }

    fn add(&mut self, subject: &DiffSubject, figure: &Figure, (mut values, mut tested): Compared) {
        let (shape, is_enough) = (&self.shape, self.shape.is_enough());
        if self.is_swapped {
            values.reverse();
            tested.iter_mut().flat_map(|(_, drawn)| drawn).for_each(|difference| *difference = -*difference);
        }
        let [before, after] = values;
        let change = after.zip(before).map(|(after, before)| after - before);
        let tested = tested.zip(change).filter(|_| is_enough);
        let is_tested = tested.is_some();
        let ends = tested.and_then(|((series, drawn), change)| {
            let widening = series.widening(shape);
            self.series.push(series);
            interval(drawn, change, shape, widening)
        });
        let larger = f64::max(before.unwrap_or(0.0), after.unwrap_or(0.0));
        let size = change.map_or(0.0, f64::abs);
        let is_large = size >= figure.least.0 && size >= figure.least.1 * larger;
        self.changes.push(Change {
            subject: subject.clone(),
            figure: figure.name,
            words: figure.words,
            unit: figure.unit,
            before,
            after,
            change,
            relative: change.zip(before).map(|(change, before)| change / before),
            low: ends.map(|(low, _)| low),
            high: ends.map(|(_, high)| high),
            p: is_tested.then_some(1.0),
            verdict: match ends {
                _ if !is_enough => Verdict::TooShort,
                _ if !is_tested => Verdict::TooFewEvents,
                Some((low, high)) if is_large && (low > 0.0 || high < 0.0) => Verdict::MoreThanNoise,
                Some((low, high)) if low > 0.0 || high < 0.0 => Verdict::Negligible,
                _ => Verdict::WithinNoise,
            },
            size: match figure.unit {
                FigureUnit::WallShare => size,
                _ => size / larger.max(f64::MIN_POSITIVE) * self.share(subject, &[Cell::Wait]),
            },
        });
    }

    /// Tests all figures together.
    fn judged(mut self) -> Vec<Change> {
        let tested = self.changes.iter_mut().filter(|change| change.p.is_some());
        for (change, p) in tested.zip(family_wise(&self.series, &self.shape, DEALS)) {
            change.p = Some(p);
            if p > ERROR {
                change.verdict = Verdict::WithinNoise;
            }
        }
        self.changes.sort_by(order);
        self.changes
    }
}

/// Sorts by: more than noise, then shares of wall time, then size.
fn order(a: &Change, b: &Change) -> Ordering {
    let is_time = |change: &Change| change.unit == FigureUnit::WallShare;
    (b.is_called(), is_time(b))
        .cmp(&(a.is_called(), is_time(a)))
        .then(b.size.total_cmp(&a.size))
        .then_with(|| (&a.subject, a.figure).cmp(&(&b.subject, b.figure)))
}

#[derive(Clone, Copy, Debug)]
enum Value {
    /// A cell over another. `None`: over wall time.
    Ratio(Cell, Option<Cell>),
    Quantile(f64),
}

#[derive(Clone, Copy, Debug)]
struct Figure {
    name: &'static str,
    /// Name in sentences and tables.
    words: &'static str,
    unit: FigureUnit,
    value: Value,
    /// The least change that matters: in the unit, and as a share of the larger side. A change must reach both limits.
    least: (f64, f64),
    /// Counts the figure's events. A figure with few events is not tested.
    events: Option<Cell>,
    /// True if the figure covers only the cgroup itself, without its descendants.
    is_own: bool,
}

fn figures() -> Vec<Figure> {
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
