//! The cgroups of an interval as a tree: each node has its own figures and those of all cgroups below it. Built once, read
//! often.

mod blame;
mod fair;
mod limits;
mod shape;
mod sums;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use crate::{
    CgroupReading, Group, Interval,
    pairs::Culprit,
    placement::{ByNode, add_by_node},
    selection::path_and_ancestors,
};
use shape::Places;
pub use sums::Sums;

/// The cgroups of an interval. References into the interval are indexes into its lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// Each node is followed by all nodes below it, so parents come before their children; siblings by name. The first node
    /// is the root, `/`, if any cgroup is known.
    nodes: Vec<Node>,
    /// The tasks of each node, in the order of the nodes; then the tasks whose cgroup has no known path.
    tasks: Vec<usize>,
    /// The idle tasks in the same order.
    idle: Vec<usize>,
    /// (Node of the victim, index of the pair), ascending; only pairs whose victim has a known path.
    pairs: Vec<(usize, usize)>,
    places: Places,
    /// For each of [`Interval::pairs`]: the part of its waiting beyond the culprit's share, ns. See [`Culprit::beyond_ns`].
    beyond: Vec<Option<u64>>,
    /// Tasks in cgroups without a known path; `None`: there are none.
    pub unknown: Option<Group>,
}

/// A cgroup with tasks, limits, or pairs of victim and culprit, either in itself or in a cgroup below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Path, relative to the mount.
    pub path: Arc<str>,
    /// The cgroup's id; if the cgroup was removed and created again, the last id. `None`: only cgroups below it are known.
    pub id: Option<u64>,
    /// Number of levels below the root: 0 for `/`.
    pub depth: usize,
    /// The parent node; `None` for the root.
    pub parent: Option<usize>,
    /// The child nodes, by name.
    pub children: Vec<usize>,
    /// The index after the last node below this one.
    end: usize,
    /// The range of its own tasks in [`Tree::tasks`].
    tasks: Range<usize>,
    /// The range of its own idle tasks in [`Tree::idle`].
    idle: Range<usize>,
    /// The sum over this cgroup and all below it, exited tasks included.
    pub group: Group,
    /// True if this cgroup or one below it has, or had, a task. Other nodes have limits, or other cgroups' pairs name them.
    pub has_tasks: bool,
    /// The tasks directly in this cgroup, including exited ones.
    pub own: Sums,
    /// Time on a CPU by NUMA node of the living tasks in this cgroup and all below it, ns: see
    /// [`TaskInterval::ran_by_node`](crate::TaskInterval::ran_by_node).
    pub ran: ByNode,
    /// Its own limits, as an index into [`Interval::limits`].
    pub limits: Option<usize>,
    /// The tightest quota of this cgroup and its ancestors; `None`: none has a quota.
    pub effective: Option<Effective>,
    /// The node whose quota limited the tasks: the quota that ran out for the longest time in this interval. If no quota ran
    /// out: the tightest quota.
    pub limited_by: Option<usize>,
    /// The culprits that ran while the tasks here and below waited, the worst first: the first
    /// [`NAMED`](crate::pairs::NAMED) of [`Interval::culprits_of`].
    pub culprits: Vec<Culprit>,
    /// Time that tasks here and below waited while a task here or below ran, ns.
    pub(crate) behind_itself_ns: u64,
    /// The cgroups whose quota had run out while the tasks here and below were throttled, the worst first.
    ///
    /// Each with the time, ns summed over tasks. A node of `None` is a cgroup without a known path. See
    /// [`Interval::limits_of`].
    pub throttled_by: Vec<(Option<usize>, u64)>,
}

/// The tightest of the quotas that apply to a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effective {
    /// The node with the quota: the node itself or an ancestor.
    pub node: usize,
    /// The quota in CPUs.
    pub cores: f64,
}

impl Node {
    /// The last component of the path; `/` for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.path)
    }

    /// True if tasks are directly in this cgroup.
    pub fn has_own_tasks(&self) -> bool {
        !self.tasks.is_empty() || !self.idle.is_empty()
    }
}

impl Tree {
    /// Builds the tree of an interval.
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

    /// A node and all nodes below it.
    pub fn below(&self, node: usize) -> Range<usize> {
        node..self.nodes[node].end
    }

    /// The ancestors of a node, the nearest first.
    pub fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |at| self.nodes[*at].parent)
    }

    /// The tasks directly in a cgroup, as ascending indexes into [`Interval::tasks`].
    pub fn tasks_of(&self, node: usize) -> &[usize] {
        &self.tasks[self.nodes[node].tasks.clone()]
    }

    /// The idle tasks directly in a cgroup, as ascending indexes into [`Interval::idle`].
    pub fn idle_of(&self, node: usize) -> &[usize] {
        &self.idle[self.nodes[node].idle.clone()]
    }

    /// The idle tasks of a cgroup and all below it, by cgroup.
    pub fn idle_below(&self, node: usize) -> &[usize] {
        let last = &self.nodes[self.nodes[node].end - 1];
        &self.idle[self.nodes[node].idle.start..last.idle.end]
    }

    /// The tasks of a cgroup and all below it, by cgroup.
    pub fn tasks_below(&self, node: usize) -> &[usize] {
        let last = &self.nodes[self.nodes[node].end - 1];
        &self.tasks[self.nodes[node].tasks.start..last.tasks.end]
    }

    /// The pairs of victim and culprit whose victim is this cgroup or one below it, as indexes into [`Interval::pairs`].
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

    /// The idle tasks whose cgroup has no known path.
    pub(crate) fn idle_unknown(&self) -> &[usize] {
        &self.idle[self.nodes.last().map_or(0, |last| last.idle.end)..]
    }

    /// All tasks, as [`Interval::total`], but without another sum if the cgroups of all tasks are known.
    pub fn total(&self, interval: &Interval) -> Group {
        match (self.nodes.first(), &self.unknown) {
            (Some(root), None) => root.group.clone(),
            _ => interval.total(),
        }
    }

    /// All nodes, as [`Self::nodes`].
    pub fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    /// The groups that [`Interval::by_cgroup`] returns.
    pub fn into_groups(self) -> BTreeMap<Option<Arc<str>>, Group> {
        let known = self.nodes.into_iter().filter(|node| node.has_tasks);
        let known = known.map(|node| (Some(node.path), node.group));
        self.unknown.into_iter().map(|group| (None, group)).chain(known).collect()
    }
}
