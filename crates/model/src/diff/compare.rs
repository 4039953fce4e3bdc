use std::{cmp::Ordering, collections::BTreeSet};

use cgscope_ledger::Cause;
use serde::Serialize;

use crate::{
    Counter, Mode,
    causes::shown,
    diff::{
        Change, Diff, DiffSubject, ERROR, FindingChange, Length, LimitChange, Presence, Ranked, Side,
        Verdict,
        blocks::{Measure, UNKNOWN, of_cause, of_counter},
        resample::{DEALS, RatioSeries, draws, family_wise, interval},
        series::{Comparison, FEW_EVENTS, SubjectPair, bucket_at, chosen, drawn_quantiles, scale, subjects},
        side::align,
    },
    findings::{Finding, Host, findings},
    sum,
};

/// Maximum number of subjects for which quantiles of waits are compared.
const WITH_QUANTILES: usize = 30;
/// Maximum number of ranked cgroups and of ranked programs, for each side.
const TOP: usize = 10;

/// Compares two recordings. `hosts` are the recordings' hosts, for findings. Swapping the recordings mirrors the result.
pub fn compare(before: Side, after: Side, hosts: &[Host; 2]) -> Diff {
    let (mut before, mut after) = (before.finish(), after.finish());
    align(&mut before, &mut after);
    let comparison = Comparison::new(&before, &after);
    let subjects = subjects(&comparison);
    let chosen = chosen(&comparison, &subjects);
    let mut table = ChangeTable::new(&comparison);
    table.fill(&chosen);
    let tested = table.series.len();
    let (findings, kept_findings) = found(&comparison, hosts);
    let is_below_root =
        |subject: &DiffSubject| matches!(subject, DiffSubject::Cgroup { path } if &**path != "/");
    Diff {
        lengths: comparison.sides.map(|side| Length {
            mode: side.whole.mode,
            intervals: side.intervals,
            blocks: side.blocks.lengths_ns.len(),
            duration_ns: sum::total(side.blocks.lengths_ns.iter().copied()),
        }),
        tested,
        changes: table.judged(),
        limits: limits(&comparison),
        findings,
        kept_findings,
        cgroups: ranked(&comparison, &subjects, is_below_root),
        programs: ranked(&comparison, &subjects, |subject| matches!(subject, DiffSubject::Program { .. })),
        alone: chosen
            .iter()
            .filter(|(pair, _)| pair.presence != Presence::Both)
            .map(|(pair, _)| (pair.subject.clone(), pair.presence))
            .collect(),
    }
}

struct ChangeTable<'f, 'a> {
    comparison: &'f Comparison<'a>,
    draws: Vec<Vec<f32>>,
    series: Vec<RatioSeries>,
    /// Each change, with its index in `series`; `None`: not tested.
    changes: Vec<(Change, Option<usize>)>,
}

impl<'f, 'a> ChangeTable<'f, 'a> {
    fn new(comparison: &'f Comparison<'a>) -> Self {
        Self { comparison, draws: draws(&comparison.shape), series: Vec::new(), changes: Vec::new() }
    }

    fn fill(&mut self, chosen: &[(&SubjectPair, bool)]) {
        let modes = self.comparison.sides.map(|side| side.whole.mode);
        let comparable = figures().into_iter().filter(|figure| figure.is_comparable(modes));
        let (quantiles, counted): (Vec<Figure>, Vec<Figure>) =
            comparable.partition(|figure| figure.quantile.is_some());
        let mut with_quantiles = 0;
        for (pair, is_shadow) in chosen {
            for figure in counted.iter().filter(|figure| figure.is_own || !is_shadow) {
                self.add_counted(pair, figure);
            }
            if !quantiles.is_empty() && !is_shadow && with_quantiles < WITH_QUANTILES {
                with_quantiles += usize::from(self.add_quantiles(pair, &quantiles));
            }
        }
    }

    fn add_counted(&mut self, pair: &SubjectPair, figure: &Figure) {
        // The counter is unknown on one side: an older version of cgscope wrote that recording.
        if pair.sums.iter().any(|sums| sums.at(figure.ratio.0) == UNKNOWN) {
            return;
        }
        let values = [0, 1].map(|side| self.comparison.value(pair, figure, side));
        let largest = values.into_iter().flatten().fold(0.0, f64::max);
        if largest < figure.least.0 / 2.0 {
            return;
        }
        let count = |events| sum::total(pair.sums.iter().map(|sums| sums.at(events))) as f64;
        let is_rare = figure.events.is_some_and(|events| count(events) < FEW_EVENTS);
        let tested = (!is_rare).then(|| {
            let series = self.comparison.counted(pair, figure);
            let sign = if self.comparison.order[0] == 0 { 1.0 } else { -1.0 };
            let scale = scale(figure.unit);
            let drawn = series.drawn_differences(&self.draws, &self.comparison.shape);
            (series, drawn.into_iter().map(|difference| difference * sign * scale).collect())
        });
        self.add(pair, figure, values, tested);
    }

