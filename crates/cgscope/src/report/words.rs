//! The report in words.

use std::fmt::Write as _;

use cgscope_model::{
    Cause, Group, Interval, Mode,
    findings::{Host, findings},
    units::{self, duration, percent},
};

use crate::{
    causes,
    mode::NO_HISTOGRAM,
    nodes,
    recording::{Recording, subject},
    report::tables,
    text::{self, Unit},
};

/// The whole report. Writing to a String cannot fail.
pub fn report(recording: &Recording, whole: &Interval) -> String {
    let mut out = String::new();
    let _ = title(&mut out, recording, whole);
    if whole.duration_ns == 0 {
        let _ = writeln!(out, "\nFewer than two Samples: there is nothing to compare, so nothing to report.");
        return out;
    }
    let _ = say_findings(&mut out, whole, &recording.host);
    let total = whole.total();
    let _ = totals(&mut out, whole, &total);
    if whole.mode == Mode::Coarse {
        let _ = writeln!(out, "\n{}", capital(NO_HISTOGRAM));
    }
    let _ = write!(out, "\n{}", text::histogram(&total.wait, Unit::Micro));
    let _ = nodes::table(&mut out, whole);
    let _ = nodes::memory_lines(&mut out, whole);
    let _ = tables::quotas(&mut out, whole);
    let _ = tables::processes(&mut out, whole);
    let _ = tables::cgroups(&mut out, whole);
    let _ = tables::culprits(&mut out, whole);
    let _ = writeln!(out, "\n{}", text::cost_line(&whole.cost, whole.duration_ns, whole.mode));
    let _ = writeln!(out, "{}", text::loss_line(&whole.losses));
    out
}

fn title(out: &mut String, recording: &Recording, whole: &Interval) -> std::fmt::Result {
    let header = recording.header();
    let what = subject(header);
    writeln!(
        out,
        "{}: the {what} on {}, Linux {} {}, {}",
        recording.file,
        header.hostname,
        header.kernel_release,
        header.architecture,
        units::count(header.cpus.len() as u64, "CPU"),
    )?;
    writeln!(
        out,
        "{} over {}, one every {}; {}",
        units::count(recording.samples(), "Sample"),
        duration(whole.duration_ns),
        duration(header.interval_ns),
        recording.ending_words(),
    )
}

fn say_findings(out: &mut String, whole: &Interval, host: &Host) -> std::fmt::Result {
    let findings = findings(whole, host);
    if findings.is_empty() {
        return writeln!(out, "\nNo finding: nothing here is past its threshold.");
    }
    writeln!(out, "\n{}, the one that cost most first:", units::count(findings.len() as u64, "finding"))?;
    for (n, finding) in findings.iter().enumerate() {
        writeln!(out, "{:>2}. {}.\n    {}.", n + 1, finding.says, capital(&finding.advice))?;
    }
    Ok(())
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The answer first: how long was waited beside how long was run.
fn totals(out: &mut String, whole: &Interval, total: &Group) -> std::fmt::Result {
    let (waited, ran) = (total.wait.total_ns, total.totals.on_cpu_ns);
    write!(out, "\n{}", text::wait_line(&total.wait, whole.mode))?;
    match percent(waited, waited + ran) {
        Some(share) => writeln!(
            out,
            "\nOf the {} in which its tasks could have run, they ran {} and waited {}: {share:.1}%.",
            duration(waited + ran),
            duration(ran),
            duration(waited)
        )?,
        None => writeln!(out, "\nNothing ran and nothing waited.")?,
    }
    if let Some(why) = causes::line(&total.wait.by_cause) {
        writeln!(out, "They waited {why}.")?;
    }
    if total.wait.by_cause.get(Cause::OtherCgroup) != 0
        && let Some(behind) = causes::culprits_line(&whole.culprits())
    {
        writeln!(out, "Who ran meanwhile: {behind}.")?;
    }
    if whole.mode == Mode::Coarse {
        return writeln!(
            out,
            "{} voluntary and {} involuntary switches.",
            total.totals.voluntary, total.totals.involuntary
        );
    }
    agreement(out, waited, total)?;
    if let Some(pending) = text::pending_line(whole) {
        writeln!(out, "{}.", capital(&pending))?;
    }
    writeln!(
        out,
        "{} voluntary and {} involuntary switches, {} between CPUs; {} ended.",
        total.totals.voluntary,
        total.totals.involuntary,
        units::count(total.totals.migrations, "move"),
        units::count(total.exited, "task")
    )
}

/// Our sum beside the kernel's.
fn agreement(out: &mut String, waited: u64, total: &Group) -> std::fmt::Result {
    let kernel = total.totals.run_delay_ns;
    writeln!(
        out,
        "The kernel's own sum is {}{}.",
        duration(kernel),
        if kernel == waited {
            ", the same to the nanosecond".into()
        } else {
            format!(
                ", {} from ours: waits that were not over at the first or the last Sample",
                duration(kernel.abs_diff(waited))
            )
        }
    )?;
    if total.totals.unstamped != 0 {
        writeln!(
            out,
            "Not in either: {} of tasks preempted on their way to sleep, {} in all.",
            units::count(total.totals.unstamped, "wait"),
            duration(total.totals.unstamped_ns)
        )?;
    }
    Ok(())
}
