//! The state of the screen. Intervals and input change the state, and drawing reads it. Nothing here draws.

mod input;
pub mod list;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_ledger::named;
use cgscope_model::{Interval, Mode, Wait, findings::Host};
use ratatui::layout::Rect;
use serde::{Deserialize, Serialize};

use crate::app::{
    input::Enough,
    list::{Asked, ListKind, ListRow, Question},
};
use crate::data::{Data, Key, Subject};
use crate::history::{self, Frame, History, Past};
use crate::settings::{Settings, Span};
use crate::{columns::Column, draw::layout, keys::Command, replay::Replay, theme::Theme};
pub use input::{Effect, Prompt};

#[derive(Debug, Default)]
pub struct App {
    pub(crate) about: About,
    pub settings: Settings,
    pub(crate) theme: Theme,
    pub delay: Duration,
    pub recorded: Option<Recorded>,
    pub(crate) data: Option<Data>,
    /// The latest interval, if an older one is on the screen.
    newest: Option<Data>,
    history: History,
    /// A copy of the history from when the user paused.
    frozen: Option<Box<History>>,
    pub(crate) focus: Focus,
    pub view: View,
    /// The scope of lists: all tasks, the tasks of a cgroup, or the threads of a process.
    pub(crate) scope: Key,
    back: Vec<Visited>,
    /// Subject of a view without a list, and the title of the subject. The title stays on the screen after the subject exits.
    pinned: Option<(Key, String)>,
    pub rows: Vec<ListRow>,
    /// Index of the selected row; 0 in an empty list.
    pub selected: usize,
    pub(crate) first_row: usize,
    /// Lists in which the user has selected a row. In other lists, the worst finding or the first row is selected.
    moved: BTreeSet<ListKind>,
    /// The last selection in each kind of list.
    remembered: BTreeMap<ListKind, Key>,
    /// The sort column of a list if it differs from the settings. It is not saved to the settings.
    sort_now: Option<(ListKind, Column)>,
    /// Heading of the column to sort the first list by.
    sort_first: Option<String>,
    pub filter: String,
    pub prompt: Option<Prompt>,
    /// Show cgroups as a tree; otherwise a flat list of tasks.
    pub(crate) tree: bool,
    folded: BTreeSet<Arc<str>>,
    pub(crate) paused: bool,
    /// A message that is shown until the next key.
    pub notice: Option<String>,
    /// Number of lines scrolled off the top in a view without rows.
    pub(crate) scrolled: usize,
    /// Why no more intervals arrive.
    pub ended: Option<String>,
    /// Command lines by pid, each with the process name at the time of the request. `None`: the process has no command line.
    command_lines: BTreeMap<u32, (Arc<str>, Option<Arc<str>>)>,
    pub(crate) enough: Option<Enough>,
    pub area: Rect,
    /// The position in a replay; `None` on a live screen.
    pub replay: Option<Replay>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The recording continues; bytes written so far.
    Recording(u64),
    /// The recording ended early; the reason.
    Broken(String),
}

/// Facts about the measurement and the host. They are the same for all intervals.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Describes the selected targets.
    pub title: String,
    /// Host name; empty if unknown.
    pub hostname: String,
    /// Kernel release of the host; empty if unknown.
    pub kernel: String,
    pub host: Host,
    /// Why the mode is coarse; `None` in BPF mode.
    pub coarse: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Focus {
    key: Option<Key>,
    /// The waits in each interval of the history, oldest first.
    pub(crate) past: Vec<Past>,
    /// The waits in each [`Span`], and the length of the span, ns. Computed on first use.
    spans: [OnceCell<(Wait, u64)>; Span::ALL.len()],
}

/// Choices from the command line. They override the settings and are not saved.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    pub view: Option<View>,
    /// Heading of the sort column.
    pub sort: Option<String>,
    pub filter: Option<String>,
}

#[derive(Clone, Debug)]
struct Visited {
    view: View,
    scope: Key,
    selected: Option<Key>,
    tree: bool,
    filter: String,
}

impl App {
    pub fn new(about: About, settings: Settings, theme: Theme, delay: Duration) -> Self {
        let (view, tree) = (settings.view, settings.tree);
        Self { about, settings, theme, delay, view, tree, ..Self::default() }
    }

    /// Overrides the settings at the start. Call it before the first interval.
    pub fn begin_with(&mut self, begin: Begin) {
        self.view = begin.view.unwrap_or(self.view);
        self.filter = begin.filter.unwrap_or_default();
        self.sort_first = begin.sort;
    }

