//! Rules about tasks that wait behind other tasks, of other cgroups or of their own.

use std::cmp::Reverse;

use cgscope_layout::{Cause, history::KERNEL};

use super::{Context, Finding, MOST, host, idle_cpus, is_much, is_share, numa, quota};
use crate::{
    PairReading, TaskInterval,
    interval::{Realtime, mostly_realtime},
    pairs::Culprit,
    selection::{is_at_or_below, path_and_ancestors},
    sum,
    words::findings as words,
};

/// Neighbours are noisy if tasks waited for them for this share of their waiting and running time, percent, and for this total
/// time.
const NEIGHBOUR_PERCENT: u64 = 10;
const NEIGHBOUR_NS: u64 = 50_000_000;
/// A cgroup gets no finding if findings below it explain this share of its waiting, percent.
const EXPLAINED_PERCENT: u64 = 80;
/// Tasks of one cgroup contend if they waited for each other for this share of their waiting and running time, percent, and for
/// this total time.
const OWN_PERCENT: u64 = 25;
const OWN_NS: u64 = 10_000_000;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let mut findings = noisy_neighbours(context);
    findings.extend(own_contention(context));
    findings
}

/// Reports the lowest cgroups that have most of the waiting.
fn noisy_neighbours(context: &Context) -> Vec<Finding> {
    let mut noisy: Vec<(u64, usize)> = Vec::new();
    // For each cgroup, with all cgroups below it: the waiting that findings explain, ns.
    let mut explained_ns = vec![0; context.nodes().len()];
    // In this order, descendants come before their ancestors.
    for (node, cgroup) in context.nodes().rev() {
        let sums = context.with_below(node);
        let ns = sums.by_cause.get(Cause::OtherCgroup);
        let below_ns: u64 = explained_ns[node];
        let host_again = cgroup.parent.is_none() && !noisy.is_empty();
        if is_much(ns, NEIGHBOUR_NS, sums.active_ns(), NEIGHBOUR_PERCENT)
            && !host_again
            && !is_share(below_ns, ns, EXPLAINED_PERCENT)
        {
            // The finding of an ancestor includes the waits below it, so each wait is counted once.
            explained_ns[node] = below_ns.max(ns);
            noisy.push((ns, node));
        }
        if let Some(parent) = cgroup.parent {
            let ns = explained_ns[node];
            sum::add(&mut explained_ns[parent], ns);
        }
    }
    let noisy = worst(context, noisy).take(MOST);
    noisy.map(|(_, node)| words::noisy_neighbour(context, node, &neighbours_of(context, node))).collect()
}

fn worst(context: &Context, mut nodes: Vec<(u64, usize)>) -> impl Iterator<Item = (u64, usize)> {
    nodes.sort_by_key(|(ns, node)| (Reverse(*ns), context.path(*node)));
    nodes.into_iter()
}

/// The culprits in other cgroups, without kernel threads and without the victim's own cgroup.
fn neighbours_of(context: &Context, victim: usize) -> Vec<Culprit> {
    let is_neighbour = |pair: &PairReading| pair.culprit != KERNEL && pair.culprit != pair.victim;
    let pairs = context.tree.pairs_below(victim).filter(|pair| is_neighbour(&context.interval.pairs[*pair]));
    context.tree.culprits_among(context.interval, pairs)
}

/// Returns the policy of real-time tasks and the one that ran most, if real-time tasks ran most of a neighbour's time.
pub(crate) fn realtime_neighbour<'a>(context: &Context<'a>, neighbour: &Culprit) -> Option<Realtime<'a>> {
    let interval = context.interval;
    let is_it = |task: &&TaskInterval| match (&neighbour.task, &neighbour.path) {
        (Some((tid, _)), _) => task.reading.tid == *tid,
        (None, path) => path.is_some() && interval.cgroup_path(task.reading.cgroup_id) == path.as_ref(),
    };
    let ran = interval.tasks.iter().filter(is_it).map(|task| (task, task.totals.on_cpu_ns));
    mostly_realtime(ran)
}

