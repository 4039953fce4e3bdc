//! What is wrong, in words.

use ratatui::{
    layout::Rect,
    text::{Line, Span},
};

use super::layout;
use crate::{
    app::App,
    names,
    theme::Theme,
    width::{cut_end, wrapped},
};

/// From this height on there is room for advice beside other findings.
const ROOMY: u16 = 32;

/// Lines for findings on a screen of this height, at most; and of them for the words of one.
fn most(app: &App) -> (usize, usize) {
    match app.area.height {
        0..20 => (2, 2),
        20..32 => (5, 2),
        32..50 => (8, 4),
        _ => (12, 4),
    }
}

/// Lines that they take.
pub fn height(app: &App, body: Rect) -> u16 {
    lines(app, body).len() as u16
}

/// The worst first, each with what to do about it where there is room: the advice for the worst before the next one.
pub fn lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let Some(data) = &app.data else { return Vec::new() };
    let (theme, (most, most_words)) = (app.theme, most(app));
    let cells = usize::from(area.width).saturating_sub(2);
    if data.findings.is_empty() {
        let words = cut_end("nothing is past a threshold: no quota, neighbour or queue that matters", cells);
        return vec![Line::from(vec![Span::styled("✓ ", theme.busy()), Span::styled(words, theme.quiet())])];
    }
    let mut lines: Vec<Line<'static>> = Vec::new();
    let count = data.findings.len();
    for (at, finding) in data.findings.iter().enumerate() {
        // The count is with the first, where it is never left out.
        let of = if at == 0 && count > 1 { format!("1/{count} ") } else { String::new() };
        let says = fitted(&format!("{of}{}", finding.says), cells, most_words);
        let left = most - lines.len();
        if left == 0 {
            break;
        }
        // The last one that fits may be cut.
        let says = if says.len() > left { fitted(&finding.says, cells, left) } else { says };
        lines.extend(marked(theme, "! ", says));
        let left = most - lines.len();
        // Where not all fit, what else is wrong is worth more than all of the advice, which is a key away.
        let most_advice = match app.area.height {
            ROOMY.. => 2,
            _ if count == 1 => 2,
            _ => usize::from(at == 0),
        };
        if layout::is_tall(app) && left != 0 && most_advice != 0 {
            let advice = fitted(&format!("→ {}", finding.advice), cells, left.min(most_advice));
            lines.extend(advice.into_iter().map(|words| Line::styled(format!("  {words}"), theme.quiet())));
        }
    }
    lines
}

/// All of them, each with what to do about it.
pub fn all(app: &App, area: Rect) -> Vec<Line<'static>> {
    let Some(data) = &app.data else { return Vec::new() };
    let (theme, cells) = (app.theme, usize::from(area.width).saturating_sub(5));
    let mut lines = Vec::new();
    for (at, finding) in data.findings.iter().enumerate() {
        lines.extend(marked(theme, &format!("{:>3}. ", at + 1), wrapped(&finding.says, cells)));
        let advice = wrapped(&format!("→ {}", finding.advice), cells);
        lines.extend(advice.into_iter().map(|words| Line::raw(format!("     {words}"))));
        lines.push(Line::raw(""));
    }
    if lines.is_empty() {
        lines.push(Line::styled("nothing is past a threshold", theme.quiet()));
    }
    lines
}

/// The lines of a sentence, with a mark before the first.
pub fn marked(theme: Theme, mark: &str, words: Vec<String>) -> impl Iterator<Item = Line<'static>> {
    let indent = " ".repeat(mark.len());
    words.into_iter().enumerate().map(move |(at, words)| {
        let mark = if at == 0 { mark } else { &indent };
        Line::from(vec![Span::styled(mark.to_owned(), theme.alarm()), Span::styled(words, theme.heading())])
    })
}

/// A sentence in at most `most` lines, with a mark where something is cut away.
fn fitted(text: &str, cells: usize, most: usize) -> Vec<String> {
    let mut lines = wrapped(&names::short(text), cells);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = cut_end(&format!("{last} …"), cells);
        }
    }
    lines
}
