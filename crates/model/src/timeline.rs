//! A timeline: Intervals summed over a bounded number of time slices.
//!
//! One pass, bounded memory. When the timeline is full, each two adjacent slices merge into one. From then on, a slice holds
//! twice as many Intervals.

mod slice;
#[cfg(test)]
mod tests;

use crate::Interval;
pub use slice::{Part, QuotaPart, Slice};

/// Slices of time in order. Consecutive Intervals leave no gaps between slices.
#[derive(Clone, Debug)]
pub struct Timeline {
    slices: Vec<Slice>,
    /// Maximum number of slices.
    most: usize,
    /// Intervals per slice, a power of two.
    per_slice: usize,
    /// Intervals in the last slice.
    in_last: usize,
}

impl Timeline {
    /// Creates a timeline with room for `most` slices, or for two if `most` is smaller.
    pub fn new(most: usize) -> Self {
        Self { slices: Vec::new(), most: most.max(2), per_slice: 1, in_last: 0 }
    }

    /// Adds the Interval that follows the previous one.
    pub fn add(&mut self, interval: &Interval) {
        if self.last_is_full() && self.slices.len() == self.most {
            self.merge_pairs();
        }
        if self.last_is_full() {
            self.slices.push(Slice::starting(interval.start_unix_ns));
            self.in_last = 0;
        }
        if let Some(last) = self.slices.last_mut() {
            last.add(interval);
            self.in_last += 1;
        }
    }

    fn last_is_full(&self) -> bool {
        self.slices.is_empty() || self.in_last == self.per_slice
    }

    /// The slices, the earliest first.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Index of the slice with the most wait time per unit of time; of equal slices the earliest. `None` if no task waited.
    pub fn worst(&self) -> Option<usize> {
        let waited = self.slices.iter().enumerate().filter(|(_, slice)| slice.all.waited_ns() != 0);
        let worst = waited.max_by(|(i, a), (j, b)| {
            a.average(a.all.waited_ns()).total_cmp(&b.average(b.all.waited_ns())).then(j.cmp(i))
        });
        worst.map(|(i, _)| i)
    }

    fn merge_pairs(&mut self) {
        let was_odd = self.slices.len() % 2 == 1;
        let mut merged: Vec<Slice> = Vec::with_capacity(self.most);
        for (i, slice) in self.slices.drain(..).enumerate() {
            match merged.last_mut() {
                Some(first) if i % 2 == 1 => first.append(slice),
                _ => merged.push(slice),
            }
        }
        self.slices = merged;
        // An odd slice at the end was not merged, so it is only half full.
        self.in_last = if was_odd { self.per_slice } else { self.per_slice * 2 };
        self.per_slice *= 2;
    }
}
