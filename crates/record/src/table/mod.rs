//! Encodes tables of samples. All rows of a table have the same columns, and only changes are written.
//!
//! A table starts with three ascending lists of row indices: removed rows (indices in the previous sample), inserted rows and
//! changed rows (indices in the new sample). Then each column follows: either a mark that the column has no changes, or the
//! changes of all new and changed rows.

mod decode;

use std::{any::Any, borrow::Borrow, collections::BTreeSet, sync::Arc};

use cgscope_model::Sample;
use integer_encoding::VarInt;
use itertools::EitherOrBoth::{Both, Left, Right};
use itertools::Itertools;
use serde::{Deserialize, Serialize};

use crate::cells::{Cell, Cells, Column, ColumnKind, Columns, Field, NONE, Texts};
use crate::rows::{BAD_HISTOGRAM, Keyed};
pub(crate) use decode::Decoder;

/// The description of a table in the header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    /// Name of the sample's member, or `whole` for the members that a sample has only once.
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    pub(crate) fn of<T: Field>(name: &str) -> Self {
        Self { name: name.into(), columns: Columns::of::<T>() }
    }
}

pub(crate) trait TableEncoder: Send {
    /// Drops all rows, so that all rows of the next sample are new.
    fn clear(&mut self);
    /// Appends the changes since the last call to `out`, and returns the number of new rows. The error names the rule that the
    /// sample breaks. After an error, the next sample must be encoded as a whole.
    fn encode(
        &mut self,
        sample: &Sample,
        texts: &mut Texts,
        out: &mut Vec<u8>,
    ) -> Result<usize, &'static str>;
    /// Frees the memory that is needed only during encoding. Keeps the last written rows.
    fn release(&mut self);
    fn memory_bytes(&self) -> usize;
}

pub(crate) trait TableDecoder: Any + Send {
    fn clear(&mut self);
    /// From the next key frame on, limits [`Self::give`] to the rows whose first number is in the set.
    fn only(&mut self, rows: Option<BTreeSet<u64>>);
    /// Reads the changes of the table in a frame. `new_left` is the maximum number of new rows in the rest of the frame.
    fn decode(&mut self, bytes: &mut Bytes<'_>, texts: &[Arc<str>], new_left: &mut usize) -> Option<()>;
    fn give(&mut self, texts: &[Arc<str>], sample: &mut Sample) -> Option<()>;
}

/// Marks a column without changes.
const SAME: u8 = 0;
/// Marks a column with changes. The changes of all new and changed rows follow.
const CHANGED: u8 = 1;

pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn number<N: VarInt>(&mut self) -> Option<N> {
        let (number, length) = N::decode_var(self.0)?;
        self.0 = &self.0[length..];
        Some(number)
    }

    /// Reads a difference, with its sign in the lowest bit (zigzag).
    #[inline]
    fn change(&mut self) -> Option<u64> {
        self.gap().map(|number| (number >> 1) ^ 0u64.wrapping_sub(number & 1))
    }

    /// Reads a number. Most numbers take one byte, so this case is fast.
    #[inline]
    fn gap(&mut self) -> Option<u64> {
        match self.0.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.0 = rest;
                Some((*byte).into())
            }
            _ => self.number(),
        }
    }

    /// Skips this many gaps and changes. A gap or change ends at the first byte below 0x80.
    fn skip(&mut self, count: usize) -> Option<()> {
        let mut left = count;
        while left != 0 {
            // Skip as many bytes as items are left: most items take one byte. Each byte of 0x80 or more leaves one item.
            let (now, rest) = self.0.split_at_checked(left)?;
            left = now.iter().filter(|byte| **byte >= 0x80).count();
            self.0 = rest;
        }
        Some(())
    }

    /// Reads the number of items that follow; `None` if the rest is too short for items of at least `bytes` bytes.
    pub(crate) fn count(&mut self, bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.gap()?).ok()?;
        (count <= self.0.len() / bytes).then_some(count)
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn places(&mut self, length: usize, into: &mut Vec<usize>) -> Option<()> {
        into.clear();
        let mut next = 0usize;
        for _ in 0..self.count(1)? {
            let gap = usize::try_from(self.gap()?).ok()?;
            let place = next.checked_add(gap).filter(|place| *place < length)?;
            into.push(place);
            next = place + 1;
        }
        Some(())
    }
}

pub(crate) struct Encoder<T: Keyed> {
    kinds: Vec<ColumnKind>,
    /// Number of columns with numbers, and of columns with lists.
    numbers: usize,
    lists: usize,
    rows: Vec<T>,
    /// Indices of removed rows in the previous sample.
    removed: Vec<usize>,
    /// Indices of new or changed rows. For a changed row, also its index in `before`.
    touched: Vec<(usize, Option<usize>)>,
    /// The cells of the changed rows in the previous sample.
    before: Cells,
    /// The cells of the new and changed rows, in the order of `touched`.
    now: Cells,
}

impl<T: Keyed> Default for Encoder<T> {
    fn default() -> Self {
        let kinds: Vec<ColumnKind> = Columns::of::<T>().iter().map(|column| column.kind).collect();
        let lists = kinds.iter().filter(|kind| kind.is_list()).count();
        Self {
            numbers: kinds.len() - lists,
            lists,
            kinds,
            rows: Vec::new(),
            removed: Vec::new(),
            touched: Vec::new(),
            before: Cells::default(),
            now: Cells::default(),
        }
    }
}

impl<T: Keyed> TableEncoder for Encoder<T> {
    fn clear(&mut self) {
        self.rows.clear();
    }

