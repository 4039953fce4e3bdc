//! Drawing: the state in, cells out. Nothing is changed here.

use cgscope_model::CAUSES;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Wrap},
};

use crate::{
    causes,
    columns::{Column, fit},
    replay,
    top::{
        header, histogram,
        state::{App, Help},
        theme::Theme,
    },
};

/// The smallest screen that shows something.
pub const SMALLEST: (u16, u16) = (60, 12);
/// From this width on the histogram is beside the table.
const WIDE: u16 = 150;
/// There, its width: the label of a row, and a bar that can be read.
const HISTOGRAM_WIDTH: u16 = 66;

/// Height of the table of tasks for a screen of this size: what the state scrolls by.
pub fn table_height(area: Rect, app: &App) -> usize {
    let rows = regions(area, app).map_or(0, |regions| regions.tasks.height);
    usize::from(rows.saturating_sub(1))
}

struct Regions {
    header: Rect,
    tasks: Rect,
    histogram: Rect,
    replay: Rect,
    footer: Rect,
}

fn regions(area: Rect, app: &App) -> Option<Regions> {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return None;
    }
    let replay_height = match app.replay {
        None => 0,
        Some(_) if header::is_tall(area.height) => replay::draw::HEIGHT,
        Some(_) => 1,
    };
    let [header, body, replay, footer] = Layout::vertical([
        Constraint::Length(header::height(area.height, app)),
        Constraint::Min(0),
        Constraint::Length(replay_height),
        Constraint::Length(1),
    ])
    .areas(area);
    let [tasks, histogram] = if area.width >= WIDE {
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(HISTOGRAM_WIDTH)]).spacing(1).areas(body)
    } else {
        Layout::vertical([Constraint::Fill(1), Constraint::Max(histogram::HEIGHT.min(body.height * 3 / 5))])
            .areas(body)
    };
    Some(Regions { header, tasks, histogram, replay, footer })
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App, theme: Theme) {
    let area = frame.area();
    let Some(regions) = regions(area, app) else {
        let (width, height) = SMALLEST;
        let [command, instead] = app.commands();
        let sentence = format!(
            "{command} needs a terminal of at least {width}x{height}, this one is {}x{}: enlarge it, or use `{instead}`.",
            area.width, area.height
        );
        frame.render_widget(Paragraph::new(sentence).wrap(Wrap { trim: true }), area);
        return;
    };
    frame.render_widget(Paragraph::new(header::lines(app, theme, area.height)), regions.header);
    if let Some(page) = app.help {
        let body = regions.tasks.union(regions.histogram);
        let lines = match page {
            Help::Keys => replay::draw::help(theme),
            Help::Columns => help(theme),
        };
        frame.render_widget(Paragraph::new(lines), body);
    } else {
        frame.render_widget(Paragraph::new(tasks(app, theme, regions.tasks)), regions.tasks);
        let histogram = histogram::lines(app, theme, regions.histogram);
        frame.render_widget(Paragraph::new(histogram), regions.histogram);
    }
    if let Some(replay) = &app.replay {
        let area = regions.replay;
        let lines =
            [replay::draw::position(replay, theme, area.width.into()), replay::draw::status(replay, theme)];
        frame.render_widget(Paragraph::new(lines.to_vec()), area);
    }
    let footer = footer(app, theme, header::is_tall(area.height));
    frame.render_widget(Paragraph::new(footer), regions.footer);
}

/// The columns that fit a width, each with its own; the cgroup takes what is left.
fn columns_for(width: usize) -> Vec<(Column, usize)> {
    // What is left out first where there is no room.
    const LEAST_NEEDED: [Column; 10] = [
        Column::Migrations,
        Column::Pid,
        Column::Waits,
        Column::P50,
        Column::Throttled,
        Column::Voluntary,
        Column::Cpu,
        Column::Cgroup,
        Column::Involuntary,
        Column::OnCpu,
    ];
    let needs =
        |columns: &[Column]| columns.iter().map(|column| usize::from(column.width()) + 1).sum::<usize>();
    let mut columns = Column::ALL.to_vec();
    for unneeded in LEAST_NEEDED {
        if needs(&columns) <= width + 1 {
            break;
        }
        columns.retain(|column| *column != unneeded);
    }
    let left = (width + 1).saturating_sub(needs(&columns));
    let widen =
        |column: Column| usize::from(column.width()) + if column == Column::Cgroup { left } else { 0 };
    columns.iter().map(|column| (*column, widen(*column))).collect()
}

