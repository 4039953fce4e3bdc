//! The answer for one cgroup: what other limits would have done, or why that is not known.

use std::cmp::Reverse;

use cgscope_model::{CgroupReading, Interval, path::is_at_or_below, selection::SelectionFilter};

use crate::{
    Check, Figures, Limit, Loop,
    demand::{Demand, Runnable},
    history::History,
    simulator::simulate,
};

/// A demand counts as known only from below if more than this share of the periods was throttled.
const NEARLY_ALL: f64 = 0.9;
/// A row is unknown if its lower bound is below this share of the periods, and its upper bound above all but this share.
const FEW: f64 = 0.05;
/// A recording has all tasks of a cgroup if their run time differs by at most this share from what the kernel counted.
const COMPLETE: f64 = 0.1;
/// The least length of a recording, in periods.
const LEAST_PERIODS: u64 = 20;
/// The least share that is worth a caution.
const NOTABLE: f64 = 0.1;
/// If others used at least this share of the CPU time that tasks could have used, nobody knows when the work of these tasks arrives.
const CONTENDED: f64 = 0.5;
/// This part of the slots in which a task could run had no more tasks than are said to run at once.
const USUAL: f64 = 0.95;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Question {
    /// CPUs; empty: multiples of the quota in force.
    pub quotas: Vec<f64>,
    /// The most tasks that run at once; `None`: all that can.
    pub threads: Option<u32>,
    /// `None`: the burst in force.
    pub burst_ns: Option<u64>,
    /// `None`: the period in force.
    pub period_ns: Option<u64>,
    /// Share of periods that may be throttled, 0 to 1.
    pub target: f64,
    /// When work arrives, if the user knows.
    pub arrivals: Option<Loop>,
}

impl Question {
    /// The question without options.
    pub const PLAIN: Self = Self {
        quotas: Vec::new(),
        threads: None,
        burst_ns: None,
        period_ns: None,
        target: 0.01,
        arrivals: None,
    };
}

/// A cgroup with a quota, and the cgroups that share its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub path: String,
    /// The ids of the cgroups of the tree with the places of their parents; parents come first.
    pub family: Vec<(u64, Option<usize>)>,
    /// Its own place in `family`.
    pub at: usize,
}

impl Target {
    pub fn id(&self) -> u64 {
        self.family[self.at].0
    }
}

/// What another limit would have done.
#[derive(Clone, Debug)]
pub struct Row {
    pub limit: Limit,
    pub figures: Figures,
}

impl Row {
    /// From no period to all of them may be throttled.
    pub fn is_unknown(&self) -> bool {
        let share = self.figures.throttled_share;
        share.low < FEW && share.high > 1.0 - FEW
    }
}

/// What is known about a cgroup and its quota.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub path: String,
    /// The limit in force.
    pub limit: Limit,
    /// The kernel's counters over the simulated time.
    pub counted: CgroupReading,
    pub span_ns: u64,
    /// Start of the simulated time after the first sample, ns; `None`: the recording is not longer.
    pub start_ns: Option<u64>,
    /// CPUs that the cgroup used on average.
    pub used: f64,
    /// The simulation of the limit in force beside the kernel's own figures.
    pub check: Option<Check>,
    /// The table, ascending by quota.
    pub rows: Vec<Row>,
    pub loops: Vec<Loop>,
    /// The least quota that meets the target.
    pub least: Option<Row>,
    /// The least burst that meets the target with the quota in force.
    pub burst: Option<Row>,
    /// Tasks that could run at once for a whole slot, at least; `None`: nobody could.
    pub at_once: Option<u32>,
    /// The most tasks that could run at once for a whole slot.
    pub most_at_once: u32,
    /// The most tasks at once for which the limit in force is enough, and what it would have done to as many.
    pub fewer: Option<(u32, Row)>,
    pub cautions: Vec<Caution>,
    /// Nearly all periods were throttled: what the cgroup would use is known only from below.
    pub is_least_demand: bool,
    pub refusal: Option<Refusal>,
}

