//! The tables of the report.

use std::{collections::BTreeMap, fmt::Write as _};

use cgscope_model::{
    Blame, Cause, CgroupName, CgroupReading, Group, Interval, Mode,
    selection::is_at_or_below,
    units::{duration, percent},
};

use crate::{
    causes::{self, UNNAMED},
    text::process_name,
};

/// Rows of each table.
const ROWS: usize = 15;
/// Pairs of victim and culprit.
const PAIRS: usize = 20;

const HEADINGS: &str =
    "      wait why        throt    waits      p50      p99  longest    on-cpu     vol   invol";
const WHY: usize = 10;

fn row(out: &mut String, group: &Group, name: &str, mode: Mode) -> std::fmt::Result {
    let quantile = |q| group.wait.quantile_ns(q).map_or("-".into(), duration);
    let throttled = percent(group.wait.by_cause.get(Cause::Throttled), group.wait.total_ns);
    writeln!(
        out,
        "{:>10} {:<WHY$} {:>5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7}  {name}",
        duration(group.wait.total_ns),
        causes::bar(&causes::parts(&group.wait.by_cause), WHY),
        throttled.map_or("-".into(), |share| format!("{share:.0}%")),
        group.wait.count,
        quantile(0.5),
        quantile(0.99),
        if mode == Mode::Coarse || group.wait.count == 0 { "-".into() } else { duration(group.wait.max_ns) },
        duration(group.totals.on_cpu_ns),
        group.totals.voluntary,
        group.totals.involuntary,
    )
}

fn table(out: &mut String, title: &str, mode: Mode, mut rows: Vec<(String, Group)>) -> std::fmt::Result {
    rows.retain(|(_, group)| group.wait.count != 0);
    rows.sort_by(|a, b| b.1.wait.total_ns.cmp(&a.1.wait.total_ns).then_with(|| a.0.cmp(&b.0)));
    writeln!(out, "\n{HEADINGS}  {title}")?;
    for (name, group) in rows.iter().take(ROWS) {
        row(out, group, name, mode)?;
    }
    more(out, rows.len().saturating_sub(ROWS))
}

fn more(out: &mut String, left_out: usize) -> std::fmt::Result {
    if left_out == 0 { Ok(()) } else { writeln!(out, "{left_out:>10} more with less waiting") }
}

/// By process, and what ended meanwhile.
pub fn processes(out: &mut String, whole: &Interval) -> std::fmt::Result {
    let groups = whole.by_process().into_iter();
    let mut rows: Vec<(String, Group)> =
        groups.map(|(pid, group)| (format!("{pid} {}", process_name(whole, pid)), group)).collect();
    let mut ended = Group::default();
    for exited in &whole.exited {
        ended.wait.add(&exited.wait);
        ended.totals.add(&exited.totals);
    }
    rows.push(("(tasks that ended between two Samples)".into(), ended));
    table(out, "process", whole.mode, rows)
}

/// By cgroup.
pub fn cgroups(out: &mut String, whole: &Interval) -> std::fmt::Result {
    let rows = whole.by_cgroup().into_iter().map(|(path, group)| (named(path.as_deref()), group));
    table(out, "cgroup, with all below it", whole.mode, rows.collect())
}

/// A path, and whose it is.
fn named(path: Option<&str>) -> String {
    let Some(path) = path else { return "(removed before it was read)".into() };
    match CgroupName::of(path).words() {
        Some(whose) => format!("{path}  ({whose})"),
        None => path.into(),
    }
}

/// Each cgroup with a quota: what the quota is, and what the kernel's own counters say that it did.
pub fn quotas(out: &mut String, whole: &Interval) -> std::fmt::Result {
    let groups = whole.by_cgroup();
    for limits in &whole.limits {
        let Some(path) = whole.cgroup_path(limits.id) else { continue };
        if limits.quota_cores().is_some() && limits.nr_periods != Some(0) {
            quota(out, whole, path, limits, groups.get(&Some(path.clone())))?;
        }
    }
    Ok(())
}

