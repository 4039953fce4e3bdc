//! Bars, sparklines and legends.

use super::prelude::*;

/// Eighths of a cell, filled from the left.
const EIGHTHS_LEFT: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
pub const SHADES: [char; 4] = ['░', '▒', '▓', '█'];

/// A sign and its explanation, followed by two blanks.
type Explained = [Span<'static>; 2];

/// Returns a bar split by cause. The parts differ by colour, or by letter if there are no colours.
pub fn stacked(parts: &[f64; CAUSES], cells: usize, theme: Theme) -> Spans {
    let counts = causes::ORDER.into_iter().zip(causes::cells(parts, cells)).filter(|(_, count)| *count != 0);
    counts.map(|(cause, count)| repeated(theme.sign(cause), count, theme.cause(cause))).collect()
}

pub fn repeated(sign: char, count: usize, style: Style) -> Span<'static> {
    Span::styled(String::from_iter(std::iter::repeat_n(sign, count)), style)
}

pub fn legend(words: fn(Cause) -> &'static str, parts: &[f64; CAUSES], theme: Theme) -> Vec<Explained> {
    let signs = causes::ORDER.into_iter().filter(|cause| parts[*cause as usize] > 0.0).map(|cause| {
        [
            Span::styled(theme.sign(cause).to_string(), theme.cause(cause)),
            Span::styled(format!(" {}  ", words(cause)), theme.quiet()),
        ]
    });
    signs.collect()
}

/// Returns a legend in one line. Uses single words if the longer explanations do not fit.
pub fn legend_within(parts: &[f64; CAUSES], theme: Theme, cells: usize) -> Spans {
    let long = legend(|cause| causes::shown(cause).words, parts, theme).concat();
    // The two blanks at the end of the line can be cut.
    let fits = long.iter().map(Span::width).sum::<usize>() <= cells + 2;
    if fits { long } else { legend(|cause| causes::shown(cause).word, parts, theme).concat() }
}

pub fn legend_lines(parts: &[f64; CAUSES], theme: Theme, cells: usize) -> Lines {
    let mut lines = flow(legend(|cause| causes::shown(cause).words, parts, theme), 0, cells);
    lines.retain(|line| line.width() != 0);
    lines
}

/// Wraps signs and their explanations to lines of at most `cells` cells, without trailing blanks. Returns at least one line.
pub fn flow(all: impl IntoIterator<Item = Explained>, indent: usize, cells: usize) -> Lines {
    let empty = || Line::from(" ".repeat(indent));
    let mut lines = vec![empty()];
    for explained in all {
        let needed = explained[0].width() + width(explained[1].content.trim_end());
        let used = lines.last().map_or(0, Line::width);
        if used + needed > cells && used > indent {
            lines.push(empty());
        }
        lines.last_mut().expect("there is one from the start").spans.extend(explained);
    }
    for last in lines.iter_mut().filter(|line| line.spans.len() > 1).filter_map(|line| line.spans.last_mut())
    {
        last.content = last.content.trim_end().to_owned().into();
    }
    lines
}

/// Returns the latest values as a sparkline, newest last. The value `most` fills its cell. An unknown value is a blank.
pub fn sparkline(values: &[Option<f64>], most: f64, cells: usize) -> String {
    let latest = &values[values.len().saturating_sub(cells)..];
    let blank = std::iter::repeat_n(' ', cells - latest.len());
    blank.chain(latest.iter().map(|value| value.map_or(' ', |value| eighths(value, most)))).collect()
}

/// Returns a share as a bar with a resolution of an eighth of a cell.
pub fn share(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let rest = (!eighths.is_multiple_of(8)).then(|| EIGHTHS_LEFT[eighths % 8]);
    std::iter::repeat_n('█', eighths / 8).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{causes::proportional, theme::Colours};

    #[test]
    fn parts_of_a_bar_differ_without_colours() {
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
    fn parts_always_sum_to_the_width() {
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
        assert_eq!([lines(110), lines(80), lines(60)], [2, 3, 4]);
    }

    #[test]
    fn a_sparkline_has_the_latest_value_last_and_blanks_for_unknown_values() {
        assert_eq!(sparkline(&[Some(0.0), None, Some(50.0), Some(100.0)], 100.0, 6), "  ▁ ▄█");
        assert_eq!(sparkline(&[Some(1.0), Some(2.0)], 2.0, 1), "█");
        assert_eq!(sparkline(&[Some(0.0)], 0.0, 1), "▁");
    }

    #[test]
    fn a_share_is_drawn_in_eighths_of_a_cell() {
        assert_eq!([share(0.5, 3), share(1.0, 2), share(0.0, 2), share(7.0, 1)], ["█▌", "██", "", "█"]);
    }
}
