//! The matrix of victims and culprits.

use std::collections::BTreeMap;

use cgscope_model::{Blame, Names, pairs::Culprit};

use crate::draw::{bars::SHADES, pane::a_second, prelude::*};

/// Width of a duration, in cells.
pub const FIGURE: usize = 7;
/// Minimum width of a column, in cells: a shade and a duration. The blank after the column takes one more cell.
const NARROW: usize = FIGURE + 1;
/// Maximum width of a column, in cells.
const WIDE: usize = 20;
/// Number of blanks between the list and the matrix.
const GAP: usize = 2;
/// Minimum width of a column for a name after its letter, in cells.
const NAMED: usize = 13;
/// Maximum number of columns: one for each letter.
const MOST: usize = 26;
/// Maximum width of a shade, in cells.
const SHADE: usize = 3;

/// Identifies a culprit: its cgroup, and its task if tasks are recorded separately.
pub type Id = (u64, u32);
/// Time waited behind each culprit, ns, and the index of the culprit's first pair.
pub type Behind = BTreeMap<Id, (u64, usize)>;

/// The culprits of the victims on the screen.
pub struct Matrix {
    /// The victim of each row: an index into the nodes of the tree.
    victims: Vec<usize>,
    /// For each row, the time waited behind each column, ns. The last entry is the time behind all other culprits.
    rows: Vec<Vec<u64>>,
    /// The columns, worst first.
    pub columns: Vec<(Id, Culprit)>,
    /// Whether some culprits have no column.
    has_others: bool,
    /// Width of a column, in cells.
    cells: usize,
    /// The largest time in any column, ns.
    most_ns: u64,
}

/// The culprits of a cgroup and all cgroups below it, with the times waited behind them.
pub fn behind(data: &Data, node: usize) -> Behind {
    let mut sums = Behind::new();
    for at in data.tree.pairs_below(node) {
        let pair = &data.interval.pairs[at];
        if pair.blame == Blame::Ran {
            let sum = sums.entry((pair.culprit, pair.tid)).or_insert((0, at));
            sum.0 = sum.0.saturating_add(pair.ns);
        }
    }
    sums
}

impl Matrix {
    /// The matrix for the rows of the list on the screen, to be drawn in this region.
    pub fn new(app: &App, data: &Data, area: Rect) -> Self {
        let victims: Vec<usize> = app
            .shown(area.height.saturating_sub(1).into())
            .filter_map(|(_, row)| match row.at.subject(data)? {
                Subject::Cgroup(node) => data.tree.find(&node.path),
                _ => None,
            })
            .collect();
        let waited: Vec<Behind> = victims.iter().map(|node| behind(data, *node)).collect();
        let mut columns = ranked(data, &victims, &waited);
        let width = usize::from(area.width).saturating_sub(GAP);
        let room = (width / (NARROW + 1)).min(MOST + 1);
        let has_others = columns.len() > room.min(MOST);
        if has_others {
            columns.truncate(room.saturating_sub(1));
        }
        let count = columns.len();
        let row = |behind: &Behind| {
            let ns_of = |(id, _): &(Id, Culprit)| behind.get(id).map_or(0, |(ns, _)| *ns);
            let mut row: Vec<u64> = columns.iter().map(ns_of).collect();
            let known = row.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
            let all = behind.values().fold(0u64, |sum, (ns, _)| sum.saturating_add(*ns));
            row.push(all.saturating_sub(known));
            row
        };
        let rows: Vec<Vec<u64>> = waited.iter().map(row).collect();
        let drawn = (count + usize::from(has_others)).max(1);
        let cells = (width / drawn).saturating_sub(1).clamp(NARROW, WIDE);
        let most_ns = rows.iter().flat_map(|row| &row[..count]).copied().max().unwrap_or(0);
        Self { victims, rows, columns, has_others, cells, most_ns }
    }

