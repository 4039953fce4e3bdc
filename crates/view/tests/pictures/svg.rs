//! Draws a screen as an SVG picture. Text remains text; each run of text has the position of its first cell and the width of its
//! cells. Bars and shades are rectangles, so that everything is aligned in any monospaced font.

use std::fmt::Write;

use cgscope_view::{theme, width::width};
use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier, Style},
};

/// Width and height of a cell, in pixels. Characters of most monospaced fonts are 0.6 times as wide as the font size.
const CELL: (usize, usize) = (9, 19);
const LETTERS: usize = 15;
/// Distance from the top of a cell to the baseline of the text, in pixels.
const BASE: usize = 14;
const MARGIN: usize = 12;
/// A dark background, which looks the same on light and dark pages.
const GROUND: &str = "#14171c";
const TEXT: &str = "#d6d9de";

/// Returns the picture of a screen. `title` is for screen readers and must not contain `<` or `&`.
pub fn svg(buffer: &Buffer, title: &str) -> String {
    let cells = (usize::from(buffer.area.width).max(1), usize::from(buffer.area.height));
    let (wide, high) = (cells.0 * CELL.0 + 2 * MARGIN, cells.1 * CELL.1 + 2 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\" role=\"img\">\n\
         <title>{title}</title>\n\
         <style>text{{font:{LETTERS}px ui-monospace,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;white-space:pre}}\
         .b{{font-weight:bold}}.u{{text-decoration:underline}}</style>\n\
         <rect width=\"{wide}\" height=\"{high}\" rx=\"6\" fill=\"{GROUND}\"/>\n"
    );
    for (at, row) in buffer.content.chunks(cells.0).enumerate() {
        let top = MARGIN + at * CELL.1;
        let drawn: String = runs(row).iter().map(Run::drawn).collect();
        if !drawn.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "<g transform=\"translate({MARGIN} {top})\">{drawn}</g>");
        }
    }
    out.push_str("</svg>\n");
    out
}

struct Run {
    first: usize,
    cells: usize,
    letters: String,
    style: Style,
}

fn runs(row: &[Cell]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    while let Some(cell) = row.get(at) {
        let (letters, style) = (cell.symbol(), cell.style());
        let cells = width(letters).max(1);
        match runs.last_mut() {
            Some(last) if last.style == style && goes_on(&last.letters, letters) => {
                last.letters.push_str(letters);
                last.cells += cells;
            }
            _ => runs.push(Run { first: at, cells, letters: letters.to_owned(), style }),
        }
        // The second cell of a wide character is empty.
        at += cells;
    }
    runs
}

/// Returns whether a cell continues a run. A run of bars has equal signs. A run of text has only ASCII, because ASCII characters
/// have the same width in every monospaced font.
fn goes_on(before: &str, next: &str) -> bool {
    let same = before.chars().next() == next.chars().next();
    if area(next).is_some() { same } else { before.is_ascii() && next.is_ascii() }
}

impl Run {
    fn drawn(&self) -> String {
        let (left, wide) = (self.first * CELL.0, self.cells * CELL.0);
        let [fg, bg] = [self.style.fg, self.style.bg].map(|of| of.and_then(colour));
        let or = |colour: Option<String>, default: &str| colour.unwrap_or_else(|| default.to_owned());
        let (text, ground) = match self.has(Modifier::REVERSED) {
            true => (or(bg, GROUND), Some(or(fg, TEXT))),
            false => (or(fg, TEXT), bg),
        };
        let ground = ground.map(|ground| {
            format!("<rect x=\"{left}\" width=\"{wide}\" height=\"{}\" fill=\"{ground}\"/>", CELL.1)
        });
        let drawn = match area(&self.letters) {
            Some(area) => bar(area, left, self.cells, &text),
            None if self.letters.trim().is_empty() => String::new(),
            None => self.text(&text),
        };
        ground.unwrap_or_default() + &drawn
    }

    fn has(&self, modifier: Modifier) -> bool {
        self.style.add_modifier.contains(modifier)
    }

