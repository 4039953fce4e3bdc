//! Settings as the text of a file: TOML, in which comments, order and keys that are not ours stay.

use std::{fmt, ops::Range};

use toml_edit::{Document, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use super::{
    Settings,
    fields::{FIELDS, quoted},
    keymap,
};
use crate::{app::list::Kind, columns::Column, keys::Command, width::cut_end};

/// What a new file begins with.
const HEADING: &str =
    "# What `cgscope top` and `cgscope replay` remember. Comments and other lines stay as they are.\n";
/// Cells of a value that is said again, where it is wrong.
const SAID: usize = 40;
/// The tables of the file.
pub(super) const SORT: &str = "sort";
pub(super) const KEYS: &str = "keys";

/// What is wrong in a file, each in a sentence with its line.
pub(super) struct Warnings<'a> {
    text: &'a str,
    said: Vec<String>,
}

impl Warnings<'_> {
    /// Something is wrong there.
    pub(super) fn add(&mut self, at: Option<Range<usize>>, says: impl fmt::Display) {
        let line = at.map(|at| format!("line {}: ", line_of(self.text, at.start)));
        self.said.push(format!("{}{says}", line.unwrap_or_default()));
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

impl Settings {
    /// The settings that a file says, and what of it is wrong, each in a sentence: there the default stands.
    ///
    /// # Errors
    /// It is no TOML: what is wrong, with the line.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        let document = Document::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            format!("line {line} is no TOML: {}", error.message().lines().collect::<Vec<_>>().join(", "))
        })?;
        let mut settings = Self::default();
        let mut warnings = Warnings { text, said: Vec::new() };
        for (name, item) in document.iter() {
            let at = document.as_table().key(name).and_then(toml_edit::Key::span);
            match (name, item.as_table_like()) {
                (SORT, Some(table)) => settings.read_sort(table, &mut warnings),
                (KEYS, Some(table)) => settings.keymap = keymap::read(table, &mut warnings),
                (SORT | KEYS, None) => {
                    warnings.add(at, format_args!("{name} is a table: [{name}], and its lines below"))
                }
                _ => settings.read_field(name, item, at, &mut warnings),
            }
        }
        Ok((settings, warnings.said))
    }

    fn read_field(&mut self, name: &str, item: &Item, at: Option<Range<usize>>, warnings: &mut Warnings<'_>) {
        let Some(field) = FIELDS.iter().find(|field| field.name == name) else {
            let names: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
            let says =
                format!("{name:?} is no setting: there are {}, [{SORT}] and [{KEYS}]", names.join(", "));
            return warnings.add(at, says);
        };
        if (field.read)(self, item).is_none() {
            let (allowed, default) = ((field.allowed)(), (field.value)(self));
            let says =
                format!("{name} cannot be {}: it is {allowed}; until then it is {default}", said(item));
            warnings.add(item.span().or(at), says);
        }
    }

    fn read_sort(&mut self, table: &dyn TableLike, warnings: &mut Warnings<'_>) {
        for (name, item) in table.iter() {
            let at = item.span().or(table.key(name).and_then(toml_edit::Key::span));
            let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) else {
                let names = quoted(Kind::ALL.iter().map(|kind| kind.name()));
                warnings.add(at, format_args!("there is no list {name:?} to sort: a list is {names}"));
                continue;
            };
            match sort(kind, item) {
                Ok(sort) => drop(self.sort.insert(kind, sort)),
                Err(says) => warnings.add(at, says),
            }
        }
    }

    /// The text of a file that says these settings: `before`, with what differs from what it said. What is at its default and was
    /// not said is not said now. A text that is no TOML stays what it is.
    pub fn write_into(&self, before: &str) -> String {
        let Ok((was, _)) = Self::parse(before) else { return before.to_owned() };
        let Ok(mut document) = before.parse::<DocumentMut>() else { return before.to_owned() };
        let had_lines = !document.as_table().is_empty();
        if !had_lines {
            // Comments alone belong to no key: what is written comes after them.
            document = DocumentMut::new();
        }
        self.write_fields(&was, document.as_table_mut());
        self.write_sort(&was, document.as_table_mut());
        self.write_keys(&was, document.as_table_mut());
        match document.to_string() {
            text if had_lines => text,
            text if text.is_empty() => before.to_owned(),
            text if before.trim().is_empty() => format!("{HEADING}{text}"),
            text if before.ends_with('\n') => format!("{before}{text}"),
            text => format!("{before}\n{text}"),
        }
    }

    fn write_fields(&self, was: &Self, table: &mut Table) {
        for field in &FIELDS {
            let value = (field.value)(self);
            if value.to_string() != (field.value)(was).to_string() {
                set(table, field.name, value);
            }
        }
    }

    fn write_sort(&self, was: &Self, table: &mut Table) {
        for kind in Kind::ALL {
            let (column, reversed) = self.sort_of(kind);
            if (column, reversed) == was.sort_of(kind) {
                continue;
            }
            let Some(sorts) = table_of(table, SORT) else { return };
            match sorts.get_mut(kind.name()).and_then(Item::as_table_like_mut) {
                Some(sort) => {
                    if !kind.columns().is_empty() {
                        set(sort, "column", column.title().into());
                    }
                    set(sort, "reversed", reversed.into());
                }
                None => set(sorts, kind.name(), sort_value(kind, column, reversed)),
            }
        }
    }

    fn write_keys(&self, was: &Self, table: &mut Table) {
        for command in Command::ALL {
            let keys = self.keymap.keys(*command);
            if keys != was.keymap.keys(*command) {
                let Some(all) = table_of(table, KEYS) else { return };
                set(all, command.name(), keys.iter().map(ToString::to_string).collect());
            }
        }
    }
}

