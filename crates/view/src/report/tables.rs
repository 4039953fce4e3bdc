//! The tables and quotas of the report.

use std::{
    cmp::Reverse,
    fmt::{Result, Write as _},
    sync::Arc,
};

use cgscope_ledger::chains::Waker;
use cgscope_model::{
    Blame, Cause, CgroupReading, ChainReading, Group, Interval, Mode, Totals, Wait,
    path::is_at_or_below,
    sum,
    table::exited::ENDED,
    units::{duration, percent},
};
use itertools::Itertools;

use crate::{
    causes,
    text::{micros, or_dash},
};

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
    waited.iter().take(ROWS).try_for_each(|row| line(out, row, mode))?;
    more(out, waited.len().saturating_sub(ROWS), "waiting")
}

fn line(out: &mut String, row: &Row, mode: Mode) -> Result {
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
    let us = |us: Option<u64>| us.map_or("?".into(), micros);
    let burst = limits.burst_us.filter(|us| *us != 0).map_or("none".into(), micros);
    let (cores, quota, period) =
        (limits.quota_cores().unwrap_or_default(), us(limits.quota_us), us(limits.period_us));
    let weight = limits.weight.map_or(String::new(), |weight| format!(", weight {weight}"));
    let cpus = limits.cpus.map_or(String::new(), |cpus| format!(", may use {cpus} CPUs"));
    format!("{cores:.2} CPUs ({quota} of every {period}, burst {burst}){weight}{cpus}")
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
