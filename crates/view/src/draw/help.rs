//! The help: keys, causes, columns and states.

use super::prelude::*;
use crate::{app::list::ListKind, columns::Column, keys, replay, states};

pub fn lines(app: &App) -> Lines {
    let theme = app.theme;
    let cells = usize::from(app.area.width);
    let mut lines = Vec::new();
    if app.replay.is_some() {
        lines.extend(replay::draw::help(theme));
        lines.push(Line::raw(""));
    }
    lines.push(Line::styled("Keys", theme.heading()));
    for command in keys::Command::ALL {
        let keys: Vec<String> = app.settings.keymap.keys(command).iter().map(ToString::to_string).collect();
        if !keys.is_empty() {
            let keys = Span::styled(format!("{:>18}  ", keys.join(" ")), theme.key());
            lines.push(Line::from(vec![keys, Span::raw(command.does())]));
        }
    }
    lines.push(Line::raw(""));
    lines.push(Line::styled("Parts of a bar: why a wait took as long as it did", theme.heading()));
    lines.push(Line::from(bars::legend(causes::words, &[1.0; CAUSES], theme).concat()));
    lines.push(Line::raw(""));
    lines.push(Line::styled("Columns, and the letters that sort by them", theme.heading()));
    let shown = |column: &Column| ListKind::ALL.iter().any(|kind| kind.columns().contains(column));
    lines.extend(Column::all().filter(shown).flat_map(|column| {
        let title = Span::styled(format!(" {} {:>18}  ", column.key(), column.title()), theme.key());
        pane::hanging(title, wrapped(column.meaning(), cells.saturating_sub(24)), Style::new())
    }));
    lines.push(Line::raw(""));
    lines.push(Line::styled("States", theme.heading()));
    lines.extend(wrapped(states::MEANING, cells).into_iter().map(Line::raw));
    lines
}
