//! How long waits are over time: a column for each interval, a row for each doubling of the length, a shade for how many.

use cgscope_model::{
    ByCause, CAUSES, Cause, Mode, Wait,
    units::{self, duration, time_of_day},
};
use ratatui::{
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{bars, histogram, pane};
use crate::{
    app::App,
    causes,
    history::Past,
    subject::Subject,
    text::{NO_HISTOGRAM, Unit},
    width::{cut_end, cut_start, left, width},
};

/// Cells before the map, for the lengths.
const LABEL: usize = 8;
/// From this height on there is room for words.
const TALL: usize = 12;
/// Cells of the title, at least.
const TITLE: usize = 12;
/// From so many lines that are left on there is a histogram.
const ROOM_FOR_HISTOGRAM: usize = 8;
/// From few waits to many.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];
/// `HH:MM:SS` and its mark.
const TICK: usize = 9;
/// Columns from a time to the next one, at least.
const STEP: usize = 20;

/// The view: the map, and where there is room the histogram below it.
pub fn lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let mut lines = map(app, area);
    let (cells, room) = (usize::from(area.width), usize::from(area.height).saturating_sub(lines.len() + 1));
    if room >= ROOM_FOR_HISTOGRAM && app.data.as_ref().is_some_and(|data| data.interval.mode == Mode::Bpf) {
        lines.push(Line::default());
        lines.extend(histogram::below(app, cells, room));
    }
    lines
}

/// The map and what is said of it.
pub fn map(app: &App, area: Rect) -> Vec<Line<'static>> {
    let (Some(data), Some(subject)) = (&app.data, app.subject()) else { return Vec::new() };
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    let columns = cells.saturating_sub(LABEL);
    let past = app.past();
    let past = &past[past.len().saturating_sub(columns)..];
    let mut lines = head(app, &subject, past, cells, height);
    if data.interval.mode == Mode::Coarse {
        lines.extend([waiting(app, past, columns), times(app, past, columns)]);
        lines.extend(pane::quiet(app.theme, NO_HISTOGRAM, cells));
        lines.truncate(height);
        return lines;
    }
    let waits: Waits = past.iter().map(|one| doublings(&one.wait, app.settings.unit)).collect();
    // As many lines as the words below take where all rows fit: with larger counts they hardly differ.
    let foot = foot(app, &Map::new(&waits, app.settings.unit, usize::MAX), past, columns, cells, height);
    let room = height.saturating_sub(lines.len() + foot.len()).max(1);
    let map = Map::new(&waits, app.settings.unit, room);
    if map.rows == 0 {
        let nothing = format!("no wait ended in {}", units::count(past.len() as u64, "interval"));
        lines.push(Line::styled(nothing, app.theme.quiet()));
    } else {
        lines.extend(map.lines(app, columns));
        lines.extend(self::foot(app, &map, past, columns, cells, height));
    }
    lines.truncate(height);
    lines
}

