//! Bytes to rows. The bytes are not believed: whatever cannot have been written is `None`.

use std::sync::Arc;

use integer_encoding::VarInt;

use super::{CHANGED, SAME, Table};
use crate::{
    cells::{Cell, Columns, Kind, NONE, Row},
    rows::Keyed,
};

/// No list is longer: buckets, nodes, memory policies.
const LONGEST: usize = 1 << 16;

/// The bytes that are left of a payload.
#[derive(Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn number<N: VarInt>(&mut self) -> Option<N> {
        let (number, length) = N::decode_var(self.0)?;
        self.0 = &self.0[length..];
        Some(number)
    }

    /// How many of something follow, of which each takes at least `bytes`.
    pub(crate) fn count(&mut self, bytes: usize) -> Option<usize> {
        self.number::<usize>().filter(|count| *count <= self.0.len() / bytes)
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Places below `length`, ascending.
    fn places(&mut self, length: usize, into: &mut Vec<usize>) -> Option<()> {
        into.clear();
        let mut next = 0usize;
        for _ in 0..self.count(1)? {
            let place = next.checked_add(self.number()?).filter(|place| *place < length)?;
            into.push(place);
            next = place + 1;
        }
        Some(())
    }
}

/// Where a column of the file belongs.
#[derive(Clone, Copy, Debug)]
enum Home {
    Number(usize),
    List(usize),
    /// This version does not know it.
    Nowhere,
}

/// The columns of a file's table among those that this version knows. A file of another version may have more or less: what
/// it has not is as in an empty row.
#[derive(Debug)]
struct Layout {
    file: Vec<(Kind, Home)>,
    /// The numbers of a row that is new.
    base: Vec<u64>,
    lists: usize,
}

impl Layout {
    fn new<T: Keyed>(table: &Table) -> Self {
        let mut known = Columns::default();
        T::columns(&mut known);
        let (mut base, mut lists, mut homes) = (Vec::new(), 0, Vec::new());
        for column in known.columns {
            let home = if column.kind.is_list() {
                lists += 1;
                Home::List(lists - 1)
            } else {
                base.push(column.kind.base());
                Home::Number(base.len() - 1)
            };
            homes.push((column, home));
        }
        let home_of =
            |column| homes.iter().find(|(known, _)| known == column).map_or(Home::Nowhere, |(_, home)| *home);
        let file = table.columns.iter().map(|column| (column.kind, home_of(column))).collect();
        Self { file, base, lists }
    }
}

/// Which rows differ from those of the Sample before.
#[derive(Debug, Default)]
struct Places {
    removed: Vec<usize>,
    inserted: Vec<usize>,
    changed: Vec<usize>,
}

impl Places {
    /// Those of a table that had `length` rows; how many it has now.
    fn read(&mut self, bytes: &mut Bytes<'_>, length: usize) -> Option<usize> {
        bytes.places(length, &mut self.removed)?;
        let left = length - self.removed.len();
        // As many new rows as are said, anywhere among those that are left.
        let mut ahead = Bytes(bytes.0);
        let now = left.checked_add(ahead.count(1)?)?;
        bytes.places(now, &mut self.inserted)?;
        bytes.places(now, &mut self.changed)?;
        Some(now)
    }

    fn is_empty(&self) -> bool {
        self.inserted.is_empty() && self.changed.is_empty()
    }

    /// The rows that are new or changed, ascending; none can be both.
    fn touched(&self, into: &mut Vec<usize>) -> Option<()> {
        into.clear();
        into.extend(self.inserted.iter().chain(&self.changed));
        into.sort_unstable();
        into.is_sorted_by(|a, b| a < b).then_some(())
    }
}

/// Reads a table as it changes from Sample to Sample.
#[derive(Debug)]
pub(crate) struct Decoder<T> {
    layout: Layout,
    entries: Vec<Entry<T>>,
    places: Places,
    touched: Vec<usize>,
    /// A list as it is put together; kept for its memory.
    merged: Vec<Cell>,
}

#[derive(Debug)]
struct Entry<T> {
    /// `None` before it was put together for the first time.
    row: Option<T>,
    numbers: Box<[u64]>,
    lists: Box<[Vec<Cell>]>,
    /// A bit for each list that has changed.
    changed: u64,
}

