//! A histogram of waits over the buckets of [`cgscope_ledger::bucket`]. Each row (one power of two) is split by cause.

use cgscope_ledger::cause::{
    CELLS, COLUMN_NAMES, COLUMNS, WHOLE, cell_of, column_of, row_and_column, row_of,
};
use cgscope_ledger::{BUCKETS, CAUSES, Cause, Shares, bucket_of, high_ns, low_ns};

use crate::{sparse::Sparse, sum};

/// Completed waits: counts by bucket of length, and shares by row and cause. A row spans one power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hist {
    /// Counts by bucket, in the form that [`Self::from_cells`] takes.
    pub counts: Sparse<BUCKETS>,
    /// Shares in units of 1/[`WHOLE`] wait. [`Cause::Wakeup`] is not stored: it is the rest of a row's count.
    pub shares: Sparse<CELLS>,
}

impl Hist {
    /// Builds a histogram from one count per bucket and one share per cell (row and cause), in order.
    pub fn from_counts(counts: impl IntoIterator<Item = u64>, shares: impl IntoIterator<Item = u64>) -> Self {
        Self { counts: Sparse::from_counts(counts), shares: Sparse::from_counts(shares) }
    }

    /// Builds a histogram from its nonzero cells: (bucket, count) and (cell of row and cause, share), each ascending. `None` if a
    /// cell does not exist, is zero or is out of order.
    pub fn from_cells(
        counts: impl IntoIterator<Item = (u32, u64)>,
        shares: impl IntoIterator<Item = (u32, u64)>,
    ) -> Option<Self> {
        Some(Self { counts: Sparse::from_cells(counts)?, shares: Sparse::from_cells(shares)? })
    }

    pub fn memory_bytes(&self) -> usize {
        (self.counts.len() + self.shares.len()) * size_of::<(u8, u64)>()
    }

    /// Returns the histogram, advanced to the kernel's counters, which wrap at 2^32.
    pub fn advanced_to(&self, counts: &[u32; BUCKETS], shares: &Shares) -> Self {
        Self { counts: self.counts.advanced_to(counts), shares: self.shares.advanced_to(shares) }
    }

    /// Builds a histogram from single waits with the cause [`Cause::Wakeup`].
    pub fn from_waits_ns(waits: impl IntoIterator<Item = u64>) -> Self {
        Self::of_cause(Cause::Wakeup, waits)
    }

    pub fn of_cause(cause: Cause, waits: impl IntoIterator<Item = u64>) -> Self {
        let (mut counts, mut shares) = ([0; BUCKETS], [0; CELLS]);
        let column = column_of(cause);
        for bucket in waits.into_iter().map(bucket_of) {
            counts[bucket] += 1;
            if column < COLUMNS {
                shares[cell_of(row_of(bucket), column)] += u64::from(WHOLE);
            }
        }
        Self::from_counts(counts, shares)
    }

    /// True if every bucket exists, is in order and has a count. Data from a file may break these rules.
    pub fn is_valid(&self) -> bool {
        self.counts.is_valid() && self.shares.is_valid()
    }

    pub fn count(&self) -> u64 {
        self.counts.total()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns (low_ns, high_ns exclusive, count) of each bucket with waits, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.iter().map(|(bucket, count)| (low_ns(bucket), high_ns(bucket), count))
    }

    /// Returns the waits by cause of each row with waits, ascending.
    pub fn octaves(&self) -> Vec<Octave> {
        let mut octaves: Vec<Octave> = Vec::new();
        for (bucket, count) in self.counts.iter() {
            let first = row_of(bucket) * 8;
            let (low_ns, high_ns) = (low_ns(first), high_ns(first + 7));
            match octaves.last_mut() {
                Some(last) if last.low_ns == low_ns => sum::add(&mut last.count, count),
                _ => octaves.push(Octave { low_ns, high_ns, count, by_cause: [0.0; CAUSES] }),
            }
        }
        for (cell, share) in self.shares.iter() {
            let (row, column) = row_and_column(cell);
            // The kernel may add a wait during the reading. Then the reading may contain the wait's share but not its count.
            if let Ok(at) = octaves.binary_search_by_key(&low_ns(row * 8), |octave| octave.low_ns) {
                octaves[at].by_cause[COLUMN_NAMES[column] as usize] += share as f64 / f64::from(WHOLE);
            }
        }
        for octave in &mut octaves {
            let shared: f64 = octave.by_cause.iter().sum();
            octave.by_cause[Cause::Wakeup as usize] = (octave.count as f64 - shared).max(0.0);
        }
        octaves
    }

