//! From blocks to series: which figures of which subjects are tested, and what they are made of.

use super::{
    DiffSubject, Figure, FigureUnit, Presence,
    blocks::{BlockSums, Measure, SubjectBlocks, UNKNOWN},
    resample::{RatioSeries, Shape},
    side::Recorded,
};
use crate::{Hist, sum};

/// A rate of fewer events than these, on both sides together, says nothing, nor does a quantile with fewer waits beyond it.
const FEW_EVENTS: f64 = 10.0;

/// A subject on both sides.
pub(super) struct SubjectPair<'a> {
    pub subject: DiffSubject,
    pub presence: Presence,
    /// `None`: it was not there.
    pub rows: [Option<&'a SubjectBlocks>; 2],
    pub sums: [BlockSums; 2],
}

/// What all series share.
pub(super) struct Comparison<'a> {
    pub sides: [&'a Recorded; 2],
    /// The order of the sides in series: the same whichever was named first, so that the answer is mirrored if they are swapped.
    pub order: [usize; 2],
    pub shape: Shape,
    /// Length of the sides, ns.
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
        let shape = Shape {
            first: blocks[order[0]],
            blocks: blocks[0] + blocks[1],
            lengths: order.map(|side| wall_ns[side]),
        };
        Self { sides, order, shape, wall_ns }
    }

    /// The series of both sides, from numerators and denominators of the blocks of one. Those of a side are divided by its mean block,
    /// so that all blocks weigh alike.
    fn series(&self, parts: impl Fn(usize, usize) -> [Vec<f64>; 2], small: f64) -> RatioSeries {
        let blocks = self.order.into_iter().flat_map(|side| {
            let blocks = self.sides[side].blocks.lengths_ns.len();
            let weight = blocks as f64 / self.wall_ns[side];
            let [num, den] = parts(side, blocks);
            num.into_iter().zip(den).map(move |(num, den)| (num * weight, den * weight))
        });
        RatioSeries { blocks: blocks.collect(), small }
    }

    /// A counted figure, block by block.
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

    /// The share of waits above the bucket of this quantile, block by block.
    pub fn above(&self, pair: &SubjectPair, bucket: usize, quantile: f64) -> RatioSeries {
        let parts = |side: usize, blocks| match pair.rows[side] {
            Some(rows) => [rows.above(bucket, blocks), rows.waits(blocks)],
            None => [vec![0.0; blocks], vec![0.0; blocks]],
        };
        self.series(parts, quantile.min(1.0 - quantile) / 50.0)
    }

    /// A counted figure over a whole side, in its unit; `None` where it is a share of nothing.
    pub fn value(&self, pair: &SubjectPair, figure: &Figure, side: usize) -> Option<f64> {
        let (sum, divisor) = figure.ratio;
        let sums = &pair.sums[side];
        let divisor = divisor.map_or(self.wall_ns[side], |cell| sums.at(cell) as f64);
        (divisor > 0.0).then(|| sums.at(sum) as f64 / divisor * scale(figure.unit))
    }

    /// Share of wall time.
    pub fn share(&self, pair: &SubjectPair, measure: Measure, side: usize) -> f64 {
        pair.sums[side].get(measure) as f64 / self.wall_ns[side].max(1.0)
    }
}

/// From a ratio of counters to the unit.
pub(super) fn scale(unit: FigureUnit) -> f64 {
    match unit {
        FigureUnit::PerSecond => 1e9,
        FigureUnit::WallShare | FigureUnit::Share | FigureUnit::Ns => 1.0,
    }
}

/// True if a side has no such counter: it was recorded before that was counted.
pub(super) fn is_unknown(pair: &SubjectPair, figure: &Figure) -> bool {
    pair.sums.iter().any(|sums| sums.at(figure.ratio.0) == UNKNOWN)
}

/// True if there are too few events for a rate.
pub(super) fn is_rare(pair: &SubjectPair, figure: &Figure) -> bool {
    figure.events.is_some_and(|events| {
        let count = sum::total(pair.sums.iter().map(|sums| sums.at(events)));
        (count as f64) < FEW_EVENTS
    })
}

/// The bucket that the quantile of both sides together lies in; `None` where too few waits are beyond it.
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
