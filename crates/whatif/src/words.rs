//! The answers as text.

use std::fmt::Write;

use crate::{
    Bounds, Check, Limit,
    answer::{Answer, Caution, Question, Refusal, Row, Target, answer, targets, throttled_share},
    history::History,
};
use cgscope_ledger::Loss;
use cgscope_model::{
    Interval, Mode,
    findings::{set_burst, set_quota},
    names::Names,
    selection::{Selection, SelectionFilter},
    units::{count, cpus, duration, number, time_of_day},
};

/// The answers about a time, with a note about `left` other cgroups.
pub fn text(answers: &[Answer], whole: &Interval, question: &Question, left: usize) -> String {
    within(answers, whole, question, left, usize::MAX)
}

/// The same, with tables of at most `room` characters: the last columns are left out.
pub fn within(answers: &[Answer], whole: &Interval, question: &Question, left: usize, room: usize) -> String {
    let mut text = String::new();
    for answer in answers {
        let _ = writeln!(text, "{}", about(answer, whole));
        if let Some(refusal) = &answer.refusal {
            let _ = writeln!(text, "  No advice: {}.", refused(refusal).2);
            let lost = whole.losses.get(Loss::DemandForgotten);
            if lost != 0 && matches!(refusal, Refusal::Incomplete(..)) {
                let _ = writeln!(text, "  Lost: {} {lost}.", Loss::DemandForgotten.name());
            }
        } else {
            text += &table(answer, room);
            text += &least(answer, &whole.names, question);
            text.extend(burst(answer, question));
            // A screen has no options.
            if room == usize::MAX {
                text.extend(no_period_allowed(answer, question));
                text.extend(loops(answer));
            }
            text.extend(threads(answer, question));
        }
        // A refusal that says the same comes first.
        let is_new = |one: &&Caution| {
            !matches!((one, &answer.refusal), (Caution::WaitedForCpus(_), Some(Refusal::Contended(_))))
        };
        text.extend(answer.cautions.iter().filter(is_new).map(|one| caution(*one).1));
        text.push('\n');
    }
    if left != 0 {
        let _ = writeln!(
            text,
            "Only the cgroups that were throttled longest are shown. To see one of the {} left out, select it with --cgroup, --unit, --pod \
             or --container.",
            count(left as u64, "other cgroup")
        );
    }
    text
}

/// The cgroup, its limit, what the kernel counted, and what the simulation says about the same limit.
fn about(answer: &Answer, whole: &Interval) -> String {
    let Answer { limit, counted, span_ns, .. } = answer;
    let span = match answer.start_ns {
        None => duration(*span_ns),
        Some(start_ns) => {
            let start = time_of_day(whole.start_unix_ns.saturating_add(start_ns));
            format!("the busiest {}, from {start} on", duration(*span_ns))
        }
    };
    let mut text = format!(
        "{}: {} ({} of every {}), used {} on average over {span}\n  counted by the kernel: {} of {} throttled ({}), for {} summed over CPUs",
        whole.names.of(&answer.path),
        cpus(limit.cpus()),
        duration(limit.quota_ns),
        duration(limit.period_ns),
        number(answer.used),
        counted.nr_throttled.unwrap_or(0),
        count(counted.nr_periods.unwrap_or(0), "period"),
        percent(throttled_share(counted)),
        duration(counted.throttled_ns.unwrap_or(0)),
    );
    if let Some(Check { figures, .. }) = &answer.check {
        let times = map(figures.throttled_ns_per_s, |per_s| (per_s * *span_ns as f64 / 1e9) as u64);
        let _ = write!(
            text,
            "\n  simulated with this limit: {} of the periods throttled, for {}",
            shares(figures.throttled_share),
            durations(times)
        );
    }
    text
}

/// Why there is no advice: the name for JSON, the reason in short, and in full with what to do.
pub(crate) fn refused(refusal: &Refusal) -> (&'static str, String, String) {
    match refusal {
        Refusal::Short(periods) => (
            "short",
            "it ran in too few periods".into(),
            format!("there are only {} with work, and 20 are needed; measure for longer", count(*periods, "period")),
        ),
        Refusal::Changed => (
            "changed",
            "the limit was changed".into(),
            "its quota, period or burst was changed, or that of a cgroup that shares a quota with it; measure again".into(),
        ),
        Refusal::Incomplete(ran_ns, usage_ns) => {
            let (ran, usage) = (duration(*ran_ns), duration(*usage_ns));
            let full = match ran_ns {
                0 => format!(
                    "nothing of the {usage} of CPU time that the kernel counted is known: a measurement has places for the 256 cgroups that are \
                     throttled longest, and keeps 100 MB of what they needed; select fewer cgroups, or measure again when fewer have a quota"
                ),
                _ => format!(
                    "the samples have {ran} of the {usage} of CPU time that the kernel counted for this cgroup; measure the whole host with an \
                     interval of at most 1 s, and look for losses in the recording"
                ),
            };
            ("incomplete", "not all of its CPU time was recorded".into(), full)
        }
        Refusal::Contended(waited) => {
            let waited = percent(*waited);
            let full = format!(
                "for {waited} of the time in which its tasks could run they waited for a CPU that others used, so nobody knows when their work \
                 arrives; measure again when CPUs are free"
            );
            ("contended", format!("its tasks waited for CPUs for {waited} of their time"), full)
        }
        Refusal::TooMany(cgroups) => (
            "too_many",
            "too many cgroups share its limits".into(),
            format!("{cgroups} cgroups share its limits, too many to be simulated for so long: use a shorter recording"),
        ),
        Refusal::Unfit => (
            "unfit",
            "the simulation does not fit what the kernel counted".into(),
            "the simulation of the limit in force differs from what the kernel counted by more than 10 % and 2 points, so it would \
             be wrong about other limits, too; measure again"
                .into(),
        ),
    }
}

