//! The settings with one value, each defined once: for reading, for writing and for the documentation.

use std::time::Duration;

use cgscope_model::units::seconds;
use toml_edit::{Item, Value};

use super::{LONGEST, SHORTEST, Settings, Span};
use crate::{app::view::View, text::Unit, theme::Colours};

/// A setting with one value.
pub(super) struct Field {
    /// Its key in the file.
    pub name: &'static str,
    /// What it may be, in words.
    pub allowed: fn() -> String,
    /// What it is, in a few words.
    pub does: &'static str,
    /// What keys change is remembered; what only the file and the command line say is not.
    pub is_remembered: bool,
    /// Takes a value over; `None`: it is not among those allowed.
    pub read: fn(&mut Settings, &Item) -> Option<()>,
    /// The value in the file.
    pub value: fn(&Settings) -> Value,
}

const UNITS: [(&str, Unit); 2] = [("us", Unit::Micro), ("ms", Unit::Milli)];
const COLOURS: [(&str, Option<Colours>); 4] = [
    ("auto", None),
    ("none", Some(Colours::None)),
    ("16", Some(Colours::Sixteen)),
    ("256", Some(Colours::Many)),
];

/// All of them, in the order of the documentation.
pub(super) const FIELDS: [Field; 9] = [
    Field {
        name: "view",
        allowed: || quoted(View::ALL.iter().map(|view| view.name())),
        does: "the view that is shown first",
        is_remembered: true,
        read: |settings, item| View::by_name(item.as_str()?).map(|view| settings.view = view),
        value: |settings| settings.view.name().into(),
    },
    Field {
        name: "tree",
        allowed: truth,
        does: "cgroups as a tree; else a flat list of tasks",
        is_remembered: true,
        read: |settings, item| item.as_bool().map(|tree| settings.tree = tree),
        value: |settings| settings.tree.into(),
    },
    Field {
        name: "processes",
        allowed: truth,
        does: "lists of tasks have processes; else threads",
        is_remembered: true,
        read: |settings, item| item.as_bool().map(|processes| settings.processes = processes),
        value: |settings| settings.processes.into(),
    },
    Field {
        name: "command_lines",
        allowed: truth,
        does: "tasks by their command lines; else by their names",
        is_remembered: true,
        read: |settings, item| item.as_bool().map(|lines| settings.command_lines = lines),
        value: |settings| settings.command_lines.into(),
    },
    Field {
        name: "span",
        allowed: || quoted(Span::ALL.iter().map(|span| span.name())),
        does: "the time that histograms are of: the interval, the last minute, or all since the start",
        is_remembered: true,
        read: |settings, item| Span::by_name(item.as_str()?).map(|span| settings.span = span),
        value: |settings| settings.span.name().into(),
    },
    Field {
        name: "unit",
        allowed: || quoted(UNITS.iter().map(|(name, _)| *name)),
        does: "the unit of histograms",
        is_remembered: true,
        read: |settings, item| by_name(&UNITS, item.as_str()?).map(|unit| settings.unit = unit),
        value: |settings| name_of(&UNITS, settings.unit).into(),
    },
    Field {
        name: "mouse",
        allowed: truth,
        does: "the mouse selects rows and views; else it selects text, as without cgscope",
        is_remembered: true,
        read: |settings, item| item.as_bool().map(|mouse| settings.mouse = mouse),
        value: |settings| settings.mouse.into(),
    },
    Field {
        name: "colours",
        allowed: || quoted(COLOURS.iter().map(|(name, _)| *name)),
        does: "how many colours the screen has; `auto`: what the environment says",
        is_remembered: false,
        read: |settings, item| {
            let number = item.as_integer().map(|number| number.to_string());
            by_name(&COLOURS, number.as_deref().or(item.as_str())?).map(|colours| settings.colours = colours)
        },
        value: |settings| name_of(&COLOURS, settings.colours).into(),
    },
    Field {
        name: "interval",
        allowed: || {
            "a time like \"500ms\", \"2s\" or \"1m\" between 10ms and 24h; a plain number is seconds".into()
        },
        does: "the length of intervals, unless `--delay` says it",
        is_remembered: false,
        read: |settings, item| {
            let number = item.as_float().or_else(|| item.as_integer().map(|number| number as f64));
            length(number.or_else(|| seconds(item.as_str()?))?).map(|interval| settings.interval = interval)
        },
        value: |settings| written(settings.interval).into(),
    },
];

fn truth() -> String {
    "true or false".into()
}

/// `"a", "b" or "c"`
pub(super) fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    match (names.pop(), names.is_empty()) {
        (Some(last), false) => format!("{} or {last}", names.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

fn by_name<T: Copy>(named: &[(&str, T)], name: &str) -> Option<T> {
    named.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(named: &[(&'static str, T)], value: T) -> &'static str {
    named.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

fn length(seconds: f64) -> Option<Duration> {
    let bounds = SHORTEST.as_secs_f64()..=LONGEST.as_secs_f64();
    bounds.contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// As short as it can be read back without loss.
fn written(interval: Duration) -> String {
    let ms = interval.as_millis();
    if ms < 1_000 && Duration::from_millis(ms as u64) == interval {
        format!("{ms}ms")
    } else {
        format!("{}s", interval.as_secs_f64())
    }
}
