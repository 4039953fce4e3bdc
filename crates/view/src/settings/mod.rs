//! The user's choices on the screen, saved in a TOML file for the next run. Saving keeps comments, order and unknown keys.

use std::{collections::BTreeMap, time::Duration};

use cgscope_model::units::seconds;
use itertools::Itertools;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error},
};
use toml_edit::{Document, DocumentMut, InlineTable, Item, Key as TomlKey, Table, TableLike, Value, value};

use crate::app::{View, list::ListKind};
use crate::keys::{Command, KeyPress, Keymap};
use crate::{columns::Column, text::Unit, theme::Colours, width::cut_end};

/// The shortest interval. Reading 5,000 tasks takes about 10 ms.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// The longest interval: one day, the range of a clock.
pub const LONGEST: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Span {
    Interval,
    #[default]
    Minute,
    Start,
}

impl Span {
    pub const ALL: [Self; 3] = [Self::Interval, Self::Minute, Self::Start];

    pub fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// The settings. The fields are the keys of the file. `sort` and the serialized fields are saved when the user changes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub view: View,
    /// Show cgroups as a tree; otherwise a flat list of tasks.
    pub tree: bool,
    pub processes: bool,
    /// Show command lines; otherwise names.
    pub command_lines: bool,
    /// Sort columns of lists without their default order. True reverses the order.
    #[serde(skip)]
    pub sort: BTreeMap<ListKind, (Column, bool)>,
    pub span: Span,
    pub unit: Unit,
    /// Whether the mouse selects and scrolls; otherwise the terminal uses the mouse.
    pub mouse: bool,
    /// The colours; `None` detects them from the environment.
    #[serde(skip_serializing, deserialize_with = "colours")]
    pub colours: Option<Colours>,
    /// Time between Samples.
    #[serde(skip_serializing, deserialize_with = "interval")]
    pub interval: Duration,
    #[serde(skip)]
    pub keymap: Keymap,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            view: View::Overview,
            tree: true,
            processes: true,
            command_lines: false,
            sort: BTreeMap::new(),
            span: Span::default(),
            unit: Unit::Micro,
            mouse: true,
            colours: None,
            interval: Duration::from_secs(1),
            keymap: Keymap::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a text or a number")]
enum Scalar {
    Text(String),
    Number(f64),
}

fn colours<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Colours>, D::Error> {
    let text = match Scalar::deserialize(from)? {
        Scalar::Text(text) => text,
        Scalar::Number(number) => number.to_string(),
    };
    match text.as_str() {
        "auto" => Ok(None),
        "none" => Ok(Some(Colours::None)),
        "16" => Ok(Some(Colours::Sixteen)),
        "256" => Ok(Some(Colours::Many)),
        _ => Err(D::Error::custom("must be \"auto\", \"none\", \"16\" or \"256\"")),
    }
}

fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds = match Scalar::deserialize(from)? {
        Scalar::Text(text) => seconds(&text),
        Scalar::Number(seconds) => Some(seconds),
    };
    let bounds = SHORTEST.as_secs_f64()..=LONGEST.as_secs_f64();
    seconds.filter(|seconds| bounds.contains(seconds)).map(Duration::from_secs_f64).ok_or_else(|| {
        D::Error::custom(
            "must be a time like \"500ms\", \"2s\" or \"1m\" between 10ms and 24h; a plain number is seconds",
        )
    })
}

const HEADING: &str =
    "# Settings that `cgscope top` and `cgscope replay` save. Comments and other lines are kept.\n";
/// Maximum width of a warning about a wrong value, in cells.
const SENTENCE: usize = 220;
/// The key that quits if the settings leave no key to quit. Users must always be able to quit.
const ALWAYS_QUITS: &str = "ctrl-c";

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

fn place(table: &Table, name: &str) -> usize {
    table.key(name).and_then(TomlKey::span).map_or(0, |span| span.start)
}

impl Settings {
    /// Returns the sort column of a list, and whether its order is reversed.
    pub fn sort_of(&self, kind: ListKind) -> (Column, bool) {
        self.sort.get(&kind).copied().unwrap_or((kind.sorted_by(), false))
    }

