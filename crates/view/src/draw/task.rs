//! Details of one subject: a thread, a process, a cgroup, or all tasks.

use std::{cmp::Reverse, sync::Arc};

use cgscope_model::{Blame, PairReading, Placement, TaskInterval, nodes};

use super::{histogram, prelude::*};
use crate::{
    columns::{node_shares, rate},
    nodes::on_nodes,
};

/// Minimum width of a screen with two columns, in cells.
const WIDE: usize = 120;
const GAP: usize = 2;
/// Width of the label of a fact, in cells.
const LABEL: usize = 10;
/// Maximum number of lines of the histogram: one for each bucket, its heading and its legend.
const HISTOGRAM: usize = 32;

/// Returns all lines, each at most as wide as the area.
pub fn lines(pane: &Pane<'_>) -> Lines {
    if pane.cells < WIDE {
        return [first(pane), second(pane)].concat();
    }
    let cells = (pane.cells - GAP).div_ceil(2);
    let mut lines = first(&Pane { cells, ..*pane });
    let second = second(&Pane { cells: (pane.cells - GAP) / 2, ..*pane });
    lines.resize(lines.len().max(second.len()), Line::default());
    for (line, beside) in lines.iter_mut().zip(second) {
        line.spans.push(Span::raw(" ".repeat((cells + GAP).saturating_sub(line.width()))));
        line.spans.extend(beside.spans);
    }
    lines
}

fn first(pane: &Pane<'_>) -> Lines {
    let members = members(pane);
    [
        who(pane),
        now(pane),
        spent(pane, &members),
        behind(pane),
        quotas(pane),
        waits(pane),
        kernel(pane, &members),
        switches(pane),
        places(pane),
        own_limits(pane),
    ]
    .concat()
}

fn second(pane: &Pane<'_>) -> Lines {
    [past(pane), worst(pane), lengths(pane)].concat()
}

/// Returns the subject's threads that existed at the end of the interval.
fn members<'a>(pane: &Pane<'a>) -> Vec<&'a TaskInterval> {
    let data = pane.data;
    data.places_in(&pane.subject.key()).filter_map(|place| data.task_at(place)).collect()
}

/// Returns the subject's cgroup in the tree; the root for all tasks.
fn node<'a>(pane: &Pane<'a>) -> Option<(usize, &'a Node)> {
    let path = match pane.subject {
        Subject::All(_) => "/",
        subject => subject.cgroup(pane.interval)?,
    };
    let at = pane.data.tree.find(path)?;
    Some((at, &pane.data.tree.nodes()[at]))
}

fn fact(pane: &Pane<'_>, label: &str, text: &str) -> Lines {
    known(pane, label, Some(text))
}

fn known(pane: &Pane<'_>, label: &str, text: Option<&str>) -> Lines {
    pane.labelled(&left(label, LABEL), text)
}

fn now(pane: &Pane<'_>) -> Lines {
    // Coarse mode does not record the tasks that run or wait at a moment.
    if !pane.app.is_exact() {
        return Vec::new();
    }
    let words = match (pane.now(), pane.subject) {
        (Some(waits), _) => waits,
        (None, Subject::Task(task)) if task.reading.on_cpu => "on its CPU".into(),
        (None, Subject::Task(_)) => "blocked: asleep, or waiting for something other than a CPU".into(),
        (None, _) => "no task waits".into(),
    };
    fact(pane, "now", &words)
}

fn past(pane: &Pane<'_>) -> Lines {
    let values: Vec<Option<f64>> = pane.app.focus.past.iter().map(|one| Some(one.waiting())).collect();
    let shown = values.len().min(pane.cells.saturating_sub(LABEL));
    let most = values[values.len() - shown..].iter().flatten().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return fact(pane, "waited", "not in the intervals that are kept");
    }
    let label = Span::styled(left("waited", LABEL), pane.theme.quiet());
    let line = Span::styled(bars::sparkline(&values, most, shown), pane.theme.wait());
    let count = units::count(shown as u64, "interval");
    let words = match pane.subject {
        Subject::Task(_) => format!("worst of {count}: {:.1}% of the interval", most * 100.0),
        _ => format!("worst of {count}: {most:.2} tasks waited on average"),
    };
    [vec![Line::from(vec![label, line])], fact(pane, "", &words)].concat()
}

