//! The report on a recording, as text with tables, or as an HTML page.

pub mod html;

use std::{
    cmp::Reverse,
    fmt::{Result, Write as _},
    sync::Arc,
};

use cgscope_ledger::{Loss, chains::Waker};
use cgscope_model::{
    Blame, Cause, CgroupReading, ChainReading, Finding, Group, Interval, Losses, Mode, Timeline, Totals,
    Wait,
    causes::{Blames, Shown, TABLE},
    findings::{Host, findings},
    path::is_at_or_below,
    sum,
    table::exited::ENDED,
    timeline::Slice,
    units::{count, duration, percent, time_of_day},
};
use itertools::Itertools;

use crate::{
    causes, nodes,
    text::{self, NO_HISTOGRAM, Unit, capital, micros, or_dash, wrapped},
};

pub struct About {
    /// The path as the user gave it.
    pub file: String,
    /// The recorded targets, and the host.
    pub what: String,
    /// Kernel, architecture and number of CPUs, such as `Linux 6.12 x86_64, 2 CPUs`.
    pub host_words: String,
    /// Number of samples, duration and start.
    pub extent: String,
    pub ending: String,
    pub host: Host,
}

pub struct Whole {
    /// All intervals joined.
    pub interval: Interval,
    timeline: Timeline,
    findings: Vec<Finding>,
    cgroups: Vec<Row>,
    processes: Vec<Row>,
    threads: Vec<Row>,
    pairs: Vec<Pair>,
    sleeps: Vec<Sleep>,
    /// The quotas that would have been enough: a line for each cgroup.
    pub enough: Vec<String>,
}

impl Whole {
    /// Derives the contents from the joined intervals. `losses` are the losses of reading the recording.
    pub fn new(mut interval: Interval, timeline: Timeline, losses: &Losses, host: &Host) -> Self {
        losses.nonzero().for_each(|(loss, count)| interval.losses.add(loss, count));
        Self {
            findings: findings(&interval, host),
            cgroups: cgroups(&interval),
            processes: processes(&interval),
            threads: threads(&interval),
            pairs: pairs(&interval),
            sleeps: sleeps(&interval),
            enough: Vec::new(),
            timeline,
            interval,
        }
    }
}

const WIDTH: usize = 100;

pub const NOTHING: &str = "The recording has fewer than two samples, so there is nothing to report.";

pub fn report(about: &About, whole: &Whole) -> String {
    let mut out = title(about, &whole.interval);
    if whole.interval.duration_ns == 0 {
        return format!("{out}\n{NOTHING}\n");
    }
    // Writing to a String cannot fail.
    let _ = body(&mut out, whole, about);
    out
}

/// Writes the findings, then the sums and the timeline, then the tables, and at the end the cost and the losses.
fn body(out: &mut String, whole: &Whole, about: &About) -> Result {
    let Whole { interval, timeline, findings, cgroups, processes, threads, pairs, sleeps, enough } = whole;
    let mode = interval.mode;
    writeln!(out, "\n{}", text::findings_heading(findings))?;
    out.push_str(&text::findings(findings, WIDTH));
    let total = interval.total();
    writeln!(out)?;
    out.extend(sentences(whole, &total).iter().map(|sentence| wrapped(sentence, WIDTH, "") + "\n"));
    sparklines(out, timeline, interval, about.host.cpus)?;
    used_quotas(interval).try_for_each(|(limits, path)| quota(out, interval, path, limits, cgroups))?;
    if !enough.is_empty() {
        writeln!(out, "\n{ENOUGH} ({}):", enough_hint(&about.file))?;
    }
    // These lines are not wrapped, because users copy the settings.
    enough.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    table(out, "Cgroups, each with its descendants", "cgroup", mode, cgroups)?;
    table(out, "Processes", "process, cgroup", mode, processes)?;
    table(out, "Threads", "thread, cgroup", mode, threads)?;
    culprits(out, pairs)?;
    sleep_lines(out, sleeps)?;
    if mode == Mode::Coarse {
        writeln!(out, "\n{}", wrapped(&capital(NO_HISTOGRAM), WIDTH, ""))?;
    } else if total.wait.count != 0 {
        write!(out, "\nHow long waits were, and why:\n{}", text::histogram(&total.wait, Unit::Micro))?;
    }
    out.extend([nodes::table(interval), nodes::memory_lines(interval)]);
    writeln!(out, "\n{}", text::closing_lines(interval).join("\n"))
}

