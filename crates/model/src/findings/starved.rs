//! The rule about tasks that wait for very long and still wait. Their waits are in no other figure of the interval.

use std::cmp::Reverse;

use cgscope_layout::Cause;

use super::{Context, Finding, MOST, quota};
use crate::{Pending, TaskInterval, sum, words::findings as words};

/// A task is starved if it has waited for more than this time, and for more than this share of the interval, percent. Even on a
/// busy CPU, a scheduler lets each task run several times a second. A wait that takes a smaller part of a long interval mostly
/// ends soon.
const STARVED_NS: u64 = 1_000_000_000;
const STARVED_PERCENT: u64 = 50;

/// The starved tasks of one cgroup.
pub(crate) struct Starved<'a> {
    pub node: usize,
    /// The task that has waited longest.
    pub task: &'a TaskInterval,
    pub pending: &'a Pending,
    /// The cause of most of its wait, as far as known.
    pub cause: Cause,
    /// Not all of the wait has a known cause: the part that has, ns. It is the latest part, because cgscope started later than the wait.
    pub known_ns: Option<u64>,
    /// The task that ran most on its CPU, as far as known.
    pub runs: Option<&'a TaskInterval>,
    /// Number of starved tasks.
    pub tasks: u64,
    /// How long they waited in this interval, ns.
    pub ns: u64,
}

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let starved = context.nodes().filter_map(|(node, _)| starved(context, node));
    // A finding about the quota says more.
    let is_new =
        |starved: &Starved| starved.cause != Cause::Throttled || !quota::is_throttled(context, starved.node);
    let mut starved: Vec<_> = starved.filter(is_new).collect();
    starved.sort_by_key(|starved| (Reverse(starved.ns), starved.node));
    starved.iter().take(MOST).map(|starved| words::starved(context, starved)).collect()
}

fn starved<'a>(context: &Context<'a>, node: usize) -> Option<Starved<'a>> {
    let interval = context.interval;
    let least_ns =
        STARVED_NS.max((u128::from(interval.duration_ns) * u128::from(STARVED_PERCENT) / 100) as u64);
    let waits = |at: &usize| {
        let task = &interval.tasks[*at];
        task.reading.pending.as_deref().filter(|pending| pending.ns > least_ns).map(|pending| (task, pending))
    };
    let waits = || context.tree.tasks_of(node).iter().filter_map(waits);
    let (task, pending) = waits().max_by_key(|(_, pending)| pending.ns)?;
    let of = |cause: &Cause| pending.by_cause.get(*cause);
    let known = Cause::ALL.iter().filter(|cause| **cause != Cause::Unattributed && of(cause) != 0);
    let known_ns = pending.ns.saturating_sub(of(&Cause::Unattributed));
    let cause = known.copied().max_by_key(of).unwrap_or(Cause::Unattributed);
    let is_partly_known = of(&Cause::Unattributed) > of(&cause) && cause != Cause::Unattributed;
    let known_ns = is_partly_known.then_some(known_ns);
    let there = interval.tasks.iter().filter(|other| other.reading.cpu == task.reading.cpu);
    let runs = there.filter(|other| other.totals.on_cpu_ns != 0).max_by_key(|other| other.totals.on_cpu_ns);
    let ns = sum::total(waits().map(|(_, pending)| pending.ns.min(interval.duration_ns)));
    Some(Starved { node, task, pending, cause, known_ns, runs, tasks: waits().count() as u64, ns })
}
