//! The state of the screen: changed by Intervals and by input, read by drawing. Nothing here draws, and drawing changes nothing.

mod input;
pub mod list;
mod parts;
mod prompt;
#[cfg(test)]
mod tests;
pub mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_model::{Interval, Mode, Wait};
use ratatui::layout::Rect;

pub use input::Effect;
pub use parts::{About, Begin, Recorded};
pub use prompt::Prompt;

use parts::{Focus, Visited};

use crate::{
    app::{
        list::{Kind, Question, Rows},
        view::View,
    },
    columns::Column,
    data::Data,
    draw::layout,
    history::{self, Frame, History, Past},
    replay::state::Replay,
    settings::{Settings, Span},
    subject::{Key, Subject},
    theme::Theme,
};

/// The state of the screen.
#[derive(Debug, Default)]
pub struct App {
    /// What is measured, and how.
    pub about: About,
    /// What the user has chosen.
    pub settings: Settings,
    /// What things look like.
    pub theme: Theme,
    /// Length of an interval.
    pub delay: Duration,
    /// How the recording of what is shown does, if there is one.
    pub recorded: Option<Recorded>,
    /// The interval shown.
    pub data: Option<Data>,
    /// The latest one, where another is shown.
    newest: Option<Data>,
    /// What was shown before.
    history: History,
    /// The same as it was when the screen was paused.
    frozen: Option<Box<History>>,
    /// The waits of what is selected.
    focus: Focus,
    /// The view shown.
    pub view: View,
    /// What lists show: all, the tasks of a cgroup, the threads of a process.
    pub scope: Key,
    back: Vec<Visited>,
    /// What a view without a list is of, and what it is called: also when that is gone.
    pinned: Option<(Key, String)>,
    /// The rows of the list.
    pub rows: Rows,
    /// The row that is selected; of an empty list 0.
    pub selected: usize,
    /// The row that is shown first.
    pub first_row: usize,
    /// Lists in which the user has selected something; in others, what is most wrong is selected, or the first row.
    moved: BTreeSet<Kind>,
    /// What was last selected in lists of each kind.
    remembered: BTreeMap<Kind, Key>,
    /// What a list is sorted by this time only.
    sort_now: Option<(Kind, Column)>,
    /// The heading of the column that the first list is to be sorted by.
    sort_first: Option<String>,
    /// Only rows with these letters.
    pub filter: String,
    /// What is being typed or chosen.
    pub prompt: Option<Prompt>,
    /// Cgroups as a tree; else a flat list of tasks.
    pub tree: bool,
    /// Cgroups of the tree whose branches are closed.
    pub folded: BTreeSet<Arc<str>>,
    /// New intervals are not shown.
    pub paused: bool,
    /// Said until the next key.
    pub notice: Option<String>,
    /// Lines that are scrolled away in a view without rows.
    pub scrolled: usize,
    /// Why no more intervals come.
    pub ended: Option<String>,
    /// Command lines of processes, as far as they were asked for, with the name that each then had; `None`: it has none.
    command_lines: BTreeMap<u32, (Arc<str>, Option<Arc<str>>)>,
    /// The screen.
    pub area: Rect,
    /// Where a replay is; `None`: this is the running host.
    pub replay: Option<Replay>,
}

impl App {
    /// Nothing measured yet.
    pub fn new(about: About, settings: Settings, theme: Theme, delay: Duration) -> Self {
        let (view, tree) = (settings.view, settings.tree);
        Self { about, settings, theme, delay, view, tree, ..Self::default() }
    }

    /// Before the first interval: another beginning than settings say.
    pub fn begin_with(&mut self, begin: Begin) {
        self.view = begin.view.unwrap_or(self.view);
        self.filter = begin.filter.unwrap_or_default();
        self.sort_first = begin.sort;
    }

