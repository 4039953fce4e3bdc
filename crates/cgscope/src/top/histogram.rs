//! The histogram of the selected task, or of all.

use cgscope_model::{
    CAUSES, Interval, Mode, TaskInterval, Wait,
    units::{self, duration, per_second},
};
use ratatui::{
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    causes,
    mode::NO_HISTOGRAM,
    text,
    top::{
        state::{App, Selected},
        theme::Theme,
    },
};

/// Lines it asks for where it is below the table: heading, figures, causes and sixteen rows.
pub const HEIGHT: u16 = 21;
/// Of a row before its bar: `32768 -> 65535  1234567 `.
const LABEL: usize = 30;

/// The lines, at most as many as the area has.
pub fn lines(app: &App, theme: Theme, area: Rect) -> Vec<Line<'static>> {
    let Some(interval) = app.interval.as_deref() else { return Vec::new() };
    let (mut lines, wait) = if app.all_tasks {
        (vec![Line::styled(format!("all tasks, {}", since(app, "the start")), theme.heading())], &app.total)
    } else {
        match (app.selected_task(), &app.selected) {
            (Some(task), Some(selected)) => (of_task(task, selected, interval, app, theme), &selected.since),
            _ => return Vec::new(),
        }
    };
    if interval.mode == Mode::Coarse {
        lines.push(Line::raw(text::wait_line(wait, interval.mode)));
        lines.extend(causes::line(&wait.by_cause).map(|why| Line::raw(format!("why: {why}"))));
        lines.extend(
            wrapped(NO_HISTOGRAM, area.width.into())
                .into_iter()
                .map(|line| Line::styled(line, theme.quiet())),
        );
        return lines;
    }
    lines.push(Line::raw(percentiles(wait)));
    lines.extend(causes::line(&wait.by_cause).map(|why| Line::raw(format!("why: {why}"))));
    let room = usize::from(area.height).saturating_sub(lines.len());
    lines.extend(rows(app, wait, theme, area.width.into(), room));
    lines
}

/// What a histogram is of.
fn since(app: &App, start: &str) -> String {
    if app.replay.is_some() { "in this interval".into() } else { format!("since {start}") }
}

fn of_task(
    task: &TaskInterval,
    selected: &Selected,
    interval: &Interval,
    app: &App,
    theme: Theme,
) -> Vec<Line<'static>> {
    let reading = &task.reading;
    let rate =
        |count| per_second(count, interval.duration_ns).map_or("-".into(), |rate| format!("{rate:.1}/s"));
    let kernel = task.totals.run_delay_ns;
    let ours = task.wait.total_ns;
    let agreement = if kernel == ours { "the same".into() } else { format!("{} there", duration(kernel)) };
    vec![
        Line::from(vec![
            Span::styled(format!("{} {}", reading.tid, reading.comm), theme.heading()),
            Span::styled(
                format!("  {} {}", units::count(selected.since.count, "wait"), since(app, "it was selected")),
                theme.quiet(),
            ),
        ]),
        Line::raw(format!(
            "waited {} (kernel: {agreement}), switches: {} vol, {} invol",
            duration(ours),
            rate(task.totals.voluntary),
            rate(task.totals.involuntary),
        )),
    ]
}

/// The words in lines of at most `width`.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn percentiles(wait: &Wait) -> String {
    let quantile = |q| wait.quantile_ns(q).map_or("-".into(), duration);
    format!(
        "p50 {} p90 {} p99 {} p99.9 {} max {}",
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        if wait.count == 0 { "-".into() } else { duration(wait.max_ns) }
    )
}

/// Rows in the manner of runqlat. Where not all fit, those of the shortest waits are left out.
fn rows(app: &App, wait: &Wait, theme: Theme, width: usize, room: usize) -> Vec<Line<'static>> {
    let rows = wait.hist.rows(app.unit.ns());
    let Some(most) = rows.iter().map(|row| row.count).max() else {
        let none = if app.replay.is_some() { "no wait" } else { "no wait yet" };
        return vec![Line::styled(none, theme.quiet())];
    };
    let bar_width = width.saturating_sub(LABEL).max(1);
    let mut lines = vec![Line::styled(format!("{:>20} {:>8}", app.unit.title(), "count"), theme.quiet())];
    let shown = room.saturating_sub(lines.len());
    lines.extend(rows.iter().skip(rows.len().saturating_sub(shown)).map(|row| {
        let label = format!("{:>8} -> {:<8} {:>8} ", row.low, row.high, row.count);
        let mut spans = vec![Span::raw(label)];
        spans.extend(stacked(&row.by_cause, bar_length(row.count, most, bar_width), theme));
        Line::from(spans)
    }));
    lines
}

/// A count is never drawn as nothing.
fn bar_length(count: u64, most: u64, width: usize) -> usize {
    let cells = (u128::from(count) * width as u128 / u128::from(most.max(1))) as usize;
    cells.max(usize::from(count != 0))
}

/// A bar in the colours of its causes; without colours, in their letters.
pub fn stacked(parts: &[f64; CAUSES], width: usize, theme: Theme) -> Vec<Span<'static>> {
    let cells = causes::ORDER.into_iter().zip(causes::cells(parts, width)).filter(|(_, count)| *count != 0);
    let sign = |cause| if theme.has_colour() { '█' } else { causes::letter(cause) };
    cells
        .map(|(cause, count)| Span::styled(String::from_iter(vec![sign(cause); count]), theme.cause(cause)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_broken_between_words() {
        assert_eq!(wrapped("so there is no histogram", 11), ["so there is", "no", "histogram"]);
        assert_eq!(wrapped("histogram", 3), ["histogram"]);
    }

    #[test]
    fn the_longest_bar_fills_the_width_and_the_shortest_is_seen() {
        assert_eq!(bar_length(1_000_000, 1_000_000, 10), 10);
        assert_eq!(bar_length(1, 1_000_000, 10), 1);
        assert_eq!(bar_length(0, 1_000_000, 10), 0);
    }

    #[test]
    fn parts_of_a_bar_are_told_apart_without_colours() {
        let text = |theme| {
            let spans = stacked(&[3.0, 1.0, 0.0, 0.0, 0.0, 0.0], 4, theme);
            spans.iter().map(|span| span.content.as_ref()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(text(Theme::new(false)), "TTT|o");
        assert_eq!(text(Theme::new(true)), "███|█");
    }
}
