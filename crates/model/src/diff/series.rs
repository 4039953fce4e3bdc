//! Chooses the subjects and figures to test, and turns their blocks into series.

use std::collections::{BTreeSet, HashMap};

use cgscope_ledger::high_ns;

use super::{
    DiffSubject, Figure, FigureUnit, Presence,
    blocks::{BlockCells, Measure, SubjectBlocks},
    resample::{RatioSeries, Shape},
    side::Recorded,
};
use crate::{Hist, path::is_at_or_below, sum};

/// Minimum number of events, on both sides together, to test a rate. Also the minimum number of waits beyond a quantile.
pub(super) const FEW_EVENTS: f64 = 10.0;

pub(super) struct SubjectPair<'a> {
    pub subject: DiffSubject,
    pub presence: Presence,
    /// `None`: that side lacks the subject.
    pub rows: [Option<&'a SubjectBlocks>; 2],
    /// For each side, the sum over all blocks.
    pub sums: [BlockCells; 2],
}

pub(super) struct Comparison<'a> {
    pub sides: [&'a Recorded; 2],
    /// The side that comes first in each series, and the other side. The order of the arguments does not affect this order, so
    /// swapping the arguments mirrors the result.
    pub order: [usize; 2],
    pub shape: Shape,
    pub wall_ns: [f64; 2],
}

impl<'a> Comparison<'a> {
    pub fn new(before: &'a Recorded, after: &'a Recorded) -> Self {
        let sides = [before, after];
        let key = |side: &Recorded| {
            let waited = side.rows.get(&DiffSubject::All).map(|rows| rows.sum().get(Measure::Wait));
            (side.whole.start_unix_ns, side.whole.duration_ns, side.intervals, waited)
        };
        let order = if key(before) <= key(after) { [0, 1] } else { [1, 0] };
        let wall_ns = sides.map(|side| sum::total(side.blocks.lengths_ns.iter().copied()) as f64);
        let blocks = sides.map(|side| side.blocks.lengths_ns.len());
        let shape =
            Shape { blocks: order.map(|side| blocks[side]), lengths: order.map(|side| wall_ns[side]) };
        Self { sides, order, shape, wall_ns }
    }

    /// Builds the series of both sides. `parts` returns the numerators and denominators of one side. Both are divided by the
    /// side's mean block length, so that the blocks of both sides have the same mean weight.
    fn series(&self, parts: impl Fn(usize, usize) -> [Vec<f64>; 2], small: f64) -> RatioSeries {
        let blocks = self.order.into_iter().flat_map(|side| {
            let blocks = self.sides[side].blocks.lengths_ns.len();
            let weight = blocks as f64 / self.wall_ns[side];
            let [num, den] = parts(side, blocks);
            num.into_iter().zip(den).map(move |(num, den)| (num * weight, den * weight))
        });
        RatioSeries { blocks: blocks.collect(), small }
    }

    /// Returns the series of a figure that is a ratio of counters.
    pub fn counted(&self, pair: &SubjectPair, figure: &Figure) -> RatioSeries {
        let (sum, divisor) = figure.ratio;
        let parts = |side: usize, blocks| {
            let series =
                |cell| pair.rows[side].map_or_else(|| vec![0.0; blocks], |rows| rows.series(cell, blocks));
            let lengths_ns = self.sides[side].blocks.lengths_ns.iter();
            let divisor = divisor.map_or_else(|| lengths_ns.map(|ns| *ns as f64).collect(), series);
            [series(sum), divisor]
        };
        self.series(parts, figure.least.0 / scale(figure.unit) / 10.0)
    }

    /// Returns the series of the share of waits above a quantile's bucket.
    pub fn above(&self, pair: &SubjectPair, bucket: usize, quantile: f64) -> RatioSeries {
        let parts = |side: usize, blocks| match pair.rows[side] {
            Some(rows) => [rows.above(bucket, blocks), rows.waits(blocks)],
            None => [vec![0.0; blocks], vec![0.0; blocks]],
        };
        self.series(parts, quantile.min(1.0 - quantile) / 50.0)
    }

