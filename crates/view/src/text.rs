//! Sentences and rows that several views share.

use cgscope_ledger::named;
use cgscope_model::{
    Finding, Interval, Losses, Mode, Wait,
    table::interval::CostInterval,
    units::{self, bytes, duration, per_second, percent},
};

use crate::{
    causes,
    width::{self, bar_length},
};

pub const NO_HISTOGRAM: &str = "coarse: /proc reports the sum of waits, not each wait, so there is no histogram; what a \
    task does between its last reading and its exit is not seen";

/// Width of a histogram bar, the same as in runqlat.
const BAR: usize = 40;
/// Minimum length of pending waits to report, ns. A task that has just woken up also waits, but is about to run.
const PENDING_SAID_NS: u64 = 1_000;

pub(crate) fn or_na(value: Option<String>) -> String {
    value.unwrap_or_else(|| "n/a".into())
}

pub(crate) fn or_dash(ns: Option<u64>) -> String {
    ns.map_or("-".into(), duration)
}

/// Returns a sign that fills its cell from the bottom, by at least one eighth. The value `most` fills the whole cell.
pub(crate) fn eighths(value: f64, most: f64) -> char {
    let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][((share * 8.0).ceil() as usize).clamp(1, 8) - 1]
}

/// Formats a duration in microseconds, the unit of cgroup files.
pub(crate) fn micros(us: u64) -> String {
    duration(us.saturating_mul(1_000))
}

/// Returns number, sum and percentiles of waits. In coarse mode: number, sum and mean.
pub fn wait_line(wait: &Wait, mode: Mode) -> String {
    if wait.count == 0 && wait.total_ns == 0 {
        return "no wait ended in this time".into();
    }
    let all = format!("{}, {} in all", units::count(wait.count, "wait"), duration(wait.total_ns));
    if mode == Mode::Coarse {
        return format!("{all}; {} on average", or_na(wait.total_ns.checked_div(wait.count).map(duration)));
    }
    let [p50, p90, p99, p999] =
        [0.5, 0.9, 0.99, 0.999].map(|quantile| or_na(wait.quantile_ns(quantile).map(duration)));
    let longest = duration(wait.max_ns);
    format!("{all}; p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, longest {longest}")
}

pub fn cost_line(cost: &CostInterval, duration_ns: u64, mode: Mode) -> String {
    let share = cost.cpu_ns.and_then(|ns| percent(ns, duration_ns)).map(|share| format!("{share:.2}%"));
    let own = format!("{} of one CPU, {}", or_na(share), or_na(cost.rss_bytes.map(bytes)));
    match mode {
        Mode::Coarse => format!("own cost: {own}"),
        Mode::Bpf => format!("own cost: hook {}, collector {own}", hook_cost(cost, duration_ns)),
    }
}

/// Returns the overhead of the hook, as far as known: `0.15% of one CPU (62ns x 25000 switches/s)`.
fn hook_cost(cost: &CostInterval, duration_ns: u64) -> String {
    let runs = cost.hook_runs.and_then(|runs| per_second(runs, duration_ns));
    let runs = runs.map(|runs| format!("{runs:.0} switches/s"));
    let a_run = cost.hook_ns.zip(cost.hook_runs).and_then(|(ns, runs)| ns.checked_div(runs));
    let share = cost.hook_ns.and_then(|ns| percent(ns, duration_ns));
    let share = share.map_or("not known".into(), |share| format!("{share:.2}% of one CPU"));
    match (a_run, runs) {
        (Some(ns), Some(runs)) => format!("{share} ({ns}ns x {runs})"),
        (None, Some(runs)) => format!("{share} ({runs})"),
        (_, None) => share,
    }
}

pub(crate) fn closing_lines(interval: &Interval) -> [String; 2] {
    [cost_line(&interval.cost, interval.duration_ns, interval.mode), loss_line(&interval.losses)]
}

/// Returns each loss by name and number, or `none`.
pub fn loss_line(losses: &Losses) -> String {
    format!("losses: {losses}")
}

