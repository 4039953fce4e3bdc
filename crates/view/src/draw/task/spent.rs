//! What threads did with the time of an interval.

use cgscope_model::{ByCause, TaskInterval};

use super::{LABEL, TaskView};
use crate::draw::prelude::*;

/// On CPU, the causes in their order, blocked.
const PARTS: usize = CAUSES + 2;

/// The time of threads, ns: the parts together are the length of the interval times the number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    on_cpu_ns: u64,
    waited: ByCause,
    blocked_ns: u64,
    /// Waits that began before the interval were longer than it has room for.
    is_cut: bool,
}

impl Spent {
    /// The time of threads in an interval. The part of a wait under way that lies in it counts.
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a TaskInterval>, duration_ns: u64) -> Self {
        let mut sum = Self::default();
        for task in tasks {
            let on_cpu_ns = task.totals.on_cpu_ns.min(duration_ns);
            let room = duration_ns - on_cpu_ns;
            let mut waited = task.wait.by_cause;
            // Waits without a stamp have no recorded cause.
            waited.add(&ByCause::only(Cause::Unattributed, task.totals.unstamped_ns));
            if let Some(pending) = &task.reading.pending {
                waited.add(&pending.by_cause.at_most(duration_ns));
            }
            sum.is_cut |= waited.total() > room;
            let waited = waited.at_most(room);
            sum.on_cpu_ns = sum.on_cpu_ns.saturating_add(on_cpu_ns);
            sum.blocked_ns = sum.blocked_ns.saturating_add(room.saturating_sub(waited.total()));
            sum.waited.add(&waited);
        }
        sum
    }

    /// On CPU, the causes in their order, blocked.
    fn parts(&self) -> [f64; PARTS] {
        let mut parts = [0.0; PARTS];
        parts[0] = self.on_cpu_ns as f64;
        for (part, cause) in parts[1..].iter_mut().zip(causes::ORDER) {
            *part = self.waited.get(cause) as f64;
        }
        parts[PARTS - 1] = self.blocked_ns as f64;
        parts
    }

    /// Tenths of a percent of each part: together 1000, unless there is no time at all.
    pub fn tenths(&self) -> [usize; PARTS] {
        causes::proportional(self.parts(), 1_000)
    }
}

/// The sign of a part, its style, and its name.
fn part(at: usize, theme: Theme) -> (char, Style, &'static str) {
    match at.checked_sub(1) {
        None => (if theme.has_colour() { '▒' } else { '=' }, theme.busy(), "on CPU"),
        Some(CAUSES) => ('-', theme.quiet(), "blocked"),
        Some(at) => {
            let cause = causes::ORDER[at.min(CAUSES - 1)];
            (theme.sign(cause), theme.cause(cause), causes::words(cause))
        }
    }
}

impl TaskView<'_> {
    /// A bar of the interval, and its parts.
    pub(super) fn spent(&self, members: &[&TaskInterval]) -> Lines {
        let length_ns = self.interval.duration_ns;
        let spent = Spent::of(members.iter().copied(), length_ns);
        let parts = spent.parts();
        if parts.iter().sum::<f64>() <= 0.0 {
            return Vec::new();
        }
        let theme = self.app.theme;
        let mut bar = vec![self.label("time")];
        let cells = causes::proportional(parts, self.cells.saturating_sub(LABEL));
        bar.extend(cells.into_iter().enumerate().map(|(at, cells)| {
            let (sign, style, _) = part(at, theme);
            bars::repeated(sign, cells, style)
        }));
        let is_one = matches!(self.subject, Subject::Task(_));
        let shares = spent.tenths().into_iter().enumerate().filter(|(at, _)| parts[*at] > 0.0);
        let shares = shares.map(|(at, tenths)| {
            let (sign, style, name) = part(at, theme);
            let threads = parts[at] / length_ns.max(1) as f64;
            let average = match at {
                _ if is_one => String::new(),
                0 => format!(" ({threads:.2} threads on average)"),
                _ => format!(" ({threads:.2})"),
            };
            let words = format!(" {name} {}.{}%{average}  ", tenths / 10, tenths % 10);
            [Span::styled(sign.to_string(), style), Span::raw(words)]
        });
        let mut lines = vec![Line::from(bar)];
        lines.extend(bars::flow(shares, LABEL, self.cells));
        if spent.is_cut {
            lines.extend(self.fact("", "waits that began before the interval are cut to it"));
        }
        lines
    }
}
