//! The summary of `cgscope stat -- COMMAND`: the useful figures of `time`, how threads spent their time, and the effect of
//! quotas.

use std::{
    cmp::Reverse,
    fmt::{Result, Write as _},
};

use cgscope_model::{
    BlockedState, BlockedTime, Cause, CgroupReading, Mode, QuotaUse, WallTime,
    causes::Blames,
    command_run::{CommandRun, CpuUse, Ending, HeldBy, NamedProcess, places},
    findings::{QUOTA_FILE, findings},
    pairs::Culprit,
    quota_use, steers,
    units::{self, bytes, cpus, duration, percent},
};
use itertools::Itertools;

use crate::{
    causes::{ORDER, culprits_line, limits_line, shown},
    report::quota_words,
    text::{self, NO_HISTOGRAM, capital, micros, wrapped},
};

/// The beginning of every summary. cgscope recognizes output files of earlier runs by it.
pub const BEGINNING: &str = "cgscope stat: ";
const WIDTH: usize = 100;
const NAMED: usize = 8;

/// Returns the whole summary. Writing to a String cannot fail.
pub fn summary(run: &CommandRun) -> String {
    let mut out = String::new();
    let _ = write(&mut out, run);
    out
}

fn write(out: &mut String, run: &CommandRun) -> Result {
    let total = run.interval.total();
    writeln!(out, "{BEGINNING}{}", command_line(&run.command))?;
    writeln!(out, "{}\n", ending_words(run))?;
    figures(out, run)?;
    outlived(out, run)?;
    time_table(out, run, &WallTime::new(&total))?;
    if let Some(class) = &run.class {
        writeln!(out)?;
        sentence(out, &class.says)?;
    }
    if run.interval.mode == Mode::Bpf {
        sentence(out, &text::wait_line(&total.wait, run.interval.mode))?;
    }
    run.quotas.iter().try_for_each(|held| quota(out, run, held))?;
    let findings = findings(&run.interval, &run.host);
    if !findings.is_empty() {
        writeln!(out, "\n{}", text::findings_heading(&findings))?;
    }
    out.push_str(&text::findings(&findings, WIDTH));
    writeln!(out)?;
    if run.interval.mode == Mode::Coarse {
        sentence(out, NO_HISTOGRAM)?;
    }
    run.remarks.iter().try_for_each(|remark| sentence(out, remark))?;
    writeln!(out, "{}", text::closing_lines(&run.interval).join("\n"))
}

fn sentence(out: &mut String, words: &str) -> Result {
    writeln!(out, "{}", wrapped(&format!("{}.", capital(words)), WIDTH, ""))
}