fn quota(
    out: &mut String,
    whole: &Interval,
    path: &str,
    limits: &CgroupReading,
    group: Option<&Group>,
) -> std::fmt::Result {
    let us = |us: Option<u64>| us.map_or("?".into(), |us| duration(us * 1_000));
    let cores = limits.quota_cores().unwrap_or_default();
    write!(out, "\nquota of {}: {cores:.2} CPUs", named(Some(path)))?;
    write!(out, " ({} of every {}", us(limits.quota_us), us(limits.period_us))?;
    write!(out, ", burst {})", limits.burst_us.filter(|us| *us != 0).map_or("none".into(), |b| us(Some(b))))?;
    write!(out, "{}", limits.weight.map_or(String::new(), |weight| format!(", weight {weight}")))?;
    writeln!(out, "{}", limits.cpus.map_or(String::new(), |cpus| format!(", may use {cpus} CPUs")))?;
    if let (Some(periods), Some(throttled)) = (limits.nr_periods, limits.nr_throttled) {
        let share = percent(throttled, periods).map_or("-".into(), |share| format!("{share:.1}%"));
        let length = limits.period_us.map_or_else(String::new, |us| {
            format!(" of {}, {} in all", duration(us * 1_000), duration(us.saturating_mul(1_000 * periods)))
        });
        writeln!(out, "  periods  {periods}{length}; the quota ran out in {throttled}: {share}")?;
    }
    usage(out, limits, group)?;
    if let Some(group) = group {
        let throttled_ns = group.wait.by_cause.get(Cause::Throttled);
        writeln!(
            out,
            "  tasks    waited for it {} of {} in which they could have run",
            duration(throttled_ns),
            duration(group.wait.total_ns + group.totals.on_cpu_ns)
        )?;
    }
    let busy = busy_threads(whole, path);
    writeln!(out, "  threads  {busy} busy at one time or another")
}

fn usage(out: &mut String, limits: &CgroupReading, group: Option<&Group>) -> std::fmt::Result {
    let used = limits.usage_ns.or(group.map(|group| group.totals.on_cpu_ns)).unwrap_or_default();
    if let Some(throttled_ns) = limits.throttled_ns {
        let times = throttled_ns as f64 / used.max(1) as f64;
        writeln!(
            out,
            "  stood    {} out of quota, each CPU counted by itself: {times:.1} times as long as it ran",
            duration(throttled_ns)
        )?;
    }
    let mode =
        |what: &str, ns: Option<u64>| ns.map_or(String::new(), |ns| format!(", {what} {}", duration(ns)));
    writeln!(
        out,
        "  ran      {}{}{}",
        duration(used),
        mode("user", limits.user_ns),
        mode("system", limits.system_ns)
    )
}

fn busy_threads(whole: &Interval, path: &str) -> usize {
    let is_inside = |id| whole.cgroup_path(id).is_some_and(|at| is_at_or_below(at, path));
    let busy = whole.tasks.iter().filter(|task| task.is_busy(whole.duration_ns));
    busy.filter(|task| is_inside(task.reading.cgroup_id)).count()
}

/// Victims and culprits: who waited, behind whom, how long.
pub fn culprits(out: &mut String, whole: &Interval) -> std::fmt::Result {
    let mut pairs: BTreeMap<(String, String), u64> = BTreeMap::new();
    let name = |id| whole.cgroup_path(id).map_or(UNNAMED.into(), |path| path.to_string());
    for pair in whole.pairs.iter().filter(|pair| pair.blame == Blame::Ran) {
        let culprit = causes::culprit(&whole.culprit(pair));
        *pairs.entry((name(pair.victim), culprit)).or_default() += pair.ns;
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let mut waited: BTreeMap<&str, u64> = BTreeMap::new();
    for ((victim, _), ns) in &pairs {
        *waited.entry(victim).or_default() += ns;
    }
    let mut rows: Vec<_> = pairs.iter().collect();
    rows.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    writeln!(out, "\n    waited share  victim, behind whom")?;
    for ((victim, culprit), ns) in rows.iter().take(PAIRS) {
        let share = percent(**ns, waited.get(victim.as_str()).copied().unwrap_or(0));
        let share = share.map_or("-".into(), |share| format!("{share:.0}%"));
        writeln!(out, "{:>10} {share:>5}  {victim}  <-  {culprit}", duration(**ns))?;
    }
    more(out, rows.len().saturating_sub(PAIRS))
}
