//! How threads spent the time of an interval.

use cgscope_model::{ByCause, TaskInterval};

use super::{LABEL, TaskView};
use crate::draw::prelude::*;

/// Number of parts: on CPU, each cause in order, and blocked.
const PARTS: usize = CAUSES + 2;

/// The time of threads, split into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time of each part, ns. Together they are the length of the interval times the number of threads.
    parts: [u64; PARTS],
    /// Whether waits were cut to the interval because they began before it.
    is_cut: bool,
}

impl Spent {
    /// The time of threads in an interval. A wait that has not ended counts with the part that lies in the interval.
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a TaskInterval>, duration_ns: u64) -> Self {
        let mut sum = Self::default();
        for task in tasks {
            let on_cpu_ns = task.all_totals().on_cpu_ns.min(duration_ns);
            let room = duration_ns - on_cpu_ns;
            let mut waited = task.all_waits().by_cause;
            // Waits without a stamp have no recorded cause.
            waited.add(&ByCause::only(Cause::Unattributed, task.all_totals().unstamped_ns));
            if let Some(pending) = &task.reading.pending {
                waited.add(&pending.by_cause.at_most(duration_ns));
            }
            sum.is_cut |= waited.total() > room;
            let waited = waited.at_most(room);
            let waited_ns = causes::ORDER.map(|cause| waited.get(cause));
            let blocked_ns = room.saturating_sub(waited.total());
            let parts = std::iter::once(on_cpu_ns).chain(waited_ns).chain([blocked_ns]);
            sum.parts.iter_mut().zip(parts).for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
        }
        sum
    }

    /// Parts of `whole`, proportional to the time. They sum to `whole`, unless there is no time at all.
    pub fn parts_of(&self, whole: usize) -> [usize; PARTS] {
        causes::proportional(self.parts.map(|ns| ns as f64), whole)
    }
}

/// The sign, style and name of a part.
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
    /// A bar of the interval, and an explanation of its parts.
    pub(super) fn spent(&self, members: &[&TaskInterval]) -> Lines {
        let length_ns = self.interval.duration_ns;
        let spent = Spent::of(members.iter().copied(), length_ns);
        if spent.parts.iter().all(|ns| *ns == 0) {
            return Vec::new();
        }
        let theme = self.app.theme;
        let mut bar = vec![self.label("time")];
        let cells = spent.parts_of(self.cells.saturating_sub(LABEL));
        bar.extend(cells.into_iter().enumerate().map(|(at, cells)| {
            let (sign, style, _) = part(at, theme);
            bars::repeated(sign, cells, style)
        }));
        let is_one = matches!(self.subject, Subject::Task(_));
        // Each part is in tenths of a percent.
        let shares = spent.parts_of(1_000).into_iter().enumerate().filter(|(at, _)| spent.parts[*at] != 0);
        let shares = shares.map(|(at, tenths)| {
            let (sign, style, name) = part(at, theme);
            let threads = spent.parts[at] as f64 / length_ns.max(1) as f64;
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
            lines.extend(self.fact("", "waits that began earlier count only from the start of the interval"));
        }
        lines
    }
}