    /// Returns a ratio of counters over a whole side, in the figure's unit; `None` if the divisor is 0.
    pub fn value(&self, pair: &SubjectPair, figure: &Figure, side: usize) -> Option<f64> {
        let (sum, divisor) = figure.ratio;
        let sums = &pair.sums[side];
        let divisor = divisor.map_or(self.wall_ns[side], |cell| sums.at(cell) as f64);
        (divisor > 0.0).then(|| sums.at(sum) as f64 / divisor * scale(figure.unit))
    }

    /// Returns a measure as a share of wall time.
    pub fn share(&self, pair: &SubjectPair, measure: Measure, side: usize) -> f64 {
        pair.sums[side].get(measure) as f64 / self.wall_ns[side].max(1.0)
    }
}

/// Returns the factor from a ratio of counters to the unit.
pub(super) fn scale(unit: FigureUnit) -> f64 {
    match unit {
        FigureUnit::PerSecond => 1e9,
        FigureUnit::WallShare | FigureUnit::Share | FigureUnit::Ns => 1.0,
    }
}

/// Returns the bucket of the quantile of both sides together; `None` if too few waits are beyond the quantile.
pub(super) fn bucket_at(hists: &[Hist; 2], quantile: f64) -> Option<usize> {
    let total = sum::total(hists.iter().map(Hist::count));
    if (total as f64) * quantile.min(1.0 - quantile) < FEW_EVENTS {
        return None;
    }
    let mut all = hists[0].clone();
    all.add(&hists[1]);
    let rank = (quantile * total as f64).ceil() as u64;
    let mut seen = 0u64;
    all.counts().find_map(|(bucket, count)| {
        sum::add(&mut seen, count);
        (seen >= rank).then_some(bucket)
    })
}

/// Minimum share of wall time that a subject must run and wait on at least one side. Less active subjects are omitted.
const LEAST_ACTIVITY: f64 = 0.001;
/// Maximum number of compared subjects of each kind. The most active subjects are kept.
const MOST_SUBJECTS: usize = 60;

/// Returns the subjects of both sides. A subject may exist on only one side.
pub(super) fn subjects<'a>(comparison: &Comparison<'a>) -> Vec<SubjectPair<'a>> {
    let all: BTreeSet<&DiffSubject> = comparison.sides.iter().flat_map(|side| side.rows.keys()).collect();
    let pairs = all.into_iter().map(|subject| {
        let rows = comparison.sides.map(|side| side.rows.get(subject));
        let can_be_alone = matches!(subject, DiffSubject::Cgroup { .. } | DiffSubject::Program { .. });
        SubjectPair {
            subject: subject.clone(),
            presence: match rows {
                [Some(_), None] if can_be_alone => Presence::OnlyBefore,
                [None, Some(_)] if can_be_alone => Presence::OnlyAfter,
                _ => Presence::Both,
            },
            rows,
            sums: rows.map(|rows| rows.map(SubjectBlocks::sum).unwrap_or_default()),
        }
    });
    pairs.collect()
}

/// Returns the share of wall time that a subject waited and ran, on the side where this share is larger.
fn activity(comparison: &Comparison, pair: &SubjectPair) -> f64 {
    let measures = [Measure::Wait, Measure::OnCpu, Measure::Behind];
    let [before, after] =
        [0, 1].map(|side| measures.iter().map(|measure| comparison.share(pair, *measure, side)).sum::<f64>());
    before.max(after)
}

