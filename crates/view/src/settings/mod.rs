//! What is remembered from one time to the next.

mod fields;
mod file;
mod keymap;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use crate::{
    app::{list::Kind, view::View},
    columns::Column,
    keys::Keymap,
    text::Unit,
    theme::Colours,
};

/// The shortest interval: reading 5,000 tasks takes about 10 ms.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// The longest one: a day is what a clock in a terminal may show.
pub const LONGEST: Duration = Duration::from_secs(86_400);

/// The time that histograms are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// The interval shown.
    Interval,
    /// The last minute.
    #[default]
    Minute,
    /// Since the start.
    Start,
}

impl Span {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Interval, Self::Minute, Self::Start];

    /// The name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Minute => "minute",
            Self::Start => "start",
        }
    }

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| span.name() == name)
    }

    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::Interval => Self::Minute,
            Self::Minute => Self::Start,
            Self::Start => Self::Interval,
        }
    }
}

/// What a user has chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The view that is shown first.
    pub view: View,
    /// Cgroups as a tree; else a flat list of tasks.
    pub tree: bool,
    /// Processes; else threads.
    pub processes: bool,
    /// Command lines; else names.
    pub command_lines: bool,
    /// What lists are sorted by, where it is not their own choice; and whether the other way round.
    pub sort: BTreeMap<Kind, (Column, bool)>,
    /// Of histograms.
    pub span: Span,
    /// Of histograms.
    pub unit: Unit,
    /// The mouse selects, scrolls and clicks; else it is the terminal's.
    pub mouse: bool,
    /// Instead of those that the environment tells.
    pub colours: Option<Colours>,
    /// Between Samples.
    pub interval: Duration,
    /// Which key does what.
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

/// A setting with one value, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its key in the file.
    pub name: &'static str,
    /// What it may be.
    pub allowed: String,
    /// What it is if nothing is said, as in the file.
    pub default: String,
    /// What it is.
    pub does: &'static str,
    /// What keys make of it is there the next time; else only the file says it.
    pub is_remembered: bool,
}

impl Settings {
    /// The settings with one value, for help and documentation.
    pub fn described() -> Vec<Described> {
        let default = Self::default();
        let described = fields::FIELDS.iter().map(|field| Described {
            name: field.name,
            allowed: (field.allowed)(),
            default: (field.value)(&default).to_string(),
            does: field.does,
            is_remembered: field.is_remembered,
        });
        described.collect()
    }

    /// What a list is sorted by, and whether the other way round.
    pub fn sort_of(&self, kind: Kind) -> (Column, bool) {
        self.sort.get(&kind).copied().unwrap_or((kind.sorted_by(), false))
    }

    /// These, with what has changed from `begun` to `now` and is remembered: views, lists, histograms, the mouse. So what the
    /// command line said for this time is not taken over, nor what another cgscope has written meanwhile undone.
    #[must_use]
    pub fn with_changes(mut self, begun: &Self, now: &Self) -> Self {
        for field in fields::FIELDS.iter().filter(|field| field.is_remembered) {
            let value = (field.value)(now);
            if value.to_string() != (field.value)(begun).to_string() {
                (field.read)(&mut self, &value.into());
            }
        }
        for kind in Kind::ALL {
            if begun.sort_of(kind) != now.sort_of(kind) {
                self.sort.insert(kind, now.sort_of(kind));
            }
        }
        self
    }
}