pub const ENOUGH: &str = "What would have been enough";

/// Returns a line that says what "enough" means, and which command shows more.
pub fn enough_hint(file: &str) -> String {
    format!("at most 1% of the periods are throttled; `cgscope whatif {file}` shows other quotas")
}

pub fn incomplete(whole: &Interval) -> impl Iterator<Item = String> {
    let lost = whole.losses.nonzero().any(|(loss, _)| !Loss::leaves_result_whole(loss));
    let lost =
        lost.then(|| format!("Not everything was counted. {}.", capital(&text::loss_line(&whole.losses))));
    let cut = whole.tasks.iter().filter(|task| task.lacks_former_cgroup()).count() as u64;
    let cut = (cut != 0).then(|| {
        format!(
            "An older version of cgscope made this recording. The rows of {} that moved to another cgroup have only what followed \
             the latest move; sums by cgroup have all.",
            count(cut, "task")
        )
    });
    lost.into_iter().chain(cut)
}

fn title(about: &About, whole: &Interval) -> String {
    let mut out = format!("{}: {}, {}\n", about.file, about.what, about.host_words);
    // These lines are not wrapped, because users search for them.
    out += &format!("{}\n{}\n", about.extent, capital(&about.ending));
    out.extend(incomplete(whole).map(|sentence| wrapped(&sentence, WIDTH, "") + "\n"));
    out
}

/// Returns sentences: waits compared with run time, their causes, the culprits and the worst moment, then details.
pub fn sentences(whole: &Whole, total: &Group) -> Vec<String> {
    let interval = &whole.interval;
    let (waited, ran) = (total.wait.total_ns, total.totals.on_cpu_ns);
    let runnable = waited.saturating_add(ran);
    let times = [runnable, ran, waited].map(duration);
    let mut said = vec![match (percent(waited, runnable), times) {
        (Some(share), [runnable, ran, waited]) => format!(
            "Its tasks were runnable for {runnable}: they ran for {ran} and waited for {waited} ({share:.1}% of that time)."
        ),
        (None, _) => "Nothing ran and nothing waited.".into(),
    }];
    said.extend(causes::line(&total.wait.by_cause).map(|why| format!("Why they waited: {why}.")));
    if total.wait.by_cause.blaming(Blames::OtherCgroups) != 0 {
        let behind = causes::culprits_line(&interval.names, &interval.culprits());
        said.extend(behind.map(|behind| format!("Who ran during these waits: {behind}.")));
    }
    said.extend(contention(interval));
    said.extend(worst(&whole.timeline, interval));
    said.push(format!("{}.", capital(&text::wait_line(&total.wait, interval.mode))));
    let totals = &total.totals;
    let switches = format!("{} voluntary and {} involuntary switches", totals.voluntary, totals.involuntary);
    if interval.mode == Mode::Coarse {
        said.push(format!("{switches}."));
        return said;
    }
    said.push(agreement(waited, total));
    if totals.unstamped != 0 {
        let (waits, ns) = (count(totals.unstamped, "wait"), duration(totals.unstamped_ns));
        said.push(format!(
            "Both sums leave out {waits} that began when a task was preempted on its way to sleep, {ns} in total."
        ));
    }
    said.extend(text::pending_line(interval).map(|pending| format!("{}.", capital(&pending))));
    let (moves, ended) = (count(totals.migrations, "move"), count(total.exited, "task"));
    said.push(format!("{switches}, {moves} between CPUs; {ended} ended."));
    said
}

/// Returns a sentence on whether the host, or the selection, has too few CPUs or too small limits.
fn contention(interval: &Interval) -> Option<String> {
    let limits = interval.limits_at("/")?;
    let words = text::contention(limits.contention_ns, limits.throttled_pressure_ns, interval.duration_ns)?;
    Some(format!("Contention: {words}."))
}

fn agreement(waited: u64, total: &Group) -> String {
    let kernel = total.totals.run_delay_ns;
    let same = if kernel == waited {
        ", equal to the nanosecond".into()
    } else {
        format!(
            "; the difference of {} is from waits that had not ended at the first or the last sample",
            duration(kernel.abs_diff(waited))
        )
    };
    format!("The kernel's own sum of these waits is {}{same}.", duration(kernel))
}

/// The width of a sparkline, in cells. A sparkline with its name and its maximum fits in 80 columns.
const COLUMNS: usize = 40;
const NAME: usize = 16;