fn lengths(pane: &Pane<'_>) -> Lines {
    if !pane.app.is_exact() {
        return fact(pane, "", NO_HISTOGRAM);
    }
    [vec![pane.heading()], histogram::tables(pane, &[pane.app.settings.span], HISTOGRAM, true)].concat()
}

const CAUSE: usize = 21;
const SHARE: usize = 7;
const TIME: usize = 8;
const WORST: usize = 5;
const FIGURE: usize = 8;
const BAR: usize = 10;
/// Minimum width of the column of names for the long heading, in cells.
const ROOMY: usize = 28;

fn waits(pane: &Pane<'_>) -> Lines {
    let (wait, theme) = (pane.subject.wait(), pane.theme);
    let mut lines = fact(pane, "waits", &wait_line(wait, pane.interval.mode));
    let total = wait.by_cause.total();
    let parts = wait.by_cause.iter().filter(|(_, ns)| *ns != 0).sorted_by_key(|(_, ns)| Reverse(*ns));
    let room = pane.cells.saturating_sub(LABEL + CAUSE + SHARE + TIME + 1);
    lines.extend(parts.map(|(cause, ns)| {
        let words = left(causes::shown(cause).words, CAUSE);
        let share = right(&format!("{:.1}%", percent(ns, total).unwrap_or(0.0)), SHARE);
        let time = right(&duration(ns), TIME);
        let bar = bars::repeated(theme.sign(cause), bar_length(ns, total, room), theme.cause(cause));
        Line::from(vec![Span::raw(format!("{:LABEL$}{words}{share}{time} ", "")), bar])
    }));
    lines
}

/// Returns the kernel's own sum of the waits, and the waits that the sum leaves out.
fn kernel(pane: &Pane<'_>, members: &[&TaskInterval]) -> Lines {
    // Coarse mode reads the kernel's figure, so there is nothing to compare.
    if !pane.app.is_exact() {
        return Vec::new();
    }
    let totals = pane.subject.totals();
    let pending = members.iter().filter_map(|task| task.reading.pending.as_ref());
    let booked_ns = sum::total(pending.map(|pending| pending.booked_ns));
    let mut lines = fact(pane, "kernel", &kernel_words(totals.wait_ns, totals.run_delay_ns, booked_ns));
    if totals.unstamped != 0 {
        let (count, ns) = (units::count(totals.unstamped, "wait"), duration(totals.unstamped_ns));
        let began = "that began when a task was preempted on its way to sleep";
        lines.extend(fact(pane, "", &format!("the sum leaves out {count} ({ns}) {began}")));
    }
    lines
}

fn switches(pane: &Pane<'_>) -> Lines {
    let totals = pane.subject.totals();
    let a_second = |count| per_second(count, pane.interval.duration_ns).map_or("-".into(), rate);
    let (voluntary, involuntary) = (a_second(totals.voluntary), a_second(totals.involuntary));
    let mut words = format!("{voluntary} a second voluntary, {involuntary} involuntary");
    if pane.app.is_exact() {
        words += &format!(", {} moves between CPUs", a_second(totals.migrations));
    }
    if let Subject::Task(task) = pane.subject
        && let Some(moves) = task.placement.node_migrations
    {
        words += &format!(", {} between nodes", a_second(moves));
    }
    fact(pane, "switches", &words)
}

fn worst(pane: &Pane<'_>) -> Lines {
    let worst = most_waiting(members(pane));
    if worst.is_empty() || matches!(pane.subject, Subject::Task(_)) {
        return Vec::new();
    }
    let name = pane.cells.saturating_sub(4 * FIGURE + 1 + BAR);
    let head = if name >= ROOMY { "its threads that waited most" } else { "waited most" };
    let titles = ["waited", "p99", "longest", "now"].map(|title| right(title, FIGURE)).concat();
    let title = format!("{}{titles} why", left(head, name));
    let mut lines = vec![Line::styled(title, pane.theme.quiet())];
    lines.extend(worst.into_iter().map(|task| member(pane, task, name)));
    lines
}

