//! Changes the screen after keys and mouse events: commands, prompts, and What if. The main loop provides the text of What if.

use std::{sync::Arc, time::Duration};

use cgscope_model::path::path_and_ancestors;
use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::{App, View, Visited, list::Fold};
use crate::draw::layout::{self, Target};
use crate::{columns::Column, data::Key, keys::KeyPress, settings::Settings};

/// Interval lengths for the keys that make intervals longer or shorter, ms.
const INTERVALS_MS: [u64; 10] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000];
/// Rows to move per step of the mouse wheel.
const WHEEL: isize = 3;
/// Maximum length of the filter, bytes. Useful paths are shorter.
const LONGEST: usize = 128;

/// An action for the main loop after input. Every effect but `None`, `Quit` and `Suspend` also redraws the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    Draw,
    Quit,
    Interval(Duration),
    /// Write a screen dump to a file.
    Snapshot,
    /// Capture the mouse (true), or release it to the terminal.
    Mouse(bool),
    /// Clear the terminal and draw the whole screen again.
    Redraw,
    Suspend,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// The user is typing a filter. The string is the previous filter, which Esc restores.
    Filter(String),
    /// The user is choosing a sort column. The number is the index of the marked column.
    Sort(&'static [Column], usize),
}

/// The cgroup that the What if view shows, and the answer so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Enough {
    path: Arc<str>,
    pub(crate) title: String,
    /// Lines of text; empty before the first answer.
    pub(crate) lines: Vec<String>,
}

