//! The user's choices on the screen, saved from one run to the next.

mod file;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use cgscope_model::units::seconds;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{
    app::{list::ListKind, view::View},
    columns::Column,
    keys::Keymap,
    text::Unit,
    theme::Colours,
};

/// The shortest interval. Reading 5,000 tasks takes about 10 ms.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// The longest interval: one day, the range of a clock.
pub const LONGEST: Duration = Duration::from_secs(86_400);

/// The time span of histograms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// All spans.
    pub const ALL: [Self; 3] = [Self::Interval, Self::Minute, Self::Start];

    /// The next span; after the last comes the first.
    pub fn next(self) -> Self {
        match self {
            Self::Interval => Self::Minute,
            Self::Minute => Self::Start,
            Self::Start => Self::Interval,
        }
    }
}

/// The settings. The keys of the file are the names of the fields. Fields that are serialized, and `sort`, are saved when the
/// user changes them with keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The first view.
    pub view: View,
    /// Show cgroups as a tree; otherwise a flat list of tasks.
    pub tree: bool,
    /// Show processes; otherwise threads.
    pub processes: bool,
    /// Show command lines; otherwise names.
    pub command_lines: bool,
    /// Sort columns of lists that do not use their default. True reverses the order.
    #[serde(skip)]
    pub sort: BTreeMap<ListKind, (Column, bool)>,
    /// The time span of histograms.
    pub span: Span,
    /// The unit of histograms.
    pub unit: Unit,
    /// Whether the mouse selects and scrolls; otherwise the terminal uses the mouse.
    pub mouse: bool,
    /// The colours; `None` detects them from the environment.
    #[serde(skip_serializing, deserialize_with = "colours")]
    pub colours: Option<Colours>,
    /// Time between Samples.
    #[serde(skip_serializing, deserialize_with = "interval")]
    pub interval: Duration,
    /// The keys of each command.
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

impl Settings {
    /// The sort column of a list, and whether its order is reversed.
    pub fn sort_of(&self, kind: ListKind) -> (Column, bool) {
        self.sort.get(&kind).copied().unwrap_or((kind.sorted_by(), false))
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a text or a number")]
enum Scalar {
    Text(String),
    Whole(i64),
    Number(f64),
}

fn colours<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Colours>, D::Error> {
    let text = match Scalar::deserialize(from)? {
        Scalar::Text(text) => text,
        Scalar::Whole(number) => number.to_string(),
        Scalar::Number(_) => String::new(),
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
        Scalar::Whole(seconds) => Some(seconds as f64),
        Scalar::Number(seconds) => Some(seconds),
    };
    let bounds = SHORTEST.as_secs_f64()..=LONGEST.as_secs_f64();
    let within = seconds.filter(|seconds| bounds.contains(seconds));
    within.map(Duration::from_secs_f64).ok_or_else(|| {
        D::Error::custom(
            "must be a time like \"500ms\", \"2s\" or \"1m\" between 10ms and 24h; a plain number is seconds",
        )
    })
}
