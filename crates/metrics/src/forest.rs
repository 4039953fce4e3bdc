//! A tree of all cgroups of the host, with the data for selecting the exported cgroups.

use std::{collections::HashMap, sync::Arc};

use cgscope_model::{Interval, path::path_and_ancestors, sum};

use crate::choice::{Config, Standing};

/// Index of the root in [`Forest::nodes`].
pub(crate) const ROOT: usize = 0;

/// A tree of cgroups by path. Parents precede their children. An index is valid until [`Forest::drop_removed`].
#[derive(Debug)]
pub(crate) struct Forest {
    pub nodes: Vec<Node>,
    by_path: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// The path below the cgroup mount point.
    pub path: Arc<str>,
    /// Index of the parent. The root is its own parent.
    pub parent: usize,
    pub depth: usize,
    pub standing: Standing,
    /// Total wait time of all tasks in the cgroup and its descendants since we first saw the cgroup, ns.
    pub waited_ns: u64,
    pub now: Now,
}

/// Figures of a cgroup and its descendants in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    waited_ns: u64,
    pub has_tasks: bool,
    /// Whether the cgroup exists: it had a task, or its files were readable.
    pub is_there: bool,
    /// Index of the cgroup's limits in [`Interval::limits`].
    pub limits: Option<usize>,
    /// Index of this cgroup among the exported cgroups. If it is not exported, the index of its nearest exported ancestor.
    pub home: usize,
    pub is_exported: bool,
}

/// Node indices for the cgroups, tasks, idle tasks and exited tasks of an interval, in the order of the interval.
#[derive(Default)]
pub(crate) struct Places {
    cgroups: Vec<usize>,
    pub tasks: Vec<usize>,
    pub idle: Vec<usize>,
    pub exited: Vec<usize>,
}

impl Places {
    /// Returns the node index of a cgroup id; `None` if the path of the cgroup is unknown.
    pub fn find(&self, interval: &Interval, id: u64) -> Option<usize> {
        let at = interval.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.cgroups[at])
    }
}

impl Forest {
    pub fn new() -> Self {
        let path: Arc<str> = "/".into();
        let (standing, now) = (Standing::Eligible, Now::default());
        let root = Node { path: path.clone(), parent: ROOT, depth: 0, standing, waited_ns: 0, now };
        Self { nodes: vec![root], by_path: HashMap::from([(path, ROOT)]) }
    }

    pub fn find(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// Iterates over a node and its ancestors.
    pub fn upwards(&self, at: usize) -> impl Iterator<Item = &Node> {
        let above = |at: &usize| (*at != ROOT).then(|| self.nodes[*at].parent);
        std::iter::successors(Some(at), above).map(|at| &self.nodes[at])
    }

    /// Adds an interval's cgroups and their waits. If the path of a cgroup is unknown, its tasks count for the root.
    pub fn observe(&mut self, interval: &Interval, config: &Config) -> Places {
        self.nodes.iter_mut().for_each(|node| node.now = Now::default());
        let cgroups = interval.cgroups.iter().map(|(_, path)| self.place(path, config)).collect();
        let mut places = Places { cgroups, ..Places::default() };
        let tasks = interval.tasks.iter().map(|task| (task.reading.cgroup_id, task.wait.total_ns));
        places.tasks = self.add_waits(tasks, interval, &places);
        let idle = interval.idle.iter().map(|idle| (idle.cgroup_id, 0));
        places.idle = self.add_waits(idle, interval, &places);
        let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, exited.wait.total_ns));
        places.exited = self.add_waits(exited, interval, &places);
        for (limits, reading) in interval.limits.iter().enumerate() {
            if let Some(at) = places.find(interval, reading.id) {
                let now = &mut self.nodes[at].now;
                // If a cgroup was removed and created again, its later limits apply.
                (now.limits, now.is_there) = (Some(limits), true);
            }
        }
        self.sum_up();
        places
    }

    /// Adds the wait times of tasks (ns) to the nodes of their cgroups, and returns the indices of these nodes.
    fn add_waits(
        &mut self,
        waits: impl Iterator<Item = (u64, u64)>,
        interval: &Interval,
        places: &Places,
    ) -> Vec<usize> {
        let mut last: Option<(u64, usize)> = None;
        let add = |(id, ns)| {
            // The threads of a process are adjacent and often in the same cgroup, so the last result often applies again.
            let known = last.filter(|(same, _)| *same == id).map(|(_, at)| at);
            let at = known.unwrap_or_else(|| places.find(interval, id).unwrap_or(ROOT));
            last = Some((id, at));
            let now = &mut self.nodes[at].now;
            sum::add(&mut now.waited_ns, ns);
            (now.has_tasks, now.is_there) = (true, true);
            at
        };
        waits.map(add).collect()
    }

    fn sum_up(&mut self) {
        for at in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[at];
            let (parent, now) = (node.parent, node.now);
            sum::add(&mut node.waited_ns, now.waited_ns);
            if at != ROOT {
                let above = &mut self.nodes[parent].now;
                sum::add(&mut above.waited_ns, now.waited_ns);
                above.has_tasks |= now.has_tasks;
                above.is_there |= now.is_there;
            }
        }
    }

    /// Returns the node index of a path. If the path is new, adds nodes for it and its ancestors.
    fn place(&mut self, path: &Arc<str>, config: &Config) -> usize {
        if let Some(at) = self.find(path) {
            return at;
        }
        let above = path_and_ancestors(path).nth(1);
        let parent = above.map_or(ROOT, |above| self.place(&above.into(), config));
        let (at, depth) = (self.nodes.len(), self.nodes[parent].depth + 1);
        self.by_path.insert(path.clone(), at);
        let (path, standing, now) = (path.clone(), config.standing(path, depth), Now::default());
        self.nodes.push(Node { path, parent, depth, standing, waited_ns: 0, now });
        at
    }

    pub fn judge(&mut self, config: &Config) {
        self.nodes[1..].iter_mut().for_each(|node| node.standing = config.standing(&node.path, node.depth));
    }

    /// Stores which cgroups are exported, with their indices in `exported`. The first path must be the root.
    pub fn settle<'a>(&mut self, exported: impl IntoIterator<Item = &'a Arc<str>>) {
        self.nodes.iter_mut().for_each(|node| node.now.is_exported = false);
        for (home, path) in exported.into_iter().enumerate() {
            if let Some(at) = self.find(path) {
                (self.nodes[at].now.home, self.nodes[at].now.is_exported) = (home, true);
            }
        }
        for at in 1..self.nodes.len() {
            if !self.nodes[at].now.is_exported {
                self.nodes[at].now.home = self.nodes[self.nodes[at].parent].now.home;
            }
        }
    }

    pub fn drop_removed(&mut self) {
        if self.nodes[1..].iter().all(|node| node.now.is_there) {
            return;
        }
        let mut moved = vec![ROOT; self.nodes.len()];
        for (at, mut node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            if at == ROOT || node.now.is_there {
                (moved[at], node.parent) = (self.nodes.len(), moved[node.parent]);
                self.nodes.push(node);
            } else {
                self.by_path.remove(&node.path);
            }
        }
        self.by_path.values_mut().for_each(|at| *at = moved[*at]);
    }
}
