//! The commands of the screen and their keys. Input, the help, the documentation and the settings all use this table.

use std::{collections::BTreeMap, fmt, str::FromStr};

use cgscope_ledger::named;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::app::{App, Effect, View};

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Command (name, default_keys, does, action) {
        /// The name in the settings file.
        name: &'static str,
        default_keys: &'static [&'static str],
        does: &'static str,
        action: fn(&mut App) -> Effect,
    }

    Quit = "quit", &["q", "f10", "ctrl-c"], "quits", |_| Effect::Quit;
    Help = "help", &["?", "h", "f1"], "opens or closes this help", |app| app.switch_to(View::Help);
    Overview = "overview", &["1"], "Overview: what is wrong, who waits, and why", |app| app.switch_to(View::Overview);
    Histogram = "histogram", &["2"], "Histogram: how long waits are, by cause", |app| app.switch_to(View::Histogram);
    Heatmap = "heatmap", &["3"], "Heatmap: how long waits are, over time", |app| app.switch_to(View::Heatmap);
    Cgroups = "cgroups", &["4"], "Cgroups: quotas, whom they throttle, pressure", |app| app.switch_to(View::Cgroups);
    Culprits = "culprits", &["5"], "Culprits: who made whom wait", |app| app.switch_to(View::Culprits);
    Numa = "numa", &["6"], "NUMA: nodes side by side", |app| app.switch_to(View::Numa);
    States = "states", &["7"], "States: how many threads run, wait and sleep", |app| app.switch_to(View::States);
    Task = "task", &["8"], "Task: everything about the selected row", |app| app.switch_to(View::Task);
    Chains = "chains", &["9"], "Chains: for whom tasks sleep, and what those did", |app| app.switch_to(View::Chains);
    Findings = "findings", &["f"], "opens or closes Findings: what is wrong, and what to do", |app| app.switch_to(View::Findings);
    WhatIf = "what_if", &["e"], "opens or closes What if: which quota would have been enough", |app| app.switch_to(View::WhatIf);
    NextView = "next_view", &["tab"], "the next view", |app| app.go(app.before().step(1));
    PreviousView = "previous_view", &["shift-tab"], "the view before", |app| app.go(app.before().step(-1));
    Up = "up", &["up", "k", "ctrl-p"], "a row up", |app| app.move_by(-1);
    Down = "down", &["down", "j", "ctrl-n"], "a row down", |app| app.move_by(1);
    PageUp = "page_up", &["pageup", "ctrl-b"], "a page up", |app| app.move_by(-app.page());
    PageDown = "page_down", &["pagedown", "ctrl-f"], "a page down", |app| app.move_by(app.page());
    HalfPageUp = "half_page_up", &["ctrl-u"], "half a page up", |app| app.move_by(-(app.page() / 2).max(1));
    HalfPageDown = "half_page_down", &["ctrl-d"], "half a page down", |app| app.move_by((app.page() / 2).max(1));
    First = "first", &["home", "g"], "the first row", |app| app.move_by(isize::MIN);
    Last = "last", &["end", "G"], "the last row", |app| app.move_by(isize::MAX);
    Open = "open", &["enter"], "opens the row: a cgroup's tasks, a process's threads, a thread", |app| app.open();
    Back = "back", &["esc", "backspace"], "back: clears the filter, then closes the opened row", |app| app.go_back();
    Fold = "fold", &["left", "("], "closes the branch, or goes to the cgroup above", |app| app.fold(true);
    Unfold = "unfold", &["right", ")"], "opens the branch", |app| app.fold(false);
    Filter = "filter", &["/", "f3", "f4"], "shows only rows with these letters in name, path, command line or id", |app| app.open_filter();
    Sort = "sort", &["s", "f6"], "sorts by a column from a list", |app| app.choose_sort();
    SortLeft = "sort_left", &["<"], "sorts by the column before", |app| app.step_sort(-1);
    SortRight = "sort_right", &[">"], "sorts by the next column", |app| app.step_sort(1);
    Reverse = "reverse", &["r", "R"], "reverses the sort order", |app| app.reverse();
    Tree = "tree", &["t", "f5"], "tree of cgroups, or flat list of tasks", |app| app.turn_tree();
    Processes = "processes", &["p"], "processes, or threads", |app| app.turn_processes();
    CommandLine = "command_line", &["c"], "command lines, or names of threads", |app| app.change(|settings| settings.command_lines ^= true);
    Pause = "pause", &["space"], "pauses the screen, or continues", |app| app.pause();
    Slower = "slower", &["+", "="], "longer intervals", |app| app.step_interval(1);
    Faster = "faster", &["-"], "shorter intervals", |app| app.step_interval(-1);
    Span = "span", &["i"], "histograms of this interval, of the last minute, since the start", |app| app.change(|settings| settings.span = settings.span.next());
    Unit = "unit", &["u"], "histograms in microseconds, or in milliseconds", |app| app.change(|settings| settings.unit = settings.unit.other());
    Snapshot = "snapshot", &["w"], "writes the screen and all rows to a file", |_| Effect::Snapshot;
    Mouse = "mouse", &["m"], "leaves the mouse to the terminal (to select text), or takes it back", |app| app.turn_mouse();
    Redraw = "redraw", &["ctrl-l"], "redraws the screen after another program wrote on it", |_| Effect::Redraw;
}

