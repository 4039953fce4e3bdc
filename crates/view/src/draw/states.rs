//! Threads by state: in sum, and by name.

use cgscope_model::Cause;
use ratatui::{
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{bars, layout};
use crate::{
    app::App,
    causes,
    states::{State, StateRow, Sums},
    theme::Theme,
    width::{left, width},
};

/// Widths of the columns before the bar on a screen of so many cells: threads on average, state, name, how many threads.
fn columns(cells: usize) -> [usize; 4] {
    [9, cells.saturating_sub(36).clamp(20, 31), 16, 6]
}

/// What stands for running in a bar without colours.
const RUNS: char = 'R';

/// Lines above the list.
pub fn height(app: &App, body: Rect) -> u16 {
    match () {
        () if app.data.is_none() => 0,
        () if layout::is_tall(app) && body.height >= 12 => 3,
        () => 1,
    }
}

/// All threads by state, above the list.
pub fn sums(app: &App, area: Rect) -> Vec<Line<'static>> {
    let sums = Sums::of(app.rows.iter().filter_map(|row| app.rows.state(row)));
    let (theme, cells) = (app.theme, usize::from(area.width));
    vec![sums_line(theme, &sums), Line::from(bar(theme, &sums, cells)), legend(theme, &sums, cells)]
}

/// `threads on average: on CPU 2.00  runnable 3.10  disk sleep 0.00  blocked otherwise 147.00`
fn sums_line(theme: Theme, sums: &Sums) -> Line<'static> {
    let figure = |value: f64| format!("{value:.2}");
    Line::from(vec![
        Span::styled("threads on average: on CPU ", theme.quiet()),
        Span::styled(figure(sums.on_cpu), theme.busy()),
        Span::styled("  runnable ", theme.quiet()),
        Span::styled(figure(sums.runnable()), theme.wait()),
        Span::styled("  disk sleep ", theme.quiet()),
        Span::raw(figure(sums.disk)),
        Span::styled("  blocked ", theme.quiet()),
        Span::raw(figure(sums.blocked)),
    ])
}

/// Those on a CPU and those that wait, by cause: sleepers would leave no room for them.
fn bar(theme: Theme, sums: &Sums, cells: usize) -> Vec<Span<'static>> {
    let runnable = sums.runnable();
    let all = sums.on_cpu + runnable;
    let runs = if all > 0.0 { (sums.on_cpu / all * cells as f64).round() as usize } else { 0 };
    let mut spans = vec![Span::styled(String::from_iter(vec![run_sign(theme); runs]), theme.busy())];
    if runnable > 0.0 {
        spans.extend(bars::stacked(&sums.waits, cells - runs.min(cells), theme));
    }
    spans
}

fn run_sign(theme: Theme) -> char {
    if theme.has_colour() { '█' } else { RUNS }
}

/// What the parts of the bar mean, each with its figure, the largest first: those that fit, none cut.
fn legend(theme: Theme, sums: &Sums, cells: usize) -> Line<'static> {
    let mut causes: Vec<Cause> =
        causes::ORDER.into_iter().filter(|cause| sums.waits[*cause as usize] > 0.0).collect();
    causes.sort_by(|a, b| sums.waits[*b as usize].total_cmp(&sums.waits[*a as usize]));
    let mut spans =
        vec![Span::styled(run_sign(theme).to_string(), theme.busy()), Span::styled(" on CPU", theme.quiet())];
    let mut used: usize = spans.iter().map(Span::width).sum();
    for cause in causes {
        let words = format!(" {} {:.2}", causes::words(cause), sums.waits[cause as usize]);
        used += 3 + width(&words);
        if used > cells {
            break;
        }
        spans.push(Span::styled(format!("  {}", theme.sign(cause)), theme.cause(cause)));
        spans.push(Span::styled(words, theme.quiet()));
    }
    Line::from(spans)
}

/// The heading and the rows that are shown.
pub fn lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let theme = app.theme;
    let columns = columns(area.width.into());
    let [threads, state, name, of] = columns;
    let heading = format!("{:>threads$}  {:<state$} {:<name$} {:>of$}", "threads", "state", "name", "of");
    let mut lines = vec![Line::styled(heading, theme.heading())];
    if app.rows.is_empty() {
        let words = if app.filter.is_empty() {
            "no thread of the selection is there"
        } else {
            "nothing has these letters: Esc takes the filter away"
        };
        lines.push(Line::styled(words, theme.quiet()));
    }
    let states = app.rows.iter().filter_map(|row| app.rows.state(row));
    // Sleepers are many everywhere: what is load is compared with load.
    let most = states.filter(|row| row.state.is_load()).map(|row| row.threads).fold(0.0, f64::max);
    let cells = usize::from(area.width).saturating_sub(columns.iter().sum::<usize>() + 5);
    let shown = app.rows.iter().enumerate().skip(app.first_row).take(area.height.saturating_sub(1).into());
    lines.extend(shown.filter_map(|(at, row)| {
        let row = app.rows.state(row)?;
        Some(line(theme, row, at == app.selected, most, (columns, cells)))
    }));
    lines
}

fn line(
    theme: Theme,
    row: &StateRow,
    is_selected: bool,
    most: f64,
    (columns, cells): ([usize; 4], usize),
) -> Line<'static> {
    let [threads, state, name, of] = columns;
    let style = match (is_selected, row.state.is_load()) {
        (true, _) => theme.selected(),
        (false, true) => Style::new(),
        (false, false) => theme.quiet(),
    };
    let figure = if row.threads < 0.005 { "<0.01".into() } else { format!("{:.2}", row.threads) };
    let words = left(&row.state.words(), state);
    let text = format!("{figure:>threads$}  {words} {} {:>of$} ", left(&row.name, name), row.of);
    let mut spans = vec![Span::styled(text, style)];
    if row.state.is_load() && most > 0.0 && cells != 0 {
        let (sign, bar_style) = match (row.state, row.state.cause()) {
            (_, Some(cause)) => (theme.sign(cause), theme.cause(cause)),
            (State::OnCpu, None) => (run_sign(theme), theme.busy()),
            (_, None) => (if theme.has_colour() { '█' } else { 'D' }, theme.quiet()),
        };
        let length = ((row.threads / most * cells as f64).round() as usize).clamp(1, cells);
        spans.push(Span::styled(String::from_iter(vec![sign; length]), bar_style));
    }
    Line::from(spans)
}