fn member(pane: &Pane<'_>, task: &TaskInterval, name: usize) -> Line<'static> {
    let (reading, wait) = (&task.reading, task.all_waits());
    let figures = [
        Some(wait.total_ns),
        wait.quantile_ns(0.99),
        (pane.app.is_exact() && wait.count != 0).then_some(wait.max_ns),
        reading.pending_ns(),
    ]
    .map(|ns| right(&or_dash(ns), FIGURE));
    let name = left(&format!("{} [{}]", reading.comm, reading.tid), name);
    let mut by_cause = wait.by_cause;
    reading.pending.iter().for_each(|pending| by_cause.add(&pending.by_cause));
    let mut spans = vec![Span::raw(format!("{name}{} ", figures.concat()))];
    spans.extend(bars::stacked(&causes::parts(&by_cause), BAR, pane.theme));
    Line::from(spans)
}

/// Compares the kernel's sum of the same waits with ours, and explains a difference.
fn kernel_words(ours_ns: u64, kernel_ns: u64, booked_ns: u64) -> String {
    let differ = duration(kernel_ns.abs_diff(ours_ns));
    let why = match kernel_ns.checked_sub(ours_ns) {
        Some(0) => ": the same".into(),
        Some(more_ns) if more_ns <= booked_ns => {
            format!(", {differ} more: the part of unfinished waits before a migration is counted already")
        }
        Some(_) => format!(", {differ} more: waits that were not seen, or have not ended"),
        None => format!(", {differ} less: the rest was counted before this interval"),
    };
    format!("its own sum (run_delay) is {}{why}", duration(kernel_ns))
}

/// Returns the tasks that waited most, including waits that have not ended. Tasks that did not wait are omitted.
fn most_waiting(members: Vec<&TaskInterval>) -> Vec<&TaskInterval> {
    let waited = |task: &&TaskInterval| {
        task.all_waits().total_ns.saturating_add(task.reading.pending_ns().unwrap_or(0))
    };
    let waiting = members.into_iter().filter(|task| waited(task) != 0);
    // For equal times, the older task comes first.
    waiting.sorted_by_key(|task| (Reverse(waited(task)), task.reading.serial)).take(WORST).collect()
}

const NAMED: usize = 4;
/// Width of the time and of the share of a culprit or quota, in cells.
const RANKED: usize = 6;

fn quotas(pane: &Pane<'_>) -> Lines {
    let Some((at, node)) = node(pane) else { return Vec::new() };
    let (interval, tree) = (pane.interval, &pane.data.tree);
    let chain = || std::iter::once(at).chain(tree.ancestors(at));
    let mut lines = Vec::new();
    for at in chain() {
        let Some(limits) = tree.limits(interval, at) else { continue };
        let above = &tree.nodes()[at];
        let used_ns = pane.data.used_ns(&Subject::Cgroup(above));
        let Some(words) = pane::quota_words(limits, used_ns, interval.duration_ns) else { continue };
        let throttled = limits.throttled_ns.filter(|ns| *ns != 0);
        let throttled = throttled.map_or(String::new(), |ns| format!(", throttled {}", duration(ns)));
        let name = interval.names.of(&above.path);
        lines.extend(fact(pane, "quota", &format!("{name}: {words}{throttled}")));
    }
    // A limit that was not read can still exist, so show "none" only if all limits were read.
    let all_read = chain().all(|at| at == 0 || tree.limits(interval, at).is_some());
    if lines.is_empty() && all_read && at != 0 {
        lines.extend(fact(pane, "quota", "none for its cgroup and ancestors"));
    }
    lines.extend(ranked(pane, "throttled", "by the quota of", &throttled_by(pane, node)));
    lines
}

fn ranked(pane: &Pane<'_>, label: &str, words: &str, all: &[(String, u64)]) -> Lines {
    let total = sum::total(all.iter().map(|(_, ns)| *ns));
    // The culprits are known only for the whole cgroup of a thread or process.
    let is_of_all = own_cgroup(pane).is_some() && !all.is_empty();
    let mut lines = Vec::from_iter(is_of_all.then(|| format!("all tasks of its cgroup, {words}")));
    lines.extend(all.iter().take(NAMED).map(|(name, ns)| {
        let share = format!("({:.0}%)", percent(*ns, total).unwrap_or(0.0));
        let room = pane.cells.saturating_sub(LABEL + 2 * RANKED + 2);
        format!("{} {} {}", right(&duration(*ns), RANKED), right(&share, RANKED), cut_start(name, room))
    }));
    lines.extend((all.len() > NAMED).then(|| format!("{} more", all.len() - NAMED)));
    pane::hanging(Span::styled(left(label, LABEL), pane.theme.quiet()), lines, Style::new())
}

/// Returns the quotas that ran out, worst first, and the waiting time that each quota caused, ns.
fn throttled_by(pane: &Pane<'_>, node: &Node) -> Vec<(String, u64)> {
    let interval = pane.interval;
    let named = |path: Option<&Arc<str>>, ns| (causes::name_of(&interval.names, path).into_owned(), ns);
    if let Some(id) = own_cgroup(pane) {
        let pairs = pairs(interval, id, Blame::Limited);
        return pairs.map(|pair| named(interval.cgroup_path(pair.culprit), pair.ns)).collect();
    }
    let nodes = pane.data.tree.nodes();
    node.throttled_by.iter().map(|(by, ns)| named(by.map(|by| &nodes[by].path), *ns)).collect()
}

fn behind(pane: &Pane<'_>) -> Lines {
    let interval = pane.interval;
    let culprits = match own_cgroup(pane) {
        Some(id) => pairs(interval, id, Blame::Ran).map(|pair| interval.culprit(pair)).collect(),
        None => pane.subject.culprits(pane.data),
    };
    let named = culprits.iter().map(|culprit| (culprit.words(&interval.names), culprit.ns));
    ranked(pane, "behind", "behind", &named.collect::<Vec<_>>())
}

fn own_cgroup(pane: &Pane<'_>) -> Option<u64> {
    pane.subject.task().map(|task| task.reading.cgroup_id)
}

fn pairs(interval: &Interval, victim: u64, blame: Blame) -> impl Iterator<Item = &PairReading> {
    let pairs = interval.pairs.iter().filter(move |pair| pair.victim == victim && pair.blame == blame);
    pairs.sorted_by_key(|pair| Reverse(pair.ns))
}

fn own_limits(pane: &Pane<'_>) -> Lines {
    let Some(limits) = pane.limits() else { return Vec::new() };
    let length_ns = pane.interval.duration_ns;
    let contention = text::contention(limits.contention_ns, limits.throttled_pressure_ns, length_ns);
    let facts = [
        ("weight", limits.weight.map(|weight| format!("{weight} among its siblings, by default 100"))),
        ("cpuset", limits.cpuset.as_ref().map(|cpus| format!("CPUs {cpus}"))),
        ("contention", contention),
        ("pressure", pressure(limits, length_ns)),
        ("burst", limits.burst_us.filter(|us| *us != 0).map(|us| burst(limits, us))),
        ("memory", Some(on_nodes(&limits.memory_by_node)).filter(|words| !words.is_empty())),
    ];
    facts.into_iter().flat_map(|(label, words)| known(pane, label, words.as_deref())).collect()
}

fn pressure(limits: &CgroupReading, length_ns: u64) -> Option<String> {
    let some = percent(limits.pressure_some_ns?, length_ns)?;
    let full = limits.pressure_full_ns.and_then(|ns| percent(ns, length_ns));
    let full = full.map_or(String::new(), |full| format!("; in {full:.1}% some waited and none ran"));
    Some(format!("in {some:.1}% of the interval some task waited for a CPU{full} (cpu.pressure)"))
}

fn burst(limits: &CgroupReading, burst_us: u64) -> String {
    let may = format!("may save {} of unused quota", micros(burst_us));
    let used = limits.nr_bursts.zip(limits.burst_ns).map(|(count, ns)| {
        format!(", used {} above the quota in {}", duration(ns), units::count(count, "period"))
    });
    may + &used.unwrap_or_default()
}

/// Number of parts: on CPU, each cause in order, and blocked.
const PARTS: usize = CAUSES + 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// Time of each part, ns. The sum of all parts is the length of the interval times the number of threads.
    parts: [u64; PARTS],
    /// Whether waits that began before the interval were cut to the interval.
    is_cut: bool,
}

