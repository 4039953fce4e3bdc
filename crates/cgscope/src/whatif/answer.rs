//! The answer for one cgroup: what other limits would have done, or why that is not known.

pub mod advice;

use cgscope_model::CgroupReading;
use cgscope_whatif::{Check, Figures, Limit, Loop};

use super::{correction::Correction, history::History, simulator::Simulator};

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
    pub threads: Option<u32>,
    pub burst_ns: Option<u64>,
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

#[derive(Clone, Debug)]
pub struct Answer {
    pub path: String,
    /// The limit in force, and the kernel's counters over the recording.
    pub limit: Limit,
    pub counted: CgroupReading,
    pub span_ns: u64,
    /// CPUs that the cgroup used on average.
    pub used: f64,
    /// The simulation of the limit in force beside the kernel's own figures.
    pub check: Option<Check>,
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
    advice::observe(&mut answer, history, target);
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
        advice::fill(&mut answer, &simulator);
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
