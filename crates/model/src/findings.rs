//! What is wrong in an interval, with its figures, and what to do about it: judged by a pure function.
//!
//! A rule has thresholds and a predicate in the file of its kind below `findings/`, and a name and words in `words/findings.rs`.
//! Only completed waits count, as the cause and culprits of the others are not yet known. A rule without data has no findings.

mod contention;
mod host;
mod numa;
mod quota;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cgscope_layout::Cause;

use serde::Serialize;

pub use crate::words::{QUOTA_FILE, findings::Rule};
use crate::{
    Blame, CgroupReading, Group, Interval, Tree, sum,
    tree::{Node, Sums},
};
pub use contention::REALTIME_PERCENT;
pub(crate) use contention::{realtime_neighbour, realtime_victim, siblings};
pub(crate) use numa::{FarMemory, Hold, Skew};
pub use quota::BELOW_LIMIT_PERCENT;
pub(crate) use quota::Throttled;

/// A thread is busy if it ran or waited for this share of the interval, percent. Idle threads do not compete for a quota.
pub const BUSY_THREAD_PERCENT: u64 = 1;
/// Most findings of an interval: those that cost most.
pub const MOST: usize = 12;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its rule.
    pub rule: Rule,
    /// Path of its cgroup, as under the mount; `None`: all that was measured.
    pub cgroup: Option<Arc<str>>,
    /// What is wrong, with the figures: one sentence, without a full stop.
    pub says: String,
    /// What to do: one sentence, without a full stop.
    pub advice: String,
    /// The waiting that it cost, ns summed over tasks. Two findings may share it.
    pub lost_ns: u64,
}

/// The facts about a host that rules need besides the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
    /// True if no selection left out tasks.
    pub whole: bool,
}

/// What is wrong in `interval`, at most [`MOST`]: the most costly first, and last what only limits the other figures.
pub fn findings(interval: &Interval, host: &Host) -> Vec<Finding> {
    findings_in(interval, &Tree::new(interval), host)
}

/// The same with the tree of the interval.
pub fn findings_in(interval: &Interval, tree: &Tree, host: &Host) -> Vec<Finding> {
    if interval.duration_ns == 0 {
        return Vec::new();
    }
    let context = Context::new(interval, tree, *host);
    let kinds = [quota::findings, contention::findings, host::findings, numa::findings];
    let mut findings: Vec<Finding> = kinds.iter().flat_map(|kind| kind(&context)).collect();
    findings.sort_by(|a, b| order(a).cmp(&order(b)));
    findings.truncate(MOST);
    findings
}

fn order(finding: &Finding) -> (bool, Reverse<u64>, Option<&str>, Rule) {
    let Finding { rule, cgroup, lost_ns, .. } = finding;
    (*rule == Rule::Unattributed, Reverse(*lost_ns), cgroup.as_deref(), *rule)
}

/// True if `part` is at least this share of `whole`, percent; false if `whole` is 0.
pub(crate) fn is_share(part: u64, whole: u64, percent: u64) -> bool {
    whole != 0 && u128::from(part) * 100 >= u128::from(whole) * u128::from(percent)
}

fn is_much(ns: u64, least_ns: u64, whole_ns: u64, percent: u64) -> bool {
    ns >= least_ns && is_share(ns, whole_ns, percent)
}

/// The busy threads among some tasks, without kernel threads that are bound to their CPUs: nobody can spread those.
#[derive(Debug, Default)]
pub(crate) struct BusyThreads {
    pub threads: u64,
    /// Their processes.
    pub processes: BTreeSet<u32>,
    /// The CPUs they are on or were on last.
    pub cpus: BTreeSet<u32>,
    /// What they waited behind their own cgroup, ns.
    pub own_ns: u64,
}

/// An interval with its derived sums. Cgroups are nodes of the tree.
pub(crate) struct Context<'a> {
    pub interval: &'a Interval,
    pub tree: &'a Tree,
    pub host: Host,
    /// Every task, also where its cgroup's path is not known.
    pub total: Sums,
    /// How long the quota of each node throttled tasks, ns.
    pub held_ns: Vec<u64>,
}

impl<'a> Context<'a> {
    pub fn new(interval: &'a Interval, tree: &'a Tree, host: Host) -> Self {
        let held_ns = held(interval, tree);
        let mut context = Self { interval, tree, host, total: Sums::default(), held_ns };
        for group in context.groups() {
            context.total.add_sums(&group.into());
        }
        context
    }

    /// The groups that together have each task once.
    pub fn groups(&self) -> impl Iterator<Item = &'a Group> + use<'a> {
        self.tree.nodes().first().map(|root| &root.group).into_iter().chain(&self.tree.unknown)
    }

    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (usize, &'a Node)> + ExactSizeIterator {
        self.tree.nodes().iter().enumerate()
    }

    pub fn path(&self, node: usize) -> &'a Arc<str> {
        &self.tree.nodes()[node].path
    }

    /// The limits of a cgroup itself.
    pub fn limits(&self, node: usize) -> Option<&'a CgroupReading> {
        self.tree.limits(self.interval, node)
    }

    /// The sums of a cgroup with all below it.
    pub fn with_below(&self, node: usize) -> Sums {
        Sums::from(&self.tree.nodes()[node].group)
    }

    pub fn busy(&self, tasks: &[usize]) -> BusyThreads {
        let mut busy = BusyThreads::default();
        let tasks = tasks.iter().map(|task| &self.interval.tasks[*task]);
        for task in tasks.filter(|task| task.is_busy(self.interval.duration_ns) && !task.is_bound()) {
            busy.threads += 1;
            busy.processes.insert(task.reading.tgid);
            busy.cpus.insert(task.reading.cpu);
            sum::add(&mut busy.own_ns, task.wait.by_cause.get(Cause::OwnCgroup));
        }
        busy
    }
}

/// How long each node's quota throttled tasks. Where that was not recorded, the tightest quota counts, as for
/// [`Node::limited_by`].
fn held(interval: &Interval, tree: &Tree) -> Vec<u64> {
    // By id: a cgroup that was removed and made again has two.
    let living = interval.tasks.iter().map(|task| (task.reading.cgroup_id, &task.wait));
    let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, &exited.wait));
    let waits = living.chain(exited).map(|(id, wait)| (id, wait.by_cause.get(Cause::Throttled)));
    let throttled_ns = sum::tally(waits.filter(|(_, ns)| *ns != 0));
    let mut limits: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Limited) {
        limits.entry(pair.victim).or_default().push((pair.ns, pair.culprit));
    }
    let mut held = vec![0; tree.nodes().len()];
    for (id, mut rest_ns) in throttled_ns {
        let mut hold = |node: Option<usize>, ns: u64| {
            if let Some(node) = node {
                sum::add(&mut held[node], ns);
            }
        };
        let Some(limits) = limits.get_mut(&id) else {
            let effective = tree.find_id(interval, id).and_then(|node| tree.nodes()[node].effective);
            hold(effective.map(|limit| limit.node), rest_ns);
            continue;
        };
        limits.sort_unstable_by(|a, b| b.cmp(a));
        for (ns, limit) in limits {
            // The pairs are of all tasks of the cgroup; a selection by name may have left only some of these.
            let ns = (*ns).min(rest_ns);
            rest_ns -= ns;
            hold(tree.find_id(interval, *limit), ns);
        }
    }
    held
}

/// The key with the largest sum.
fn most<K: Ord>(parts: impl Iterator<Item = (K, u64)>) -> Option<(K, u64)> {
    sum::tally(parts).into_iter().max_by_key(|(_, ns)| *ns)
}