    fn encode(
        &mut self,
        sample: &Sample,
        texts: &mut Texts,
        out: &mut Vec<u8>,
    ) -> Result<usize, &'static str> {
        self.take(sample, texts)?;
        let new = self.touched.iter().filter(|(_, old)| old.is_none()).map(|(new, _)| *new);
        let changed = self.touched.iter().filter(|(_, old)| old.is_some()).map(|(new, _)| *new);
        put_places(self.removed.iter().copied(), out);
        put_places(new.clone(), out);
        put_places(changed, out);
        let new = new.count();
        if !self.touched.is_empty() {
            self.columns(out);
        }
        Ok(new)
    }

    fn release(&mut self) {
        (self.before, self.now) = Default::default();
        (self.removed, self.touched) = Default::default();
    }

    fn memory_bytes(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<T>() + self.rows.len() * T::SHARED_BYTES;
        rows + self.before.memory_bytes() + self.now.memory_bytes()
    }
}

impl<T: Keyed> Encoder<T> {
    /// Finds the removed, new and changed rows. Rows must ascend by key. If a row is shared with the last sample, it takes almost
    /// no time.
    fn take(&mut self, sample: &Sample, texts: &mut Texts) -> Result<(), &'static str> {
        self.removed.clear();
        self.touched.clear();
        self.before.clear();
        self.now.clear();
        let mut changed = 0;
        let mut old = std::mem::take(&mut self.rows).into_iter().enumerate().peekable();
        self.rows.reserve(old.len());
        let mut is_after_shared = true;
        for row in T::of(sample) {
            let row = row.borrow();
            let shared = old.next_if(|(_, old)| old.is_shared(row));
            let is_shared = shared.is_some();
            let is_sorted = is_shared && is_after_shared
                || self.rows.last().is_none_or(|before| before.key() < row.key());
            if !is_sorted {
                return Err(T::ORDER);
            }
            is_after_shared = is_shared;
            if let Some((_, same)) = shared {
                self.rows.push(same);
                continue;
            }
            while let Some((place, _)) = old.next_if(|(_, old)| old.key() < row.key()) {
                self.removed.push(place);
            }
            let before = old.next_if(|(_, old)| old.key() == row.key()).map(|(_, old)| old);
            if before.as_ref() != Some(row) {
                if row.hists().any(|hist| !hist.is_valid()) {
                    return Err(BAD_HISTOGRAM);
                }
                row.put(&mut self.now, texts);
                let before = before.map(|before| before.put(&mut self.before, texts));
                self.touched.push((self.rows.len(), before.map(|()| changed)));
                changed += usize::from(before.is_some());
            }
            self.rows.push(row.clone());
        }
        self.removed.extend(old.map(|(place, _)| place));
        Ok(())
    }

    fn columns(&self, out: &mut Vec<u8>) {
        let (mut numbers, mut lists) = (0..self.numbers, 0..self.lists);
        for kind in &self.kinds {
            let start = out.len();
            out.push(CHANGED);
            let column = if kind.is_list() { lists.next() } else { numbers.next() }.unwrap_or_default();
            let mut has_any = false;
            for (new, (_, old)) in self.touched.iter().enumerate() {
                has_any |= if kind.is_list() {
                    let now = self.now.list_at(new * self.lists + column);
                    let before = old.map_or(&[][..], |old| self.before.list_at(old * self.lists + column));
                    put_list(before, now, out)
                } else {
                    let now = self.now.numbers[new * self.numbers + column];
                    let before =
                        old.map_or(kind.base(), |old| self.before.numbers[old * self.numbers + column]);
                    put(now.wrapping_sub(before) as i64, out);
                    now != before
                };
            }
            if !has_any {
                out.truncate(start);
                out.push(SAME);
            }
        }
    }
}

pub(crate) fn put<N: VarInt>(number: N, out: &mut Vec<u8>) {
    let mut bytes = [0; 10];
    let length = number.encode_var(&mut bytes);
    out.extend(&bytes[..length]);
}

/// Writes the number of indices, and the gap before each index.
fn put_places(places: impl Iterator<Item = usize> + Clone, out: &mut Vec<u8>) {
    put(places.clone().count(), out);
    let mut next = 0;
    for place in places {
        put(place - next, out);
        next = place + 1;
    }
}

/// Writes the number of different cells, then for each the gap before it, and the difference. Returns whether any differ.
fn put_list(before: &[Cell], now: &[Cell], out: &mut Vec<u8>) -> bool {
    let differ = differing(before, now);
    let count = differ.clone().count();
    put(count, out);
    let mut next = 0;
    for (index, difference) in differ {
        put(u64::from(index) - next, out);
        put(difference, out);
        next = u64::from(index) + 1;
    }
    count != 0
}

/// Iterates over the cells in which two lists differ, ascending. Yields the index and the difference.
fn differing(before: &[Cell], now: &[Cell]) -> impl Iterator<Item = (u32, i64)> + Clone {
    let pairs = before.iter().merge_join_by(now, |before, now| before.0.cmp(&now.0));
    pairs.filter_map(|pair| {
        let (index, old, new) = match pair {
            Left(&(index, old)) => (index, old, NONE),
            Right(&(index, new)) => (index, NONE, new),
            Both(&(index, old), &(_, new)) => (index, old, new),
        };
        (old != new).then(|| (index, new.wrapping_sub(old) as i64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_skipped_as_they_are_read() {
        let numbers: Vec<usize> = (0..200).map(|at| at * at * at * 7).collect();
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put(*number, &mut bytes));
        let mut read = Bytes(&bytes);
        for count in 0..=numbers.len() {
            let mut skipped = Bytes(&bytes);
            assert_eq!((skipped.skip(count), skipped.0.len()), (Some(()), read.0.len()), "{count}");
            read.gap();
        }
        assert_eq!(Bytes(&bytes).skip(numbers.len() + 1), None);
        assert_eq!(Bytes(&[0x80, 0x80]).skip(1), None);
    }
}
