//! What the screen shows: changed by intervals and keys, read by drawing. Nothing here draws, and drawing changes nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_model::{Interval, Mode, TaskInterval, Wait, findings::Host};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::{
    columns::{Column, sorted},
    record::Recorded,
    replay::state::Replay,
    text::Unit,
};

/// The state of the screen.
#[derive(Debug)]
pub struct App {
    /// What is selected, in words.
    pub title: String,
    /// Length of an interval.
    pub delay: Duration,
    /// What findings are judged by.
    pub host: Host,
    /// Why it is measured coarsely, if it is.
    pub coarse: Option<String>,
    /// How the recording of what is shown does, if there is one.
    pub recorded: Option<Recorded>,
    /// The interval shown.
    pub interval: Option<Arc<Interval>>,
    /// The task whose histogram is shown.
    pub selected: Option<Selected>,
    /// Row of the first task shown.
    pub first_row: usize,
    /// Sorted by.
    pub sort: Column,
    /// Against the column's own direction.
    pub reversed: bool,
    /// New intervals are not shown.
    pub paused: bool,
    /// The page of the help that is shown instead of tasks.
    pub help: Option<Help>,
    /// The histogram is that of all tasks.
    pub all_tasks: bool,
    /// Of the histogram's rows.
    pub unit: Unit,
    /// Why no more intervals come.
    pub ended: Option<String>,
    /// All tasks since the start; of a replay, in the interval shown.
    pub total: Wait,
    /// Where a replay is; `None`: this is the running host.
    pub replay: Option<Replay>,
}

/// The selected task, followed by its serial: a tid may be reused, and the row changes with the order.
#[derive(Clone, Debug)]
pub struct Selected {
    serial: u64,
    row: usize,
    /// Its waits since it was selected; of a replay, in the interval shown.
    pub since: Wait,
}

/// A page of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// The keys of a replay; the next page is that of the columns.
    Keys,
    /// What the columns mean.
    Columns,
}

/// What the loop does after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing changed.
    None,
    /// Draw again.
    Draw,
    /// End.
    Quit,
}

impl App {
    /// Nothing measured yet.
    pub fn new(title: String, delay: Duration) -> Self {
        Self {
            title,
            delay,
            host: Host::default(),
            coarse: None,
            recorded: None,
            interval: None,
            selected: None,
            first_row: 0,
            sort: Column::WaitShare,
            reversed: false,
            paused: false,
            help: None,
            all_tasks: false,
            unit: Unit::Micro,
            ended: None,
            total: Wait::default(),
            replay: None,
        }
    }

    /// A new interval.
    pub fn on_interval(&mut self, interval: Arc<Interval>) {
        if self.replay.is_some() {
            // Whatever way led to an interval, the same is shown of it.
            self.total = Wait::default();
            self.selected.iter_mut().for_each(|selected| selected.since = Wait::default());
        }
        self.total.add(&interval.total().wait);
        if let Some(selected) = &mut self.selected
            && let Some(task) = find(&interval, selected.serial)
        {
            selected.since.add(&task.wait);
        }
        if self.paused {
            return;
        }
        self.interval = Some(interval);
        self.follow_selected();
    }

    /// Interval `n` of a recording was read; `None`: damage is in the way, and the recording ends before it.
    pub fn on_read(&mut self, n: usize, interval: Option<Arc<Interval>>) {
        let Some(replay) = &mut self.replay else { return };
        let Some(interval) = interval else { return replay.player.shorten(n) };
        replay.shown = Some(n);
        self.coarse = (interval.mode == Mode::Coarse).then(|| "so it was recorded".into());
        self.on_interval(interval);
    }

    /// The clock goes on.
    pub fn tick(&mut self, now: Instant) {
        self.replay.iter_mut().for_each(|replay| replay.tick(now));
    }

