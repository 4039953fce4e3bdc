//! Decodes rows from bytes. Functions return `None` for bytes that no writer writes.

use std::{collections::BTreeSet, sync::Arc};

use cgscope_model::Sample;
use itertools::EitherOrBoth::{Both, Left, Right};
use itertools::Itertools;

use super::{Bytes, CHANGED, SAME, Table, TableDecoder};
use crate::{
    cells::{Cell, ColumnKind, Columns, LONGEST, NONE, Row},
    rows::Keyed,
};

/// The columns of a table in a file. A column that the file lacks has its value in an empty row.
struct Layout {
    /// The columns in the order of the file. For a known column, this includes its index among the numbers or the lists of a row.
    file: Vec<(ColumnKind, Option<usize>)>,
    /// The numbers of a new row, before its first changes are added.
    base: Vec<u64>,
    lists: usize,
}

impl Layout {
    fn new<T: Keyed>(table: &Table) -> Self {
        let (mut base, mut lists, mut homes) = (Vec::new(), 0, Vec::new());
        for column in Columns::of::<T>() {
            let home = if column.kind.is_list() {
                lists += 1;
                lists - 1
            } else {
                base.push(column.kind.base());
                base.len() - 1
            };
            homes.push((column, home));
        }
        let home_of = |column| homes.iter().find(|(known, _)| known == column).map(|(_, home)| *home);
        let file = table.columns.iter().map(|column| (column.kind, home_of(column))).collect();
        Self { file, base, lists }
    }
}

/// Indices of the rows that differ from the previous sample.
#[derive(Default)]
struct RowChanges {
    removed: Vec<usize>,
    inserted: Vec<usize>,
    changed: Vec<usize>,
}

impl RowChanges {
    /// Reads the changes of a table that had `length` rows. Returns the new number of rows.
    fn read(&mut self, bytes: &mut Bytes<'_>, length: usize) -> Option<usize> {
        bytes.places(length, &mut self.removed)?;
        let left = length - self.removed.len();
        // Look ahead to the number of inserted rows: the new number of rows limits their indices.
        let mut ahead = Bytes(bytes.0);
        let now = left.checked_add(ahead.count(1)?)?;
        bytes.places(now, &mut self.inserted)?;
        bytes.places(now, &mut self.changed)?;
        Some(now)
    }

    /// Collects the indices of new and changed rows, ascending. `None` if a row is both new and changed.
    fn touched(&self, into: &mut Vec<usize>) -> Option<()> {
        into.clear();
        into.extend(self.inserted.iter().chain(&self.changed));
        into.sort_unstable();
        into.is_sorted_by(|a, b| a < b).then_some(())
    }
}

pub(crate) struct Decoder<T> {
    layout: Layout,
    entries: Vec<RowState<T>>,
    /// The rows before the last key frame. If a new row equals one of these rows, it shares the memory of this row.
    earlier: Vec<T>,
    places: RowChanges,
    touched: Vec<usize>,
    /// First numbers of the rows to decode; `None` for all rows. The other rows only keep their place.
    only: Option<BTreeSet<u64>>,
    /// Whether to collect the last values of removed rows (`last_rows`) and the first values of new rows (`came`), in order.
    pub(crate) keeps_changes: bool,
    pub(crate) last_rows: Vec<T>,
    pub(crate) came: Vec<T>,
}

struct RowState<T> {
    row: Option<T>,
    /// Whether the cells have changed since `row` was built.
    is_stale: bool,
    /// A bit for each list that has changed since `row` was built.
    changed: u64,
    numbers: Box<[u64]>,
    lists: Box<[Vec<Cell>]>,
}

impl<T: Keyed> Decoder<T> {
    pub(crate) fn new(table: &Table) -> Self {
        Self {
            layout: Layout::new::<T>(table),
            entries: Vec::new(),
            earlier: Vec::new(),
            places: RowChanges::default(),
            touched: Vec::new(),
            only: None,
            keeps_changes: false,
            last_rows: Vec::new(),
            came: Vec::new(),
        }
    }

