//! How long waits are, by cause: large, and where there is room the interval, the last minute and all since the start side by
//! side.

use cgscope_model::{CAUSES, Mode, Wait, hist::Row, units};
use ratatui::{
    layout::Rect,
    text::{Line, Span},
};

use super::{bars, heatmap, pane};
use crate::{
    app::App,
    causes,
    data::Data,
    settings::Span as Time,
    subject::Subject,
    text::{NO_HISTOGRAM, wait_line},
    width::{cut_end, cut_start, left},
};

/// From this width on the three times are side by side.
const WIDE: usize = 150;
/// From this height on more is told than the chosen time.
const TALL: usize = 12;
/// From so many lines that are left on there is a heatmap.
const ROOM_FOR_MAP: usize = 16;
/// Cells of the share of waits up to a row, and of the marks of quantiles; blanks included.
const SHARE: usize = 7;
const MARK: usize = 9;
/// Below this width the share is left out.
const ROOMY: usize = 76;
/// Between histograms that are side by side.
const GAP: usize = 2;

/// The view: histograms, and where there is room the heatmap below them.
pub fn lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let (Some(data), Some(subject)) = (&app.data, app.subject()) else { return Vec::new() };
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    if data.interval.mode == Mode::Coarse {
        return coarse(app, data, &subject, cells, height);
    }
    let is_wide = cells >= WIDE && height >= TALL;
    let mut lines =
        if is_wide { vec![title(app, &subject, cells)] } else { one(app, &subject, cells, height) };
    lines.extend(whom(app, data, &subject, cells));
    let times: &[Time] = if is_wide { &Time::ALL } else { &[app.settings.span] };
    // The histogram has at least half of the room.
    lines.truncate((height / 2).max(2));
    lines.extend(tables(app, times, cells, height - lines.len().min(height), height >= TALL));
    let room = height.saturating_sub(lines.len() + 1);
    if room >= ROOM_FOR_MAP {
        lines.push(Line::default());
        lines.extend(heatmap::map(app, Rect { height: room as u16, ..area }));
    }
    lines
}

/// The histogram below another view, in at most so many lines.
pub fn below(app: &App, cells: usize, room: usize) -> Vec<Line<'static>> {
    let Some(subject) = app.subject() else { return Vec::new() };
    let times: &[Time] = if cells >= WIDE { &Time::ALL } else { &[app.settings.span] };
    let heading = (times.len() == 1).then(|| pane::heading(app, &subject, cells));
    let mut lines: Vec<Line<'static>> = heading.into_iter().collect();
    lines.extend(tables(app, times, cells, room - lines.len(), false));
    lines
}

/// Histograms of what is selected, with the same rows, side by side in at most so many lines; with what their bars are made of below.
pub fn tables(app: &App, times: &[Time], cells: usize, room: usize, has_legend: bool) -> Vec<Line<'static>> {
    let table = Histograms::new(app, times, cells);
    let parts = pane::parts(table.columns.iter().flat_map(|column| &column.rows));
    let legend = if has_legend { bars::legend_lines(&parts, app.theme, cells) } else { Vec::new() };
    let mut lines = table.lines(app, room.saturating_sub(legend.len()));
    lines.extend(legend);
    lines
}