impl<T: Keyed> Decoder<T> {
    pub(crate) fn new(table: &Table) -> Self {
        Self {
            layout: Layout::new::<T>(table),
            entries: Vec::new(),
            places: Places::default(),
            touched: Vec::new(),
            merged: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Takes the changes from `bytes`; `new_left` is how many rows may still be new in this frame.
    pub(crate) fn decode(
        &mut self,
        bytes: &mut Bytes<'_>,
        texts: &[Arc<str>],
        new_left: &mut usize,
    ) -> Option<()> {
        let length = self.places.read(bytes, self.entries.len())?;
        *new_left = new_left.checked_sub(self.places.inserted.len())?;
        self.come_and_go(length);
        if self.places.is_empty() {
            return Some(());
        }
        self.places.touched(&mut self.touched)?;
        for at in 0..self.layout.file.len() {
            let (kind, home) = self.layout.file[at];
            match bytes.byte()? {
                SAME => {}
                CHANGED if kind.is_list() => self.list_column(bytes, home)?,
                CHANGED => self.number_column(bytes, home)?,
                _ => return None,
            }
        }
        for at in &self.touched {
            self.entries[*at].build(texts)?;
        }
        Some(())
    }

    /// The rows as they are now.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &T> {
        self.entries.iter().map(|entry| entry.row.as_ref().expect("every row was built when it was new"))
    }

    fn come_and_go(&mut self, length: usize) {
        let Places { removed, inserted, .. } = &self.places;
        if removed.is_empty() && inserted.is_empty() {
            return;
        }
        let mut gone = removed.iter().peekable();
        let mut at = 0;
        self.entries.retain(|_| {
            at += 1;
            gone.next_if(|place| **place == at - 1).is_none()
        });
        if inserted.is_empty() {
            return;
        }
        let mut new = inserted.iter().peekable();
        let mut old = std::mem::take(&mut self.entries).into_iter();
        self.entries = (0..length)
            .filter_map(|place| match new.next_if(|new| **new == place) {
                Some(_) => Some(Entry::new(&self.layout)),
                None => old.next(),
            })
            .collect();
    }

    fn number_column(&mut self, bytes: &mut Bytes<'_>, home: Home) -> Option<()> {
        for at in &self.touched {
            let change = bytes.number::<i64>()?;
            if let Home::Number(column) = home {
                let number = &mut self.entries[*at].numbers[column];
                *number = number.wrapping_add(change as u64);
            }
        }
        Some(())
    }

    fn list_column(&mut self, bytes: &mut Bytes<'_>, home: Home) -> Option<()> {
        for at in &self.touched {
            match home {
                Home::List(column) => {
                    let entry = &mut self.entries[*at];
                    if change_list(&mut entry.lists[column], &mut self.merged, bytes)? {
                        entry.changed |= 1u64.checked_shl(column as u32).unwrap_or(u64::MAX);
                    }
                }
                _ => skip_list(bytes)?,
            }
        }
        Some(())
    }
}

impl<T: Keyed> Entry<T> {
    fn new(layout: &Layout) -> Self {
        Self {
            row: None,
            numbers: layout.base.clone().into(),
            lists: vec![Vec::new(); layout.lists].into(),
            changed: 0,
        }
    }

    fn build(&mut self, texts: &[Arc<str>]) -> Option<()> {
        let before = self.row.as_ref().and_then(T::hist).map(|hist| (hist, self.changed));
        self.row = Some(T::take(&mut Row::new(&self.numbers, &self.lists, texts, before))?);
        self.changed = 0;
        Some(())
    }
}

/// Makes the changes in a list; true if there are any.
fn change_list(list: &mut Vec<Cell>, merged: &mut Vec<Cell>, bytes: &mut Bytes<'_>) -> Option<bool> {
    let count = bytes.count(2)?;
    if count == 0 {
        return Some(false);
    }
    merged.clear();
    let mut before = list.iter().copied().peekable();
    let mut next = 0u64;
    for _ in 0..count {
        let index = u32::try_from(next.checked_add(bytes.number()?)?).ok()?;
        next = u64::from(index) + 1;
        merged.extend(std::iter::from_fn(|| before.next_if(|(at, _)| *at < index)));
        let number = before.next_if(|(at, _)| *at == index).map_or(NONE, |(_, number)| number);
        let change = bytes.number::<i64>().filter(|change| *change != 0)?;
        let number = number.wrapping_add(change as u64);
        if number != NONE {
            merged.push((index, number));
        }
    }
    merged.extend(before);
    if merged.len() > LONGEST {
        return None;
    }
    std::mem::swap(list, merged);
    Some(true)
}

fn skip_list(bytes: &mut Bytes<'_>) -> Option<()> {
    for _ in 0..bytes.count(2)? {
        bytes.number::<u64>()?;
        bytes.number::<i64>()?;
    }
    Some(())
}

/// A table that this version does not know: its bytes are gone over.
#[derive(Debug)]
pub(crate) struct Unknown {
    kinds: Vec<Kind>,
    rows: usize,
    places: Places,
}

impl Unknown {
    pub(crate) fn new(table: &Table) -> Self {
        let kinds = table.columns.iter().map(|column| column.kind).collect();
        Self { kinds, rows: 0, places: Places::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.rows = 0;
    }

    pub(crate) fn skip(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        self.rows = self.places.read(bytes, self.rows)?;
        if self.places.is_empty() {
            return Some(());
        }
        let touched = self.places.inserted.len() + self.places.changed.len();
        for kind in &self.kinds {
            match bytes.byte()? {
                SAME => {}
                CHANGED => {
                    for _ in 0..touched {
                        if kind.is_list() { skip_list(bytes) } else { bytes.number::<i64>().map(|_| ()) }?
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }
}