/// Prints sparklines and marks the worst moment. Prints nothing for a single slice, because the totals show it.
pub fn sparklines(out: &mut String, timeline: &Timeline, whole: &Interval, cpus: Option<u32>) -> Result {
    let slices = &timeline.slices;
    let (Some(first), true) = (slices.first(), slices.len() > 1) else { return Ok(()) };
    let columns: Vec<&[Slice]> = slices.chunks(slices.len().div_ceil(COLUMNS)).collect();
    let length = columns.first().map_or(0, |column| length_ns(column));
    let (count, length, start) =
        (count(columns.len() as u64, "column"), duration(length), time_of_day(first.start_unix_ns));
    writeln!(out, "\nOver time: {count} of {length} each from {start}, average number of tasks:")?;
    let waiting = averages(&columns, |slice| slice.all.waited_ns());
    let top = highest(&waiting);
    line(out, "waiting", &waiting, top, "")?;
    let is_seen = |shown: &&Shown| shown.over_time && !(shown.exact_only && whole.mode == Mode::Coarse);
    for shown in TABLE.iter().filter(is_seen) {
        let waiting = averages(&columns, |slice| slice.all.by_cause.get(shown.cause));
        line(out, &format!("  {}", shown.words.trim_start_matches("behind ")), &waiting, top, "")?;
    }
    let running = averages(&columns, |slice| slice.all.on_cpu_ns);
    let of = cpus.map_or(String::new(), |cpus| format!(" of {cpus} CPUs"));
    line(out, "running", &running, cpus.map_or(highest(&running), f64::from), &of)?;
    let Some(worst) = timeline.worst() else { return Ok(()) };
    let column = worst / slices.len().div_ceil(COLUMNS);
    writeln!(out, "{:>1$} the worst moment", '^', NAME + column + 3)
}

fn length_ns(column: &[Slice]) -> u64 {
    sum::total(column.iter().map(|slice| slice.duration_ns))
}

fn averages(columns: &[&[Slice]], ns: impl Fn(&Slice) -> u64) -> Vec<f64> {
    let total = |column: &&[Slice]| sum::total(column.iter().map(&ns));
    columns.iter().map(|column| total(column) as f64 / length_ns(column).max(1) as f64).collect()
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn line(out: &mut String, name: &str, values: &[f64], top: f64, of: &str) -> Result {
    let is_drawn = |value: f64| value > 0.0 && top > 0.0;
    let bar = |value: &f64| if is_drawn(*value) { text::eighths(*value, top) } else { ' ' };
    let bars: String = values.iter().map(bar).collect();
    let most = highest(values);
    let most = if most > 0.0 && most < 0.01 { "0.01".into() } else { format!("{most:.2}") };
    writeln!(out, "  {name:<NAME$}{bars:<COLUMNS$} up to {most}{of}")
}

/// Returns when, where and why tasks waited most; `None` without waits, or with a single slice.
pub fn worst(timeline: &Timeline, whole: &Interval) -> Option<String> {
    let slices = &timeline.slices;
    let slice = slices.get(timeline.worst()?).filter(|_| slices.len() > 1)?;
    let waited_ns = slice.all.waited_ns();
    let mut said = format!(
        "The worst moment was at {}, {} after the start. For {}, {:.2} tasks waited on average",
        time_of_day(slice.start_unix_ns),
        duration(slice.start_unix_ns.saturating_sub(whole.start_unix_ns)),
        duration(slice.duration_ns),
        slice.average(waited_ns),
    );
    if let Some((id, part)) = slice.worst_cgroup() {
        let path = causes::name_of(&whole.names, whole.cgroup_path(id));
        let share = |ns, of_ns| percent(ns, of_ns).unwrap_or_default();
        let _ = write!(said, ". {:.0}% of this waiting was in {path}", share(part.waited_ns(), waited_ns));
        if let Some((cause, ns)) = part.by_cause.iter().max_by_key(|(_, ns)| *ns) {
            let (share, words) = (share(ns, part.waited_ns()), causes::shown(cause).words);
            let _ = write!(said, "; {share:.0}% of the waiting there was {words}");
        }
    }
    Some(said + ".")
}

const ROWS: usize = 15;
const PAIRS: usize = 20;

const HEADINGS: &str =
    "      wait why        throt    waits      p50      p99  longest    on-cpu     vol   invol";
const WHY: usize = 10;

pub fn table(out: &mut String, title: &str, last: &str, mode: Mode, rows: &[Row]) -> Result {
    let waited: Vec<&Row> = rows.iter().filter(|row| row.wait.count != 0).collect();
    if waited.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}:\n{HEADINGS}  {last}")?;
    waited.iter().take(ROWS).try_for_each(|row| row_line(out, row, mode))?;
    more(out, waited.len().saturating_sub(ROWS), "waiting")
}

