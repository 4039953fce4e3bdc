//! The cgroups of an interval as a tree. Each node has its own figures and those of its descendants. Built once, read often.

mod blame;
mod fair;

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use itertools::Itertools;

use crate::{
    Blame, ByCause, CgroupReading, Group, Interval, Totals, Wait,
    pairs::Culprit,
    path::path_and_ancestors,
    placement::{ByNode, add_by_node},
    sum,
    table::interval::GroupSum,
};

/// The cgroups of an interval. They refer to the interval's lists by index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// The nodes, each followed by its descendants, with siblings by name. The first node is the root, `/`, if a cgroup is known.
    nodes: Vec<Node>,
    /// The tasks of each node, in the order of the nodes, then the tasks whose cgroup has no known path.
    tasks: Vec<usize>,
    /// The idle tasks in the same order.
    idle: Vec<usize>,
    /// (Node of the victim, index of the pair), ascending. Only pairs whose victim has a known path.
    pairs: Vec<(usize, usize)>,
    /// The node of each cgroup in [`Interval::cgroups`].
    places: Vec<Option<usize>>,
    /// For each of [`Interval::pairs`]: the part of the wait that exceeds the culprit's weight, ns. See [`Culprit::beyond_ns`].
    beyond: Vec<Option<u64>>,
    /// Tasks in cgroups without a known path; `None`: no such task.
    pub unknown: Option<Group>,
}

/// A cgroup that has tasks, limits, or pairs of victim and culprit, in itself or in a descendant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub path: Arc<str>,
    /// The cgroup's id. If the cgroup was removed and created again: the last id. `None`: only descendants are known.
    pub id: Option<u64>,
    /// Number of levels below the root: 0 for `/`.
    pub depth: usize,
    pub parent: Option<usize>,
    /// The children, by name.
    pub children: Vec<usize>,
    /// The index after the last descendant.
    end: usize,
    /// The range of the node's own tasks in [`Tree::tasks`].
    tasks: Range<usize>,
    /// The range of the node's own idle tasks in [`Tree::idle`].
    idle: Range<usize>,
    /// The sum over this cgroup and its descendants, including exited tasks.
    pub group: Group,
    /// True if this cgroup or a descendant has, or had, a task. Other nodes have limits, or other cgroups' pairs name them.
    pub has_tasks: bool,
    /// The tasks directly in this cgroup, including exited tasks.
    pub own: Sums,
    /// Time on a CPU by NUMA node of the living tasks in this cgroup and its descendants, ns: see
    /// [`TaskInterval::ran_by_node`](crate::TaskInterval::ran_by_node).
    pub ran: ByNode,
    /// The node's own limits, as an index into [`Interval::limits`].
    pub limits: Option<usize>,
    /// The tightest quota of this cgroup and its ancestors; `None`: no quota.
    pub effective: Option<Effective>,
    /// The node whose quota throttled the tasks of this cgroup and its descendants for longest in this interval. If no quota did:
    /// the node with the tightest quota.
    pub limited_by: Option<usize>,
    /// The culprits that ran while tasks of this cgroup and its descendants waited, the worst first: the first
    /// [`NAMED`](crate::pairs::NAMED) of [`Interval::culprits_of`].
    pub culprits: Vec<Culprit>,
    /// Time that tasks of this cgroup and its descendants waited while another of these tasks ran, ns.
    pub(crate) behind_itself_ns: u64,
    /// The nodes whose quotas throttled tasks of this cgroup and its descendants, the worst first. Each with the throttled time,
    /// ns, summed over tasks. `None` is a cgroup without a known path. See [`Interval::limits_of`].
    pub throttled_by: Vec<(Option<usize>, u64)>,
}

/// The tightest quota that applies to a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effective {
    /// The node with the quota: the node itself or an ancestor.
    pub node: usize,
    pub cores: f64,
}

impl Node {
    pub fn has_own_tasks(&self) -> bool {
        !self.tasks.is_empty() || !self.idle.is_empty()
    }
}

impl Tree {
    pub fn new(interval: &Interval) -> Self {
        let (nodes, places) = shape(interval);
        let mut tree = Self { nodes, places, ..Self::default() };
        tree.add_tasks(interval);
        tree.add_limits(interval);
        tree.add_pairs(interval);
        tree
    }