    /// The command whose screen this is, and the one that prints text instead.
    pub fn commands(&self) -> [&'static str; 2] {
        if self.replay.is_some() {
            ["cgscope replay", "cgscope report"]
        } else {
            ["cgscope top", "cgscope top -b"]
        }
    }

    /// The tasks in the order shown.
    pub fn rows(&self) -> Vec<&TaskInterval> {
        self.interval.as_deref().map_or_else(Vec::new, |interval| sorted(interval, self.sort, self.reversed))
    }

    /// The selected task in the interval shown, if it is still there.
    pub fn selected_task(&self) -> Option<&TaskInterval> {
        find(self.interval.as_deref()?, self.selected.as_ref()?.serial)
    }

    /// Its row.
    pub fn selected_row(&self) -> Option<usize> {
        self.selected.as_ref().map(|selected| selected.row)
    }

    /// The selected task may have moved to another row, or have gone: then whoever is in its row is selected.
    fn follow_selected(&mut self) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else { return self.selected = None };
        let row = match &self.selected {
            None => 0,
            Some(selected) => rows
                .iter()
                .position(|task| task.reading.serial == selected.serial)
                .unwrap_or(selected.row.min(last)),
        };
        self.select_row(row);
    }

    fn select_row(&mut self, row: usize) {
        let rows = self.rows();
        let Some(task) = rows.get(row) else { return };
        let serial = task.reading.serial;
        let since = match &self.selected {
            Some(selected) if selected.serial == serial => selected.since.clone(),
            _ => task.wait.clone(),
        };
        self.selected = Some(Selected { serial, row, since });
    }

    fn move_by(&mut self, rows: isize) -> Action {
        let count = self.rows().len();
        let Some(row) = self.selected_row().filter(|_| count != 0) else { return Action::None };
        self.select_row(row.saturating_add_signed(rows).min(count - 1));
        Action::Draw
    }

    fn sort_by(&mut self, step: isize) -> Action {
        let all = Column::ALL;
        let at = all.iter().position(|column| *column == self.sort).unwrap_or(0);
        self.sort = all[(at as isize + step).rem_euclid(all.len() as isize) as usize];
        self.reversed = false;
        self.follow_selected();
        Action::Draw
    }

    /// A key was pressed.
    pub fn on_key(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::None };
        }
        if let Some(page) = self.help {
            self.help = (page == Help::Keys && key.code == KeyCode::Char('?')).then_some(Help::Columns);
            return Action::Draw;
        }
        if let Some(action) = self.replay.as_mut().and_then(|replay| replay.on_key(key)) {
            return action;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => return self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => return self.move_by(1),
            KeyCode::PageUp => return self.move_by(-10),
            KeyCode::PageDown => return self.move_by(10),
            KeyCode::Home | KeyCode::Char('g') => return self.move_by(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => return self.move_by(isize::MAX),
            KeyCode::Char('<') | KeyCode::Left => return self.sort_by(-1),
            KeyCode::Char('>') | KeyCode::Right | KeyCode::Char('s') => return self.sort_by(1),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('h' | '?') => {
                self.help = Some(if self.replay.is_some() { Help::Keys } else { Help::Columns });
            }
            KeyCode::Char('a') => self.all_tasks = !self.all_tasks,
            KeyCode::Char('u') => self.unit = self.unit.other(),
            _ => return Action::None,
        }
        self.follow_selected();
        Action::Draw
    }

    /// Scrolls so that the selected row is among `height` rows.
    pub fn scroll_to_selected(&mut self, height: usize) {
        let Some(row) = self.selected_row() else { return };
        let lowest = (row + 1).saturating_sub(height.max(1));
        self.first_row = self.first_row.clamp(lowest, row);
    }
}

