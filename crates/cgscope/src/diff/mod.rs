//! `cgscope diff`: shows what changed between two recordings, and which changes are more than noise.

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
    path::Path,
    thread,
};

use cgscope_model::{
    Mode, Names,
    diff::{
        Change, CpuLimits, Diff, DiffSubject, FEWEST_BLOCKS, FigureUnit, FindingChange, Length, LimitChange,
        MOST_BLOCKS, Presence, Ranked, SMALL_ERROR, Side, Verdict, compare, json,
    },
    units::{self, duration},
};
use cgscope_record::Header;
use serde::Serialize;

use crate::{
    cli,
    exit::{Error, Exit, Result},
    output::json_line,
    recording::{Recording, subject},
    text::capital,
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
    let diff = compare(first, second, &[before.host, after.host]);
    let recordings = [&before, &after];
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = if options.json {
        print_json(&mut out, recordings, &diff)
    } else {
        out.write_all(text(recordings, &diff, options.all).as_bytes())
    };
    written.and_then(|()| out.flush()).map_err(Error::output)?;
    Ok(finish(recordings, &diff))
}

/// Maximum number of intervals to read from a recording: two for each block.
const INTERVALS: u64 = 2 * MOST_BLOCKS as u64;

fn read(recording: &mut Recording) -> Result<Side> {
    recording.at_most(INTERVALS)?;
    let mut side = Side::default();
    let mut seen = 1;
    while let Some(interval) = recording.next_interval()? {
        side.add_long(interval, recording.samples() - seen);
        seen = recording.samples();
    }
    Ok(side)
}

fn finish(recordings: [&Recording; 2], diff: &Diff) -> Exit {
    let [before, after] = recordings.map(Recording::finish);
    if diff.is_enough() {
        return before.max(after);
    }
    say!("cgscope: {}", too_short(diff));
    before.max(after).max(Exit::Incomplete)
}

#[derive(Serialize)]
struct RecordingObject<'a> {
    schema: &'static str,
    kind: &'static str,
    side: &'static str,
    file: &'a str,
    hostname: &'a str,
    kernel_release: &'a str,
    architecture: &'a str,
    cpus: usize,
    selection: String,
    interval_ns: u64,
    start_unix_ns: u64,
    ending: Option<String>,
    losses: std::collections::BTreeMap<&'static str, u64>,
}

fn print_json(out: &mut impl Write, recordings: [&Recording; 2], diff: &Diff) -> io::Result<()> {
    for (recording, side) in recordings.into_iter().zip(["before", "after"]) {
        let header = recording.header();
        let object = RecordingObject {
            schema: json::SCHEMA,
            kind: "recording",
            side,
            file: &recording.file,
            hostname: &header.hostname,
            kernel_release: &header.kernel_release,
            architecture: &header.architecture,
            cpus: header.cpus.len(),
            selection: subject(header),
            interval_ns: header.interval_ns,
            start_unix_ns: header.start_unix_ns,
            ending: recording.ending().map(ToString::to_string),
            losses: recording.losses().nonzero().map(|(loss, count)| (loss.name(), count)).collect(),
        };
        json_line(out, &object)?;
    }
    json::objects(diff).try_for_each(|object| json_line(out, &object))
}

/// Maximum number of subjects to print that only one of the recordings has.
const ALONE: usize = 10;

/// Returns the complete output. Writing to a `String` cannot fail.
fn text(recordings: [&Recording; 2], diff: &Diff, all: bool) -> String {
    let mut out = recording_lines(recordings, diff);
    for difference in differences(recordings, diff) {
        out += &format!("       {difference}\n");
    }
    let _ = headline(&mut out, diff);
    let _ = limits(&mut out, diff);
    let _ = changes(&mut out, diff, all);
    let _ = ranked(&mut out, "cgroup, with its descendants", &diff.cgroups);
    let _ = ranked(&mut out, "program", &diff.programs);
    let _ = alone(&mut out, diff);
    let _ = findings(&mut out, recordings, diff);
    out
}

fn recording_lines(recordings: [&Recording; 2], diff: &Diff) -> String {
    let line = |side: usize, name: &str| {
        let (recording, length) = (recordings[side], &diff.lengths[side]);
        format!(
            "{name} {}: the {}, {} over {}{}\n",
            recording.file,
            subject(recording.header()),
            units::count(length.intervals, "interval"),
            duration(length.duration_ns),
            if length.mode == Mode::Coarse { ", COARSE" } else { "" },
        )
    };
    line(0, "before") + &line(1, "after ")
}

