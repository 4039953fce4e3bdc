//! Findings as lines of the screen.

use cgscope_model::Finding;

use super::prelude::*;
use crate::names;

/// Minimum height of the screen for advice below each finding.
const ROOMY: u16 = 32;

/// Maximum lines of all findings on a screen of this height, and of the words of one finding.
fn most(app: &App) -> (usize, usize) {
    match app.area.height {
        0..20 => (2, 2),
        20..32 => (5, 2),
        32..50 => (8, 4),
        _ => (12, 4),
    }
}

/// Findings, worst first, each with its advice if there is enough space. A finding's advice comes before the next finding.
pub fn lines(app: &App, area: Rect) -> Lines {
    let Some(data) = &app.data else { return Vec::new() };
    let (theme, (most, most_words)) = (app.theme, most(app));
    let cells = usize::from(area.width).saturating_sub(2);
    if data.findings.is_empty() {
        let words = cut_end("nothing is past a threshold: no quota, neighbour or queue that matters", cells);
        return pane::hanging(Span::styled("✓ ", theme.busy()), vec![words], theme.quiet());
    }
    let mut lines: Lines = Vec::new();
    let count = data.findings.len();
    for (at, finding) in data.findings.iter().enumerate() {
        // The count is part of the first finding, which is always shown.
        let of = if at == 0 && count > 1 { format!("1/{count} ") } else { String::new() };
        let says = fitted(&format!("{of}{}", finding.says), cells, most_words);
        let left = most - lines.len();
        if left == 0 {
            break;
        }
        // The last finding that fits may be cut.
        let says = if says.len() > left { fitted(&finding.says, cells, left) } else { says };
        lines.extend(pane::hanging(Span::styled("! ", theme.alarm()), says, theme.heading()));
        let left = most - lines.len();
        // If space is short, other findings are more useful than long advice, which the Findings view shows.
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

/// All findings, each with its advice.
pub fn all(app: &App, area: Rect) -> Lines {
    let Some(data) = &app.data else { return Vec::new() };
    let (theme, cells) = (app.theme, usize::from(area.width).saturating_sub(5));
    if data.findings.is_empty() {
        return vec![Line::styled("nothing is past a threshold", theme.quiet())];
    }
    let one = |(at, finding): (usize, &Finding)| {
        let mark = Span::styled(format!("{:>3}. ", at + 1), theme.alarm());
        let mut lines = pane::hanging(mark, wrapped(&finding.says, cells), theme.heading());
        let advice = wrapped(&format!("→ {}", finding.advice), cells);
        lines.extend(advice.into_iter().map(|words| Line::raw(format!("     {words}"))));
        lines.push(Line::raw(""));
        lines
    };
    data.findings.iter().enumerate().flat_map(one).collect()
}

/// A sentence in at most `most` lines. A mark shows where it is cut.
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