fn find(interval: &Interval, serial: u64) -> Option<&TaskInterval> {
    interval.tasks.binary_search_by_key(&serial, |task| task.reading.serial).ok().map(|i| &interval.tasks[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::fixtures::{interval, task};

    fn app(tasks: &[(u32, u64)]) -> App {
        let mut app = App::new("whole host".into(), Duration::from_secs(1));
        app.on_interval(interval(tasks.iter().map(|(tid, ms)| task(*tid, &[ms * 1_000_000])).collect()));
        app
    }

    fn press(app: &mut App, code: KeyCode) -> Action {
        app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn tids(app: &App) -> Vec<u32> {
        app.rows().iter().map(|task| task.reading.tid).collect()
    }

    fn again(app: &mut App, tasks: &[(u32, u64)]) {
        app.on_interval(interval(tasks.iter().map(|(tid, ms)| task(*tid, &[ms * 1_000_000])).collect()));
    }

    #[test]
    fn whoever_waits_most_comes_first_and_is_selected() {
        let app = app(&[(1, 5), (2, 9), (3, 7)]);
        assert_eq!(tids(&app), [2, 3, 1]);
        assert_eq!(app.selected_task().unwrap().reading.tid, 2);
    }

    #[test]
    fn the_selection_follows_its_task_to_another_row() {
        let mut app = app(&[(1, 5), (2, 9), (3, 7)]);
        press(&mut app, KeyCode::Down);
        assert_eq!(app.selected_task().unwrap().reading.tid, 3);
        again(&mut app, &[(1, 5), (2, 9), (3, 70)]);
        assert_eq!((app.selected_row(), app.selected_task().unwrap().reading.tid), (Some(0), 3));
        assert_eq!(app.selected.as_ref().unwrap().since.count, 2);
    }

    #[test]
    fn when_the_selected_task_is_gone_its_row_stays_selected() {
        let mut app = app(&[(1, 5), (2, 9), (3, 7)]);
        press(&mut app, KeyCode::End);
        again(&mut app, &[(2, 9), (3, 7)]);
        assert_eq!((app.selected_row(), app.selected_task().unwrap().reading.tid), (Some(1), 3));
        again(&mut app, &[]);
        assert!(app.selected_task().is_none());
        again(&mut app, &[(8, 1)]);
        assert_eq!(app.selected_task().unwrap().reading.tid, 8);
    }

    #[test]
    fn equal_rows_do_not_jump() {
        let mut app = app(&[(1, 5), (2, 5), (3, 5)]);
        assert_eq!(tids(&app), [1, 2, 3]);
        press(&mut app, KeyCode::Char('r'));
        assert_eq!(tids(&app), [1, 2, 3]);
    }

    #[test]
    fn nothing_new_is_shown_while_paused() {
        let mut app = app(&[(1, 5)]);
        press(&mut app, KeyCode::Char(' '));
        again(&mut app, &[(2, 5)]);
        assert_eq!(tids(&app), [1]);
        press(&mut app, KeyCode::Char(' '));
        again(&mut app, &[(2, 5)]);
        assert_eq!(tids(&app), [2]);
    }

    #[test]
    fn keys_quit_and_the_help_goes_with_any_key() {
        let mut app = app(&[(1, 5)]);
        assert_eq!(press(&mut app, KeyCode::Char('?')), Action::Draw);
        assert!(app.help.is_some());
        assert_eq!(press(&mut app, KeyCode::Char('q')), Action::Draw);
        assert!(app.help.is_none());
        assert_eq!(press(&mut app, KeyCode::Char('q')), Action::Quit);
        assert_eq!(app.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Action::Quit);
        assert_eq!(press(&mut app, KeyCode::Char('z')), Action::None);
    }

    #[test]
    fn the_selected_row_is_always_among_those_shown() {
        let mut app = app(&(1..=50).map(|tid| (tid, 5)).collect::<Vec<_>>());
        press(&mut app, KeyCode::End);
        app.scroll_to_selected(10);
        assert_eq!(app.first_row, 40);
        press(&mut app, KeyCode::PageUp);
        app.scroll_to_selected(10);
        assert_eq!(app.first_row, 39);
        app.scroll_to_selected(0);
        assert_eq!(app.first_row, 39);
    }
}
