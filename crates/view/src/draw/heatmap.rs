//! The heatmap: lengths of waits over time. Each column is an interval. Each row is a range of wait lengths, from one power of
//! two to a higher one. Shades show the number of waits.

use super::{bars::SHADES, histogram, pane::TITLE, prelude::*};
use crate::{history::Past, text::Unit};

/// Width of the labels of rows, in cells.
const LABEL: usize = 8;
/// Minimum height of a heatmap with explanations.
const TALL: usize = 12;
/// Minimum height of the histogram below.
const ROOM_FOR_HISTOGRAM: usize = 8;
/// Width of `HH:MM:SS` and its mark, in cells.
const TICK: usize = 9;
/// Distance between two times on the time axis, in columns.
const STEP: usize = 20;

pub fn lines(pane: &Pane<'_>) -> Lines {
    let mut lines = map(pane);
    let room = pane.room.saturating_sub(lines.len() + 1);
    if room >= ROOM_FOR_HISTOGRAM && pane.app.is_exact() {
        lines.push(Line::default());
        lines.extend(histogram::below(pane, room));
    }
    lines
}

pub fn map(pane: &Pane<'_>) -> Lines {
    let (app, height) = (pane.app, pane.room);
    let columns = pane.cells.saturating_sub(LABEL);
    let past = &app.focus.past[app.focus.past.len().saturating_sub(columns)..];
    let mut lines = head(pane, past);
    if !app.is_exact() {
        lines.extend([waiting(pane.theme, past, columns), times(pane.theme, past, columns)]);
        lines.extend(pane::quiet(pane.theme, NO_HISTOGRAM, pane.cells));
        lines.truncate(height);
        return lines;
    }
    let waits: Vec<_> = past.iter().map(|one| doublings(&one.wait, app.settings.unit)).collect();
    // Compute the lines below the map as if all rows fit. Joined rows have larger counts, which hardly change these lines.
    let below = foot(pane, &Map::new(&waits, app.settings.unit, usize::MAX), past, columns).len();
    let map = Map::new(&waits, app.settings.unit, height.saturating_sub(lines.len() + below).max(1));
    if map.rows == 0 {
        let nothing = format!("no wait ended in {}", units::count(past.len() as u64, "interval"));
        lines.push(Line::styled(nothing, pane.theme.quiet()));
    } else {
        lines.extend(map.lines(pane.theme, columns));
        lines.extend(foot(pane, &map, past, columns));
    }
    lines.truncate(height);
    lines
}

fn head(pane: &Pane<'_>, past: &[Past]) -> Lines {
    let length = sum::total(past.iter().map(|one| one.duration_ns));
    let shown = format!("{}, {}", units::count(past.len() as u64, "interval"), duration(length));
    let largest = largest(past, pane.app.is_exact());
    if pane.room < TALL {
        let after = format!("  {}", largest.unwrap_or(shown));
        let title = cut_start(&pane.title(), pane.cells.saturating_sub(width(&after)).max(TITLE));
        let after = cut_end(&after, pane.cells.saturating_sub(width(&title)));
        return vec![Line::from(vec![Span::styled(title, pane.theme.heading()), Span::raw(after)])];
    }
    let mut lines = vec![pane.titled(&shown)];
    lines.extend(largest.map(|words| pane.fact("", &words)));
    let mut by_cause = ByCause::default();
    past.iter().for_each(|one| by_cause.add(&one.wait.by_cause));
    lines.extend(pane.why(&by_cause));
    lines
}

/// Returns the longest wait, and the interval with the most waiting tasks; `None` if no task waited.
fn largest(past: &[Past], exact: bool) -> Option<String> {
    let waited = || past.iter().filter(|one| one.wait.total_ns != 0);
    // `max_by_key` returns the latest of equal waits.
    let longest = waited().max_by_key(|one| one.wait.max_ns)?;
    let most = waited().max_by(|a, b| a.waiting().total_cmp(&b.waiting()))?;
    let most = format!("most tasks waited at {}: {:.2} on average", clock(most.end_unix_ns), most.waiting());
    let (length, at) = (duration(longest.wait.max_ns), clock(longest.end_unix_ns));
    Some(if exact { format!("longest {length} at {at}; {most}") } else { most })
}

/// Formats a time as `HH:MM:SS`. The axis has the label UTC.
fn clock(unix_ns: u64) -> String {
    time_of_day(unix_ns).trim_end_matches(" UTC").into()
}

fn foot(pane: &Pane<'_>, map: &Map, past: &[Past], columns: usize) -> Lines {
    let (theme, cells) = (pane.theme, pane.cells);
    let has_colour = theme.has_colour();
    let colour = if has_colour { "colour: main cause" } else { "without colours no causes are shown" };
    let until = match map.doublings {
        1 => "twice".into(),
        doublings => format!("{} times", 1u64 << doublings.min(32)),
    };
    let scale = scale(map.most);
    let words = format!("waits{scale}; row: lengths from the label up to {until} the label; {colour}");
    let times = times(theme, past, columns);
    if pane.room < TALL {
        return vec![times, Line::styled(left(&words, cells), theme.quiet())];
    }
    let mut lines = vec![waiting(theme, past, columns), times];
    lines.extend(pane::quiet(theme, &words, cells));
    if has_colour {
        lines.extend(bars::legend_lines(&map.parts(), theme, cells));
    }
    lines
}

/// Explains the shades: `  ░ 1-3  ▒ 4-15`.
fn scale(most: u64) -> String {
    let mut first = 1;
    let ranges = SHADES.into_iter().zip(steps(most)).map(|(shade, last)| {
        match std::mem::replace(&mut first, last + 1) {
            first if first < last => format!("  {shade} {first}-{last}"),
            first if first == last => format!("  {shade} {first}"),
            _ => String::new(),
        }
    });
    ranges.collect()
}

