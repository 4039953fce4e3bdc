//! Encodes rows as bytes.

use std::{borrow::Borrow, cmp::Ordering};

use cgscope_model::Sample;
use integer_encoding::VarInt;

use super::{CHANGED, SAME, TableEncoder};
use crate::{
    cells::{Cell, Cells, ColumnKind, Columns, NONE, Texts},
    rows::Keyed,
};

pub(crate) struct Encoder<T: Keyed> {
    kinds: Vec<ColumnKind>,
    /// The number of columns with numbers, and with lists.
    numbers: usize,
    lists: usize,
    before: TableRows<T>,
    now: TableRows<T>,
    /// Removed rows, by their places in the previous sample.
    removed: Vec<usize>,
    /// New or changed rows: the place now, and the previous place if the row is not new.
    touched: Vec<(usize, Option<usize>)>,
}

struct TableRows<T: Keyed> {
    keys: Vec<T::Key>,
    cells: Cells,
}

impl<T: Keyed> Default for TableRows<T> {
    fn default() -> Self {
        Self { keys: Vec::new(), cells: Cells::default() }
    }
}

impl<T: Keyed> TableRows<T> {
    fn clear(&mut self) {
        self.keys.clear();
        self.cells.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<T::Key>() + self.cells.memory_bytes()
    }
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
            before: TableRows::default(),
            now: TableRows::default(),
            removed: Vec::new(),
            touched: Vec::new(),
        }
    }
}

impl<T: Keyed> TableEncoder for Encoder<T> {
    fn clear(&mut self) {
        self.before.clear();
    }

    fn encode(&mut self, sample: &Sample, texts: &mut Texts, out: &mut Vec<u8>) -> usize {
        self.now.clear();
        self.now.keys.reserve(self.before.keys.len());
        self.now.cells.reserve_as(&self.before.cells);
        for row in T::of(sample) {
            let row = row.borrow();
            self.now.keys.push(row.key());
            row.put(&mut self.now.cells, texts);
        }
        self.compare();
        let new = self.touched.iter().filter(|(_, old)| old.is_none()).map(|(new, _)| *new);
        let changed = self.touched.iter().filter(|(_, old)| old.is_some()).map(|(new, _)| *new);
        put_places(self.removed.iter().copied(), out);
        put_places(new.clone(), out);
        put_places(changed, out);
        let new = new.count();
        if !self.touched.is_empty() {
            self.columns(out);
        }
        std::mem::swap(&mut self.before, &mut self.now);
        new
    }

    fn release(&mut self) {
        self.now = TableRows::default();
        (self.removed, self.touched) = (Vec::new(), Vec::new());
    }

    fn memory_bytes(&self) -> usize {
        self.before.memory_bytes() + self.now.memory_bytes()
    }

    fn rows(&self) -> usize {
        self.before.keys.len()
    }
}

impl<T: Keyed> Encoder<T> {
    /// Finds the removed, new and changed rows. Rows ascend by key.
    fn compare(&mut self) {
        self.removed.clear();
        self.touched.clear();
        let (before, now) = (&self.before.keys, &self.now.keys);
        let (mut old, mut new) = (0, 0);
        while old < before.len() || new < now.len() {
            let order = match (before.get(old), now.get(new)) {
                (Some(before), Some(now)) => before.cmp(now),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            match order {
                Ordering::Less => self.removed.push(old),
                Ordering::Greater => self.touched.push((new, None)),
                Ordering::Equal if !self.is_same(old, new) => self.touched.push((new, Some(old))),
                Ordering::Equal => {}
            }
            old += usize::from(order.is_le());
            new += usize::from(order.is_ge());
        }
    }

    fn is_same(&self, old: usize, new: usize) -> bool {
        let (numbers, lists) = (self.numbers, self.lists);
        let (before, now) = (&self.before.cells, &self.now.cells);
        before.numbers[old * numbers..][..numbers] == now.numbers[new * numbers..][..numbers]
            && (0..lists).all(|list| before.list_at(old * lists + list) == now.list_at(new * lists + list))
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
        for (new, old) in &self.touched {
            let now = self.now.cells.numbers[new * self.numbers + column];
            let before = old.map_or(base, |old| self.before.cells.numbers[old * self.numbers + column]);
            has_any |= now != before;
            put(now.wrapping_sub(before) as i64, out);
        }
        has_any
    }

    fn list_column(&self, column: usize, out: &mut Vec<u8>) -> bool {
        let mut has_any = false;
        for (new, old) in &self.touched {
            let now = self.now.cells.list_at(new * self.lists + column);
            let before = old.map_or(&[][..], |old| self.before.cells.list_at(old * self.lists + column));
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

/// Writes the number of places, and the gap before each.
fn put_places(places: impl Iterator<Item = usize> + Clone, out: &mut Vec<u8>) {
    put(places.clone().count(), out);
    let mut next = 0;
    for place in places {
        put(place - next, out);
        next = place + 1;
    }
}

/// Writes the number of differing cells, then the gap before each and the difference. Returns whether there are any.
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

/// The cells in which two lists differ, ascending, with the differences.
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

/// Removes and returns the number at this index, or returns [`NONE`]. The list must have no smaller index.
fn pop(list: &mut &[Cell], index: u32) -> u64 {
    match list.split_first() {
        Some(((at, number), rest)) if *at == index => {
            *list = rest;
            *number
        }
        _ => NONE,
    }
}
