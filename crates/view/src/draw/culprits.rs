//! The tasks that made others wait: a matrix with a row for each victim and a column for each culprit, and the selected victim.

use std::{cmp::Reverse, collections::BTreeMap};

use cgscope_model::{Blame, Names, pairs::Culprit};

use super::{bars::SHADES, layout::Regions, prelude::*};

/// Minimum height of the pane for a legend.
const ROOMY: usize = 6;
/// Maximum number of culprits listed if there is little space.
const FEW: usize = 3;
/// Minimum share of the waiting for a verdict on a culprit's weight, percent. For a smaller share, the estimate is too rough.
const JUDGED: f64 = 10.0;
/// Minimum width of the pane for the CPU use and the limits of a culprit, in cells.
const SHOWS_USE: usize = 110;

pub fn lines(app: &App, regions: &Regions) -> Lines {
    if !app.is_exact() {
        let why = "coarse: /proc reports how long tasks waited, but not who ran then, so no culprit is known";
        return pane::quiet(app.theme, why, regions.pane.width.into());
    }
    let Some(pane) = Pane::new(app, regions.pane) else { return Vec::new() };
    let Pane { theme, data, interval, cells, room, .. } = pane;
    let Subject::Cgroup(node) = pane.subject else { return Vec::new() };
    let Some(at) = data.tree.find(&node.path) else { return Vec::new() };
    let matrix = Matrix::new(app, data, regions.beside);
    let victim = VictimPane { theme, data, interval, node, at, matrix, cells };
    pane.with_histogram(fit(victim.sections(room), room))
}

struct VictimPane<'a> {
    theme: Theme,
    data: &'a Data,
    interval: &'a Interval,
    node: &'a Node,
    at: usize,
    matrix: Matrix,
    cells: usize,
}

