//! Two recordings side by side.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use super::{
    CONFIDENCE, Change, Diff, Distribution, ERROR, Figure, FindingChange, LEAST_DISTANCE, Length,
    LimitChange, Presence, Ranked, Side, Subject, TOP, Unit, Verdict,
    blocks::Measure,
    distribution,
    figure::QUANTILES,
    matching,
    recorded::{Recorded, same_settings},
    resample::{self, Draws, Series},
    series::{Both, Frame, bucket_at, is_rare, is_unknown, scale},
    subjects::{alone, chosen, presence, subjects},
};
use crate::{
    findings::{Finding, Host, findings},
    sum,
};

/// Subjects whose distributions are compared: those that waited most.
const DISTRIBUTIONS: usize = 30;
/// Where distributions are looked at, in thousandths: at the quantiles that are told, and below.
const LOOKED_AT: [u16; 6] = [100, 250, 500, 750, 900, 990];

/// What changed from `before` to `after`. `hosts`: what findings are judged by, of both.
///
/// The same recordings give the same answer, and swapped ones the mirrored answer.
pub fn compare(before: Side, after: Side, hosts: &[Host; 2]) -> Diff {
    let (mut before, mut after) = (before.finish(), after.finish());
    matching::align(&mut before, &mut after);
    let frame = Frame::new(&before, &after);
    let subjects = subjects(&frame);
    let chosen = chosen(&frame, &subjects);
    let mut table = Table::new(&frame, &chosen);
    table.judge();
    let findings = found(&frame, hosts);
    Diff {
        lengths: frame.sides.map(length),
        tested: table.series.len(),
        limits: limits(&frame),
        kept_findings: findings.1,
        findings: findings.0,
        cgroups: ranked(
            &frame,
            &subjects,
            |subject| matches!(subject, Subject::Cgroup(path) if &**path != "/"),
        ),
        programs: ranked(&frame, &subjects, |subject| matches!(subject, Subject::Program(_))),
        alone: alone(&frame, &chosen),
        changes: table.changes,
        distributions: table.distributions,
    }
}

fn length(side: &Recorded) -> Length {
    Length {
        intervals: side.intervals,
        blocks: side.blocks.lengths_ns.len(),
        duration_ns: sum::total(side.blocks.lengths_ns.iter().copied()),
        mode: side.whole.mode,
    }
}

/// The figures, before they are judged and after.
struct Table<'f, 's, 'a> {
    frame: &'f Frame<'a>,
    series: Vec<Series>,
    changes: Vec<Change>,
    /// For each of `changes` its series; `None`: not tested.
    tested: Vec<Option<usize>>,
    of: Vec<&'s Both<'a>>,
    distributions: Vec<Distribution>,
    /// For each distribution its series and its subject.
    looked_at: Vec<(Vec<usize>, &'s Both<'a>)>,
}

impl<'f, 's, 'a> Table<'f, 's, 'a> {
    fn new(frame: &'f Frame<'a>, chosen: &[(&'s Both<'a>, bool)]) -> Self {
        let mut table = Self {
            frame,
            series: Vec::new(),
            changes: Vec::new(),
            tested: Vec::new(),
            of: Vec::new(),
            distributions: Vec::new(),
            looked_at: Vec::new(),
        };
        let [before, after] = frame.modes();
        let mut distributions = 0;
        for (both, is_shadow) in chosen {
            for figure in Figure::counted().filter(|figure| figure.is_told(before, after)) {
                let is_limit =
                    matches!(figure, Figure::ThrottledPeriods | Figure::Stood | Figure::RemoteShare);
                if is_limit || !is_shadow {
                    table.counted(both, figure);
                }
            }
            if Figure::Quantile(500).is_told(before, after) && !is_shadow && distributions < DISTRIBUTIONS {
                distributions += usize::from(table.waits(both));
            }
        }
        table
    }

    fn counted(&mut self, both: &'s Both<'a>, figure: Figure) {
        if is_unknown(both, figure) {
            return;
        }
        let values = [0, 1].map(|side| self.frame.value(both, figure, side));
        let largest = values.into_iter().flatten().fold(0.0, f64::max);
        if largest < figure.least().change / 2.0 {
            return;
        }
        let series = if is_rare(both, figure) { None } else { self.frame.counted(both, figure) };
        self.push(both, figure, values, series);
    }