    /// Starts a key frame, in which all rows are new. Returns the rows before this frame if the decoder keeps changes.
    pub(crate) fn begin(&mut self, texts: &[Arc<str>]) -> Option<Vec<T>> {
        let before = std::mem::take(&mut self.entries).into_iter();
        if !self.keeps_changes {
            self.earlier = before.filter_map(|entry| entry.row).collect();
            return Some(Vec::new());
        }
        self.earlier = before.map(|entry| entry.into_row(texts)).collect::<Option<_>>()?;
        Some(self.earlier.clone())
    }

    /// Ends a frame, and stores its new and removed rows if the decoder keeps changes. For a key frame, `before` holds the rows
    /// before it.
    pub(crate) fn end(&mut self, before: Option<Vec<T>>, texts: &[Arc<str>]) -> Option<()> {
        if !self.keeps_changes {
            return Some(());
        }
        let Some(before) = before else {
            for at in self.places.inserted.iter().copied() {
                let entry = &mut self.entries[at];
                entry.refresh(texts)?;
                self.came.extend(entry.row.clone());
            }
            return Some(());
        };
        let (mut last_rows, mut came) = (Vec::new(), Vec::new());
        for row in before.into_iter().merge_join_by(self.rows(texts)?, |a, b| a.key().cmp(&b.key())) {
            match row {
                Left(before) => last_rows.push(before),
                Right(now) => came.push(now.clone()),
                Both(..) => {}
            }
        }
        self.last_rows.append(&mut last_rows);
        self.came.append(&mut came);
        Some(())
    }

    pub(crate) fn rows(&mut self, texts: &[Arc<str>]) -> Option<impl Iterator<Item = &T>> {
        for entry in &mut self.entries {
            if is_wanted(self.only.as_ref(), entry) {
                entry.refresh(texts)?;
            }
        }
        self.share_earlier();
        let wanted = self.entries.iter().filter(|entry| is_wanted(self.only.as_ref(), entry));
        Some(wanted.filter_map(|entry| entry.row.as_ref()))
    }

    /// If a row equals a row before the key frame, replaces it by the earlier row, so that both share memory.
    fn share_earlier(&mut self) {
        let mut earlier = std::mem::take(&mut self.earlier).into_iter().peekable();
        for now in self.entries.iter_mut().filter_map(|entry| entry.row.as_mut()) {
            while earlier.next_if(|earlier| earlier.key() < now.key()).is_some() {}
            if let Some(same) = earlier.next_if(|earlier| earlier == now) {
                *now = same;
            }
        }
    }

    fn insert_and_remove(&mut self, length: usize, texts: &[Arc<str>]) -> Option<()> {
        let RowChanges { removed, inserted, .. } = &self.places;
        if removed.is_empty() && inserted.is_empty() {
            return Some(());
        }
        let mut places = removed.iter().peekable();
        let mut at = 0;
        let went = self.entries.extract_if(.., |_| {
            at += 1;
            places.next_if(|place| **place == at - 1).is_some()
        });
        for entry in went {
            if self.keeps_changes {
                self.last_rows.push(entry.into_row(texts)?);
            }
        }
        if inserted.is_empty() {
            return Some(());
        }
        let mut new = inserted.iter().peekable();
        let mut old = std::mem::take(&mut self.entries).into_iter();
        let entry = |place| match new.next_if(|new| **new == place) {
            Some(_) => Some(RowState::new(&self.layout)),
            None => old.next(),
        };
        self.entries = (0..length).filter_map(entry).collect();
        Some(())
    }

    fn number_column(&mut self, bytes: &mut Bytes<'_>, home: Option<usize>) -> Option<()> {
        let Some(column) = home else {
            return self.touched.iter().try_for_each(|_| bytes.change().map(drop));
        };
        for at in &self.touched {
            let change = bytes.change()?;
            if change != 0 {
                let number = &mut self.entries[*at].numbers[column];
                *number = number.wrapping_add(change);
            }
        }
        Some(())
    }