impl Spent {
    /// Sums the time of threads in an interval. A wait that has not ended counts with the part within the interval.
    fn of<'a>(tasks: impl IntoIterator<Item = &'a TaskInterval>, duration_ns: u64) -> Self {
        let mut sum = Self::default();
        for task in tasks {
            let on_cpu_ns = task.all_totals().on_cpu_ns.min(duration_ns);
            let room = duration_ns - on_cpu_ns;
            let mut waited = task.all_waits().by_cause;
            // Waits without a wakeup stamp have no recorded cause.
            waited.add(&ByCause::only(Cause::Unattributed, task.all_totals().unstamped_ns));
            let pending = task.reading.pending.iter();
            pending.for_each(|pending| waited.add(&pending.by_cause.at_most(duration_ns)));
            sum.is_cut |= waited.total() > room;
            let waited = waited.at_most(room);
            let waited_ns = causes::ORDER.map(|cause| waited.get(cause));
            let blocked_ns = room.saturating_sub(waited.total());
            let parts = std::iter::once(on_cpu_ns).chain(waited_ns).chain([blocked_ns]);
            sum.parts.iter_mut().zip(parts).for_each(|(sum, ns)| sum::add(sum, ns));
        }
        sum
    }

    /// Splits `whole` into parts that are proportional to the times. The parts sum to `whole`, unless there is no time at all.
    fn parts_of(&self, whole: usize) -> [usize; PARTS] {
        causes::proportional(self.parts.map(|ns| ns as f64), whole)
    }
}