    fn push(&mut self, both: &'s Both<'a>, figure: Figure, values: [Option<f64>; 2], series: Option<Series>) {
        let waited =
            f64::max(self.frame.share(both, Measure::Wait, 0), self.frame.share(both, Measure::Wait, 1));
        let tested = series.map(|series| self.add(series));
        self.changes.push(Change {
            subject: both.subject.clone(),
            figure,
            presence: presence(self.frame, &both.subject),
            before: values[0],
            after: values[1],
            interval: None,
            p: None,
            verdict: Verdict::TooFewEvents,
            size: size(figure, values, waited),
        });
        self.tested.push(tested);
        self.of.push(both);
    }

    fn add(&mut self, series: Series) -> usize {
        self.series.push(series);
        self.series.len() - 1
    }

    /// The lengths of a subject's waits: true if both sides have some.
    fn waits(&mut self, both: &'s Both<'a>) -> bool {
        let hists = [0, 1].map(|side: usize| both.sums[side].hist());
        if hists.iter().any(|hist| hist.count() == 0) {
            return false;
        }
        let longest_ns = [0, 1].map(|side: usize| both.sums[side].get(Measure::Longest));
        let mut looked_at = Vec::new();
        for thousandths in LOOKED_AT {
            let quantile = f64::from(thousandths) / 1_000.0;
            let bucket = bucket_at(&hists, quantile);
            let at = bucket.map(|bucket| self.add(self.frame.above(both, bucket, quantile)));
            looked_at.extend(at);
            if QUANTILES.contains(&thousandths) {
                let value =
                    |side: usize| hists[side].quantile_ns(quantile, longest_ns[side]).map(|ns| ns as f64);
                self.push(both, Figure::Quantile(thousandths), [value(0), value(1)], None);
                if let Some(tested) = self.tested.last_mut() {
                    *tested = at;
                }
            }
        }
        let (distance, at_ns) = distribution::distance(&hists[0], &hists[1]);
        let [before, after] = hists;
        let subject = both.subject.clone();
        let differs = false;
        self.distributions.push(Distribution {
            subject,
            before,
            after,
            longest_ns,
            distance,
            at_ns,
            p: 1.0,
            differs,
        });
        self.looked_at.push((looked_at, both));
        true
    }

    fn judge(&mut self) {
        let shape = self.frame.shape.clone();
        let p = resample::family_wise(&self.series, &shape);
        let draws = Draws::new(&shape);
        let quantiles = self.quantile_intervals(&draws);
        for i in 0..self.changes.len() {
            let tested = self.tested[i];
            let interval = match self.changes[i].figure {
                Figure::Quantile(_) => quantiles.get(&i).copied(),
                figure => {
                    tested.and_then(|at| self.interval(at, &self.changes[i], &draws, scale(figure.unit())))
                }
            };
            let change = &mut self.changes[i];
            (change.interval, change.p) = (interval, tested.map(|at| p[at]).filter(|_| shape.is_enough()));
            change.verdict = verdict(change, shape.is_enough());
        }
        for (distribution, (looked_at, _)) in self.distributions.iter_mut().zip(&self.looked_at) {
            distribution.p = looked_at.iter().map(|at| p[*at]).fold(1.0, f64::min);
            distribution.differs = distribution.p <= ERROR && distribution.distance >= LEAST_DISTANCE;
        }
        self.changes.sort_by(order);
        self.distributions.sort_by(|a, b| {
            let called = b.differs.cmp(&a.differs);
            called.then(b.distance.total_cmp(&a.distance)).then_with(|| a.subject.cmp(&b.subject))
        });
    }

    fn interval(&self, at: usize, change: &Change, draws: &Draws, scale: f64) -> Option<(f64, f64)> {
        let (shape, series) = (&self.frame.shape, &self.series[at]);
        let sign = if self.frame.order[0] == 0 { 1.0 } else { -1.0 };
        let drawn = draws.differences(series, shape).into_iter().map(|difference| difference * sign * scale);
        resample::interval(drawn.collect(), change.change()?, shape, series.widening(shape), CONFIDENCE)
    }

    /// For each change of a quantile where it lies.
    fn quantile_intervals(&self, draws: &Draws) -> HashMap<usize, (f64, f64)> {
        let mut intervals = HashMap::new();
        let shape = &self.frame.shape;
        let mut at = 0;
        while at < self.changes.len() {
            let Figure::Quantile(_) = self.changes[at].figure else {
                at += 1;
                continue;
            };
            let these: Vec<usize> = (at..at + QUANTILES.len()).collect();
            at += QUANTILES.len();
            if !shape.is_enough() {
                continue;
            }
            let quantiles = QUANTILES.map(|thousandths| f64::from(thousandths) / 1_000.0);
            let drawn = distribution::drawn_quantiles(self.frame, self.of[these[0]], draws, &quantiles);
            for (i, drawn) in these.into_iter().zip(drawn) {
                let widening = self.tested[i].map(|at| self.series[at].widening(shape));
                let interval = self.changes[i].change().zip(widening).and_then(|(change, widening)| {
                    resample::interval(drawn, change, shape, widening, CONFIDENCE)
                });
                intervals.extend(interval.map(|interval| (i, interval)));
            }
        }
        intervals
    }
}

