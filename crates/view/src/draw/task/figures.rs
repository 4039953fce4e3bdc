//! Waits in figures, compared with the kernel's figures; switches; and the tasks that waited most.

use std::cmp::Reverse;

use cgscope_model::TaskInterval;

use super::{LABEL, TaskView};
use crate::{columns::rate, draw::prelude::*, text::wait_line};

/// Widths of the name, the share and the time of a cause, in cells.
const CAUSE: usize = 21;
const SHARE: usize = 7;
const TIME: usize = 8;
/// Maximum number of tasks named.
const NAMED: usize = 5;
/// Widths of a figure and of the bar by cause, in cells.
const FIGURE: usize = 8;
const BAR: usize = 10;
/// Minimum width of the column of names for its long heading, in cells.
const ROOMY: usize = 28;

impl TaskView<'_> {
    /// Number, sum and quantiles of the waits in the interval, and a line for each cause.
    pub(super) fn waits(&self) -> Lines {
        let wait = self.subject.wait();
        let mut lines = self.fact("waits", &wait_line(wait, self.interval.mode));
        let total = wait.by_cause.total();
        let mut parts: Vec<_> = wait.by_cause.iter().filter(|(_, ns)| *ns != 0).collect();
        parts.sort_by_key(|(_, ns)| Reverse(*ns));
        let room = self.cells.saturating_sub(LABEL + CAUSE + SHARE + TIME + 1);
        for (cause, ns) in parts {
            let cause_words = left(causes::words(cause), CAUSE);
            let share = right(&format!("{:.1}%", percent(ns, total).unwrap_or(0.0)), SHARE);
            let time = right(&duration(ns), TIME);
            let theme = self.app.theme;
            let bar = bars::repeated(theme.sign(cause), bar_length(ns, total, room), theme.cause(cause));
            lines.push(Line::from(vec![Span::raw(format!("{:LABEL$}{cause_words}{share}{time} ", "")), bar]));
        }
        lines
    }

    /// The kernel's own figure, and what the kernel does not count.
    pub(super) fn kernel(&self, members: &[&TaskInterval]) -> Lines {
        // Coarse mode reads the kernel's figure, so there is nothing to compare.
        if !self.app.is_exact() {
            return Vec::new();
        }
        let totals = self.subject.totals();
        let booked =
            members.iter().filter_map(|task| task.reading.pending.as_ref()).map(|pending| pending.booked_ns);
        let booked_ns = booked.fold(0u64, u64::saturating_add);
        let mut lines = self.fact("kernel", &kernel(totals.wait_ns, totals.run_delay_ns, booked_ns));
        if totals.unstamped != 0 {
            let (count, ns) = (units::count(totals.unstamped, "wait"), duration(totals.unstamped_ns));
            let words = format!(
                "the sum leaves out {count} ({ns}) that began when a task was preempted on its way to sleep"
            );
            lines.extend(self.fact("", &words));
        }
        lines
    }

    pub(super) fn switches(&self) -> Lines {
        let totals = self.subject.totals();
        let a_second = |count| per_second(count, self.interval.duration_ns).map_or("-".into(), rate);
        let (voluntary, involuntary) = (a_second(totals.voluntary), a_second(totals.involuntary));
        let mut words = format!("{voluntary} a second voluntary, {involuntary} involuntary");
        if self.app.is_exact() {
            words += &format!(", {} moves between CPUs", a_second(totals.migrations));
        }
        if let Subject::Task(task) = self.subject
            && let Some(moves) = task.placement.node_migrations
        {
            words += &format!(", {} between nodes", a_second(moves));
        }
        self.fact("switches", &words)
    }

    pub(super) fn worst(&self) -> Lines {
        let worst = worst(self.members());
        if worst.is_empty() || matches!(self.subject, Subject::Task(_)) {
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
        let (reading, wait) = (&task.reading, task.all_waits());
        let figures = [
            Some(wait.total_ns),
            wait.quantile_ns(0.99),
            (self.app.is_exact() && wait.count != 0).then_some(wait.max_ns),
            reading.pending_ns(),
        ]
        .map(|ns| right(&or_dash(ns), FIGURE));
        let name = left(&format!("{} [{}]", reading.comm, reading.tid), name);
        let mut spans = vec![Span::raw(format!("{name}{} ", figures.concat()))];
        let mut by_cause = wait.by_cause;
        reading.pending.iter().for_each(|pending| by_cause.add(&pending.by_cause));
        spans.extend(bars::stacked(&causes::parts(&by_cause), BAR, self.app.theme));
        Line::from(spans)
    }
}

/// Compares the kernel's sum of the same waits with ours, and explains a difference.
pub(super) fn kernel(ours_ns: u64, kernel_ns: u64, booked_ns: u64) -> String {
    let said = format!("its own sum (run_delay) is {}", duration(kernel_ns));
    let differ = duration(kernel_ns.abs_diff(ours_ns));
    match kernel_ns.checked_sub(ours_ns) {
        Some(0) => format!("{said}: the same"),
        Some(more_ns) if more_ns <= booked_ns => {
            format!(
                "{said}, {differ} more: the part of unfinished waits before a migration is counted already"
            )
        }
        Some(_) => format!("{said}, {differ} more: waits that were not seen, or have not ended"),
        None => {
            format!("{said}, {differ} less: the rest was counted before this interval")
        }
    }
}

/// The tasks that waited most, including waits that have not ended. Tasks that did not wait are omitted.
pub(super) fn worst(members: Vec<&TaskInterval>) -> Vec<&TaskInterval> {
    let waited = |task: &&TaskInterval| {
        task.all_waits().total_ns.saturating_add(task.reading.pending_ns().unwrap_or(0))
    };
    let mut worst: Vec<&TaskInterval> = members.into_iter().filter(|task| waited(task) != 0).collect();
    // For equal times, the older task comes first.
    worst.sort_by_key(|task| (Reverse(waited(task)), task.reading.serial));
    worst.truncate(NAMED);
    worst
}
