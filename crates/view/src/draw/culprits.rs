//! Who made whom wait: beside the list of victims a matrix with a column for each culprit, and below it all about the selected
//! victim.

pub mod matrix;

use cgscope_model::{
    Blame, CgroupReading, Mode,
    tree::Node,
    units::{self, per_second, percent},
};
use ratatui::{
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
};

use matrix::{FIGURE, Id, Matrix, a_second, behind, cause, letter, short_name};

use super::{
    bars,
    layout::Regions,
    pane,
    sections::{Section, fit},
};
use crate::{
    app::App,
    causes::{self, UNNAMED},
    data::Data,
    subject::Subject,
    theme::Theme,
    width::{cut_end, cut_start, left, right, width},
};

/// From so many lines on the pane has a legend.
const ROOMY: usize = 6;
/// Culprits of the selected victim that are told of where there is little room.
const FEW: usize = 3;
/// Cells of a line of the pane from which on it tells what a culprit uses.
const TELLS_USE: usize = 110;

/// The list of victims, and the matrix on its right.
pub fn split(area: Rect) -> [Rect; 2] {
    let list = (area.width * 2 / 5).clamp(34, 90);
    Layout::horizontal([Constraint::Length(list), Constraint::Fill(1)]).areas(area)
}

/// The pane of the selected victim.
pub fn lines(app: &App, regions: &Regions) -> Vec<Line<'static>> {
    let Some(data) = &app.data else { return Vec::new() };
    let (cells, room) = (usize::from(regions.pane.width), usize::from(regions.pane.height));
    if data.interval.mode == Mode::Coarse {
        let words =
            "coarse: /proc tells how long tasks waited, not who ran meanwhile, so there is nobody to name";
        return pane::quiet(app.theme, words, cells);
    }
    let Some(Subject::Cgroup(node)) = app.subject() else { return Vec::new() };
    let Some(at) = data.tree.find(&node.path) else { return Vec::new() };
    let matrix = Matrix::new(app, data, regions.beside);
    let about = VictimPane { theme: app.theme, data, node, at, matrix, cells };
    pane::with_histogram(app, fit(about.sections(room), room), cells, room)
}

/// A victim, and what is needed to tell of it.
struct VictimPane<'a> {
    theme: Theme,
    data: &'a Data,
    node: &'a Node,
    at: usize,
    matrix: Matrix,
    cells: usize,
}