fn part(at: usize, theme: Theme) -> (char, Style, &'static str) {
    match at.checked_sub(1) {
        None => (if theme.has_colour() { '▒' } else { '=' }, theme.busy(), "on CPU"),
        Some(CAUSES) => ('-', theme.quiet(), "blocked"),
        Some(at) => {
            let cause = causes::ORDER[at.min(CAUSES - 1)];
            (theme.sign(cause), theme.cause(cause), causes::shown(cause).words)
        }
    }
}

fn spent(pane: &Pane<'_>, members: &[&TaskInterval]) -> Lines {
    let (theme, length_ns) = (pane.theme, pane.interval.duration_ns);
    let spent = Spent::of(members.iter().copied(), length_ns);
    if spent.parts.iter().all(|ns| *ns == 0) {
        return Vec::new();
    }
    let mut bar = vec![Span::styled(left("time", LABEL), theme.quiet())];
    let cells = spent.parts_of(pane.cells.saturating_sub(LABEL));
    bar.extend(cells.into_iter().enumerate().map(|(at, cells)| {
        let (sign, style, _) = part(at, theme);
        bars::repeated(sign, cells, style)
    }));
    let is_one = matches!(pane.subject, Subject::Task(_));
    // Each part is in tenths of a percent.
    let shares = spent.parts_of(1_000).into_iter().enumerate().filter(|(at, _)| spent.parts[*at] != 0);
    let shares = shares.map(|(at, tenths)| {
        let (sign, style, name) = part(at, theme);
        let threads = spent.parts[at] as f64 / length_ns.max(1) as f64;
        let average = match at {
            _ if is_one => String::new(),
            0 => format!(" ({threads:.2} threads on average)"),
            _ => format!(" ({threads:.2})"),
        };
        let words = format!(" {name} {}.{}%{average}  ", tenths / 10, tenths % 10);
        [Span::styled(sign.to_string(), style), Span::raw(words)]
    });
    let mut lines = vec![Line::from(bar)];
    lines.extend(bars::flow(shares, LABEL, pane.cells));
    if spent.is_cut {
        lines.extend(fact(pane, "", "waits that began earlier count only from the start of the interval"));
    }
    lines
}

