//! NUMA nodes side by side, above the list of threads. A host with one node shows its CPUs instead.

use cgscope_model::{CpuInterval, findings::Rule, nodes::NodeGroup, placement::cpu_list};

use super::prelude::*;
use crate::{columns::rate, nodes::memory};

/// Minimum width of a node's column, in cells.
const COLUMN: usize = 24;
const WIDEST: usize = 60;
const COLUMN_LINES: usize = 7;
/// Minimum lines of the list below.
const LIST: usize = 6;
/// Busy share from which the share is shown as an alarm, percent.
const FULL: f64 = 95.0;

pub fn lines(app: &App, body: Rect) -> Lines {
    let Some(data) = &app.data else { return Vec::new() };
    let (cells, height) = (usize::from(body.width), usize::from(body.height));
    // On a tall screen, nodes get most lines, but the list keeps its minimum.
    let room = (height * 3 / 5).min(height.saturating_sub(LIST.min(height / 2))).max(2);
    let mut lines = findings(app, data, cells, room.saturating_sub(COLUMN_LINES).clamp(1, room));
    let nodes = if data.interval.nodes.len() > 1 { several } else { one_node };
    lines.extend(nodes(app.theme, data, cells, room - lines.len()));
    lines
}

/// Returns findings about NUMA nodes, in at most `most` lines. A mark shows where findings are cut.
fn findings(app: &App, data: &Data, cells: usize, most: usize) -> Lines {
    let cells = cells.saturating_sub(2);
    let is_of_nodes = |rule| matches!(rule, Rule::NodeSkew | Rule::RemoteMemory | Rule::NodeBouncing);
    let said = data.findings.iter().filter(|finding| is_of_nodes(finding.rule));
    let said = said.map(|finding| wrapped(&finding.says, cells));
    let (mark, style) = (Span::styled("! ", app.theme.alarm()), app.theme.heading());
    let mut lines: Lines = said.flat_map(|words| pane::hanging(mark.clone(), words, style)).collect();
    let is_cut = lines.len() > most;
    lines.truncate(most);
    if let Some(last) = lines.last_mut().and_then(|line| line.spans.last_mut()).filter(|_| is_cut) {
        last.content = cut_end(&format!("{} …", last.content), cells).into();
    }
    lines
}

fn several(theme: Theme, data: &Data, cells: usize, room: usize) -> Lines {
    let interval = &*data.interval;
    let on_nodes = interval.readings().filter_map(|task| task.node.or(interval.one_node));
    let seen = sum::tally(on_nodes.map(|node| (node, 1)));
    let nodes = data.nodes().iter().map(|node| (node, seen.get(&node.node).copied().unwrap_or(0)));
    let panes: Vec<_> = nodes.map(|(node, seen)| NodePane { theme, interval, node, seen }).collect();
    let of_whom = of_whom(theme, interval, cells);
    let room = room.saturating_sub(of_whom.len());
    let column = (cells + 2) / panes.len().max(1);
    let mut lines = if column >= COLUMN + 2 && room >= COLUMN_LINES {
        columns(&panes, (column - 2).min(WIDEST))
    } else {
        rows(theme, &panes, cells, room)
    };
    lines.extend(of_whom);
    lines
}

/// Explains which figures cover the host and which cover the selection. Empty without a selection.
fn of_whom(theme: Theme, interval: &Interval, cells: usize) -> Lines {
    let words = "busy covers the host; all other figures cover the selection, if known";
    if interval.is_selection { pane::quiet(theme, words, cells) } else { Vec::new() }
}

struct NodePane<'a> {
    theme: Theme,
    interval: &'a Interval,
    node: &'a NodeGroup,
    /// Number of living tasks last seen on this node.
    seen: u64,
}

