//! The NUMA nodes side by side, above the list of threads; of a host with one node its CPUs.

mod one;

use std::collections::BTreeMap;

use cgscope_model::{
    Interval,
    findings::Rule,
    nodes::NodeGroup,
    placement::cpu_list,
    units::{bytes, duration, per_second, percent},
};
use ratatui::{
    layout::Rect,
    text::{Line, Span},
};

use super::{bars, pane};
use crate::{
    app::App,
    causes,
    columns::rate,
    data::Data,
    nodes,
    text::or_dash,
    theme::Theme,
    width::{cut_end, left, width, wrapped},
};

/// A node has a column of its own where it gets so many cells.
const COLUMN: usize = 24;
/// ... and no more than these.
const WIDEST: usize = 60;
/// Lines that the list below keeps.
const LIST: usize = 6;
/// Busy from this share on, percent, is an alarm.
const FULL: f64 = 95.0;

/// Lines above the list.
pub fn height(app: &App, body: Rect) -> u16 {
    lines(app, body).len() as u16
}

/// The nodes.
pub fn lines(app: &App, body: Rect) -> Vec<Line<'static>> {
    let Some(data) = &app.data else { return Vec::new() };
    let cells = usize::from(body.width);
    let height = usize::from(body.height);
    // Most is for the nodes where the screen is high, but the list has its lines.
    let room = (height * 3 / 5).min(height.saturating_sub(LIST.min(height / 2))).max(2);
    let mut lines = findings(app, data, cells, room.saturating_sub(COLUMN_LINES).clamp(1, room));
    let left = room - lines.len();
    if nodes::has_several(&data.interval) {
        lines.extend(several(app.theme, data, cells, left));
    } else {
        lines.extend(one::lines(app.theme, data, cells, left));
    }
    lines
}

/// What is wrong with where tasks run, in at most so many lines; what is cut has a mark.
fn findings(app: &App, data: &Data, cells: usize, most: usize) -> Vec<Line<'static>> {
    let is_of_nodes = |rule| matches!(rule, Rule::NodeSkew | Rule::RemoteMemory | Rule::NodeBouncing);
    let said = data.findings.iter().filter(|finding| is_of_nodes(finding.rule));
    let words =
        said.flat_map(|finding| wrapped(&finding.says, cells.saturating_sub(2)).into_iter().enumerate());
    let mut words: Vec<(bool, String)> = words.map(|(at, words)| (at == 0, words)).collect();
    let is_cut = words.len() > most;
    words.truncate(most);
    if let Some((_, last)) = words.last_mut().filter(|_| is_cut) {
        *last = cut_end(&format!("{last} …"), cells.saturating_sub(2));
    }
    let line = |(is_first, words)| {
        let mark = if is_first { "! " } else { "  " };
        Line::from(vec![Span::styled(mark, app.theme.alarm()), Span::styled(words, app.theme.heading())])
    };
    words.into_iter().map(line).collect()
}

/// Several nodes: in columns where they fit, else a line each.
fn several(theme: Theme, data: &Data, cells: usize, room: usize) -> Vec<Line<'static>> {
    let seen = seen_on(&data.interval);
    let all = data.nodes();
    let whose = whose(theme, &data.interval, cells);
    let room = room.saturating_sub(whose.len());
    let about = |node| NodePane {
        theme,
        interval: &data.interval,
        node,
        seen: seen.get(&node.node).copied().unwrap_or(0),
    };
    let column = (cells + 2) / all.len().max(1);
    let mut lines = if column >= COLUMN + 2 && room >= COLUMN_LINES {
        columns(all.iter().map(about), (column - 2).min(WIDEST))
    } else {
        rows(theme, all.iter().map(about), cells, room)
    };
    lines.extend(whose);
    lines
}

/// Living tasks by the node that they were last seen on.
fn seen_on(interval: &Interval) -> BTreeMap<u32, u64> {
    let mut seen = BTreeMap::new();
    for node in interval.tasks.iter().filter_map(|task| task.reading.node.or(interval.one_node)) {
        *seen.entry(node).or_insert(0) += 1;
    }
    seen
}