/// Returns the differences between the headers of the recordings, one line each.
fn differences(recordings: [&Recording; 2], diff: &Diff) -> Vec<String> {
    let [before, after] = recordings.map(Recording::header);
    let mut said = Vec::new();
    let mut differ = |what: &str, before: String, after: String| {
        if before != after {
            said.push(format!("{what}: {before} before, {after} after"));
        }
    };
    differ("different host", before.hostname.clone(), after.hostname.clone());
    let kernel = |header: &Header| format!("Linux {} {}", header.kernel_release, header.architecture);
    differ("different kernel", kernel(before), kernel(after));
    let cpus = |header: &Header| units::count(header.cpus.len() as u64, "CPU");
    differ("different number of CPUs", cpus(before), cpus(after));
    if before.selection.pids.is_empty() && after.selection.pids.is_empty() {
        differ("different selection", subject(before), subject(after));
    }
    differ("different interval", duration(before.interval_ns), duration(after.interval_ns));
    differ("different version of cgscope", before.cgscope_version.clone(), after.cgscope_version.clone());
    said.extend(modes(diff));
    said
}

fn modes(diff: &Diff) -> Option<String> {
    let [before, after] = diff.lengths.map(|Length { mode, .. }| mode);
    let coarse = match (before, after) {
        (Mode::Bpf, Mode::Bpf) => return None,
        (Mode::Coarse, Mode::Coarse) => "both recordings are coarse",
        (Mode::Coarse, Mode::Bpf) => "the first recording is coarse, the second one exact",
        (Mode::Bpf, Mode::Coarse) => "the first recording is exact, the second one coarse",
    };
    Some(format!(
        "{coarse}: lengths of waits, causes other than quotas, culprits and moves between CPUs are not compared"
    ))
}

fn too_short(diff: &Diff) -> String {
    let [before, after] = diff.lengths.map(|length| length.intervals);
    format!(
        "too few intervals to distinguish changes from noise: {} before and {} after, but each side needs at least \
         {FEWEST_BLOCKS}; record longer, or with a shorter --interval",
        units::count(before, "interval"),
        units::count(after, "interval"),
    )
}

fn headline(out: &mut String, diff: &Diff) -> fmt::Result {
    writeln!(out)?;
    if !diff.is_enough() {
        return writeln!(out, "{}.", capital(&too_short(diff)));
    }
    let called = diff.called().count();
    let Some(first) = headline_change(diff) else {
        return writeln!(
            out,
            "Nothing changed by more than noise: {} compared, and no difference is larger than chance can explain.",
            units::count(diff.tested as u64, "figure")
        );
    };
    writeln!(out, "Largest change: {}.", sentence(first))?;
    writeln!(
        out,
        "{called} of {} compared changed by more than noise: if the blocks of time are assigned to both sides at random, \
         at most 1% of the assignments show any difference as clear.",
        units::count(diff.tested as u64, "figure"),
    )
}

/// Returns the largest change. Among similar sizes, prefers a change of a cgroup, which shows best where the change happened.
fn headline_change(diff: &Diff) -> Option<&Change> {
    let first = diff.called().next()?;
    let same =
        diff.called().filter(|change| change.figure == first.figure && change.size >= first.size * 0.9);
    same.min_by_key(|change| !matches!(change.subject, DiffSubject::Cgroup { .. }))
}

fn sentence(change: &Change) -> String {
    format!(
        "{} of {}, from {} to {}{} ({}; 99% confidence interval of the change {}); {}",
        change.figure.words,
        named(&change.subject),
        value(change.figure.unit, change.before),
        value(change.figure.unit, change.after),
        if change.figure.unit == FigureUnit::WallShare { " of wall time" } else { "" },
        relative(change),
        interval(change),
        verdict(change),
    )
}

fn limits(out: &mut String, diff: &Diff) -> fmt::Result {
    for LimitChange { path, before, after, changed_during } in &diff.limits {
        match (before, after) {
            (Some(before), Some(after)) => limit(out, path, before, after)?,
            _ => writeln!(
                out,
                "Limits of {path} are not compared: several cgroups have this name except for ids, and their limits differ."
            )?,
        }
        for (during, side) in changed_during.iter().zip(["first", "second"]) {
            if *during {
                writeln!(out, "Limits of {path} changed during the {side} recording.")?;
            }
        }
    }
    Ok(())
}

fn limit(out: &mut String, path: &str, before: &CpuLimits, after: &CpuLimits) -> fmt::Result {
    for (what, before, after) in [
        ("quota", quota(before), quota(after)),
        ("burst", micros(before.burst_us), micros(after.burst_us)),
        ("weight", known(before.weight), known(after.weight)),
        ("CPUs", cpus(before), cpus(after)),
    ] {
        if before != after {
            writeln!(out, "A limit changed: {what} of {path}: {before} before, {after} after.")?;
        }
    }
    Ok(())
}