    pub(crate) fn sort_of(&self, kind: ListKind) -> (Column, bool) {
        let now = self.sort_now.filter(|(of, _)| *of == kind);
        now.map_or_else(|| self.settings.sort_of(kind), |(_, column)| (column, false))
    }

    /// Sorts the list, and saves the choice to the settings.
    fn set_sort(&mut self, column: Column, reversed: bool) -> Effect {
        let kind = self.kind();
        if kind.columns().contains(&column) || kind == ListKind::States {
            self.sort_now = self.sort_now.filter(|(of, _)| *of != kind);
            self.settings.sort.insert(kind, (column, reversed));
            // Show the top of the list after sorting.
            self.moved.remove(&kind);
            self.remembered.remove(&kind);
            self.first_row = 0;
        }
        self.refreshed()
    }

    pub fn on_interval(&mut self, interval: Arc<Interval>) {
        let data = Data::new(interval, &self.about.host);
        self.history.push(&data, self.newest.as_ref().or(self.data.as_ref()));
        // A process that ran another program (exec) has another name and command line.
        self.command_lines.retain(|pid, (name, _)| data.process_name(*pid) == Some(name));
        if self.paused && self.data.is_some() {
            self.newest = Some(data);
        } else {
            self.show(data);
        }
    }

    fn show(&mut self, data: Data) {
        if self.data.is_none() {
            let cgroups = 0..data.tree.nodes().len();
            // A tree is useless if all tasks are in one cgroup.
            self.tree &= cgroups.filter(|at| data.tree.nodes()[*at].has_own_tasks()).count() > 1;
        }
        self.newest = None;
        self.data = Some(data);
        if let Some(title) = self.sort_first.take() {
            let kind = self.kind();
            match Column::by_title(&title, kind.columns()) {
                Some(column) => self.sort_now = Some((kind, column)),
                None => self.notice = Some(format!("this list has no column {title}: s shows its columns")),
            }
        }
        self.refresh();
    }

    /// Shows interval `n` of a recording. `None` means that the interval is damaged. The replay then ends before this interval.
    pub fn on_read(&mut self, n: usize, interval: Option<Arc<Interval>>) {
        let Some(replay) = &mut self.replay else { return };
        let Some(interval) = interval else { return replay.player.shorten(n) };
        let before = replay.shown.replace(n);
        if before.is_none_or(|before| before + 1 != n) {
            // Jumps in the recording must not look like adjacent intervals, so the history restarts.
            self.history.clear();
        }
        self.about.coarse = (interval.mode == Mode::Coarse).then(|| "as recorded".into());
        self.on_interval(interval);
    }

    /// Adds intervals that the replay skipped between the current interval and the next one.
    pub fn on_skipped(&mut self, first: usize, frames: Vec<Frame>) {
        let Some(replay) = &mut self.replay else { return };
        if replay.shown.is_some_and(|shown| shown + 1 == first) {
            replay.shown = Some((first + frames.len()).saturating_sub(1));
            frames.into_iter().for_each(|frame| self.history.append(frame));
        }
    }

    /// Adds the intervals before interval `n` of a recording, unless the screen already shows another interval.
    pub fn on_read_before(&mut self, n: usize, frames: Vec<Frame>) {
        let Some(shown) = self.replay.as_ref().and_then(|replay| replay.shown) else { return };
        if n + self.history.frames.len() == shown + 1 {
            self.history.push_before(frames);
            self.look();
        }
    }

    pub(crate) fn command_line(&self, pid: u32) -> Option<Arc<str>> {
        self.command_lines.get(&pid).and_then(|(_, line)| line.clone())
    }

    pub fn on_command_lines(&mut self, lines: impl IntoIterator<Item = (u32, Option<Arc<str>>)>) {
        let Some(data) = &self.data else { return };
        let named = |(pid, line)| Some((pid, (data.process_name(pid)?.clone(), line)));
        self.command_lines.extend(lines.into_iter().filter_map(named));
        if !self.filter.is_empty() {
            self.refresh();
        }
    }

    /// Returns the processes on the screen whose command line is needed but not known yet.
    pub fn wanted_command_lines(&self) -> Vec<u32> {
        let Some(data) = self.data.as_ref().filter(|_| self.replay.is_none()) else { return Vec::new() };
        let pid = |subject: Subject<'_>| subject.task().map(|task| task.reading.tgid);
        let wanted: BTreeSet<u32> = if self.view == View::Task {
            self.subject().and_then(pid).into_iter().collect()
        } else if self.settings.command_lines {
            self.shown(self.area.height.into()).filter_map(|(_, row)| pid(data.subject(&row.key)?)).collect()
        } else {
            BTreeSet::new()
        };
        wanted.into_iter().filter(|pid| !self.command_lines.contains_key(pid)).collect()
    }

