//! Findings as lines of the screen.

use cgscope_model::Finding;

use super::prelude::*;
use crate::width;

/// Number of intervals for which the list keeps its position after a finding ended.
const STEADY: usize = 5;

/// Returns the findings, worst first. Each has a line about what happens and, on a tall screen, a line with one action.
pub fn lines(app: &App, area: Rect) -> Lines {
    let Some(data) = &app.data else { return Vec::new() };
    let theme = app.theme;
    let most = match app.area.height {
        0..20 => 2,
        20..32 => 6,
        32..50 => 8,
        _ => 12,
    };
    let cells = usize::from(area.width).saturating_sub(2);
    let per_finding = 1 + usize::from(layout::is_tall(app));
    let count = data.findings.len();
    let mut lines: Lines = Vec::new();
    if count == 0 {
        let words = cut_end("no finding: no quota, neighbour or queue is past its threshold", cells);
        lines = pane::hanging(Span::styled("✓ ", theme.busy()), vec![words], theme.quiet());
    }
    for (at, finding) in data.findings.iter().take(most / per_finding).enumerate() {
        let of = if at == 0 && count > 1 { format!("1/{count} ") } else { String::new() };
        let age = age(app, data, finding);
        let words = with_age(&width::short(&format!("{of}{}", finding.headline())), &age, cells);
        lines.extend(pane::hanging(Span::styled("! ", theme.alarm()), vec![words], theme.heading()));
        if per_finding > 1 {
            let action = cut_end(&width::short(&format!("→ {}", finding.action)), cells);
            lines.push(Line::styled(format!("  {action}"), theme.quiet()));
        }
    }
    // If the list moved up at once, a click could hit another row.
    let recent =
        app.history().frames.iter().rev().take(STEADY).map(|frame| frame.findings).max().unwrap_or(0);
    lines.resize((recent * per_finding).min(most).max(lines.len()), Line::raw(""));
    lines
}

/// Returns the age of a finding: `, for 9s now`. Empty in the first second.
fn age(app: &App, data: &Data, finding: &Finding) -> String {
    let seconds = app.history().age_ns(finding, &data.interval) / 1_000_000_000;
    match seconds {
        0 => String::new(),
        1..60 => format!(", for {seconds}s now"),
        _ => format!(", for {} now", duration(seconds * 1_000_000_000)),
    }
}

/// Returns a headline and its age in one line. If the line is too long, the age loses its `now`, then the headline loses its last
/// clauses. Figures are not cut, because a cut figure would be wrong. The first figure is more important than the age.
fn with_age(headline: &str, age: &str, cells: usize) -> String {
    if width(headline) + width(age) <= cells {
        return format!("{headline}{age}");
    }
    let age = age.trim_end_matches(" now");
    let within = |ends: &[&str], age: &str| {
        let cells = cells.saturating_sub(width(age));
        let parts = ends.iter().flat_map(|end| headline.match_indices(end)).map(|(at, _)| &headline[..at]);
        let fits = |part: &&str| (cells / 2..=cells).contains(&width(part));
        parts.chain([headline]).filter(fits).max_by_key(|part| part.len()).map(|part| format!("{part}{age}"))
    };
    let has_figure = |words: &String| words.contains(": ") || !headline.contains(": ");
    let after_figure = [", ", " ("];
    let found = within(&after_figure, age).filter(has_figure);
    found
        .or_else(|| within(&after_figure, "").filter(has_figure))
        .or_else(|| within(&[": ", ", ", " ("], age))
        .unwrap_or_else(|| format!("{}{age}", cut_end(headline, cells.saturating_sub(width(age)))))
}

pub fn all(app: &App, area: Rect) -> Lines {
    let Some(data) = &app.data else { return Vec::new() };
    let (theme, cells) = (app.theme, usize::from(area.width).saturating_sub(5));
    if data.findings.is_empty() {
        return vec![Line::styled("no figure is past a threshold", theme.quiet())];
    }
    let one = |(at, finding): (usize, &Finding)| {
        let mark = Span::styled(format!("{:>3}. ", at + 1), theme.alarm());
        let headline = finding.headline() + &age(app, data, finding);
        let mut lines = pane::hanging(mark, wrapped(&headline, cells), theme.heading());
        let details = [wrapped(&finding.says, cells), wrapped(&format!("→ {}", finding.advice), cells)];
        lines.extend(details.concat().into_iter().map(|words| Line::raw(format!("     {words}"))));
        lines.push(Line::raw(""));
        lines
    };
    data.findings.iter().enumerate().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::with_age;

    #[test]
    fn a_headline_keeps_its_first_figure_then_its_age() {
        let said = |cells| with_age("web waits: 9ms/s (56%)", ", for 10s now", cells);
        assert_eq!(said(35), "web waits: 9ms/s (56%), for 10s now");
        assert_eq!(said(34), "web waits: 9ms/s (56%), for 10s");
        assert_eq!(said(30), "web waits: 9ms/s, for 10s");
        assert_eq!(said(24), "web waits: 9ms/s (56%)");
        assert_eq!(said(21), "web waits: 9ms/s");
        assert_eq!(said(14), "web …, for 10s");
    }
}