impl NodePane<'_> {
    fn runnable(&self) -> String {
        or_na(self.node.runnable_avg.map(|tasks| format!("{tasks:.2}")))
    }

    fn waits(&self) -> [String; 2] {
        let wait = &self.node.wait;
        [a_second(self.interval, wait.total_ns), or_dash(wait.quantile_ns(0.99))]
    }

    /// Returns the moves per second to the node and away from the node.
    fn moves(&self) -> [String; 2] {
        [self.node.migrations_in, self.node.migrations_out].map(|moves| {
            or_na(moves.and_then(|moves| per_second(moves, self.interval.duration_ns)).map(rate))
        })
    }

    fn memory_share(&self) -> Option<f64> {
        percent(self.node.used_bytes?, self.node.memory_bytes?)
    }

    /// Returns the share of used memory, the amounts if they fit, and a bar in the remaining cells.
    fn memory_bar(&self, cells: usize) -> Spans {
        let amount = format!(" {}", memory(self.node, " of "));
        let bar = cells.checked_sub(width(&amount) + 7);
        let mut spans = share_bar(self.theme, self.memory_share(), bar.unwrap_or(cells.saturating_sub(6)));
        spans.extend(bar.map(|_| Span::raw(amount)));
        spans
    }

    fn cpus(&self) -> String {
        if self.node.cpus.is_empty() { "no CPU".into() } else { format!("CPU {}", cpu_list(&self.node.cpus)) }
    }

    fn causes(&self, cells: usize) -> Spans {
        bars::stacked(&causes::parts(&self.node.wait.by_cause), cells, self.theme)
    }

    /// Returns the lines of a node, each in exactly `cells` cells.
    fn column(&self, cells: usize) -> [Spans; COLUMN_LINES] {
        let theme = self.theme;
        let label = |label: &'static str| Span::styled(label, theme.quiet());
        let ([waited, p99], [came, left]) = (self.waits(), self.moves());
        let busy = share_bar(theme, self.node.busy_percent(), cells.saturating_sub(15));
        // The average number of tasks that run or wait, and the number of tasks last seen here.
        let (runnable, seen) = (self.runnable(), self.seen);
        let long = format!("{runnable} running or waiting, of {seen}");
        let active = if width(&long) + 7 <= cells { long } else { format!("{runnable} of {seen} tasks") };
        let lines = [
            vec![
                Span::styled(format!("node {}", self.node.node), theme.heading()),
                Span::raw(format!("  {}", self.cpus())),
            ],
            [vec![label("busy   ")], busy].concat(),
            vec![label("active "), Span::raw(active)],
            vec![label("wait/s "), Span::styled(waited, theme.wait()), label("  p99 "), Span::raw(p99)],
            [vec![label("why   ")], self.causes(cells.saturating_sub(6))].concat(),
            vec![label("moves/s "), Span::raw(came), label(" in  "), Span::raw(left), label(" out")],
            [vec![label("memory ")], self.memory_bar(cells.saturating_sub(8))].concat(),
        ];
        lines.map(|spans| exactly(spans, cells))
    }
}