    pub fn tick(&mut self, now: Instant) {
        self.replay.iter_mut().for_each(|replay| replay.tick(now));
    }

    pub fn on_resize(&mut self, width: u16, height: u16) {
        self.area = Rect::new(0, 0, width, height);
        self.scroll();
    }

    /// Returns the command that draws this screen, and the command that prints text instead.
    pub(crate) fn commands(&self) -> [&'static str; 2] {
        if self.replay.is_some() {
            ["cgscope replay", "cgscope report"]
        } else {
            ["cgscope top", "cgscope top -b"]
        }
    }

    /// Returns the history up to the interval on the screen.
    pub(crate) fn history(&self) -> &History {
        self.frozen.as_deref().unwrap_or(&self.history)
    }

    pub(crate) fn kind(&self) -> ListKind {
        self.view.kind(&self.scope, self.tree, self.settings.processes)
    }

    /// Returns at most `count` rows with their indexes, from the first row on the screen.
    pub(crate) fn shown(&self, count: usize) -> impl Iterator<Item = (usize, &ListRow)> {
        self.rows.iter().enumerate().skip(self.first_row).take(count)
    }

    pub(crate) fn is_tree(&self) -> bool {
        let wanted = if self.view.is_of_overview() { self.tree } else { self.settings.tree };
        wanted && self.filter.is_empty() && matches!(self.kind(), ListKind::Cgroups | ListKind::Limits)
    }

    /// Whether the current interval measured each wait. False in coarse mode and before the first interval.
    pub(crate) fn is_exact(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.interval.mode == Mode::Bpf)
    }

    /// Returns the selected subject; `None` if nothing is selected or the subject is not in the current interval.
    pub(crate) fn subject(&self) -> Option<Subject<'_>> {
        let data = self.data.as_ref()?;
        if let Some((key, _)) = &self.pinned {
            return data.subject(key);
        }
        let row = self.rows.get(self.selected);
        row.and_then(|row| data.subject(&row.key)).or_else(|| data.subject(&self.scope))
    }

    pub fn title(&self, subject: &Subject<'_>) -> String {
        self.data.as_ref().map_or_else(String::new, |data| subject.title(&data.interval.names))
    }

    pub(crate) fn exited_title(&self) -> Option<&str> {
        let (_, title) = self.pinned.as_ref()?;
        (self.data.is_some() && self.subject().is_none()).then_some(title)
    }

    /// Keeps the selected subject in a view without a list, even if the selection in the list changes.
    fn pin(&mut self) {
        self.pinned = None;
        let subject = self.subject().filter(|_| self.view.is_of_one());
        self.pinned = subject.map(|subject| (subject.key(), self.title(&subject)));
    }

    /// Recomputes the rows and the selection. Call this after a change of the data they depend on.
    fn refresh(&mut self) {
        let Some(data) = &self.data else { return };
        let kind = self.kind();
        let (sort, reversed) = self.sort_of(kind);
        let asked = Asked { kind, sort, reversed, filter: self.filter.clone(), idle: true };
        let question = Question {
            asked: &asked,
            scope: &self.scope,
            tree: self.is_tree(),
            folded: &self.folded,
            command_line: &|pid| self.command_line(pid),
        };
        self.rows = question.rows(data);
        let place = |key: &Key| self.rows.iter().position(|row| row.key == *key);
        let row = if self.moved.contains(&kind) {
            // If the selected subject has exited, select the row that is now at the same index.
            self.remembered.get(&kind).and_then(place).unwrap_or(self.selected)
        } else {
            self.first_row = 0;
            // Skip findings about the whole host, because they name no cgroup.
            let worst = data.findings.iter().find_map(|finding| finding.cgroup.clone());
            worst.and_then(|path| place(&Key::Cgroup(path))).unwrap_or(0)
        };
        self.select(row);
    }

    fn select_by_hand(&mut self, row: usize) -> Effect {
        self.moved.insert(self.kind());
        self.select(row);
        Effect::Draw
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.rows.len().saturating_sub(1));
        let key = self.rows.get(self.selected).map(|row| (self.kind(), row.key.clone()));
        self.remembered.extend(key);
        self.look();
        self.scroll();
    }

    fn scroll(&mut self) {
        let height = layout::rows(self);
        if height == 0 {
            // A view without a list does not move the list.
            return;
        }
        let lowest = (self.selected + 1).saturating_sub(height.max(1));
        self.first_row = self.first_row.clamp(lowest, self.selected.max(lowest));
        // Leave no empty lines at the bottom while there are rows above.
        self.first_row = self.first_row.min(self.rows.len().saturating_sub(height));
    }

    /// Updates the waits of the selected subject from the history.
    fn look(&mut self) {
        let known = std::mem::take(&mut self.focus);
        let Some(key) = self.focus_key() else { return };
        let known = if known.key.as_ref() == Some(&key) { known.past } else { Vec::new() };
        let past = self.history().past(&key, known);
        self.focus = Focus { key: Some(key), past, ..Focus::default() };
    }

    fn focus_key(&self) -> Option<Key> {
        let data = self.data.as_ref()?;
        let key = match &self.pinned {
            Some((key, _)) => key.clone(),
            None => self.subject()?.key(),
        };
        // For the root cgroup, use the data of all tasks: the history keeps more data for all tasks than for single subjects.
        let is_all = data.tree.unknown.is_none() && key == Key::Cgroup("/".into());
        Some(if is_all { Key::All } else { key })
    }

    /// Returns the waits of the selected subject over a span, and the length of the span, ns.
    pub(crate) fn span(&self, span: Span) -> (&Wait, u64) {
        let sum = &self.focus.spans[span as usize];
        let (wait, length_ns) = sum.get_or_init(|| self.sum(span).unwrap_or_default());
        (wait, *length_ns)
    }

    fn sum(&self, span: Span) -> Option<(Wait, u64)> {
        let data = self.data.as_ref()?;
        Some(match span {
            Span::Interval => (self.subject()?.wait().clone(), data.interval.duration_ns),
            Span::Minute => history::last_minute(&self.focus.past),
            Span::Start => {
                // Totals since the start exist only live in BPF mode, and not for cgroups without a known path.
                let has_totals = self.replay.is_none() && self.is_exact();
                match self.focus.key.as_ref()? {
                    key if has_totals && *key != Key::Unknown => self.history().since_start(key, data),
                    _ => history::all(&self.focus.past),
                }
            }
        })
    }

    pub(crate) fn focused(&self) -> (&Wait, u64) {
        self.span(self.settings.span)
    }
}

