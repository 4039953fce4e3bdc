//! The statistics: whether a difference of two ratios is more than chance, and the confidence interval of the difference. Each
//! block of time contributes to the numerator and the denominator. Test and interval use whole blocks, the same for all figures,
//! and assume that blocks are independent: so correlation widens both. `docs/diff.md` explains why.

use oorandom::Rand32;

use super::CONFIDENCE;

/// Minimum number of blocks of each side for a test. Fewer blocks have too few different permutations.
pub const FEWEST_BLOCKS: usize = 8;
/// Number of random permutations in a test.
pub(super) const DEALS: usize = 2_000;
/// Number of bootstrap draws for a confidence interval.
const DRAWS: usize = 1_000;
/// Fixed seed: the same recordings always give the same answer.
const SEED: u64 = 0x6367_7363_6f70_6531;
/// Maximum assumed correlation. A higher one would leave only a few independent observations.
const MOST_CORRELATION: f64 = 0.97;

/// A figure on both sides, block by block. Swapping the sides changes only the sign of the results.
#[derive(Clone, Debug)]
pub(super) struct RatioSeries {
    /// Numerator and denominator of each block: first the blocks of one side, then those of the other side.
    pub blocks: Vec<(f64, f64)>,
    /// Added to the standard error. Without it, a series that never varies would have infinite certainty.
    pub small: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub blocks: [usize; 2],
    /// Lengths of the sides, in the same unit.
    pub lengths: [f64; 2],
}

impl Shape {
    pub fn is_enough(&self) -> bool {
        self.blocks.iter().all(|blocks| *blocks >= FEWEST_BLOCKS)
    }

    fn counts(&self) -> [f64; 2] {
        self.blocks.map(|blocks| blocks as f64)
    }

    fn few(&self) -> f64 {
        self.blocks[0].min(self.blocks[1]) as f64
    }

    /// For each side: 1 / the mean length of a block.
    fn weights(&self) -> [f64; 2] {
        [0, 1].map(|side| self.counts()[side] / self.lengths[side])
    }
}

/// Sums over blocks: of the numerators x and the denominators d, and of x * x, x * d and d * d.
type Moments = [f64; 5];

fn moments((x, d): (f64, f64)) -> Moments {
    [x, d, x * x, x * d, d * d]
}

fn total(all: impl Iterator<Item = Moments>) -> Moments {
    all.fold([0.0; 5], |sum, more| std::array::from_fn(|i| sum[i] + more[i]))
}

/// Returns the moments after multiplying all numerators by `by`.
fn scaled([x, d, xx, xd, dd]: Moments, by: f64) -> Moments {
    [x * by, d, xx * by * by, xd * by, dd]
}

/// Returns the ratio and its variance; `None` if the denominator is 0.
fn ratio([x, d, xx, xd, dd]: Moments, blocks: f64) -> Option<(f64, f64)> {
    if d <= 0.0 {
        return None;
    }
    let ratio = x / d;
    let squares = (xx - 2.0 * ratio * xd + ratio * ratio * dd).max(0.0);
    Some((ratio, squares * blocks / ((blocks - 1.0) * d * d)))
}

/// Returns the difference divided by its standard error. The variance is the larger of two estimates. The first uses the variance
/// of each side's own blocks (Welch). The second pools the spread of both sides and uses their lengths, because a short recording
/// without spikes does not prove that spikes do not occur.
fn distance([first, second]: [Moments; 2], shape: &Shape, widen: f64, small: f64) -> f64 {
    let (counts, lengths) = (shape.counts(), shape.lengths);
    let (Some((a, var_a)), Some((b, var_b))) = (ratio(first, counts[0]), ratio(second, counts[1])) else {
        return 0.0;
    };
    let freedom = [counts[0] - 1.0, counts[1] - 1.0];
    let spread =
        (freedom[0] * var_a * lengths[0] + freedom[1] * var_b * lengths[1]) / (freedom[0] + freedom[1]);
    let pooled = spread * (1.0 / lengths[0] + 1.0 / lengths[1]);
    (a - b).abs() / ((var_a + var_b).max(pooled) * widen + small * small).sqrt()
}

impl RatioSeries {
    fn sides(&self, shape: &Shape) -> [&[(f64, f64)]; 2] {
        self.blocks.split_at(shape.blocks[0]).into()
    }