/// A key as written in the settings file: `q`, `ctrl-c`, `pageup`, `space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPress {
    code: KeyCode,
    ctrl: bool,
}

const NAMED: [(&str, KeyCode); 16] = [
    ("space", KeyCode::Char(' ')),
    ("tab", KeyCode::Tab),
    ("shift-tab", KeyCode::BackTab),
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
];

impl From<KeyEvent> for KeyPress {
    fn from(event: KeyEvent) -> Self {
        match (event.code, event.modifiers.contains(KeyModifiers::CONTROL)) {
            // Some terminals send Ctrl-H for backspace.
            (KeyCode::Char('h'), true) => Self { code: KeyCode::Backspace, ctrl: false },
            (code, ctrl) => Self { code, ctrl },
        }
    }
}

impl From<KeyPress> for KeyEvent {
    fn from(key: KeyPress) -> Self {
        Self::new(key.code, if key.ctrl { KeyModifiers::CONTROL } else { KeyModifiers::NONE })
    }
}

impl KeyPress {
    /// Returns a key with Ctrl. Fails if terminals cannot send that key.
    fn with_ctrl(text: &str, code: KeyCode) -> Result<Self, String> {
        let sent = |key| format!("is the same as {key} in a terminal: use {key}, or another key");
        let why = match code {
            KeyCode::Char('h') => sent("backspace"),
            KeyCode::Char('i') => sent("tab"),
            KeyCode::Char('m') => sent("enter"),
            KeyCode::Char('z') => "stops cgscope, like any job of a shell: use another key".into(),
            KeyCode::Char(letter) if letter != ' ' && !letter.is_ascii_lowercase() => {
                "is not sent by terminals: use ctrl- with a letter, space or a named key".into()
            }
            _ => return Ok(Self { code, ctrl: true }),
        };
        Err(format!("{text:?} {why}"))
    }
}

impl FromStr for KeyPress {
    type Err = String;

    /// Parses a key. Names are case-insensitive. `G` and `g` are different keys, except with Ctrl.
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let (ctrl, name) = lower.strip_prefix("ctrl-").map_or((false, lower.as_str()), |name| (true, name));
        let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, code)| *code);
        let f_key = || name.strip_prefix('f')?.parse().ok().filter(|n| (1..=12).contains(n)).map(KeyCode::F);
        let letter = if ctrl { name } else { text }.parse::<char>().ok();
        let letter = letter.filter(|letter| !letter.is_control() && *letter != ' ');
        let code = named.or_else(f_key).or(letter.map(KeyCode::Char)).ok_or_else(|| {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            format!(
                "{text:?} is not a key: use one character, f1 to f12, or one of {}; most of them also work after ctrl-",
                names.join(", ")
            )
        })?;
        if ctrl { Self::with_ctrl(text, code) } else { Ok(Self { code, ctrl }) }
    }
}

