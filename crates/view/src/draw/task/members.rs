//! The tasks of a process or cgroup that waited most.

use cgscope_model::{TaskInterval, units::duration};
use ratatui::text::{Line, Span};

use super::About;
use crate::{
    causes,
    draw::bars,
    subject::Subject,
    width::{left, right},
};

/// So many are named.
const NAMED: usize = 5;
/// Cells of a figure, and of the bar by cause.
const FIGURE: usize = 8;
const BAR: usize = 10;
/// From so many cells for names on there is room for a sentence above them.
const ROOMY: usize = 28;

impl About<'_> {
    pub(super) fn worst(&self) -> Vec<Line<'static>> {
        if matches!(self.subject, Subject::Task(_)) {
            return Vec::new();
        }
        let worst = worst(self.members());
        if worst.is_empty() {
            return Vec::new();
        }
        let name = self.cells.saturating_sub(4 * FIGURE + 1 + BAR);
        let head = if name >= ROOMY { "its threads that waited most" } else { "waited most" };
        let titles = ["waited", "p99", "longest", "now"].map(|title| right(title, FIGURE)).concat();
        let title = format!("{}{titles} why", left(head, name));
        let mut lines = vec![Line::styled(title, self.app.theme.quiet())];
        lines.extend(worst.into_iter().map(|task| self.member(task, name)));
        lines
    }

    fn member(&self, task: &TaskInterval, name: usize) -> Line<'static> {
        let (reading, wait) = (&task.reading, &task.wait);
        let known = |ns: Option<u64>| right(&ns.map_or("-".into(), duration), FIGURE);
        let figures = [
            known(Some(wait.total_ns)),
            known(wait.quantile_ns(0.99)),
            known((self.is_exact() && wait.count != 0).then_some(wait.max_ns)),
            known(reading.pending.map(|pending| pending.ns)),
        ];
        let text =
            format!("{}{} ", left(&format!("{} [{}]", reading.comm, reading.tid), name), figures.concat());
        let mut spans = vec![Span::raw(text)];
        let mut by_cause = wait.by_cause;
        reading.pending.iter().for_each(|pending| by_cause.add(&pending.by_cause));
        spans.extend(bars::stacked(&causes::parts(&by_cause), BAR, self.app.theme));
        Line::from(spans)
    }
}

/// Those that waited most, what is not over included; nobody who did not wait.
pub(super) fn worst(members: Vec<&TaskInterval>) -> Vec<&TaskInterval> {
    let waited = |task: &&TaskInterval| {
        task.wait.total_ns.saturating_add(task.reading.pending.map_or(0, |pending| pending.ns))
    };
    let mut worst: Vec<&TaskInterval> = members.into_iter().filter(|task| waited(task) != 0).collect();
    // Of equal ones the older.
    worst.sort_by_key(|task| (std::cmp::Reverse(waited(task)), task.reading.serial));
    worst.truncate(NAMED);
    worst
}
