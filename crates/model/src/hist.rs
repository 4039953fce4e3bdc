//! A histogram of waits over the buckets of [`cgscope_layout::bucket`].

use cgscope_layout::{BUCKETS, bucket_of, high_ns, low_ns};
use serde::{Deserialize, Serialize};

/// Counts by bucket, sparse: (bucket, count), ascending, no zero counts. A task that waited a few times is what most
/// hosts have thousands of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hist(Vec<(u8, u64)>);

impl Hist {
    /// From a count for each bucket, in order.
    pub fn from_counts(counts: impl IntoIterator<Item = u64>) -> Self {
        let buckets = counts.into_iter().enumerate().take(BUCKETS);
        Self(buckets.filter(|(_, count)| *count != 0).map(|(bucket, count)| (bucket as u8, count)).collect())
    }

    /// The same histogram as the kernel counts on: `counts` are its counters, which wrap at 2^32.
    pub fn advanced_to(&self, counts: &[u32; BUCKETS]) -> Self {
        let mut earlier = self.0.iter().peekable();
        Self::from_counts(counts.iter().enumerate().map(|(bucket, now)| {
            let before = earlier.next_if(|(b, _)| usize::from(*b) == bucket).map_or(0, |(_, count)| *count);
            before + u64::from(now.wrapping_sub(before as u32))
        }))
    }

    /// From single waits.
    pub fn from_waits_ns(waits: impl IntoIterator<Item = u64>) -> Self {
        let mut counts = [0u64; BUCKETS];
        for ns in waits {
            counts[bucket_of(ns)] += 1;
        }
        Self::from_counts(counts)
    }

    /// True if every bucket exists, in order and with a count: what was read from a file may not be.
    pub fn is_valid(&self) -> bool {
        self.0.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && self.0.iter().all(|(bucket, count)| usize::from(*bucket) < BUCKETS && *count != 0)
    }

    /// Number of waits.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// No wait at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// (low_ns, high_ns exclusive, count) of each bucket with a count, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.0.iter().map(|(bucket, count)| {
            let bucket = usize::from(*bucket);
            (low_ns(bucket), high_ns(bucket), *count)
        })
    }

    /// What came since `before`; `None` if a count went backwards.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut rest = before.0.iter().copied().peekable();
        let mut out = Vec::with_capacity(self.0.len());
        for &(bucket, count) in &self.0 {
            let earlier = match rest.peek() {
                Some((b, _)) if *b < bucket => return None,
                Some((b, c)) if *b == bucket => *c,
                _ => 0,
            };
            if earlier != 0 {
                rest.next();
            }
            match count.checked_sub(earlier)? {
                0 => {}
                more => out.push((bucket, more)),
            }
        }
        rest.peek().is_none().then_some(Self(out))
    }

    /// Adds the waits of another histogram.
    pub fn add(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let mut counts = [0u64; BUCKETS];
        for (bucket, count) in self.0.iter().chain(&other.0) {
            let sum = &mut counts[usize::from(*bucket)];
            *sum = sum.saturating_add(*count);
        }
        *self = Self::from_counts(counts);
    }

    /// The wait that a share `quantile` (0 to 1) of all waits does not exceed, by nearest rank: the last nanosecond of
    /// the bucket it lies in, at most `max_ns`. Never below the true one, and above it by at most
    /// [`cgscope_layout::bucket::RELATIVE_ERROR`]. `None` without waits.
    pub fn quantile_ns(&self, quantile: f64, max_ns: u64) -> Option<u64> {
        let total = self.count();
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (bucket, count) in &self.0 {
            seen += count;
            if seen >= rank {
                let bucket = usize::from(*bucket);
                let last = if bucket == BUCKETS - 1 { max_ns } else { high_ns(bucket) - 1 };
                return Some(last.min(max_ns));
            }
        }
        None
    }

    /// The upper end of the highest bucket with a count, inclusive.
    pub fn highest_ns(&self) -> Option<u64> {
        self.0.last().map(|(bucket, _)| high_ns(usize::from(*bucket)) - 1)
    }

    /// The same waits as an HdrHistogram, each at the middle of its bucket: for percentile ladders and for merging
    /// with other tools' histograms. Three significant digits, so it adds no error worth naming to ours.
    pub fn to_hdr(&self) -> hdrhistogram::Histogram<u64> {
        // The bounds are constants that the constructor accepts: a failure would be a bug of this line.
        let mut hdr = hdrhistogram::Histogram::new_with_bounds(1, high_ns(BUCKETS - 1), 3)
            .expect("the bounds of the buckets are bounds of an HdrHistogram");
        for (low, high, count) in self.buckets() {
            hdr.saturating_record_n((low + (high - low) / 2).max(1), count);
        }
        hdr
    }

    /// Rows in the manner of runqlat: powers of two of `unit_ns` (1,000: us, 1,000,000: ms), from the first row to the
    /// last one with a count. Row `k` holds waits from `2^k` to below `2^(k+1)` units; row 0 begins at 0.
    pub fn rows(&self, unit_ns: u64) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for (low, high, count) in self.buckets() {
            // By the middle: with a unit of ms no edge of ours falls on theirs.
            let units = (low + (high - low) / 2) / unit_ns;
            let k = units.max(1).ilog2() as usize;
            while rows.len() <= k {
                let k = rows.len() as u32;
                rows.push(Row { low: if k == 0 { 0 } else { 1 << k }, high: (2 << k) - 1, count: 0 });
            }
            rows[k].count += count;
        }
        rows
    }
}