/// What is told of one time: its name among the others, quantiles and causes.
fn one(app: &App, subject: &Subject<'_>, cells: usize, height: usize) -> Vec<Line<'static>> {
    let (wait, _) = app.focused();
    let mut lines = if height >= TALL {
        vec![title(app, subject, cells), times(app, cells)]
    } else {
        vec![pane::heading(app, subject, cells)]
    };
    lines.push(pane::fact(app, "", &said(wait, cells), cells));
    lines.extend(causes::line(&wait.by_cause).map(|why| pane::fact(app, "why", &why, cells)));
    lines
}

fn title(app: &App, subject: &Subject<'_>, cells: usize) -> Line<'static> {
    Line::styled(cut_start(&subject.title(), cells), app.theme.heading())
}

/// The names of the times, the chosen one marked.
fn times(app: &App, cells: usize) -> Line<'static> {
    let theme = app.theme;
    let key = app.settings.keymap.first(crate::keys::Command::Span);
    let mut spans = Vec::new();
    for time in Time::ALL {
        let words = pane::span_words(app, time);
        spans.push(if time == app.settings.span {
            Span::styled(format!("[{words}] "), theme.key())
        } else {
            Span::styled(format!(" {words}  "), theme.quiet())
        });
    }
    let used: usize = spans.iter().map(Span::width).sum();
    let other = key.map(|key| format!("{key}: another time")).filter(|words| used + words.len() <= cells);
    spans.extend(other.map(|words| Span::styled(words, theme.quiet())));
    Line::from(spans)
}

/// Who waits now, the quota, and who ran meanwhile: those that there are.
fn whom(app: &App, data: &Data, subject: &Subject<'_>, cells: usize) -> Vec<Line<'static>> {
    let now = pane::now(subject).map(|now| ("now", now));
    let quota = pane::quota(data, subject).map(|quota| ("quota", quota));
    let behind = causes::culprits_line(&subject.culprits(&data.interval)).map(|behind| ("behind", behind));
    let facts = [now, quota, behind].into_iter().flatten();
    facts.map(|(label, text)| pane::fact(app, label, &text, cells)).collect()
}

/// Quantiles, as many as there is room for.
fn said(wait: &Wait, cells: usize) -> String {
    if wait.count == 0 {
        return "no wait ended in this time".into();
    }
    let all = format!("{}  {}", units::count(wait.count, "wait"), pane::quantiles(wait));
    if all.len() <= cells {
        return all;
    }
    let quantile = |q| wait.quantile_ns(q).map_or("-".into(), units::duration);
    let max = units::duration(wait.max_ns);
    format!("{}  p50 {} p99 {} max {max}", wait.count, quantile(0.5), quantile(0.99))
}

/// Where there is no histogram: why, and the figures that there are.
fn coarse(app: &App, data: &Data, subject: &Subject<'_>, cells: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(app, subject, cells)];
    let times: &[Time] = if height >= TALL { &Time::ALL } else { &[app.settings.span] };
    for time in times {
        let (wait, _) = app.span(*time);
        let text = format!("{}: {}", pane::span_words(app, *time), wait_line(wait, Mode::Coarse));
        lines.push(pane::fact(app, "", &text, cells));
        lines.extend(causes::line(&wait.by_cause).map(|why| pane::fact(app, "why", &why, cells)));
    }
    lines.extend(pane::quiet(app.theme, NO_HISTOGRAM, cells));
    lines.extend(whom(app, data, subject, cells));
    lines.truncate(height);
    lines
}

/// Histograms with the same rows.
struct Histograms<'a> {
    columns: Vec<HistogramColumn<'a>>,
    /// Digits of the largest bound, and of the largest count.
    bound: usize,
    count: usize,
    has_share: bool,
    /// Cells of each.
    cells: usize,
}

/// One of them.
struct HistogramColumn<'a> {
    time: Time,
    wait: &'a Wait,
    rows: Vec<Row>,
}

impl<'a> Histograms<'a> {
    fn new(app: &'a App, times: &[Time], cells: usize) -> Self {
        let unit = app.settings.unit.ns();
        let mut columns: Vec<HistogramColumn<'a>> = times
            .iter()
            .map(|time| {
                let (wait, _) = app.span(*time);
                HistogramColumn { time: *time, wait, rows: wait.hist.rows(unit) }
            })
            .collect();
        align(&mut columns);
        let rows = || columns.iter().flat_map(|column| &column.rows);
        let digits = |most: Option<u64>, least: &str| most.unwrap_or(0).to_string().len().max(least.len());
        let bound = digits(rows().map(|row| row.high).max(), app.settings.unit.title());
        // Rows that are taken together may have the sum of all.
        let count = digits(columns.iter().map(|column| column.wait.hist.count()).max(), "count");
        let room = cells.saturating_sub(2 * bound + 5) / columns.len().max(1);
        let cells = if columns.len() > 1 { room.saturating_sub(GAP) } else { room };
        Self { columns, bound, count, has_share: cells >= ROOMY / 2, cells }
    }