    /// Returns all nodes: parents before their children, siblings by name.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn find(&self, path: &str) -> Option<usize> {
        let mut down: Vec<&str> = path_and_ancestors(path).collect();
        (down.pop()? == "/" && !self.nodes.is_empty()).then_some(())?;
        down.into_iter().rev().try_fold(0, |at, path| {
            let children = &self.nodes[at].children;
            let place = children.binary_search_by(|child| (*self.nodes[*child].path).cmp(path)).ok()?;
            Some(children[place])
        })
    }

    pub fn find_id(&self, interval: &Interval, id: u64) -> Option<usize> {
        place(interval, id).and_then(|at| self.places[at])
    }

    /// Returns a node and its descendants.
    pub fn below(&self, node: usize) -> Range<usize> {
        node..self.nodes[node].end
    }

    /// Returns the ancestors of a node, the nearest first.
    pub fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |at| self.nodes[*at].parent)
    }

    /// Returns the tasks directly in a cgroup, as ascending indexes into [`Interval::tasks`].
    pub fn tasks_of(&self, node: usize) -> &[usize] {
        &self.tasks[self.nodes[node].tasks.clone()]
    }

    /// Returns the idle tasks directly in a cgroup, as ascending indexes into [`Interval::idle`].
    pub fn idle_of(&self, node: usize) -> &[usize] {
        &self.idle[self.nodes[node].idle.clone()]
    }

    /// Returns the idle tasks of a cgroup and its descendants, grouped by cgroup.
    pub fn idle_below(&self, node: usize) -> &[usize] {
        let last = &self.nodes[self.nodes[node].end - 1];
        &self.idle[self.nodes[node].idle.start..last.idle.end]
    }

    /// Returns the tasks of a cgroup and its descendants, grouped by cgroup.
    pub fn tasks_below(&self, node: usize) -> &[usize] {
        let last = &self.nodes[self.nodes[node].end - 1];
        &self.tasks[self.nodes[node].tasks.start..last.tasks.end]
    }

    /// Returns the pairs whose victim is this cgroup or a descendant, as indexes into [`Interval::pairs`].
    pub fn pairs_below(&self, node: usize) -> impl Iterator<Item = usize> {
        let from = self.pairs.partition_point(|(victim, _)| *victim < node);
        let end = self.pairs.partition_point(|(victim, _)| *victim < self.nodes[node].end);
        self.pairs[from..end].iter().map(|(_, pair)| *pair)
    }

    pub fn limits<'a>(&self, interval: &'a Interval, node: usize) -> Option<&'a CgroupReading> {
        self.nodes[node].limits.map(|at| &interval.limits[at])
    }

    /// Returns the tasks whose cgroup has no known path.
    pub(crate) fn tasks_unknown(&self) -> &[usize] {
        &self.tasks[self.nodes.last().map_or(0, |last| last.tasks.end)..]
    }

    /// Returns the sum of all tasks, like [`Interval::total`]. Sums nothing if the cgroups of all tasks are known.
    pub fn total(&self, interval: &Interval) -> Group {
        match (self.nodes.first(), &self.unknown) {
            (Some(root), None) => root.group.clone(),
            _ => interval.total(),
        }
    }

    fn add_limits(&mut self, interval: &Interval) {
        for (at, limits) in interval.limits.iter().enumerate() {
            let Some(node) = self.find_id(interval, limits.id) else { continue };
            // If the cgroup was created again, the later limits apply. But the tightest quota may be the earlier cgroup's.
            self.nodes[node].limits = Some(at);
            let quota = limits.quota_cores().map(|cores| Effective { node, cores });
            self.nodes[node].effective = tightest(self.nodes[node].effective, quota);
        }
        for at in 1..self.nodes.len() {
            let above = self.nodes[at].parent.and_then(|parent| self.nodes[parent].effective);
            self.nodes[at].effective = tightest(above, self.nodes[at].effective);
        }
    }

    fn add_tasks(&mut self, interval: &Interval) {
        // Until the end of this function, the last node has the tasks whose cgroup has no known path.
        let unknown = self.nodes.len();
        self.nodes.push(Node::default());
        let tasks = interval.tasks.iter().map(|task| task.reading.cgroup_id);
        let [tasks, first] = self.ordered(interval, tasks);
        let [idle, first_idle] = self.ordered(interval, interval.idle.iter().map(|idle| idle.cgroup_id));
        for (at, node) in self.nodes.iter_mut().enumerate() {
            (node.tasks, node.idle) = (first[at]..first[at + 1], first_idle[at]..first_idle[at + 1]);
        }
        (self.tasks, self.idle) = (tasks, idle);
        let node_of = |id| self.find_id(interval, id).unwrap_or(unknown);
        let exited = interval.exited.iter().map(|row| (node_of(row.cgroup_id), row));
        let mut exited = exited.sorted_by_key(|(node, _)| *node).rev().peekable();
        // One running sum, and the ids of its processes, per depth: when the loop reaches a node, all its descendants are done.
        let deepest = self.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        let mut sums = vec![(GroupSum::default(), Vec::new()); deepest + 1];
        for at in (0..=unknown).rev() {
            let tasks = self.nodes[at].tasks.clone();
            let node = &mut self.nodes[at];
            let (sum, processes) = &mut sums[node.depth];
            for task in interval.tasks_at(&self.tasks[tasks.clone()]) {
                sum.add_task(task);
                processes.push(task.reading.tgid);
                node.own.add(&Sums::new(&task.totals, &task.wait));
                task.ran_on().for_each(|(on, ns)| add_by_node(&mut node.ran, on, ns));
            }
            sum.add_idle(node.idle.len() as u64);
            let idle = self.idle[node.idle.clone()].iter().map(|idle| interval.idle[*idle].tgid);
            processes.extend(idle.dedup());
            node.has_tasks |= !tasks.is_empty() || !node.idle.is_empty();
            while let Some((_, exited)) = exited.next_if(|(node, _)| *node == at) {
                sum.add_exited(exited);
                node.own.add(&Sums::new(&exited.totals, &exited.wait));
                node.has_tasks = true;
            }
            // A process with threads in several nodes counts once in their common ancestors.
            let mut processes = std::mem::take(processes);
            processes.sort_unstable();
            processes.dedup();
            node.group = sum.take(processes.len() as u64);
            let (depth, has_tasks) = (node.depth, node.has_tasks);
            if let Some(parent) = node.parent {
                let (above, below) = self.nodes.split_at_mut(at);
                sums[depth - 1].0.add_group(&below[0].group);
                sums[depth - 1].1.append(&mut processes);
                below[0].ran.iter().for_each(|(on, ns)| add_by_node(&mut above[parent].ran, *on, *ns));
                above[parent].has_tasks |= has_tasks;
            }
        }
        self.unknown = self.nodes.pop().map(|node| node.group).filter(|group| *group != Group::default());
    }

    /// Sorts tasks by node, from the cgroup of each task. Returns the tasks' indexes, and where the tasks of each node start.
    fn ordered(&self, interval: &Interval, cgroups: impl Iterator<Item = u64>) -> [Vec<usize>; 2] {
        let unknown = self.nodes.len() - 1;
        let mut last = (0, self.find_id(interval, 0));
        let node_of = |id| {
            if id != last.0 {
                last = (id, self.find_id(interval, id));
            }
            last.1.unwrap_or(unknown)
        };
        let nodes: Vec<usize> = cgroups.map(node_of).collect();
        let mut starts = vec![0; unknown + 2];
        nodes.iter().for_each(|node| starts[node + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let (mut order, mut next) = (vec![0; nodes.len()], starts.clone());
        for (task, node) in nodes.into_iter().enumerate() {
            order[next[node]] = task;
            next[node] += 1;
        }
        [order, starts]
    }

    /// Returns the lowest node that is `a` and `b` or an ancestor of both. `a` must not come after `b`.
    pub(crate) fn common(&self, a: usize, b: usize) -> usize {
        let mut at = a;
        while self.nodes[at].end <= b {
            at = self.nodes[at].parent.unwrap_or(0);
        }
        at
    }
}

/// Returns the tighter of two quotas; if equal, the ancestor's.
fn tightest(above: Option<Effective>, own: Option<Effective>) -> Option<Effective> {
    above.into_iter().chain(own).min_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// Run and wait time of tasks, including exited tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub on_cpu_ns: u64,
    pub by_cause: ByCause,
}

impl Sums {
    pub(crate) fn new(totals: &Totals, wait: &Wait) -> Self {
        Self { on_cpu_ns: totals.on_cpu_ns, by_cause: wait.by_cause }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        sum::add(&mut self.on_cpu_ns, other.on_cpu_ns);
        self.by_cause.add(&other.by_cause);
    }

    pub fn waited_ns(&self) -> u64 {
        self.by_cause.total()
    }

    /// Returns the time in which the tasks waited or ran, ns.
    pub fn active_ns(&self) -> u64 {
        self.waited_ns().saturating_add(self.on_cpu_ns)
    }
}

impl Interval {
    /// Returns the groups by cgroup path, including descendants. The key `None` has the tasks of cgroups without a known path.
    pub fn by_cgroup(&self) -> BTreeMap<Option<Arc<str>>, Group> {
        let Tree { nodes, unknown, .. } = Tree::new(self);
        let known = nodes.into_iter().filter(|node| node.has_tasks);
        let known = known.map(|node| (Some(node.path), node.group));
        unknown.into_iter().map(|group| (None, group)).chain(known).collect()
    }
}

fn place(interval: &Interval, id: u64) -> Option<usize> {
    interval.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok()
}

/// Returns the nodes, parents first, siblings by name, and the node of each cgroup in [`Interval::cgroups`].
fn shape(interval: &Interval) -> (Vec<Node>, Vec<Option<usize>>) {
    let most = interval.cgroups.len();
    let mut by_path: HashMap<&str, usize> = HashMap::with_capacity(most);
    let mut paths: Vec<&str> = Vec::with_capacity(most);
    let mut found: Vec<Node> = Vec::with_capacity(most);
    for (_, (_, path)) in named(interval).iter().zip(&interval.cgroups).filter(|(is_named, _)| **is_named) {
        let new: Vec<_> = path_and_ancestors(path).take_while(|path| !by_path.contains_key(path)).collect();
        let mut above = path_and_ancestors(path).nth(new.len()).map(|above| by_path[above]);
        for path in new.into_iter().rev() {
            let at = found.len();
            if let Some(parent) = above {
                found[parent].children.push(at);
            }
            found.push(Node { parent: above, ..Node::default() });
            paths.push(path);
            by_path.insert(path, at);
            above = Some(at);
        }
    }
    // Every id of a path refers to its node. If a cgroup was created again, its latest id may have no tasks, limits or pairs.
    let place = |(id, path): &(u64, Arc<str>)| {
        let at = by_path.get(&**path).copied()?;
        (found[at].id, found[at].path) = (Some(*id), path.clone());
        Some(at)
    };
    let places: Vec<Option<usize>> = interval.cgroups.iter().map(place).collect();
    let mut order = Vec::with_capacity(found.len());
    let mut next: Vec<usize> = (0..found.len()).take(1).collect();
    while let Some(at) = next.pop() {
        order.push(at);
        found[at].children.sort_unstable_by_key(|child| paths[*child]);
        next.extend(found[at].children.iter().rev());
    }
    let mut node_of = vec![0; order.len()];
    order.iter().enumerate().for_each(|(node, found)| node_of[*found] = node);
    let mut nodes: Vec<Node> = Vec::with_capacity(order.len());
    for at in order {
        let Node { path, id, parent, children, .. } = std::mem::take(&mut found[at]);
        let parent = parent.map(|parent| node_of[parent]);
        nodes.push(Node {
            path: if id.is_some() { path } else { paths[at].into() },
            id,
            depth: parent.map_or(0, |parent| nodes[parent].depth + 1),
            parent,
            children: children.into_iter().map(|child| node_of[child]).collect(),
            end: nodes.len() + 1,
            ..Node::default()
        });
    }
    for at in (1..nodes.len()).rev() {
        let Some(parent) = nodes[at].parent else { continue };
        nodes[parent].end = nodes[parent].end.max(nodes[at].end);
    }
    (nodes, places.into_iter().map(|place| place.map(|found| node_of[found])).collect())
}

/// Returns for each of [`Interval::cgroups`] whether it has tasks or limits, is a victim or a quota in a pair, or slept for
/// another cgroup. Culprits that only ran do not count, because outputs show them by path.
fn named(interval: &Interval) -> Vec<bool> {
    let mut named = vec![false; interval.cgroups.len()];
    let tasks = interval.tasks.iter().map(|task| task.reading.cgroup_id);
    // The threads of a process are adjacent.
    let tasks = tasks.chain(interval.idle.iter().map(|idle| idle.cgroup_id)).dedup();
    let exited = interval.exited.iter().map(|exited| exited.cgroup_id);
    let limits = interval.limits.iter().map(|limits| limits.id);
    let victims = interval.pairs.iter().map(|pair| pair.victim);
    let quotas = interval.pairs.iter().filter(|pair| pair.blame == Blame::Limited).map(|pair| pair.culprit);
    let sleepers = interval.chains.iter().flatten().map(|row| row.sleeper).dedup();
    for id in tasks.chain(exited).chain(limits).chain(victims).chain(quotas).chain(sleepers) {
        if let Some(at) = place(interval, id) {
            named[at] = true;
        }
    }
    named
}