impl VictimPane<'_> {
    fn sections(&self, room: usize) -> Vec<Section> {
        let culprits = ranked(self.data, &[self.at], &[behind(self.data, self.at)]);
        let waited = |culprits: &[(Id, Culprit)]| sum::total(culprits.iter().map(|(_, culprit)| culprit.ns));
        let all = waited(&culprits);
        // If there are few lines, names of the worst culprits are more useful than a legend.
        let legend = if room < ROOMY { Vec::new() } else { self.legend(room / 2) };
        let list = |most: usize| -> Lines {
            // If only one more culprit is left, list it: a line with the number of further culprits would take the same space.
            let most = if culprits.len() == most + 1 { most + 1 } else { most };
            let shown = culprits.iter().take(most);
            let mut lines: Lines = shown.map(|(id, culprit)| self.culprit(*id, culprit, all)).collect();
            let more = culprits.get(most..).unwrap_or_default();
            if !more.is_empty() {
                let rest = right(&a_second(self.interval, waited(more)), FIGURE);
                lines.push(Line::styled(format!("  {rest} {} more", more.len()), self.theme.quiet()));
            }
            lines
        };
        let harms = culprits.first().and_then(|(id, culprit)| self.harms(*id, culprit));
        vec![
            Section { short: legend.iter().take(1).cloned().collect(), long: legend },
            Section::always(self.heading(all, room >= ROOMY)),
            Section { short: list(FEW), long: list((room / 2).max(FEW)) },
            Section::always(self.limits().into_iter().collect()),
            Section::if_room(harms.into_iter().collect()),
        ]
    }

    fn legend(&self, most: usize) -> Lines {
        let named = self.matrix.columns.iter().enumerate().map(|(at, (_, culprit))| {
            let name = cut_start(&culprit.words(&self.interval.names), (self.cells / 2).clamp(20, 60) - 4);
            [
                Span::styled(letter(at).to_string(), self.theme.heading()),
                Span::styled(format!(" {name}  "), self.theme.quiet()),
            ]
        });
        let mut lines = bars::flow(named, 0, self.cells.saturating_sub(2));
        lines.truncate(most);
        lines
    }

    /// Returns the heading: `/svc  waits behind others for 90.0ms a second, 45% of all its waiting`. May take two lines.
    fn heading(&self, all_ns: u64, may_break: bool) -> Lines {
        let share = percent(all_ns, self.node.group.wait.total_ns);
        let share = share.map(|share| format!(", {share:.0}% of all its waiting")).unwrap_or_default();
        let words = format!("waits behind others for {} a second{share}", a_second(self.interval, all_ns));
        let beside = self.cells.saturating_sub(width(&words) + 2).max(12);
        let room = if may_break { self.cells } else { beside };
        let path = cut_start(&self.interval.names.of(&self.node.path), room);
        let path = Span::styled(path, self.theme.heading());
        if !may_break || path.width() + 2 + width(&words) <= self.cells {
            return vec![Line::from(vec![path, Span::raw(format!("  {words}"))])];
        }
        vec![Line::from(path), Line::raw(cut_end(&words, self.cells))]
    }

    /// Returns the line of one culprit: `A 45.0ms  50% ██████ /build  uses 1.8 CPUs, weight 100`.
    fn culprit(&self, id: Id, culprit: &Culprit, all_ns: u64) -> Line<'static> {
        let share = percent(culprit.ns, all_ns).unwrap_or(0.0);
        let letter = self.matrix.letter(id).unwrap_or(' ');
        let bar = (self.cells / 5).clamp(6, 40);
        let style = self.theme.cause(cause(culprit, &self.node.path));
        let figures =
            format!("{letter} {} {share:>3.0}% ", right(&a_second(self.interval, culprit.ns), FIGURE));
        let room = self.cells.saturating_sub(width(&figures) + bar + 1);
        let uses = if self.cells >= SHOWS_USE { self.uses(id.0, culprit, share) } else { String::new() };
        let name = cut_start(&culprit.words(&self.interval.names), room.saturating_sub(width(&uses)).max(12));
        Line::from(vec![
            Span::raw(figures),
            Span::styled(left(&bars::share(share / 100.0, bar), bar + 1), style),
            Span::raw(name),
            Span::styled(uses, self.theme.quiet()),
        ])
    }

    /// Returns the part of the waiting beyond the culprit's weight, the CPU use of the culprit's cgroup, and the cgroup's limits.
    /// `share` is the culprit's share of the waiting, percent.
    fn uses(&self, id: u64, culprit: &Culprit, share: f64) -> String {
        let Some(at) = self.data.tree.find_id(self.interval, id) else { return String::new() };
        let node = &self.data.tree.nodes()[at];
        let limits = node.limits.map(|at| &self.interval.limits[at]);
        let mut of_victim = self.node.culprits.iter().filter(|_| share >= JUDGED);
        let of_victim = of_victim.find(|of| (&of.path, &of.task) == (&culprit.path, &culprit.task));
        let beyond = of_victim.and_then(|of| {
            let share = percent(of.beyond_ns?, of.ns)?;
            let beyond = || format!("{share:.0}% beyond its weight");
            Some(if of.is_beyond()? { beyond() } else { "within its weight".into() })
        });
        let facts = [
            beyond,
            cpus_used(node, self.data).map(|cores| format!("uses {}", units::cpus(cores))),
            limits.and_then(|limits| limits.weight).map(|weight| format!("weight {weight}")),
            limits.and_then(CgroupReading::quota_cores).map(|cores| format!("quota {}", units::cpus(cores))),
        ];
        let facts = facts.into_iter().flatten().join(", ");
        if facts.is_empty() { facts } else { format!("  {facts}") }
    }

    fn limits(&self) -> Option<Line<'static>> {
        let nodes = self.data.tree.nodes();
        let mut by = self.node.throttled_by.iter().take(FEW).map(|(at, ns)| {
            let name = causes::name_of(&self.interval.names, at.map(|at| &nodes[at].path));
            format!("{name} {}", a_second(self.interval, *ns))
        });
        let words = format!("quotas also held it back, per second: {}", by.join(", "));
        (!self.node.throttled_by.is_empty())
            .then(|| Line::styled(cut_end(&words, self.cells), self.theme.alarm()))
    }

    /// Returns a line with the other victims of the worst culprit.
    fn harms(&self, id: Id, culprit: &Culprit) -> Option<Line<'static>> {
        let (interval, tree) = (self.interval, &self.data.tree);
        let own = tree.below(self.at);
        let is_own = |victim| tree.find_id(interval, victim).is_some_and(|node| own.contains(&node));
        let pairs = interval.pairs.iter().filter(|pair| {
            pair.blame == Blame::Ran && (pair.culprit, pair.tid) == id && !is_own(pair.victim)
        });
        let mut victims: Vec<(u64, u64)> = pairs.map(|pair| (pair.ns, pair.victim)).collect();
        victims.sort_unstable_by(|a, b| b.cmp(a));
        let named = victims.iter().map(|(ns, victim)| {
            let name = causes::name_of(&interval.names, interval.cgroup_path(*victim));
            format!("{} {}", cut_start(&name, 40), a_second(self.interval, *ns))
        });
        let culprit = short_name(&interval.names, culprit);
        let words = format!("{culprit} also makes others wait: {}", listed(named, FEW));
        (!victims.is_empty()).then(|| Line::styled(cut_end(&words, self.cells), self.theme.quiet()))
    }
}

const FIGURE: usize = 7;
/// Minimum width of a column, in cells: a shade and a duration. The blank after the column is not included.
const NARROW: usize = FIGURE + 1;
const WIDE: usize = 20;
/// Number of blanks between the list and the matrix.
const GAP: usize = 2;
/// Minimum width of a column that shows a name after its letter, in cells.
const NAMED: usize = 13;
/// Maximum number of columns: one for each letter.
const MOST: usize = 26;
/// Maximum width of a shade, in cells.
const SHADE: usize = 3;

