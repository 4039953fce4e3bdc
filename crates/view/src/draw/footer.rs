//! The last line: keys, what is being typed, what there is to say. And what is chosen from a list.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    text::{Line, Span},
    widgets::{Clear, Paragraph},
};

use super::layout;
use crate::{
    app::{App, Prompt, view::View},
    columns::Column,
    keys::Command,
    replay,
    width::{left, width},
};

/// The line.
pub fn line(app: &App) -> Line<'static> {
    let theme = app.theme;
    if let Some(Prompt::Filter { .. }) = &app.prompt {
        return Line::from(vec![
            Span::styled("show only: ", theme.quiet()),
            Span::styled(format!("{}█", app.filter), theme.heading()),
            Span::styled(
                "  letters of name, path, command line, or an id; Enter keeps it, Esc does not",
                theme.quiet(),
            ),
        ]);
    }
    if let Some(notice) = &app.notice {
        return Line::styled(notice.clone(), theme.alarm());
    }
    if let Some(replay) = &app.replay {
        let urgent = (!layout::is_tall(app)).then(|| replay::draw::urgent(replay, theme)).flatten();
        return urgent.unwrap_or_else(|| Line::styled(replay::draw::FOOTER, theme.quiet()));
    }
    if let Some(ended) = &app.ended {
        return Line::styled(format!("{ended}: no more intervals; q quits"), theme.alarm());
    }
    keys(app)
}

/// The keys that matter most where one is, as many as there is room for.
fn keys(app: &App) -> Line<'static> {
    use Command::*;
    let shown: &[(Command, &str)] = match app.view {
        View::Help | View::Task => {
            &[(Quit, "quit"), (Back, "back"), (Down, "scroll"), (NextView, "next view"), (Span, "span")]
        }
        _ => &[
            (Quit, "quit"),
            (Help, "help"),
            (Filter, "filter"),
            (Sort, "sort"),
            (Open, "open"),
            (Back, "back"),
            (Tree, "tree"),
            (Processes, "threads"),
            (Pause, "pause"),
            (Span, "span"),
            (Unit, "us/ms"),
            (Slower, "slower"),
            (Snapshot, "write"),
        ],
    };
    use ratatui::text::Span as Words;
    let mut room = usize::from(app.area.width);
    let mut spans = Vec::new();
    for (command, word) in shown {
        let Some(key) = app.settings.keymap.first(*command) else { continue };
        let cells = width(&key) + width(word) + 3;
        if cells > room + 2 {
            break;
        }
        room = room.saturating_sub(cells);
        spans.push(Words::styled(key, app.theme.key()));
        spans.push(Words::styled(format!(" {word}  "), app.theme.quiet()));
    }
    Line::from(spans)
}

/// The list of columns to sort by, over the body.
pub fn popup(frame: &mut Frame<'_>, app: &App, body: Rect) {
    let Some(Prompt::Sort { columns, at }) = &app.prompt else { return };
    let height = (columns.len() as u16 + 1).min(body.height);
    let cells = 44.min(body.width);
    let area = Rect::new(body.x, body.y, cells, height);
    let shown = usize::from(height.saturating_sub(1)).max(1);
    let first = (at + 1).saturating_sub(shown);
    let title = left(" sort by (Enter; the letters also work without this list)", cells.into());
    let mut lines = vec![Line::styled(title, app.theme.key())];
    lines.extend(columns.iter().enumerate().skip(first).take(shown).map(|(i, column)| {
        let style = if i == *at { app.theme.selected() } else { Style::new() };
        Line::styled(left(&row(*column), cells.into()), style)
    }));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines), area);
}

fn row(column: Column) -> String {
    format!(" {} {:<18} {}", column.key(), column.title(), column.meaning())
}
