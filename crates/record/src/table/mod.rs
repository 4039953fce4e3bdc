//! Encodes tables of samples. All rows of a table have the same columns, and only changes are written.
//!
//! A table starts with three ascending lists of row indices: removed rows (indices in the previous sample), inserted rows and
//! changed rows (indices in the new sample). Then each column follows: either a mark that the column has no changes, or the
//! changes of all new and changed rows.

mod decode;
mod encode;

pub(crate) use decode::Decoder;
pub(crate) use encode::{Encoder, put};

use std::{any::Any, collections::BTreeSet, sync::Arc};

use cgscope_model::Sample;
use integer_encoding::VarInt;
use serde::{Deserialize, Serialize};

use crate::cells::{Column, Columns, Field, Texts};

/// The description of a table in the header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    /// Name of the sample's member, or `whole` for the members that a sample has only once.
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    pub(crate) fn of<T: Field>(name: &str) -> Self {
        let mut columns = Columns::default();
        T::columns(&mut columns);
        Self { name: name.into(), columns: columns.columns }
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
