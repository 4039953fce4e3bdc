//! Compares the quantiles that Prometheus computes from our buckets with the quantiles that cgscope computes.

use cgscope_ledger::bucket::{LAST_LOW_NS, RELATIVE_ERROR};
use cgscope_metrics::{Config, Format, Metrics, proto::Histogram};
use cgscope_model::{Hist, Interval, TaskInterval, Wait};
use proptest::{collection::vec, prelude::*};

use crate::parsed;

/// Maximum relative error of native buckets with schema 3.
const NATIVE_ERROR: f64 = 0.0906;

/// Returns the root's histogram on the page, and the histogram from which the page was made.
fn exported(waits_ns: &[u64]) -> (Histogram, Hist) {
    let hist = Hist::from_waits_ns(waits_ns.iter().copied());
    let wait = Wait { count: hist.count(), hist: hist.clone(), ..Wait::default() };
    let task = TaskInterval { wait, ..TaskInterval::default() };
    let mut metrics = Metrics::new(Config::default());
    metrics.add(&Interval { tasks: vec![task], ..Interval::default() });
    let families = parsed::messages(&metrics.page(Format::Protobuf, &[]));
    (families[0].metric[0].histogram.clone().expect("a histogram"), hist)
}

/// Returns (lower edge, upper edge, count) of each native bucket; edges in seconds.
fn native(histogram: &Histogram) -> Vec<(f64, f64, f64)> {
    let mut buckets = vec![(0.0, histogram.zero_threshold(), histogram.zero_count() as f64)];
    let (mut index, mut count, mut deltas) = (0, 0, histogram.positive_delta.iter());
    let edge = |index: i32| (f64::from(index) / 8.0).exp2();
    for span in &histogram.positive_span {
        index += span.offset();
        for _ in 0..span.length() {
            count += deltas.next().expect("a difference for each");
            buckets.push((edge(index - 1), edge(index), count as f64));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    buckets
}

/// Computes a quantile as `histogram_quantile` of Prometheus 2 does: by linear interpolation in the bucket.
fn quantile(buckets: &[(f64, f64, f64)], q: f64) -> f64 {
    let total: f64 = buckets.iter().map(|(_, _, count)| count).sum();
    let (rank, mut seen) = (q * total, 0.0);
    for (low, high, count) in buckets.iter().filter(|(_, _, count)| *count != 0.0) {
        seen += count;
        if seen >= rank {
            return high - (high - low) * ((seen - rank) / count);
        }
    }
    panic!("no wait")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn quantiles_of_native_buckets_are_within_both_bounds(
        waits in vec((26u32..64, any::<u64>()).prop_map(|(shift, ns)| ns >> shift), 1..80),
        q in prop_oneof![Just(0.5), Just(0.9), Just(0.99), 0.01..1.0f64],
    ) {
        prop_assume!(waits.iter().all(|ns| *ns < LAST_LOW_NS));
        let (histogram, hist) = exported(&waits);
        let ours = hist.quantile_ns(q, u64::MAX).expect("a wait") as f64;
        let theirs = 1e9 * quantile(&native(&histogram), q);
        let bound = (RELATIVE_ERROR + NATIVE_ERROR) * ours + 125.0;
        prop_assert!((ours - theirs).abs() <= bound, "{ours} {theirs}");
    }

    #[test]
    fn both_kinds_of_buckets_hold_every_wait(waits in vec((0u32..64, any::<u64>()).prop_map(|(shift, ns)| ns >> shift), 1..80)) {
        let (histogram, hist) = exported(&waits);
        let sum: f64 = native(&histogram).iter().map(|(_, _, count)| count).sum();
        prop_assert_eq!((histogram.sample_count(), sum), (hist.count(), hist.count() as f64));
        for bucket in &histogram.bucket {
            let edge = bucket.upper_bound() * 1e9;
            let below = |edge: f64| waits.iter().filter(|ns| **ns as f64 <= edge).count() as u64;
            let count = bucket.cumulative_count();
            prop_assert!(below(edge * (1.0 - 3e-6)) <= count && count <= below(edge * (1.0 + 3e-6)));
        }
    }
}
