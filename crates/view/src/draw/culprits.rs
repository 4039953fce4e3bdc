//! Which tasks made others wait. A matrix beside the list of victims has a column for each culprit. The pane below shows the
//! selected victim.

pub mod matrix;

use cgscope_model::{Blame, CgroupReading, pairs::Culprit};

use super::{
    layout::Regions,
    pane::{Section, a_second, cpus_used, fit},
    prelude::*,
};
use matrix::{FIGURE, Id, Matrix, behind, cause, letter, short_name};

/// Minimum height of the pane for a legend.
const ROOMY: usize = 6;
/// Maximum number of culprits listed if there is little space.
const FEW: usize = 3;
/// Minimum share of the waiting, percent, for a verdict on a culprit's weight: of short waits, the estimate is rough.
const JUDGED: f64 = 10.0;
/// Minimum width of the pane for the use of a culprit.
const SHOWS_USE: usize = 110;

pub fn lines(app: &App, regions: &Regions) -> Lines {
    let Some(data) = &app.data else { return Vec::new() };
    let (cells, room) = (usize::from(regions.pane.width), usize::from(regions.pane.height));
    if !app.is_exact() {
        let words =
            "coarse: /proc reports how long tasks waited, but not who ran then, so no culprit is known";
        return pane::quiet(app.theme, words, cells);
    }
    let Some(Subject::Cgroup(node)) = app.subject() else { return Vec::new() };
    let Some(at) = data.tree.find(&node.path) else { return Vec::new() };
    let matrix = Matrix::new(app, data, regions.beside);
    let about = VictimPane { theme: app.theme, data, interval: &data.interval, node, at, matrix, cells };
    pane::with_histogram(app, fit(about.sections(room), room), cells, room)
}