fn row_line(out: &mut String, row: &Row, mode: Mode) -> Result {
    let throttled = percent(row.wait.by_cause.get(Cause::Throttled), row.wait.total_ns);
    writeln!(
        out,
        "{:>10} {:<WHY$} {:>5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7}  {}",
        duration(row.wait.total_ns),
        causes::bar(&causes::parts(&row.wait.by_cause), WHY),
        throttled.map_or("-".into(), |share| format!("{share:.0}%")),
        row.wait.count,
        or_dash(row.wait.quantile_ns(0.5)),
        or_dash(row.wait.quantile_ns(0.99)),
        if mode == Mode::Coarse { "-".into() } else { duration(row.wait.max_ns) },
        duration(row.totals.on_cpu_ns),
        row.totals.voluntary,
        row.totals.involuntary,
        named(row),
    )
}

/// Returns the names of a row: `a.service`, `12 sh  /a`, `13 worker of 12  /a`.
fn named(row: &Row) -> String {
    let id = row.id.map_or(String::new(), |id| format!("{id} "));
    let of = row.process.filter(|process| row.id != Some(*process));
    let of = of.map_or(String::new(), |process| format!(" of {process}"));
    let cgroup = row.cgroup.as_deref().map_or(String::new(), |path| format!("  {path}"));
    format!("{id}{}{of}{cgroup}", row.name)
}

fn more(out: &mut String, omitted: usize, of: &str) -> Result {
    if omitted == 0 { Ok(()) } else { writeln!(out, "{omitted:>10} more with less {of}") }
}

pub fn culprits(out: &mut String, pairs: &[Pair]) -> Result {
    if pairs.is_empty() {
        return Ok(());
    }
    let share = "share: part of the time that the victim waited behind others";
    writeln!(out, "\nWho waited behind whom ({share}):\n    waited share  victim  <-  who ran")?;
    for pair in pairs.iter().take(PAIRS) {
        let share = percent(pair.ns, pair.of_ns).map_or("-".into(), |share| format!("{share:.0}%"));
        writeln!(out, "{:>10} {share:>5}  {}  <-  {}", duration(pair.ns), pair.victim, pair.culprit)?;
    }
    more(out, pairs.len().saturating_sub(PAIRS), "waiting")
}

/// Maximum number of sleepers with their wakers.
const SLEEPS: usize = 10;

pub fn sleep_lines(out: &mut String, sleeps: &[Sleep]) -> Result {
    if sleeps.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{SLEEPS_TITLE} ({SLEEPS_HINT}):\n     slept share  in          sleeper  <-  waker: what it did"
    )?;
    for Sleep { sleeper, waker, kind, ns, of_ns, did } in sleeps.iter().take(SLEEPS) {
        let share = percent(*ns, *of_ns).map_or("-".into(), |share| format!("{share:.0}%"));
        writeln!(out, "{:>10} {share:>5}  {kind:<11} {sleeper}  <-  {waker}: {did}", duration(*ns))?;
    }
    more(out, sleeps.len().saturating_sub(SLEEPS), "sleep")
}

pub const SLEEPS_TITLE: &str = "Sleeps for others";
pub const SLEEPS_HINT: &str = "share: part of all the sleeper's sleep; then what the waker did during it";

/// Returns the quotas of cgroups that ran, and the paths of these cgroups.
pub fn used_quotas(whole: &Interval) -> impl Iterator<Item = (&CgroupReading, &str)> {
    let limits = whole.limits.iter();
    let used = limits.filter(|limits| limits.quota_cores().is_some() && limits.nr_periods != Some(0));
    used.filter_map(|limits| Some((limits, &**whole.cgroup_path(limits.id)?)))
}