    fn heading(&self, theme: Theme, names: &Names) -> Line<'static> {
        let mut spans = vec![Span::raw(" ".repeat(GAP))];
        for (at, (_, culprit)) in self.columns.iter().enumerate() {
            let name = match letter(at) {
                letter if self.cells >= NAMED => format!("{letter} {}", short_name(names, culprit)),
                letter => letter.into(),
            };
            spans.push(Span::styled(right(&name, self.cells) + " ", theme.heading()));
        }
        if self.has_others {
            spans.push(Span::styled(right("others", self.cells), theme.heading()));
        }
        Line::from(spans)
    }

    /// A cell of the matrix: blanks, a shade and a figure.
    fn cell(&self, theme: Theme, data: &Data, row: usize, column: usize, style: Style) -> [Span<'static>; 4] {
        let ns = self.rows[row][column];
        let victim = &data.tree.nodes()[self.victims[row]].path;
        let shade_style = theme.cause(cause(&self.columns[column].1, victim));
        let shades = if ns == 0 { 0 } else { (self.cells - FIGURE).min(SHADE) };
        let shade = SHADES[(u128::from(ns) * 4 / u128::from(self.most_ns.max(1))).min(3) as usize];
        let is_large = u128::from(ns) * 2 >= u128::from(self.most_ns);
        let figure = match ns {
            0 => style.patch(theme.quiet()),
            _ if is_large => style.add_modifier(Modifier::BOLD),
            _ => style,
        };
        [
            Span::styled(" ".repeat(self.cells - FIGURE - shades), style),
            bars::repeated(shade, shades, shade_style),
            Span::styled(right(&some_a_second(data, ns), FIGURE), figure),
            Span::styled(" ", style),
        ]
    }

    pub fn letter(&self, id: Id) -> Option<char> {
        self.columns.iter().position(|(column, _)| *column == id).map(letter)
    }
}

/// The cause of a wait of this victim behind this culprit.
pub fn cause(culprit: &Culprit, victim: &str) -> Cause {
    match &culprit.path {
        _ if culprit.kernel => Cause::Kernel,
        Some(path) if **path == *victim => Cause::OwnCgroup,
        _ => Cause::OtherCgroup,
    }
}

pub fn letter(column: usize) -> char {
    char::from(b'A' + (column % MOST) as u8)
}

/// The culprits of these victims, worst first. If a cgroup below a victim has its own row, its waits count only there.
fn ranked(data: &Data, victims: &[usize], waited: &[Behind]) -> Vec<(Id, Culprit)> {
    let has_others_below = |node: usize| {
        let below = data.tree.below(node);
        victims.iter().any(|other| *other != node && below.contains(other))
    };
    // Rows without other rows below them come first, because they decide which pair stands for a culprit.
    let (counted, repeated): (Vec<_>, Vec<_>) =
        victims.iter().zip(waited).partition(|(node, _)| !has_others_below(**node));
    let mut sums = Behind::new();
    for (rows, counts) in [(counted, 1), (repeated, 0)] {
        for (id, (ns, pair)) in rows.into_iter().flat_map(|(_, behind)| behind) {
            let sum = sums.entry(*id).or_insert((0, *pair));
            sum.0 = sum.0.saturating_add(ns * counts);
        }
    }
    let mut ranked: Vec<(Id, (u64, usize))> = sums.into_iter().collect();
    ranked.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(&b.0)));
    let interval = &data.interval;
    let ranked = ranked.into_iter().take(2 * MOST);
    ranked.map(|(id, (ns, pair))| (id, Culprit { ns, ..interval.culprit(&interval.pairs[pair]) })).collect()
}

pub fn lines(app: &App, area: Rect) -> Lines {
    let Some(data) = app.data.as_ref().filter(|_| usize::from(area.width) > GAP + NARROW) else {
        return Vec::new();
    };
    let theme = app.theme;
    let matrix = Matrix::new(app, data, area);
    let mut lines = vec![matrix.heading(theme, &data.interval.names)];
    lines.extend(matrix.rows.iter().enumerate().map(|(at, row)| {
        let style = if app.first_row + at == app.selected { theme.selected() } else { Style::new() };
        let mut spans = vec![Span::styled(" ".repeat(GAP), style)];
        for column in 0..matrix.columns.len() {
            spans.extend(matrix.cell(theme, data, at, column, style));
        }
        if let Some(others) = row.last().filter(|_| matrix.has_others) {
            spans.push(Span::styled(right(&some_a_second(data, *others), matrix.cells), style));
        }
        Line::from(spans)
    }));
    lines
}

/// Converts a time in the interval to time per second; `-` for 0.
fn some_a_second(data: &Data, ns: u64) -> String {
    if ns == 0 { "-".into() } else { a_second(&data.interval, ns) }
}

