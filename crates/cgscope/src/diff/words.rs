//! The changes in words.

use std::{
    fmt::{Result, Write as _},
    path::Path,
};

use cgscope_model::{
    Mode,
    diff::{
        Change, CpuLimits, Diff, DiffSubject, FEWEST_BLOCKS, FigureUnit, FindingChange, Length, LimitChange,
        Presence,
    },
    units::{self, duration},
};
use cgscope_record::Header;

use super::{figures, tables};
use crate::{
    recording::{Recording, subject},
    text::capital,
};

/// Maximum number of names to print for subjects that only one side has.
const ALONE: usize = 10;

/// The whole output. Writing to a String cannot fail.
pub fn text(recordings: [&Recording; 2], diff: &Diff, all: bool) -> String {
    let mut out = recording_lines(recordings, diff);
    for difference in differences(recordings, diff) {
        out += &format!("       {difference}\n");
    }
    let _ = headline(&mut out, diff);
    let _ = limits(&mut out, diff);
    let _ = tables::changes(&mut out, diff, all);
    let _ = tables::ranked(&mut out, "cgroup, with its descendants", &diff.cgroups);
    let _ = tables::ranked(&mut out, "program", &diff.programs);
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

/// The differences between the recordings themselves, one line each.
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

pub fn too_short(diff: &Diff) -> String {
    let [before, after] = diff.lengths.map(|length| length.intervals);
    format!(
        "too few intervals to distinguish changes from noise: {} before and {} after, but each side needs at least \
         {FEWEST_BLOCKS}; record longer, or with a shorter --interval",
        units::count(before, "interval"),
        units::count(after, "interval"),
    )
}

fn headline(out: &mut String, diff: &Diff) -> Result {
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

/// The largest change. Among changes of similar size, a cgroup's is preferred, because it shows where the change is.
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
        figures::subject(&change.subject),
        figures::value(change.figure.unit, change.before),
        figures::value(change.figure.unit, change.after),
        if change.figure.unit == FigureUnit::WallShare { " of wall time" } else { "" },
        figures::relative(change),
        figures::interval(change),
        figures::verdict(change),
    )
}

fn limits(out: &mut String, diff: &Diff) -> Result {
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

fn limit(out: &mut String, path: &str, before: &CpuLimits, after: &CpuLimits) -> Result {
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

fn alone(out: &mut String, diff: &Diff) -> Result {
    for (side, title) in [(Presence::OnlyBefore, "Only before"), (Presence::OnlyAfter, "Only after")] {
        let these = diff.alone.iter().filter(|(_, presence)| **presence == side);
        let mut names: Vec<String> = these.map(|(subject, _)| figures::subject(subject)).collect();
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

/// The file names, or the paths if the names are equal.
fn short_names(recordings: [&Recording; 2]) -> [String; 2] {
    let name = |recording: &Recording| {
        let name = Path::new(&recording.file).file_name();
        name.map_or_else(|| recording.file.clone(), |name| name.to_string_lossy().into_owned())
    };
    let names = recordings.map(name);
    if names[0] == names[1] { recordings.map(|recording| recording.file.clone()) } else { names }
}

fn findings(out: &mut String, recordings: [&Recording; 2], diff: &Diff) -> Result {
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
