//! Which quota would have been enough for a cgroup. The simulator writes the text.

use super::prelude::*;
use crate::keys::Command;

/// Cells by which the rest of a long line is indented.
const INDENT: usize = 4;

/// All lines, each at most as wide as the area.
pub fn lines(app: &App, area: Rect) -> Lines {
    let (theme, cells) = (app.theme, usize::from(area.width));
    let Some(enough) = &app.enough else {
        let key = app.settings.keymap.first(Command::WhatIf).unwrap_or_default();
        let words = format!("select a cgroup with a quota in another view, then press {key}");
        return vec![Line::styled(cut_end(&words, cells), theme.quiet())];
    };
    let title = format!("What would have been enough for {}", enough.title);
    let mut lines = vec![Line::styled(cut_end(&title, cells), theme.heading())];
    if enough.lines.is_empty() {
        lines.push(Line::styled("collecting what it needs ...", theme.quiet()));
    }
    lines.extend(enough.lines.iter().flat_map(|text| fitted(text, cells)));
    lines
}

/// A line of text, wrapped if it is too long.
fn fitted(text: &str, cells: usize) -> Lines {
    if width(text) <= cells {
        return vec![Line::raw(text.to_owned())];
    }
    let words = text.trim_start();
    let first = text.len() - words.len();
    let indents = std::iter::once(first).chain(std::iter::repeat(INDENT));
    let wrapped = wrapped(words, cells.saturating_sub(INDENT.max(first)));
    indents.zip(wrapped).map(|(indent, words)| Line::raw(" ".repeat(indent) + &words)).collect()
}