/// Whose waits, what stands out, and why all that is shown was waited for.
fn head(app: &App, subject: &Subject<'_>, past: &[Past], cells: usize, height: usize) -> Vec<Line<'static>> {
    let theme = app.theme;
    let length = past.iter().fold(0u64, |sum, one| sum.saturating_add(one.duration_ns));
    let shown = format!("{}, {}", units::count(past.len() as u64, "interval"), duration(length));
    let exact = app.data.as_ref().is_some_and(|data| data.interval.mode == Mode::Bpf);
    let stands_out = stands_out(past, exact);
    if height < TALL {
        let after = format!("  {}", stands_out.unwrap_or(shown));
        let title = cut_start(&subject.title(), cells.saturating_sub(width(&after)).max(TITLE));
        let after = cut_end(&after, cells.saturating_sub(width(&title)));
        return vec![Line::from(vec![Span::styled(title, theme.heading()), Span::raw(after)])];
    }
    let after = format!("  {shown}");
    let title = cut_start(&subject.title(), cells.saturating_sub(after.len()).max(TITLE));
    let mut lines =
        vec![Line::from(vec![Span::styled(title, theme.heading()), Span::styled(after, theme.quiet())])];
    lines.extend(stands_out.map(|words| pane::fact(app, "", &words, cells)));
    let mut by_cause = ByCause::default();
    past.iter().for_each(|one| by_cause.add(&one.wait.by_cause));
    lines.extend(causes::line(&by_cause).map(|why| pane::fact(app, "why", &why, cells)));
    lines
}

/// The longest wait, and the interval in which most waited; `None` if nobody waited.
fn stands_out(past: &[Past], exact: bool) -> Option<String> {
    let waited = || past.iter().filter(|one| one.wait.total_ns != 0);
    // Of equal ones the latest.
    let longest = waited().max_by_key(|one| one.wait.max_ns)?;
    let most = waited().max_by(|a, b| a.waiting().total_cmp(&b.waiting()))?;
    let mut words =
        format!("most waiting at {}, {:.2} tasks on average", clock(most.end_unix_ns), most.waiting());
    if exact {
        words =
            format!("longest {} at {}; {words}", duration(longest.wait.max_ns), clock(longest.end_unix_ns));
    }
    Some(words)
}

/// `HH:MM:SS`; that it is UTC is said on the axis.
fn clock(unix_ns: u64) -> String {
    time_of_day(unix_ns).trim_end_matches(" UTC").into()
}

/// Waiting tasks, times, and how to read it.
fn foot(
    app: &App,
    map: &Map,
    past: &[Past],
    columns: usize,
    cells: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if height >= TALL {
        lines.push(waiting(app, past, columns));
    }
    lines.push(times(app, past, columns));
    let words = reading(app, map);
    if height < TALL {
        lines.push(Line::styled(left(&words, cells), app.theme.quiet()));
        return lines;
    }
    lines.extend(pane::quiet(app.theme, &words, cells));
    if app.theme.has_colour() {
        lines.extend(bars::legend_lines(&map.parts(), app.theme, cells));
    }
    lines
}

fn reading(app: &App, map: &Map) -> String {
    let colour = if app.theme.has_colour() {
        "; colour: the cause of most"
    } else {
        "; without colours no causes are shown"
    };
    let until = match map.doublings {
        1 => "twice".into(),
        doublings => format!("{} times", 1u64 << doublings.min(32)),
    };
    format!("waits{}; a row: from its length to {until} that{colour}", scale(map.most))
}

/// What shades mean: `  ░ 1-3  ▒ 4-15`.
fn scale(most: u64) -> String {
    let mut first = 1;
    let mut out = String::new();
    for (shade, last) in SHADES.into_iter().zip(steps(most)) {
        if last > first {
            out += &format!("  {shade} {first}-{last}");
        } else if last == first {
            out += &format!("  {shade} {first}");
        }
        first = last + 1;
    }
    out
}

/// The largest count of each shade: even steps of the logarithm.
fn steps(most: u64) -> [u64; SHADES.len()] {
    let mut steps = [most; SHADES.len()];
    for (at, step) in steps.iter_mut().enumerate().take(SHADES.len() - 1) {
        let share = (at + 1) as f64 / SHADES.len() as f64;
        *step = (((most as f64 + 1.0).powf(share) - 1.0) as u64).min(most);
    }
    steps
}

fn shade(count: u64, steps: &[u64; SHADES.len()]) -> char {
    let at = steps.iter().position(|last| count <= *last);
    if count == 0 { ' ' } else { SHADES[at.unwrap_or(SHADES.len() - 1)] }
}

/// Tasks that waited, on average, below the columns of the map.
fn waiting(app: &App, past: &[Past], columns: usize) -> Line<'static> {
    let values: Vec<Option<f64>> = past.iter().map(|one| Some(one.waiting())).collect();
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    Line::from(vec![
        Span::styled(left("waiting", LABEL), app.theme.quiet()),
        Span::styled(bars::sparkline(&values, most, columns), app.theme.wait()),
    ])
}

fn times(app: &App, past: &[Past], columns: usize) -> Line<'static> {
    let ends: Vec<u64> = past.iter().map(|one| one.end_unix_ns).collect();
    Line::styled(format!("{}{}", left("UTC", LABEL), ticks(&ends, columns)), app.theme.quiet())
}

/// The ends of intervals below their columns, the last one below the last column.
fn ticks(ends: &[u64], columns: usize) -> String {
    let Some((last, start)) = ends.last().zip(columns.checked_sub(TICK)) else { return String::new() };
    let first = columns - ends.len().min(columns);
    let mut out = " ".repeat(first.min(start));
    // A mark and its time need a blank before the last one.
    let marks = (first..start.saturating_sub(TICK)).step_by(STEP);
    for at in marks {
        out.push_str(&" ".repeat(at - width(&out)));
        out.push('╵');
        out += &clock(ends[at - first]);
    }
    out.push_str(&" ".repeat(start - width(&out)));
    out + &clock(*last) + "╵"
}