/// See [`Change::size`].
fn size(figure: Figure, [before, after]: [Option<f64>; 2], waited: f64) -> f64 {
    let (Some(before), Some(after)) = (before, after) else { return 0.0 };
    let change = (after - before).abs();
    match figure.unit() {
        Unit::WallShare => change,
        _ => change / f64::max(before, after).max(f64::MIN_POSITIVE) * waited,
    }
}

fn verdict(change: &Change, is_enough: bool) -> Verdict {
    let (Some(p), Some(difference)) = (change.p, change.change()) else {
        return if is_enough { Verdict::TooFewEvents } else { Verdict::TooShort };
    };
    let excludes_none = change.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0);
    let larger = f64::max(change.before.unwrap_or(0.0), change.after.unwrap_or(0.0));
    let least = change.figure.least();
    let is_large = difference.abs() >= least.change && difference.abs() >= least.relative * larger;
    match p <= ERROR && excludes_none {
        true if is_large => Verdict::MoreThanNoise,
        true => Verdict::Negligible,
        false => Verdict::WithinNoise,
    }
}

/// What is more than noise comes first, and shares of wall time before what is behind them.
fn order(a: &Change, b: &Change) -> Ordering {
    let is_time = |change: &Change| change.figure.unit() == Unit::WallShare;
    b.is_called()
        .cmp(&a.is_called())
        .then(is_time(b).cmp(&is_time(a)))
        .then(b.size.total_cmp(&a.size))
        .then_with(|| a.subject.cmp(&b.subject))
        .then_with(|| a.figure.name().cmp(&b.figure.name()))
}

fn limits(frame: &Frame) -> Vec<LimitChange> {
    let [before, after] = frame.sides;
    let paths =
        before.limits.iter().filter_map(|(path, limits)| Some((path, limits, after.limits.get(path)?)));
    let changes = paths.map(|(path, limits, later)| LimitChange {
        path: path.clone(),
        before: limits.clone(),
        after: later.clone(),
        during: frame.sides.map(|side| side.changed_limits.contains(path)),
    });
    let is_told = |change: &LimitChange| {
        let settings = change.before.as_ref().zip(change.after.as_ref());
        let is_same = settings.is_some_and(|(before, after)| same_settings(before, after));
        !is_same || change.during.contains(&true)
    };
    changes.filter(is_told).collect()
}

/// Findings that are new or gone, and how many both have.
fn found(frame: &Frame, hosts: &[Host; 2]) -> (Vec<FindingChange>, usize) {
    let of = |side: usize| {
        let names = &frame.sides[side].names;
        let named = |finding: &Finding| {
            let path = finding.cgroup.as_ref().map(|path: &Arc<str>| names.get(path).unwrap_or(path).clone());
            (finding.rule, path)
        };
        let found = findings(&frame.sides[side].whole, &hosts[side]);
        found.into_iter().map(|finding| (named(&finding), finding)).collect::<Vec<_>>()
    };
    let found = [of(0), of(1)];
    let keys = [0, 1].map(|side: usize| found[side].iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
    let kept = keys[0].iter().filter(|key| keys[1].contains(key)).count();
    let mut changes = Vec::new();
    for (found, (other, presence)) in
        found.into_iter().zip([(&keys[1], Presence::OnlyBefore), (&keys[0], Presence::OnlyAfter)])
    {
        let alone = found.into_iter().filter(|(key, _)| !other.contains(key));
        changes.extend(alone.map(|(_, finding)| FindingChange { presence, finding }));
    }
    (changes, kept)
}

/// Who waited most, on each side.
fn ranked(frame: &Frame, subjects: &[Both], which: impl Fn(&Subject) -> bool) -> [Vec<Ranked>; 2] {
    [0, 1].map(|side| {
        let of = subjects.iter().filter(|both| which(&both.subject)).map(|both| Ranked {
            subject: both.subject.clone(),
            wait: frame.share(both, Measure::Wait, side),
            on_cpu: frame.share(both, Measure::OnCpu, side),
        });
        let mut ranked: Vec<Ranked> = of.filter(|ranked| ranked.wait > 0.0).collect();
        ranked.sort_by(|a, b| b.wait.total_cmp(&a.wait).then_with(|| a.subject.cmp(&b.subject)));
        ranked.truncate(TOP);
        ranked
    })
}