impl VictimPane<'_> {
    fn sections(&self, room: usize) -> Vec<Section> {
        let behind = behind(self.data, self.at);
        let all = behind.values().fold(0u64, |sum, (ns, _)| sum.saturating_add(*ns));
        let mut culprits: Vec<(Id, u64, usize)> =
            behind.into_iter().map(|(id, (ns, pair))| (id, ns, pair)).collect();
        culprits.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        // Where there is hardly room, the worst culprits by name tell more than what all letters mean.
        let legend = if room < ROOMY { Vec::new() } else { self.legend(room / 2) };
        let mut short_legend = legend.clone();
        short_legend.truncate(1);
        let list = |most: usize| -> Vec<Line<'static>> {
            // One more takes no more room than to say so.
            let most = if culprits.len() == most + 1 { most + 1 } else { most };
            let shown = culprits.iter().take(most);
            let mut lines: Vec<_> = shown.map(|(id, ns, pair)| self.culprit(*id, *ns, *pair, all)).collect();
            let (more, rest) = culprits
                .iter()
                .skip(most)
                .fold((0, 0u64), |(n, sum), (_, ns, _)| (n + 1, sum.saturating_add(*ns)));
            if more != 0 {
                let words = format!("  {} {} more", right(&self.a_second(rest), FIGURE), more);
                lines.push(Line::styled(words, self.theme.quiet()));
            }
            lines
        };
        vec![
            Section { short: short_legend, long: legend },
            Section::always(self.heading(all, room >= ROOMY)),
            Section { short: list(FEW), long: list((room / 2).max(FEW)) },
            Section::always(self.limits().into_iter().collect()),
            Section::if_room(
                culprits.first().and_then(|(id, _, pair)| self.harms(*id, *pair)).into_iter().collect(),
            ),
        ]
    }

    fn a_second(&self, ns: u64) -> String {
        a_second(&self.data.interval, ns).unwrap_or_else(|| "-".into())
    }

    /// The letters of the matrix, in at most so many lines.
    fn legend(&self, most: usize) -> Vec<Line<'static>> {
        let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new()];
        let mut used = 0;
        for (at, (_, culprit)) in self.matrix.columns.iter().enumerate() {
            let name = cut_start(&causes::culprit(culprit), (self.cells / 2).clamp(20, 60) - 4);
            let cells = width(&name) + 4;
            if used + cells > self.cells && used != 0 {
                if lines.len() == most {
                    break;
                }
                lines.push(Vec::new());
                used = 0;
            }
            used += cells;
            let line = lines.last_mut().expect("there is one from the start");
            line.push(Span::styled(letter(at).to_string(), self.theme.heading()));
            line.push(Span::styled(format!(" {name}  "), self.theme.quiet()));
        }
        lines.into_iter().map(Line::from).collect()
    }

    /// `/svc  waits 90.0ms a second behind others, 45% of all its waiting`, in two lines where that is too much for one.
    fn heading(&self, all_ns: u64, may_break: bool) -> Vec<Line<'static>> {
        let share = percent(all_ns, self.node.group.wait.total_ns);
        let share = share.map(|share| format!(", {share:.0}% of all its waiting")).unwrap_or_default();
        let words = format!("waits {} a second behind others{share}", self.a_second(all_ns));
        let beside = self.cells.saturating_sub(width(&words) + 2).max(12);
        let room = if may_break { self.cells } else { beside };
        let path = Span::styled(cut_start(&self.node.path, room), self.theme.heading());
        if !may_break || path.width() + 2 + width(&words) <= self.cells {
            return vec![Line::from(vec![path, Span::raw(format!("  {words}"))])];
        }
        vec![Line::from(path), Line::raw(cut_end(&words, self.cells))]
    }

    /// `A 45.0ms  50% ██████ /build: used 1.8 CPUs, weight 100`
    fn culprit(&self, id: Id, ns: u64, pair: usize, all_ns: u64) -> Line<'static> {
        let interval = &self.data.interval;
        let culprit = interval.culprit(&interval.pairs[pair]);
        let share = percent(ns, all_ns).unwrap_or(0.0);
        let letter = self.matrix.letter(id).unwrap_or(' ');
        let bar = (self.cells / 5).clamp(6, 40);
        let style = self.theme.cause(cause(&culprit, &self.node.path));
        let figures = format!("{letter} {} {share:>3.0}% ", right(&self.a_second(ns), FIGURE));
        let room = self.cells.saturating_sub(width(&figures) + bar + 1);
        let uses = if self.cells >= TELLS_USE { self.uses(id.0) } else { String::new() };
        let name = cut_start(&causes::culprit(&culprit), room.saturating_sub(width(&uses)).max(12));
        Line::from(vec![
            Span::raw(figures),
            Span::styled(left(&bars::share(share / 100.0, bar), bar + 1), style),
            Span::raw(name),
            Span::styled(uses, self.theme.quiet()),
        ])
    }

    /// What a culprit's cgroup uses, and may.
    fn uses(&self, id: u64) -> String {
        let interval = &self.data.interval;
        let Some(node) = self.data.tree.find_id(interval, id).map(|at| &self.data.tree.nodes()[at]) else {
            return String::new();
        };
        let limits = node.limits.map(|at| &interval.limits[at]);
        let used_ns = self.data.used_ns(&Subject::Cgroup(node));
        let used =
            per_second(used_ns, interval.duration_ns).map(|ns| format!("uses {}", units::cpus(ns / 1e9)));
        let weight = limits.and_then(|limits| limits.weight).map(|weight| format!("weight {weight}"));
        let quota =
            limits.and_then(CgroupReading::quota_cores).map(|cores| format!("quota {}", units::cpus(cores)));
        let facts: Vec<String> = used.into_iter().chain(weight).chain(quota).collect();
        if facts.is_empty() { String::new() } else { format!("  {}", facts.join(", ")) }
    }

    /// Whose quotas held it back besides.
    fn limits(&self) -> Option<Line<'static>> {
        let nodes = self.data.tree.nodes();
        let by = self.node.throttled_by.iter().take(FEW);
        let said: Vec<String> = by
            .map(|(at, ns)| format!("{} {}", at.map_or(UNNAMED, |at| &nodes[at].path), self.a_second(*ns)))
            .collect();
        let words = format!("and waits a second for the quota of {}", said.join(", "));
        (!said.is_empty()).then(|| Line::styled(cut_end(&words, self.cells), self.theme.alarm()))
    }

    /// Whom the worst culprit makes wait besides.
    fn harms(&self, id: Id, pair: usize) -> Option<Line<'static>> {
        let interval = &self.data.interval;
        let is_own = |victim: u64| {
            let node = self.data.tree.find_id(interval, victim);
            node.is_some_and(|node| self.data.tree.below(self.at).contains(&node))
        };
        let mut victims: Vec<(u64, u64)> = interval
            .pairs
            .iter()
            .filter(|pair| pair.blame == Blame::Ran && (pair.culprit, pair.tid) == id && !is_own(pair.victim))
            .map(|pair| (pair.ns, pair.victim))
            .collect();
        victims.sort_unstable_by(|a, b| b.cmp(a));
        let culprit = short_name(&interval.culprit(&interval.pairs[pair]));
        let named = victims.iter().take(FEW).map(|(ns, victim)| {
            let path = interval.cgroup_path(*victim).map_or(UNNAMED, |path| path);
            format!("{} {}", cut_start(path, 40), self.a_second(*ns))
        });
        let named: Vec<String> = named.collect();
        let more = victims.len().saturating_sub(FEW);
        let more = if more == 0 { String::new() } else { format!(", {more} more") };
        let words = format!("{culprit} is in the way of others, too: {}{more}", named.join(", "));
        (!named.is_empty()).then(|| Line::styled(cut_end(&words, self.cells), self.theme.quiet()))
    }
}