fn who(pane: &Pane<'_>) -> Lines {
    let title = Span::styled(cut_start(&pane.title(), pane.cells), pane.theme.heading());
    let fits = |kin: &String| title.width() + 2 + width(kin) <= pane.cells;
    let (beside, below) = match kin(pane) {
        Some(kin) if fits(&kin) => (Some(Span::styled(format!("  {kin}"), pane.theme.quiet())), None),
        kin => (None, kin),
    };
    let mut lines = vec![Line::from_iter(std::iter::once(title).chain(beside))];
    lines.extend(known(pane, "", below.as_deref()));
    let command = pane.subject.task().and_then(|task| pane.app.command_line(task.reading.tgid));
    lines.extend(known(pane, "command", command.as_deref()));
    if let Some(path) = pane.subject.cgroup(pane.interval) {
        let is_title = matches!(pane.subject, Subject::Cgroup(_));
        let name = pane.interval.names.of(path);
        let said = if name == **path || is_title { path.to_string() } else { format!("{name}, {path}") };
        lines.extend(fact(pane, "cgroup", &said));
    }
    lines
}

/// Returns the process of a thread, or the number of threads and processes of a group.
fn kin(pane: &Pane<'_>) -> Option<String> {
    let threads = |threads: u64| units::count(threads, "thread");
    Some(match pane.subject {
        Subject::Task(task) => {
            let pid = task.reading.tgid;
            let process = pane.data.process(pid)?;
            let name = &pane.interval.reading(process.named_by).comm;
            let age = age(pane, task.reading.start_ns).map_or(String::new(), |age| format!(", {age} old"));
            format!("of process {pid} {name}, {}{age}", threads(process.group.threads))
        }
        Subject::Process(process, _) => threads(process.group.threads),
        _ => {
            let group = pane.subject.group()?;
            let processes = units::count(group.processes, "process");
            let ended = (group.exited != 0).then(|| format!(", {} exited in the interval", group.exited));
            format!("{} of {processes}{}", threads(group.threads), ended.unwrap_or_default())
        }
    })
}

/// Returns the age of a task at the end of the interval. Known only in a replay, where intervals end at a Sample.
fn age(pane: &Pane<'_>, start_ns: u64) -> Option<String> {
    let replay = pane.app.replay.as_ref()?;
    let end = replay.player.samples.get(replay.shown? + 1)?;
    Some(duration(end.mono_ns.checked_sub(start_ns)?))
}

fn places(pane: &Pane<'_>) -> Lines {
    let mut lines = Vec::new();
    if let Subject::Task(task) = pane.subject {
        let reading = &task.reading;
        let node = reading.node.map_or(String::new(), |node| format!(", on node {node}"));
        lines.extend(fact(pane, "CPU", &format!("{}{node}", reading.cpu)));
        let ran = task.ran_by_node();
        if ran.len() > 1 {
            lines.extend(fact(pane, "ran on", &node_shares(&ran)));
        }
        let placement = reading.placement.as_deref().map(may_run_on).filter(|words| !words.is_empty());
        lines.extend(known(pane, "may run", placement.as_deref()));
    }
    let pid = pane.subject.task().map(|task| task.reading.tgid);
    if let Some(memory) = pane.interval.memory.iter().find(|memory| Some(memory.tgid) == pid) {
        let ran = pane.interval.ran_by_node(|task| task.tgid == memory.tgid);
        let remote = nodes::remote_share(&memory.by_node, &ran).map(|share| 100.0 * share);
        let remote = remote.map(|share| format!("; {share:.1}% on another node than its threads"));
        lines.extend(fact(pane, "memory", &(on_nodes(&memory.by_node) + &remote.unwrap_or_default())));
    }
    lines
}

fn may_run_on(placement: &Placement) -> String {
    let words = [
        placement.cpus_allowed.as_ref().map(|cpus| format!("on CPUs {cpus}")),
        placement.cpuset.as_ref().map(|set| format!("its cpuset {} allows {}", set.path, set.cpus)),
        placement.preferred_node.map(|node| format!("the kernel prefers node {node}")),
    ];
    words.into_iter().flatten().join("; ")
}

#[cfg(test)]
mod tests;