impl fmt::Display for KeyPress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("ctrl-")?;
        }
        match (NAMED.iter().find(|(_, code)| *code == self.code), self.code) {
            (Some((name, _)), _) => f.write_str(name),
            (None, KeyCode::F(n)) => write!(f, "f{n}"),
            (None, KeyCode::Char(letter)) => write!(f, "{letter}"),
            (None, _) => f.write_str("?"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    keys: BTreeMap<Command, Vec<KeyPress>>,
}

impl Default for Keymap {
    fn default() -> Self {
        let parse = |key: &&str| key.parse().expect("default keys are valid: a test parses each");
        let keys = |command: Command| (command, command.default_keys().iter().map(parse).collect());
        Self { keys: Command::ALL.map(keys).into() }
    }
}

impl Keymap {
    /// Sets the keys of a command, and removes these keys from other commands.
    pub fn set(&mut self, command: Command, keys: Vec<KeyPress>) {
        self.keys.values_mut().for_each(|others| others.retain(|key| !keys.contains(key)));
        self.keys.insert(command, keys);
    }

    pub fn command(&self, key: KeyPress) -> Option<Command> {
        self.keys.iter().find(|(_, keys)| keys.contains(&key)).map(|(command, _)| *command)
    }

    pub fn keys(&self, command: Command) -> &[KeyPress] {
        self.keys.get(&command).map_or(&[], Vec::as_slice)
    }

    pub fn first(&self, command: Command) -> Option<String> {
        self.keys(command).first().map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_command_and_is_printed_as_it_is_typed() {
        let mut seen = Vec::new();
        for command in Command::ALL {
            for text in command.default_keys() {
                let key: KeyPress = text.parse().unwrap();
                assert_eq!(key.to_string(), *text);
                assert!(!seen.contains(&key), "{text}");
                seen.push(key);
                assert_eq!(Keymap::default().command(key), Some(command));
            }
        }
    }

    #[test]
    fn commands_and_replays_do_not_use_the_keys_of_columns() {
        for column in crate::columns::Column::all().filter(|column| column.key() != ' ') {
            let key: KeyPress = column.key().to_string().parse().unwrap();
            let taken = Keymap::default().command(key);
            assert!(taken.is_none(), "{}: {taken:?}", column.key());
            let replay =
                crate::replay::KEYS.iter().any(|(keys, _)| keys.contains(column.key()) && keys.len() <= 3);
            assert!(!replay, "{} is a key of replays", column.key());
        }
    }

    #[test]
    fn nonsense_is_not_a_key() {
        for text in ["", "qq", "ctrl-", "f13", "f0", " ", "\u{1b}", "shift-a", "ctrl-1", "ctrl--"] {
            assert!(text.parse::<KeyPress>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn keys_that_terminals_do_not_send_are_refused_with_an_alternative() {
        for (text, says) in
            [("ctrl-i", "tab"), ("ctrl-m", "enter"), ("ctrl-h", "backspace"), ("ctrl-z", "stops")]
        {
            let error = text.parse::<KeyPress>().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let sent = KeyEvent::new(KeyCode::Char('h'), KeyModifiers::CONTROL);
        assert_eq!(KeyPress::from(sent), "backspace".parse().unwrap());
    }

    #[test]
    fn names_of_keys_ignore_case_but_letters_do_not() {
        let key = |text: &str| text.parse::<KeyPress>().unwrap();
        assert_eq!(key("Ctrl-C"), key("ctrl-c"));
        assert_eq!(key("PageUp"), key("pageup"));
        assert_eq!(key("F10"), key("f10"));
        assert_ne!(key("G"), key("g"));
        assert_eq!(key("f").to_string(), "f");
    }

    #[test]
    fn a_key_of_a_new_command_loses_its_old_command() {
        let mut keymap = Keymap::default();
        let key: KeyPress = "q".parse().unwrap();
        keymap.set(Command::Pause, vec![key]);
        assert_eq!(keymap.command(key), Some(Command::Pause));
        assert_eq!(keymap.first(Command::Quit).as_deref(), Some("f10"));
    }
}