/// Bounds of the share of throttled periods that are further apart than this can be closer if it is known when work arrives.
const WIDE: f64 = 0.1;

const HEAD: [&str; 7] =
    ["CPUs", "periods throttled", "throttled/s", "stall p50", "stall p99", "all work done", "unused"];

fn table(answer: &Answer, room: usize) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(answer.rows.iter().map(|row| cells(row, answer.limit)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let ends = widths.iter().scan(0, |end, width| {
        *end += width + 2;
        Some(*end)
    });
    let columns = ends.take_while(|end| *end <= room).count();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).take(columns).map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}

fn cells(row: &Row, in_force: Limit) -> [String; 7] {
    let Row { limit, figures } = row;
    let mark = if *limit == in_force { "now " } else { "" };
    let [share, per_s, p50, p99] = throttled(row);
    [
        format!("{mark}{}", number(limit.cpus())),
        share,
        per_s,
        p50,
        p99,
        figures.done_ns.map_or_else(|| "-".into(), durations),
        figures.unused_share.map_or_else(|| "-".into(), shares),
    ]
}

/// The share of throttled periods, the throttled time per second, and quantiles of the stalls.
fn throttled(row: &Row) -> [String; 4] {
    let Row { figures, .. } = row;
    if row.is_unknown() {
        return std::array::from_fn(|_| "unknown".to_owned());
    }
    [
        shares(figures.throttled_share),
        durations(map(figures.throttled_ns_per_s, |ns| ns as u64)),
        durations(figures.stall_p50_ns),
        durations(figures.stall_p99_ns),
    ]
}

/// The least quota that is enough, and how to set it.
fn least(answer: &Answer, names: &Names, question: &Question) -> String {
    let target = target(question);
    if answer.is_demand_unknown() {
        return String::new();
    }
    let Some(row) = &answer.least else {
        return format!(
            "  No quota on the CPUs of this cgroup keeps the throttled periods at or below {target}.\n"
        );
    };
    let mut text =
        format!("  At most {target} of the periods are throttled from {} on.\n", cpus(row.limit.cpus()));
    if answer.is_least_demand {
        text += "  Nearly every period was throttled, so the cgroup may need more. Set this quota, then measure again.\n";
    }
    let _ = writeln!(text, "  -> {}", quota_setting(answer, names, row.limit));
    text
}

/// In a short recording, a low target allows no period.
fn no_period_allowed(answer: &Answer, question: &Question) -> Option<String> {
    answer.least.as_ref()?;
    let periods = answer.counted.nr_periods.unwrap_or(0);
    (question.target > 0.0 && question.target * (periods as f64) < 1.0).then(|| {
        format!(
            "  {} of {} is less than one period, so a single throttled period is too many. Measure for longer, or raise --target.\n",
            target(question),
            count(periods, "period"),
        )
    })
}

pub fn quota_setting(answer: &Answer, names: &Names, limit: Limit) -> String {
    let setting = set_quota(&answer.path, names, limit.quota_ns.div_ceil(1_000), limit.period_ns / 1_000);
    // Only the file has the period, too.
    if limit.period_ns == answer.limit.period_ns || setting.starts_with("write") {
        return setting;
    }
    format!("{setting}, with a period of {}", duration(limit.period_ns))
}

pub fn burst_setting(answer: &Answer, limit: Limit) -> String {
    set_burst(&answer.path, limit.burst_ns.div_ceil(1_000))
}

/// A burst that is enough with the quota in force.
fn burst(answer: &Answer, question: &Question) -> Option<String> {
    let limit = answer.burst.as_ref()?.limit;
    Some(format!(
        "  The same quota with a burst of {} is also enough: at most {} of the periods are throttled.\n  -> {}\n",
        duration(limit.burst_ns),
        target(question),
        burst_setting(answer, limit)
    ))
}

/// What the user may know and the recording does not show.
fn loops(answer: &Answer) -> Option<&'static str> {
    let differs = |row: &Row| row.figures.throttled_share.high - row.figures.throttled_share.low > WIDE;
    (answer.loops.len() > 1 && !answer.is_demand_unknown() && answer.rows.iter().any(differs)).then_some(
        "  The recording does not show when work arrives. For closer bounds, add --loop open if requests come by themselves, or --loop closed \
         if each follows the answer to the one before.\n",
    )
}