struct VictimPane<'a> {
    theme: Theme,
    data: &'a Data,
    interval: &'a Interval,
    node: &'a Node,
    /// Index of the node in the tree.
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
        // If there are few lines, names of the worst culprits are more useful than a legend of all letters.
        let legend = if room < ROOMY { Vec::new() } else { self.legend(room / 2) };
        let list = |most: usize| -> Lines {
            // A single further culprit takes no more space than the line that would count it.
            let most = if culprits.len() == most + 1 { most + 1 } else { most };
            let shown = culprits.iter().take(most);
            let mut lines: Lines = shown.map(|(id, ns, pair)| self.culprit(*id, *ns, *pair, all)).collect();
            let more = culprits.get(most..).unwrap_or_default();
            if !more.is_empty() {
                let rest = more.iter().fold(0u64, |sum, (_, ns, _)| sum.saturating_add(*ns));
                let words =
                    format!("  {} {} more", right(&a_second(self.interval, rest), FIGURE), more.len());
                lines.push(Line::styled(words, self.theme.quiet()));
            }
            lines
        };
        let harms = culprits.first().and_then(|(id, _, pair)| self.harms(*id, *pair));
        vec![
            Section { short: legend.iter().take(1).cloned().collect(), long: legend },
            Section::always(self.heading(all, room >= ROOMY)),
            Section { short: list(FEW), long: list((room / 2).max(FEW)) },
            Section::always(self.limits().into_iter().collect()),
            Section::if_room(harms.into_iter().collect()),
        ]
    }

    /// The letters of the matrix, in at most this many lines.
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

    /// The heading: `/svc  waits behind others for 90.0ms a second, 45% of all its waiting`. A long heading takes two lines.
    fn heading(&self, all_ns: u64, may_break: bool) -> Lines {
        let share = percent(all_ns, self.node.group.wait.total_ns);
        let share = share.map(|share| format!(", {share:.0}% of all its waiting")).unwrap_or_default();
        let words = format!("waits behind others for {} a second{share}", a_second(self.interval, all_ns));
        let beside = self.cells.saturating_sub(width(&words) + 2).max(12);
        let room = if may_break { self.cells } else { beside };
        let path =
            Span::styled(cut_start(&self.interval.names.of(&self.node.path), room), self.theme.heading());
        if !may_break || path.width() + 2 + width(&words) <= self.cells {
            return vec![Line::from(vec![path, Span::raw(format!("  {words}"))])];
        }
        vec![Line::from(path), Line::raw(cut_end(&words, self.cells))]
    }

    /// One culprit: `A 45.0ms  50% ██████ /build  uses 1.8 CPUs, weight 100`.
    fn culprit(&self, id: Id, ns: u64, pair: usize, all_ns: u64) -> Line<'static> {
        let culprit = self.interval.culprit(&self.interval.pairs[pair]);
        let share = percent(ns, all_ns).unwrap_or(0.0);
        let letter = self.matrix.letter(id).unwrap_or(' ');
        let bar = (self.cells / 5).clamp(6, 40);
        let style = self.theme.cause(cause(&culprit, &self.node.path));
        let figures = format!("{letter} {} {share:>3.0}% ", right(&a_second(self.interval, ns), FIGURE));
        let room = self.cells.saturating_sub(width(&figures) + bar + 1);
        let uses = if self.cells >= SHOWS_USE { self.uses(id.0, &culprit, share) } else { String::new() };
        let name = cut_start(&culprit.words(&self.interval.names), room.saturating_sub(width(&uses)).max(12));
        Line::from(vec![
            Span::raw(figures),
            Span::styled(left(&bars::share(share / 100.0, bar), bar + 1), style),
            Span::raw(name),
            Span::styled(uses, self.theme.quiet()),
        ])
    }

    /// How much of the waiting is beyond the culprit's weight, what its cgroup uses, and its limits. `share`: the culprit's share of
    /// the waiting, percent.
    fn uses(&self, id: u64, culprit: &Culprit, share: f64) -> String {
        let Some(at) = self.data.tree.find_id(self.interval, id) else { return String::new() };
        let node = &self.data.tree.nodes()[at];
        let limits = node.limits.map(|at| &self.interval.limits[at]);
        let of_victim =
            self.node.culprits.iter().find(|of| (&of.path, &of.task) == (&culprit.path, &culprit.task));
        let of_victim = of_victim.filter(|_| share >= JUDGED);
        let beyond = of_victim.and_then(|of| {
            let share = percent(of.beyond_ns?, of.ns)?;
            Some(if of.is_beyond()? {
                format!("{share:.0}% beyond its weight")
            } else {
                "within its weight".into()
            })
        });
        let facts = [
            beyond,
            cpus_used(node, self.data).map(|cores| format!("uses {}", units::cpus(cores))),
            limits.and_then(|limits| limits.weight).map(|weight| format!("weight {weight}")),
            limits.and_then(CgroupReading::quota_cores).map(|cores| format!("quota {}", units::cpus(cores))),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        if facts.is_empty() { String::new() } else { format!("  {}", facts.join(", ")) }
    }

    /// The quotas that also limited the victim.
    fn limits(&self) -> Option<Line<'static>> {
        let nodes = self.data.tree.nodes();
        let by = self.node.throttled_by.iter().take(FEW);
        let said: Vec<String> = by
            .map(|(at, ns)| {
                let name = at.map_or(UNNAMED.into(), |at| self.interval.names.of(&nodes[at].path));
                format!("{name} {}", a_second(self.interval, *ns))
            })
            .collect();
        let words = format!("quotas also held it back, per second: {}", said.join(", "));
        (!said.is_empty()).then(|| Line::styled(cut_end(&words, self.cells), self.theme.alarm()))
    }

    /// The other victims of the worst culprit.
    fn harms(&self, id: Id, pair: usize) -> Option<Line<'static>> {
        let interval = self.interval;
        let own = self.data.tree.below(self.at);
        let is_own =
            |victim: u64| self.data.tree.find_id(interval, victim).is_some_and(|node| own.contains(&node));
        let pairs = interval.pairs.iter().filter(|pair| {
            pair.blame == Blame::Ran && (pair.culprit, pair.tid) == id && !is_own(pair.victim)
        });
        let mut victims: Vec<(u64, u64)> = pairs.map(|pair| (pair.ns, pair.victim)).collect();
        victims.sort_unstable_by(|a, b| b.cmp(a));
        let culprit = short_name(&interval.names, &interval.culprit(&interval.pairs[pair]));
        let named = victims.iter().take(FEW).map(|(ns, victim)| {
            let name = interval.cgroup_path(*victim).map_or(UNNAMED.into(), |path| interval.names.of(path));
            format!("{} {}", cut_start(&name, 40), a_second(self.interval, *ns))
        });
        let named: Vec<String> = named.collect();
        let more = victims.len().saturating_sub(FEW);
        let more = if more == 0 { String::new() } else { format!(", {more} more") };
        let words = format!("{culprit} also makes others wait: {}{more}", named.join(", "));
        (!named.is_empty()).then(|| Line::styled(cut_end(&words, self.cells), self.theme.quiet()))
    }
}
