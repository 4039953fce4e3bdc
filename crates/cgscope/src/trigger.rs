//! Triggers of the flight recorder. A trigger fires when a figure of an interval exceeds a limit.

use std::{collections::HashSet, fmt, mem};

use cgscope_ledger::bucket::LAST_LOW_NS;
use cgscope_model::{
    Cause, Group, GroupSum, Interval, Wait,
    findings::BUSY_THREAD_PERCENT,
    path::{is_at_or_below, normal_path},
    units::{self, duration, percent, seconds},
};

/// A figure and its limit, like `p99(/system.slice)>10ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    figure: Figure,
    /// The cgroup, including its descendants; `None`: all recorded tasks.
    pub cgroup: Option<String>,
    /// In ns or percent.
    limit: f64,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Quantile(u16),
    Longest,
    Pending,
    /// Waits with this cause (`None`: with any cause), as a share of the time in which tasks ran or waited.
    Share(Option<Cause>),
}

const FIGURES: [(&str, Figure); 8] = [
    ("p50", Figure::Quantile(500)),
    ("p90", Figure::Quantile(900)),
    ("p99", Figure::Quantile(990)),
    ("p999", Figure::Quantile(999)),
    ("max", Figure::Longest),
    ("pending", Figure::Pending),
    ("throttled", Figure::Share(Some(Cause::Throttled))),
    ("waiting", Figure::Share(None)),
];

const EXAMPLES: &str = "examples: 'p99>10ms', 'throttled>20%', 'pending(/system.slice/db.service)>1s'";
/// Minimum number of waits. With fewer waits, even the median is noise.
const FEWEST_WAITS: u64 = 20;

pub fn trigger(text: &str) -> Result<Trigger, String> {
    let (left, right) = text.rsplit_once('>').ok_or_else(|| {
        format!("a trigger is FIGURE>LIMIT or FIGURE(CGROUP)>LIMIT, in quotes for the shell; {EXAMPLES}")
    })?;
    let (name, cgroup) = match left.trim().split_once('(') {
        None => (left.trim(), None),
        Some((name, rest)) => {
            let path = rest.strip_suffix(')').map(str::trim).filter(|path| path.starts_with('/'));
            let path = path.ok_or_else(|| format!("a cgroup must be given as FIGURE(/PATH); {EXAMPLES}"))?;
            (name.trim(), Some(normal_path(path)))
        }
    };
    let Some((name, figure)) = FIGURES.into_iter().find(|(known, _)| *known == name) else {
        let known = FIGURES.map(|(known, _)| known).join(", ");
        return Err(format!("{name:?} is not a figure: use one of {known}; {EXAMPLES}"));
    };
    let limit = limit(figure, right.trim()).ok_or_else(|| {
        let wanted = match figure {
            Figure::Share(_) => "a share between 0% and 100%, with its %",
            Figure::Quantile(_) => "a time below 8m with its unit: us, ms, s or m",
            _ => "a time with its unit: us, ms, s, m or h",
        };
        format!("{:?} is not a valid limit for {name}: the limit must be {wanted}; {EXAMPLES}", right.trim())
    })?;
    let of = cgroup.as_ref().map_or(String::new(), |cgroup| format!("({cgroup})"));
    let text = format!("{name}{of}>{}", right.trim());
    Ok(Trigger { figure, cgroup, limit, text })
}