/// Like [`realtime_neighbour`], for the tasks of a cgroup that waited behind other cgroups.
pub(crate) fn realtime_victim<'a>(context: &Context<'a>, node: usize) -> Option<Realtime<'a>> {
    let waited = context.tree.tasks_below(node).iter().map(|at| &context.interval.tasks[*at]);
    mostly_realtime(waited.map(|task| (task, task.wait.by_cause.get(Cause::OtherCgroup))))
}

/// The two cgroups directly below the lowest common ancestor, on the paths to `a` and `b`. Weights count only among siblings.
/// `None` if one cgroup is an ancestor of the other.
pub(crate) fn siblings<'p>(a: &'p str, b: &'p str) -> Option<(&'p str, &'p str)> {
    let ours = path_and_ancestors(a).take_while(|path| !is_at_or_below(b, path)).last()?;
    let theirs = path_and_ancestors(b).take_while(|path| !is_at_or_below(a, path)).last()?;
    Some((ours, theirs))
}

/// Judges each cgroup by the tasks directly in it. On an oversubscribed host, `cpu_oversubscription` replaces the finding
/// for `/`.
fn own_contention(context: &Context) -> Vec<Finding> {
    let oversubscribed = host::cpu_oversubscription(context).is_some();
    let crowded = context.nodes().filter_map(|(node, cgroup)| {
        let ns = cgroup.own.by_cause.get(Cause::OwnCgroup);
        let is_crowded = is_much(ns, OWN_NS, cgroup.own.active_ns(), OWN_PERCENT)
            && !(oversubscribed && cgroup.parent.is_none())
            && !quota::is_throttled(context, node);
        is_crowded.then_some((ns, node))
    });
    let mut crowded: Vec<_> = crowded.collect();
    let skew = (!crowded.is_empty()).then(|| numa::node_skew(context)).flatten();
    if let Some((_, full_node)) = skew {
        crowded.retain(|(ns, node)| !is_on(context, *node, full_node, *ns));
    }
    let cpus = idle_cpus::Cpus::new(context);
    let kept = if crowded.is_empty() { Vec::new() } else { idle_cpus::kept(context, &cpus) };
    let is_kept =
        |node, ns| kept.iter().any(|kept| kept.node == node && is_share(kept.own_ns, ns, EXPLAINED_PERCENT));
    crowded.retain(|(ns, node)| !is_kept(*node, *ns));
    worst(context, crowded).filter_map(|(ns, node)| crowd(context, node, ns)).take(MOST).collect()
}

/// True if most of the waiting was on a full node beside an idle node: `node_skew` reports this.
fn is_on(context: &Context, node: usize, full_node: u32, own_ns: u64) -> bool {
    let tasks = context.tree.tasks_of(node).iter().map(|at| &context.interval.tasks[*at]);
    let there = tasks.filter(|task| task.reading.node == Some(full_node));
    let there_ns = sum::total(there.map(|task| task.wait.by_cause.get(Cause::OwnCgroup)));
    is_share(there_ns, own_ns, EXPLAINED_PERCENT)
}

/// Reports more busy threads than CPUs, or fewer threads that are badly spread. `None` in two cases: most of the waiting was
/// that of other threads (many short threads may have outnumbered the CPUs), or each busy thread was last on a separate CPU.
fn crowd(context: &Context, node: usize, ns: u64) -> Option<Finding> {
    let own_cpus = context.limits(node).and_then(|limits| limits.cpus);
    let cpus = own_cpus.into_iter().chain(context.host.cpus).min()?;
    let busy = context.busy(context.tree.tasks_of(node));
    let are_they = is_share(busy.own_ns, ns, EXPLAINED_PERCENT);
    let is_crowded = busy.threads > u64::from(cpus) || are_they && (busy.cpus.len() as u64) < busy.threads;
    is_crowded.then(|| words::own_contention(context, node, cpus, &busy))
}