/// A short name of a culprit: its task, or the last part of its path.
pub fn short_name(names: &Names, culprit: &Culprit) -> String {
    match (&culprit.task, &culprit.path) {
        (Some((_, comm)), _) => comm.to_string(),
        (None, Some(path)) => names.leaf(path).into(),
        (None, None) if culprit.kernel => "kernel".into(),
        (None, None) => UNNAMED.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cgscope_ledger::history::KERNEL;
    use cgscope_model::{PairReading, findings::Host};

    use super::*;

    fn pair(victim: u64, culprit: u64, ns: u64) -> PairReading {
        PairReading { victim, culprit, blame: Blame::Ran, tid: 0, comm: "".into(), ns }
    }

    fn data() -> Data {
        let limited = PairReading { blame: Blame::Limited, ..pair(2, 2, 900) };
        let interval = Interval {
            duration_ns: 1_000_000_000,
            cgroups: vec![(1, "/".into()), (2, "/a".into()), (3, "/a/b".into()), (4, "/c".into())],
            pairs: vec![limited, pair(2, 4, 10), pair(3, 4, 5), pair(3, KERNEL, 40), pair(4, 3, 30)],
            ..Interval::default()
        };
        Data::new(Arc::new(interval), &Host::default())
    }

    #[test]
    fn a_victim_includes_the_culprits_of_cgroups_below_it() {
        let data = data();
        let of = |path: &str| -> Vec<(u64, u64)> {
            let sums = behind(&data, data.tree.find(path).unwrap());
            sums.into_iter().map(|((culprit, _), (ns, _))| (culprit, ns)).collect()
        };
        assert_eq!(of("/a/b"), {
            let mut all = vec![(4, 5), (KERNEL, 40)];
            all.sort_unstable();
            all
        });
        assert_eq!(
            of("/a"),
            {
                let mut all = vec![(4, 15), (KERNEL, 40)];
                all.sort_unstable();
                all
            },
            "quotas are not culprits"
        );
        assert_eq!(of("/c"), [(3, 30)]);
    }

    #[test]
    fn waits_behind_the_same_cgroup_and_behind_a_neighbour_differ() {
        let culprit =
            |path: Option<&str>, kernel| Culprit { path: path.map(Into::into), kernel, ..Culprit::default() };
        assert_eq!(cause(&culprit(Some("/a"), false), "/a"), Cause::OwnCgroup);
        assert_eq!(cause(&culprit(Some("/a/b"), false), "/a"), Cause::OtherCgroup);
        assert_eq!(cause(&culprit(None, true), "/a"), Cause::Kernel);
    }

    #[test]
    fn a_culprit_has_a_short_name() {
        let of = |path: Option<&str>, kernel, task: Option<(u32, &str)>| {
            let task = task.map(|(tid, comm)| (tid, comm.into()));
            short_name(
                &Names::default(),
                &Culprit { path: path.map(Into::into), kernel, task, ..Culprit::default() },
            )
        };
        assert_eq!(of(Some("/a/web.service"), false, None), "web.service");
        assert_eq!(of(Some("/"), false, None), "/");
        assert_eq!(of(Some("/a"), false, Some((7, "cc1"))), "cc1");
        assert_eq!(of(None, true, None), "kernel");
        assert_eq!(of(None, false, None), UNNAMED);
    }

    #[test]
    fn the_worst_culprit_on_the_screen_is_first_and_no_wait_counts_twice() {
        let data = data();
        let ranked_of = |paths: &[&str]| -> Vec<(u64, u64)> {
            let nodes: Vec<usize> = paths.iter().map(|path| data.tree.find(path).unwrap()).collect();
            let waited: Vec<Behind> = nodes.iter().map(|node| behind(&data, *node)).collect();
            ranked(&data, &nodes, &waited).into_iter().map(|((id, _), culprit)| (id, culprit.ns)).collect()
        };
        assert_eq!(ranked_of(&["/c"]), [(3, 30)]);
        assert_eq!(ranked_of(&["/a", "/a/b", "/c"]), [(KERNEL, 40), (3, 30), (4, 5)]);
        assert_eq!(ranked_of(&["/"])[0], (KERNEL, 40));
    }
}
