//! The answer for one cgroup: what other limits would have done, or why that is not known.

use std::{cmp::Reverse, collections::BTreeSet};

use cgscope_model::{CgroupReading, Interval, path::is_at_or_below, selection::SelectionFilter};

use crate::{
    Check, Figures, Limit, Loop,
    history::{History, Runnable},
    parallel::parallel,
    simulator::{Correction, Simulator},
};

/// A demand counts as known only from below if more than this share of the periods was throttled.
const NEARLY_ALL: f64 = 0.9;
/// A row is unknown if its lower bound is below this share of the periods, and its upper bound above all but this share.
const FEW: f64 = 0.05;
/// A recording has all tasks of a cgroup if their run time differs by at most this share from what the kernel counted.
const COMPLETE: f64 = 0.1;
/// The least length of a recording, in periods.
const LEAST_PERIODS: u64 = 20;

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
    /// The path of the cgroup.
    pub path: String,
    /// The ids of the cgroups of the tree with the places of their parents; parents come first.
    pub family: Vec<(u64, Option<usize>)>,
    /// Its own place in `family`.
    pub at: usize,
}

/// What another limit would have done.
#[derive(Clone, Debug)]
pub struct Row {
    /// The limit.
    pub limit: Limit,
    /// What it would have done.
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
#[derive(Clone, Debug)]
pub struct Answer {
    /// The path of the cgroup.
    pub path: String,
    /// The limit in force.
    pub limit: Limit,
    /// The kernel's counters over the recording.
    pub counted: CgroupReading,
    /// Length of the recording, ns.
    pub span_ns: u64,
    /// CPUs that the cgroup used on average.
    pub used: f64,
    /// The simulation of the limit in force beside the kernel's own figures.
    pub check: Option<Check>,
    /// The table, ascending by quota.
    pub rows: Vec<Row>,
    /// The loops that were simulated.
    pub loops: Vec<Loop>,
    /// The least quota that meets the target.
    pub least: Option<Row>,
    /// The least burst that meets the target with the quota in force.
    pub burst: Option<Row>,
    /// Tasks that could run at once for a whole slot, at least; `None`: nobody could.
    pub at_once: Option<u32>,
    /// The most tasks that could run at once for a whole slot.
    pub most_at_once: u32,
    /// What fewer threads would do under the limit in force.
    pub fewer: Option<Fewer>,
    /// Several tasks could run at once, and are no busy loops.
    pub do_tasks_sleep: bool,
    /// Why the figures may be wide.
    pub cautions: Vec<Caution>,
    /// Its tasks sleep, and waited for CPUs for most of the time in which they could run and were not throttled: this share of it. When
    /// their work arrived is not known: each may have slept until another was done.
    pub are_arrivals_unknown: Option<f64>,
    /// Nearly all periods were throttled: what the cgroup would use is known only from below.
    pub is_least_demand: bool,
    /// Why there is no advice.
    pub refusal: Option<Refusal>,
}

/// The limit in force with as many threads as it is enough for.
#[derive(Clone, Debug)]
pub struct Fewer {
    /// Maximum number of tasks that run at once.
    pub most: u32,
    /// What that would have done.
    pub row: Row,
}

/// Why bounds may be far apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Caution {
    /// While some tasks were throttled, others slept that run at other times: they may wait for a lock or a result. The part of the demand
    /// that was presumed for them, 0 to 1.
    SleptWhileThrottled(f64),
    /// Nearly all periods were throttled, and tasks slept nevertheless: maybe only because they waited for throttled ones. There is no
    /// advice about a quota.
    MayHaveSlept,
    /// Tasks waited for CPUs: the part of the time in which they could run and were not throttled, 0 to 1.
    WaitedForCpus(f64),
}

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The recording is too short. The number of its periods.
    Short(u64),
    /// The limit was changed during the recording.
    Changed,
    /// The recorded run time of its tasks, and the one that the kernel counted, ns.
    Incomplete(u64, u64),
    /// Waiting for CPUs hides when work arrives: see [`Answer::are_arrivals_unknown`].
    Contended(f64),
    /// The simulation of the limit in force does not fit.
    Unfit,
    /// Too many cgroups share its limits to be simulated for so long. Their number.
    TooMany(usize),
}

/// The ids of the cgroups whose demand is needed.
pub fn ids(targets: &[Target]) -> BTreeSet<u64> {
    targets.iter().flat_map(|target| target.family.iter().map(|(id, _)| *id)).collect()
}

/// Maximum number of cgroups that are simulated at the same time: by the sizes of its vectors, each takes 30 to 57 MB for an hour.
const MOST_TOGETHER: usize = 16;