fn quota(limits: &CpuLimits) -> String {
    match limits.quota_us.zip(limits.period_us) {
        Some((quota_us, period_us)) if period_us > 0 => format!(
            "{:.2} CPUs ({} of every {})",
            quota_us as f64 / period_us as f64,
            micros(Some(quota_us)),
            micros(Some(period_us)),
        ),
        _ => "none".into(),
    }
}

fn micros(us: Option<u64>) -> String {
    us.map_or("none".into(), |us| duration(us.saturating_mul(1_000)))
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or("not known".into(), |value| value.to_string())
}

fn cpus(limits: &CpuLimits) -> String {
    known(limits.cpuset.as_deref().map(ToString::to_string).or(limits.cpus.map(|cpus| cpus.to_string())))
}

fn alone(out: &mut String, diff: &Diff) -> fmt::Result {
    for (side, title) in [(Presence::OnlyBefore, "Only before"), (Presence::OnlyAfter, "Only after")] {
        let these = diff.alone.iter().filter(|(_, presence)| **presence == side);
        let mut names: Vec<String> = these.map(|(subject, _)| named(subject)).collect();
        let more = names.len().saturating_sub(ALONE);
        if more != 0 {
            names.truncate(ALONE);
            names.push(format!("{more} more"));
        }
        if !names.is_empty() {
            writeln!(out, "\n{title}: {}", names.join(", "))?;
        }
    }
    Ok(())
}

/// Returns the file names, or the paths if the names are equal.
fn short_names(recordings: [&Recording; 2]) -> [String; 2] {
    let name = |recording: &Recording| {
        let name = Path::new(&recording.file).file_name();
        name.map_or_else(|| recording.file.clone(), |name| name.to_string_lossy().into_owned())
    };
    let names = recordings.map(name);
    if names[0] == names[1] { recordings.map(|recording| recording.file.clone()) } else { names }
}

fn findings(out: &mut String, recordings: [&Recording; 2], diff: &Diff) -> fmt::Result {
    let [before, after] = short_names(recordings);
    for (side, title) in [
        (Presence::OnlyBefore, format!("Findings only before (in {before})")),
        (Presence::OnlyAfter, format!("Findings only after (in {after})")),
    ] {
        let these = diff.findings.iter().filter(|change| change.presence == side);
        for (i, FindingChange { finding, .. }) in these.enumerate() {
            if i == 0 {
                writeln!(out, "\n{title}")?;
            }
            writeln!(out, "  {}.\n    {}.", finding.headline(), capital(&finding.advice))?;
        }
    }
    if diff.kept_findings != 0 {
        let kept = units::count(diff.kept_findings as u64, "finding");
        writeln!(out, "\n{kept} in both recordings: `cgscope report` shows the details.")?;
    }
    Ok(())
}

fn named(subject: &DiffSubject) -> String {
    match subject {
        DiffSubject::All => "the whole recording".into(),
        DiffSubject::Cgroup { path } => Names::default().of(path).into(),
        DiffSubject::Program { comm } => format!("program {comm}"),
        DiffSubject::Behind { victim, culprit } => {
            format!("{victim} behind {}", culprit.as_deref().unwrap_or("kernel threads"))
        }
        DiffSubject::Own => "cgscope itself".into(),
    }
}

fn value(unit: FigureUnit, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    match unit {
        FigureUnit::WallShare | FigureUnit::Share => format!("{}%", digits(value * 100.0)),
        FigureUnit::PerSecond => format!("{}/s", digits(value)),
        FigureUnit::Ns => duration(value as u64),
    }
}

/// Returns three significant digits, or all digits before the decimal point.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns the change relative to the value before: `-19%`, `x12`, `new` or `gone`.
fn relative(change: &Change) -> String {
    match (change.before, change.after) {
        (Some(before), Some(after)) if before == after => "none".into(),
        (Some(0.0) | None, Some(_)) => "new".into(),
        (Some(_), Some(0.0) | None) => "gone".into(),
        (Some(before), Some(after)) if after / before >= 10.0 => format!("x{:.0}", after / before),
        (Some(before), Some(after)) => format!("{:+.1}%", 100.0 * (after - before) / before),
        (None, None) => "-".into(),
    }
}

/// Returns the confidence interval of the change: `-10.4 to -9.1 points`.
fn interval(change: &Change) -> String {
    let Some((low, high)) = change.low.zip(change.high) else { return "-".into() };
    let (words, unit): (fn(f64) -> String, _) = match change.figure.unit {
        FigureUnit::WallShare | FigureUnit::Share => (|value| digits(value * 100.0), " points"),
        FigureUnit::PerSecond => (digits, " /s"),
        FigureUnit::Ns => (|value| duration(value as u64), ""),
    };
    let signed = |value: f64| format!("{}{}", if value < 0.0 { '-' } else { '+' }, words(value.abs()));
    format!("{} to {}{unit}", signed(low), signed(high))
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

fn presence(presence: Presence) -> &'static str {
    match presence {
        Presence::Both => "",
        Presence::OnlyBefore => " (only before)",
        Presence::OnlyAfter => " (only after)",
    }
}

