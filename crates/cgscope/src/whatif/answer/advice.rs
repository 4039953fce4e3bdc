//! What would do besides another quota: a burst, or fewer threads; and why bounds may be far apart.

use cgscope_whatif::Limit;

use super::{Answer, Caution, Fewer, Question, Row, Target, below};
use crate::whatif::{
    history::{History, Runnable},
    simulator::Simulator,
};

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

pub(super) fn fill(answer: &mut Answer, simulator: &Simulator<'_>) {
    let is_throttled = super::counted_share(&answer.counted) > simulator.question.target;
    if answer.is_demand_unknown() {
        answer.least = None;
    } else if is_throttled {
        answer.burst = burst(simulator);
        answer.fewer = answer.at_once.and_then(|at_once| fewer(simulator, answer.limit, at_once));
    }
}

pub fn at_once(runnable: &Runnable) -> Option<u32> {
    let mut tasks = runnable.slots_ns.iter().copied().filter(|ns| *ns != 0).collect::<Vec<_>>();
    tasks.sort_unstable();
    let at = ((tasks.len() as f64 * USUAL) as usize).min(tasks.len().saturating_sub(1));
    let ns = *tasks.get(at)?;
    Some((ns.saturating_add(runnable.slot_ns / 2) / runnable.slot_ns).clamp(1, u32::MAX.into()) as u32)
}

pub fn cautions(runnable: &Runnable) -> Vec<Caution> {
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