    /// Adds the quantiles of a subject's waits; returns false if a side has no waits.
    fn add_quantiles(&mut self, pair: &SubjectPair, figures: &[Figure]) -> bool {
        let hists = [0, 1].map(|side: usize| pair.sums[side].hist());
        if hists.iter().any(|hist| hist.count() == 0) {
            return false;
        }
        let longest_ns = [0, 1].map(|side: usize| pair.sums[side].get(Measure::Longest));
        let quantiles: Vec<f64> = figures.iter().filter_map(|figure| figure.quantile).collect();
        let drawn = drawn_quantiles(self.comparison, pair, &self.draws, &quantiles);
        for ((figure, quantile), drawn) in figures.iter().zip(quantiles).zip(drawn) {
            let bucket = bucket_at(&hists, quantile);
            let series = bucket.map(|bucket| self.comparison.above(pair, bucket, quantile));
            let values = [0, 1]
                .map(|side: usize| hists[side].quantile_ns(quantile, longest_ns[side]).map(|ns| ns as f64));
            self.add(pair, figure, values, series.map(|series| (series, drawn)));
        }
        true
    }

    /// Adds a change of a figure. `tested` holds the figure's series, and the differences in the bootstrap draws.
    fn add(
        &mut self,
        pair: &SubjectPair,
        figure: &Figure,
        [before, after]: [Option<f64>; 2],
        tested: Option<(RatioSeries, Vec<f64>)>,
    ) {
        let change = after.zip(before).map(|(after, before)| after - before);
        let (comparison, place) = (self.comparison, self.series.len());
        let tested = tested.map(|(series, drawn)| {
            let shape = &comparison.shape;
            let ends = change.and_then(|change| interval(drawn, change, shape, series.widening(shape)));
            self.series.push(series);
            ends
        });
        let (low, high) = tested.flatten().unzip();
        let waited = [0, 1].map(|side| comparison.share(pair, Measure::Wait, side));
        let change = Change {
            subject: pair.subject.clone(),
            figure: *figure,
            presence: pair.presence,
            before,
            after,
            change,
            relative: change.zip(before).map(|(change, before)| change / before),
            low,
            high,
            p: None,
            verdict: Verdict::TooFewEvents,
            size: match (figure.unit, before.zip(after)) {
                (_, None) => 0.0,
                (FigureUnit::WallShare, Some((before, after))) => (after - before).abs(),
                (_, Some((before, after))) => {
                    let larger = before.max(after).max(f64::MIN_POSITIVE);
                    (after - before).abs() / larger * waited[0].max(waited[1])
                }
            },
        };
        self.changes.push((change, tested.map(|_| place)));
    }

    fn judged(self) -> Vec<Change> {
        let shape = &self.comparison.shape;
        let p = family_wise(&self.series, shape, DEALS);
        let judge = |(mut change, tested): (Change, Option<usize>)| {
            change.p = tested.map(|at| p[at]).filter(|_| shape.is_enough());
            change.verdict = verdict(&change, shape.is_enough());
            change
        };
        let mut changes: Vec<Change> = self.changes.into_iter().map(judge).collect();
        changes.sort_by(order);
        changes
    }
}

fn verdict(change: &Change, is_enough: bool) -> Verdict {
    let (Some(p), Some(difference)) = (change.p, change.change) else {
        return if is_enough { Verdict::TooFewEvents } else { Verdict::TooShort };
    };
    let excludes_none = change.low.is_some_and(|low| low > 0.0) || change.high.is_some_and(|high| high < 0.0);
    let larger = f64::max(change.before.unwrap_or(0.0), change.after.unwrap_or(0.0));
    let (least, relative) = change.figure.least;
    let is_large = difference.abs() >= least && difference.abs() >= relative * larger;
    match p <= ERROR && excludes_none {
        true if is_large => Verdict::MoreThanNoise,
        true => Verdict::Negligible,
        false => Verdict::WithinNoise,
    }
}

/// Sorts by: more than noise, then shares of wall time, then size.
fn order(a: &Change, b: &Change) -> Ordering {
    let is_time = |change: &Change| change.figure.unit == FigureUnit::WallShare;
    b.is_called()
        .cmp(&a.is_called())
        .then(is_time(b).cmp(&is_time(a)))
        .then(b.size.total_cmp(&a.size))
        .then_with(|| a.subject.cmp(&b.subject))
        .then_with(|| a.figure.name.cmp(b.figure.name))
}