fn limit(figure: Figure, text: &str) -> Option<f64> {
    let ns = || seconds(text).map(|seconds| seconds * 1e9);
    let number = match figure {
        Figure::Share(_) => text.strip_suffix('%')?.trim().parse().ok().filter(|share| *share < 100.0),
        _ if text.ends_with(|c: char| c.is_ascii_digit()) => None,
        // Longer waits share the last bucket of the histogram.
        Figure::Quantile(_) => ns().filter(|ns| *ns < LAST_LOW_NS as f64),
        _ => ns(),
    };
    number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Trigger {
    pub fn needs_lengths(&self) -> bool {
        !matches!(self.figure, Figure::Share(_))
    }

    /// Describes the figure if it exceeds the limit. Returns `None` otherwise, or if there are too few waits.
    pub fn exceeded(&self, interval: &Interval) -> Option<String> {
        let seen = sum_of(interval, self.cgroup.as_deref());
        let (longest_ns, pending_ns) = (seen.wait.max_ns, seen.pending_max_ns);
        let (value, words) = match self.figure {
            Figure::Quantile(per_mille) => quantile(&seen.wait, per_mille)?,
            Figure::Longest => (longest_ns as f64, format!("the longest wait took {}", duration(longest_ns))),
            Figure::Pending => {
                (pending_ns as f64, format!("a task has been waiting for {} so far", duration(pending_ns)))
            }
            Figure::Share(cause) => share(&seen, cause, interval.duration_ns)?,
        };
        (value > self.limit).then(|| format!("{self}: {words}"))
    }
}

/// Returns the sum of the tasks in a cgroup and its descendants; without a cgroup, of all tasks.
fn sum_of(interval: &Interval, cgroup: Option<&str>) -> Group {
    let inside: Option<HashSet<u64>> = cgroup.map(|cgroup| {
        let inside = interval.cgroups.iter().filter(|(_, path)| is_at_or_below(path, cgroup));
        inside.map(|(id, _)| *id).collect()
    });
    let is_inside = |id: u64| inside.as_ref().is_none_or(|inside| inside.contains(&id));
    let mut sum = GroupSum::default();
    let tasks = interval.tasks.iter().filter(|task| is_inside(task.reading.cgroup_id));
    tasks.for_each(|task| sum.add_task(task));
    let exited = interval.exited.iter().filter(|exited| is_inside(exited.cgroup_id));
    exited.for_each(|exited| sum.add_exited(exited));
    sum.take(0)
}

fn quantile(wait: &Wait, per_mille: u16) -> Option<(f64, String)> {
    if wait.count < fewest_waits(per_mille) {
        return None;
    }
    let quantile = f64::from(per_mille) / 1e3;
    let (low_ns, ns) = (wait.hist.quantile_low_ns(quantile)?, wait.quantile_ns(quantile)?);
    let name = FIGURES.iter().find(|(_, figure)| *figure == Figure::Quantile(per_mille))?.0;
    let (waits, low, high) = (units::count(wait.count, "wait"), duration(low_ns), duration(ns));
    let words = format!("{name} of {waits} was between {low} and {high}");
    // The lower bound of the bucket. If it exceeds the limit, each wait in the bucket does, too.
    Some((low_ns as f64, words))
}

fn share(seen: &Group, cause: Option<Cause>, duration_ns: u64) -> Option<(f64, String)> {
    let able_ns = seen.totals.on_cpu_ns + seen.wait.total_ns;
    if u128::from(able_ns) * 100 < u128::from(duration_ns) * u128::from(BUSY_THREAD_PERCENT) {
        return None;
    }
    let part = cause.map_or(seen.wait.total_ns, |cause| seen.wait.by_cause.get(cause));
    let share = percent(part, able_ns)?;
    let (did, able) = (cause.map_or("waiting", Cause::name), duration(able_ns));
    let words = format!("tasks were {did} for {share:.1}% of the {able} in which they were runnable");
    Some((share, words))
}

/// Returns the minimum number of waits, so that at least one wait is above the quantile.
fn fewest_waits(per_mille: u16) -> u64 {
    (1_000 / u64::from(1_000 - per_mille)).max(FEWEST_WAITS)
}

#[derive(Debug)]
pub struct Watch {
    /// Whether each trigger can fire. After it fired, the figure must first fall to the limit: a long episode is saved once.
    armed: Vec<bool>,
    quiet_until_ns: u64,
    /// How many more parts may be saved.
    pub left: u64,
}

impl Watch {
    /// `most` is the maximum number of saved parts.
    pub fn new(triggers: usize, most: u64) -> Self {
        Self { armed: vec![true; triggers], quiet_until_ns: 0, left: most }
    }

    /// Returns the words of the triggers that fire now. `exceeded` has the words of each trigger whose figure exceeds its limit.
    pub fn fires(&mut self, exceeded: impl IntoIterator<Item = Option<String>>, now_ns: u64) -> Vec<String> {
        let may_fire = now_ns >= self.quiet_until_ns && self.left > 0;
        let mut fires = Vec::new();
        for (armed, exceeded) in self.armed.iter_mut().zip(exceeded) {
            match exceeded {
                None => *armed = true,
                Some(words) if may_fire && mem::take(armed) => fires.push(words),
                Some(_) => {}
            }
        }
        fires
    }

    /// Counts a saved part. No trigger fires before `quiet_until_ns`.
    pub fn saved(&mut self, quiet_until_ns: u64) {
        (self.quiet_until_ns, self.left) = (quiet_until_ns, self.left.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests;
