//! Tests only the statistics, with hundreds of tables of figures.

use oorandom::Rand32;

use crate::diff::{
    ERROR,
    resample::{RatioSeries, Shape, draws, family_wise, interval},
    side::block_length,
};

/// Fewer permutations than in production, because test builds are not optimised.
const DEALS: usize = 300;

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Independent, nearly normally distributed.
    Plain,
    /// Each interval is correlated with the previous interval by this factor.
    Correlated(f64),
    /// Zero in most intervals; the other values differ greatly in size.
    Rare,
    /// Steady, with an occasional spike.
    Spikes,
    Constant,
    /// Intervals of very different lengths.
    Uneven,
    /// A share of events, where the number of events varies.
    ShareOfCounts,
}

const MIXED: [Kind; 6] =
    [Kind::Plain, Kind::Correlated(0.5), Kind::Rare, Kind::Spikes, Kind::Constant, Kind::ShareOfCounts];

struct Noise(Rand32);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(Rand32::new(seed))
    }

    fn uniform(&mut self) -> f64 {
        f64::from(self.0.rand_float()).max(1e-9)
    }

    /// Returns the sum of 12 uniform values, minus 6, which is nearly normally distributed.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// Returns numerators and denominators of `count` intervals, around `mean`.
    fn intervals(&mut self, kind: Kind, mean: f64, count: usize) -> (Vec<f64>, Vec<f64>) {
        let mut last = self.normal();
        let mut one = || match kind {
            Kind::Plain => (mean * (1.0 + 0.2 * self.normal()), 1.0),
            Kind::Correlated(phi) => {
                last = phi * last + (1.0 - phi * phi).sqrt() * self.normal();
                (mean * (1.0 + 0.2 * last), 1.0)
            }
            Kind::Rare if self.uniform() < 0.1 => (mean * 3.0 * self.uniform().powf(-0.6), 1.0),
            Kind::Rare => (0.0, 1.0),
            Kind::Spikes if self.uniform() < 0.05 => (mean * 10.0, 1.0),
            Kind::Spikes => (mean * (1.0 + 0.05 * self.normal()), 1.0),
            Kind::Constant => (mean, 1.0),
            Kind::Uneven => {
                let length = 0.2 + 3.0 * self.uniform() * self.uniform();
                (mean * (length + 0.2 * length.sqrt() * self.normal()), length)
            }
            Kind::ShareOfCounts => {
                let count = (20.0 * self.uniform()).ceil();
                (mean * (0..count as usize).filter(|_| self.uniform() < 0.3).count() as f64, count)
            }
        };
        (0..count).map(|_| one()).unzip()
    }

    /// Returns a figure of both sides, with intervals grouped into blocks as in a recording.
    fn series(&mut self, kind: Kind, means: [f64; 2], counts: [usize; 2]) -> (RatioSeries, Shape) {
        let mut series = RatioSeries { blocks: Vec::new(), small: 0.0005 };
        let mut blocks = [0; 2];
        for side in 0..2 {
            let (num, den) = self.intervals(kind, means[side], counts[side]);
            let each = block_length(counts[side]);
            let blocked = |values: &[f64]| -> Vec<f64> {
                let whole = values.chunks_exact(each);
                whole.map(|block| block.iter().sum::<f64>()).collect()
            };
            blocks[side] = blocked(&num).len();
            series.blocks.extend(blocked(&num).into_iter().zip(blocked(&den)));
        }
        let lengths = counts.map(|count| count as f64);
        (series, Shape { blocks, lengths })
    }
}

/// Returns the share of tables in which a figure is reported as more than noise, although both sides have the same distribution.
fn false_alarms(kinds: &[Kind], counts: [usize; 2], figures: usize, tries: u64) -> f64 {
    let is_alarm = |seed: u64| {
        let mut noise = Noise::new(seed);
        let of = |i: usize| noise.series(kinds[i % kinds.len()], [1.0; 2], counts);
        let (series, shapes): (Vec<_>, Vec<_>) = (0..figures).map(of).unzip();
        family_wise(&series, &shapes[0], DEALS).into_iter().any(|p| p <= ERROR)
    };
    let alarms = (0..tries).filter(|seed| is_alarm(1_000 + seed)).count();
    alarms as f64 / tries as f64
}