/// What is of the host and what of the selection, where that differs.
fn whose(theme: Theme, interval: &Interval, cells: usize) -> Vec<Line<'static>> {
    if !interval.is_selection {
        return Vec::new();
    }
    let words = "busy is of the whole host; all else is of the selection, as far as it is known of it";
    pane::quiet(theme, words, cells)
}

/// A node, and what is needed to tell of it.
struct NodePane<'a> {
    theme: Theme,
    interval: &'a Interval,
    node: &'a NodeGroup,
    seen: u64,
}

/// Lines of a node in a column.
const COLUMN_LINES: usize = 7;

impl NodePane<'_> {
    fn busy(&self, bar: usize) -> Vec<Span<'static>> {
        share_bar(self.theme, self.node.busy_percent(), bar)
    }

    fn runnable(&self) -> String {
        self.node.runnable_avg.map_or("n/a".into(), |tasks| format!("{tasks:.2}"))
    }

    fn waited(&self) -> String {
        per_second(self.node.wait.total_ns, self.interval.duration_ns)
            .map_or("-".into(), |ns| duration(ns as u64))
    }

    fn p99(&self) -> String {
        or_dash(self.node.wait.quantile_ns(0.99))
    }

    fn moves(&self, moves: Option<u64>) -> String {
        moves.and_then(|moves| per_second(moves, self.interval.duration_ns)).map_or("n/a".into(), rate)
    }

    fn memory_share(&self) -> Option<f64> {
        percent(self.node.used_bytes?, self.node.memory_bytes?)
    }

    fn memory(&self) -> String {
        let or_na = |value: Option<u64>| value.map_or("n/a".into(), bytes);
        format!("{} of {}", or_na(self.node.used_bytes), or_na(self.node.memory_bytes))
    }

    /// Share, amount where it fits, and a bar in what is left.
    fn memory_bar(&self, cells: usize) -> Vec<Span<'static>> {
        let amount = self.memory();
        let words = width(&amount) + 8;
        match cells.checked_sub(words) {
            Some(bar) => {
                let mut spans = share_bar(self.theme, self.memory_share(), bar);
                spans.push(Span::raw(format!(" {amount}")));
                spans
            }
            None => share_bar(self.theme, self.memory_share(), cells.saturating_sub(6)),
        }
    }

    /// Tasks running or waiting on average, of those last seen here.
    fn active(&self, cells: usize) -> String {
        let (runnable, seen) = (self.runnable(), self.seen);
        let long = format!("{runnable} running or waiting, of {seen}");
        if width(&long) + 7 <= cells { long } else { format!("{runnable} of {seen} tasks") }
    }

    fn cpus(&self) -> String {
        if self.node.cpus.is_empty() { "no CPU".into() } else { format!("CPU {}", cpu_list(&self.node.cpus)) }
    }

    /// Below each other, each in exactly so many cells.
    fn column(&self, cells: usize) -> [Vec<Span<'static>>; COLUMN_LINES] {
        let theme = self.theme;
        let label = |label: &'static str| Span::styled(label, theme.quiet());
        let bar = cells.saturating_sub(15);
        let causes = bars::stacked(&causes::parts(&self.node.wait.by_cause), cells.saturating_sub(6), theme);
        let [came, left] = [self.node.migrations_in, self.node.migrations_out].map(|moves| self.moves(moves));
        let lines = [
            vec![
                Span::styled(format!("node {}", self.node.node), theme.heading()),
                Span::raw(format!("  {}", self.cpus())),
            ],
            [vec![label("busy   ")], self.busy(bar)].concat(),
            vec![label("active "), Span::raw(self.active(cells))],
            vec![
                label("wait/s "),
                Span::styled(self.waited(), theme.wait()),
                label("  p99 "),
                Span::raw(self.p99()),
            ],
            [vec![label("why   ")], causes].concat(),
            vec![label("moves/s "), Span::raw(came), label(" in  "), Span::raw(left), label(" out")],
            [vec![label("memory ")], self.memory_bar(cells.saturating_sub(8))].concat(),
        ];
        lines.map(|spans| exactly(spans, cells))
    }
}