/// Returns the largest count of each shade, in even steps on a logarithmic scale.
fn steps(most: u64) -> [u64; SHADES.len()] {
    let step = |share: f64| (((most as f64 + 1.0).powf(share) - 1.0) as u64).min(most);
    [step(0.25), step(0.5), step(0.75), most]
}

fn shade(count: u64, steps: &[u64; SHADES.len()]) -> char {
    let at = steps.iter().position(|last| count <= *last);
    if count == 0 { ' ' } else { SHADES[at.unwrap_or(SHADES.len() - 1)] }
}

fn waiting(theme: Theme, past: &[Past], columns: usize) -> Line<'static> {
    let values: Vec<Option<f64>> = past.iter().map(|one| Some(one.waiting())).collect();
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let bars = Span::styled(bars::sparkline(&values, most, columns), theme.wait());
    Line::from(vec![Span::styled(left("waiting", LABEL), theme.quiet()), bars])
}

fn times(theme: Theme, past: &[Past], columns: usize) -> Line<'static> {
    let ends: Vec<u64> = past.iter().map(|one| one.end_unix_ns).collect();
    Line::styled(left("UTC", LABEL) + &ticks(&ends, columns), theme.quiet())
}

/// Returns times below the columns of their intervals. The last time is below the last column.
fn ticks(ends: &[u64], columns: usize) -> String {
    let Some((last, start)) = ends.last().zip(columns.checked_sub(TICK)) else { return String::new() };
    let first = columns - ends.len().min(columns);
    let mut out = " ".repeat(first.min(start));
    // A mark and its time need a blank before the last time.
    for at in (first..start.saturating_sub(TICK)).step_by(STEP) {
        out = left(&out, at) + "╵" + &clock(ends[at - first]);
    }
    left(&out, start) + &clock(*last) + "╵"
}

fn cause(cell: &Row) -> Option<Cause> {
    let share = |cause: &Cause| cell.by_cause[*cause as usize];
    causes::ORDER.into_iter().max_by(|a, b| share(a).total_cmp(&share(b))).filter(|_| cell.count != 0)
}

#[derive(Debug)]
struct Map {
    /// The cells by interval, oldest first, and by row, shortest waits first.
    cells: Vec<Vec<Row>>,
    /// Number of rows; 0 without waits.
    rows: usize,
    doublings: usize,
    lowest: usize,
    most: u64,
    unit: Unit,
}

impl Map {
    /// Creates a map with at most `room` rows. `waits` has the result of [`doublings`] for each interval, oldest first.
    fn new(waits: &[Vec<(usize, Row)>], unit: Unit, room: usize) -> Self {
        let all = || waits.iter().flatten().map(|(doubling, _)| *doubling);
        let lowest = all().min().unwrap_or(0);
        let needed = all().max().map_or(0, |highest| highest - lowest + 1);
        let doublings = needed.div_ceil(room.max(1)).max(1);
        let rows = needed.div_ceil(doublings);
        let column = |of: &Vec<(usize, Row)>| {
            let mut column = vec![Row::default(); rows];
            for (doubling, cell) in of {
                let sum = &mut column[(doubling - lowest) / doublings];
                sum.count = sum.count.saturating_add(cell.count);
                pane::add_parts(&mut sum.by_cause, &cell.by_cause);
            }
            column
        };
        let cells: Vec<Vec<Row>> = waits.iter().map(column).collect();
        let most = cells.iter().flatten().map(|cell| cell.count).max().unwrap_or(0);
        Self { cells, rows, doublings, lowest, most, unit }
    }

    fn lines(&self, theme: Theme, columns: usize) -> Lines {
        let steps = steps(self.most);
        let blank = " ".repeat(columns.saturating_sub(self.cells.len()));
        let line = |row: usize| {
            let label = format!("{:>width$} ", self.label(row), width = LABEL - 1);
            let cells = self.cells.iter().map(|column| &column[row]);
            let drawn: Vec<_> = cells.map(|cell| (cause(cell), shade(cell.count, &steps))).collect();
            let mut spans = vec![Span::styled(label, theme.quiet()), Span::raw(blank.clone())];
            spans.extend(drawn.chunk_by(|a, b| a.0 == b.0).map(|run| {
                let style = run[0].0.map_or(Style::new(), |cause| theme.cause(cause));
                Span::styled(run.iter().map(|(_, shade)| shade).collect::<String>(), style)
            }));
            Line::from(spans)
        };
        (0..self.rows).rev().map(line).collect()
    }

    /// Returns the lower bound of a row. The bound is 0 if the row begins with the first row of the histogram.
    fn label(&self, row: usize) -> String {
        let doubling = self.lowest + row * self.doublings;
        if doubling == 0 { "0".into() } else { duration(self.unit.ns() << doubling) }
    }

    /// Returns the number of cells with each cause, as parts of a bar.
    fn parts(&self) -> [f64; CAUSES] {
        let mut parts = [0.0; CAUSES];
        self.cells.iter().flatten().filter_map(cause).for_each(|cause| parts[cause as usize] += 1.0);
        parts
    }
}

/// Returns the rows of the histogram that have waits, by index. Each row ends at a power of two; row 0 begins at 0.
fn doublings(wait: &Wait, unit: Unit) -> Vec<(usize, Row)> {
    wait.hist.rows(unit.ns()).into_iter().enumerate().filter(|(_, row)| row.count != 0).collect()
}

#[cfg(test)]
mod tests;
