//! The distributions of waits: their distance, and their quantiles with what drawing blocks anew makes of them.

use cgscope_layout::{BUCKETS, high_ns};

use super::{
    resample::{Draws, Shape},
    series::{Both, Frame},
};
use crate::Hist;

/// The largest difference between the shares of waits up to a length, and that length in ns.
pub(super) fn distance(before: &Hist, after: &Hist) -> (f64, u64) {
    let counts = [before, after].map(|hist| {
        let mut counts = [0.0; BUCKETS];
        hist.counts().for_each(|(bucket, count)| counts[bucket] = count as f64);
        counts
    });
    let totals = counts.map(|counts| counts.iter().sum::<f64>());
    let (mut sums, mut largest) = ([0.0; 2], (0.0, 0));
    if totals.contains(&0.0) {
        return largest;
    }
    for (bucket, (before, after)) in counts[0].iter().zip(&counts[1]).enumerate() {
        sums[0] += before / totals[0];
        sums[1] += after / totals[1];
        let difference = f64::abs(sums[0] - sums[1]);
        if difference > largest.0 {
            largest = (difference, high_ns(bucket));
        }
    }
    largest
}

/// For each quantile asked for, after less before in ns in each draw of blocks.
pub(super) fn drawn_quantiles(frame: &Frame, both: &Both, draws: &Draws, quantiles: &[f64]) -> Vec<Vec<f64>> {
    let tables = [0, 1].map(|side| Table::new(frame, both, side));
    let mut out = vec![Vec::new(); quantiles.len()];
    for draw in draws.iter() {
        let of = |side: usize| tables[side].quantiles(part(draw, frame, side), quantiles);
        let (Some(before), Some(after)) = (of(0), of(1)) else { continue };
        for (out, (before, after)) in out.iter_mut().zip(before.iter().zip(&after)) {
            out.push(after - before);
        }
    }
    out
}

/// The part of a draw that is about one side.
fn part<'d>(draw: &'d [f32], frame: &Frame, side: usize) -> &'d [f32] {
    let Shape { first, .. } = frame.shape;
    if frame.order[0] == side { &draw[..first] } else { &draw[first..] }
}

/// The histograms of the blocks of a side, over the buckets that it uses.
struct Table {
    lowest: usize,
    width: usize,
    /// A row a block.
    counts: Vec<f32>,
    longest_ns: u64,
}

impl Table {
    fn new(frame: &Frame, both: &Both, side: usize) -> Self {
        let rows = || both.rows[side].iter().flat_map(|rows| rows.buckets());
        let used = || rows().flat_map(|(_, buckets)| buckets.map(|(bucket, _)| bucket));
        let (lowest, highest) = (used().min().unwrap_or(0), used().max().unwrap_or(0));
        let width = highest - lowest + 1;
        let mut counts = vec![0.0; width * frame.sides[side].blocks.lengths_ns.len()];
        for (block, buckets) in rows() {
            for (bucket, count) in buckets {
                counts[block * width + bucket - lowest] = count as f32;
            }
        }
        Self { lowest, width, counts, longest_ns: both.sums[side].get(super::blocks::Measure::Longest) }
    }

    /// `None` if no wait was drawn.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_largest_difference_of_the_shares() {
        let one = Hist::from_waits_ns([10_000, 10_000, 10_000, 5_000_000]);
        let other = Hist::from_waits_ns([10_000, 5_000_000, 5_000_000, 5_000_000]);
        let (difference, at_ns) = distance(&one, &other);
        assert_eq!(difference, 0.5);
        assert!((10_000..12_000).contains(&at_ns));
        assert_eq!(distance(&one, &one).0, 0.0);
        assert_eq!(distance(&one, &Hist::default()).0, 0.0);
    }
}
