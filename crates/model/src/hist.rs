//! A histogram of waits over the buckets of [`cgscope_ledger::bucket`]. Each row (one power of two) is split by cause.

use cgscope_ledger::{
    BUCKETS, CAUSES, Cause, Shares, bucket_of,
    cause::{CELLS, COLUMN_NAMES, COLUMNS, WHOLE, cell_of, column_of, row_and_column, row_of},
    high_ns, low_ns,
};
use itertools::Itertools;

use crate::sum;

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

/// (cell, count) pairs, ascending, without zero counts. Cells are below `N` (at most 256). Sparse, because a host has thousands
/// of tasks, most of which waited only a few times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse<const N: usize>(Vec<(u8, u64)>);

impl<const N: usize> Sparse<N> {
    /// Builds the counts from one count per cell, in order.
    pub fn from_counts(counts: impl IntoIterator<Item = u64>) -> Self {
        let cells = counts.into_iter().enumerate().take(N);
        Self(cells.filter(|(_, count)| *count != 0).map(|(cell, count)| (cell as u8, count)).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the counts advanced to the kernel's counters, which wrap at 2^32.
    pub fn advanced_to(&self, counters: &[u32; N]) -> Self {
        /// Number of cells tested for zero together, because most cells never counted anything.
        const TOGETHER: usize = 16;
        let mut earlier = self.0.iter().peekable();
        // A cell that has counted is zero again only after a wrap.
        let mut cells = Vec::with_capacity(counters.iter().filter(|now| **now != 0).count());
        for (n, together) in counters.chunks(TOGETHER).enumerate() {
            let first = n * TOGETHER;
            let had_counts = earlier.peek().is_some_and(|(cell, _)| usize::from(*cell) < first + TOGETHER);
            if !had_counts && together.iter().fold(0, |bits, now| bits | now) == 0 {
                continue;
            }
            for (cell, now) in (first..).zip(together) {
                let before = earlier.next_if(|(c, _)| usize::from(*c) == cell).map_or(0, |(_, count)| *count);
                let count = before.saturating_add(now.wrapping_sub(before as u32).into());
                if count != 0 {
                    cells.push((cell as u8, count));
                }
            }
        }
        Self(cells)
    }

    /// Builds the counts from ascending (cell, count) pairs; `None` if a cell does not exist, is zero or is out of order.
    pub fn from_cells(cells: impl IntoIterator<Item = (u32, u64)>) -> Option<Self> {
        let cells = cells.into_iter();
        let mut known = Vec::with_capacity(cells.size_hint().0);
        for (cell, count) in cells {
            known.push((u8::try_from(cell).ok()?, count));
        }
        Some(Self(known)).filter(Self::is_valid)
    }

    /// True if every cell exists, is in order and is not zero. Data from a file may break these rules.
    pub fn is_valid(&self) -> bool {
        self.0.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && self.0.iter().all(|(cell, count)| usize::from(*cell) < N && *count != 0)
    }

    pub fn total(&self) -> u64 {
        sum::total(self.0.iter().map(|(_, count)| *count))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns (cell, count) of each cell with a count, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + ExactSizeIterator + '_ {
        self.0.iter().map(|(cell, count)| (usize::from(*cell), *count))
    }

    /// Returns the increase since `before`; `None` if a count decreased.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut earlier = sum::earlier(&before.0, |(cell, _)| *cell);
        let (mut found, mut out) = (0, Vec::with_capacity(self.0.len()));
        for &(cell, count) in &self.0 {
            let before = earlier(cell).map(|(_, count)| *count);
            found += usize::from(before.is_some());
            match count.checked_sub(before.unwrap_or(0))? {
                0 => {}
                more => out.push((cell, more)),
            }
        }
        (found == before.len()).then_some(Self(out))
    }

    pub fn add(&mut self, other: &Self) {
        let mut at = 0;
        for (added, (cell, count)) in other.0.iter().enumerate() {
            while self.0.get(at).is_some_and(|(before, _)| before < cell) {
                at += 1;
            }
            match self.0.get_mut(at) {
                Some((same, sum)) if same == cell => *sum = sum.saturating_add(*count),
                // New cells are rare: once most cells have a count, adding moves nothing.
                _ => return self.merge(at, &other.0[added..]),
            }
        }
    }

    /// Adds cells whose places are at or after index `from`.
    fn merge(&mut self, from: usize, other: &[(u8, u64)]) {
        let ours = self.0.split_off(from);
        let merged = ours.into_iter().merge_join_by(other.iter().copied(), |a, b| a.0.cmp(&b.0));
        self.0.extend(merged.map(|cell| cell.reduce(|(cell, a), (_, b)| (cell, a.saturating_add(b)))));
    }
}

/// Accumulates many [`Sparse`] of the same size; adding moves no memory.
#[derive(Clone, Debug)]
pub(crate) struct Dense<const N: usize> {
    counts: [u64; N],
    /// One bit per cell with a count, because most sums use few cells.
    used: [u64; 4],
}

impl<const N: usize> Default for Dense<N> {
    fn default() -> Self {
        const { assert!(N <= 256) }
        Self { counts: [0; N], used: [0; 4] }
    }
}

impl<const N: usize> Dense<N> {
    pub fn add(&mut self, other: &Sparse<N>) {
        for (cell, count) in other.iter() {
            sum::add(&mut self.counts[cell], count);
            self.used[cell / 64] |= 1 << (cell % 64);
        }
    }

