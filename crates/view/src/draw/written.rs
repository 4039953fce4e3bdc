//! A screen as text: for files, for pictures, and for tests.

use std::fmt::Write;

use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
};

use super::draw;
use crate::{app::App, theme::SIXTEEN};

/// Draws the screen of [`App::area`] as nobody sees it.
pub fn buffer(app: &App) -> Buffer {
    let area = app.area;
    let mut terminal = Terminal::new(TestBackend::new(area.width.max(1), area.height.max(1)))
        .unwrap_or_else(|never| match never {});
    let drawn = terminal.draw(|frame| draw(frame, app)).unwrap_or_else(|never| match never {});
    drawn.buffer.clone()
}

/// The rows of a screen, cell by cell; a cell that a wide letter takes besides its own is left out.
fn rows(buffer: &Buffer) -> impl Iterator<Item = Vec<&Cell>> {
    let width = usize::from(buffer.area.width).max(1);
    buffer.content.chunks(width).map(|row| {
        let mut cells = Vec::with_capacity(row.len());
        let mut at = 0;
        while let Some(cell) = row.get(at) {
            at += crate::width::width(cell.symbol()).max(1);
            cells.push(cell);
        }
        cells
    })
}

/// The letters alone, a line each, without blanks at its end.
pub fn plain(buffer: &Buffer) -> String {
    let mut out = String::new();
    for row in rows(buffer) {
        let line: String = row.into_iter().map(Cell::symbol).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// With the sequences of a terminal for colours and letters.
pub fn ansi(buffer: &Buffer) -> String {
    let mut out = String::new();
    for row in rows(buffer) {
        let mut style = String::new();
        for cell in row {
            let next = sequence(cell);
            if next != style {
                out.push_str("\x1b[0m");
                out.push_str(&next);
                style = next;
            }
            out.push_str(cell.symbol());
        }
        out.push_str("\x1b[0m\n");
    }
    out
}

fn sequence(cell: &Cell) -> String {
    let mut codes = String::new();
    let modifiers =
        [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::UNDERLINED, 4), (Modifier::REVERSED, 7)];
    for (modifier, code) in modifiers {
        if cell.modifier.contains(modifier) {
            // Writing to a String cannot fail.
            let _ = write!(codes, "\x1b[{code}m");
        }
    }
    for (colour, base) in [(cell.fg, 30), (cell.bg, 40)] {
        let code = match colour {
            Color::Indexed(n) => Some(format!("{};5;{n}", base + 8)),
            _ => named(colour)
                .map(|n| if n < 8 { (base + n).to_string() } else { (base + 52 + n).to_string() }),
        };
        if let Some(code) = code {
            let _ = write!(codes, "\x1b[{code}m");
        }
    }
    codes
}

/// The number of one of the sixteen colours.
pub(super) fn named(colour: Color) -> Option<u8> {
    SIXTEEN.iter().position(|named| *named == colour).map(|at| at as u8)
}