/// Maximum number of printed changes that are more than noise, and of other printed changes.
const CALLED: usize = 30;
const OTHERS: usize = 15;
/// Changes whose values differ by at most this fraction are printed in one row.
const SAME: f64 = 0.02;

const HEADINGS: &str =
    "    before      after    change                  99% interval  verdict                  what";

/// Prints the changes that are more than noise, then other changes, each by size. `all`: prints a row for every change.
fn changes(out: &mut String, diff: &Diff, all: bool) -> fmt::Result {
    let (called, others): (Vec<&Change>, _) = diff.changes.iter().partition(|change| change.is_called());
    for (title, changes, most) in [("More", called, CALLED), ("Not more", others, OTHERS)] {
        if changes.is_empty() {
            continue;
        }
        writeln!(out, "\n{title} than noise, the largest change first\n{HEADINGS}")?;
        if all {
            changes.iter().try_for_each(|change| row(out, change, &[]))?;
            continue;
        }
        let rows = folded(&changes);
        rows.iter().take(most).try_for_each(|(change, same)| row(out, change, same))?;
        if rows.len() > most {
            writeln!(out, "{:>10} more with a smaller change: --all shows all", rows.len() - most)?;
        }
    }
    Ok(())
}

fn row(out: &mut String, change: &Change, same: &[&DiffSubject]) -> fmt::Result {
    write!(
        out,
        "{:>10} {:>10} {:>9} {:>29}  {:<23}  {}: {}{}",
        value(change.figure.unit, change.before),
        value(change.figure.unit, change.after),
        relative(change),
        interval(change),
        verdict(change),
        change.figure.words,
        named(&change.subject),
        presence(change.presence),
    )?;
    if !same.is_empty() {
        let names: Vec<String> = same.iter().map(|subject| named(subject)).collect();
        write!(out, "; the same change in {}", names.join(", "))?;
    }
    writeln!(out)
}

/// Joins equal changes of a cgroup, of the program in it and of the complete recording into one row.
fn folded<'a>(changes: &[&'a Change]) -> Vec<(&'a Change, Vec<&'a DiffSubject>)> {
    let mut rows: Vec<(&Change, Vec<&DiffSubject>)> = Vec::new();
    for change in changes {
        match rows.iter_mut().find(|(row, _)| is_same(row, change)) {
            Some((row, same)) if rank(&change.subject) < rank(&row.subject) => {
                same.push(&row.subject);
                *row = change;
            }
            Some((_, same)) => same.push(&change.subject),
            None => rows.push((change, Vec::new())),
        }
    }
    rows
}

/// Returns the rank of a subject. The subject with the lowest rank shows best where a change happened.
fn rank(subject: &DiffSubject) -> u8 {
    match subject {
        DiffSubject::Cgroup { .. } => 0,
        DiffSubject::Behind { .. } => 1,
        DiffSubject::Program { .. } => 2,
        DiffSubject::Own => 3,
        DiffSubject::All => 4,
    }
}

fn is_same(a: &Change, b: &Change) -> bool {
    let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= SAME * f64::max(a.abs(), b.abs()),
        (a, b) => a == b,
    };
    a.figure == b.figure
        && a.verdict == b.verdict
        && a.presence == b.presence
        && near(a.before, b.before)
        && near(a.after, b.after)
        && near(a.change, b.change)
}

fn ranked(out: &mut String, title: &str, sides: &[Vec<Ranked>; 2]) -> fmt::Result {
    let rows = sides[0].len().max(sides[1].len());
    if rows == 0 {
        return Ok(());
    }
    let cell = |side: usize, i: usize| {
        sides[side].get(i).map_or_else(String::new, |ranked| {
            let share = |share| value(FigureUnit::WallShare, Some(share));
            let (DiffSubject::Cgroup { path: name } | DiffSubject::Program { comm: name }) = &ranked.subject
            else {
                return String::new();
            };
            format!("{:>8} {:>8}  {name}", share(ranked.wait), share(ranked.on_cpu))
        })
    };
    let before: Vec<String> = (0..rows).map(|i| cell(0, i)).collect();
    let heading = format!("{:>8} {:>8}  {title}", "waiting", "on CPU");
    let headings = format!("{heading}, before");
    let width = before.iter().chain([&headings]).map(|cell| cell.chars().count()).max().unwrap_or(0);
    writeln!(out, "\n    {:<width$}   {heading}, after", headings)?;
    for (i, before) in before.iter().enumerate() {
        let line = format!("{:>2}. {before:<width$}   {}", i + 1, cell(1, i));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