/// The waits of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct MapCell {
    count: u64,
    by_cause: [f64; CAUSES],
}

impl MapCell {
    /// The cause of most of them.
    fn cause(&self) -> Option<Cause> {
        let most = causes::ORDER
            .into_iter()
            .max_by(|a, b| self.by_cause[*a as usize].total_cmp(&self.by_cause[*b as usize]));
        most.filter(|_| self.count != 0)
    }
}

/// By interval, the latest last: each doubling of the length that has waits, by its place.
type Waits = Vec<Vec<(usize, MapCell)>>;

/// Waits by interval and length.
#[derive(Debug)]
struct Map {
    /// By interval, the latest last, and by row, the shortest first.
    cells: Vec<Vec<MapCell>>,
    /// Rows; of no waits 0.
    rows: usize,
    /// Doublings in a row.
    doublings: usize,
    /// The lowest doubling.
    lowest: usize,
    /// Waits of the cell that has most.
    most: u64,
    unit: Unit,
}

impl Map {
    /// Rows from the shortest wait to the longest, at most so many.
    fn new(waits: &Waits, unit: Unit, room: usize) -> Self {
        let all = || waits.iter().flatten().map(|(doubling, _)| *doubling);
        let lowest = all().min().unwrap_or(0);
        let needed = all().max().map_or(0, |highest| highest - lowest + 1);
        let doublings = needed.div_ceil(room.max(1)).max(1);
        let rows = needed.div_ceil(doublings);
        let column = |of: &Vec<(usize, MapCell)>| {
            let mut column = vec![MapCell::default(); rows];
            for (doubling, cell) in of {
                let sum = &mut column[(doubling - lowest) / doublings];
                sum.count = sum.count.saturating_add(cell.count);
                sum.by_cause.iter_mut().zip(cell.by_cause).for_each(|(sum, part)| *sum += part);
            }
            column
        };
        let cells: Vec<Vec<MapCell>> = waits.iter().map(column).collect();
        let most = cells.iter().flatten().map(|cell| cell.count).max().unwrap_or(0);
        Self { cells, rows, doublings, lowest, most, unit }
    }

    /// The longest on top.
    fn lines(&self, app: &App, columns: usize) -> Vec<Line<'static>> {
        let steps = steps(self.most);
        let blank = " ".repeat(columns.saturating_sub(self.cells.len()));
        let line = |row: usize| {
            let label = format!("{:>width$} ", self.label(row), width = LABEL - 1);
            let mut spans = vec![Span::styled(label, app.theme.quiet()), Span::raw(blank.clone())];
            let mut run = (String::new(), Style::new());
            for column in &self.cells {
                let cell = &column[row];
                let style = cell.cause().map_or(Style::new(), |cause| app.theme.cause(cause));
                if style != run.1 && !run.0.is_empty() {
                    let (text, style) = std::mem::take(&mut run);
                    spans.push(Span::styled(text, style));
                }
                run.1 = style;
                run.0.push(shade(cell.count, &steps));
            }
            spans.push(Span::styled(run.0, run.1));
            Line::from(spans)
        };
        (0..self.rows).rev().map(line).collect()
    }

    /// The shortest wait of a row; its first one begins at nothing where the histogram's does.
    fn label(&self, row: usize) -> String {
        match self.lowest + row * self.doublings {
            0 => "0".into(),
            doubling => duration(self.unit.ns() << doubling),
        }
    }

    /// What its cells are made of: only causes that colour one.
    fn parts(&self) -> [f64; CAUSES] {
        let mut parts = [0.0; CAUSES];
        let causes = self.cells.iter().flatten().filter_map(MapCell::cause);
        causes.for_each(|cause| parts[cause as usize] += 1.0);
        parts
    }
}

/// The waits in each doubling that has any, by its place: the first one from 0 on.
fn doublings(wait: &Wait, unit: Unit) -> Vec<(usize, MapCell)> {
    let rows = wait.hist.rows(unit.ns()).into_iter().enumerate();
    let cells = rows.map(|(at, row)| (at, MapCell { count: row.count, by_cause: row.by_cause }));
    cells.filter(|(_, cell)| cell.count != 0).collect()
}

#[cfg(test)]
mod tests;