/// Returns the command as a user could type it. Characters that would control the terminal are escaped as in `$'...'`.
fn command_line(command: &[String]) -> String {
    let quoted = command.iter().map(|word| {
        let is_plain = !word.is_empty()
            && !word.contains(|c: char| c.is_whitespace() || "'\"\\$`;&|<>()*?#".contains(c));
        if word.contains(steers) {
            format!("$'{}'", word.chars().map(escaped).collect::<String>())
        } else if is_plain {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Escapes a character as within `$'...'`.
fn escaped(c: char) -> String {
    match c {
        '\n' => r"\n".into(),
        '\t' => r"\t".into(),
        '\r' => r"\r".into(),
        '\\' | '\'' => format!("\\{c}"),
        c if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
        c if steers(c) && u32::from(c) > 0xFFFF => format!("\\U{:08x}", u32::from(c)),
        c if steers(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.into(),
    }
}

fn ending_words(run: &CommandRun) -> String {
    let how = match run.ending {
        Ending::Exited(0) => "It succeeded (exit code 0)".into(),
        Ending::Exited(code) => format!("It ended with exit code {code}"),
        Ending::Killed { signal, dumped } => {
            let core = if dumped { ", with a core dump" } else { "" };
            format!("It was killed by signal {signal}{core} (exit code {})", run.ending.code())
        }
    };
    format!("{how} after {}.", duration(run.wall_ns))
}

/// Writes the useful figures of `time -v`, one per line.
fn figures(out: &mut String, run: &CommandRun) -> Result {
    let (usage, cpu) = (&run.usage, run.cpu_use());
    let whose = match run.cpu {
        Some(_) => "the command and all that it started",
        None => "the command and processes it waited for",
    };
    let share = units::percent(cpu.usage_ns, run.wall_ns).map_or("-".into(), |share| format!("{share:.0}%"));
    let threads = if run.peak_threads == 1 { "thread" } else { "threads" };
    let processes = units::count(run.peak_processes, "process");
    let every = duration(run.every_ns);
    let mut lines = vec![
        (seconds(run.wall_ns), "s   wall time".to_owned()),
        (seconds(cpu.user_ns), format!("s   user, {whose}")),
        (seconds(cpu.system_ns), format!("s   system, {whose}")),
        (share, "    of one CPU".to_owned()),
    ];
    if run.cpu.is_some() && differs(cpu.usage_ns, usage.user_ns.saturating_add(usage.system_ns)) {
        let system = seconds(usage.system_ns);
        let waited_for = format!("s   user, and {system} s system, of processes that it waited for");
        lines.push((seconds(usage.user_ns), waited_for));
    }
    let [major, involuntary, written] = [usage.major_faults, usage.involuntary, usage.blocks_out].map(number);
    let blocks = format!("    blocks (512 B) read from devices, {written} queued for writing");
    let peak = format!("    or more {threads} at one time, and {processes} (counted every {every})");
    lines.extend([
        (bytes(usage.max_rss_bytes), "    maximum resident set of one process".to_owned()),
        (number(usage.minor_faults), format!("    minor page faults, {major} major")),
        (number(usage.voluntary), format!("    voluntary switches, {involuntary} involuntary")),
        (number(usage.blocks_in), blocks),
        (number(run.peak_threads), peak),
    ]);
    lines.iter().try_for_each(|(figure, what)| writeln!(out, "{figure:>18} {what}"))
}

/// Whether two times differ by more than 1 %, and by more than one tick (10 ms).
fn differs(a_ns: u64, b_ns: u64) -> bool {
    const TICK_NS: u64 = 10_000_000;
    a_ns.abs_diff(b_ns) > TICK_NS.max(a_ns / 100)
}

/// Formats seconds as `120.338`.
fn seconds(ns: u64) -> String {
    format!("{}.{:03}", number(ns / 1_000_000_000), ns / 1_000_000 % 1_000)
}

/// Formats a number as `120,338,230`.
fn number(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn outlived(out: &mut String, run: &CommandRun) -> Result {
    if run.outlived.is_empty() {
        return Ok(());
    }
    let it = units::count(run.outlived.len() as u64, "process");
    let their = if run.outlived.len() == 1 { "its" } else { "their" };
    let names = names(&run.outlived);
    writeln!(out)?;
    let counted = format!("{their} time up to its end is counted: {names}");
    sentence(out, &format!("{it} still ran when the command ended; {counted}"))
}

/// Returns the names of processes: `sleep [12], sh [13], 5 more`.
fn names(processes: &[NamedProcess]) -> String {
    text::listed(processes.iter().map(|process| format!("{} [{}]", process.comm, process.pid)), NAMED)
}

fn quota(out: &mut String, run: &CommandRun, held: &HeldBy) -> Result {
    let quota = &held.quota;
    writeln!(out, "\ncpu.stat of {}: {}", quota.path, limit_words(&quota.delta))?;
    if !quota.is_used() {
        return writeln!(out, "  No period passed in which one of its tasks could run.");
    }
    quota_table(out, quota, own(run, quota))?;
    let derived =
        [periods(run, quota), throttled(run, quota), mode(run, quota), threads(run, quota), whose(run, held)];
    derived.iter().flatten().try_for_each(|words| sentence(out, words))
}

/// Describes a quota: `1 CPU of quota (100ms of every 100ms, burst none)`.
fn limit_words(limits: &CgroupReading) -> String {
    let cores = limits.quota_cores().map(|cores| format!("{} of quota", cpus(cores)));
    let cores = cores.unwrap_or("no quota now".into());
    format!("{cores} ({})", quota_words(limits))
}

/// Returns the command's own CPU time, if the files of the quota's cgroup have no CPU time.
fn own(run: &CommandRun, quota: &QuotaUse) -> Option<CpuUse> {
    run.cpu.filter(|_| quota.delta.usage_ns.is_none())
}

fn quota_table(out: &mut String, quota: &QuotaUse, own: Option<CpuUse>) -> Result {
    type Figure = fn(&CgroupReading) -> Option<u64>;
    fn us(ns: Option<u64>) -> Option<u64> {
        ns.map(|ns| ns / 1_000)
    }
    writeln!(out, "  {:<16} {:>20} {:>20} {:>20}", "", "before", "after", "delta")?;
    let rows: [(&str, Figure, Option<u64>); 6] = [
        ("usage_usec", |reading| us(reading.usage_ns), own.map(|own| own.usage_ns)),
        ("user_usec", |reading| us(reading.user_ns), own.map(|own| own.user_ns)),
        ("system_usec", |reading| us(reading.system_ns), own.map(|own| own.system_ns)),
        ("nr_periods", |reading| reading.nr_periods, None),
        ("nr_throttled", |reading| reading.nr_throttled, None),
        ("throttled_usec", |reading| us(reading.throttled_ns), None),
    ];
    rows.into_iter().try_for_each(|(name, figure, own)| {
        let [before, after, delta] = match own {
            Some(_) => [None, None, us(own)],
            None => [&quota.before, &quota.after, &quota.delta].map(figure),
        }
        .map(|figure| figure.map_or("-".into(), number));
        let name = format!("{name}{}", if own.is_some() { " *" } else { "" });
        writeln!(out, "  {name:<16} {before:>20} {after:>20} {delta:>20}")
    })
}

fn periods(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let (all, throttled) = (quota.delta.nr_periods?, quota.delta.nr_throttled?);
    let share = quota.throttled_percent()?;
    let length = quota.periods_ns().zip(quota.delta.period_us).map(|(ns, us)| {
        let period = micros(us);
        format!("; {all} x {period} = {}; the command took {}", duration(ns), duration(run.wall_ns))
    });
    let all = units::count(all, "period");
    Some(format!("the quota ran out in {share:.1}% of {all} ({throttled}){}", length.unwrap_or_default()))
}

fn throttled(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let ns = quota.delta.throttled_ns.filter(|ns| *ns != 0)?;
    let times = units::times(ns, run.ran_under(quota));
    let times = times.map_or(String::new(), |times| format!(", {times} its run time"));
    let over = if ns > run.wall_ns { ", so it may exceed the elapsed time" } else { "" };
    let threads = Some(run.held_ns(quota.after.id)).filter(|ns| *ns != 0);
    let threads = threads.map(duration).map_or(String::new(), |waited| {
        format!("; the command's threads waited {waited} for the quota, each thread counted separately")
    });
    Some(format!("it was throttled for {}, each CPU counted separately{over}{times}{threads}", duration(ns)))
}

fn mode(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let cpu = run.cpu_use();
    let (user, system) =
        quota.delta.user_ns.zip(quota.delta.system_ns).unwrap_or((cpu.user_ns, cpu.system_ns));
    let said = match quota_use::mode(user, system)? {
        quota_use::Mode::CpuBound => "CPU-bound, not I/O",
        quota_use::Mode::InKernel => "it spends its time in the kernel",
        quota_use::Mode::Mixed => "neither user mode nor the kernel dominates",
    };
    let share = percent(user, user.saturating_add(system))?;
    Some(format!("user {}, system {}: {share:.1}% user mode, {said}", duration(user), duration(system)))
}

fn threads(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let cores = quota.delta.quota_cores()?;
    let enough = cores.ceil().max(1.0) as u64;
    // Between two counts, more threads might have existed.
    let (peak, cpus) = (units::count(run.peak_threads, "thread"), cpus(cores));
    let threads = format!("at least {peak} existed at the same time, with a quota of {cpus}");
    if run.peak_threads <= enough {
        return Some(threads);
    }
    let advice = quota.delta.nr_throttled.filter(|throttled| *throttled != 0).map(|_| {
        let most = units::count(enough, "thread");
        format!(": raise the limit ({QUOTA_FILE}), or start at most {most} (one for each CPU of the limit)")
    });
    Some(threads + &advice.unwrap_or_default())
}

fn whose(run: &CommandRun, held: &HeldBy) -> Option<String> {
    let (quota, ours) = (&held.quota, run.cpu_use().usage_ns);
    let used = quota.delta.usage_ns;
    let share = used.filter(|used| differs(*used, ours)).and_then(|used| percent(ours, used));
    let share = share.map(|share| format!("the command used {share:.1}% of that CPU time"));
    let others = (!held.others.is_empty()).then(|| format!("also in this cgroup: {}", names(&held.others)));
    let words =
        "lines with * are the command's own figures: the hierarchy of cpuacct does not have this cgroup";
    let own = own(run, quota).map(|_| words.to_owned());
    let all: Vec<String> = [own, share, others].into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("these figures are of {}; {}", quota.path, all.join("; ")))
}

const CGROUPS: usize = 3;
/// Minimum share of a part, percent, for naming the cgroups that are to blame.
const REMARKED_PERCENT: f64 = 1.0;
/// Indentation of the continuation of a remark.
const INDENT: &str = "                                                   ";

fn time_table(out: &mut String, run: &CommandRun, time: &WallTime) -> Result {
    let whole = match time.blocked {
        Some(_) => "in which its threads existed, summed over the threads",
        None => "in which its threads ran or could run, summed over the threads",
    };
    writeln!(out, "\nWhere the {} went {whole}:", duration(time.total_ns()))?;
    let mut row = |what: &str, ns: Option<u64>, remark: Option<String>| part(out, time, what, ns, remark);
    row("on a CPU", Some(time.on_cpu_ns), None)?;
    for cause in ORDER {
        let ns = time.waited.known(cause, run.interval.mode);
        let matters =
            ns.and_then(|ns| percent(ns, time.total_ns())).is_some_and(|share| share >= REMARKED_PERCENT);
        row(shown(cause).state, ns, if matters { remark(cause, run) } else { None })?;
    }
    let Some(blocked) = time.blocked else { return row("blocked", None, Some("not known".into())) };
    for (state, ns) in blocked.iter() {
        // A command has no kernel threads, and its threads are rarely stopped. Show those lines only if they are not 0.
        if ns != 0
            || matches!(state, BlockedState::Sleeping | BlockedState::Iowait | BlockedState::Uninterruptible)
        {
            row(state_words(state), Some(ns), None)?;
        }
    }
    run.blocked_on.map_or(Ok(()), |kinds| blocked_on(out, time, &kinds))
}

fn blocked_on(out: &mut String, time: &WallTime, kinds: &BlockedTime) -> Result {
    let mut kinds = kinds.iter().filter(|(_, ns)| *ns != 0).sorted_by_key(|(_, ns)| Reverse(*ns));
    if kinds.len() == 0 {
        return Ok(());
    }
    writeln!(out, "the blocked time, by what the threads waited for:")?;
    kinds.try_for_each(|(kind, ns)| part(out, time, &format!("on {}", kind.name()), Some(ns), None))
}

fn part(out: &mut String, time: &WallTime, what: &str, ns: Option<u64>, remark: Option<String>) -> Result {
    let share = ns.and_then(|ns| percent(ns, time.total_ns()));
    let share = share.map_or("-".into(), |share| format!("{share:.1}%"));
    let line = format!("  {what:<30} {:>8} {share:>7}", ns.map_or("-".into(), duration));
    match remark {
        Some(remark) => writeln!(out, "{}", wrapped(&format!("{line}  {remark}"), WIDTH, INDENT)),
        None => writeln!(out, "{line}"),
    }
}

const fn state_words(state: BlockedState) -> &'static str {
    match state {
        BlockedState::Sleeping => "blocked, sleeping (S)",
        BlockedState::Iowait => "blocked, waiting for a device",
        BlockedState::Uninterruptible => "blocked, uninterruptible (D)",
        BlockedState::Idle => "idle",
        BlockedState::Stopped => "stopped",
    }
}

fn remark(cause: Cause, run: &CommandRun) -> Option<String> {
    let names = &run.interval.names;
    match shown(cause).blames {
        Blames::Quotas => limits_line(&run.interval, "/").map(|limits| format!("quota of {limits}")),
        Blames::OwnCgroup if run.own_is_distinct => Some("behind its own threads".into()),
        Blames::OwnCgroup => {
            let places = places(&run.interval);
            let mut named: Vec<_> = places.iter().take(CGROUPS).map(|path| names.of(path)).collect();
            named.extend((places.len() > CGROUPS).then(|| "more".into()));
            (!named.is_empty()).then(|| format!("its own threads and other tasks in {}", named.join(", ")))
        }
        Blames::OtherCgroups => culprits_line(names, &others(run, false)),
        Blames::Kernel => culprits_line(names, &others(run, true)),
        Blames::Nobody => None,
    }
}

fn others(run: &CommandRun, kernel: bool) -> Vec<Culprit> {
    run.interval.culprits().into_iter().filter(|culprit| culprit.kernel == kernel).collect()
}

#[cfg(test)]
mod tests;