    /// Returns the sum and resets it to zero.
    pub fn take(&mut self) -> Sparse<N> {
        let cells: u32 = self.used.iter().map(|bits| bits.count_ones()).sum();
        let mut out = Vec::with_capacity(cells as usize);
        for (word, bits) in self.used.iter_mut().enumerate() {
            while *bits != 0 {
                let cell = word * 64 + bits.trailing_zeros() as usize;
                out.push((cell as u8, std::mem::take(&mut self.counts[cell])));
                *bits &= *bits - 1;
            }
        }
        Sparse(out)
    }
}

#[cfg(test)]
mod tests {
    use cgscope_ledger::bucket::LAST_LOW_NS;
    use proptest::prelude::*;

    use super::*;

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

    proptest! {
        #[test]
        fn an_accumulator_gives_the_sum(
            parts in prop::collection::vec(prop::collection::btree_map(0u32..240, 1..u64::MAX, 0..9), 0..6),
        ) {
            let parts: Vec<_> = parts.into_iter().filter_map(Sparse::<240>::from_cells).collect();
            let (mut sum, mut dense) = (Sparse::default(), Dense::default());
            for part in &parts {
                sum.add(part);
                dense.add(part);
            }
            prop_assert_eq!(dense.take(), sum);
            prop_assert_eq!(dense.take(), Sparse::default());
        }

        #[test]
        fn advancing_adds_the_increase_of_each_counter(
            steps in prop::collection::vec(prop::collection::btree_map(0usize..70, any::<u32>(), 0..9), 0..6),
        ) {
            let (mut counters, mut sums) = ([0u32; 70], [0u64; 70]);
            let mut sparse = Sparse::<70>::default();
            for step in steps {
                for (cell, rise) in step {
                    counters[cell] = counters[cell].wrapping_add(rise);
                    sums[cell] += u64::from(rise);
                }
                sparse = sparse.advanced_to(&counters);
                prop_assert_eq!(&sparse, &Sparse::from_counts(sums));
            }
        }
    }

    #[test]
    fn cells_from_a_file_are_checked() {
        assert!(Sparse::<240>(vec![(3, 1), (7, 2)]).is_valid());
        assert!(!Sparse::<240>(vec![(7, 1), (3, 2)]).is_valid());
        assert!(!Sparse::<240>(vec![(240, 1)]).is_valid());
        assert!(!Sparse::<240>(vec![(3, 0)]).is_valid());
    }

    #[test]
    fn each_cell_is_summed() {
        let cells = |cells: &[(u8, u64)]| Sparse::<240>(cells.to_vec());
        let sum = |a: &[(u8, u64)], b: &[(u8, u64)]| {
            let mut sum = cells(a);
            sum.add(&cells(b));
            sum.0
        };
        assert_eq!(sum(&[(1, 1), (5, 2), (9, 3)], &[(5, 10), (9, 10)]), [(1, 1), (5, 12), (9, 13)]);
        assert_eq!(sum(&[(1, 1), (5, 2)], &[(0, 7), (5, 10), (6, 8)]), [(0, 7), (1, 1), (5, 12), (6, 8)]);
        assert_eq!(sum(&[], &[(3, 1)]), [(3, 1)]);
        assert_eq!(sum(&[(3, u64::MAX)], &[(3, 1)]), [(3, u64::MAX)]);
    }

    #[test]
    fn counters_that_wrap_go_on_counting() {
        let mut counters = [0u32; 10];
        counters[5] = u32::MAX;
        let before = Sparse::default().advanced_to(&counters);
        counters[5] = 2;
        counters[9] = 1;
        let after = before.advanced_to(&counters);
        assert_eq!(after.since(&before), Some(Sparse(vec![(5, 3), (9, 1)])));
    }
}