fn columns(nodes: &[NodePane<'_>], cells: usize) -> Lines {
    let mut lines: Vec<Spans> = vec![Vec::new(); COLUMN_LINES];
    for node in nodes {
        for (line, spans) in lines.iter_mut().zip(node.column(cells)) {
            line.extend(spans);
            line.push(Span::raw("  "));
        }
    }
    lines.into_iter().map(Line::from).collect()
}

/// Returns one line per node. The last line counts the nodes that do not fit.
fn rows(theme: Theme, nodes: &[NodePane<'_>], cells: usize, room: usize) -> Lines {
    let bar = if cells >= 100 { 16 } else { 8 };
    let busy = left("busy", bar + 6);
    let head = format!("node {busy}  run/wait  wait/s     p99  tasks   mem   in/s  out/s");
    let mut lines = vec![Line::styled(cut_end(&head, cells), theme.heading())];
    let shown = if nodes.len() < room { nodes.len() } else { room.saturating_sub(2) };
    lines.extend(nodes.iter().take(shown).map(|about| {
        let ([waited, p99], [came, went]) = (about.waits(), about.moves());
        let memory = or_na(about.memory_share().map(|share| format!("{share:.0}%")));
        let (runnable, seen) = (about.runnable(), about.seen);
        let text = format!("  {runnable:>8} {waited:>7} {p99:>7} {seen:>6} {memory:>5} {came:>6} {went:>6}");
        let mut spans = vec![Span::styled(format!("{:>4} ", about.node.node), theme.heading())];
        spans.extend(exactly(share_bar(theme, about.node.busy_percent(), bar), bar + 6));
        spans.push(Span::raw(text));
        let used: usize = spans.iter().map(Span::width).sum();
        if let Some(room) = cells.checked_sub(used + 24) {
            spans.push(Span::raw("  "));
            spans.extend(about.causes(12));
            spans.push(Span::styled(format!("  {}", cut_end(&about.cpus(), room + 8)), theme.quiet()));
        }
        Line::from(spans)
    }));
    if shown < nodes.len() {
        let words = format!("{} more nodes: make the terminal taller to see them", nodes.len() - shown);
        lines.push(Line::styled(words, theme.quiet()));
    }
    lines
}

/// Returns a bar and its figure: `██████▌      79%`.
fn share_bar(theme: Theme, share: Option<f64>, cells: usize) -> Spans {
    let Some(share) = share else { return vec![Span::styled(left("n/a", cells), theme.quiet())] };
    let style = if share >= FULL { theme.alarm() } else { theme.busy() };
    let bar = left(&bars::share(share / 100.0, cells), cells);
    vec![Span::styled(bar, style), Span::raw(format!("{share:>5.0}%"))]
}

/// Cuts or pads the spans to exactly this many cells.
fn exactly(spans: Spans, cells: usize) -> Spans {
    let mut room = cells;
    let cut = spans.into_iter().map(|span| {
        let text = cut_end(&span.content, room);
        room -= width(&text);
        Span::styled(text, span.style)
    });
    let mut kept: Spans = cut.collect();
    kept.push(Span::raw(" ".repeat(room)));
    kept
}

/// Maximum width of the bar of a CPU, in cells.
const BAR: usize = 30;
/// Width of a CPU, in cells: with a bar and the waits, with a bar, or with a figure alone.
const CPU_CELLS: [usize; 3] = [40, 20, 10];

fn one_node(theme: Theme, data: &Data, cells: usize, room: usize) -> Lines {
    let interval = &*data.interval;
    let mut words = format!("one NUMA node{}", spread(&interval.cpus));
    words.extend(data.nodes().first().map(|node| format!("; memory {}", memory(node, " in use of "))));
    let mut lines: Lines = wrapped(&words, cells).into_iter().map(Line::raw).collect();
    lines.extend(of_whom(theme, interval, cells));
    lines.truncate(room.saturating_sub(1));
    lines.extend(cpus(theme, interval, cells, room.saturating_sub(lines.len())));
    lines
}

fn spread(cpus: &[CpuInterval]) -> String {
    let known = cpus.iter().filter_map(|cpu| Some((units::busy_percent(cpu.busy_ns, cpu.idle_ns)?, cpu.cpu)));
    match known.sorted_by(|a, b| a.0.total_cmp(&b.0)).as_slice() {
        [(least, _), .., (most, _)] if most - least < 1.0 => format!("; each CPU was {most:.0}% busy"),
        [(least, idlest), .., (most, busiest)] => {
            format!("; CPU {busiest} was busiest, {most:.0}%, CPU {idlest} idlest, {least:.0}%")
        }
        _ => String::new(),
    }
}

/// Returns the CPUs, several per line, with as much detail as possible while all CPUs fit.
fn cpus(theme: Theme, interval: &Interval, cells: usize, room: usize) -> Lines {
    let all = &interval.cpus;
    let fits = |each: usize| all.len().div_ceil((cells / each).max(1)) <= room;
    let Some(each) = CPU_CELLS.into_iter().find(|each| fits(*each)) else {
        return strip(theme, all, cells, room);
    };
    let lines = all.chunks((cells / each).max(1)).map(|line| {
        Line::from_iter(line.iter().flat_map(|cpu| exactly(one_cpu(theme, interval, cpu, each), each)))
    });
    lines.collect()
}

/// Returns one CPU: `  12 ██████▌    78%  wait/s 1.20ms`.
fn one_cpu(theme: Theme, interval: &Interval, cpu: &CpuInterval, cells: usize) -> Spans {
    let mut spans = vec![Span::styled(format!("{:>4} ", cpu.cpu), theme.quiet())];
    let share = units::busy_percent(cpu.busy_ns, cpu.idle_ns);
    let [wide, middle, _] = CPU_CELLS;
    if cells < middle {
        let text = or_na(share.map(|share| format!("{share:.0}%")));
        let style = if share.is_some_and(|share| share >= FULL) { theme.alarm() } else { theme.busy() };
        spans.push(Span::styled(text, style));
        return spans;
    }
    let wait = cpu.wait.as_ref().filter(|_| cells >= wide);
    let after = if wait.is_some() { 28 } else { 12 };
    spans.extend(share_bar(theme, share, (cells - after).min(BAR)));
    if let Some(wait) = wait {
        let throttled_ns = wait.by_cause.get(Cause::Throttled);
        let style = if wait.total_ns > throttled_ns { theme.wait() } else { theme.quiet() };
        spans.push(Span::styled("  wait/s ", theme.quiet()));
        spans.push(Span::styled(a_second(interval, wait.total_ns), style));
    }
    spans
}

fn strip(theme: Theme, all: &[CpuInterval], cells: usize, room: usize) -> Lines {
    let each = cells.saturating_sub(12).max(1);
    let line = |cpus: &[CpuInterval]| {
        let busy: Vec<Option<f64>> =
            cpus.iter().map(|cpu| units::busy_percent(cpu.busy_ns, cpu.idle_ns)).collect();
        let range = format!("CPU {:>5}.. ", cpus[0].cpu);
        let bars = bars::sparkline(&busy, 100.0, busy.len());
        Line::from(vec![Span::styled(range, theme.quiet()), Span::styled(bars, theme.busy())])
    };
    let mut lines: Lines = all.chunks(each).take(room).map(line).collect();
    let hidden = all.len().saturating_sub(each * lines.len());
    if hidden != 0
        && let Some(last) = lines.last_mut()
    {
        let words = format!("and {hidden} or more CPUs: make the terminal larger to see them");
        *last = Line::styled(words, theme.quiet());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_keeps_its_width_for_any_content() {
        let node = NodeGroup { node: 3, cpus: (0..400).step_by(2).collect(), ..NodeGroup::default() };
        let interval = Interval::default();
        let about = NodePane { theme: Theme::default(), interval: &interval, node: &node, seen: 12 };
        for cells in 0..90 {
            for line in about.column(cells) {
                assert_eq!(line.iter().map(Span::width).sum::<usize>(), cells);
            }
        }
    }

    fn cpu(cpu: u32, percent: u64) -> CpuInterval {
        let busy_ns = percent * 10_000_000;
        CpuInterval {
            cpu,
            busy_ns: Some(busy_ns),
            idle_ns: Some(1_000_000_000 - busy_ns),
            ..CpuInterval::default()
        }
    }

    fn text(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn all_cpus_are_shown_if_one_cell_for_each_fits() {
        let interval = |count: u32| Interval {
            cpus: (0..count).map(|at| cpu(at, u64::from(at % 101))).collect(),
            ..Interval::default()
        };
        let theme = Theme::default();
        for (count, cells, room) in [(2, 80, 3), (8, 80, 4), (64, 80, 8), (512, 200, 4)] {
            let lines = cpus(theme, &interval(count), cells, room);
            assert!(!lines.is_empty() && lines.len() <= room, "{count} CPUs: {lines:?}");
            assert!(lines.iter().all(|line| line.width() <= cells), "{lines:?}");
            assert!(!text(&lines).concat().contains("more"), "{lines:?}");
        }
        let lines = text(&cpus(theme, &interval(4_000), 60, 2));
        assert_eq!(lines[1], "and 3904 or more CPUs: make the terminal larger to see them");
    }

    #[test]
    fn the_busiest_and_the_idlest_cpu_are_named() {
        let said = spread(&[cpu(0, 40), cpu(1, 99), cpu(2, 3)]);
        assert_eq!(said, "; CPU 1 was busiest, 99%, CPU 2 idlest, 3%");
        assert_eq!(spread(&[cpu(0, 40), cpu(1, 40)]), "; each CPU was 40% busy");
        assert_eq!(spread(&[cpu(0, 40)]), "");
    }
}
