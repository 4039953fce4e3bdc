//! The last line: keys, the prompt or a notice. Also the list of sort columns.

use ratatui::{
    Frame,
    widgets::{Clear, Paragraph},
};

use super::prelude::*;
use crate::{
    app::{Prompt, list::ListKind},
    keys::Command,
    replay, states,
};

pub fn line(app: &App) -> Line<'static> {
    let theme = app.theme;
    if let Some(Prompt::Filter(_)) = &app.prompt {
        let help = "  part of a name, path or command line, or an id; Enter applies, Esc cancels";
        return Line::from(vec![
            Span::styled("show only: ", theme.quiet()),
            Span::styled(format!("{}█", app.filter), theme.heading()),
            Span::styled(help, theme.quiet()),
        ]);
    }
    if let Some(notice) = &app.notice {
        return Line::styled(notice.clone(), theme.alarm());
    }
    if let Some(replay) = &app.replay {
        let urgent = (!layout::is_tall(app)).then(|| replay::urgent(replay, theme)).flatten();
        return urgent.unwrap_or_else(|| Line::styled(replay::FOOTER, theme.quiet()));
    }
    if let Some(ended) = &app.ended {
        return Line::styled(format!("{ended}: no more intervals; q quits"), theme.alarm());
    }
    keys(app)
}

fn keys(app: &App) -> Line<'static> {
    use Command::{
        Back, Down, Filter, Help, NextView, Open, Pause, Processes, Quit, Slower, Snapshot, Sort,
        Span as NextSpan, Tree, Unit,
    };
    let shown: &[Command] = match app.view {
        View::Help | View::Task | View::WhatIf => &[Quit, Back, Down, NextView, NextSpan],
        _ => {
            &[Quit, Help, Filter, Sort, Open, Back, Tree, Processes, Pause, NextSpan, Unit, Slower, Snapshot]
        }
    };
    let mut room = usize::from(app.area.width);
    let mut spans = Vec::new();
    for command in shown {
        let word = match command {
            Down => "scroll",
            NextView => "next view",
            Processes => "threads",
            Unit => "us/ms",
            Snapshot => "write",
            command => command.name(),
        };
        let Some(key) = app.settings.keymap.first(*command) else { continue };
        let cells = width(&key) + width(word) + 3;
        if cells > room + 2 {
            break;
        }
        room = room.saturating_sub(cells);
        spans.push(Span::styled(key, app.theme.key()));
        spans.push(Span::styled(format!(" {word}  "), app.theme.quiet()));
    }
    Line::from(spans)
}

pub fn popup(frame: &mut Frame<'_>, app: &App, body: Rect) {
    let Some(Prompt::Sort(columns, at)) = &app.prompt else { return };
    let height = (columns.len() as u16 + 1).min(body.height);
    let area = Rect { width: 44.min(body.width), height, ..body };
    let cells = area.width.into();
    let shown = usize::from(height.saturating_sub(1)).max(1);
    let first = (at + 1).saturating_sub(shown);
    let title = left(" sort by (Enter, or a letter at any time)", cells);
    let mut lines = vec![Line::styled(title, app.theme.key())];
    lines.extend(columns.iter().enumerate().skip(first).take(shown).map(|(i, column)| {
        let style = if i == *at { app.theme.selected() } else { Style::new() };
        let row = format!(" {} {:<18} {}", column.key(), column.title(), column.meaning());
        Line::styled(left(&row, cells), style)
    }));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines), area);
}

pub fn lines(app: &App) -> Lines {
    let (theme, cells) = (app.theme, usize::from(app.area.width));
    let keys = Command::ALL.into_iter().filter_map(|command| {
        let keys = app.settings.keymap.keys(command).iter().join(" ");
        let keys = (!keys.is_empty()).then(|| format!("{keys:>18}  "))?;
        Some(Line::from(vec![Span::styled(keys, theme.key()), Span::raw(command.does())]))
    });
    let causes = bars::legend(|cause| causes::shown(cause).words, &[1.0; CAUSES], theme).concat();
    let is_shown = |column: &Column| ListKind::ALL.iter().any(|kind| kind.columns().contains(column));
    let columns = Column::all().filter(is_shown).flat_map(|column| {
        let title = Span::styled(format!(" {} {:>18}  ", column.key(), column.title()), theme.key());
        pane::hanging(title, wrapped(column.meaning(), cells.saturating_sub(24)), Style::new())
    });
    let states = wrapped(states::MEANING, cells).into_iter().map(Line::raw);
    let parts: [(&str, Lines); 4] = [
        ("Keys", keys.collect()),
        ("Parts of a bar: why a wait took as long as it did", vec![Line::from(causes)]),
        ("Columns, and the letters that sort by them", columns.collect()),
        ("States", states.collect()),
    ];
    let titled = |(title, lines)| [vec![Line::styled(title, theme.heading())], lines].concat();
    let of_replay = app.replay.is_some().then(|| replay::help(theme));
    let all: Vec<Lines> = of_replay.into_iter().chain(parts.map(titled)).collect();
    all.join(&[Line::raw("")][..])
}
