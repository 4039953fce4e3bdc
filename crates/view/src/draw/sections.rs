//! Parts of a pane that share its lines.

use ratatui::text::Line;

/// A part: what is said where there is little room, and what where there is more.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// At least this.
    pub short: Vec<Line<'static>>,
    /// Instead of it, where all other parts still have their short form.
    pub long: Vec<Line<'static>>,
}

impl Section {
    /// The same in any room.
    pub fn always(lines: Vec<Line<'static>>) -> Self {
        Self { short: lines.clone(), long: lines }
    }

    /// Left out where there is no room.
    pub fn if_room(lines: Vec<Line<'static>>) -> Self {
        Self { short: Vec::new(), long: lines }
    }
}

/// At most so many lines: the parts in their order, the first ones first in their long form. With an empty line between them
/// where even that fits.
pub fn fit(sections: Vec<Section>, room: usize) -> Vec<Line<'static>> {
    let mut used: usize = sections.iter().map(|section| section.short.len()).sum();
    let chosen: Vec<_> = sections
        .into_iter()
        .map(|Section { short, long }| {
            let with_long = used + long.len() - short.len().min(long.len());
            if with_long > room || long.len() < short.len() {
                return short;
            }
            used = with_long;
            long
        })
        .filter(|lines| !lines.is_empty())
        .collect();
    let is_airy = used + chosen.len().saturating_sub(1) <= room;
    let mut lines: Vec<Line<'static>> = Vec::with_capacity(room);
    for part in chosen {
        if is_airy && !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(part);
    }
    lines.truncate(room);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(short: &[&'static str], long: &[&'static str]) -> Section {
        let lines = |words: &[&'static str]| words.iter().map(|word| Line::raw(*word)).collect();
        Section { short: lines(short), long: lines(long) }
    }

    #[test]
    fn the_first_parts_grow_first_and_none_pushes_another_out() {
        let at = |room| {
            let parts =
                vec![section(&["a"], &["a", "A"]), section(&[], &["b"]), section(&["c"], &["c", "C", "CC"])];
            fit(parts, room).iter().map(|line| line.to_string()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(at(1), "a");
        assert_eq!(at(2), "a,c");
        assert_eq!(at(3), "a,A,c");
        assert_eq!(at(4), "a,A,b,c");
        assert_eq!(at(6), "a,A,b,c,C,CC");
        assert_eq!(at(8), "a,A,,b,,c,C,CC");
        assert_eq!(at(0), "");
    }
}
