//! Converts the values of a row to numbers and lists. All rows of a table have the columns that the file's header names.

use std::{collections::HashMap, sync::Arc};

use cgscope_model::Hist;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ColumnKind {
    Number,
    /// A number, or [`NONE`].
    Optional,
    /// A text, given by its number in [`Texts`].
    Text,
    /// A text, given by its number in [`Texts`], or [`NONE`].
    OptionalText,
    /// Pairs of an index and a number, ascending by index. A missing pair counts as [`NONE`].
    List,
    /// Pairs of an index and the number of a text, ascending by index.
    TextList,
}

impl ColumnKind {
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::List | Self::TextList)
    }

    /// Returns the value of the column in a new row before the row's first change is added.
    pub(crate) fn base(self) -> u64 {
        if matches!(self, Self::Number | Self::Text) { 0 } else { NONE }
    }
}

/// Stands for a missing number. Optional numbers and numbers in lists are always less than this value.
pub(crate) const NONE: u64 = u64::MAX;

/// Maximum number of cells in a list (buckets, nodes, memory policies), so that a change of a list takes little time.
pub(crate) const LONGEST: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    /// Path of a member in the model, such as `totals.by_cause.kernel`.
    pub(crate) name: String,
    pub(crate) kind: ColumnKind,
}

#[derive(Default)]
pub(crate) struct Columns {
    prefix: String,
    columns: Vec<Column>,
}

impl Columns {
    pub(crate) fn of<T: Field>() -> Vec<Column> {
        let mut columns = Self::default();
        T::columns(&mut columns);
        columns.columns
    }

    pub(crate) fn one(&mut self, kind: ColumnKind) {
        self.columns.push(Column { name: self.prefix.clone(), kind });
    }

    /// Adds the columns of a member. `columns` adds them; the name of the member becomes a prefix of their names.
    pub(crate) fn member(&mut self, name: &str, columns: impl FnOnce(&mut Self)) {
        let length = self.prefix.len();
        if length != 0 {
            self.prefix.push('.');
        }
        self.prefix.push_str(name);
        columns(self);
        self.prefix.truncate(length);
    }
}

pub(crate) type Cell = (u32, u64);

#[derive(Default)]
pub(crate) struct Cells {
    /// All numbers that are not in lists.
    pub(crate) numbers: Vec<u64>,
    cells: Vec<Cell>,
    /// End index of each list in `cells`.
    ends: Vec<usize>,
}

impl Cells {
    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.cells.clear();
        self.ends.clear();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.numbers.capacity() * size_of::<u64>()
            + self.cells.capacity() * size_of::<Cell>()
            + self.ends.capacity() * size_of::<usize>()
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.numbers.push(number);
    }

    pub(crate) fn optional(&mut self, number: Option<u64>) {
        self.numbers.push(number.map_or(NONE, |number| number.min(NONE - 1)));
    }

    pub(crate) fn list(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.cells
            .extend(cells.into_iter().take(LONGEST).map(|(index, number)| (index, number.min(NONE - 1))));
        self.ends.push(self.cells.len());
    }

    pub(crate) fn list_at(&self, n: usize) -> &[Cell] {
        let from = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.cells[from..self.ends[n]]
    }
}

/// Numbers of the strings that were written since the last key frame. The empty string has number 0.
#[derive(Default)]
pub(crate) struct Texts {
    numbers: HashMap<Arc<str>, u64>,
    /// Strings that have a number but are not in the file yet.
    pub(crate) new: Vec<Arc<str>>,
}

impl Texts {
    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.new.clear();
    }

    pub(crate) fn number(&mut self, text: &Arc<str>) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(text.clone(), number);
        self.new.push(text.clone());
        number
    }
}

pub(crate) struct Row<'a> {
    pub(crate) numbers: std::slice::Iter<'a, u64>,
    pub(crate) lists: &'a [Vec<Cell>],
    pub(crate) next_list: usize,
    pub(crate) texts: &'a [Arc<str>],
    /// The previous histogram of the row, and a bit for each list that has changed since then.
    pub(crate) before: Option<(&'a Arc<Hist>, u64)>,
}

impl<'a> Row<'a> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        self.numbers.next().copied()
    }

    pub(crate) fn optional(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| Some(number).filter(|number| *number != NONE))
    }

    pub(crate) fn list(&mut self) -> Option<&'a [Cell]> {
        self.next_list += 1;
        self.lists.get(self.next_list - 1).map(Vec::as_slice)
    }

    pub(crate) fn text(&self, number: u64) -> Option<Arc<str>> {
        self.texts.get(usize::try_from(number).ok()?).cloned()
    }
}