/// Returns a line about the tasks that wait at the end of an interval. `None` if all have waited for less than 1 us.
pub fn pending_line(interval: &Interval) -> Option<String> {
    let total = interval.total();
    let were = if total.pending == 1 { "task was" } else { "tasks were" };
    let (tasks, longest) = (total.pending, duration(total.pending_max_ns));
    (total.pending_max_ns >= PENDING_SAID_NS)
        .then(|| format!("{tasks} {were} waiting at the end, the longest for {longest} so far"))
}

/// Formats a time as `YYYY-MM-DD HH:MM:SS UTC`.
pub fn utc(unix_ns: u64) -> String {
    format!("{} {}", units::date(unix_ns), units::time_of_day(unix_ns))
}

pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Wraps words to lines of at most `width` cells, unless a word is longer. All lines but the first begin with `indent`.
/// Spaces within a line are kept.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    width::lines(text, width, indent.len()).join(&format!("\n{indent}"))
}

/// Returns the first `most` parts, and the number of further parts: `a, b, 3 more`.
pub fn listed(parts: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let more = parts.len().saturating_sub(most);
    let more = (more != 0).then(|| format!("{more} more"));
    parts.take(most).chain(more).collect::<Vec<_>>().join(", ")
}

pub fn findings_heading(findings: &[Finding]) -> String {
    match findings.len() {
        0 => "No finding: no figure is past its threshold.".into(),
        n => format!("{}, the most costly first:", units::count(n as u64, "finding")),
    }
}

/// Returns the findings as a numbered list with advice, in lines of at most `width` characters.
pub fn findings(findings: &[Finding], width: usize) -> String {
    let words = findings.iter().zip(1..).flat_map(|(finding, n)| {
        let lines = [
            (format!("{n:>2}. {}.", finding.headline()), "    "),
            (format!("    {}.", capital(&finding.says)), "    "),
            (format!("    -> {}.", capital(&finding.advice)), "       "),
        ];
        lines.map(|(words, indent)| wrapped(&words, width, indent) + "\n")
    });
    words.collect()
}

named! {
    /// The unit of a histogram's rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub enum Unit (title, ns) {
        /// The name of the unit in runqlat.
        title: &'static str,
        ns: u64,
    }

    #[serde(rename = "us")]
    Micro = "usecs", 1_000;
    #[serde(rename = "ms")]
    Milli = "msecs", 1_000_000;
}

impl Unit {
    pub fn other(self) -> Self {
        if self == Self::Micro { Self::Milli } else { Self::Micro }
    }
}

/// Returns a histogram in the format of runqlat, with each bar split by cause. Empty if there are no waits.
pub fn histogram(wait: &Wait, unit: Unit) -> String {
    let rows = wait.hist.rows(unit.ns());
    let Some(most) = rows.iter().map(|row| row.count).max() else { return String::new() };
    let legend = causes::legend(&wait.by_cause);
    let heading = format!("{:>10}{:14} : count    distribution  {legend}", unit.title(), "");
    let mut out = heading.trim_end().to_owned() + "\n";
    out.extend(rows.iter().map(|row| {
        let bar = causes::bar(&row.by_cause, bar_length(row.count, most, BAR));
        format!("{:>10} -> {:<10} : {:<8} |{bar:BAR$}|\n", row.low, row.high, row.count)
    }));
    out
}