/// The answers of those targets that are in the history, in their order.
pub fn answers(history: &History, targets: &[Target], question: &Question) -> Vec<Answer> {
    let cgroups: usize = targets.iter().map(|target| target.family.len()).sum();
    if cgroups > MOST_TOGETHER {
        return targets.iter().filter_map(|target| answer(history, target, question)).collect();
    }
    // The largest families first: they take longest.
    let mut order: Vec<(usize, &Target)> = targets.iter().enumerate().collect();
    order.sort_by_key(|(_, target)| Reverse(target.family.len()));
    let mut answers = parallel(&order, |(at, target)| (*at, answer(history, target, question)));
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().filter_map(|(_, answer)| answer).collect()
}

/// Answers for one cgroup; `None` if it had no quota.
pub fn answer(history: &History, target: &Target, question: &Question) -> Option<Answer> {
    let id = target.family[target.at].0;
    let cgroup = history.cgroups.get(&id)?;
    let (limit, counted, span_ns) = (cgroup.limit()?, cgroup.counted(), history.span_ns());
    let ran_ns: u64 = below(target).filter_map(|id| Some(history.cgroups.get(&id)?.ran_ns(span_ns))).sum();
    let usage_ns = counted.usage_ns.unwrap_or(ran_ns);
    let mut answer = Answer {
        path: target.path.clone(),
        limit,
        span_ns,
        used: usage_ns as f64 / span_ns.max(1) as f64,
        check: None,
        rows: Vec::new(),
        loops: Vec::new(),
        least: None,
        burst: None,
        at_once: None,
        most_at_once: 0,
        fewer: None,
        do_tasks_sleep: false,
        cautions: Vec::new(),
        are_arrivals_unknown: None,
        is_least_demand: false,
        refusal: None,
        counted,
    };
    let recorded_share = counted_share(&answer.counted);
    answer.is_least_demand = recorded_share > NEARLY_ALL;
    observe(&mut answer, history, target);
    answer.refusal = unsuitable(&answer, history, target, ran_ns, usage_ns);
    if answer.refusal.is_some() {
        return Some(answer);
    }
    let mut simulator = Simulator::new(history, target, question, limit, answer.may_sleep())?;
    let recorded_ns_per_s = answer.counted.throttled_ns.unwrap_or(0) as f64 / span_ns.max(1) as f64 * 1e9;
    let check = simulator.check(recorded_share, recorded_ns_per_s, answer.may_sleep());
    answer.check = check;
    answer.loops = simulator.loops().to_vec();
    simulator.correction = Correction { check, do_tasks_sleep: answer.do_tasks_sleep };
    if check.is_some_and(|check| check.agrees()) {
        simulator.fill(&mut answer);
        fill(&mut answer, &simulator);
    } else {
        answer.refusal = Some(Refusal::Unfit);
    }
    Some(answer)
}

impl Answer {
    /// What would have been wanted under a higher quota is not known.
    pub fn is_demand_unknown(&self) -> bool {
        self.cautions.contains(&Caution::MayHaveSlept)
    }

    /// Tasks may have slept only because others of them were throttled.
    fn may_sleep(&self) -> bool {
        self.is_least_demand && self.at_once.is_some_and(|tasks| tasks > 1)
    }
}

/// The share of periods that the kernel counted as throttled.
fn counted_share(counted: &CgroupReading) -> f64 {
    let (throttled, periods) = (counted.nr_throttled.unwrap_or(0), counted.nr_periods.unwrap_or(0));
    throttled as f64 / periods.max(1) as f64
}

/// The ids of a cgroup and of those below it.
fn below(target: &Target) -> impl Iterator<Item = u64> + '_ {
    let is_in = |mut at: usize| loop {
        if at == target.at {
            return true;
        }
        match target.family[at].1 {
            Some(parent) => at = parent,
            None => return false,
        }
    };
    (0..target.family.len()).filter(move |at| is_in(*at)).map(|at| target.family[at].0)
}

/// Why there will be no advice, whatever a simulation says.
fn unsuitable(
    answer: &Answer,
    history: &History,
    target: &Target,
    ran_ns: u64,
    usage_ns: u64,
) -> Option<Refusal> {
    let periods = answer.counted.nr_periods.unwrap_or(0);
    let mut family = target.family.iter().filter_map(|(id, _)| history.cgroups.get(id));
    if periods < LEAST_PERIODS {
        return Some(Refusal::Short(periods));
    }
    if !history.is_bounded(&target.family) {
        return Some(Refusal::TooMany(target.family.len()));
    }
    if family.any(|cgroup| cgroup.has_changed) {
        return Some(Refusal::Changed);
    }
    let is_complete = ran_ns.abs_diff(usage_ns) as f64 <= usage_ns as f64 * COMPLETE;
    if !is_complete {
        return Some(Refusal::Incomplete(ran_ns, usage_ns));
    }
    answer.are_arrivals_unknown.map(Refusal::Contended)
}

