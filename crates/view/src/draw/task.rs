//! Everything about one: a thread, a process, a cgroup, or all.

mod figures;
mod limits;
mod spent;
mod who;

use cgscope_model::{Interval, Mode, TaskInterval, tree::Node};
use ratatui::{
    layout::Rect,
    text::{Line, Span},
};

use super::{bars, histogram, pane};
use crate::{
    app::App,
    data::Data,
    subject::Subject,
    text::NO_HISTOGRAM,
    width::{left, wrapped},
};

/// From this width on there are two columns.
const WIDE: usize = 120;
/// Between them.
const GAP: usize = 2;
/// Cells of the word that says of what a fact is.
const LABEL: usize = 10;
/// Lines of the histogram, at most: as many as there are doublings, its heading and its legend.
const HISTOGRAM: usize = 32;

/// All lines, each at most as wide as the area.
pub fn lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let (Some(data), Some(subject)) = (&app.data, app.subject()) else { return Vec::new() };
    let cells = usize::from(area.width);
    let view = |cells| TaskView { app, data, interval: &data.interval, subject, cells };
    if cells < WIDE {
        let about = view(cells);
        return [about.first(), about.second()].concat();
    }
    let (first, second) = (view((cells - GAP).div_ceil(2)), view((cells - GAP) / 2));
    beside(first.first(), second.second(), first.cells + GAP)
}

/// Lines side by side; the second ones begin in this cell.
fn beside(first: Vec<Line<'static>>, second: Vec<Line<'static>>, at: usize) -> Vec<Line<'static>> {
    let count = first.len().max(second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let both = (0..count).map(|_| (first.next().unwrap_or_default(), second.next().unwrap_or_default()));
    both.map(|(mut line, beside)| {
        line.spans.push(Span::raw(" ".repeat(at.saturating_sub(line.width()))));
        line.spans.extend(beside.spans);
        line
    })
    .collect()
}

/// What is told of, and in how many cells.
struct TaskView<'a> {
    app: &'a App,
    data: &'a Data,
    interval: &'a Interval,
    subject: Subject<'a>,
    cells: usize,
}

impl<'a> TaskView<'a> {
    /// Who it is, what it does, why it waited, and what holds it back.
    fn first(&self) -> Vec<Line<'static>> {
        let members = self.members();
        [
            self.who(),
            self.now(),
            self.spent(&members),
            self.behind(),
            self.quotas(),
            self.waits(),
            self.kernel(&members),
            self.switches(),
            self.places(),
            self.own_limits(),
        ]
        .concat()
    }

    /// How that was over time, who of it waited most, and how long waits were.
    fn second(&self) -> Vec<Line<'static>> {
        [self.past(), self.worst(), self.histogram()].concat()
    }

    /// Its threads that were there at the end of the interval.
    fn members(&self) -> Vec<&'a TaskInterval> {
        let tasks = &self.interval.tasks;
        match self.subject {
            Subject::Task(task) => vec![task],
            Subject::All(_) => tasks.iter().collect(),
            Subject::Process(process, _) => {
                tasks.iter().filter(|task| task.reading.tgid == process.pid).collect()
            }
            Subject::Cgroup(node) => {
                let Some(at) = self.data.tree.find(&node.path) else { return Vec::new() };
                self.data.tree.tasks_below(at).iter().map(|at| &tasks[*at]).collect()
            }
            Subject::Unknown(_) => {
                let is_unknown = |id| self.interval.cgroup_path(id).is_none();
                tasks.iter().filter(|task| is_unknown(task.reading.cgroup_id)).collect()
            }
        }
    }

    /// Its cgroup in the tree; of all the root.
    fn node(&self) -> Option<(usize, &'a Node)> {
        let path = match self.subject {
            Subject::All(_) => "/",
            subject => subject.cgroup(self.interval)?,
        };
        let at = self.data.tree.find(path)?;
        Some((at, &self.data.tree.nodes()[at]))
    }

    fn is_exact(&self) -> bool {
        self.interval.mode == Mode::Bpf
    }

    /// A fact: a word that says of what, and as many lines as it needs.
    fn fact(&self, label: &'static str, text: &str) -> Vec<Line<'static>> {
        let words = wrapped(text, self.cells.saturating_sub(LABEL)).into_iter().enumerate();
        let line = |(at, words)| {
            let label = if at == 0 { label } else { "" };
            Line::from(vec![Span::styled(left(label, LABEL), self.app.theme.quiet()), Span::raw(words)])
        };
        words.map(line).collect()
    }

    fn now(&self) -> Vec<Line<'static>> {
        // The coarse mode does not tell who runs or waits at a moment.
        if !self.is_exact() {
            return Vec::new();
        }
        let words = match (pane::now(&self.subject), self.subject) {
            (Some(waits), _) => waits,
            (None, Subject::Task(task)) if task.reading.on_cpu => "on its CPU".into(),
            (None, Subject::Task(_)) => "blocked: it sleeps, or waits for something else than a CPU".into(),
            (None, _) => "nobody waits".into(),
        };
        self.fact("now", &words)
    }

    fn past(&self) -> Vec<Line<'static>> {
        let past = &self.app.past();
        let values: Vec<Option<f64>> = past.iter().map(|one| Some(one.waiting())).collect();
        let room = self.cells.saturating_sub(LABEL);
        let shown = values.len().min(room);
        let most = values[values.len() - shown..].iter().flatten().copied().fold(0.0, f64::max);
        if shown == 0 || most <= 0.0 {
            return self.fact("waited", "not in the intervals that are remembered");
        }
        let line = bars::sparkline(&values, most, shown);
        let spark = vec![
            Span::styled(left("waited", LABEL), self.app.theme.quiet()),
            Span::styled(line, self.app.theme.wait()),
        ];
        let count = cgscope_model::units::count(shown as u64, "interval");
        let words = format!("over {count}: at most {:.1}% of an interval", most * 100.0);
        let many = format!("over {count}: at most {most:.2} tasks on average");
        let words = if matches!(self.subject, Subject::Task(_)) { words } else { many };
        [vec![Line::from(spark)], self.fact("", &words)].concat()
    }

    fn histogram(&self) -> Vec<Line<'static>> {
        if !self.is_exact() {
            return self.fact("", NO_HISTOGRAM);
        }
        let heading = pane::heading(self.app, &self.subject, self.cells);
        let times = [self.app.settings.span];
        [vec![heading], histogram::tables(self.app, &times, self.cells, HISTOGRAM, true)].concat()
    }
}

#[cfg(test)]
mod tests;