/// Identifies a culprit: its cgroup, and also its task if tasks are recorded separately.
type Id = (u64, u32);
/// Time waited behind each culprit, ns, and the index of the culprit's first pair.
type Behind = BTreeMap<Id, (u64, usize)>;

struct Matrix {
    /// The victim of each row: an index into the nodes of the tree.
    victims: Vec<usize>,
    /// For each row, the time waited behind each column's culprit, ns. The last entry is the time behind all other culprits.
    rows: Vec<Vec<u64>>,
    /// The columns, worst first.
    columns: Vec<(Id, Culprit)>,
    /// Whether some culprits have no column.
    has_others: bool,
    cells: usize,
    most_ns: u64,
}

fn behind(data: &Data, node: usize) -> Behind {
    let mut sums = Behind::new();
    for at in data.tree.pairs_below(node) {
        let pair = &data.interval.pairs[at];
        if pair.blame == Blame::Ran {
            sum::add(&mut sums.entry((pair.culprit, pair.tid)).or_insert((0, at)).0, pair.ns);
        }
    }
    sums
}

impl Matrix {
    fn new(app: &App, data: &Data, area: Rect) -> Self {
        let victims: Vec<usize> = app
            .shown(area.height.saturating_sub(1).into())
            .filter_map(|(_, row)| match data.subject(&row.key)? {
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
            let known = sum::total(row.iter().copied());
            let all = sum::total(behind.values().map(|(ns, _)| *ns));
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
        spans.extend(self.has_others.then(|| Span::styled(right("others", self.cells), theme.heading())));
        Line::from(spans)
    }

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

    fn letter(&self, id: Id) -> Option<char> {
        self.columns.iter().position(|(column, _)| *column == id).map(letter)
    }
}

fn cause(culprit: &Culprit, victim: &str) -> Cause {
    match &culprit.path {
        _ if culprit.kernel => Cause::Kernel,
        Some(path) if **path == *victim => Cause::OwnCgroup,
        _ => Cause::OtherCgroup,
    }
}

fn letter(column: usize) -> char {
    char::from(b'A' + (column % MOST) as u8)
}

/// Returns the culprits of these victims, worst first. A victim is not counted if another row shows one of its descendants.
fn ranked(data: &Data, victims: &[usize], waited: &[Behind]) -> Vec<(Id, Culprit)> {
    let has_others_below = |node: usize| {
        let below = data.tree.below(node);
        victims.iter().any(|other| *other != node && below.contains(other))
    };
    // Rows without a descendant in another row come first, because the first pair of a culprit represents the culprit.
    let (counted, repeated): (Vec<_>, Vec<_>) =
        victims.iter().zip(waited).partition(|(node, _)| !has_others_below(**node));
    let mut sums = Behind::new();
    for (rows, counts) in [(counted, 1), (repeated, 0)] {
        for (id, (ns, pair)) in rows.into_iter().flat_map(|(_, behind)| behind) {
            sum::add(&mut sums.entry(*id).or_insert((0, *pair)).0, ns * counts);
        }
    }
    // The sort is stable, so culprits with equal times stay sorted by id.
    let ranked = sums.into_iter().sorted_by_key(|(_, (ns, _))| Reverse(*ns));
    let culprit = |pair: usize| data.interval.culprit(&data.interval.pairs[pair]);
    ranked.map(|(id, (ns, pair))| (id, Culprit { ns, ..culprit(pair) })).collect()
}

pub fn matrix(app: &App, area: Rect) -> Lines {
    let Some(data) = app.data.as_ref().filter(|_| usize::from(area.width) > GAP + NARROW) else {
        return Vec::new();
    };
    let theme = app.theme;
    let matrix = Matrix::new(app, data, area);
    let mut lines = vec![matrix.heading(theme, &data.interval.names)];
    lines.extend(matrix.rows.iter().enumerate().map(|(at, row)| {
        let style = if app.first_row + at == app.selected { theme.selected() } else { Style::new() };
        let mut spans = vec![Span::styled(" ".repeat(GAP), style)];
        spans
            .extend((0..matrix.columns.len()).flat_map(|column| matrix.cell(theme, data, at, column, style)));
        let others = row.last().filter(|_| matrix.has_others).map(|ns| some_a_second(data, *ns));
        spans.extend(others.map(|others| Span::styled(right(&others, matrix.cells), style)));
        Line::from(spans)
    }));
    lines
}

fn some_a_second(data: &Data, ns: u64) -> String {
    if ns == 0 { "-".into() } else { a_second(&data.interval, ns) }
}

/// Returns a short name of a culprit: its task, or the last part of its path.
fn short_name(names: &Names, culprit: &Culprit) -> String {
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
