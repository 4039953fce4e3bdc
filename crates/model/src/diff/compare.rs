//! Compares two recordings and builds the table of changes.

use std::{cmp::Ordering, collections::BTreeSet};

use super::{
    Change, Diff, DiffSubject, ERROR, Figure, FigureUnit, FindingChange, Length, LimitChange, Presence,
    Ranked, Side, Verdict,
    blocks::{Measure, UNKNOWN},
    figures, names,
    resample::{DEALS, RatioSeries, draws, family_wise, interval},
    series::{Comparison, FEW_EVENTS, SubjectPair, bucket_at, chosen, drawn_quantiles, scale, subjects},
};
use crate::{
    findings::{Finding, Host, findings},
    sum,
};

/// Maximum number of subjects with quantiles of waits.
const WITH_QUANTILES: usize = 30;
/// Number of ranked cgroups, and of ranked programs, on each side.
const TOP: usize = 10;

/// Compares `before` with `after`. `hosts` are the hosts of the two recordings, for findings. Swapping the recordings mirrors the
/// result.
pub fn compare(before: Side, after: Side, hosts: &[Host; 2]) -> Diff {
    let (mut before, mut after) = (before.finish(), after.finish());
    names::align(&mut before, &mut after);
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

/// The table of changes while it is filled and not yet judged.
struct ChangeTable<'f, 'a> {
    comparison: &'f Comparison<'a>,
    draws: Vec<Vec<f32>>,
    series: Vec<RatioSeries>,
    /// Each change with its index in `series`; `None`: not tested.
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
        // Unknown on one side, because an older version of cgscope wrote that recording.
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

    /// Adds the quantiles of a subject's waits; false if a side has no waits.
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

    /// Adds a change of a figure. `tested`: the series of the figure, and its changes in the bootstrap draws.
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

/// Findings that only one recording has, and the number of findings that both have.
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

/// The subjects that waited most, for each side.
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