    /// Parses the settings file. Returns a warning with the line for each wrong entry. A wrong entry keeps its default. Fails if
    /// the text is not TOML.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        let document = Document::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            format!("line {line} is not TOML: {}", error.message().lines().collect::<Vec<_>>().join(", "))
        })?;
        let mut reader = Reader { text, warnings: Vec::new() };
        let mut root = document.as_table().clone();
        let sort = reader.take_table(&mut root, "sort");
        let keys = reader.take_table(&mut root, "keys");
        let mut settings: Self = reader.read("", root);
        settings.sort = reader.sort(sort);
        settings.keymap = reader.keymap(keys);
        Ok((settings, reader.warnings))
    }

    /// Returns the text of the file with the changes from `begun` to `now`. Values from the command line are not saved. Changes
    /// that another screen has saved are kept. Fails if the text is not TOML.
    pub fn save_into(before: &str, begun: &Self, now: &Self) -> Result<String, String> {
        let (read, _) = Self::parse(before)?;
        let mut document: DocumentMut = before.parse().unwrap_or_default();
        let had_lines = !document.is_empty();
        if !had_lines {
            // Comments in a file without keys belong to no key, so new lines go below them.
            document = DocumentMut::new();
        }
        change(document.as_table_mut(), [&read, begun, now].map(Self::remembered).each_ref());
        if had_lines || document.is_empty() {
            return Ok(if had_lines { document.to_string() } else { before.to_owned() });
        }
        let above = if before.trim().is_empty() { HEADING } else { before };
        let newline = if above.ends_with('\n') { "" } else { "\n" };
        Ok(format!("{above}{newline}{document}"))
    }

    /// Whether saving either of the settings would give the same result.
    pub fn remembers_the_same(&self, other: &Self) -> bool {
        self.remembered().to_string() == other.remembered().to_string()
    }

    fn remembered(&self) -> Table {
        let mut table = toml_edit::ser::to_document(self).unwrap_or_default().as_table().clone();
        let sort = ListKind::ALL.iter().map(|kind| (kind.name(), sort_value(*kind, self.sort_of(*kind))));
        table.insert("sort", Item::Table(sort.collect()));
        table
    }
}

/// Sets the entries that differ between `begun` and `now`, unless the file (`read`) already has the new value.
fn change(table: &mut dyn TableLike, [read, begun, now]: [&Table; 3]) {
    for (name, item) in now {
        if [read, begun].iter().any(|other| other[name].to_string() == item.to_string()) {
            continue;
        }
        match [&read[name], &begun[name], item] {
            [Item::Table(read), Item::Table(begun), Item::Table(now)] => {
                let inner = table.entry(name).or_insert_with(toml_edit::table).as_table_like_mut();
                inner.into_iter().for_each(|inner| change(inner, [read, begun, now]));
            }
            [.., Item::Value(value)] => set(table, name, value.clone()),
            _ => {}
        }
    }
}

/// Sets a value and keeps the comment beside it, or appends a new entry.
fn set(table: &mut dyn TableLike, name: &str, mut to: Value) {
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            *to.decor_mut() = old.decor().clone();
            *old = to;
        }
        // The table has the form `[sort.threads]`.
        Some(Item::Table(old)) => match to {
            Value::InlineTable(to) => to.into_iter().for_each(|(name, value)| set(old, &name, value)),
            column => {
                set(old, "column", column);
                set(old, "reversed", false.into());
            }
        },
        _ => drop(table.insert(name, value(to))),
    }
}

/// Returns the sort column as `"p99"`, or as `{ column = "p99", reversed = true }` if reversed.
fn sort_value(kind: ListKind, (column, reversed): (Column, bool)) -> Value {
    let has_columns = !kind.columns().is_empty();
    if has_columns && !reversed {
        return column.title().into();
    }
    let title = has_columns.then(|| ("column", Value::from(column.title())));
    title.into_iter().chain([("reversed", reversed.into())]).collect::<InlineTable>().into()
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a heading like \"p99\", or { column = \"p99\", reversed = true }")]
enum SortBy {
    Title(String),
    Table(SortTable),
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SortTable {
    column: Option<String>,
    reversed: bool,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "keys must be a list like [\"q\", \"ctrl-c\"]")]
enum Keys {
    One(String),
    List(Vec<String>),
}

