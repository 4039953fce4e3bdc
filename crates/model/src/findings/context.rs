//! What several rules look at, made once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cgscope_layout::Cause;

use super::Host;
use crate::{
    Blame, CgroupReading, Group, Interval, Tree, sum,
    tree::{Node, Sums},
};

/// The busy threads among some tasks, without kernel threads that are bound to their CPUs: no program started these, and nobody can
/// spread them.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    pub threads: u64,
    /// Their processes.
    pub processes: BTreeSet<u32>,
    /// The CPUs they are on or were on last.
    pub cpus: BTreeSet<u32>,
    /// What they waited behind their own cgroup, ns.
    pub own_ns: u64,
}

/// An interval and what was derived from it. Cgroups are nodes of the tree.
pub(crate) struct Context<'a> {
    pub interval: &'a Interval,
    pub tree: &'a Tree,
    pub host: Host,
    /// Every task, also where its cgroup's path is not known.
    pub total: Sums,
    /// How long tasks were throttled because the quota of this node had run out, ns.
    pub held_ns: Vec<u64>,
}

impl<'a> Context<'a> {
    pub fn new(interval: &'a Interval, tree: &'a Tree, host: Host) -> Self {
        let total = Sums::default();
        let mut context = Self { interval, tree, host, total, held_ns: held(interval, tree) };
        context.total = context.groups().fold(total, |mut total, group| {
            total.add_sums(&group.into());
            total
        });
        context
    }

    /// Those that have all tasks in them, each once.
    pub fn groups(&self) -> impl Iterator<Item = &'a Group> {
        self.tree.nodes().first().map(|root| &root.group).into_iter().chain(&self.tree.unknown)
    }

    /// Every cgroup.
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

    /// A cgroup with all below it.
    pub fn with_below(&self, node: usize) -> Sums {
        Sums::from(&self.tree.nodes()[node].group)
    }

    /// The busy threads among some tasks of the interval.
    pub fn busy(&self, tasks: &[usize]) -> Busy {
        let mut busy = Busy::default();
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

/// How long the tasks of each cgroup were throttled, by its id. A cgroup that was removed and made again has two.
fn throttled_by_id(interval: &Interval, tree: &Tree) -> BTreeMap<u64, u64> {
    let throttled = (0..tree.nodes().len())
        .filter(|node| tree.nodes()[*node].own.by_cause.get(Cause::Throttled) != 0)
        .flat_map(|node| tree.tasks_of(node));
    let tasks = throttled.chain(tree.tasks_unknown()).map(|task| &interval.tasks[*task]);
    let tasks = tasks.map(|task| (task.reading.cgroup_id, &task.wait));
    let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, &exited.wait));
    let mut by_id: BTreeMap<u64, u64> = BTreeMap::new();
    for (id, wait) in tasks.chain(exited) {
        let ns = wait.by_cause.get(Cause::Throttled);
        if ns != 0 {
            sum::add(by_id.entry(id).or_default(), ns);
        }
    }
    by_id
}

/// How long tasks were throttled, by the node whose quota had run out. Where that was not recorded, as in
/// [`Interval::limited_by`], the tightest quota is taken.
fn held(interval: &Interval, tree: &Tree) -> Vec<u64> {
    let mut limits: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Limited) {
        limits.entry(pair.victim).or_default().push((pair.ns, pair.culprit));
    }
    let mut held = vec![0; tree.nodes().len()];
    for (id, mut rest_ns) in throttled_by_id(interval, tree) {
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