    fn list_column(&mut self, bytes: &mut Bytes<'_>, home: Option<usize>) -> Option<()> {
        let Some(column) = home else {
            return self.touched.iter().try_for_each(|_| skip_list(bytes));
        };
        for at in &self.touched {
            let entry = &mut self.entries[*at];
            if !is_wanted(self.only.as_ref(), entry) {
                skip_list(bytes)?;
            } else if change_list(&mut entry.lists[column], bytes)? {
                entry.changed |= 1u64.checked_shl(column as u32).unwrap_or(u64::MAX);
            }
        }
        Some(())
    }
}

impl<T: Keyed> TableDecoder for Decoder<T> {
    fn clear(&mut self) {
        self.entries.clear();
        self.earlier.clear();
        self.last_rows.clear();
        self.came.clear();
    }

    fn only(&mut self, rows: Option<BTreeSet<u64>>) {
        // This works only if the first column is a known number: the reader must know this number before it decodes the lists.
        let is_first = matches!(self.layout.file.first(), Some((kind, Some(0))) if !kind.is_list());
        self.only = rows.filter(|_| is_first);
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>, texts: &[Arc<str>], new_left: &mut usize) -> Option<()> {
        let length = self.places.read(bytes, self.entries.len())?;
        *new_left = new_left.checked_sub(self.places.inserted.len())?;
        self.insert_and_remove(length, texts)?;
        self.places.touched(&mut self.touched)?;
        if self.touched.is_empty() {
            return Some(());
        }
        for at in 0..self.layout.file.len() {
            let (kind, home) = self.layout.file[at];
            match bytes.take(1)?[0] {
                SAME => {}
                CHANGED if kind.is_list() => self.list_column(bytes, home)?,
                CHANGED => self.number_column(bytes, home)?,
                _ => return None,
            }
        }
        self.touched.iter().for_each(|at| self.entries[*at].is_stale = true);
        Some(())
    }

    fn give(&mut self, texts: &[Arc<str>], sample: &mut Sample) -> Option<()> {
        T::give(self.rows(texts)?, sample);
        Some(())
    }
}

impl<T: Keyed> RowState<T> {
    fn new(layout: &Layout) -> Self {
        Self {
            row: None,
            is_stale: true,
            numbers: layout.base.clone().into(),
            lists: vec![Vec::new(); layout.lists].into(),
            changed: 0,
        }
    }

    fn into_row(mut self, texts: &[Arc<str>]) -> Option<T> {
        self.refresh(texts)?;
        self.row
    }

    /// Rebuilds the row from the cells, if they have changed.
    fn refresh(&mut self, texts: &[Arc<str>]) -> Option<()> {
        if !self.is_stale {
            return Some(());
        }
        let before = self.row.as_ref().and_then(T::hist).map(|hist| (hist, self.changed));
        let (numbers, lists) = (self.numbers.iter(), &self.lists);
        self.row = Some(T::take(&mut Row { numbers, lists, next_list: 0, texts, before })?);
        (self.is_stale, self.changed) = (false, 0);
        Some(())
    }
}

fn is_wanted<T>(only: Option<&BTreeSet<u64>>, entry: &RowState<T>) -> bool {
    only.is_none_or(|only| entry.numbers.first().is_some_and(|number| only.contains(number)))
}

fn change_list(list: &mut Vec<Cell>, bytes: &mut Bytes<'_>) -> Option<bool> {
    let count = bytes.count(2)?;
    let (mut next, mut at) = (0u64, 0);
    for _ in 0..count {
        let index = u32::try_from(next.checked_add(bytes.gap()?)?).ok()?;
        let change = bytes.change().filter(|change| *change != 0)?;
        next = u64::from(index) + 1;
        while list.get(at).is_some_and(|(before, _)| *before < index) {
            at += 1;
        }
        let before = list.get(at).filter(|(before, _)| *before == index);
        match before.map(|(_, number)| number.wrapping_add(change)) {
            Some(NONE) => {
                list.remove(at);
            }
            Some(number) => list[at].1 = number,
            None if list.len() < LONGEST => list.insert(at, (index, NONE.wrapping_add(change))),
            None => return None,
        }
    }
    Some(count != 0)
}

fn skip_list(bytes: &mut Bytes<'_>) -> Option<()> {
    let count = 2 * bytes.count(2)?;
    bytes.skip(count)
}
