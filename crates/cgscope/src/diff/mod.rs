//! `cgscope diff`: shows what changed between two recordings, and which changes are more than noise.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    thread,
};

use cgscope_model::{
    Mode, Names,
    diff::{
        Change, CpuLimits, Diff, DiffSubject, FEWEST_BLOCKS, FigureUnit, LimitChange, MOST_BLOCKS,
        SMALL_ERROR, Side, Verdict, compare, object, objects,
    },
    units::{self, duration, three_digits},
};
use serde_json::json;

use crate::{
    cli,
    exit::{Error, Exit, Result},
    output::{self, json_line},
    recording::{Recording, host_words, subject},
};

pub fn run(options: &cli::Diff) -> Result {
    // Opens both files before it reads the first, so that a mistyped second name fails at once.
    let mut before = Recording::open(&options.before)?;
    let mut after = Recording::open(&options.after)?;
    let (first, second) = thread::scope(|scope| -> Result<_> {
        let second = thread::Builder::new().spawn_scoped(scope, || read(&mut after));
        let second = second.map_err(Error::no_thread)?;
        let first = read(&mut before);
        Ok((first?, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?))
    })?;
    let diff = compare(first, second);
    let recordings = [&before, &after];
    output::write(|out| match options.json {
        true => print_json(out, recordings, &diff),
        false => out.write_all(text(recordings, &diff).as_bytes()),
    })?;
    let exit = recordings.map(Recording::finish).into_iter().fold(Exit::Done, Exit::max);
    if diff.is_enough() {
        return Ok(exit);
    }
    let [before, after] = diff.lengths.map(|length| units::count(length.intervals, "interval"));
    say!(
        "cgscope: too few intervals to distinguish changes from noise: {before} before and {after} after, but each side needs at \
         least {FEWEST_BLOCKS}; record longer, or with a shorter --interval"
    );
    Ok(exit.max(Exit::Incomplete))
}

/// Maximum number of intervals to read from a recording: two for each block.
const INTERVALS: u64 = 2 * MOST_BLOCKS as u64;

fn read(recording: &mut Recording) -> Result<Side> {
    recording.at_most(INTERVALS)?;
    let mut side = Side::default();
    let mut seen = 1;
    while let Some(interval) = recording.next_interval()? {
        side.add(&interval, recording.samples - seen);
        seen = recording.samples;
    }
    Ok(side)
}

fn print_json(out: &mut impl Write, recordings: [&Recording; 2], diff: &Diff) -> io::Result<()> {
    for (recording, side) in recordings.into_iter().zip(["before", "after"]) {
        let (header, losses) = (&recording.reader.header, recording.reader.losses());
        let losses: BTreeMap<_, _> = losses.nonzero().map(|(loss, count)| (loss.name(), count)).collect();
        let members = json!({
            "kind": "recording",
            "side": side,
            "file": recording.file,
            "hostname": header.hostname,
            "kernel_release": header.kernel_release,
            "architecture": header.architecture,
            "cpus": header.cpus.len(),
            "selection": subject(header),
            "interval_ns": header.interval_ns,
            "start_unix_ns": header.start_unix_ns,
            "ending": recording.reader.ending.as_ref().map(ToString::to_string),
            "losses": losses,
        });
        json_line(out, &object(members))?;
    }
    objects(diff).try_for_each(|line| json_line(out, &line))
}

fn text(recordings: [&Recording; 2], diff: &Diff) -> String {
    let mut lines: Vec<String> = Vec::new();
    for ((recording, length), side) in recordings.iter().zip(diff.lengths).zip(["before", "after "]) {
        let header = &recording.reader.header;
        let (file, subject, hostname) = (&recording.file, subject(header), &header.hostname);
        let (intervals, time) = (units::count(length.intervals, "interval"), duration(length.duration_ns));
        let coarse = if length.mode == Mode::Coarse { ", COARSE" } else { "" };
        let host = host_words(header);
        lines.push(format!(
            "{side} {file}: the {subject} on {hostname}, {host}, {intervals} over {time}{coarse}"
        ));
    }
    lines.push(String::new());
    lines.extend(diff.is_enough().then(|| headline(diff)));
    lines.extend(diff.limits.iter().flat_map(limits));
    lines.extend(table(diff));
    lines.join("\n") + "\n"
}

fn headline(diff: &Diff) -> String {
    let tested = units::count(diff.tested as u64, "figure");
    let Some(first) = headline_change(diff) else {
        return format!(
            "Nothing changed by more than noise: {tested} compared, and no difference is larger than chance can explain."
        );
    };
    let [before, after] = [first.before, first.after].map(|side| value(first.unit, side));
    let (words, subject) = (first.words, named(&first.subject));
    let unit = if first.unit == FigureUnit::WallShare { " of wall time" } else { "" };
    let (relative, interval, verdict) = (relative(first), interval(first), verdict(first));
    let called = diff.called().count();
    format!(
        "Largest change: {words} of {subject}, from {before} to {after}{unit} ({relative}; 99% confidence interval of the change \
         {interval}); {verdict}.\n{called} of {tested} compared changed by more than noise: if the blocks of time are \
         assigned to both sides at random, at most 1% of the assignments show any difference as clear."
    )
}

