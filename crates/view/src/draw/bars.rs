//! Bars, sparklines and shades.

use cgscope_model::CAUSES;
use ratatui::text::{Line, Span};

use crate::{causes, theme::Theme};

/// Eighths of a cell, from below.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Blanks after each part of a legend.
const GAP: usize = 2;

/// A count is never drawn as nothing.
pub fn length(count: u64, most: u64, cells: usize) -> usize {
    let length = (u128::from(count) * cells as u128 / u128::from(most.max(1))) as usize;
    length.max(usize::from(count != 0))
}

/// A bar in the colours of its causes; without colours, in their letters.
pub fn stacked(parts: &[f64; CAUSES], cells: usize, theme: Theme) -> Vec<Span<'static>> {
    let counts = causes::ORDER.into_iter().zip(causes::cells(parts, cells)).filter(|(_, count)| *count != 0);
    counts
        .map(|(cause, count)| {
            Span::styled(String::from_iter(vec![theme.sign(cause); count]), theme.cause(cause))
        })
        .collect()
}

/// What the parts of bars mean; only of causes that occur, if `parts` are given.
pub fn legend(parts: Option<&[f64; CAUSES]>, theme: Theme) -> Vec<Span<'static>> {
    legend_in(causes::words, parts, theme)
}

/// The same in as few cells as there are, if single words do.
pub fn legend_within(parts: &[f64; CAUSES], theme: Theme, cells: usize) -> Vec<Span<'static>> {
    let long = legend(Some(parts), theme);
    let fits = long.iter().map(Span::width).sum::<usize>() <= cells + GAP;
    if fits { long } else { legend_in(|cause| causes::shown(cause).word, Some(parts), theme) }
}

fn legend_in(
    words: fn(cgscope_model::Cause) -> &'static str,
    parts: Option<&[f64; CAUSES]>,
    theme: Theme,
) -> Vec<Span<'static>> {
    let occurs = |cause: &cgscope_model::Cause| parts.is_none_or(|parts| parts[*cause as usize] > 0.0);
    let signs = causes::ORDER.into_iter().filter(occurs).flat_map(|cause| {
        [
            Span::styled(theme.sign(cause).to_string(), theme.cause(cause)),
            Span::styled(format!(" {}  ", words(cause)), theme.quiet()),
        ]
    });
    signs.collect()
}

/// The same in lines of at most so many cells.
pub fn legend_lines(parts: &[f64; CAUSES], theme: Theme, cells: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for named in legend(Some(parts), theme).chunks(2) {
        let width: usize = named.iter().map(Span::width).sum();
        match lines.last_mut() {
            // The blanks at its end may be cut.
            Some(line) if line.width() + width <= cells + GAP => line.spans.extend_from_slice(named),
            _ => lines.push(Line::from(named.to_vec())),
        }
    }
    for last in lines.iter_mut().filter_map(|line| line.spans.last_mut()) {
        last.content = last.content.trim_end().to_owned().into();
    }
    lines
}

/// The latest values as a line, each in a cell, the latest last; `most` fills its cell. What is not known is a blank.
pub fn sparkline(values: &[Option<f64>], most: f64, cells: usize) -> String {
    let latest = &values[values.len().saturating_sub(cells)..];
    let blank = std::iter::repeat_n(' ', cells - latest.len());
    blank.chain(latest.iter().map(|value| eighth(*value, most))).collect()
}

fn eighth(value: Option<f64>, most: f64) -> char {
    let Some(value) = value else { return ' ' };
    let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    // What is known has at least a line below it.
    EIGHTHS[((share * 8.0).ceil() as usize).clamp(1, 8)]
}

/// A share as a bar: full cells and a last one in eighths.
pub fn share(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    // Eighths from the left.
    const LEFT: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let full = eighths / 8;
    let mut bar = "█".repeat(full);
    if !eighths.is_multiple_of(8) {
        bar.push(LEFT[eighths % 8]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{causes::proportional, theme::Colours};

    #[test]
    fn the_longest_bar_fills_the_width_and_the_shortest_is_seen() {
        assert_eq!(length(1_000_000, 1_000_000, 10), 10);
        assert_eq!(length(1, 1_000_000, 10), 1);
        assert_eq!(length(0, 1_000_000, 10), 0);
    }

    #[test]
    fn parts_of_a_bar_are_told_apart_without_colours() {
        let text = |theme| {
            let mut parts = [0.0; CAUSES];
            (parts[0], parts[1]) = (3.0, 1.0);
            let spans = stacked(&parts, 4, theme);
            spans.iter().map(|span| span.content.as_ref()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(text(Theme::new(Colours::None)), "TTT|o");
        assert_eq!(text(Theme::new(Colours::Many)), "███|█");
    }

    #[test]
    fn parts_together_are_the_whole_whatever_they_are() {
        for cells in [0, 1, 7, 1_000] {
            for parts in [[1.0, 1.0, 1.0], [0.0, 1e-9, 5.0], [3.0, 0.0, 0.0]] {
                assert_eq!(proportional(parts, cells).iter().sum::<usize>(), cells);
            }
        }
        assert_eq!(proportional([1.0, 3.0], 8), [2, 6]);
        assert_eq!(proportional([0.0, 0.0], 8), [0, 0]);
    }

    #[test]
    fn a_legend_takes_as_many_lines_as_it_needs() {
        let theme = Theme::new(Colours::None);
        let lines = |cells| {
            let lines = legend_lines(&[1.0; CAUSES], theme, cells);
            assert!(lines.iter().all(|line| line.to_string().trim_end().len() <= cells), "{lines:?}");
            lines.len()
        };
        assert_eq!([lines(110), lines(80), lines(60)], [1, 2, 2]);
    }

    #[test]
    fn a_sparkline_has_the_latest_last_and_nothing_where_nothing_is_known() {
        assert_eq!(sparkline(&[Some(0.0), None, Some(50.0), Some(100.0)], 100.0, 6), "  ▁ ▄█");
        assert_eq!(sparkline(&[Some(1.0), Some(2.0)], 2.0, 1), "█");
        assert_eq!(sparkline(&[Some(0.0)], 0.0, 1), "▁");
    }

    #[test]
    fn a_share_has_eighths() {
        assert_eq!([share(0.5, 3), share(1.0, 2), share(0.0, 2), share(7.0, 1)], ["█▌", "██", "", "█"]);
    }
}