    fn lines(mut self, app: &App, room: usize) -> Vec<Line<'static>> {
        if self.columns.iter().all(|column| column.rows.is_empty()) {
            return vec![Line::styled("no wait ended in this time", app.theme.quiet())];
        }
        let mut lines = if self.columns.len() > 1 { self.heads(app) } else { Vec::new() };
        lines.push(self.titles(app));
        let shown = room.saturating_sub(lines.len());
        if shown == 0 {
            lines.truncate(room);
            return lines;
        }
        for column in &mut self.columns {
            column.rows = pane::fitted(std::mem::take(&mut column.rows), shown);
        }
        lines.extend(self.rows(app));
        lines
    }

    /// What is said of each above it.
    fn heads(&self, app: &App) -> Vec<Line<'static>> {
        let theme = app.theme;
        let line = |text: &dyn Fn(&HistogramColumn<'_>) -> (String, ratatui::style::Style)| {
            let mut spans = vec![Span::raw(" ".repeat(2 * self.bound + 5))];
            for column in &self.columns {
                let (text, style) = text(column);
                spans.push(Span::styled(left(&cut_end(&text, self.cells), self.cells + GAP), style));
            }
            Line::from(spans)
        };
        let name = |column: &HistogramColumn<'_>| {
            let is_chosen = column.time == app.settings.span;
            let words = pane::span_words(app, column.time);
            if is_chosen { (format!("[{words}]"), theme.key()) } else { (words, theme.heading()) }
        };
        let figures =
            |column: &HistogramColumn<'_>| (said(column.wait, self.cells), ratatui::style::Style::new());
        let why = |column: &HistogramColumn<'_>| {
            (causes::line(&column.wait.by_cause).unwrap_or_default(), theme.quiet())
        };
        vec![line(&name), line(&figures), line(&why)]
    }

    fn titles(&self, app: &App) -> Line<'static> {
        let bounds = 2 * self.bound + 4;
        let mut text = format!("{:>bounds$} ", app.settings.unit.title());
        for column in &self.columns {
            let share = if self.has_share { format!("{:>SHARE$}", "up to") } else { String::new() };
            let bar = self.bar().saturating_sub(1);
            let scale = match self.columns.len() {
                1 => String::new(),
                _ if column.rows.is_empty() => String::new(),
                _ => "share of these waits".into(),
            };
            text += &format!(
                "{:>count$}{share}{:MARK$} {}  ",
                "count",
                "",
                left(&scale, bar),
                count = self.count
            );
        }
        Line::styled(text.trim_end().to_owned(), app.theme.quiet())
    }

    /// Cells of the longest bar.
    fn bar(&self) -> usize {
        let share = if self.has_share { SHARE } else { 0 };
        self.cells.saturating_sub(self.count + share + MARK).max(1)
    }

    fn rows(&self, app: &App) -> Vec<Line<'static>> {
        // Bars are shares of the waits of their time: so they compare, whatever the length of the times.
        let share = |column: &HistogramColumn<'_>, row: &Row| {
            row.count as f64 / column.wait.hist.count().max(1) as f64
        };
        let shares =
            self.columns.iter().flat_map(|column| column.rows.iter().map(move |row| share(column, row)));
        let most = shares.fold(0.0, f64::max);
        let mut sums = vec![0u64; self.columns.len()];
        let Some(bounds) = self.columns.first() else { return Vec::new() };
        let mut lines = Vec::new();
        for (at, row) in bounds.rows.iter().enumerate() {
            let width = self.bound;
            let mut spans = vec![Span::raw(format!("{:>width$} -> {:<width$} ", row.low, row.high))];
            for (column, sum) in self.columns.iter().zip(&mut sums) {
                let row = &column.rows[at];
                let before = std::mem::replace(sum, sum.saturating_add(row.count));
                spans.extend(self.cell(app, column, row, (before, *sum), share(column, row) / most));
            }
            lines.push(Line::from(spans));
        }
        lines
    }

    /// A row of one histogram: count, share of the waits up to here, quantiles that lie in it, and the bar.
    fn cell(
        &self,
        app: &App,
        column: &HistogramColumn<'_>,
        row: &Row,
        (before, until): (u64, u64),
        length: f64,
    ) -> Vec<Span<'static>> {
        let total = column.wait.hist.count();
        let share = match units::percent(until, total).filter(|_| self.has_share) {
            // Only all are 100 %.
            Some(share) => {
                format!("{:>SHARE$}", format!("{:.1}%", if until < total { share.min(99.9) } else { share }))
            }
            None if self.has_share => " ".repeat(SHARE),
            None => String::new(),
        };
        let mark = marks(before, until, total);
        let bar = self.bar();
        let count = self.count;
        let long = ((length * bar as f64) as usize).clamp(usize::from(row.count != 0), bar);
        let mut spans = vec![
            Span::raw(format!("{:>count$}{share}", row.count)),
            Span::styled(format!(" {mark:<8}"), app.theme.heading()),
        ];
        spans.extend(bars::stacked(&row.by_cause, if row.count == 0 { 0 } else { long }, app.theme));
        if self.columns.len() > 1 {
            let drawn: usize = spans[2..].iter().map(Span::width).sum();
            spans.push(Span::raw(" ".repeat((bar + GAP).saturating_sub(drawn))));
        }
        spans
    }
}