/// `"p99"`, or `{ column = "p99", reversed = true }`.
fn sort(kind: Kind, item: &Item) -> Result<(Column, bool), String> {
    let name = kind.name();
    let column = |item: &Item| {
        let found = item.as_str().and_then(|title| Column::by_title(title, kind.columns()));
        found.ok_or_else(|| match kind.columns() {
            [] => format!("{name} has no columns to sort by: it is {{ reversed = true }} or not there"),
            columns => {
                let titles = quoted(columns.iter().map(|column| column.title()));
                format!("{name} cannot be sorted by {}: it has {titles}", said(item))
            }
        })
    };
    let Some(table) = item.as_table_like() else { return Ok((column(item)?, false)) };
    let mut sort = (kind.sorted_by(), false);
    for (key, item) in table.iter() {
        match key {
            "column" => sort.0 = column(item)?,
            "reversed" => {
                sort.1 =
                    item.as_bool().ok_or_else(|| format!("reversed is true or false, not {}", said(item)))?;
            }
            _ => return Err(format!("{name} has column and reversed, and no {key:?}")),
        }
    }
    Ok(sort)
}

fn sort_value(kind: Kind, column: Column, reversed: bool) -> Value {
    let has_columns = !kind.columns().is_empty();
    if has_columns && !reversed {
        return column.title().into();
    }
    let mut table = InlineTable::new();
    if has_columns {
        table.insert("column", column.title().into());
    }
    table.insert("reversed", reversed.into());
    table.into()
}

/// A table, made if it is not there; `None`: something else has its name, which stays.
fn table_of<'a>(table: &'a mut Table, name: &str) -> Option<&'a mut dyn TableLike> {
    table.entry(name).or_insert_with(toml_edit::table).as_table_like_mut()
}

/// Sets a value where it is, with the comment beside it, or at the end. A table of this name is not ours, and stays.
fn set(table: &mut dyn TableLike, name: &str, mut to: Value) {
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            *to.decor_mut() = old.decor().clone();
            *old = to;
        }
        Some(_) => {}
        None => drop(table.insert(name, value(to))),
    }
}

/// A value, short and in one line.
pub(super) fn said(item: &Item) -> String {
    if item.is_table() || item.is_array_of_tables() {
        return "a table".into();
    }
    let text = item.to_string();
    let line: Vec<&str> = text.split_whitespace().collect();
    cut_end(&line.join(" "), SAID)
}