fn limits(comparison: &Comparison) -> Vec<LimitChange> {
    let [before, after] = comparison.sides;
    let changes = before.limits.iter().filter_map(|(path, limits)| {
        Some(LimitChange {
            path: path.clone(),
            before: limits.clone(),
            after: after.limits.get(path)?.clone(),
            changed_during: comparison.sides.map(|side| side.changed_limits.contains(path)),
        })
    });
    let is_same = |change: &LimitChange| change.before.is_some() && change.before == change.after;
    changes.filter(|change| !is_same(change) || change.changed_during.contains(&true)).collect()
}

/// Returns the findings that only one recording has, and the number of findings that both have.
fn found(comparison: &Comparison, hosts: &[Host; 2]) -> (Vec<FindingChange>, usize) {
    let found = [0, 1].map(|side| findings(&comparison.sides[side].whole, &hosts[side]));
    let key = |side: usize, finding: &Finding| {
        let names = &comparison.sides[side].names;
        (finding.rule, finding.cgroup.as_ref().map(|path| names.get(path).unwrap_or(path).clone()))
    };
    let keys = [0, 1].map(|side| -> BTreeSet<_> { found[side].iter().map(|one| key(side, one)).collect() });
    let mut changes = Vec::new();
    for (side, presence) in [Presence::OnlyBefore, Presence::OnlyAfter].into_iter().enumerate() {
        let alone = found[side].iter().filter(|finding| !keys[1 - side].contains(&key(side, finding)));
        changes.extend(alone.map(|finding| FindingChange { presence, finding: finding.clone() }));
    }
    let kept = found[0].iter().filter(|finding| keys[1].contains(&key(0, finding))).count();
    (changes, kept)
}

fn ranked(
    comparison: &Comparison,
    subjects: &[SubjectPair],
    which: impl Fn(&DiffSubject) -> bool,
) -> [Vec<Ranked>; 2] {
    [0, 1].map(|side| {
        let these = subjects.iter().filter(|pair| which(&pair.subject)).map(|pair| Ranked {
            subject: pair.subject.clone(),
            wait: comparison.share(pair, Measure::Wait, side),
            on_cpu: comparison.share(pair, Measure::OnCpu, side),
        });
        let mut ranked: Vec<Ranked> = these.filter(|ranked| ranked.wait > 0.0).collect();
        ranked.sort_by(|a, b| b.wait.total_cmp(&a.wait).then_with(|| a.subject.cmp(&b.subject)));
        ranked.truncate(TOP);
        ranked
    })
}

/// The unit of a figure's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Share of wall time, summed over tasks or CPUs. 0.5 is half the time of one task, or half a CPU.
    WallShare,
    /// Events per second.
    PerSecond,
    /// Share of a total, 0 to 1.
    Share,
    /// Nanoseconds.
    Ns,
}

/// The modes of the two recordings for which a figure has the same meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedIn {
    Any,
    /// Both exact, or both coarse.
    Alike,
    /// Both exact.
    Exact,
    /// At least one coarse.
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
    /// The least change that matters: in the figure's unit, and as a share of the larger side. A change must reach both limits.
    #[serde(skip)]
    pub(crate) least: (f64, f64),
    /// The cells of the numerator and of the divisor. A divisor of `None` is wall time.
    #[serde(skip)]
    pub(crate) ratio: (usize, Option<usize>),
    /// The quantile of waits that this figure shows; `None`: the figure is a ratio.
    #[serde(skip)]
    pub(crate) quantile: Option<f64>,
    /// The cell that counts the figure's events. A figure with few events is not tested.
    #[serde(skip)]
    pub(crate) events: Option<usize>,
    /// True if the figure covers only the cgroup itself, without its descendants.
    #[serde(skip)]
    pub(crate) is_own: bool,
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
            // Coarse recordings count every wait as unattributed, unless a quota explains it.
            Cause::Unattributed => ComparedIn::Alike,
            _ if shown(cause).exact_only => ComparedIn::Exact,
            _ => ComparedIn::Any,
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

    /// True if recordings of these two modes have the figure, with the same meaning.
    pub(crate) fn is_comparable(&self, modes: [Mode; 2]) -> bool {
        let is_exact = modes == [Mode::Bpf; 2];
        match self.compared_in {
            ComparedIn::Any => true,
            ComparedIn::Alike => modes[0] == modes[1],
            ComparedIn::Exact => is_exact,
            ComparedIn::Coarse => !is_exact,
        }
    }
}

/// Returns all figures that are compared.
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