    fn text(&self, colour: &str) -> String {
        let class = match (self.has(Modifier::BOLD), self.has(Modifier::UNDERLINED)) {
            (false, false) => "",
            (true, false) => " class=\"b\"",
            (false, true) => " class=\"u\"",
            (true, true) => " class=\"b u\"",
        };
        let dim = if self.has(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
        let piece = |(first, shown): (usize, &str)| {
            let (left, length) = ((self.first + first) * CELL.0, width(shown) * CELL.0);
            let letters = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            format!(
                "<text x=\"{left}\" y=\"{BASE}\" textLength=\"{length}\" fill=\"{colour}\"{class}{dim}>{letters}</text>"
            )
        };
        pieces(&self.letters).map(piece).collect()
    }
}

/// Splits a text where it has two or more blanks. Returns each part with the position of its first letter. Some viewers draw
/// several blanks as one, so each part needs its own position. Only ASCII text contains blanks.
fn pieces(letters: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    letters.split("  ").filter_map(move |part| {
        let shown = part.trim_start();
        let first = at + part.len() - shown.len();
        at += part.len() + 2;
        let shown = shown.trim_end();
        (!shown.is_empty()).then_some((first, shown))
    })
}

/// The part of a cell that a bar's sign fills: width and height in eighths of the cell, and the opacity in percent.
type Area = (usize, usize, usize);

fn area(letters: &str) -> Option<Area> {
    let sign = letters.chars().next()? as usize;
    Some(match sign {
        0x2581..=0x2588 => (8, sign - 0x2580, 100),
        0x2589..=0x258f => (0x2590 - sign, 8, 100),
        0x2591..=0x2593 => (8, 8, (sign - 0x2590) * 25),
        _ => return None,
    })
}

fn bar((wide, high, percent): Area, left: usize, cells: usize, colour: &str) -> String {
    let shade = if percent == 100 { String::new() } else { format!(" opacity=\"0.{percent}\"") };
    // Leave one pixel between rows, so that bars in adjacent rows stay separate.
    let full = (CELL.1 - 1) * 8;
    let (top, tall) = (full * (8 - high) / 64, full * high / 64);
    // Each sign that fills a part of its cell is a rectangle. A run of full cells is one rectangle.
    let (pieces, piece) = if wide == 8 { (1, cells * CELL.0 * 8) } else { (cells, CELL.0 * wide) };
    let rect = |n: usize| {
        let (left, wide) = (left + n * CELL.0, piece as f64 / 8.0);
        format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{tall}\" fill=\"{colour}\"{shade}/>"
        )
    };
    (0..pieces).map(rect).collect()
}

/// Returns a colour as most terminals define it; `None` for the terminal's default colour.
fn colour(colour: Color) -> Option<String> {
    const SIXTEEN: [&str; 16] = [
        "#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5", "#666666",
        "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
    ];
    let index = match colour {
        Color::Reset => return None,
        Color::Rgb(r, g, b) => return Some(format!("#{r:02x}{g:02x}{b:02x}")),
        Color::Indexed(index) => index,
        named => theme::SIXTEEN.iter().position(|one| *one == named)? as u8,
    };
    // The 6 x 6 x 6 colour cube and the greys of xterm.
    let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
    Some(match index {
        0..16 => SIXTEEN[usize::from(index)].to_owned(),
        16..232 => {
            let n = index - 16;
            format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        232.. => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (index - 232)),
    })
}

#[cfg(test)]
mod tests {
    use ratatui::{layout::Rect, style::Style};

    use super::*;

    fn drawn(text: &str, style: Style) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 1));
        buffer.set_string(0, 0, text, style);
        svg(&buffer, "a test").lines().find(|line| line.starts_with("<g")).unwrap_or_default().to_owned()
    }

    #[test]
    fn letters_are_text_at_the_position_of_their_cell() {
        let row = drawn("  a <b>  ", Style::new().fg(Color::Indexed(74)).add_modifier(Modifier::BOLD));
        assert!(
            row.contains(
                "<text x=\"18\" y=\"14\" textLength=\"45\" fill=\"#5fafd7\" class=\"b\">a &lt;b&gt;</text>"
            ),
            "{row}"
        );
    }

    #[test]
    fn every_column_has_its_own_position() {
        let row = drawn("a   b c  d", Style::new());
        let texts = [(0, 9, "a"), (36, 27, "b c"), (81, 9, "d")];
        for (left, length, letters) in texts {
            let text = format!(
                "<text x=\"{left}\" y=\"14\" textLength=\"{length}\" fill=\"{TEXT}\">{letters}</text>"
            );
            assert!(row.contains(&text), "{row}");
        }
    }

    #[test]
    fn text_after_a_wide_letter_starts_two_cells_later() {
        let row = drawn("語x", Style::new());
        assert!(
            row.contains("textLength=\"18\"") && row.contains("<text x=\"18\" y=\"14\" textLength=\"9\""),
            "{row}"
        );
    }

    #[test]
    fn bars_are_rectangles_of_whole_and_partial_cells() {
        let row = drawn("███▌", Style::new());
        let whole = "<rect x=\"0\" y=\"0\" width=\"27\" height=\"18\"";
        assert!(row.contains(whole) && row.contains("<rect x=\"27\" y=\"0\" width=\"4.5\""), "{row}");
        let row = drawn("▂░", Style::new());
        assert!(
            row.contains("y=\"13\" width=\"9\" height=\"4\"") && row.contains("opacity=\"0.25\""),
            "{row}"
        );
    }

    #[test]
    fn reversed_text_has_the_background_as_its_colour() {
        let row = drawn("x", Style::new().add_modifier(Modifier::REVERSED));
        assert!(row.contains(&format!("fill=\"{TEXT}\"/><text")) && row.contains(GROUND), "{row}");
    }

    #[test]
    fn an_empty_screen_is_a_picture() {
        assert!(svg(&Buffer::empty(Rect::new(0, 0, 0, 0)), "nothing").ends_with("</svg>\n"));
    }
}