/// Nodes side by side.
fn columns<'a>(nodes: impl Iterator<Item = NodePane<'a>>, cells: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new(); COLUMN_LINES];
    for node in nodes {
        for (line, spans) in lines.iter_mut().zip(node.column(cells)) {
            line.extend(spans);
            line.push(Span::raw("  "));
        }
    }
    lines.into_iter().map(Line::from).collect()
}

/// Nodes below each other, a line each; what there is no room for is counted.
fn rows<'a>(
    theme: Theme,
    nodes: impl ExactSizeIterator<Item = NodePane<'a>>,
    cells: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let is_wide = cells >= 100;
    let bar = if is_wide { 16 } else { 8 };
    let head = format!(
        "node {}  {:>8} {:>7} {:>7} {:>6} {:>5} {:>6} {:>6}",
        left("busy", bar + 6),
        "run/wait",
        "wait/s",
        "p99",
        "tasks",
        "mem",
        "in/s",
        "out/s"
    );
    let mut lines = vec![Line::styled(cut_end(&head, cells), theme.heading())];
    let count = nodes.len();
    let shown = if count < room { count } else { room.saturating_sub(2) };
    lines.extend(nodes.take(shown).map(|about| {
        let [came, went] =
            [about.node.migrations_in, about.node.migrations_out].map(|moves| about.moves(moves));
        let memory = about.memory_share().map_or("n/a".into(), |share| format!("{share:.0}%"));
        let figures = format!(
            "  {:>8} {:>7} {:>7} {:>6} {memory:>5} {came:>6} {went:>6}",
            about.runnable(),
            about.waited(),
            about.p99(),
            about.seen
        );
        let mut spans = vec![Span::styled(format!("{:>4} ", about.node.node), theme.heading())];
        spans.extend(exactly(about.busy(bar), bar + 6));
        spans.push(Span::raw(figures));
        let used: usize = spans.iter().map(Span::width).sum();
        if let Some(room) = cells.checked_sub(used + 24) {
            let cpus = about.cpus();
            spans.push(Span::raw("  "));
            spans.extend(bars::stacked(&causes::parts(&about.node.wait.by_cause), 12, theme));
            spans.push(Span::styled(format!("  {}", cut_end(&cpus, room + 8)), theme.quiet()));
        }
        Line::from(spans)
    }));
    if shown < count {
        lines.push(Line::styled(
            format!("{} more nodes: a higher screen shows them", count - shown),
            theme.quiet(),
        ));
    }
    lines
}

/// A bar and its figure: `██████▌    78.5%`.
fn share_bar(theme: Theme, share: Option<f64>, cells: usize) -> Vec<Span<'static>> {
    let Some(share) = share else { return vec![Span::styled(left("n/a", cells), theme.quiet())] };
    let style = if share >= FULL { theme.alarm() } else { theme.busy() };
    vec![
        Span::styled(left(&bars::share(share / 100.0, cells), cells), style),
        Span::raw(format!("{share:>5.0}%")),
    ]
}

/// Cut or filled with blanks to exactly so many cells.
fn exactly(spans: Vec<Span<'static>>, cells: usize) -> Vec<Span<'static>> {
    let mut room = cells;
    let mut kept = Vec::with_capacity(spans.len() + 1);
    for span in spans {
        let text = cut_end(&span.content, room);
        room -= width(&text);
        kept.push(Span::styled(text, span.style));
    }
    kept.push(Span::raw(" ".repeat(room)));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_its_width_whatever_is_in_it() {
        let node = NodeGroup { node: 3, cpus: (0..400).step_by(2).collect(), ..NodeGroup::default() };
        let interval = Interval::default();
        let about = NodePane { theme: Theme::default(), interval: &interval, node: &node, seen: 12 };
        for cells in 0..90 {
            for line in about.column(cells) {
                assert_eq!(line.iter().map(Span::width).sum::<usize>(), cells);
            }
        }
    }
}
