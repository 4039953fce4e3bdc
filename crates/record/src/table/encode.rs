//! Encodes rows as bytes.

use std::borrow::Borrow;

use cgscope_model::Sample;
use integer_encoding::VarInt;

use super::{CHANGED, SAME, TableEncoder};
use crate::{
    cells::{Cell, Cells, ColumnKind, Columns, NONE, Texts},
    rows::{BAD_HISTOGRAM, Keyed},
};

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
        let mut columns = Columns::default();
        T::columns(&mut columns);
        let kinds: Vec<ColumnKind> = columns.columns.iter().map(|column| column.kind).collect();
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
        let (mut number, mut list) = (0, 0);
        for kind in &self.kinds {
            let start = out.len();
            out.push(CHANGED);
            let has_any = if kind.is_list() {
                list += 1;
                self.list_column(list - 1, out)
            } else {
                number += 1;
                self.number_column(number - 1, kind.base(), out)
            };
            if !has_any {
                out.truncate(start);
                out.push(SAME);
            }
        }
    }

    fn number_column(&self, column: usize, base: u64, out: &mut Vec<u8>) -> bool {
        let mut has_any = false;
        for (new, (_, old)) in self.touched.iter().enumerate() {
            let now = self.now.numbers[new * self.numbers + column];
            let before = old.map_or(base, |old| self.before.numbers[old * self.numbers + column]);
            has_any |= now != before;
            put(now.wrapping_sub(before) as i64, out);
        }
        has_any
    }

    fn list_column(&self, column: usize, out: &mut Vec<u8>) -> bool {
        let mut has_any = false;
        for (new, (_, old)) in self.touched.iter().enumerate() {
            let now = self.now.list_at(new * self.lists + column);
            let before = old.map_or(&[][..], |old| self.before.list_at(old * self.lists + column));
            has_any |= put_list(before, now, out);
        }
        has_any
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
fn differing(mut before: &[Cell], mut now: &[Cell]) -> impl Iterator<Item = (u32, i64)> + Clone {
    std::iter::from_fn(move || {
        loop {
            let index = match (before.first(), now.first()) {
                (Some(before), Some(now)) => before.0.min(now.0),
                (one, other) => one.or(other)?.0,
            };
            let (old, new) = (pop(&mut before, index), pop(&mut now, index));
            if old != new {
                return Some((index, new.wrapping_sub(old) as i64));
            }
        }
    })
}

/// Removes the number at this index, or returns [`NONE`] if there is none. The list must not contain a smaller index.
fn pop(list: &mut &[Cell], index: u32) -> u64 {
    match list.split_first() {
        Some(((at, number), rest)) if *at == index => {
            *list = rest;
            *number
        }
        _ => NONE,
    }
}
