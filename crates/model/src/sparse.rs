//! Counts in numbered cells of which most are zero.

use serde::{Deserialize, Serialize};

/// (cell, count), ascending, no zero counts, cells below `N` (at most 256). A task that waited a few times is what most
/// hosts have thousands of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sparse<const N: usize>(Vec<(u8, u64)>);

impl<const N: usize> Sparse<N> {
    /// From a count for each cell, in order.
    pub fn from_counts(counts: impl IntoIterator<Item = u64>) -> Self {
        let cells = counts.into_iter().enumerate().take(N);
        Self(cells.filter(|(_, count)| *count != 0).map(|(cell, count)| (cell as u8, count)).collect())
    }

    /// The same counts as the kernel counts on: its counters wrap at 2^32.
    pub fn advanced_to(&self, counters: &[u32; N]) -> Self {
        let mut earlier = self.0.iter().peekable();
        Self::from_counts(counters.iter().enumerate().map(|(cell, now)| {
            let before = earlier.next_if(|(c, _)| usize::from(*c) == cell).map_or(0, |(_, count)| *count);
            before + u64::from(now.wrapping_sub(before as u32))
        }))
    }

    /// True if every cell exists, in order and with a count: what was read from a file may not be.
    pub fn is_valid(&self) -> bool {
        self.0.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && self.0.iter().all(|(cell, count)| usize::from(*cell) < N && *count != 0)
    }

    /// Sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// No count at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// (cell, count) of each cell with a count, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        self.0.iter().map(|(cell, count)| (usize::from(*cell), *count))
    }

    /// What came since `before`; `None` if a count went backwards.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut rest = before.0.iter().copied().peekable();
        let mut out = Vec::with_capacity(self.0.len());
        for &(cell, count) in &self.0 {
            let earlier = match rest.peek() {
                Some((c, _)) if *c < cell => return None,
                Some((c, count)) if *c == cell => *count,
                _ => 0,
            };
            if earlier != 0 {
                rest.next();
            }
            match count.checked_sub(earlier)? {
                0 => {}
                more => out.push((cell, more)),
            }
        }
        rest.peek().is_none().then_some(Self(out))
    }

    /// Adds the counts of another where all its cells are there already, as soon they are of what is added up over time: a
    /// fraction of the cost of building anew. False: nothing was added.
    fn add_to_cells(&mut self, other: &Self) -> bool {
        let mut cells = self.0.iter().map(|(cell, _)| cell);
        if !other.0.iter().all(|(cell, _)| cells.any(|there| there == cell)) {
            return false;
        }
        let mut cells = self.0.iter_mut();
        for (cell, more) in &other.0 {
            if let Some((_, count)) = cells.find(|(there, _)| there == cell) {
                *count = count.saturating_add(*more);
            }
        }
        true
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        if other.is_empty() || self.add_to_cells(other) {
            return;
        }
        let mut counts = [0u64; N];
        for (cell, count) in self.iter().chain(other.iter()) {
            counts[cell] = counts[cell].saturating_add(count);
        }
        *self = Self::from_counts(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_may_hold_is_checked() {
        assert!(Sparse::<240>(vec![(3, 1), (7, 2)]).is_valid());
        assert!(!Sparse::<240>(vec![(7, 1), (3, 2)]).is_valid());
        assert!(!Sparse::<240>(vec![(240, 1)]).is_valid());
        assert!(!Sparse::<240>(vec![(3, 0)]).is_valid());
    }

    #[test]
    fn cells_that_are_there_and_new_ones_are_added_alike() {
        let add = |mut to: Sparse<240>, cells: &[(u8, u64)]| {
            to.add(&Sparse(cells.to_vec()));
            to
        };
        let there = Sparse::<240>(vec![(3, 1), (7, u64::MAX)]);
        assert_eq!(add(there.clone(), &[(3, 4), (7, 1)]), Sparse(vec![(3, 5), (7, u64::MAX)]));
        assert_eq!(add(there.clone(), &[(5, 2), (7, 1)]), Sparse(vec![(3, 1), (5, 2), (7, u64::MAX)]));
        assert_eq!(add(Sparse::default(), &[(9, 2)]), Sparse(vec![(9, 2)]));
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