#[test]
fn at_most_one_in_twenty_tables_without_a_change_reports_one() {
    for counts in [[8, 8], [10, 10], [30, 30], [60, 60], [10, 300], [30, 300], [300, 300]] {
        let share = false_alarms(&MIXED, counts, 12, 100);
        assert!(share <= 0.05, "{counts:?}: {share}");
    }
}

#[test]
fn correlation_rare_events_and_spikes_do_not_look_like_a_change() {
    for (kind, counts) in [
        (Kind::Correlated(0.5), [30, 30]),
        (Kind::Correlated(0.8), [60, 60]),
        (Kind::Correlated(0.95), [300, 300]),
        (Kind::Correlated(0.8), [30, 300]),
        (Kind::Rare, [10, 10]),
        (Kind::Rare, [30, 300]),
        (Kind::Spikes, [30, 30]),
        (Kind::Spikes, [30, 300]),
        (Kind::ShareOfCounts, [10, 10]),
        (Kind::Uneven, [10, 10]),
        (Kind::Uneven, [10, 300]),
    ] {
        let share = false_alarms(&[kind], counts, 12, 60);
        assert!(share <= 0.05, "{kind:?} {counts:?}: {share}");
    }
}

#[test]
fn a_long_and_a_short_recording_differ_only_by_chance() {
    // A recording of 8 intervals has blocks of 1 interval; a recording of 3,000 has blocks of 64.
    let share = false_alarms(&[Kind::Plain], [8, 3_000], 12, 120);
    assert!(share <= 0.03, "{share}");
}

/// Tests tables in which one figure changed and the other figures did not. Returns how often the changed figure is found, how
/// often an unchanged figure is reported, and how often the confidence interval contains the true change.
fn found(kind: Kind, means: [f64; 2], counts: [usize; 2], tries: u64) -> [f64; 3] {
    let mut times = [0.0; 3];
    for seed in 0..tries {
        let mut noise = Noise::new(50_000 + seed);
        let (changed, shape) = noise.series(kind, means, counts);
        let mut series = vec![changed.clone()];
        series.extend((0..11).map(|i| noise.series(MIXED[i % MIXED.len()], [1.0; 2], counts).0));
        let p = family_wise(&series, &shape, DEALS);
        times[0] += f64::from(u8::from(p[0] <= ERROR));
        times[1] += f64::from(u8::from(p[1..].iter().any(|p| *p <= ERROR)));
        let mean = |blocks: &[(f64, f64)]| {
            blocks.iter().map(|(num, _)| num).sum::<f64>() / blocks.iter().map(|(_, den)| den).sum::<f64>()
        };
        let (before, after) = changed.blocks.split_at(shape.blocks[0]);
        let drawn = changed.drawn_differences(&draws(&shape), &shape);
        let (low, high) =
            interval(drawn, mean(after) - mean(before), &shape, changed.widening(&shape)).unwrap();
        times[2] += f64::from(u8::from((low..=high).contains(&(means[1] - means[0]))));
    }
    times.map(|times| times / tries as f64)
}

#[test]
fn a_change_is_found_with_its_size_and_no_other_is_reported() {
    for (kind, after, counts) in [
        (Kind::Plain, 0.5, [30, 30]),
        (Kind::Plain, 0.5, [30, 300]),
        (Kind::Correlated(0.5), 0.5, [60, 60]),
        (Kind::Constant, 0.9, [8, 8]),
    ] {
        let [called, others, covered] = found(kind, [1.0, after], counts, 40);
        assert!(called >= 0.95, "{kind:?} {counts:?}: reported in {called}");
        assert!(others <= 0.05, "{kind:?} {counts:?}: others reported in {others}");
        assert!(covered >= 0.95, "{kind:?} {counts:?}: the interval contains the change in {covered}");
    }
}

#[test]
fn few_blocks_are_never_enough_for_a_change() {
    let mut noise = Noise::new(1);
    let (series, shape) = noise.series(Kind::Constant, [0.0, 5.0], [7, 60]);
    assert_eq!(family_wise(std::slice::from_ref(&series), &shape, DEALS), [1.0]);
    let (series, shape) = noise.series(Kind::Constant, [0.0, 5.0], [8, 60]);
    assert!(family_wise(std::slice::from_ref(&series), &shape, DEALS)[0] <= ERROR);
}
