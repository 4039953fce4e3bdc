//! Details of one subject: a thread, a process, a cgroup, or all tasks.

mod figures;
mod limits;
mod spent;
mod who;

use cgscope_model::{TaskInterval, TaskReading};

use super::{histogram, prelude::*};

/// Minimum width for two columns.
const WIDE: usize = 120;
/// Distance between the columns, in cells.
const GAP: usize = 2;
/// Width of the label of a fact, in cells.
const LABEL: usize = 10;
/// Maximum lines of the histogram: one for each doubling, its heading and its legend.
const HISTOGRAM: usize = 32;

/// All lines, each at most as wide as the area.
pub fn lines(app: &App, area: Rect) -> Lines {
    let (Some(data), Some(subject)) = (&app.data, app.subject()) else { return Vec::new() };
    let cells = usize::from(area.width);
    let view = |cells| TaskView { app, data, interval: &data.interval, subject, cells };
    if cells < WIDE {
        let about = view(cells);
        return [about.first(), about.second()].concat();
    }
    let (about, beside) = (view((cells - GAP).div_ceil(2)), view((cells - GAP) / 2));
    let (mut lines, second) = (about.first(), beside.second());
    lines.resize(lines.len().max(second.len()), Line::default());
    for (line, beside) in lines.iter_mut().zip(second) {
        line.spans.push(Span::raw(" ".repeat((about.cells + GAP).saturating_sub(line.width()))));
        line.spans.extend(beside.spans);
    }
    lines
}

struct TaskView<'a> {
    app: &'a App,
    data: &'a Data,
    interval: &'a Interval,
    subject: Subject<'a>,
    cells: usize,
}

impl<'a> TaskView<'a> {
    /// The first column: identity, current state, time, causes and limits.
    fn first(&self) -> Lines {
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

    /// The second column: waits over time, threads that waited most, and the histogram.
    fn second(&self) -> Lines {
        [self.past(), self.worst(), self.histogram()].concat()
    }

    /// The subject's threads that existed at the end of the interval.
    fn members(&self) -> Vec<&'a TaskInterval> {
        let those = |is_it: &dyn Fn(&TaskReading) -> bool| {
            let places = self.interval.places().filter(|place| is_it(self.interval.reading(*place)));
            places.filter_map(|place| self.data.task_at(place)).collect()
        };
        match self.subject {
            Subject::Task(task) => vec![task],
            Subject::All(_) => those(&|_| true),
            Subject::Process(process, _) => those(&|task| task.tgid == process.pid),
            Subject::Cgroup(node) => {
                let Some(at) = self.data.tree.find(&node.path) else { return Vec::new() };
                self.data.places_below(at).filter_map(|place| self.data.task_at(place)).collect()
            }
            Subject::Unknown(_) => those(&|task| self.interval.cgroup_path(task.cgroup_id).is_none()),
        }
    }

    /// The subject's cgroup in the tree; the root for all tasks.
    fn node(&self) -> Option<(usize, &'a Node)> {
        let path = match self.subject {
            Subject::All(_) => "/",
            subject => subject.cgroup(self.interval)?,
        };
        let at = self.data.tree.find(path)?;
        Some((at, &self.data.tree.nodes()[at]))
    }

    fn label(&self, label: &str) -> Span<'static> {
        Span::styled(left(label, LABEL), self.app.theme.quiet())
    }

    /// A label and wrapped text.
    fn fact(&self, label: &str, text: &str) -> Lines {
        pane::hanging(self.label(label), wrapped(text, self.cells.saturating_sub(LABEL)), Style::new())
    }

    fn known(&self, label: &str, text: Option<String>) -> Lines {
        text.map_or_else(Vec::new, |text| self.fact(label, &text))
    }

    fn now(&self) -> Lines {
        // Coarse mode does not record which tasks run or wait at a moment.
        if !self.app.is_exact() {
            return Vec::new();
        }
        let words = match (pane::now(&self.subject), self.subject) {
            (Some(waits), _) => waits,
            (None, Subject::Task(task)) if task.reading.on_cpu => "on its CPU".into(),
            (None, Subject::Task(_)) => "blocked: asleep, or waiting for something other than a CPU".into(),
            (None, _) => "no task waits".into(),
        };
        self.fact("now", &words)
    }

    fn past(&self) -> Lines {
        let values: Vec<Option<f64>> = self.app.past().iter().map(|one| Some(one.waiting())).collect();
        let room = self.cells.saturating_sub(LABEL);
        let shown = values.len().min(room);
        let most = values[values.len() - shown..].iter().flatten().copied().fold(0.0, f64::max);
        if shown == 0 || most <= 0.0 {
            return self.fact("waited", "not in the intervals that are kept");
        }
        let line = Span::styled(bars::sparkline(&values, most, shown), self.app.theme.wait());
        let count = units::count(shown as u64, "interval");
        let words = match self.subject {
            Subject::Task(_) => format!("worst of {count}: {:.1}% of the interval", most * 100.0),
            _ => format!("worst of {count}: {most:.2} tasks waited on average"),
        };
        [vec![Line::from(vec![self.label("waited"), line])], self.fact("", &words)].concat()
    }

    fn histogram(&self) -> Lines {
        if !self.app.is_exact() {
            return self.fact("", NO_HISTOGRAM);
        }
        let heading = pane::heading(self.app, &self.subject, self.cells);
        let times = [self.app.settings.span];
        [vec![heading], histogram::tables(self.app, &times, self.cells, HISTOGRAM, true)].concat()
    }
}

#[cfg(test)]
mod tests;