/// Why bounds may be far apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Caution {
    /// While some tasks were throttled, others slept, maybe for a lock: the part of the demand that was presumed for them, 0 to 1.
    SleptWhileThrottled(f64),
    /// Nearly all periods were throttled, and tasks slept, maybe only because they waited for throttled ones: there is no advice.
    MayHaveSlept,
    /// Tasks waited for CPUs that others used: the part of the time in which they could run and were not throttled, 0 to 1.
    WaitedForCpus(f64),
}

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The recording is too short. The number of its periods.
    Short(u64),
    Changed,
    /// The recorded run time of its tasks, and the one that the kernel counted, ns.
    Incomplete(u64, u64),
    /// Others used this large share of the CPU time that its tasks, which sleep, could have used: nobody knows when their work arrived.
    Contended(f64),
    /// The simulation of the limit in force does not fit.
    Unfit,
    /// Too many cgroups share its limits to be simulated for so long. Their number.
    TooMany(usize),
}

/// The answers of those targets that had a quota, in their order.
pub fn answers(history: &History, targets: &[Target], question: &Question) -> Vec<Answer> {
    targets.iter().filter_map(|target| answer(&history.busiest(target)?, question)).collect()
}

/// Answers for one cgroup; `None` if it had no quota.
pub(crate) fn answer(demand: &Demand<'_>, question: &Question) -> Option<Answer> {
    let (own, span_ns, ran_ns) = (demand.own()?, demand.span_ns, demand.ran_ns());
    let counted = own.counted();
    let usage_ns = counted.usage_ns.unwrap_or(ran_ns);
    let runnable = demand.runnable();
    let at_once = at_once(&runnable);
    let most_ns = runnable.slots_ns.iter().max().copied().unwrap_or(0);
    let has_several = at_once.is_some_and(|tasks| tasks > 1);
    let are_busy_loops = share(runnable.presumed_ns, runnable.ran_ns) >= NOTABLE;
    let is_least_demand = throttled_share(&counted) > NEARLY_ALL;
    let mut answer = Answer {
        path: demand.target.path.clone(),
        limit: own.limit()?,
        span_ns,
        start_ns: demand.start_ns,
        used: usage_ns as f64 / span_ns.max(1) as f64,
        at_once,
        most_at_once: most_ns.div_ceil(runnable.slot_ns).min(u32::MAX.into()) as u32,
        cautions: cautions(&runnable),
        is_least_demand,
        counted,
        ..Answer::default()
    };
    // Tasks may have slept only because others of them were throttled.
    let may_sleep = is_least_demand && has_several;
    let do_tasks_sleep = has_several && !are_busy_loops;
    if may_sleep && do_tasks_sleep {
        answer.cautions.push(Caution::MayHaveSlept);
    }
    let (periods, waited) = (answer.counted.nr_periods.unwrap_or(0), waited(&runnable));
    answer.refusal = if periods < LEAST_PERIODS {
        Some(Refusal::Short(periods))
    } else if !demand.is_bounded() {
        Some(Refusal::TooMany(demand.target.family.len()))
    } else if demand.has_changed() {
        Some(Refusal::Changed)
    } else if ran_ns.abs_diff(usage_ns) as f64 > usage_ns as f64 * COMPLETE {
        Some(Refusal::Incomplete(ran_ns, usage_ns))
    } else {
        // A busy loop always has work.
        (waited >= CONTENDED && !are_busy_loops).then_some(Refusal::Contended(waited))
    };
    if answer.refusal.is_none() {
        simulate(&mut answer, demand, question, may_sleep, do_tasks_sleep);
    }
    Some(answer)
}

impl Answer {
    /// What would have been wanted under a higher quota is not known.
    pub fn is_demand_unknown(&self) -> bool {
        self.cautions.contains(&Caution::MayHaveSlept)
    }
}

