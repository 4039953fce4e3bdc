//! The cgroups of an interval as a tree, each with what is known of it and of all below it: made once, looked at often.

mod blame;
mod limits;
mod shape;
mod sums;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use crate::{
    CgroupReading, Group, Interval,
    culprits::Culprit,
    nodes::{ByNode, add_by_node},
    selection::path_and_ancestors,
};
use shape::Places;
pub use sums::Sums;

/// The cgroups of an interval. What refers to something of the interval does so by its place in that interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// What is below a node follows it, so parents come before their children; siblings by name. First is the root, `/`,
    /// wherever a cgroup is known at all.
    nodes: Vec<Node>,
    /// The tasks of each node, by node; then those whose cgroup has no known path.
    tasks: Vec<usize>,
    /// The pairs by the node of their victim, and that node, for those whose victim's path is known.
    pairs: Vec<(usize, usize)>,
    places: Places,
    /// What is in cgroups whose path is not known; `None`: nothing.
    pub unknown: Option<Group>,
}

/// A cgroup that has tasks, limits, pairs of victim and culprit, or such a cgroup below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// As under the mount.
    pub path: Arc<str>,
    /// Its id; of a cgroup that was removed and made again, the last one. `None`: only cgroups below it are known.
    pub id: Option<u64>,
    /// How far below the root: 0 for `/`.
    pub depth: usize,
    /// The node it is in; `None`: it is the root.
    pub parent: Option<usize>,
    /// The nodes directly in it, by name.
    pub children: Vec<usize>,
    /// The first node after those below it.
    end: usize,
    /// Where its own tasks are in [`Tree::tasks`].
    tasks: Range<usize>,
    /// It with all below it, exited tasks included.
    pub group: Group,
    /// It or what is below it has, or had, a task. If not, it has limits or is named by others.
    pub has_tasks: bool,
    /// The tasks directly in it, exited ones included.
    pub own: Sums,
    /// Time on a CPU by NUMA node of the living tasks of it and all below it, ns: see
    /// [`TaskInterval::ran_by_node`](crate::TaskInterval::ran_by_node).
    pub ran: ByNode,
    /// Its own limits: a place in [`Interval::limits`].
    pub limits: Option<usize>,
    /// The tightest quota of it and its ancestors; `None`: none has one.
    pub effective: Option<Effective>,
    /// The node whose quota held back its tasks: the one that ran out most in this interval or, where none did, the one with the
    /// tightest quota.
    pub limited_by: Option<usize>,
    /// Who ran while its tasks, with all below it, waited, the worst first: the first [`NAMED`](crate::culprits::NAMED) of
    /// [`Interval::culprits_of`].
    pub culprits: Vec<Culprit>,
    /// Whose quotas had run out while its tasks, with all below it, were throttled, the worst first, and how long, ns summed
    /// over tasks; a node of `None` is a cgroup whose path is not known. See [`Interval::limits_of`].
    pub throttled_by: Vec<(Option<usize>, u64)>,
}

/// The tightest of the quotas that hold for a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effective {
    /// The node that has it: itself or an ancestor.
    pub node: usize,
    /// The quota in CPUs.
    pub cores: f64,
}

impl Node {
    /// The last component of its path; `/` for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.path)
    }
}

impl Tree {
    /// Of an interval.
    pub fn new(interval: &Interval) -> Self {
        let (nodes, places) = shape::shape(interval);
        let mut tree = Self { nodes, places, ..Self::default() };
        tree.add_tasks(interval);
        tree.add_limits(interval);
        tree.add_pairs(interval);
        tree
    }

    /// All nodes: parents before their children, siblings by name.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of a path.
    pub fn find(&self, path: &str) -> Option<usize> {
        let mut down: Vec<&str> = path_and_ancestors(path).collect();
        (down.pop()? == "/" && !self.nodes.is_empty()).then_some(())?;
        down.into_iter().rev().try_fold(0, |at, path| {
            let children = &self.nodes[at].children;
            let place = children.binary_search_by(|child| (*self.nodes[*child].path).cmp(path)).ok()?;
            Some(children[place])
        })
    }

    /// The node of a cgroup by its id.
    pub fn find_id(&self, interval: &Interval, id: u64) -> Option<usize> {
        self.places.node(interval, id)
    }

    /// A node and all below it.
    pub fn below(&self, node: usize) -> Range<usize> {
        node..self.nodes[node].end
    }

    /// The nodes above one, the nearest first.
    pub fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |at| self.nodes[*at].parent)
    }

    /// The tasks directly in a cgroup: places in [`Interval::tasks`], ascending.
    pub fn tasks_of(&self, node: usize) -> &[usize] {
        &self.tasks[self.nodes[node].tasks.clone()]
    }

    /// The tasks of a cgroup and all below it, by cgroup.
    pub fn tasks_below(&self, node: usize) -> &[usize] {
        let last = &self.nodes[self.nodes[node].end - 1];
        &self.tasks[self.nodes[node].tasks.start..last.tasks.end]
    }

    /// Who had whom wait, where the victim is this cgroup or below it: places in [`Interval::pairs`].
    pub fn pairs_below(&self, node: usize) -> impl Iterator<Item = usize> {
        let from = self.pairs.partition_point(|(victim, _)| *victim < node);
        let end = self.pairs.partition_point(|(victim, _)| *victim < self.nodes[node].end);
        self.pairs[from..end].iter().map(|(_, pair)| *pair)
    }

    /// The limits of a node.
    pub fn limits<'a>(&self, interval: &'a Interval, node: usize) -> Option<&'a CgroupReading> {
        self.nodes[node].limits.map(|at| &interval.limits[at])
    }

    /// Time on a CPU by NUMA node of all living tasks, ns.
    pub(crate) fn ran(&self, interval: &Interval) -> ByNode {
        let mut ran = self.nodes.first().map(|root| root.ran.clone()).unwrap_or_default();
        for task in self.tasks_unknown() {
            interval.tasks[*task].ran_on().for_each(|(on, ns)| add_by_node(&mut ran, on, ns));
        }
        ran
    }

    /// The tasks whose cgroup has no known path.
    pub(crate) fn tasks_unknown(&self) -> &[usize] {
        &self.tasks[self.nodes.last().map_or(0, |last| last.tasks.end)..]
    }

    /// The same as [`Self::nodes`].
    pub fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    /// What [`Interval::by_cgroup`] gives.
    pub fn into_groups(self) -> BTreeMap<Option<Arc<str>>, Group> {
        let known = self.nodes.into_iter().filter(|node| node.has_tasks);
        let known = known.map(|node| (Some(node.path), node.group));
        self.unknown.into_iter().map(|group| (None, group)).chain(known).collect()
    }
}
