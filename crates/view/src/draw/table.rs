//! The list: headings and the rows on the screen.

use super::prelude::*;
use crate::{
    app::list::{Fold, ListRow},
    columns,
};

fn columns(app: &App, area: Rect) -> Vec<(Column, usize)> {
    let kind = app.kind();
    // The sort column is always shown.
    let (sort, _) = app.sort_of(kind);
    let least: Vec<Column> = kind.least_needed().into_iter().filter(|column| *column != sort).collect();
    // Command lines are long, so they get the remaining width if they are shown.
    let flexible = if app.settings.command_lines { &[Column::Command] } else { kind.flexible() };
    columns::that_fit([kind.columns(), &least, flexible], area.width.into())
}

pub fn column_at(app: &App, area: Rect, x: usize) -> Option<Column> {
    let mut from = 0;
    columns(app, area).into_iter().find_map(|(column, cells)| {
        from += cells + 1;
        (x < from).then_some(column)
    })
}

pub fn lines(app: &App, area: Rect) -> Lines {
    let Some(data) = &app.data else { return Vec::new() };
    let columns = columns(app, area);
    list(app, area, headings(app, &columns), |row, is_selected| {
        let style = if is_selected { app.theme.selected() } else { Style::new() };
        line(app, data, row, &columns, style).map(Line::from)
    })
}

/// Returns a heading and the rows, or why there are none. `line` draws a row; its second argument is true for the selected row.
pub fn list(
    app: &App,
    area: Rect,
    heading: Line<'static>,
    line: impl Fn(&ListRow, bool) -> Option<Line<'static>>,
) -> Lines {
    let mut lines = vec![heading];
    lines.extend(app.rows.is_empty().then(|| Line::styled(nothing(app), app.theme.quiet())));
    let shown = app.shown(area.height.saturating_sub(1).into());
    lines.extend(shown.filter_map(|(at, row)| line(row, at == app.selected)));
    lines
}

fn nothing(app: &App) -> &'static str {
    match app.view {
        _ if !app.filter.is_empty() => "no row matches the filter: Esc clears the filter",
        View::Culprits if !app.is_exact() => "not known",
        View::Culprits => "no task waited behind others",
        View::Chains if !app.is_exact() => "coarse: /proc does not report who woke a task",
        View::Chains if app.data.as_ref().is_some_and(|data| data.interval.chains.is_none()) => {
            match app.replay {
                Some(_) => "the recording was made without --chains",
                None => "start with --chains to see for whom tasks sleep",
            }
        }
        View::Chains => "no task slept for another one",
        View::States => "the selection has no threads",
        _ => "the selection has no tasks",
    }
}

fn headings(app: &App, columns: &[(Column, usize)]) -> Line<'static> {
    let theme = app.theme;
    let (sort, reversed) = app.sort_of(app.kind());
    Line::from_iter(columns.iter().flat_map(|(column, cells)| {
        let (style, mark) = if *column == sort {
            let is_largest_first = column.is_largest_first() != reversed;
            (theme.key().add_modifier(Modifier::UNDERLINED), if is_largest_first { "▾" } else { "▴" })
        } else {
            (theme.heading(), " ")
        };
        [Span::styled(column.fit()(column.title(), *cells), style), Span::styled(mark, style)]
    }))
}

fn line(app: &App, data: &Data, row: &ListRow, columns: &[(Column, usize)], style: Style) -> Option<Spans> {
    let subject = data.subject(&row.key)?;
    let mut spans = Vec::with_capacity(2 * columns.len());
    for (column, cells) in columns {
        match column {
            Column::Why => {
                // A bar keeps its colours in the selected row.
                let bar = bars::stacked(&causes::parts(&subject.wait().by_cause), *cells, app.theme);
                let drawn: usize = bar.iter().map(Span::width).sum();
                spans.extend(bar);
                spans.push(Span::styled(" ".repeat(cells - drawn), style));
            }
            Column::Name => spans.push(Span::styled(name(app, data, row, &subject, *cells), style)),
            Column::Command => spans.push(Span::styled(left(&command(app, &subject), *cells), style)),
            _ => {
                let waits = *column == Column::Pending && subject.pending_ns().is_some();
                let style = if waits { style.patch(app.theme.wait()) } else { style };
                spans.push(Span::styled(column.fit()(&column.cell(&subject, data), *cells), style));
            }
        }
        spans.push(Span::styled(" ", style));
    }
    Some(spans)
}

/// Returns the name of a cgroup. The tree indents the name; a flat list adds the names of the ancestors.
fn name(app: &App, data: &Data, row: &ListRow, subject: &Subject<'_>, cells: usize) -> String {
    let (Subject::Cgroup(node), Key::Cgroup(_)) = (subject, &row.key) else {
        return left(&app.title(subject), cells);
    };
    if !app.is_tree() {
        return path(&data.interval.names.of(&node.path), cells);
    }
    let mark = match row.fold {
        Fold::Leaf => ' ',
        Fold::Open => '▾',
        Fold::Closed => '▸',
    };
    // In a deep tree, show the name rather than the full indentation.
    let before = format!("{}{mark}", " ".repeat(row.depth.min(cells / 3)));
    let room = cells.saturating_sub(width(&before));
    before + &left(&data.interval.names.leaf(&node.path), room)
}

fn command(app: &App, subject: &Subject<'_>) -> String {
    let Some(task) = subject.task() else { return app.title(subject) };
    let line = app.settings.command_lines.then(|| app.command_line(task.reading.tgid)).flatten();
    line.unwrap_or_else(|| task.reading.comm.clone()).to_string()
}