pub(crate) fn throttled_share(counted: &CgroupReading) -> f64 {
    share(counted.nr_throttled.unwrap_or(0), counted.nr_periods.unwrap_or(0))
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// How many tasks could run at once in most slots; `None`: nobody could.
pub(crate) fn at_once(runnable: &Runnable) -> Option<u32> {
    let mut tasks = runnable.slots_ns.iter().copied().filter(|ns| *ns != 0).collect::<Vec<_>>();
    tasks.sort_unstable();
    let at = ((tasks.len() as f64 * USUAL) as usize).min(tasks.len().saturating_sub(1));
    let ns = *tasks.get(at)?;
    Some((ns.saturating_add(runnable.slot_ns / 2) / runnable.slot_ns).clamp(1, u32::MAX.into()) as u32)
}

pub(crate) fn cautions(runnable: &Runnable) -> Vec<Caution> {
    let all_ns = runnable.slots_ns.iter().sum::<u64>() + runnable.slept_ns;
    let slept = (Caution::SleptWhileThrottled as fn(f64) -> Caution, share(runnable.slept_ns, all_ns));
    let all = [slept, (Caution::WaitedForCpus, waited(runnable))].into_iter();
    all.filter(|(_, share)| *share >= NOTABLE).map(|(of, share)| of(share)).collect()
}

/// The share of the time in which tasks could run and were not throttled, in which they waited for CPUs that others used.
fn waited(runnable: &Runnable) -> f64 {
    share(runnable.waited_ns, runnable.waited_ns + runnable.ran_ns)
}

/// Maximum number of cgroups to simulate if none is selected: those that were throttled longest.
const MOST: usize = 5;

/// The cgroups to simulate, those that were throttled longest first, and how many more there are. Fails with the reason if there is
/// none.
pub fn targets(whole: &Interval, filter: &SelectionFilter) -> Result<(Vec<Target>, usize), &'static str> {
    let limited = limited(whole);
    let ran_out =
        |reading: &CgroupReading| filter.is_by_cgroup() || reading.nr_throttled.is_some_and(|n| n != 0);
    let mut chosen: Vec<_> =
        selected(whole, &limited, filter).filter(|(_, reading)| ran_out(reading)).collect();
    if chosen.is_empty() {
        return Err(without_quota(whole, filter).unwrap_or(
            "no quota ran out; select a cgroup (--cgroup, --unit, --pod, --container) to see what a lower one would have done",
        ));
    }
    chosen.sort_by_key(|(path, reading)| (Reverse(reading.throttled_ns), *path));
    let left = chosen.len().saturating_sub(MOST);
    Ok((chosen.into_iter().take(MOST).map(|(path, _)| target(path, &limited)).collect(), left))
}

/// Why no selected cgroup can be simulated; `None` if one had a quota.
pub fn without_quota(whole: &Interval, filter: &SelectionFilter) -> Option<&'static str> {
    let limited = limited(whole);
    if limited.is_empty() {
        return Some("no cgroup had a quota");
    }
    let is_there = selected(whole, &limited, filter).next().is_some();
    (!is_there).then_some("the selected cgroups had no quota of their own")
}

fn selected<'l>(
    whole: &Interval,
    limited: &[(&'l str, &'l CgroupReading)],
    filter: &SelectionFilter,
) -> impl Iterator<Item = (&'l str, &'l CgroupReading)> {
    limited.iter().copied().filter(|(path, _)| filter.wants_cgroup(path, &whole.names))
}

/// The cgroups that had a quota, with their counters.
pub fn limited(whole: &Interval) -> Vec<(&str, &CgroupReading)> {
    let with_quota = whole.limits.iter().filter(|reading| reading.quota_us.is_some());
    with_quota.filter_map(|reading| Some((&**whole.cgroup_path(reading.id)?, reading))).collect()
}

/// A cgroup, with all others that share a quota with it.
pub fn target(path: &str, limited: &[(&str, &CgroupReading)]) -> Target {
    let root = above(path, limited).min_by_key(|path| path.len()).unwrap_or(path);
    let mut members: Vec<_> = limited.iter().filter(|(path, _)| is_at_or_below(path, root)).collect();
    members.sort_by_key(|(path, _)| (path.len(), *path));
    let place = |wanted: &str| members.iter().position(|(path, _)| *path == wanted);
    let parent = |path: &str| above(path, limited).max_by_key(|path| path.len()).and_then(place);
    Target {
        path: path.to_owned(),
        family: members.iter().map(|(path, reading)| (reading.id, parent(path))).collect(),
        at: place(path).unwrap_or(0),
    }
}

/// The cgroups with a quota above one.
fn above<'l>(path: &'l str, limited: &'l [(&str, &CgroupReading)]) -> impl Iterator<Item = &'l str> {
    let paths = limited.iter().map(|(path, _)| *path);
    paths.filter(move |other| *other != path && is_at_or_below(path, other))
}