    fn moments(&self, shape: &Shape) -> [Moments; 2] {
        self.sides(shape).map(|blocks| total(blocks.iter().copied().map(moments)))
    }

    /// Returns the factor, at least 1, by which correlation of neighbouring blocks widens the variance of a mean.
    pub fn widening(&self, shape: &Shape) -> f64 {
        let (mut squares, mut products) = (0.0, 0.0);
        for (side, weight) in self.sides(shape).into_iter().zip(shape.weights()) {
            let Some((ratio, _)) = ratio(total(side.iter().copied().map(moments)), 2.0) else { continue };
            let rest: Vec<f64> = side.iter().map(|(x, d)| (x - ratio * d) * weight).collect();
            squares += rest.iter().map(|e| e * e).sum::<f64>();
            products += rest.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        }
        if squares <= 0.0 || !shape.is_enough() {
            return 1.0;
        }
        // Few values underestimate the correlation around their own mean (Kendall's bias, -(1 + 4 r) / n). The estimate is also
        // uncertain, so one standard error is added.
        let few = shape.few();
        let unbiased = (few * products / squares + 1.0) / (few - 4.0);
        let correlation = unbiased + 1.0 / (self.blocks.len() as f64).sqrt();
        let correlation = correlation.clamp(0.0, MOST_CORRELATION);
        (1.0 + correlation) / (1.0 - correlation)
    }

    /// Returns the second ratio minus the first, for each draw with a non-zero denominator on both sides.
    pub fn drawn_differences(&self, draws: &[Vec<u64>], shape: &Shape) -> Vec<f64> {
        let sides = self.sides(shape);
        let ratio = |side: usize, times: &[u64]| {
            let (mut x, mut d) = (0.0, 0.0);
            for ((num, den), times) in sides[side].iter().zip(times) {
                x += num * *times as f64;
                d += den * *times as f64;
            }
            (d > 0.0).then(|| x / d)
        };
        bootstrap(draws, shape, ratio).into_iter().map(|[first, second]| second - first).collect()
    }
}

/// Returns a statistic of each side, for each draw in which both sides have it.
pub(super) fn bootstrap<T>(
    draws: &[Vec<u64>],
    shape: &Shape,
    statistic: impl Fn(usize, &[u64]) -> Option<T>,
) -> Vec<[T; 2]> {
    let both = |draw: &Vec<u64>| {
        let (first, second) = draw.split_at(shape.blocks[0]);
        Some([statistic(0, first)?, statistic(1, second)?])
    };
    draws.iter().filter_map(both).collect()
}

/// Returns, for each series, the probability that chance alone makes any series differ as significantly as this one.
pub(super) fn family_wise(series: &[RatioSeries], shape: &Shape, deals: usize) -> Vec<f64> {
    if !shape.is_enough() || series.is_empty() {
        return vec![1.0; series.len()];
    }
    let mut largest = largest_differences(series, shape, deals);
    largest.sort_by(f64::total_cmp);
    let p = series.iter().map(|series| {
        let observed = distance(series.moments(shape), shape, series.widening(shape), series.small);
        // A permutation that equals the recordings must count despite rounding.
        let below = largest.partition_point(|chance| *chance < observed * (1.0 - 1e-9));
        (1 + largest.len() - below) as f64 / (1 + largest.len()) as f64
    });
    p.collect()
}

/// Returns the largest difference of all series, for each permutation. The mean of a long block varies less than the mean of a
/// short block. So blocks of different lengths are not exchangeable. The test therefore permutes deviations from the mean of both
/// recordings together, scaled to the standard deviation and the mean denominator of blocks of unit length. The side that
/// receives a deviation scales it to the length of its own blocks.
fn largest_differences(series: &[RatioSeries], shape: &Shape, deals: usize) -> Vec<f64> {
    let mut random = Rand32::new(SEED);
    let [first_blocks, second_blocks] = shape.blocks;
    let mut order: Vec<u16> = (0..(first_blocks + second_blocks) as u16).collect();
    let deal = |_| {
        for i in 0..first_blocks {
            let j = i + random.rand_range(0..(order.len() - i) as u32) as usize;
            order.swap(i, j);
        }
        order[..first_blocks].to_vec()
    };
    let dealt: Vec<Vec<u16>> = (0..deals).map(deal).collect();
    let spreads = shape.weights().map(f64::sqrt);
    let mut largest = vec![0.0; deals];
    // One series at a time: the blocks of one series fit in the cache. The moments of all series would take megabytes.
    for one in series {
        let mean = ratio(total(one.blocks.iter().copied().map(moments)), 2.0).map_or(0.0, |(mean, _)| mean);
        let blocks = one.blocks.iter().enumerate().map(|(block, (x, d))| {
            let spread = spreads[usize::from(block >= first_blocks)];
            moments(((x - mean * d) * spread, d * spread * spread))
        });
        let blocks: Vec<Moments> = blocks.collect();
        let all = total(blocks.iter().copied());
        for (largest, dealt) in largest.iter_mut().zip(&dealt) {
            let first = total(dealt.iter().map(|block| blocks[usize::from(*block)]));
            let second = std::array::from_fn(|i| all[i] - first[i]);
            let sides = [scaled(first, spreads[0]), scaled(second, spreads[1])];
            *largest = f64::max(*largest, distance(sides, shape, 1.0, one.small));
        }
    }
    largest
}