    /// What a list is sorted by, and whether the other way round.
    pub fn sort_of(&self, kind: Kind) -> (Column, bool) {
        match self.sort_now {
            Some((of, column)) if of == kind => (column, false),
            _ => self.settings.sort_of(kind),
        }
    }

    /// Sorts a list from now on, and the next time.
    fn set_sort(&mut self, kind: Kind, column: Column, reversed: bool) {
        if !kind.columns().contains(&column) && kind != Kind::States {
            return;
        }
        self.sort_now = self.sort_now.filter(|(of, _)| *of != kind);
        self.settings.sort.insert(kind, (column, reversed));
        // Whoever sorts wants to see who comes first.
        self.moved.remove(&kind);
        self.remembered.remove(&kind);
        self.first_row = 0;
    }

    /// A new interval.
    pub fn on_interval(&mut self, interval: Arc<Interval>) {
        let data = Data::new(interval, &self.about.host);
        self.history.push(&data, self.newest.as_ref().or(self.data.as_ref()));
        self.forget_command_lines(&data);
        if self.paused && self.data.is_some() {
            self.newest = Some(data);
            return;
        }
        self.show(data);
    }

    fn show(&mut self, data: Data) {
        if self.data.is_none() && !has_tree(&data) {
            // A tree of one row tells nothing.
            self.tree = false;
        }
        self.newest = None;
        self.data = Some(data);
        if let Some(title) = self.sort_first.take() {
            let kind = self.kind();
            match Column::by_title(&title, kind.columns()) {
                Some(column) => self.sort_now = Some((kind, column)),
                None => {
                    self.notice = Some(format!("this list has no column {title}: s shows those that it has"))
                }
            }
        }
        self.refresh();
    }

    /// Interval `n` of a recording was read; `None`: damage is in the way, and the recording ends before it.
    pub fn on_read(&mut self, n: usize, interval: Option<Arc<Interval>>) {
        let Some(replay) = &mut self.replay else { return };
        let Some(interval) = interval else { return replay.player.shorten(n) };
        let before = replay.shown.replace(n);
        if before.is_none_or(|before| before + 1 != n) {
            // What is not beside it in the recording is not beside it on the screen.
            self.history.clear();
        }
        self.about.coarse = (interval.mode == Mode::Coarse).then(|| "so it was recorded".into());
        self.on_interval(interval);
    }

    /// The intervals between the one shown and the next to be shown, which were gone over.
    pub fn on_skipped(&mut self, first: usize, frames: Vec<Frame>) {
        let Some(replay) = &mut self.replay else { return };
        if replay.shown.is_some_and(|shown| shown + 1 == first) {
            replay.shown = Some(shown_after(first, frames.len()));
            self.history.push_after(frames);
        }
    }

    /// The intervals before interval `n` of a recording, for what is shown over time; left out where something else is shown by
    /// now.
    pub fn on_read_before(&mut self, n: usize, frames: Vec<Frame>) {
        let Some(shown) = self.replay.as_ref().and_then(|replay| replay.shown) else { return };
        if n + self.history.frames().len() == shown + 1 {
            self.history.push_before(frames);
            self.look();
        }
    }

    /// Forgets those of processes that are gone, or that became another program: their name has changed.
    fn forget_command_lines(&mut self, data: &Data) {
        if !self.command_lines.is_empty() {
            self.command_lines.retain(|pid, (name, _)| data.process_name(*pid) == Some(name));
        }
    }

    /// The command line of a process, if it is known and has one.
    pub fn command_line(&self, pid: u32) -> Option<Arc<str>> {
        self.command_lines.get(&pid).and_then(|(_, line)| line.clone())
    }

    /// Command lines that were asked for.
    pub fn on_command_lines(&mut self, lines: impl IntoIterator<Item = (u32, Option<Arc<str>>)>) {
        let Some(data) = &self.data else { return };
        for (pid, line) in lines {
            if let Some(name) = data.process_name(pid) {
                self.command_lines.insert(pid, (name.clone(), line));
            }
        }
        if !self.filter.is_empty() {
            self.refresh();
        }
    }

