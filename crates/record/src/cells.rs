//! How the values of a row are laid out in cells: numbers, and lists of numbers. A row has the same cells in the same order
//! whatever its values are, so that its columns can be named once, in the header.

use std::{collections::HashMap, sync::Arc};

use cgscope_model::Hist;
use serde::{Deserialize, Serialize};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A number.
    Number,
    /// A number, or [`NONE`].
    Optional,
    /// The number of a text.
    Text,
    /// The number of a text, or [`NONE`].
    OptionalText,
    /// Pairs of an index and a number, ascending by index; [`NONE`] stands for what is not there.
    List,
    /// The same with numbers of texts.
    TextList,
}

impl Kind {
    /// A list, not a single number.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::List | Self::TextList)
    }

    /// What a new row is compared with.
    pub(crate) fn base(self) -> u64 {
        match self {
            Self::Number | Self::Text => 0,
            Self::Optional | Self::OptionalText | Self::List | Self::TextList => NONE,
        }
    }
}

/// Stands for what is not there. Optional numbers and those in lists are thus at most one less.
pub(crate) const NONE: u64 = u64::MAX;

/// No list is longer, so that a change in one is made at once: buckets, nodes, memory policies.
pub(crate) const LONGEST: usize = 4096;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name: the path of members in the model, like `totals.by_cause.kernel`.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}

/// The columns of a row, as they are gathered.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    prefix: String,
    pub(crate) columns: Vec<Column>,
}

impl Columns {
    /// A column with the name of the present member.
    pub(crate) fn one(&mut self, kind: Kind) {
        self.columns.push(Column { name: self.prefix.clone(), kind });
    }

    /// The columns of a member.
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

/// An index and a number.
pub(crate) type Cell = (u32, u64);

/// The rows of a table in cells, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// The single numbers, row by row.
    pub(crate) numbers: Vec<u64>,
    cells: Vec<Cell>,
    /// Where each list ends in `cells`.
    ends: Vec<usize>,
}

impl Cells {
    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.cells.clear();
        self.ends.clear();
    }

    /// Makes room for as many as there are in another.
    pub(crate) fn reserve_as(&mut self, other: &Self) {
        self.numbers.reserve(other.numbers.len());
        self.cells.reserve(other.cells.len());
        self.ends.reserve(other.ends.len());
    }

    /// Bytes that it holds.
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

    /// List number `n`, counted over all rows.
    pub(crate) fn list_at(&self, n: usize) -> &[Cell] {
        let from = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.cells[from..self.ends[n]]
    }
}

/// The texts written since the last key frame, by their numbers. The empty text is number 0.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    numbers: HashMap<Arc<str>, u64>,
    /// Those that the file has not got yet.
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

/// The cells of one row as they are read back.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) numbers: std::slice::Iter<'a, u64>,
    lists: &'a [Vec<Cell>],
    /// The next list.
    at: usize,
    pub(crate) texts: &'a [Arc<str>],
    /// The histogram that the row had before, and a bit for each list that has changed since.
    before: Option<(&'a Arc<Hist>, u64)>,
}

impl<'a> Row<'a> {
    pub(crate) fn new(
        numbers: &'a [u64],
        lists: &'a [Vec<Cell>],
        texts: &'a [Arc<str>],
        before: Option<(&'a Arc<Hist>, u64)>,
    ) -> Self {
        Self { numbers: numbers.iter(), lists, at: 0, texts, before }
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.numbers.next().copied()
    }

    pub(crate) fn optional(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| Some(number).filter(|number| *number != NONE))
    }

    pub(crate) fn list(&mut self) -> Option<&'a [Cell]> {
        self.at += 1;
        self.lists.get(self.at - 1).map(Vec::as_slice)
    }

    pub(crate) fn text(&self, number: u64) -> Option<Arc<str>> {
        self.texts.get(usize::try_from(number).ok()?).cloned()
    }
}

/// What rows are made of. `None` of `take`: no such value can have been written.
pub(crate) trait Field: Sized {
    fn columns(columns: &mut Columns);
    fn put(&self, cells: &mut Cells, texts: &mut Texts);
    fn take(row: &mut Row<'_>) -> Option<Self>;
}

impl Field for u64 {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Number);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.number(*self);
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        row.number()
    }
}

impl Field for u32 {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Number);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.number((*self).into());
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        row.number()?.try_into().ok()
    }
}

impl Field for bool {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Number);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.number((*self).into());
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Field for Option<u64> {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Optional);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.optional(*self);
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        row.optional()
    }
}

impl Field for Option<u32> {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Optional);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.optional(self.map(u64::from));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        row.optional()?.map(u32::try_from).transpose().ok()
    }
}

/// By its bits. The bits of [`NONE`] are a NaN that no arithmetic gives.
impl Field for Option<f64> {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Optional);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.optional(self.map(f64::to_bits));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        Some(row.optional()?.map(f64::from_bits))
    }
}

impl Field for Arc<str> {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Text);
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        cells.number(texts.number(self));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        let number = row.number()?;
        row.text(number)
    }
}

impl Field for Option<Arc<str>> {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::OptionalText);
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        cells.optional(self.as_ref().map(|text| texts.number(text)));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.optional()? {
            None => Some(None),
            Some(number) => row.text(number).map(Some),
        }
    }
}

/// Amounts by a number that names something and ascends.
impl Field for Vec<Cell> {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::List);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.list(self.iter().copied());
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        row.list().map(<[Cell]>::to_vec)
    }
}

/// Named amounts in an order of their own: a list of the names and one of the amounts, by place.
impl Field for Vec<(Arc<str>, u64)> {
    fn columns(columns: &mut Columns) {
        columns.member("name", |columns| columns.one(Kind::TextList));
        columns.member("amount", |columns| columns.one(Kind::List));
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

/// The buckets, and the shares of causes in them.
impl Field for Arc<Hist> {
    fn columns(columns: &mut Columns) {
        columns.member("counts", |columns| columns.one(Kind::List));
        columns.member("shares", |columns| columns.one(Kind::List));
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        // Both are numbered in a byte.
        cells.list(self.counts().map(|(bucket, count)| (bucket as u32, count)));
        cells.list(self.shares().map(|(cell, share)| (cell as u32, share)));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        // Most of what changes in a task is no wait; and whoever compares two Samples sees at once that nothing was added.
        let lists = 0b11u64.checked_shl(row.at as u32).unwrap_or(u64::MAX);
        let same = row.before.filter(|(_, changed)| changed & lists == 0).map(|(hist, _)| hist.clone());
        let (counts, shares) = (row.list()?, row.list()?);
        same.or_else(|| Hist::from_cells(counts.iter().copied(), shares.iter().copied()).map(Self::new))
    }
}