    /// Returns the increase since `before`; `None` if a count decreased.
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self { counts: self.counts.since(&before.counts)?, shares: self.shares.since(&before.shares)? })
    }

    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.shares.add(&other.shares);
    }

    /// Returns the `quantile` (0 to 1) of the waits, ns, by nearest rank; `None` without waits. The result is the last nanosecond
    /// of the bucket that holds this wait, at most `max_ns`. It is never below the true quantile, and above it by at most
    /// [`cgscope_ledger::bucket::RELATIVE_ERROR`].
    pub fn quantile_ns(&self, quantile: f64, max_ns: u64) -> Option<u64> {
        let bucket = self.quantile_bucket(quantile)?;
        let last = if bucket == BUCKETS - 1 { max_ns } else { high_ns(bucket) - 1 };
        Some(last.min(max_ns))
    }

    /// Returns the start of the bucket that holds this quantile. It is never above the true quantile.
    pub fn quantile_low_ns(&self, quantile: f64) -> Option<u64> {
        self.quantile_bucket(quantile).map(low_ns)
    }

    fn quantile_bucket(&self, quantile: f64) -> Option<usize> {
        let total = self.count();
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0u64;
        let at_rank = |&(_, count): &(usize, u64)| {
            sum::add(&mut seen, count);
            seen >= rank
        };
        self.counts.iter().find(at_rank).map(|(bucket, _)| bucket)
    }

    /// Returns the upper end of the highest bucket with a count, ns, inclusive.
    pub fn highest_ns(&self) -> Option<u64> {
        self.counts.iter().next_back().map(|(bucket, _)| high_ns(bucket) - 1)
    }

    /// Returns the same waits as an HdrHistogram, each at the middle of its bucket. Used for percentile tables and for merging
    /// with other tools' histograms. Three significant digits add no noticeable error to the error of the buckets.
    pub fn to_hdr(&self) -> hdrhistogram::Histogram<u64> {
        // The constructor accepts these constant bounds: a failure would be a bug in this line.
        let mut hdr = hdrhistogram::Histogram::new_with_bounds(1, high_ns(BUCKETS - 1), 3)
            .expect("the bounds of the buckets are bounds of an HdrHistogram");
        for (low, high, count) in self.buckets() {
            hdr.saturating_record_n((low + (high - low) / 2).max(1), count);
        }
        hdr
    }

    /// Returns rows as runqlat prints them, up to the last row with a count. `unit_ns`: 1,000 for us, 1,000,000 for ms. Row `k`
    /// holds waits from `2^k` to below `2^(k+1)` units; row 0 begins at 0.
    pub fn rows(&self, unit_ns: u64) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        // The middle of a bucket selects its row, because bucket edges do not match row edges if the unit is ms.
        let of = |low: u64, high: u64| ((low + (high - low) / 2) / unit_ns).max(1).ilog2() as usize;
        for (low, high, count) in self.buckets() {
            let k = of(low, high);
            for k in rows.len()..=k {
                rows.push(Row { low: if k == 0 { 0 } else { 1 << k }, high: (2 << k) - 1, ..Row::default() });
            }
            sum::add(&mut rows[k].count, count);
        }
        for octave in self.octaves() {
            // An octave may cover parts of two rows, so its middle may lie beyond the last row.
            let k = of(octave.low_ns, octave.high_ns).min(rows.len().saturating_sub(1));
            rows[k].by_cause.iter_mut().zip(octave.by_cause).for_each(|(sum, count)| *sum += count);
        }
        rows
    }
}

