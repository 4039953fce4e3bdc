//! Histograms of waits by cause: the interval, the last minute and the time since the start. A narrow screen shows one of them.

use super::{heatmap, prelude::*};
use crate::keys::Command;

/// Minimum width of a screen with three histograms side by side, in cells.
const WIDE: usize = 150;
/// Minimum height of a histogram with explanations.
const TALL: usize = 12;
/// Minimum height of the heatmap below.
const ROOM_FOR_MAP: usize = 16;
/// Widths of the cumulative share and of the quantile marks, in cells, including blanks.
const SHARE: usize = 7;
const MARK: usize = 9;
/// Minimum width of a histogram with cumulative shares, in cells.
const ROOMY: usize = 38;
const GAP: usize = 2;

pub fn lines(pane: &Pane<'_>) -> Lines {
    let (app, height) = (pane.app, pane.room);
    if !app.is_exact() {
        return coarse(pane);
    }
    let is_wide = pane.cells >= WIDE && height >= TALL;
    let mut lines = if is_wide { vec![title(pane)] } else { one(pane) };
    lines.extend(facts(pane));
    let times: &[Time] = if is_wide { &Time::ALL } else { &[app.settings.span] };
    // The histogram gets at least half of the height.
    lines.truncate((height / 2).max(2));
    lines.extend(tables(pane, times, height - lines.len().min(height), height >= TALL));
    let room = height.saturating_sub(lines.len() + 1);
    if room >= ROOM_FOR_MAP {
        lines.push(Line::default());
        lines.extend(heatmap::map(&Pane { room, ..*pane }));
    }
    lines
}

pub fn below(pane: &Pane<'_>, room: usize) -> Lines {
    let times: &[Time] = if pane.cells >= WIDE { &Time::ALL } else { &[pane.app.settings.span] };
    let mut lines: Lines = (times.len() == 1).then(|| pane.heading()).into_iter().collect();
    lines.extend(tables(pane, times, room - lines.len(), false));
    lines
}

/// Returns histograms of the selected subject in at most `room` lines. They are side by side, with the same rows and one legend.
pub fn tables(pane: &Pane<'_>, times: &[Time], room: usize, has_legend: bool) -> Lines {
    let table = Histograms::new(pane, times);
    let parts = pane::parts(table.columns.iter().flat_map(|column| &column.rows));
    let legend = if has_legend { bars::legend_lines(&parts, pane.theme, pane.cells) } else { Vec::new() };
    let mut lines = table.lines(room.saturating_sub(legend.len()));
    lines.extend(legend);
    lines
}

fn one(pane: &Pane<'_>) -> Lines {
    let (wait, _) = pane.app.focused();
    let mut lines = if pane.room >= TALL { vec![title(pane), times(pane)] } else { vec![pane.heading()] };
    lines.push(pane.fact("", &figures(wait, pane.cells)));
    lines.extend(pane.why(&wait.by_cause));
    lines
}