/// Returns contention and time at a limit over an interval, in words; `None` if they are unknown.
pub fn contention(contention_ns: Option<u64>, limit_ns: Option<u64>, duration_ns: u64) -> Option<String> {
    let share = |ns: Option<u64>| percent(ns?, duration_ns);
    let (behind, limit) = (share(contention_ns)?, share(limit_ns)?);
    Some(format!("some task waited for a CPU {behind:.1}% of the time, only at a limit {limit:.1}%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::Loss;
    use cgscope_model::{ByCause, Cause, Hist, Pending};

    const S: u64 = 1_000_000_000;

    fn wait(ns: &[u64]) -> Wait {
        Wait {
            count: ns.len() as u64,
            total_ns: ns.iter().sum(),
            max_ns: ns.iter().copied().max().unwrap_or(0),
            by_cause: ByCause::only(Cause::Wakeup, ns.iter().sum()),
            hist: Hist::from_waits_ns(ns.iter().copied()),
        }
    }

    #[test]
    fn a_histogram_looks_like_runqlat() {
        let mut waits = vec![3_000; 80];
        waits.extend([700, 40_000]);
        insta::assert_snapshot!(histogram(&wait(&waits), Unit::Micro));
        insta::assert_snapshot!(histogram(&wait(&waits), Unit::Milli));
        assert_eq!(histogram(&wait(&[]), Unit::Micro), "");
    }

    #[test]
    fn waits_are_summarized_in_a_line() {
        assert_eq!(
            wait_line(&wait(&[1_000, 2_000_000]), Mode::Bpf),
            "2 waits, 2.00ms in all; p50 1.12us, p90 2.00ms, p99 2.00ms, p99.9 2.00ms, longest 2.00ms"
        );
        assert_eq!(wait_line(&wait(&[]), Mode::Bpf), "no wait ended in this time");
        let coarse = Wait { hist: Hist::default(), max_ns: 0, ..wait(&[1_000, 2_000_000]) };
        assert_eq!(wait_line(&coarse, Mode::Coarse), "2 waits, 2.00ms in all; 1.00ms on average");
    }

    #[test]
    fn unmeasured_figures_are_not_shown_as_0() {
        assert_eq!(cost_line(&CostInterval::default(), S, Mode::Coarse), "own cost: n/a of one CPU, n/a");
        let line = cost_line(&CostInterval::default(), S, Mode::Bpf);
        assert_eq!(line, "own cost: hook not known, collector n/a of one CPU, n/a");
        let hook = |ns, runs| {
            hook_cost(&CostInterval { hook_ns: ns, hook_runs: runs, ..CostInterval::default() }, S)
        };
        assert_eq!(hook(None, Some(1_045)), "not known (1045 switches/s)");
        assert_eq!(hook(Some(1_045_000), Some(1_045)), "0.10% of one CPU (1000ns x 1045 switches/s)");
        assert_eq!(hook(Some(0), Some(0)), "0.00% of one CPU (0 switches/s)");
    }

    #[test]
    fn a_wait_that_has_just_begun_is_not_reported() {
        let line = |pending_ns: [u64; 2]| {
            let mut sample = cgscope_made_up::host(2, 1, 3);
            for (task, ns) in sample.tasks.iter_mut().map(std::sync::Arc::make_mut).zip(pending_ns) {
                task.pending = Some(Pending { ns, ..Pending::default() }.into());
            }
            pending_line(&Interval::between(&sample, &sample))
        };
        assert_eq!(line([0, 999]), None);
        let said = line([0, 1_000]).unwrap();
        assert_eq!(said, "2 tasks were waiting at the end, the longest for 1.00us so far");
    }

    #[test]
    fn times_are_printed_in_utc() {
        let said = [0, 951_782_399, 951_782_400, 1_700_000_000, 4_107_542_399]
            .map(|unix_s| utc(unix_s * 1_000_000_000));
        assert_eq!(
            said,
            [
                "1970-01-01 00:00:00 UTC",
                "2000-02-28 23:59:59 UTC",
                "2000-02-29 00:00:00 UTC",
                "2023-11-14 22:13:20 UTC",
                "2100-02-28 23:59:59 UTC",
            ]
        );
    }

    #[test]
    fn text_is_wrapped_only_between_words() {
        assert_eq!(wrapped(" 1. one two three", 8, "    "), " 1. one\n    two\n    three");
        assert_eq!(wrapped("/a/very/long/path and more", 10, ""), "/a/very/long/path\nand more");
        assert_eq!(wrapped("", 10, ""), "");
    }

    #[test]
    fn losses_are_named() {
        let mut losses = Losses::default();
        assert_eq!(loss_line(&losses), "losses: none");
        losses.add(Loss::StampAfterClock, 3);
        assert_eq!(loss_line(&losses), "losses: stamp_after_clock 3");
    }
}
