//! Keys, columns, causes.

use ratatui::text::{Line, Span};

use super::bars;
use crate::{
    app::{App, list::Kind},
    columns::Column,
    keys::{Command, Key},
    replay, states,
    width::wrapped,
};

/// All of it: the screen shows a part.
pub fn lines(app: &App) -> Vec<Line<'static>> {
    let theme = app.theme;
    let cells = usize::from(app.area.width);
    let mut lines = Vec::new();
    if app.replay.is_some() {
        lines.extend(replay::draw::help(theme));
        lines.push(Line::raw(""));
    }
    lines.push(Line::styled("Keys", theme.heading()));
    for command in Command::ALL {
        let keys: Vec<String> = app.settings.keymap.keys(command).iter().map(Key::to_string).collect();
        if !keys.is_empty() {
            lines.push(Line::from(vec![
                Span::styled(format!("{:>18}  ", keys.join(" ")), theme.key()),
                Span::raw(command.does()),
            ]));
        }
    }
    lines.push(Line::raw(""));
    lines.push(Line::styled("Parts of a bar: why a wait took as long as it did", theme.heading()));
    lines.push(Line::from(bars::legend(None, theme)));
    lines.push(Line::raw(""));
    lines.push(Line::styled("Columns, and the letters that sort by them", theme.heading()));
    let shown = |column: &Column| Kind::ALL.iter().any(|kind| kind.columns().contains(column));
    for column in Column::all().filter(shown) {
        let meaning = wrapped(column.meaning(), cells.saturating_sub(24));
        for (at, words) in meaning.into_iter().enumerate() {
            let head =
                if at == 0 { format!(" {} {:>18}  ", column.key(), column.title()) } else { " ".repeat(23) };
            lines.push(Line::from(vec![Span::styled(head, theme.key()), Span::raw(words)]));
        }
    }
    lines.push(Line::raw(""));
    lines.push(Line::styled("States", theme.heading()));
    lines.extend(wrapped(states::MEANING, cells).into_iter().map(Line::raw));
    lines
}
