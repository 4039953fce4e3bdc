//! A screen as text: for files, for pictures and for tests.

use crossterm::style::ContentStyle;
use ratatui::{
    Terminal,
    backend::{IntoCrossterm, TestBackend},
    buffer::{Buffer, Cell},
};

use super::draw;
use crate::app::App;

/// Draws the screen of [`App::area`] into memory.
pub fn buffer(app: &App) -> Buffer {
    let area = app.area;
    let mut terminal = Terminal::new(TestBackend::new(area.width.max(1), area.height.max(1)))
        .unwrap_or_else(|never| match never {});
    let drawn = terminal.draw(|frame| draw(frame, app)).unwrap_or_else(|never| match never {});
    drawn.buffer.clone()
}

/// The rows of a screen, cell by cell. The second cell of a wide character is skipped.
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

fn letters(cells: &[&Cell]) -> String {
    cells.iter().map(|cell| cell.symbol()).collect()
}

/// The plain text, one line per row, without trailing blanks.
pub fn plain(buffer: &Buffer) -> String {
    rows(buffer).map(|row| letters(&row).trim_end().to_owned() + "\n").collect()
}

/// The text with escape sequences for colours and styles.
pub fn ansi(buffer: &Buffer) -> String {
    let line = |row: Vec<&Cell>| {
        let runs = row.chunk_by(|a, b| a.style() == b.style()).map(|run| {
            let style: ContentStyle = run[0].style().into_crossterm();
            style.apply(letters(run)).to_string()
        });
        runs.collect::<String>() + "\n"
    };
    rows(buffer).map(line).collect()
}