/// Number of bursts that are tried: equal parts of the quota, which is the most that the kernel allows.
const BURSTS: u64 = 10;
/// The least share that is worth a caution.
const NOTABLE: f64 = 0.1;
/// From this share of the time in which tasks could run, in which they waited for CPUs, nobody knows when their work arrives.
const CONTENDED: f64 = 0.5;
/// This part of the slots in which a task could run had no more tasks than are said to run at once.
const USUAL: f64 = 0.95;

/// What the recording shows, whether there is advice or not.
pub fn observe(answer: &mut Answer, history: &History, target: &Target) {
    let runnable = history.runnable(below(target));
    answer.at_once = at_once(&runnable);
    let most_ns = runnable.slots_ns.iter().max().copied().unwrap_or(0);
    answer.most_at_once = most_ns.div_ceil(runnable.slot_ns).min(u32::MAX.into()) as u32;
    answer.cautions = cautions(&runnable);
    let is_presumed = share(runnable.presumed_ns, runnable.ran_ns) >= NOTABLE;
    let waited = waited(&runnable);
    // A busy loop always has work.
    answer.are_arrivals_unknown = (waited >= CONTENDED && !is_presumed).then_some(waited);
    answer.do_tasks_sleep = answer.at_once.is_some_and(|tasks| tasks > 1) && !is_presumed;
    if answer.may_sleep() && answer.do_tasks_sleep {
        answer.cautions.push(Caution::MayHaveSlept);
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

pub(crate) fn fill(answer: &mut Answer, simulator: &Simulator<'_>) {
    let is_throttled = crate::answer::counted_share(&answer.counted) > simulator.question.target;
    if answer.is_demand_unknown() {
        answer.least = None;
    } else if is_throttled {
        answer.burst = burst(simulator);
        answer.fewer = answer.at_once.and_then(|at_once| fewer(simulator, answer.limit, at_once));
    }
}

/// How many tasks could run at once in most slots; `None`: nobody could.
pub(crate) fn at_once(runnable: &Runnable) -> Option<u32> {
    let mut tasks = runnable.slots_ns.iter().copied().filter(|ns| *ns != 0).collect::<Vec<_>>();
    tasks.sort_unstable();
    let at = ((tasks.len() as f64 * USUAL) as usize).min(tasks.len().saturating_sub(1));
    let ns = *tasks.get(at)?;
    Some((ns.saturating_add(runnable.slot_ns / 2) / runnable.slot_ns).clamp(1, u32::MAX.into()) as u32)
}

/// What makes bounds wide.
pub(crate) fn cautions(runnable: &Runnable) -> Vec<Caution> {
    let all_ns: u64 = runnable.slots_ns.iter().sum();
    let slept = share(runnable.slept_ns, all_ns + runnable.slept_ns);
    let waited = waited(runnable);
    let slept = (slept >= NOTABLE).then_some(Caution::SleptWhileThrottled(slept));
    slept.into_iter().chain((waited >= NOTABLE).then_some(Caution::WaitedForCpus(waited))).collect()
}

/// The share of the time in which tasks could run and were not throttled, in which they waited for CPUs.
fn waited(runnable: &Runnable) -> f64 {
    share(runnable.waited_ns, runnable.waited_ns + runnable.ran_ns)
}

/// The least burst that meets the target with the quota in force.
fn burst(simulator: &Simulator<'_>) -> Option<Row> {
    let with = |parts: u64| Limit { burst_ns: simulator.limit.quota_ns * parts / BURSTS, ..simulator.limit };
    let enough = |parts: u64| {
        let figures = simulator.figures(with(parts))?;
        (figures.throttled_share.high <= simulator.question.target).then_some(figures)
    };
    let Question { burst_ns: None, period_ns: None, .. } = simulator.question else { return None };
    let first = simulator.limit.burst_ns * BURSTS / simulator.limit.quota_ns + 1;
    if first > BURSTS {
        return None;
    }
    let (mut found, mut low, mut high) = (enough(BURSTS)?, first, BURSTS);
    while low < high {
        let middle = low.midpoint(high);
        match enough(middle) {
            Some(figures) => (found, high) = (figures, middle),
            None => low = middle + 1,
        }
    }
    Some(Row { limit: with(high), figures: found })
}

/// What happens with as many threads as the quota is enough for.
fn fewer(simulator: &Simulator<'_>, limit: Limit, at_once: u32) -> Option<Fewer> {
    let most = (limit.cpus() + 0.01).max(1.0) as u32;
    if simulator.question.threads.is_some() || at_once <= most {
        return None;
    }
    let figures = simulator.with_threads(most).figures(limit)?;
    Some(Fewer { most, row: Row { limit, figures } })
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