fn title(pane: &Pane<'_>) -> Line<'static> {
    Line::styled(cut_start(&pane.title(), pane.cells), pane.theme.heading())
}

fn times(pane: &Pane<'_>) -> Line<'static> {
    let (theme, settings) = (pane.theme, &pane.app.settings);
    let mut line = Line::from_iter(Time::ALL.map(|time| {
        let words = pane.span_words(time);
        if time == settings.span {
            Span::styled(format!("[{words}] "), theme.key())
        } else {
            Span::styled(format!(" {words}  "), theme.quiet())
        }
    }));
    let key = settings.keymap.first(Command::Span).map(|key| format!("{key}: next span"));
    let key = key.filter(|words| line.width() + words.len() <= pane.cells);
    line.spans.extend(key.map(|words| Span::styled(words, theme.quiet())));
    line
}

fn facts(pane: &Pane<'_>) -> impl Iterator<Item = Line<'static>> {
    let now = pane.now().map(|now| ("now", now)).into_iter();
    now.chain(pane.quota_and_culprits()).map(move |(label, text)| pane.fact(label, &text))
}

/// Returns the number and quantiles of waits, shortened to fit.
fn figures(wait: &Wait, cells: usize) -> String {
    if wait.count == 0 {
        return "no wait ended in this time".into();
    }
    let all = format!("{}  {}", units::count(wait.count, "wait"), pane::quantiles(wait));
    if all.len() <= cells {
        return all;
    }
    let [p50, p99] = [0.5, 0.99].map(|quantile| or_dash(wait.quantile_ns(quantile)));
    format!("{}  p50 {p50} p99 {p99} max {}", wait.count, duration(wait.max_ns))
}

fn coarse(pane: &Pane<'_>) -> Lines {
    let mut lines = vec![title(pane)];
    let times: &[Time] = if pane.room >= TALL { &Time::ALL } else { &[pane.app.settings.span] };
    for time in times {
        let (wait, _) = pane.app.span(*time);
        lines.push(pane.fact("", &format!("{}: {}", pane.span_words(*time), wait_line(wait, Mode::Coarse))));
        lines.extend(pane.why(&wait.by_cause));
    }
    lines.extend(pane::quiet(pane.theme, NO_HISTOGRAM, pane.cells));
    lines.extend(facts(pane));
    lines.truncate(pane.room);
    lines
}

struct Histograms<'a> {
    pane: &'a Pane<'a>,
    columns: Vec<HistogramColumn<'a>>,
    /// Number of digits of the largest bound, and of the largest count.
    bound: usize,
    count: usize,
    has_share: bool,
    /// Width of each histogram, in cells.
    cells: usize,
}

struct HistogramColumn<'a> {
    time: Time,
    wait: &'a Wait,
    rows: Vec<Row>,
}

impl<'a> Histograms<'a> {
    fn new(pane: &'a Pane<'a>, times: &[Time]) -> Self {
        let unit = pane.app.settings.unit;
        let column = |time: &Time| {
            let (wait, _) = pane.app.span(*time);
            HistogramColumn { time: *time, wait, rows: wait.hist.rows(unit.ns()) }
        };
        let mut columns: Vec<_> = times.iter().map(column).collect();
        align(&mut columns);
        let rows = || columns.iter().flat_map(|column| &column.rows);
        let digits = |most: Option<u64>, least: &str| most.unwrap_or(0).to_string().len().max(least.len());
        let bound = digits(rows().map(|row| row.high).max(), unit.title());
        // Rows can be joined, so a count can be as large as the sum of all rows.
        let count = digits(columns.iter().map(|column| column.wait.hist.count()).max(), "count");
        let room = pane.cells.saturating_sub(2 * bound + 5) / columns.len().max(1);
        let cells = if columns.len() > 1 { room.saturating_sub(GAP) } else { room };
        Self { pane, columns, bound, count, has_share: cells >= ROOMY, cells }
    }

    fn lines(mut self, room: usize) -> Lines {
        if self.columns.iter().all(|column| column.rows.is_empty()) {
            return vec![Line::styled("no wait ended in this time", self.pane.theme.quiet())];
        }
        let mut lines = if self.columns.len() > 1 { self.heads() } else { Vec::new() };
        lines.push(self.titles());
        let shown = room.saturating_sub(lines.len());
        for column in &mut self.columns {
            column.rows = pane::fitted(std::mem::take(&mut column.rows), shown);
        }
        lines.extend(self.rows());
        lines.truncate(room);
        lines
    }

    fn heads(&self) -> Lines {
        let theme = self.pane.theme;
        let mut lines = vec![vec![Span::raw(" ".repeat(2 * self.bound + 5))]; 3];
        for HistogramColumn { time, wait, .. } in &self.columns {
            let words = self.pane.span_words(*time);
            let name = if *time == self.pane.app.settings.span {
                (format!("[{words}]"), theme.key())
            } else {
                (words, theme.heading())
            };
            let figures = (figures(wait, self.cells), Style::new());
            let why = (causes::line(&wait.by_cause).unwrap_or_default(), theme.quiet());
            for (line, (text, style)) in lines.iter_mut().zip([name, figures, why]) {
                line.push(Span::styled(left(&cut_end(&text, self.cells), self.cells + GAP), style));
            }
        }
        lines.into_iter().map(Line::from).collect()
    }

    fn titles(&self) -> Line<'static> {
        let (bounds, count) = (2 * self.bound + 4, self.count);
        let mut text = format!("{:>bounds$} ", self.pane.app.settings.unit.title());
        let share = if self.has_share { right("up to", SHARE) } else { String::new() };
        for column in &self.columns {
            let has_scale = self.columns.len() > 1 && !column.rows.is_empty();
            let scale = if has_scale { "share of these waits" } else { "" };
            let scale = left(scale, self.bar().saturating_sub(1));
            text += &format!("{:>count$}{share}{:MARK$} {scale}  ", "count", "");
        }
        Line::styled(text.trim_end().to_owned(), self.pane.theme.quiet())
    }

    fn bar(&self) -> usize {
        let share = if self.has_share { SHARE } else { 0 };
        self.cells.saturating_sub(self.count + share + MARK).max(1)
    }

    fn rows(&self) -> Lines {
        // Bars show shares of a span's waits, so that spans of different lengths can be compared.
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
                spans.extend(self.cell(column, row, [before, *sum], share(column, row) / most));
            }
            lines.push(Line::from(spans));
        }
        lines
    }

    /// Returns a row of one histogram: count, cumulative share, quantiles within the row, and the bar.
    fn cell(&self, column: &HistogramColumn<'_>, row: &Row, counts: [u64; 2], length: f64) -> Spans {
        let ([before, until], total) = (counts, column.wait.hist.count());
        // Rounding must not show 100 % before the last wait.
        let most = if until < total { 99.9 } else { f64::INFINITY };
        let share = percent(until, total).map(|share| format!("{:.1}%", share.min(most))).unwrap_or_default();
        let share = if self.has_share { right(&share, SHARE) } else { String::new() };
        let mark = marks(before, until, total);
        let (bar, count, theme) = (self.bar(), self.count, self.pane.theme);
        let long = ((length * bar as f64) as usize).clamp(usize::from(row.count != 0), bar);
        let mut spans = vec![
            Span::raw(format!("{:>count$}{share}", row.count)),
            Span::styled(format!(" {mark:<8}"), theme.heading()),
        ];
        spans.extend(bars::stacked(&row.by_cause, if row.count == 0 { 0 } else { long }, theme));
        if self.columns.len() > 1 {
            let drawn: usize = spans[2..].iter().map(Span::width).sum();
            spans.push(Span::raw(" ".repeat((bar + GAP).saturating_sub(drawn))));
        }
        spans
    }
}