    /// Processes on the screen whose command lines are wanted and not known yet.
    pub fn wanted_command_lines(&self) -> Vec<u32> {
        let Some(data) = self.data.as_ref().filter(|_| self.replay.is_none()) else { return Vec::new() };
        if self.view == View::Task {
            let pid = self.subject().and_then(|subject| Some(subject.task()?.reading.tgid));
            return pid.filter(|pid| !self.command_lines.contains_key(pid)).into_iter().collect();
        }
        if !self.settings.command_lines {
            return Vec::new();
        }
        let rows = self.rows.iter().skip(self.first_row).take(self.area.height.into());
        let pids = rows.filter_map(|row| self.rows.subject(row, data)?.task().map(|task| task.reading.tgid));
        let wanted: BTreeSet<u32> = pids.filter(|pid| !self.command_lines.contains_key(pid)).collect();
        wanted.into_iter().collect()
    }

    /// The clock goes on.
    pub fn tick(&mut self, now: Instant) {
        self.replay.iter_mut().for_each(|replay| replay.tick(now));
    }

    /// The screen has another size.
    pub fn on_resize(&mut self, width: u16, height: u16) {
        self.area = Rect::new(0, 0, width, height);
        self.scroll();
    }

    /// The command whose screen this is, and the one that prints text instead.
    pub fn commands(&self) -> [&'static str; 2] {
        if self.replay.is_some() {
            ["cgscope replay", "cgscope report"]
        } else {
            ["cgscope top", "cgscope top -b"]
        }
    }

    /// What was shown before, up to the interval that is shown.
    pub fn history(&self) -> &History {
        self.frozen.as_deref().unwrap_or(&self.history)
    }

    /// What the rows of the list are.
    pub fn kind(&self) -> Kind {
        self.view.kind(&self.scope, self.tree, self.settings.processes)
    }

    /// The list is a tree.
    pub fn is_tree(&self) -> bool {
        let wanted = if self.view.is_of_overview() { self.tree } else { self.settings.tree };
        wanted && self.filter.is_empty() && matches!(self.kind(), Kind::Cgroups | Kind::Limits)
    }