fn tasks(app: &App, theme: Theme, area: Rect) -> Vec<Line<'static>> {
    let columns = columns_for(area.width.into());
    let heading = columns.iter().flat_map(|(column, width)| {
        let style =
            if *column == app.sort { theme.wait().add_modifier(Modifier::BOLD) } else { theme.heading() };
        [Span::styled(fit(*column, column.title(), *width), style), Span::raw(" ")]
    });
    let mut lines = vec![Line::from_iter(heading)];
    let Some(interval) = app.interval.as_deref() else {
        let first = match app.replay {
            None => "measuring the first interval ...",
            Some(_) => "reading the first interval ...",
        };
        lines.push(Line::styled(first, theme.quiet()));
        return lines;
    };
    let rows = app.rows();
    if rows.is_empty() {
        lines.push(Line::styled("no task of the selection is there", theme.quiet()));
    }
    for (row, task) in rows.iter().enumerate().skip(app.first_row).take(area.height.saturating_sub(1).into())
    {
        let cells = columns.iter().flat_map(|(column, width)| {
            if *column == Column::Why {
                let parts = causes::parts(&task.wait.by_cause);
                return padded(histogram::stacked(&parts, *width, theme), &parts, *width);
            }
            let waits = *column == Column::Pending && task.reading.pending.is_some();
            let style = if waits { theme.wait() } else { Style::new() };
            vec![Span::styled(fit(*column, &column.cell(task, interval), *width), style), Span::raw(" ")]
        });
        let line = Line::from_iter(cells);
        lines.push(if app.selected_row() == Some(row) { line.style(theme.selected()) } else { line });
    }
    lines
}

/// A bar and the blank after it; a task that did not wait has none.
fn padded(mut bar: Vec<Span<'static>>, parts: &[f64; CAUSES], width: usize) -> Vec<Span<'static>> {
    let blank = if parts.iter().sum::<f64>() > 0.0 { 1 } else { width + 1 };
    bar.push(Span::raw(" ".repeat(blank)));
    bar
}

fn footer(app: &App, theme: Theme, is_tall: bool) -> Line<'static> {
    if let Some(replay) = &app.replay {
        let urgent = (!is_tall).then(|| replay::draw::urgent(replay, theme)).flatten();
        return urgent.unwrap_or_else(|| Line::styled(replay::draw::FOOTER, theme.quiet()));
    }
    if let Some(ended) = &app.ended {
        return Line::styled(format!("{ended}: no more intervals; q quits"), theme.alarm());
    }
    let paused = if app.paused { "PAUSED " } else { "" };
    let keys = "q quit  ↑↓ select  < > sort  r reverse  a all  u unit  space pause  ? help";
    Line::from(vec![Span::styled(paused, theme.alarm()), Span::styled(keys, theme.quiet())])
}

fn help(theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("What the columns mean", theme.heading())];
    let column = |column: &Column| format!("{:>8}  {}", column.title(), column.meaning());
    lines.extend(Column::ALL.iter().map(column).map(Line::raw));
    let legend = causes::ORDER.iter().flat_map(|cause| {
        let sign = if theme.has_colour() { "█".into() } else { causes::letter(*cause).to_string() };
        [Span::styled(sign, theme.cause(*cause)), Span::raw(format!(" {}  ", causes::words(*cause)))]
    });
    lines.push(Line::from_iter(legend));
    lines.push(Line::styled("any key goes back", theme.quiet()));
    lines
}