/// What fewer threads would do.
fn threads(answer: &Answer, question: &Question) -> Option<String> {
    let at_once = answer.at_once?;
    if let Some(most) = question.threads {
        let all = answer.most_at_once;
        return (most >= all).then(|| {
            let all = count(all.into(), "task");
            format!("  No more than {all} could run at once: --threads {most} changes nothing.\n")
        });
    }
    let (most, row) = answer.fewer.as_ref()?;
    let [share, per_s, ..] = throttled(row);
    Some(format!(
        "  At least {} could run at once, and the quota is enough for {most}. With at most {most} at once (GOMAXPROCS={most}, \
         OMP_NUM_THREADS={most} or an option of the program), {share} of the periods would be throttled, for {per_s} per second.\n",
        count(at_once.into(), "task"),
    ))
}

/// Why bounds may be far apart: the name for JSON, and the text.
pub(crate) fn caution(caution: Caution) -> (&'static str, String) {
    match caution {
        Caution::SleptWhileThrottled(share) => (
            "slept_while_throttled",
            format!(
                "  While some tasks were throttled, others slept, maybe because they waited for a lock. {} of the demand is assumed for them, so \
                 bounds are wide.\n",
                percent(share)
            ),
        ),
        Caution::MayHaveSlept => (
            "may_have_slept",
            "  The least quota is not known: nearly every period was throttled, and yet tasks slept. They may have waited for a lock that a \
             throttled task held. Set a higher quota, then measure again.\n"
                .to_owned(),
        ),
        Caution::WaitedForCpus(share) => (
            "waited_for_cpus",
            format!(
                "  For {} of the time in which its tasks were runnable and not throttled, they waited for a CPU that others used. A higher quota \
                 helps only if CPUs are free.\n",
                percent(share)
            ),
        ),
    }
}

/// A share in percent, with one digit after the point.
pub fn percent(share: f64) -> String {
    format!("{}%", number((share * 1_000.0).round() / 10.0))
}

/// The target has more digits: 0.04 % is not 0 %.
fn target(question: &Question) -> String {
    format!("{}%", number((question.target * 10_000.0).round() / 100.0))
}

fn map<A: Copy, B>(bounds: Bounds<A>, to: impl Fn(A) -> B) -> Bounds<B> {
    Bounds { low: to(bounds.low), high: to(bounds.high) }
}

fn shares(bounds: Bounds<f64>) -> String {
    between(map(bounds, percent))
}

fn durations(bounds: Bounds<u64>) -> String {
    between(map(bounds, |ns| if ns == 0 { "0".to_owned() } else { duration(ns) }))
}

/// One value if both bounds agree.
fn between(bounds: Bounds<String>) -> String {
    if bounds.low == bounds.high { bounds.low } else { format!("{}..{}", bounds.low, bounds.high) }
}

/// Maximum work for a line: cgroups that are simulated together, times ns. Measured: 0.3 ms for each second of each cgroup.
const MOST_WORK: u64 = 6_200_000_000_000;

/// A line for each of the cgroups that were throttled longest. Empty if no quota ran out, or if the recording has no demand.
pub fn lines(whole: &Interval, history: &History) -> Vec<String> {
    if whole.mode == Mode::Coarse || history.has_gaps {
        return Vec::new();
    }
    let everything = SelectionFilter::new(&Selection::default());
    let chosen = everything.ok().and_then(|filter| targets(whole, &filter).ok());
    let (targets, _) = chosen.unwrap_or_default();
    // Only the least quota is printed. A table with one quota takes less time than one with eight.
    let question = Question { quotas: vec![1.0], ..Question::PLAIN };
    let line_of = |target: &Target| {
        let demand = history.busiest(target)?;
        if demand.span_ns.saturating_mul(target.family.len() as u64) > MOST_WORK {
            let (name, path) = (whole.names.of(&target.path), &target.path);
            return Some(format!(
                "{name} would take long to simulate: use `cgscope whatif FILE --cgroup {path}`"
            ));
        }
        Some(line(&answer(&demand, &question)?, whole))
    };
    targets.iter().filter_map(line_of).collect()
}

pub fn line(answer: &Answer, whole: &Interval) -> String {
    let (name, limit) = (whole.names.of(&answer.path), cpus(answer.limit.cpus()));
    let advice = match (&answer.refusal, &answer.least) {
        (Some(refusal), _) => format!("no advice, because {}", refused(refusal).1),
        (None, None) if answer.is_demand_unknown() => {
            "what would have been enough is not known, because its tasks may wait for throttled ones: record under a higher quota".to_owned()
        }
        (None, None) => "no quota on its CPUs would have been enough".to_owned(),
        (None, Some(least)) => {
            let more = if answer.is_least_demand { " or more" } else { "" };
            let (least, setting) = (least.limit, quota_setting(answer, &whole.names, least.limit));
            format!("{}{more} would have been enough: {setting}", cpus(least.cpus()))
        }
    };
    format!("{name} has {limit}; {advice}")
}

#[cfg(test)]
mod tests;