/// Returns bootstrap draws with replacement within each side. A draw holds how often each block was drawn.
pub(super) fn draws(shape: &Shape) -> Vec<Vec<u64>> {
    let mut random = Rand32::new(SEED ^ 1);
    let (first, all) = (shape.blocks[0], shape.blocks[0] + shape.blocks[1]);
    let mut draw = |_| {
        let mut times = vec![0; all];
        for (from, to) in [(0, first), (first, all)] {
            (from..to).for_each(|_| times[random.rand_range(from as u32..to as u32) as usize] += 1);
        }
        times
    };
    (0..DRAWS).map(&mut draw).collect()
}

/// Returns the confidence interval around `estimate` at level [`CONFIDENCE`]; `None` if there are too few draws or blocks. Its
/// ends are percentiles of the drawn estimates, moved outwards if blocks are few or correlated. With few blocks, a bootstrap
/// interval is too narrow, so Student's quantile replaces the normal quantile.
pub(super) fn interval(mut drawn: Vec<f64>, estimate: f64, shape: &Shape, widen: f64) -> Option<(f64, f64)> {
    if drawn.len() < DRAWS / 2 || !shape.is_enough() {
        return None;
    }
    drawn.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let at = |share: f64| drawn[((drawn.len() - 1) as f64 * share).round() as usize];
    let few = shape.few();
    let factor = student(few - 1.0) / NORMAL_QUANTILE * (few / (few - 1.0)).sqrt() * widen.sqrt();
    Some((estimate + (at(tail) - estimate) * factor, estimate + (at(1.0 - tail) - estimate) * factor))
}

/// The 99.5 % quantile of the normal distribution.
const NORMAL_QUANTILE: f64 = 2.575_829_303_548_901;

/// Returns Student's 99.5 % quantile, by Cornish and Fisher's expansion. The error is below 2 % from 5 degrees of freedom on.
fn student(freedom: f64) -> f64 {
    let z = NORMAL_QUANTILE;
    let z2 = z * z;
    let g1 = z * (z2 + 1.0) / 4.0;
    let g2 = z * (5.0 * z2 * z2 + 16.0 * z2 + 3.0) / 96.0;
    let g3 = z * (3.0 * z2.powi(3) + 19.0 * z2 * z2 + 17.0 * z2 - 15.0) / 384.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_agree_with_published_tables() {
        for (freedom, expected) in [(5.0, 4.032), (9.0, 3.250), (19.0, 2.861), (100.0, 2.626)] {
            let ours = student(freedom);
            assert!((ours - expected).abs() < 0.02 * expected, "{freedom}: {ours}");
        }
    }

    #[test]
    fn only_correlated_blocks_widen_the_interval() {
        let shape = Shape { blocks: [400, 400], lengths: [400.0, 400.0] };
        let mut random = Rand32::new(7);
        let mut noise = || f64::from(random.rand_float()) - 0.5;
        let mut widening = |phi: f64| {
            let mut x = 0.0;
            let num = (0..800).map(|_| {
                x = phi * x + noise();
                10.0 + x
            });
            let series = RatioSeries { blocks: num.map(|num| (num, 1.0)).collect(), small: 0.0 };
            series.widening(&shape)
        };
        assert!((1.0..1.2).contains(&widening(0.0)));
        // Expected: (1 + 0.5) / (1 - 0.5) = 3.
        assert!((2.5..3.6).contains(&widening(0.5)));
    }
}
