//! The report in words.

use std::fmt::{Result, Write as _};

use cgscope_layout::Loss;
use cgscope_model::{
    Cause, Group, Interval, Mode,
    findings::Host,
    units::{self, duration, percent},
};

use crate::{
    causes, nodes,
    recording::{Recording, subject},
    report::{Whole, quotas, tables, when},
    text::NO_HISTOGRAM,
    text::{self, Unit, capital, wrapped},
};

/// Where lines of words end.
const WIDTH: usize = 100;

/// What there is to say of a recording besides its intervals.
pub struct About {
    /// Its file, as it was named.
    pub file: String,
    /// What was recorded, and where.
    pub what: String,
    /// `Linux 6.12 x86_64, 2 CPUs`
    pub host_words: String,
    /// How much there is of it, and from when on.
    pub extent: String,
    /// How it ended.
    pub ending: String,
    /// What findings are judged by.
    pub host: Host,
}

impl About {
    /// To be asked after the last interval was read.
    pub fn new(recording: &Recording, whole: &Interval) -> Self {
        let header = recording.header();
        let cpus = units::count(header.cpus.len() as u64, "CPU");
        Self {
            file: recording.file.clone(),
            what: format!("the {} on {}", subject(header), header.hostname),
            host_words: format!("Linux {} {}, {cpus}", header.kernel_release, header.architecture),
            extent: format!(
                "{} over {} from {} on, one every {}",
                units::count(recording.samples(), "Sample"),
                duration(whole.duration_ns),
                text::utc(whole.start_unix_ns),
                duration(header.interval_ns),
            ),
            ending: recording.ending_words(),
            host: recording.host,
        }
    }
}

/// What to say of a recording without an interval.
pub const NOTHING: &str = "Fewer than two Samples: there is nothing to compare, so nothing to report.";

/// The whole report.
pub fn report(about: &About, whole: &Whole) -> String {
    let title = title(about, &whole.interval);
    match whole.interval.duration_ns {
        0 => format!("{title}\n{NOTHING}\n"),
        _ => title + &body_of(whole, &about.host),
    }
}

/// All below the title. Writing to a String cannot fail.
pub fn body_of(whole: &Whole, host: &Host) -> String {
    let mut out = String::new();
    let _ = body(&mut out, whole, host);
    out
}

/// First what is wrong, then how much and when, then who; what the figures rest on comes last.
fn body(out: &mut String, whole: &Whole, host: &Host) -> Result {
    let Whole { interval, timeline, findings, cgroups, processes, threads, pairs } = whole;
    let mode = interval.mode;
    writeln!(out, "\n{}", text::findings_heading(findings))?;
    out.push_str(&text::findings(findings, WIDTH));
    let total = interval.total();
    writeln!(out)?;
    for sentence in sentences(whole, &total) {
        writeln!(out, "{}", wrapped(&sentence, WIDTH, ""))?;
    }
    when::timeline(out, timeline, interval, host.cpus)?;
    quotas::quotas(out, interval, cgroups)?;
    tables::table(out, "Cgroups, each with all below it", "cgroup", mode, cgroups)?;
    tables::table(out, "Processes", "process, cgroup", mode, processes)?;
    tables::table(out, "Threads", "thread, cgroup", mode, threads)?;
    tables::culprits(out, pairs)?;
    if mode == Mode::Coarse {
        writeln!(out, "\n{}", wrapped(&capital(NO_HISTOGRAM), WIDTH, ""))?;
    } else if total.wait.count != 0 {
        write!(out, "\nHow long waits were, and why:\n{}", text::histogram(&total.wait, Unit::Micro))?;
    }
    nodes::table(out, interval)?;
    nodes::memory_lines(out, interval)?;
    writeln!(out, "\n{}", text::cost_line(&interval.cost, interval.duration_ns, mode))?;
    writeln!(out, "{}", text::loss_line(&interval.losses))
}

/// What makes the figures less than whole, if anything does.
pub fn incomplete(whole: &Interval) -> Option<String> {
    let lost = whole.losses.nonzero().any(|(loss, _)| !Loss::leaves_result_whole(loss));
    lost.then(|| format!("Not everything was counted. {}.", capital(&text::loss_line(&whole.losses))))
}

fn title(about: &About, whole: &Interval) -> String {
    let mut out = format!("{}: {}, {}\n", about.file, about.what, about.host_words);
    // Unwrapped: it is searched for.
    out += &format!("{}\n{}\n", about.extent, capital(&about.ending));
    if let Some(sentence) = incomplete(whole) {
        out += &wrapped(&sentence, WIDTH, "");
        out.push('\n');
    }
    out
}

/// The answer first: how long was waited beside how long was run, why, behind whom, and when.
pub fn sentences(whole: &Whole, total: &Group) -> Vec<String> {
    let interval = &whole.interval;
    let (waited, ran) = (total.wait.total_ns, total.totals.on_cpu_ns);
    let mut said = vec![match percent(waited, waited.saturating_add(ran)) {
        Some(share) => format!(
            "Of the {} in which its tasks could have run, they ran {} and waited {}: {share:.1}%.",
            duration(waited.saturating_add(ran)),
            duration(ran),
            duration(waited)
        ),
        None => "Nothing ran and nothing waited.".into(),
    }];
    said.extend(causes::line(&total.wait.by_cause).map(|why| format!("They waited {why}.")));
    if total.wait.by_cause.get(Cause::OtherCgroup) != 0 {
        let behind = causes::culprits_line(&interval.culprits());
        said.extend(behind.map(|behind| format!("Who ran meanwhile: {behind}.")));
    }
    said.extend(when::worst(&whole.timeline, interval));
    said.push(format!("{}.", capital(&text::wait_line(&total.wait, interval.mode))));
    if interval.mode == Mode::Coarse {
        let Group { totals, .. } = total;
        said.push(format!("{} voluntary and {} involuntary switches.", totals.voluntary, totals.involuntary));
        return said;
    }
    said.push(agreement(waited, total));
    said.extend(unstamped(total));
    said.extend(text::pending_line(interval).map(|pending| format!("{}.", capital(&pending))));
    said.push(format!(
        "{} voluntary and {} involuntary switches, {} between CPUs; {} ended.",
        total.totals.voluntary,
        total.totals.involuntary,
        units::count(total.totals.migrations, "move"),
        units::count(total.exited, "task")
    ));
    said
}

/// Our sum beside the kernel's.
fn agreement(waited: u64, total: &Group) -> String {
    let kernel = total.totals.run_delay_ns;
    let same = if kernel == waited {
        ", the same to the nanosecond".into()
    } else {
        format!(
            ", {} from ours: waits that were not over at the first or the last Sample",
            duration(kernel.abs_diff(waited))
        )
    };
    format!("The kernel's own sum is {}{same}.", duration(kernel))
}

fn unstamped(total: &Group) -> Option<String> {
    (total.totals.unstamped != 0).then(|| {
        format!(
            "Not in either: {} of tasks preempted on their way to sleep, {} in all.",
            units::count(total.totals.unstamped, "wait"),
            duration(total.totals.unstamped_ns)
        )
    })
}
