//! The list: headings and the rows that are shown.

use ratatui::{
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::bars;
use crate::{
    app::{
        App,
        list::{Fold, Row},
    },
    columns::{self, Column},
    data::Data,
    subject::{Key, Subject},
    width::{left, path, width},
};

/// The columns that fit, each with its width.
pub fn columns(app: &App, area: Rect) -> Vec<(Column, usize)> {
    let kind = app.kind();
    // The column that rows are sorted by stays.
    let (sort, _) = app.sort_of(kind);
    let least: Vec<Column> = kind.least_needed().into_iter().filter(|column| *column != sort).collect();
    // Command lines are what is read then.
    let flexible = if app.settings.command_lines { &[Column::Command] } else { kind.flexible() };
    columns::that_fit(kind.columns(), &least, flexible, area.width.into())
}

/// The column whose heading is at a place.
pub fn column_at(app: &App, area: Rect, x: usize) -> Option<Column> {
    let mut from = 0;
    columns(app, area).into_iter().find_map(|(column, cells)| {
        from += cells + 1;
        (x < from).then_some(column)
    })
}

/// Headings and rows.
pub fn lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let Some(data) = &app.data else { return Vec::new() };
    let columns = columns(app, area);
    let mut lines = vec![headings(app, &columns)];
    if app.rows.is_empty() {
        lines.push(Line::styled(nothing(app), app.theme.quiet()));
    }
    let shown = app.rows.iter().enumerate().skip(app.first_row).take(area.height.saturating_sub(1).into());
    lines.extend(shown.filter_map(|(at, row)| {
        let subject = app.rows.subject(row, data)?;
        Some(line(app, data, row, &subject, &columns, at == app.selected))
    }));
    lines
}

fn is_coarse(app: &App) -> bool {
    app.data.as_ref().is_some_and(|data| data.interval.mode == cgscope_model::Mode::Coarse)
}

fn nothing(app: &App) -> &'static str {
    match app.view {
        _ if !app.filter.is_empty() => "nothing has these letters: Esc takes the filter away",
        crate::app::view::View::Culprits if is_coarse(app) => "not known",
        crate::app::view::View::Culprits => "nobody waited behind others",
        _ => "no task of the selection is there",
    }
}

fn headings(app: &App, columns: &[(Column, usize)]) -> Line<'static> {
    let theme = app.theme;
    let (sort, reversed) = app.sort_of(app.kind());
    Line::from_iter(columns.iter().flat_map(|(column, cells)| {
        let (style, mark) = if *column == sort {
            let falls = column.falls() != reversed;
            (theme.key().add_modifier(Modifier::UNDERLINED), if falls { "▾" } else { "▴" })
        } else {
            (theme.heading(), " ")
        };
        [Span::styled(columns::heading(*column, *cells), style), Span::styled(mark, style)]
    }))
}

fn line(
    app: &App,
    data: &Data,
    row: &Row,
    subject: &Subject<'_>,
    columns: &[(Column, usize)],
    is_selected: bool,
) -> Line<'static> {
    let style = if is_selected { app.theme.selected() } else { Style::new() };
    let mut spans = Vec::with_capacity(2 * columns.len());
    for (column, cells) in columns {
        match column {
            Column::Why => {
                // A bar keeps its colours also in the selected row.
                let parts = columns::parts(subject);
                let bar = bars::stacked(&parts, *cells, app.theme);
                let drawn: usize = bar.iter().map(Span::width).sum();
                spans.extend(bar);
                spans.push(Span::styled(" ".repeat(cells - drawn), style));
            }
            Column::Name => spans.push(Span::styled(name(app, row, subject, *cells), style)),
            Column::Command => spans.push(Span::styled(left(&command(app, subject), *cells), style)),
            _ => {
                let waits = *column == Column::Pending && subject.pending_ns().is_some();
                let style = if waits { style.patch(app.theme.wait()) } else { style };
                spans.push(Span::styled(column.fit(&column.cell(subject, data), *cells), style));
            }
        }
        spans.push(Span::styled(" ", style));
    }
    Line::from(spans)
}

/// A cgroup in the tree: below those above it, by its own name. In a flat list, by its path.
fn name(app: &App, row: &Row, subject: &Subject<'_>, cells: usize) -> String {
    let (Subject::Cgroup(node), Key::Cgroup(_)) = (subject, &row.key) else {
        return left(&subject.title(), cells);
    };
    let is_tree = app.is_tree();
    if !is_tree {
        return path(&node.path, cells);
    }
    let mark = match row.fold {
        Fold::Leaf => ' ',
        Fold::Open => '▾',
        Fold::Closed => '▸',
    };
    // Deep below, the name matters more than the depth.
    let indent = row.depth.min(cells / 3);
    let before = format!("{}{mark}", " ".repeat(indent));
    let room = cells.saturating_sub(width(&before));
    format!("{before}{}", left(node.name(), room))
}

fn command(app: &App, subject: &Subject<'_>) -> String {
    let Some(task) = subject.task() else { return subject.title() };
    let line = app.settings.command_lines.then(|| app.command_line(task.reading.tgid));
    match line.flatten() {
        Some(line) => line.to_string(),
        None => task.reading.comm.to_string(),
    }
}