/// The waits whose lengths lie in one octave (a factor of two). Each wait is split among its causes in proportion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Octave {
    pub low_ns: u64,
    /// The upper end, ns, exclusive.
    pub high_ns: u64,
    pub count: u64,
    /// Number of waits by cause, in the order of [`Cause::ALL`]; they sum to `count`.
    pub by_cause: [f64; CAUSES],
}

/// A row of [`Hist::rows`]. Both ends are inclusive, in the requested unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    pub low: u64,
    pub high: u64,
    pub count: u64,
    /// Number of waits by cause, in the order of [`Cause::ALL`]. Only the proportions matter, for drawing a bar.
    pub by_cause: [f64; CAUSES],
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::bucket::LAST_LOW_NS;
    use proptest::prelude::*;

    fn waits() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0u32..40, 0..=u64::MAX >> 26).prop_map(|(shift, ns)| ns >> shift), 0..200)
    }

    #[test]
    fn rows_match_those_of_runqlat() {
        let hist = Hist::from_waits_ns([0, 1_999, 2_000, 40_000_000, 65_535_000]);
        let rows = hist.rows(1_000);
        let row = |k: usize| (rows[k].low, rows[k].high, rows[k].count);
        assert_eq!(row(0), (0, 1, 2));
        assert_eq!(row(1), (2, 3, 1));
        assert_eq!(row(15), (32_768, 65_535, 2));
        assert_eq!(rows.len(), 16);
    }

    #[test]
    fn a_row_is_split_by_cause_and_wakeup_has_the_rest() {
        let mut hist = Hist::of_cause(Cause::Throttled, [40_000_000, 50_000_000]);
        hist.add(&Hist::from_waits_ns([40_000_000]));
        let rows = hist.rows(1_000);
        let row = rows.last().expect("a row");
        assert_eq!(row.by_cause[Cause::Throttled as usize], 2.0);
        assert_eq!(row.by_cause[Cause::Wakeup as usize], 1.0);
        assert_eq!(row.by_cause.iter().sum::<f64>(), row.count as f64);
        let octave = hist.octaves()[0];
        assert!(octave.low_ns <= 40_000_000 && 50_000_000 < octave.high_ns);
    }

    #[test]
    fn there_is_no_quantile_without_waits() {
        assert_eq!(Hist::default().quantile_ns(0.5, 0), None);
    }

    #[test]
    fn a_count_that_decreases_gives_no_reading() {
        let few = Hist::from_waits_ns([5_000]);
        let more = Hist::from_waits_ns([5_000, 5_000, 9_000]);
        assert!(more.since(&few).is_some());
        assert_eq!(few.since(&more), None);
        assert_eq!(Hist::default().since(&few), None);
    }

    proptest! {
        #[test]
        fn a_quantile_is_never_below_the_true_one_and_within_the_bound(ns in waits(), q in 0.0..=1.0f64) {
            prop_assume!(!ns.is_empty());
            let mut sorted = ns.clone();
            sorted.sort_unstable();
            let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1];
            let hist = Hist::from_waits_ns(ns);
            let ours = hist.quantile_ns(q, sorted[sorted.len() - 1]).unwrap();
            let low = hist.quantile_low_ns(q).unwrap();
            prop_assert!(low <= exact && ours >= exact);
            prop_assert!(exact >= LAST_LOW_NS || exact as f64 <= low as f64 * 1.125 + 125.0);
            prop_assert!(ours as f64 <= exact as f64 * 1.125 + 125.0);
        }

        #[test]
        fn hdrhistogram_agrees_within_the_bounds_of_both(ns in waits(), q in 0.0..=1.0f64) {
            prop_assume!(!ns.is_empty());
            let max = *ns.iter().max().unwrap();
            let hist = Hist::from_waits_ns(ns);
            let (ours, theirs) = (hist.quantile_ns(q, u64::MAX).unwrap() as f64, hist.to_hdr().value_at_quantile(q) as f64);
            prop_assert!(ours <= theirs * 1.07 + 125.0 && theirs <= ours * 1.07 + 125.0, "{ours} {theirs} {max}");
        }

        #[test]
        fn subtracting_undoes_adding(a in waits(), b in waits()) {
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