/// A value that is part of a row. `take` returns `None` for cells that no writer writes.
pub(crate) trait Field: Sized {
    fn columns(columns: &mut Columns);
    fn put(&self, cells: &mut Cells, texts: &mut Texts);
    fn take(row: &mut Row<'_>) -> Option<Self>;
}

/// Implements [`Field`] for types that are a single number. Its arguments are the kind of the column, and the conversions to and
/// from a number.
macro_rules! single_numbers {
    ($($type:ty: $kind:ident, $number:ident,
       |$value:pat_param, $texts:pat_param| $put:expr, |$cell:pat_param, $row:pat_param| $take:expr;)*) => {$(
        impl $crate::cells::Field for $type {
            fn columns(columns: &mut $crate::cells::Columns) {
                columns.one($crate::cells::ColumnKind::$kind);
            }
            fn put(&self, cells: &mut $crate::cells::Cells, texts: &mut $crate::cells::Texts) {
                let ($value, $texts) = (self, texts);
                cells.$number($put);
            }
            fn take(row: &mut $crate::cells::Row<'_>) -> Option<Self> {
                let ($cell, $row) = (row.$number()?, row);
                $take
            }
        }
    )*};
}
pub(crate) use single_numbers;

/// Returns the value with this number; `None` if no writer writes this number.
pub(crate) fn value_at<T: Copy>(number: u64, values: [T; 2]) -> Option<T> {
    values.get(usize::try_from(number).ok()?).copied()
}

single_numbers! {
    u64: Number, number, |value, _| *value, |number, _| Some(number);
    u32: Number, number, |value, _| (*value).into(), |number, _| number.try_into().ok();
    u8: Number, number, |value, _| (*value).into(), |number, _| number.try_into().ok();
    i32: Number, number, |value, _| u64::from(value.cast_unsigned()), |number, _| u32::try_from(number).ok().map(u32::cast_signed);
    bool: Number, number, |value, _| (*value).into(), |number, _| value_at(number, [false, true]);
    Option<u64>: Optional, optional, |value, _| *value, |number, _| Some(number);
    Option<u32>: Optional, optional, |value, _| value.map(u64::from), |number, _| number.map(u32::try_from).transpose().ok();
    // Stored as the bits of the float. The bits of `NONE` are a NaN that no arithmetic produces.
    Option<f64>: Optional, optional, |value, _| value.map(f64::to_bits), |number, _| Some(number.map(f64::from_bits));
    Arc<str>: Text, number, |text, texts| texts.number(text), |number, row| row.text(number);
    Option<Arc<str>>: OptionalText, optional, |text, texts| text.as_ref().map(|text| texts.number(text)),
        |number, row| match number {
            None => Some(None),
            Some(number) => row.text(number).map(Some),
        };
}

/// Amounts by index, with ascending indices.
impl Field for Vec<Cell> {
    fn columns(columns: &mut Columns) {
        columns.one(ColumnKind::List);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.list(self.iter().copied());
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        row.list().map(<[Cell]>::to_vec)
    }
}

/// Named amounts in any order, as a list of names and a list of amounts. A name and its amount have the same index.
impl Field for Vec<(Arc<str>, u64)> {
    fn columns(columns: &mut Columns) {
        columns.member("name", |columns| columns.one(ColumnKind::TextList));
        columns.member("amount", |columns| columns.one(ColumnKind::List));
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        cells.list((0..).zip(self.iter().map(|(name, _)| texts.number(name))));
        cells.list((0..).zip(self.iter().map(|(_, amount)| *amount)));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        let (names, amounts) = (row.list()?, row.list()?);
        let same_places = names.iter().map(|(place, _)| place).eq(amounts.iter().map(|(place, _)| place));
        let pairs = names.iter().zip(amounts);
        same_places
            .then(|| pairs.map(|((_, name), (_, amount))| Some((row.text(*name)?, *amount))).collect())?
    }
}

impl Field for Arc<Hist> {
    fn columns(columns: &mut Columns) {
        columns.member("counts", |columns| columns.one(ColumnKind::List));
        columns.member("shares", |columns| columns.one(ColumnKind::List));
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.list(self.counts.iter().map(|(bucket, count)| (bucket as u32, count)));
        cells.list(self.shares.iter().map(|(cell, share)| (cell as u32, share)));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        // A task often changes without a wait. If its histogram has not changed, share it: this makes comparisons of two samples
        // fast.
        let lists = 0b11u64.checked_shl(row.next_list as u32).unwrap_or(u64::MAX);
        let same = row.before.filter(|(_, changed)| changed & lists == 0).map(|(hist, _)| hist.clone());
        let (counts, shares) = (row.list()?, row.list()?);
        same.or_else(|| Hist::from_cells(counts.iter().copied(), shares.iter().copied()).map(Self::new))
    }
}