/// Gives all histograms the same rows: the rows of the histogram with the most rows.
fn align(columns: &mut [HistogramColumn<'_>]) {
    let longest = columns.iter().map(|column| &column.rows).max_by_key(|rows| rows.len());
    let Some(longest) = longest.cloned() else { return };
    for column in columns {
        let missing = longest.iter().skip(column.rows.len());
        column.rows.extend(missing.map(|row| Row { count: 0, by_cause: [0.0; CAUSES], ..*row }));
    }
}

/// Returns the quantiles within a row. `before` and `until` are the numbers of waits before the row and up to its end.
fn marks(before: u64, until: u64, total: u64) -> String {
    let quantiles = [("p50", 0.5), ("p99", 0.99)].into_iter().filter(|(_, quantile)| {
        // The rank of the quantile, as in `Hist::quantile_ns`.
        let rank = ((quantile * total as f64).ceil() as u64).max(1);
        before < rank && rank <= until
    });
    quantiles.map(|(name, _)| name).join(" ")
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
    fn rows_that_do_not_fit_are_joined_and_none_is_lost() {
        let wait = wait(&[1_000, 5_000, 300_000, 70_000_000]);
        let fitted = pane::fitted(column(&wait).rows, 3);
        let rows: Vec<_> = fitted.iter().map(|row| (row.low, row.high, row.count)).collect();
        assert_eq!(rows, [(0, 31, 2), (32, 2_047, 1), (2_048, 131_071, 1)]);
        assert_eq!(fitted[0].by_cause[Cause::Throttled as usize], 2.0);
        assert_eq!(pane::fitted(Vec::new(), 3), []);
    }

    #[test]
    fn quantiles_are_marked_in_their_rows() {
        assert_eq!(
            [marks(0, 50, 100), marks(50, 98, 100), marks(98, 99, 100), marks(99, 100, 100)],
            ["p50", "", "p99", ""]
        );
        assert_eq!(marks(0, 1, 1), "p50 p99");
        assert_eq!(marks(0, 0, 0), "", "no wait, no quantile");
    }
}