/// Returns the largest change. Among similar sizes, prefers a change of a cgroup, which shows best where the change happened.
fn headline_change(diff: &Diff) -> Option<&Change> {
    let first = diff.called().next()?;
    let same =
        diff.called().filter(|change| change.figure == first.figure && change.size >= first.size * 0.9);
    same.min_by_key(|change| !matches!(change.subject, DiffSubject::Cgroup { .. }))
}

fn limits(LimitChange { path, before, after }: &LimitChange) -> Vec<String> {
    let words = |limits: &CpuLimits| {
        let cpus = limits.cpus.map(|cpus| cpus.to_string());
        [
            ("quota", quota(limits)),
            ("burst", micros(limits.burst_us)),
            ("weight", known(limits.weight)),
            ("CPUs", known(limits.cpuset.as_deref().map(String::from).or(cpus))),
        ]
    };
    let both = words(before).into_iter().zip(words(after)).filter(|(before, after)| before != after);
    let line = |((what, before), (_, after))| {
        format!("A limit changed: {what} of {path}: {before} before, {after} after.")
    };
    both.map(line).collect()
}

fn quota(limits: &CpuLimits) -> String {
    let quota = limits.quota_us.zip(limits.period_us).filter(|(_, period_us)| *period_us > 0);
    let Some((quota_us, period_us)) = quota else { return "none".into() };
    let cpus = quota_us as f64 / period_us as f64;
    format!("{cpus:.2} CPUs ({} of every {})", micros(Some(quota_us)), micros(Some(period_us)))
}

fn micros(us: Option<u64>) -> String {
    us.map_or("none".into(), |us| duration(us.saturating_mul(1_000)))
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or("not known".into(), |value| value.to_string())
}

fn named(subject: &DiffSubject) -> String {
    match subject {
        DiffSubject::All => "the whole recording".into(),
        DiffSubject::Cgroup { path } => Names::default().of(path).into(),
        DiffSubject::Program { comm } => format!("program {comm}"),
        DiffSubject::Behind { victim, culprit } => {
            format!("{victim} behind {}", culprit.as_deref().unwrap_or("kernel threads"))
        }
    }
}

fn value(unit: FigureUnit, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    match unit {
        FigureUnit::WallShare | FigureUnit::Share => three_digits(value * 100.0, "%"),
        FigureUnit::PerSecond => three_digits(value, "/s"),
        FigureUnit::Ns => duration(value as u64),
    }
}

/// Returns the change relative to the value before: `-19.0%`, `x12`, or `new` if the value was 0.
fn relative(change: &Change) -> String {
    match change.relative {
        Some(relative) if relative.is_finite() && relative >= 9.0 => format!("x{:.0}", 1.0 + relative),
        Some(relative) if relative.is_finite() => format!("{:+.1}%", 100.0 * relative),
        Some(relative) if relative > 0.0 => "new".into(),
        _ => "-".into(),
    }
}

/// Returns the confidence interval of the change: `-10.4 to -9.1 points`.
fn interval(change: &Change) -> String {
    let Some((low, high)) = change.low.zip(change.high) else { return "-".into() };
    let (words, unit): (fn(f64) -> String, _) = match change.unit {
        FigureUnit::WallShare | FigureUnit::Share => (|value| three_digits(value * 100.0, ""), " points"),
        FigureUnit::PerSecond => (|value| three_digits(value, ""), " /s"),
        FigureUnit::Ns => (|value| duration(value as u64), ""),
    };
    let [low, high] = [low, high].map(|end| (if end < 0.0 { '-' } else { '+' }, words(end.abs())));
    format!("{}{} to {}{}{unit}", low.0, low.1, high.0, high.1)
}

fn verdict(change: &Change) -> &'static str {
    match change.verdict {
        Verdict::MoreThanNoise if change.p.is_some_and(|p| p <= SMALL_ERROR) => "more than noise (99.9%)",
        Verdict::MoreThanNoise => "more than noise (99%)",
        Verdict::WithinNoise => "within noise",
        Verdict::Negligible => "sure, but negligible",
        Verdict::TooFewEvents => "too few events",
        Verdict::TooShort => "too short to say",
    }
}

const MOST_ROWS: usize = 50;

/// Returns the changes that are more than noise, then other changes, each by size.
fn table(diff: &Diff) -> Vec<String> {
    let row = |[before, after, change, interval, verdict, what]: [&str; 6]| {
        format!("{before:>10} {after:>10} {change:>9} {interval:>29}  {verdict:<23}  {what}")
    };
    let change = |change: &Change| {
        let [before, after] = [change.before, change.after].map(|side| value(change.unit, side));
        let what = format!("{}: {}", change.words, named(&change.subject));
        row([&before, &after, &relative(change), &interval(change), verdict(change), &what])
    };
    let mut lines = vec![String::new()];
    lines.push(row(["before", "after", "change", "99% interval", "verdict", "what"]));
    lines.extend(diff.changes.iter().take(MOST_ROWS).map(change));
    let more = diff.changes.len().saturating_sub(MOST_ROWS);
    if more > 0 {
        lines.push(format!("{more:>10} more with a smaller change: --json has all"));
    }
    lines
}

#[cfg(test)]
mod tests;
