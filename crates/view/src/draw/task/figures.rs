//! Waits in figures, the kernel's own beside them, switches, and the tasks that waited most.

use cgscope_model::{
    TaskInterval,
    units::{self, duration, per_second, percent},
};
use ratatui::text::{Line, Span};

use super::{LABEL, TaskView};
use crate::{
    causes,
    columns::rate,
    draw::bars,
    subject::Subject,
    text::wait_line,
    width::{left, right},
};

/// Cells of the name of a cause, of its share and of its time.
const CAUSE: usize = 21;
const SHARE: usize = 7;
const TIME: usize = 8;

/// Tasks that are named.
const NAMED: usize = 5;
/// Cells of a figure, and of the bar by cause.
const FIGURE: usize = 8;
const BAR: usize = 10;
/// From so many cells for names on there is room for a sentence above them.
const ROOMY: usize = 28;

impl TaskView<'_> {
    /// Number, sum and quantiles of the interval, and a line for each cause.
    pub(super) fn waits(&self) -> Vec<Line<'static>> {
        let wait = self.subject.wait();
        let mut lines = self.fact("waits", &wait_line(wait, self.interval.mode));
        let total = wait.by_cause.total();
        let mut parts: Vec<_> = wait.by_cause.iter().filter(|(_, ns)| *ns != 0).collect();
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let room = self.cells.saturating_sub(LABEL + CAUSE + SHARE + TIME + 1);
        for (cause, ns) in parts {
            let share = percent(ns, total).unwrap_or(0.0);
            let text = format!(
                "{}{}{}{} ",
                " ".repeat(LABEL),
                left(causes::words(cause), CAUSE),
                right(&format!("{share:.1}%"), SHARE),
                right(&duration(ns), TIME)
            );
            let mut only = [0.0; cgscope_model::CAUSES];
            only[cause as usize] = 1.0;
            let mut spans = vec![Span::raw(text)];
            spans.extend(bars::stacked(&only, bars::length(ns, total, room), self.app.theme));
            lines.push(Line::from(spans));
        }
        lines
    }

    /// The kernel's own figure, and what it does not count.
    pub(super) fn kernel(&self, members: &[&TaskInterval]) -> Vec<Line<'static>> {
        // The coarse mode has no figure of its own.
        if !self.is_exact() {
            return Vec::new();
        }
        let totals = self.subject.totals();
        let booked = members.iter().filter_map(|task| task.reading.pending).map(|pending| pending.booked_ns);
        let booked_ns = booked.fold(0u64, u64::saturating_add);
        let mut lines = self.fact("kernel", &kernel(totals.wait_ns, totals.run_delay_ns, booked_ns));
        if totals.unstamped != 0 {
            let (count, ns) = (units::count(totals.unstamped, "wait"), duration(totals.unstamped_ns));
            let words = format!(
                "{count} of {ns} on top: taken off a CPU while going to sleep, which the kernel does not count"
            );
            lines.extend(self.fact("", &words));
        }
        lines
    }

    pub(super) fn switches(&self) -> Vec<Line<'static>> {
        let totals = self.subject.totals();
        let length_ns = self.interval.duration_ns;
        let a_second = |count| per_second(count, length_ns).map_or("-".into(), rate);
        let mut words = format!(
            "{} a second voluntary, {} involuntary",
            a_second(totals.voluntary),
            a_second(totals.involuntary)
        );
        if self.is_exact() {
            words += &format!(", {} moves between CPUs", a_second(totals.migrations));
        }
        if let Subject::Task(task) = self.subject
            && let Some(moves) = task.placement.node_migrations
        {
            words += &format!(", {} between nodes", a_second(moves));
        }
        self.fact("switches", &words)
    }
}

/// The kernel's sum of the same waits beside ours, and why they differ where they do.
pub(super) fn kernel(ours_ns: u64, kernel_ns: u64, booked_ns: u64) -> String {
    let said = format!("its own sum (run_delay) is {}", duration(kernel_ns));
    match kernel_ns.checked_sub(ours_ns) {
        Some(0) => format!("{said}: the same"),
        Some(more) if more <= booked_ns => {
            format!(
                "{said}, {} more: of waits that are not over it has booked what was before a migration",
                duration(more)
            )
        }
        Some(more) => format!("{said}, {} more: waits that were not seen, or are not over", duration(more)),
        None => format!(
            "{said}, {} less: of waits that began before the interval it had booked that much",
            duration(ours_ns - kernel_ns)
        ),
    }
}

impl TaskView<'_> {
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
