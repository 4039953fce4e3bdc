//! The report over time: sparklines, and the worst moment in words.

use std::fmt::{Result, Write as _};

use cgscope_model::{
    Cause, Interval, Mode, Timeline, sum,
    timeline::Slice,
    units::{count, duration, percent, time_of_day},
};

use crate::causes::{self, UNNAMED};

/// The width of a sparkline. With its name and its maximum, a line fits in 80 columns.
const COLUMNS: usize = 40;
const NAME: usize = 16;
/// Bars from just above 0 to the maximum; 0 is blank.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Prints sparklines and marks the worst moment. Prints nothing for a single slice, because the totals show it.
pub fn timeline(out: &mut String, timeline: &Timeline, whole: &Interval, cpus: Option<u32>) -> Result {
    let slices = timeline.slices();
    let (Some(first), true) = (slices.first(), slices.len() > 1) else { return Ok(()) };
    let columns: Vec<&[Slice]> = slices.chunks(slices.len().div_ceil(COLUMNS)).collect();
    let length = columns.first().map_or(0, |column| length_ns(column));
    writeln!(
        out,
        "\nOver time: {} of {} each from {}, average number of tasks:",
        count(columns.len() as u64, "column"),
        duration(length),
        time_of_day(first.start_unix_ns)
    )?;
    let waiting = averages(&columns, |slice| slice.all.waited_ns());
    let top = highest(&waiting);
    line(out, "waiting", &waiting, top, "")?;
    for cause in [Cause::Throttled, Cause::OtherCgroup] {
        if causes::shown(cause).exact_only && whole.mode == Mode::Coarse {
            continue;
        }
        let waiting = averages(&columns, |slice| slice.all.by_cause.get(cause));
        let name = causes::words(cause).trim_start_matches("behind ");
        line(out, &format!("  {name}"), &waiting, top, "")?;
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
    let bars: String = values.iter().map(|value| level(*value, top)).collect();
    let most = highest(values);
    let most = if most > 0.0 && most < 0.01 { "0.01".into() } else { format!("{most:.2}") };
    writeln!(out, "  {name:<NAME$}{bars:<COLUMNS$} up to {most}{of}")
}

/// The bar of a value. A value above 0 is never blank.
fn level(value: f64, top: f64) -> char {
    if value <= 0.0 || top <= 0.0 {
        return ' ';
    }
    let level = (value / top * LEVELS.len() as f64).ceil() as usize;
    LEVELS[level.clamp(1, LEVELS.len()) - 1]
}

/// When, where and why tasks waited most; `None` without waits, or with a single slice.
pub fn worst(timeline: &Timeline, whole: &Interval) -> Option<String> {
    let slices = timeline.slices();
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
        let path = whole.cgroup_path(id).map_or(UNNAMED.into(), |path| whole.names.of(path));
        let share = |ns, of_ns| percent(ns, of_ns).unwrap_or_default();
        let _ = write!(said, ". {:.0}% of this waiting was in {path}", share(part.waited_ns(), waited_ns));
        if let Some((cause, ns)) = part.by_cause.iter().max_by_key(|(_, ns)| *ns) {
            let _ = write!(
                said,
                "; {:.0}% of the waiting there was {}",
                share(ns, part.waited_ns()),
                causes::words(cause)
            );
        }
    }
    Some(said + ".")
}
