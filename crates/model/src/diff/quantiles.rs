//! Quantiles of waits in each draw of blocks.

use cgscope_layout::high_ns;

use super::{
    blocks::Measure,
    series::{Comparison, SubjectPair},
};

/// For each of `quantiles`, after minus before, ns, in each draw of blocks.
pub(super) fn drawn_quantiles(
    comparison: &Comparison,
    pair: &SubjectPair,
    draws: &[Vec<f32>],
    quantiles: &[f64],
) -> Vec<Vec<f64>> {
    let hists = [0, 1].map(|side| BlockHists::new(comparison, pair, side));
    let mut out = vec![Vec::new(); quantiles.len()];
    for draw in draws {
        let (first, second) = draw.split_at(comparison.shape.first);
        let times = if comparison.order[0] == 0 { [first, second] } else { [second, first] };
        let drawn = |side: usize| hists[side].quantiles(times[side], quantiles);
        let (Some(before), Some(after)) = (drawn(0), drawn(1)) else { continue };
        for (out, (before, after)) in out.iter_mut().zip(before.iter().zip(&after)) {
            out.push(after - before);
        }
    }
    out
}

/// The histograms of the blocks of a side, over the buckets that it uses.
struct BlockHists {
    lowest: usize,
    width: usize,
    /// One row for each block.
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