    /// What is selected, in the interval shown; `None`: nothing, or it is not there.
    pub fn subject(&self) -> Option<Subject<'_>> {
        let data = self.data.as_ref()?;
        if let Some((key, _)) = &self.pinned {
            return data.subject(key);
        }
        match self.rows.get(self.selected) {
            Some(row) => self.rows.subject(row, data).or_else(|| data.subject(&self.scope)),
            None => data.subject(&self.scope),
        }
    }

    /// What the view is of is gone: what it was called.
    pub fn gone(&self) -> Option<&str> {
        let (_, title) = self.pinned.as_ref()?;
        (self.data.is_some() && self.subject().is_none()).then_some(title)
    }

    /// A view without a list is of what is selected when it comes up, whatever becomes of the list.
    fn pin(&mut self) {
        self.pinned = None;
        let subject = self.subject().filter(|_| self.view.is_of_one());
        self.pinned = subject.map(|subject| (subject.key(), subject.title()));
    }

    /// Rows, selection and what is derived of it: after anything that they depend on has changed.
    fn refresh(&mut self) {
        let Some(data) = &self.data else { return };
        let kind = self.kind();
        let (sort, reversed) = self.sort_of(kind);
        let lines = &self.command_lines;
        let question = Question {
            kind,
            scope: &self.scope,
            sort,
            reversed,
            tree: self.is_tree(),
            filter: &self.filter,
            folded: &self.folded,
            command_line: &|pid| lines.get(&pid).and_then(|(_, line)| line.clone()),
        };
        self.rows = Rows::new(&question, data);
        let row = if self.moved.contains(&kind) {
            // Where what was selected is gone, whoever is in its row is selected.
            self.remembered.get(&kind).and_then(|key| self.rows.find(key)).unwrap_or(self.selected)
        } else {
            self.first_row = 0;
            worst(data).and_then(|path| self.rows.find(&Key::Cgroup(path))).unwrap_or(0)
        };
        self.select(row);
    }

    /// Selects a row, or the last one.
    fn select(&mut self, row: usize) {
        self.selected = row.min(self.rows.len().saturating_sub(1));
        if let Some(row) = self.rows.get(self.selected) {
            self.remembered.insert(self.kind(), row.key.clone());
        }
        self.look();
        self.scroll();
    }

    /// The waits of what is selected.
    fn look(&mut self) {
        let known = std::mem::take(&mut self.focus);
        let Some(key) = self.focus_key() else { return };
        let known = if known.key.as_ref() == Some(&key) { known.past } else { Vec::new() };
        let past = self.history().past(&key, known);
        self.focus = Focus { key: Some(key), past, ..Focus::default() };
    }

    fn focus_key(&self) -> Option<Key> {
        let data = self.data.as_ref()?;
        // All tasks are known better than one by one.
        let key = match &self.pinned {
            Some((key, _)) => key.clone(),
            None => self.subject()?.key(),
        };
        Some(match key {
            Key::Cgroup(path) if &*path == "/" && data.tree.unknown.is_none() => Key::All,
            key => key,
        })
    }

    /// Readings began with the first interval: not in a recording, and not those of `/proc`.
    fn has_seen_all(&self, data: &Data) -> bool {
        self.replay.is_none() && data.interval.mode == Mode::Bpf
    }

    /// So that the selected row is among those shown.
    fn scroll(&mut self) {
        let height = layout::rows(self);
        if height == 0 {
            // A view without a list leaves it where it was.
            return;
        }
        let lowest = (self.selected + 1).saturating_sub(height.max(1));
        self.first_row = self.first_row.clamp(lowest, self.selected.max(lowest));
        // No empty lines below, where rows above could fill them.
        self.first_row = self.first_row.min(self.rows.len().saturating_sub(height));
    }

    /// The waits of what is selected over a span, and how long that is, ns.
    pub fn span(&self, span: Span) -> (&Wait, u64) {
        let (wait, length_ns) =
            self.focus.spans[span as usize].get_or_init(|| self.sum(span).unwrap_or_default());
        (wait, *length_ns)
    }

    fn sum(&self, span: Span) -> Option<(Wait, u64)> {
        let data = self.data.as_ref()?;
        Some(match span {
            Span::Interval => (self.subject()?.wait().clone(), data.interval.duration_ns),
            Span::Minute => history::last_minute(&self.focus.past),
            // Of cgroups without a name only what is remembered is known: who was in which is not.
            Span::Start if self.has_seen_all(data) && self.focus.key != Some(Key::Unknown) => {
                self.history().since_start(self.focus.key.as_ref()?, data)
            }
            Span::Start => history::all(&self.focus.past),
        })
    }

    /// The waits of what is selected in each interval that is remembered, the latest last.
    pub fn past(&self) -> &[Past] {
        &self.focus.past
    }

    /// The waits of the span that is chosen, and how long that is, ns.
    pub fn focused(&self) -> (&Wait, u64) {
        self.span(self.settings.span)
    }
}

/// Tasks are in more than one cgroup.
fn has_tree(data: &Data) -> bool {
    (0..data.tree.nodes().len()).filter(|at| !data.tree.tasks_of(*at).is_empty()).count() > 1
}

/// The cgroup that the worst finding is about, if one is.
fn worst(data: &Data) -> Option<Arc<str>> {
    data.findings.first().and_then(|finding| finding.cgroup.clone())
}

/// The last of so many intervals from `first` on.
fn shown_after(first: usize, count: usize) -> usize {
    (first + count).saturating_sub(1)
}