named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum View (name, title, command) {
        /// The name for `--view` and in the settings file.
        name: &'static str,
        title: &'static str,
        command: Command,
    }

    #[default]
    Overview = "overview", "Overview", Command::Overview;
    Histogram = "histogram", "Histogram", Command::Histogram;
    Heatmap = "heatmap", "Heatmap", Command::Heatmap;
    Cgroups = "cgroups", "Cgroups", Command::Cgroups;
    Culprits = "culprits", "Culprits", Command::Culprits;
    Numa = "numa", "NUMA", Command::Numa;
    States = "states", "States", Command::States;
    Task = "task", "Task", Command::Task;
    Chains = "chains", "Chains", Command::Chains;
    WhatIf = "whatif", "What if", Command::WhatIf;
    Findings = "findings", "Findings", Command::Findings;
    Help = "help", "Help", Command::Help;
}

impl View {
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|view| view.name() == name)
    }

    /// Returns the view that is `places` further, without the views that cover others.
    pub(crate) fn step(self, places: isize) -> Self {
        let views: Vec<Self> = Self::ALL.iter().copied().filter(|view| !view.is_over()).collect();
        let at = views.iter().position(|view| *view == self).unwrap_or(0);
        views[(at as isize + places).rem_euclid(views.len() as isize) as usize]
    }

    /// Returns the kind of list that the view shows. Views without their own list use the list of the Overview.
    pub fn kind(self, scope: &Key, tree: bool, processes: bool) -> ListKind {
        match self {
            Self::Cgroups => ListKind::Limits,
            Self::Culprits => ListKind::Victims,
            Self::Numa => ListKind::Placed,
            Self::States => ListKind::States,
            Self::Chains => ListKind::Sleepers,
            _ => match scope {
                Key::All if tree => ListKind::Cgroups,
                Key::Process(_) => ListKind::Threads,
                _ if processes => ListKind::Processes,
                _ => ListKind::Threads,
            },
        }
    }

    /// Whether the view has no list and shows one subject.
    pub(crate) const fn is_of_one(self) -> bool {
        matches!(self, Self::Histogram | Self::Heatmap | Self::Task)
    }

    /// Whether the view shows lines that scroll. Such a view does not become the first view of the next run.
    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Task | Self::WhatIf | Self::Findings | Self::Help)
    }

    /// Whether the view covers another view, which is shown again when this view closes.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::WhatIf | Self::Findings | Self::Help)
    }

    /// Whether the view shows the list of the Overview, or the subject selected there.
    pub(crate) const fn is_of_overview(self) -> bool {
        !matches!(self, Self::Cgroups | Self::Culprits | Self::Numa | Self::States | Self::Chains)
    }
}

#[cfg(test)]
mod tests;