/// The same rows for all, from the first to the last of any.
fn align(columns: &mut [HistogramColumn<'_>]) {
    let longest = columns.iter().map(|column| &column.rows).max_by_key(|rows| rows.len());
    let Some(longest) = longest.cloned() else { return };
    for column in columns {
        let missing = longest.iter().skip(column.rows.len());
        let missing: Vec<Row> =
            missing.map(|row| Row { count: 0, by_cause: [0.0; CAUSES], ..*row }).collect();
        column.rows.extend(missing);
    }
}

/// The quantiles that lie in a row, of how many waits are before it and until its end.
fn marks(before: u64, until: u64, total: u64) -> String {
    let mut words = Vec::new();
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        // The rank as in `Hist::quantile_ns`.
        let rank = ((quantile * total as f64).ceil() as u64).max(1);
        if before < rank && rank <= until {
            words.push(name);
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use cgscope_model::{Cause, Hist};

    use super::*;

    fn wait(ns: &[u64]) -> Wait {
        let hist = Hist::of_cause(Cause::Throttled, ns.iter().copied());
        Wait { count: ns.len() as u64, hist, ..Wait::default() }
    }

    fn column(wait: &Wait) -> HistogramColumn<'_> {
        HistogramColumn { time: Time::Interval, wait, rows: wait.hist.rows(1_000) }
    }

    #[test]
    fn histograms_side_by_side_have_the_same_rows() {
        let waits = [wait(&[5_000]), wait(&[]), wait(&[3_000, 70_000_000])];
        let mut columns: Vec<_> = waits.iter().map(column).collect();
        align(&mut columns);
        let bounds = |column: &HistogramColumn<'_>| {
            column.rows.iter().map(|row| (row.low, row.high)).collect::<Vec<_>>()
        };
        assert_eq!(bounds(&columns[0]).len(), 17);
        assert!(columns.iter().all(|column| bounds(column) == bounds(&columns[2])));
        for (column, wait) in columns.iter().zip(&waits) {
            assert_eq!(column.rows.iter().map(|row| row.count).sum::<u64>(), wait.count);
        }
    }

    #[test]
    fn rows_that_do_not_fit_are_taken_together_and_none_is_lost() {
        let wait = wait(&[1_000, 5_000, 300_000, 70_000_000]);
        let fitted = pane::fitted(column(&wait).rows, 3);
        let rows: Vec<_> = fitted.iter().map(|row| (row.low, row.high, row.count)).collect();
        assert_eq!(rows, [(0, 31, 2), (32, 2_047, 1), (2_048, 131_071, 1)]);
        assert_eq!(fitted[0].by_cause[Cause::Throttled as usize], 2.0);
        assert_eq!(pane::fitted(Vec::new(), 3), []);
    }

    #[test]
    fn quantiles_are_marked_in_the_row_that_they_lie_in() {
        assert_eq!(
            [marks(0, 50, 100), marks(50, 98, 100), marks(98, 99, 100), marks(99, 100, 100)],
            ["p50", "", "p99", ""]
        );
        assert_eq!(marks(0, 1, 1), "p50 p99");
        assert_eq!(marks(0, 0, 0), "", "no wait, no quantile");
    }
}
