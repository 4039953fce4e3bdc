//! The report on a recording, as text with tables, or as an HTML page.

pub mod html;
mod tables;

use std::fmt::{Result, Write as _};

use cgscope_ledger::Loss;
use cgscope_model::causes::{Blames, Shown, TABLE};
use cgscope_model::findings::{Host, findings};
use cgscope_model::units::{count, duration, percent, time_of_day};
use cgscope_model::{Finding, Group, Interval, Losses, Mode, Timeline, sum, timeline::Slice};

use crate::{
    causes, nodes,
    report::tables::{Pair, Row, Sleep},
    text::{self, NO_HISTOGRAM, Unit, capital, wrapped},
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
            cgroups: tables::cgroups(&interval),
            processes: tables::processes(&interval),
            threads: tables::threads(&interval),
            pairs: tables::pairs(&interval),
            sleeps: tables::sleeps(&interval),
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
    tables::used_quotas(interval)
        .try_for_each(|(limits, path)| tables::quota(out, interval, path, limits, cgroups))?;
    if !enough.is_empty() {
        writeln!(out, "\n{ENOUGH} ({}):", enough_hint(&about.file))?;
    }
    // These lines are not wrapped, because users copy the settings.
    enough.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    tables::table(out, "Cgroups, each with its descendants", "cgroup", mode, cgroups)?;
    tables::table(out, "Processes", "process, cgroup", mode, processes)?;
    tables::table(out, "Threads", "thread, cgroup", mode, threads)?;
    tables::culprits(out, pairs)?;
    tables::sleep_lines(out, sleeps)?;
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

#[cfg(test)]
mod tests;
