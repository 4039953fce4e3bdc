//! Threads by state: sums for all threads, and a list by name.

use super::{prelude::*, table};
use crate::states::{State, StateRow, Sums};

pub fn height(app: &App, body: Rect) -> u16 {
    match app.data {
        None => 0,
        Some(_) if layout::is_tall(app) && body.height >= 12 => 3,
        Some(_) => 1,
    }
}

pub fn sums(app: &App, area: Rect) -> Lines {
    let sums = Sums::of(app.rows.iter().filter_map(|row| row.state.as_ref()));
    let (theme, cells) = (app.theme, usize::from(area.width));
    vec![sums_line(theme, &sums), Line::from(bar(theme, &sums, cells)), legend(theme, &sums, cells)]
}

/// Returns the sums as text: `threads on average: on CPU 2.00  runnable 3.10  disk sleep 0.00  blocked 147.00`.
fn sums_line(theme: Theme, sums: &Sums) -> Line<'static> {
    let figures = [
        ("threads on average: on CPU ", sums.on_cpu, theme.busy()),
        ("  runnable ", sums.runnable(), theme.wait()),
        ("  disk sleep ", sums.disk, Style::new()),
        ("  blocked ", sums.blocked, Style::new()),
    ];
    Line::from_iter(figures.into_iter().flat_map(|(words, value, style)| {
        [Span::styled(words, theme.quiet()), Span::styled(format!("{value:.2}"), style)]
    }))
}

/// Returns a bar of threads that run or wait, by cause. Sleeping threads are omitted, because they would fill the bar.
fn bar(theme: Theme, sums: &Sums, cells: usize) -> Spans {
    let all = sums.on_cpu + sums.runnable();
    let runs = if all > 0.0 { (sums.on_cpu / all * cells as f64).round() as usize } else { 0 };
    let mut spans = vec![bars::repeated(theme.block_or('R'), runs, theme.busy())];
    spans.extend(bars::stacked(&sums.waits, cells - runs.min(cells), theme));
    spans
}

/// Returns a legend with the parts of the bar that fit. Each cause has its figure, largest first.
fn legend(theme: Theme, sums: &Sums, cells: usize) -> Line<'static> {
    let causes = causes::ORDER.map(|cause| (cause, sums.waits[cause as usize])).into_iter();
    let causes = causes.filter(|(_, threads)| *threads > 0.0).sorted_by(|a, b| b.1.total_cmp(&a.1));
    let mut spans =
        vec![bars::repeated(theme.block_or('R'), 1, theme.busy()), Span::styled(" on CPU", theme.quiet())];
    let mut used: usize = spans.iter().map(Span::width).sum();
    for (cause, threads) in causes {
        let words = format!(" {} {threads:.2}", causes::shown(cause).words);
        used += 3 + width(&words);
        if used > cells {
            break;
        }
        spans.push(Span::styled(format!("  {}", theme.sign(cause)), theme.cause(cause)));
        spans.push(Span::styled(words, theme.quiet()));
    }
    Line::from(spans)
}

pub fn lines(app: &App, area: Rect) -> Lines {
    let cells = usize::from(area.width);
    let [threads, state, name, of] = [9, cells.saturating_sub(36).clamp(20, 31), 16, 6];
    let heading = format!("{:>threads$}  {:<state$} {:<name$} {:>of$}", "threads", "state", "name", "of");
    let states = app.rows.iter().filter_map(|row| row.state.as_ref());
    // Every host has many sleeping threads, so bars compare only states that count as load.
    let most = states.filter(|row| row.state.is_load()).map(|row| row.threads).fold(0.0, f64::max);
    let widths = [threads, state, name, of, cells.saturating_sub(threads + state + name + of + 5)];
    table::list(app, area, Line::styled(heading, app.theme.heading()), |row, is_selected| {
        Some(line(app.theme, row.state.as_ref()?, is_selected, most, widths))
    })
}

fn line(theme: Theme, row: &StateRow, is_selected: bool, most: f64, widths: [usize; 5]) -> Line<'static> {
    let [threads, state, name, of, cells] = widths;
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
        let cause = |at: u8| causes::ORDER[usize::from(at)];
        let (sign, bar_style) = match row.state {
            State::Waits(at) => (theme.sign(cause(at)), theme.cause(cause(at))),
            State::OnCpu => (theme.block_or('R'), theme.busy()),
            State::Blocked(_) => (theme.block_or('D'), theme.quiet()),
        };
        let length = ((row.threads / most * cells as f64).round() as usize).clamp(1, cells);
        spans.push(bars::repeated(sign, length, bar_style));
    }
    Line::from(spans)
}