impl App {
    pub fn on_event(&mut self, event: &Event) -> Effect {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(*key),
            Event::Mouse(mouse) => self.on_mouse(*mouse),
            // Outside a prompt, letters are commands. Pasted text must not run commands, such as the commands that write files.
            Event::Paste(text) => self.on_paste(text),
            Event::Resize(width, height) => {
                self.on_resize(*width, *height);
                Effect::Draw
            }
            _ => Effect::None,
        }
    }

    pub fn on_key(&mut self, key: KeyEvent) -> Effect {
        let had_notice = self.notice.take().is_some();
        let is_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_ctrl && key.code == KeyCode::Char('z') {
            return Effect::Suspend;
        }
        if let Some(prompt) = self.prompt.take() {
            // In a prompt, Ctrl-C only closes the prompt.
            let key = if is_ctrl && key.code == KeyCode::Char('c') { KeyCode::Esc.into() } else { key };
            return self.on_key_of_prompt(prompt, key);
        }
        if self.replay.as_mut().is_some_and(|replay| replay.on_key(key)) {
            return Effect::Draw;
        }
        let effect = match (self.settings.keymap.command(KeyPress::from(key)), key.code) {
            (Some(command), _) => command.action()(self),
            (None, KeyCode::Char(letter)) if !is_ctrl => self.sort_by_key(letter),
            (None, _) => Effect::None,
        };
        if effect == Effect::None && had_notice { Effect::Draw } else { effect }
    }

    /// Shows a view, or hides it if it already covers another view.
    pub(crate) fn switch_to(&mut self, view: View) -> Effect {
        match view {
            _ if view == self.view && view.is_over() => self.go(self.before()),
            View::WhatIf => self.ask_enough(),
            _ => self.go(view),
        }
    }

    pub(crate) fn open_filter(&mut self) -> Effect {
        self.prompt = Some(Prompt::Filter(self.filter.clone()));
        self.refreshed()
    }

    pub(crate) fn reverse(&mut self) -> Effect {
        let (column, reversed) = self.sort_of(self.kind());
        self.set_sort(column, !reversed)
    }

    pub(crate) fn turn_processes(&mut self) -> Effect {
        self.tree &= self.scope != Key::All || !self.view.is_of_overview();
        self.change(|settings| settings.processes ^= true)
    }

    pub(crate) fn turn_mouse(&mut self) -> Effect {
        self.settings.mouse ^= true;
        let is_ours = self.settings.mouse;
        let does = if is_ours { "selects rows and views" } else { "selects text in the terminal" };
        self.notice = Some(format!("the mouse {does}"));
        Effect::Mouse(self.settings.mouse)
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Settings)) -> Effect {
        change(&mut self.settings);
        self.refreshed()
    }

    pub(super) fn refreshed(&mut self) -> Effect {
        self.refresh();
        Effect::Draw
    }

    /// Returns the current view. If this view covers another view, returns the covered view.
    pub(crate) fn before(&self) -> View {
        self.back.last().filter(|_| self.view.is_over()).map_or(self.view, |place| place.view)
    }

    /// Shows a view. If the view covers the current view, remembers the current view for the Back command.
    pub(crate) fn go(&mut self, view: View) -> Effect {
        let below = self.before();
        if self.view.is_over() {
            self.back.pop();
        }
        if view.is_over() {
            self.view = below;
            self.remember();
        }
        self.view = view;
        self.scrolled = 0;
        if !view.is_text() {
            self.settings.view = view;
        }
        self.pin();
        self.refreshed()
    }

    fn remember(&mut self) {
        self.back.push(Visited {
            view: self.view,
            scope: self.scope.clone(),
            selected: self.rows.get(self.selected).map(|row| row.key.clone()),
            tree: self.tree,
            filter: self.filter.clone(),
        });
    }

    pub(crate) fn open(&mut self) -> Effect {
        let row = self.rows.get(self.selected).filter(|_| !self.view.is_text());
        let Some(key) = row.map(|row| row.key.clone()) else { return Effect::None };
        self.remember();
        self.view = if matches!(key, Key::Task(_)) { View::Task } else { View::Overview };
        match key {
            Key::Task(_) => {}
            Key::State(name, _) => {
                self.tree = false;
                self.filter = name.to_string();
            }
            key => {
                self.scope = key;
                self.filter.clear();
            }
        }
        (self.selected, self.first_row, self.scrolled) = (0, 0, 0);
        if self.view == View::Task {
            // When the user goes back to the list, this row must still be selected.
            self.moved.insert(self.kind());
        } else {
            self.moved.remove(&self.kind());
        }
        self.pin();
        self.refreshed()
    }

    pub(crate) fn go_back(&mut self) -> Effect {
        let filtered_here = self.back.last().is_none_or(|place| {
            // Opening a row of the States view sets the filter. Back then leaves the row instead of only clearing the filter.
            let opened_by_filter = place.view == View::States && self.view == View::Overview;
            place.filter != self.filter && !opened_by_filter
        });
        if filtered_here && !self.filter.is_empty() && !self.view.is_text() {
            self.filter.clear();
        } else {
            let Some(Visited { view, scope, selected, tree, filter }) = self.back.pop() else {
                return Effect::None;
            };
            (self.view, self.scope, self.tree, self.filter) = (view, scope, tree, filter);
            self.scrolled = 0;
            if let Some(selected) = selected {
                self.moved.insert(self.kind());
                self.remembered.insert(self.kind(), selected);
            }
            self.pin();
        }
        self.refreshed()
    }

    /// Closes or opens the branch of the selected row. If the row has no open branch to close, selects the parent row.
    pub(crate) fn fold(&mut self, close: bool) -> Effect {
        let Some(row) = self.rows.get(self.selected) else { return Effect::None };
        let Key::Cgroup(path) = &row.key else { return Effect::None };
        match (close, row.fold) {
            (true, Fold::Open) => _ = self.folded.insert(path.clone()),
            (false, Fold::Closed) => _ = self.folded.remove(path),
            (true, _) => {
                let above = self.rows[..self.selected].iter().rposition(|above| above.depth < row.depth);
                return above.map_or(Effect::None, |above| self.select_by_hand(above));
            }
            (false, _) => return Effect::None,
        }
        self.refreshed()
    }

    pub(crate) fn turn_tree(&mut self) -> Effect {
        if !self.view.is_of_overview() {
            self.settings.tree ^= true;
        } else if self.scope == Key::All {
            self.tree ^= true;
            self.settings.tree = self.tree;
        } else {
            self.notice = Some("there is no tree inside a cgroup or process: Esc goes back to all".into());
        }
        self.refreshed()
    }

    pub(crate) fn page(&self) -> isize {
        layout::page(self).max(1) as isize
    }

    pub(crate) fn move_by(&mut self, rows: isize) -> Effect {
        if self.view.is_text() {
            let most = layout::most_scrolled(self);
            self.scrolled = self.scrolled.saturating_add_signed(rows).min(most);
            return Effect::Draw;
        }
        if self.rows.is_empty() {
            return Effect::None;
        }
        self.pinned = None;
        let effect = self.select_by_hand(self.selected.saturating_add_signed(rows));
        self.pin();
        effect
    }

    fn sort(&mut self, column: Column) -> Effect {
        let (before, reversed) = self.sort_of(self.kind());
        // Choosing the same column again reverses the order.
        self.set_sort(column, column == before && !reversed)
    }

    pub(super) fn sort_by_key(&mut self, letter: char) -> Effect {
        let columns = self.kind().columns();
        let column = columns.iter().copied().find(|column| column.key() == letter && letter != ' ');
        column.map_or(Effect::None, |column| self.sort(column))
    }

    pub(crate) fn step_sort(&mut self, step: isize) -> Effect {
        let columns = self.kind().columns();
        if columns.is_empty() {
            return Effect::None;
        }
        let next = (self.sorted_at() as isize + step).rem_euclid(columns.len() as isize);
        self.set_sort(columns[next as usize], false)
    }

    fn sorted_at(&self) -> usize {
        let (sort, _) = self.sort_of(self.kind());
        self.kind().columns().iter().position(|column| *column == sort).unwrap_or(0)
    }

    pub(crate) fn choose_sort(&mut self) -> Effect {
        let columns = self.kind().columns();
        self.prompt = (!columns.is_empty()).then(|| Prompt::Sort(columns, self.sorted_at()));
        self.refreshed()
    }

    pub(crate) fn pause(&mut self) -> Effect {
        self.paused = !self.paused;
        self.frozen = self.paused.then(|| Box::new(self.history.clone()));
        if !self.paused {
            self.data = self.newest.take().or(self.data.take());
        }
        self.refreshed()
    }

    pub(crate) fn step_interval(&mut self, step: isize) -> Effect {
        if self.replay.is_some() {
            return Effect::None;
        }
        let now = self.delay.as_millis() as u64;
        let mut all = INTERVALS_MS.into_iter();
        let next = if step > 0 { all.find(|ms| *ms > now) } else { all.rfind(|ms| *ms < now) };
        let Some(next) = next else { return Effect::None };
        self.delay = Duration::from_millis(next);
        Effect::Interval(self.delay)
    }

    fn on_mouse(&mut self, mouse: MouseEvent) -> Effect {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.move_by(-WHEEL),
            MouseEventKind::ScrollDown => self.move_by(WHEEL),
            MouseEventKind::Down(MouseButton::Left) if self.prompt.is_some() => {
                self.prompt = None;
                Effect::Draw
            }
            MouseEventKind::Down(MouseButton::Left) => match layout::target(self, mouse.column, mouse.row) {
                Some(Target::View(view)) => self.go(view),
                Some(Target::Column(column)) => self.sort(column),
                Some(Target::Row(row)) if row == self.selected => self.open(),
                Some(Target::Row(row)) => self.select_by_hand(row),
                None => Effect::None,
            },
            _ => Effect::None,
        }
    }

    fn on_paste(&mut self, text: &str) -> Effect {
        if !matches!(self.prompt, Some(Prompt::Filter(_))) {
            return Effect::None;
        }
        text.chars().take(LONGEST).for_each(|letter| edit(&mut self.filter, KeyCode::Char(letter).into()));
        self.refreshed()
    }

    fn on_key_of_prompt(&mut self, prompt: Prompt, key: KeyEvent) -> Effect {
        match prompt {
            Prompt::Filter(_) if key.code == KeyCode::Enter => {}
            Prompt::Filter(before) if key.code == KeyCode::Esc => self.filter = before,
            Prompt::Filter(before) => {
                self.prompt = Some(Prompt::Filter(before));
                match key.code {
                    KeyCode::Up => return self.move_by(-1),
                    KeyCode::Down => return self.move_by(1),
                    _ => edit(&mut self.filter, key),
                };
            }
            Prompt::Sort(columns, at) => return self.on_key_of_sort(columns, at, key),
        }
        self.refreshed()
    }

    fn on_key_of_sort(&mut self, columns: &'static [Column], at: usize, key: KeyEvent) -> Effect {
        let last = columns.len() - 1;
        let at = match key.code {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j' | 's') => (at + 1).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Enter => return self.set_sort(columns[at], false),
            KeyCode::Char(letter) if letter.is_ascii_uppercase() => return self.sort_by_key(letter),
            KeyCode::Esc | KeyCode::Char('q') => return Effect::Draw,
            _ => at,
        };
        self.prompt = Some(Prompt::Sort(columns, at));
        Effect::Draw
    }

    /// Opens What if for the selected cgroup or the selected task's cgroup. A cgroup without a quota is replaced by its nearest
    /// ancestor with a quota.
    fn ask_enough(&mut self) -> Effect {
        let Err(why) = self.question().map(|enough| self.enough = Some(enough)) else {
            return self.go(View::WhatIf);
        };
        self.notice = Some(why);
        Effect::Draw
    }

    /// Returns the cgroup for the What if view, or a sentence that says why there is none.
    fn question(&self) -> Result<Enough, String> {
        if self.replay.is_some() {
            return Err("a replay does not answer this: use `cgscope whatif FILE`".into());
        }
        if self.about.coarse.is_some() {
            let why =
                "the coarse mode does not answer this: make an exact recording for `cgscope whatif FILE`";
            return Err(why.into());
        }
        let interval = &self.data.as_ref().ok_or("nothing has been measured yet")?.interval;
        let cgroup = self.subject().and_then(|subject| subject.cgroup(interval).cloned());
        let own = cgroup.ok_or("select a cgroup with a quota, or a task in one")?;
        let quota_us = |path: &str| interval.limits_at(path)?.quota_us;
        let name = |path: &str| interval.names.of(path).to_string();
        let limited = path_and_ancestors(&own).find(|path| quota_us(path).is_some());
        let none = || format!("{} has no quota, and no cgroup above it has one", name(&own));
        let path = limited.ok_or_else(none)?;
        Ok(Enough { path: path.into(), title: name(path), lines: Vec::new() })
    }

    /// Returns the cgroup for which the screen needs the recorded demand; `None` if the What if view is not on the screen.
    pub fn wanted_enough(&self) -> Option<&Arc<str>> {
        self.enough.as_ref().filter(|_| self.view == View::WhatIf).map(|enough| &enough.path)
    }

    /// Shows the answer for a cgroup, unless the screen is paused or the What if view shows another cgroup.
    pub fn on_enough(&mut self, path: &str, lines: Vec<String>) {
        if let Some(enough) = self.enough.as_mut().filter(|enough| !self.paused && &*enough.path == path) {
            enough.lines = lines;
        }
    }
}

