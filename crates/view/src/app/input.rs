//! How keys and the mouse change the state of the screen.

use std::time::Duration;

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::{App, Prompt, Visited, list::Fold, view::View};
use crate::{
    columns::Column,
    draw::layout::{self, Target},
    keys::{Command, KeyPress},
    subject::Key,
};

/// Interval lengths that the keys for slower and faster step through, ms.
const INTERVALS_MS: [u64; 10] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000];
/// Rows to move per step of the mouse wheel.
const WHEEL: isize = 3;

/// What the main loop does after input. Every effect but `None`, `Quit` and `Suspend` also redraws the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changed.
    None,
    /// Draw the screen.
    Draw,
    /// Quit.
    Quit,
    /// Set the interval length.
    Interval(Duration),
    /// Write a screen dump to a file.
    Snapshot,
    /// Capture the mouse (true), or release it to the terminal.
    Mouse(bool),
    /// Clear the terminal and draw the whole screen again.
    Redraw,
    /// Suspend the process, as Ctrl-Z does in a shell.
    Suspend,
}

impl App {
    /// Handles a key, the mouse, pasted text or a resize.
    pub fn on_event(&mut self, event: &Event) -> Effect {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(*key),
            Event::Mouse(mouse) => self.on_mouse(*mouse),
            // Outside a prompt, its letters would be commands, such as those that write files.
            Event::Paste(text) => self.on_paste(text),
            Event::Resize(width, height) => {
                self.on_resize(*width, *height);
                Effect::Draw
            }
            _ => Effect::None,
        }
    }

    /// Handles a key press.
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
            (Some(command), _) => self.run(command),
            (None, KeyCode::Char(letter)) if !is_ctrl => self.sort_by_key(letter),
            (None, _) => Effect::None,
        };
        if effect == Effect::None && had_notice { Effect::Draw } else { effect }
    }

    fn run(&mut self, command: Command) -> Effect {
        if command == Command::WhatIf && self.view != View::WhatIf {
            return self.ask_enough();
        }
        if let Some(view) = View::of(command) {
            return self.go(if view == self.view && view.is_over() { self.before() } else { view });
        }
        match command {
            Command::Quit => return Effect::Quit,
            Command::NextView => return self.go(self.before().step(1)),
            Command::PreviousView => return self.go(self.before().step(-1)),
            Command::Up => return self.move_by(-1),
            Command::Down => return self.move_by(1),
            Command::PageUp => return self.move_by(-self.page()),
            Command::PageDown => return self.move_by(self.page()),
            Command::HalfPageUp => return self.move_by(-(self.page() / 2).max(1)),
            Command::HalfPageDown => return self.move_by((self.page() / 2).max(1)),
            Command::First => return self.move_by(isize::MIN),
            Command::Last => return self.move_by(isize::MAX),
            Command::Open => return self.open(),
            Command::Back => return self.go_back(),
            Command::Fold => return self.fold(true),
            Command::Unfold => return self.fold(false),
            Command::Filter => self.prompt = Some(Prompt::Filter(self.filter.clone())),
            Command::Sort => self.choose_sort(),
            Command::SortLeft => return self.step_sort(-1),
            Command::SortRight => return self.step_sort(1),
            Command::Reverse => {
                let (column, reversed) = self.sort_of(self.kind());
                self.set_sort(self.kind(), column, !reversed);
            }
            Command::Tree => self.turn_tree(),
            Command::Processes => {
                self.settings.processes = !self.settings.processes;
                if self.scope == Key::All && self.view.is_of_overview() {
                    self.tree = false;
                }
            }
            Command::CommandLine => self.settings.command_lines = !self.settings.command_lines,
            Command::Pause => self.pause(),
            Command::Slower => return self.step_interval(1),
            Command::Faster => return self.step_interval(-1),
            Command::Span => self.settings.span = self.settings.span.next(),
            Command::Unit => self.settings.unit = self.settings.unit.other(),
            Command::Snapshot => return Effect::Snapshot,
            Command::Redraw => return Effect::Redraw,
            Command::Mouse => {
                let mouse = !self.settings.mouse;
                let does = if mouse { "selects rows and views" } else { "selects text in the terminal" };
                self.settings.mouse = mouse;
                self.notice = Some(format!("the mouse {does}"));
                return Effect::Mouse(mouse);
            }
            _ => return Effect::None,
        }
        self.refreshed()
    }

    pub(super) fn refreshed(&mut self) -> Effect {
        self.refresh();
        Effect::Draw
    }

    /// The current view; under help or findings, the view below them.
    fn before(&self) -> View {
        match self.back.last() {
            Some(place) if self.view.is_over() => place.view,
            _ => self.view,
        }
    }

    /// Shows a view. If help or findings open, remembers the view below them.
    pub(super) fn go(&mut self, view: View) -> Effect {
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

    fn open(&mut self) -> Effect {
        let row = self.rows.get(self.selected).filter(|_| !self.view.is_text());
        let Some(key) = row.map(|row| row.key.clone()) else { return Effect::None };
        self.remember();
        match key {
            Key::Task(_) => self.view = View::Task,
            Key::State(name, _) => {
                self.view = View::Overview;
                self.tree = false;
                self.filter = name.to_string();
            }
            key => {
                self.view = View::Overview;
                self.scope = key;
                self.filter.clear();
            }
        }
        (self.selected, self.first_row, self.scrolled) = (0, 0, 0);
        if self.view == View::Task {
            // After going back to the list, this row must still be selected.
            self.moved.insert(self.kind());
        } else {
            self.moved.remove(&self.kind());
        }
        self.pin();
        self.refreshed()
    }

    fn go_back(&mut self) -> Effect {
        let filtered_here = self.back.last().is_none_or(|place| {
            // Opening a row of states sets the filter, so the filter belongs to that place.
            let opened_by_filter = place.view == View::States && self.view == View::Overview;
            place.filter != self.filter && !opened_by_filter
        });
        if filtered_here && !self.filter.is_empty() && !self.view.is_text() {
            self.filter.clear();
        } else {
            let Some(place) = self.back.pop() else { return Effect::None };
            self.view = place.view;
            self.scope = place.scope;
            self.tree = place.tree;
            self.filter = place.filter;
            self.scrolled = 0;
            if let Some(selected) = place.selected {
                self.moved.insert(self.kind());
                self.remembered.insert(self.kind(), selected);
            }
            self.pin();
        }
        self.refreshed()
    }

    /// Closes or opens the branch of the selected row. If there is nothing to close, selects the parent row.
    fn fold(&mut self, close: bool) -> Effect {
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

    fn turn_tree(&mut self) {
        if self.scope != Key::All && self.view.is_of_overview() {
            self.notice = Some("there is no tree inside a cgroup or process: Esc goes back to all".into());
        } else if self.view.is_of_overview() {
            self.tree = !self.tree;
            self.settings.tree = self.tree;
        } else {
            self.settings.tree = !self.settings.tree;
        }
    }

    fn page(&self) -> isize {
        layout::page(self).max(1) as isize
    }

    pub(super) fn move_by(&mut self, rows: isize) -> Effect {
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
        let kind = self.kind();
        let (before, reversed) = self.sort_of(kind);
        // Choosing the same column again reverses the order.
        self.set_sort(kind, column, column == before && !reversed);
        self.refreshed()
    }

    pub(super) fn sort_by_key(&mut self, letter: char) -> Effect {
        let columns = self.kind().columns();
        let column = columns.iter().copied().find(|column| column.key() == letter && letter != ' ');
        column.map_or(Effect::None, |column| self.sort(column))
    }

    fn step_sort(&mut self, step: isize) -> Effect {
        let columns = self.kind().columns();
        if columns.is_empty() {
            return Effect::None;
        }
        let next = (self.sorted_at() as isize + step).rem_euclid(columns.len() as isize);
        self.set_sort(self.kind(), columns[next as usize], false);
        self.refreshed()
    }

    /// Index of the sort column in the list's columns.
    fn sorted_at(&self) -> usize {
        let (sort, _) = self.sort_of(self.kind());
        self.kind().columns().iter().position(|column| *column == sort).unwrap_or(0)
    }

    fn choose_sort(&mut self) {
        let columns = self.kind().columns();
        if !columns.is_empty() {
            self.prompt = Some(Prompt::Sort(columns, self.sorted_at()));
        }
    }

    fn pause(&mut self) {
        self.paused = !self.paused;
        self.frozen = self.paused.then(|| Box::new(self.history.clone()));
        if !self.paused {
            self.data = self.newest.take().or(self.data.take());
        }
    }

    fn step_interval(&mut self, step: isize) -> Effect {
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
            // A click closes the prompt.
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
}
