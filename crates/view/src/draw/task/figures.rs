//! Waits in figures, the kernel's own beside them, and switches.

use cgscope_model::{
    TaskInterval,
    units::{self, duration, per_second, percent},
};
use ratatui::text::{Line, Span};

use super::{About, LABEL};
use crate::{
    causes,
    columns::rate,
    draw::bars,
    text::wait_line,
    width::{left, right},
};

/// Cells of the name of a cause, of its share and of its time.
const CAUSE: usize = 21;
const SHARE: usize = 7;
const TIME: usize = 8;

impl About<'_> {
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
        if let crate::subject::Subject::Task(task) = self.subject
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