/// A row of [`Hist::rows`], both ends inclusive, in the unit asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Smallest whole number of units.
    pub low: u64,
    /// Largest whole number of units.
    pub high: u64,
    /// Waits in it.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waits() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0u32..40, 0..=u64::MAX >> 26).prop_map(|(shift, ns)| ns >> shift), 0..200)
    }

    #[test]
    fn rows_are_those_of_runqlat() {
        let hist = Hist::from_waits_ns([0, 1_999, 2_000, 40_000_000, 65_535_000]);
        let rows = hist.rows(1_000);
        assert_eq!(rows[0], Row { low: 0, high: 1, count: 2 });
        assert_eq!(rows[1], Row { low: 2, high: 3, count: 1 });
        assert_eq!(rows.last(), Some(&Row { low: 32_768, high: 65_535, count: 2 }));
        assert_eq!(rows.len(), 16);
    }

    #[test]
    fn there_is_no_quantile_without_waits() {
        assert_eq!(Hist::default().quantile_ns(0.5, 0), None);
    }

    #[test]
    fn a_count_that_went_backwards_is_no_reading() {
        let few = Hist::from_waits_ns([5_000]);
        let more = Hist::from_waits_ns([5_000, 5_000, 9_000]);
        assert!(more.since(&few).is_some());
        assert_eq!(few.since(&more), None);
        assert_eq!(Hist::default().since(&few), None);
    }

    #[test]
    fn counters_that_wrap_go_on_counting() {
        let mut counts = [0u32; BUCKETS];
        counts[5] = u32::MAX;
        let before = Hist::default().advanced_to(&counts);
        counts[5] = 2;
        counts[9] = 1;
        let after = before.advanced_to(&counts);
        assert_eq!(after.since(&before), Some(Hist(vec![(5, 3), (9, 1)])));
    }

    #[test]
    fn what_a_file_may_hold_is_checked() {
        assert!(Hist(vec![(3, 1), (7, 2)]).is_valid());
        assert!(!Hist(vec![(7, 1), (3, 2)]).is_valid());
        assert!(!Hist(vec![(240, 1)]).is_valid());
        assert!(!Hist(vec![(3, 0)]).is_valid());
    }

    proptest! {
        #[test]
        fn a_quantile_is_never_below_the_true_one_and_within_the_bound(ns in waits(), q in 0.0..=1.0f64) {
            prop_assume!(!ns.is_empty());
            let mut sorted = ns.clone();
            sorted.sort_unstable();
            let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1];
            let ours = Hist::from_waits_ns(ns).quantile_ns(q, sorted[sorted.len() - 1]).unwrap();
            prop_assert!(ours >= exact);
            prop_assert!(ours as f64 <= exact as f64 * 1.125 + 125.0);
        }

        #[test]
        fn hdrhistogram_agrees_within_both_bounds(ns in waits(), q in 0.0..=1.0f64) {
            prop_assume!(!ns.is_empty());
            let max = *ns.iter().max().unwrap();
            let hist = Hist::from_waits_ns(ns);
            let (ours, theirs) = (hist.quantile_ns(q, u64::MAX).unwrap() as f64, hist.to_hdr().value_at_quantile(q) as f64);
            prop_assert!(ours <= theirs * 1.07 + 125.0 && theirs <= ours * 1.07 + 125.0, "{ours} {theirs} {max}");
        }

        #[test]
        fn adding_and_subtracting_give_back_what_was_there(a in waits(), b in waits()) {
            let (a, b) = (Hist::from_waits_ns(a), Hist::from_waits_ns(b));
            let mut sum = a.clone();
            sum.add(&b);
            prop_assert!(sum.is_valid());
            prop_assert_eq!(sum.count(), a.count() + b.count());
            prop_assert_eq!(sum.since(&a), Some(b.clone()));
            prop_assert_eq!(sum.since(&b), Some(a));
        }

        #[test]
        fn rows_hold_every_wait(ns in waits()) {
            let hist = Hist::from_waits_ns(ns);
            prop_assert_eq!(hist.rows(1_000).iter().map(|row| row.count).sum::<u64>(), hist.count());
            prop_assert_eq!(hist.rows(1_000_000).iter().map(|row| row.count).sum::<u64>(), hist.count());
        }
    }
}
