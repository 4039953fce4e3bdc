//! Numbered counts, most of which are zero.

use itertools::Itertools;

use crate::sum;

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
    use super::*;
    use proptest::prelude::*;

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