struct Reader<'a> {
    text: &'a str,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn warn(&mut self, at: usize, sentence: &str) {
        let line = line_of(self.text, at);
        self.warnings.push(format!("line {line}: {}", cut_end(sentence, SENTENCE)));
    }

    fn take_table(&mut self, root: &mut Table, name: &str) -> Table {
        let at = place(root, name);
        root.remove(name).map_or_else(Table::default, |item| {
            item.into_table().unwrap_or_else(|_| {
                self.warn(at, &format!("{name} must be a table: [{name}], with its lines below"));
                Table::default()
            })
        })
    }

    /// Parses a table. Wrong entries are reported and skipped.
    fn read<T: DeserializeOwned + Default>(&mut self, within: &str, mut table: Table) -> T {
        loop {
            let error = match toml_edit::de::from_document(DocumentMut::from(table.clone())) {
                Ok(value) => return value,
                Err(error) => error,
            };
            let at = error.span().map_or(0, |span| span.start);
            let places = table.iter().map(|(name, _)| (place(&table, name), name.to_owned()));
            let wrong = places.max_by_key(|(place, _)| (*place <= at).then_some(*place));
            let Some((_, name)) = wrong else { return T::default() };
            table.remove(&name);
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            self.warn(at, &format!("{within}{name}: {message}; using the default"));
        }
    }

    fn sort(&mut self, table: Table) -> BTreeMap<ListKind, (Column, bool)> {
        let read: BTreeMap<ListKind, SortBy> = self.read("sort.", table.clone());
        let mut sort = BTreeMap::new();
        for (kind, by) in read {
            let by = match by {
                SortBy::Title(title) => SortTable { column: Some(title), reversed: false },
                SortBy::Table(table) => table,
            };
            let found = by.column.as_ref().map(|title| Column::by_title(title, kind.columns()));
            if let Some(column) = found.unwrap_or(Some(kind.sorted_by())) {
                sort.insert(kind, (column, by.reversed));
                continue;
            }
            let titles: Vec<&str> = kind.columns().iter().map(|column| column.title()).collect();
            let has = if titles.is_empty() { "no columns".into() } else { titles.join(", ") };
            let title = by.column.unwrap_or_default();
            let sentence = format!("{} cannot be sorted by {title:?}: it has {has}", kind.name());
            self.warn(place(&table, kind.name()), &sentence);
        }
        sort
    }

    /// Returns the keymap of a table. A key in the table is removed from the command that has it by default.
    fn keymap(&mut self, table: Table) -> Keymap {
        let read: BTreeMap<Command, Keys> = self.read("keys.", table.clone());
        let read = read.into_iter().sorted_by_key(|(command, _)| place(&table, command.name()));
        let mut given: Vec<(Command, Vec<KeyPress>)> = Vec::new();
        for (command, keys) in read {
            let texts = match keys {
                Keys::One(text) => vec![text],
                Keys::List(texts) => texts,
            };
            let free = |key: KeyPress| match given.iter().find(|(_, keys)| keys.contains(&key)) {
                Some((other, _)) => {
                    Err(format!("{key} is already a key of {}, which keeps it", other.name()))
                }
                None => Ok(key),
            };
            let keys = texts.iter().map(|text| text.parse().and_then(free));
            let (keys, wrong): (Vec<KeyPress>, Vec<String>) = keys.partition_result();
            let (at, name) = (place(&table, command.name()), command.name());
            wrong.iter().for_each(|why| self.warn(at, &format!("{name}: {why}")));
            if texts.is_empty() || !keys.is_empty() {
                given.push((command, keys));
            }
        }
        let mut keymap = Keymap::default();
        let is_given: Vec<Command> = given.iter().map(|(command, _)| *command).collect();
        given.into_iter().for_each(|(command, keys)| keymap.set(command, keys));
        let lost = Command::ALL.into_iter().filter(|command| keymap.keys(*command).is_empty());
        let lost = lost.filter(|command| *command != Command::Quit && !is_given.contains(command));
        self.warnings.extend(lost.map(Command::name).map(|name| {
            format!("{name} has no key left: give it one, or write {name} = [] to leave it without")
        }));
        if keymap.keys(Command::Quit).is_empty() {
            self.warnings.push(format!("quit needs a key: using {ALWAYS_QUITS}"));
            keymap.set(Command::Quit, ALWAYS_QUITS.parse().into_iter().collect());
        }
        keymap
    }
}

#[cfg(test)]
mod tests;