/// Returns the limits in words: `0.40 CPUs (40.0ms of every 100ms, burst none), weight 100`.
pub fn limit_words(limits: &CgroupReading) -> String {
    let (cores, quota) = (limits.quota_cores().unwrap_or_default(), quota_words(limits));
    let weight = limits.weight.map_or(String::new(), |weight| format!(", weight {weight}"));
    let cpus = limits.cpus.map_or(String::new(), |cpus| format!(", may use {cpus} CPUs"));
    format!("{cores:.2} CPUs ({quota}){weight}{cpus}")
}

/// Returns the quota, the period and the burst in words.
pub fn quota_words(limits: &CgroupReading) -> String {
    let us = |us: Option<u64>| us.map_or("?".into(), micros);
    let burst = limits.burst_us.filter(|us| *us != 0).map_or("none".into(), micros);
    format!("{} of every {}, burst {burst}", us(limits.quota_us), us(limits.period_us))
}

/// Prints a quota with the kernel's own counters. `rows` are the rows of the cgroups.
pub fn quota(out: &mut String, whole: &Interval, path: &str, limits: &CgroupReading, rows: &[Row]) -> Result {
    let row = rows.iter().find(|row| row.path.as_deref() == Some(path));
    writeln!(out, "\nQuota of {}: {}", whole.names.of(path), limit_words(limits))?;
    if let (Some(periods), Some(throttled)) = (limits.nr_periods, limits.nr_throttled) {
        let share = percent(throttled, periods).map_or("-".into(), |share| format!("{share:.1}%"));
        let length = limits.period_us.map_or_else(String::new, |us| {
            format!(" of {}, {} in total", micros(us), micros(us.saturating_mul(periods)))
        });
        writeln!(out, "  periods  {periods}{length}; the quota ran out in {throttled} of them, {share}")?;
    }
    usage(out, limits, row)?;
    if let Some(row) = row {
        let throttled = duration(row.wait.by_cause.get(Cause::Throttled));
        let runnable = duration(row.wait.total_ns + row.totals.on_cpu_ns);
        writeln!(out, "  tasks    throttled for {throttled} of the {runnable} that they were runnable")?;
    }
    let share = |ns: Option<u64>| percent(ns?, whole.duration_ns);
    if let Some((limit, behind)) = share(limits.throttled_pressure_ns).zip(share(limits.contention_ns)) {
        writeln!(
            out,
            "  waited   in {limit:.1}% of the time only for the limit; in {behind:.1}% some task waited for a CPU"
        )?;
    }
    let is_inside = |id| whole.cgroup_path(id).is_some_and(|at| is_at_or_below(at, path));
    let busy = whole.tasks.iter().filter(|task| task.is_busy(whole.duration_ns));
    let threads = busy.filter(|task| is_inside(task.reading.cgroup_id)).count();
    writeln!(out, "  threads  {threads} busy at some time")
}

fn usage(out: &mut String, limits: &CgroupReading, row: Option<&Row>) -> Result {
    let used = limits.usage_ns.or(row.map(|row| row.totals.on_cpu_ns)).unwrap_or_default();
    if let Some(throttled_ns) = limits.throttled_ns {
        let times = throttled_ns as f64 / used.max(1) as f64;
        writeln!(
            out,
            "  stopped  {} because the quota ran out (summed over CPUs), {times:.1} times as long as the cgroup ran",
            duration(throttled_ns)
        )?;
    }
    let [user, system] = [("user", limits.user_ns), ("system", limits.system_ns)]
        .map(|(what, ns)| ns.map_or(String::new(), |ns| format!(", {what} {}", duration(ns))));
    writeln!(out, "  ran      {}{user}{system}", duration(used))
}

pub const REMOVED: &str = "(removed before it was read)";

/// The totals of a cgroup, a process or a thread over the recording.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub name: String,
    /// The path, if the row is a cgroup.
    pub path: Option<Arc<str>>,
    /// The pid of a process, or the tid of a thread.
    pub id: Option<u32>,
    /// The pid of a thread's process.
    pub process: Option<u32>,
    pub cgroup: Option<String>,
    pub wait: Wait,
    pub totals: Totals,
}

impl Row {
    pub fn of_group(name: String, group: Group) -> Self {
        Self { name, wait: group.wait, totals: group.totals, ..Self::default() }
    }
}