/// Returns the most active subjects of each kind. The flag marks a cgroup that is exactly as active as one of its descendants.
/// Only the figures marked `is_own` are compared for such a cgroup.
pub(super) fn chosen<'s, 'a>(
    comparison: &Comparison,
    subjects: &'s [SubjectPair<'a>],
) -> Vec<(&'s SubjectPair<'a>, bool)> {
    let key = |pair: &SubjectPair| {
        [0, 1].map(|side| {
            [Measure::Wait, Measure::OnCpu, Measure::Waits].map(|measure| pair.sums[side].get(measure))
        })
    };
    let mut alike: HashMap<[[u64; 3]; 2], Vec<&str>> = HashMap::new();
    for pair in subjects {
        if let DiffSubject::Cgroup { path } = &pair.subject {
            alike.entry(key(pair)).or_default().push(path);
        }
    }
    let is_chosen = |(activity, pair): &(f64, &SubjectPair)| match &pair.subject {
        DiffSubject::All | DiffSubject::Own => true,
        DiffSubject::Cgroup { path } if &**path == "/" => false,
        _ => *activity >= LEAST_ACTIVITY,
    };
    let mut chosen: Vec<(f64, &SubjectPair)> =
        subjects.iter().map(|pair| (activity(comparison, pair), pair)).filter(is_chosen).collect();
    chosen.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut counts = HashMap::new();
    chosen.retain(|(_, pair)| {
        let count = counts.entry(std::mem::discriminant(&pair.subject)).or_insert(0);
        *count += 1;
        *count <= MOST_SUBJECTS
    });
    let is_shadow = |pair: &SubjectPair| {
        let DiffSubject::Cgroup { path } = &pair.subject else { return false };
        let is_below = |other: &&str| *other != &**path && is_at_or_below(other, path);
        alike.get(&key(pair)).is_some_and(|paths| paths.iter().any(is_below))
    };
    chosen.into_iter().map(|(_, pair)| (pair, is_shadow(pair))).collect()
}

/// Returns, for each of `quantiles`, the value after minus the value before in each draw of blocks, ns.
pub(super) fn drawn_quantiles(
    comparison: &Comparison,
    pair: &SubjectPair,
    draws: &[Vec<f32>],
    quantiles: &[f64],
) -> Vec<Vec<f64>> {
    let hists = [0, 1].map(|side| BlockHists::new(comparison, pair, side));
    let mut out = vec![Vec::new(); quantiles.len()];
    for draw in draws {
        let (first, second) = draw.split_at(comparison.shape.blocks[0]);
        let times = if comparison.order[0] == 0 { [first, second] } else { [second, first] };
        let drawn = |side: usize| hists[side].quantiles(times[side], quantiles);
        let (Some(before), Some(after)) = (drawn(0), drawn(1)) else { continue };
        for (out, (before, after)) in out.iter_mut().zip(before.iter().zip(&after)) {
            out.push(after - before);
        }
    }
    out
}

/// The histograms of one side's blocks, limited to the used buckets.
struct BlockHists {
    lowest: usize,
    width: usize,
    /// One row of `width` counts for each block.
    counts: Vec<f32>,
    longest_ns: u64,
}

impl BlockHists {
    fn new(comparison: &Comparison, pair: &SubjectPair, side: usize) -> Self {
        let rows = || pair.rows[side].iter().flat_map(|rows| rows.buckets());
        let used = || rows().flat_map(|(_, buckets)| buckets.map(|(bucket, _)| bucket));
        let (lowest, highest) = (used().min().unwrap_or(0), used().max().unwrap_or(0));
        let width = highest - lowest + 1;
        let mut counts = vec![0.0; width * comparison.sides[side].blocks.lengths_ns.len()];
        for (block, buckets) in rows() {
            for (bucket, count) in buckets {
                counts[block * width + bucket - lowest] = count as f32;
            }
        }
        Self { lowest, width, counts, longest_ns: pair.sums[side].get(Measure::Longest) }
    }

    /// Returns the quantiles of a draw, ns; `None` if the draw contains no wait.
    fn quantiles(&self, times: &[f32], quantiles: &[f64]) -> Option<Vec<f64>> {
        let mut sums = vec![0.0f32; self.width];
        for (block, times) in self.counts.chunks_exact(self.width).zip(times) {
            if *times != 0.0 {
                sums.iter_mut().zip(block).for_each(|(sum, count)| *sum += count * times);
            }
        }
        let total: f64 = sums.iter().map(|count| f64::from(*count)).sum();
        (total > 0.0)
            .then(|| quantiles.iter().map(|quantile| self.quantile(&sums, quantile * total)).collect())
    }

    fn quantile(&self, sums: &[f32], rank: f64) -> f64 {
        let mut seen = 0.0;
        for (i, count) in sums.iter().enumerate() {
            seen += f64::from(*count);
            if seen >= rank && *count > 0.0 {
                return (high_ns(self.lowest + i) - 1).min(self.longest_ns) as f64;
            }
        }
        self.longest_ns as f64
    }
}