/// Applies an editing key to a line.
fn edit(line: &mut String, key: KeyEvent) {
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('u'), true) => line.clear(),
        (KeyCode::Char('w'), true) => {
            line.truncate(line.trim_end().rfind(' ').map_or(0, |blank| blank + 1));
        }
        // Some terminals send Ctrl-H for backspace.
        (KeyCode::Backspace, _) | (KeyCode::Char('h'), true) => _ = line.pop(),
        (KeyCode::Char(letter), false) if !letter.is_control() && line.len() < LONGEST => line.push(letter),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use cgscope_made_up::small::{interval, task};
    use cgscope_model::{CgroupReading, Interval};
    use crossterm::event::KeyCode;

    use super::*;
    use crate::{
        app::About,
        keys::KeyPress,
        replay::{Replay, player::Player},
        settings::Settings,
        theme::{Colours, Theme},
    };

    #[test]
    fn a_line_is_edited_as_in_a_shell() {
        let ctrl = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        let after = |line: &str, key: KeyEvent| {
            let mut edited = line.to_owned();
            edit(&mut edited, key);
            (edited != line).then_some(edited)
        };
        assert_eq!(after("web", KeyCode::Char('é').into()).as_deref(), Some("webé"));
        assert_eq!(after("webé", KeyCode::Backspace.into()).as_deref(), Some("web"));
        assert_eq!(after("webé", ctrl('h')).as_deref(), Some("web"));
        assert_eq!(after("java -jar web.jar ", ctrl('w')).as_deref(), Some("java -jar "));
        assert_eq!(after("web", ctrl('w')).as_deref(), Some(""));
        assert_eq!(after("java -jar", ctrl('u')).as_deref(), Some(""));
        assert_eq!(after("web", ctrl('b')), None);
        assert_eq!(after(&"w".repeat(LONGEST), KeyCode::Char('w').into()), None);
    }

    const WEB: &str = "/system.slice/web.service";
    const POD: &str = "/kubepods/burstable/pod7f/main";

    /// Returns a screen with a tree of cgroups. The cgroups with these paths have a quota.
    fn app(limited: &[&str]) -> App {
        let mut app = App::new(
            About::default(),
            Settings::default(),
            Theme::new(Colours::None),
            Duration::from_secs(1),
        );
        app.on_resize(80, 24);
        app.on_interval(with_quotas(limited));
        app
    }

    fn with_quotas(limited: &[&str]) -> Arc<Interval> {
        let tasks = [1, 2, 4].map(|tid| task(tid, &[2_000_000])).to_vec();
        let mut interval = (*interval(tasks)).clone();
        for (id, path) in (100..).zip(limited) {
            let id = interval.cgroups.iter().find(|(_, other)| &**other == *path).map_or(id, |(id, _)| *id);
            if interval.cgroup_path(id).is_none() {
                interval.cgroups.push((id, (*path).into()));
            }
            let quota = CgroupReading {
                id,
                quota_us: Some(50_000),
                period_us: Some(100_000),
                ..CgroupReading::default()
            };
            interval.limits.push(quota);
        }
        Arc::new(interval)
    }

    fn press(app: &mut App, key: &str) -> Effect {
        app.on_key(key.parse::<KeyPress>().expect("a key").into())
    }

    /// Selects the first row whose path ends with `end`, and opens What if. Returns the path of the cgroup, or the notice.
    fn asked(app: &mut App, end: &str) -> Result<String, String> {
        let is_it = |key: &crate::data::Key| match key {
            crate::data::Key::Cgroup(path) => path.ends_with(end),
            key => format!("{key:?}").ends_with(end),
        };
        let row = app.rows.iter().position(|row| is_it(&row.key)).expect("a row");
        press(app, "home");
        (0..row).for_each(|_| {
            press(app, "down");
        });
        press(app, "e");
        app.wanted_enough().map(ToString::to_string).ok_or_else(|| app.notice.clone().unwrap_or_default())
    }

    #[test]
    fn the_question_is_about_the_selected_cgroup() {
        assert_eq!(asked(&mut app(&[WEB, POD]), "web.service").as_deref(), Ok(WEB));
        assert_eq!(asked(&mut app(&[WEB, POD]), "main").as_deref(), Ok(POD));
    }

    #[test]
    fn a_cgroup_without_a_quota_asks_about_the_one_above_it() {
        let above = asked(&mut app(&["/system.slice"]), "web.service");
        assert_eq!(above.as_deref(), Ok("/system.slice"));
        let none = asked(&mut app(&[WEB]), "main");
        assert_eq!(none, Err(format!("{POD} has no quota, and no cgroup above it has one")));
    }

    #[test]
    fn the_question_about_a_task_is_about_its_cgroup() {
        let mut app = app(&[WEB]);
        press(&mut app, "t");
        press(&mut app, "p");
        // Task 4 is in the cgroup of the service, and task 2 in the pod.
        assert_eq!(asked(&mut app, &format!("Task({})", 4u64 << 42)).as_deref(), Ok(WEB));
        press(&mut app, "esc");
        assert!(asked(&mut app, &format!("Task({})", 2u64 << 42)).is_err());
    }

    #[test]
    fn closing_the_view_ends_the_question() {
        for key in ["e", "esc", "?", "4"] {
            let mut app = app(&[WEB]);
            assert!(asked(&mut app, "web.service").is_ok());
            press(&mut app, key);
            assert_eq!(app.wanted_enough(), None, "{key}");
        }
        let mut app = app(&[WEB]);
        press(&mut app, "4");
        assert!(asked(&mut app, "web.service").is_ok());
        press(&mut app, "esc");
        assert_eq!(app.view, View::Cgroups, "the view below returns");
        assert_eq!(app.settings.view, View::Cgroups, "the question is not saved");
    }

    #[test]
    fn an_answer_is_shown_if_it_is_still_wanted_and_the_screen_is_not_paused() {
        let mut app = app(&[WEB, POD]);
        let shown = |app: &App| app.enough.as_ref().expect("a question").lines.clone();
        assert!(asked(&mut app, "web.service").is_ok());
        app.on_enough(POD, vec!["another".into()]);
        assert!(shown(&app).is_empty());
        app.on_enough(WEB, vec!["1 CPU".into()]);
        assert_eq!(shown(&app), ["1 CPU"]);
        app.on_key(KeyCode::Char(' ').into());
        app.on_enough(WEB, vec!["2 CPUs".into()]);
        assert_eq!(shown(&app), ["1 CPU"]);
    }

    #[test]
    fn where_there_is_no_demand_a_sentence_names_the_command() {
        let mut coarse = app(&[WEB]);
        coarse.about.coarse = Some("BPF is off".into());
        let said = asked(&mut coarse, "web.service").expect_err("no question");
        assert!(said.contains("coarse") && said.contains("`cgscope whatif FILE`"), "{said}");
        let mut replay = app(&[WEB]);
        let now = std::time::Instant::now();
        replay.replay = Some(Replay::new(Player::new(Vec::new(), now), now));
        press(&mut replay, "e");
        let said = replay.notice.clone().unwrap_or_default();
        assert!(said.contains("replay") && said.contains("`cgscope whatif FILE`"), "{said}");
        assert!(replay.view != View::WhatIf && said.chars().count() < 80);
    }
}