/// Sorts rows by waiting, the longest first. Drops rows that neither waited nor ran.
fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let rows = rows.filter(|row| row.wait.count != 0 || row.totals.on_cpu_ns != 0);
    let key = |row: &Row| Reverse((row.wait.total_ns, row.totals.on_cpu_ns));
    let order = |a: &Row, b: &Row| key(a).cmp(&key(b)).then_with(|| (&a.name, a.id).cmp(&(&b.name, b.id)));
    rows.sorted_by(order).collect()
}

/// Returns the cgroups, each including its descendants.
pub fn cgroups(whole: &Interval) -> Vec<Row> {
    sorted(whole.by_cgroup().into_iter().map(|(path, group)| Row {
        path: path.clone(),
        ..Row::of_group(path.map_or(REMOVED.into(), |path| whole.names.of(&path).into()), group)
    }))
}

/// Returns the processes, and one row with the sum of exited tasks.
pub fn processes(whole: &Interval) -> Vec<Row> {
    let rows = whole.processes().into_iter().map(|process| {
        let task = whole.reading(process.named_by);
        let cgroup = whole.cgroup_path(task.cgroup_id).map(|path| whole.names.of(path).into());
        Row { id: Some(process.pid), cgroup, ..Row::of_group(task.comm.to_string(), process.group) }
    });
    sorted(rows.chain([ended(whole)]))
}

/// Returns the threads, and one row with the sum of exited tasks.
pub fn threads(whole: &Interval) -> Vec<Row> {
    let rows = whole.tasks.iter().map(|task| Row {
        name: task.reading.comm.to_string(),
        id: Some(task.reading.tid),
        process: Some(task.reading.tgid),
        cgroup: whole.cgroup_path(task.reading.cgroup_id).map(|path| whole.names.of(path).into()),
        wait: task.all_waits().clone(),
        totals: *task.all_totals(),
        ..Row::default()
    });
    sorted(rows.chain([ended(whole)]))
}

fn ended(whole: &Interval) -> Row {
    Row::of_group(ENDED.into(), whole.ended())
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Pair {
    pub victim: String,
    pub culprit: String,
    /// The victim's waiting behind this culprit, ns summed over tasks.
    pub ns: u64,
    /// The victim's waiting behind all culprits, ns.
    pub of_ns: u64,
}

/// Returns the pairs of victim and culprit, the longest waiting first.
pub fn pairs(whole: &Interval) -> Vec<Pair> {
    let name = |id| causes::name_of(&whole.names, whole.cgroup_path(id)).into_owned();
    let ran = whole.pairs.iter().filter(|pair| pair.blame == Blame::Ran);
    let named = ran.map(|pair| ((name(pair.victim), whole.culprit(pair).words(&whole.names)), pair.ns));
    let sums = sum::tally(named);
    let waited = sum::tally(sums.iter().map(|((victim, _), ns)| (victim.clone(), *ns)));
    let pairs = sums.into_iter().map(|((victim, culprit), ns)| {
        let of_ns = waited.get(&victim).copied().unwrap_or(0);
        Pair { victim, culprit, ns, of_ns }
    });
    // The sort is stable, so equal pairs stay sorted by name.
    pairs.sorted_by_key(|pair| Reverse(pair.ns)).collect()
}

/// How long a cgroup or task slept until a task woke it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Sleep {
    pub sleeper: String,
    pub waker: String,
    /// In what it slept.
    pub kind: &'static str,
    pub ns: u64,
    /// All counted sleep of the sleeper, ns.
    pub of_ns: u64,
    /// What the waker did during the sleep, longest first.
    pub did: String,
}

/// Returns the sleeps that tasks ended, the longest first. Empty if the recording has no chains.
pub fn sleeps(whole: &Interval) -> Vec<Sleep> {
    let rows = || whole.chains.iter().flatten();
    let slept = sum::tally(rows().map(|row| (row.sleeper(), row.slept_ns)));
    let of_tasks = rows().filter(|row| row.waker == Waker::Task && row.slept_ns != 0);
    // The sort is stable, so equal rows stay sorted by key.
    let sorted = of_tasks.sorted_by_key(|row| Reverse(row.slept_ns));
    let sleep = |row: &ChainReading| Sleep {
        sleeper: whole.sleeper_words(row),
        waker: whole.waker_words(row),
        kind: row.kind.name(),
        ns: row.slept_ns,
        of_ns: slept[&row.sleeper()],
        did: causes::doings(row, |cause| causes::shown(cause).words).map(|(_, words)| words).join(", "),
    };
    sorted.map(sleep).collect()
}

#[cfg(test)]
mod tests;
