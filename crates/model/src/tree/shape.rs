//! The nodes of the tree and their order.

use std::{collections::HashMap, sync::Arc};

use super::Node;
use crate::{Blame, Interval, path::path_and_ancestors};

/// The node of each cgroup in [`Interval::cgroups`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Places(Vec<Option<usize>>);

impl Places {
    pub fn node(&self, interval: &Interval, id: u64) -> Option<usize> {
        place(interval, id).and_then(|at| self.0[at])
    }
}

fn place(interval: &Interval, id: u64) -> Option<usize> {
    interval.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok()
}

pub(super) fn shape(interval: &Interval) -> (Vec<Node>, Places) {
    let room = interval.cgroups.len();
    let mut found = Found { by_path: HashMap::with_capacity(room), all: Vec::with_capacity(room) };
    let named = named(interval);
    for (_, (_, path)) in named.iter().zip(&interval.cgroups).filter(|(is_named, _)| **is_named) {
        found.add(path);
    }
    // Every id of a path refers to the path's node. If a cgroup was created again, its latest id may have no tasks, limits or
    // pairs.
    let places: Vec<_> = interval.cgroups.iter().map(|(id, path)| found.name(*id, path)).collect();
    let order = found.order();
    let mut node_of = vec![0; order.len()];
    order.iter().enumerate().for_each(|(node, found)| node_of[*found] = node);
    let places = places.into_iter().map(|place| place.map(|found| node_of[found]));
    let places = Places(places.collect());
    (found.into_nodes(&order, &node_of), places)
}

/// Returns for each of [`Interval::cgroups`] whether it has tasks or limits, or is a victim or a quota in a pair. Culprits that
/// only ran do not count, because outputs show them by path.
fn named(interval: &Interval) -> Vec<bool> {
    let mut named = vec![false; interval.cgroups.len()];
    let mut name = |id: u64| {
        if let Some(at) = place(interval, id) {
            named[at] = true;
        }
    };
    let mut last = None;
    let tasks = interval.tasks.iter().map(|task| task.reading.cgroup_id);
    for id in tasks.chain(interval.idle.iter().map(|idle| idle.cgroup_id)) {
        // The threads of a process are adjacent.
        if last.replace(id) != Some(id) {
            name(id);
        }
    }
    interval.exited.iter().for_each(|exited| name(exited.cgroup_id));
    interval.limits.iter().for_each(|limits| name(limits.id));
    for pair in &interval.pairs {
        name(pair.victim);
        if pair.blame == Blame::Limited {
            name(pair.culprit);
        }
    }
    named
}

/// Cgroups in the order of discovery.
struct Found<'a> {
    by_path: HashMap<&'a str, usize>,
    all: Vec<Place<'a>>,
}

struct Place<'a> {
    path: &'a str,
    /// Id and path, if the interval lists this path.
    named: Option<(u64, &'a Arc<str>)>,
    parent: Option<usize>,
    children: Vec<usize>,
}

impl<'a> Found<'a> {
    fn add(&mut self, path: &'a str) {
        let mut new: Vec<&str> = Vec::new();
        let mut at = None;
        for path in path_and_ancestors(path) {
            at = self.by_path.get(path).copied();
            if at.is_some() {
                break;
            }
            new.push(path);
        }
        for path in new.into_iter().rev() {
            let parent = at;
            let child = self.all.len();
            if let Some(parent) = parent {
                self.all[parent].children.push(child);
            }
            self.by_path.insert(path, child);
            self.all.push(Place { path, named: None, parent, children: Vec::new() });
            at = Some(child);
        }
    }

    /// Sets the id of a path; returns the path's place, if any.
    fn name(&mut self, id: u64, path: &'a Arc<str>) -> Option<usize> {
        let at = self.by_path.get(&**path).copied()?;
        self.all[at].named = Some((id, path));
        Some(at)
    }

    /// Returns the depth-first order: parents before their descendants, siblings by name.
    fn order(&mut self) -> Vec<usize> {
        let paths: Vec<&str> = self.all.iter().map(|place| place.path).collect();
        let mut order = Vec::with_capacity(self.all.len());
        let mut next: Vec<usize> = if self.all.is_empty() { Vec::new() } else { vec![0] };
        while let Some(at) = next.pop() {
            order.push(at);
            let children = &mut self.all[at].children;
            children.sort_unstable_by_key(|child| paths[*child]);
            next.extend(children.iter().rev());
        }
        order
    }

    fn into_nodes(self, order: &[usize], node_of: &[usize]) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::with_capacity(order.len());
        for place in order.iter().map(|found| &self.all[*found]) {
            let parent = place.parent.map(|parent| node_of[parent]);
            nodes.push(Node {
                path: place.named.map_or_else(|| place.path.into(), |(_, path)| path.clone()),
                id: place.named.map(|(id, _)| id),
                depth: parent.map_or(0, |parent| nodes[parent].depth + 1),
                parent,
                children: place.children.iter().map(|child| node_of[*child]).collect(),
                end: nodes.len() + 1,
                ..Node::default()
            });
        }
        for at in (1..nodes.len()).rev() {
            let (end, parent) = (nodes[at].end, nodes[at].parent);
            if let Some(parent) = parent {
                nodes[parent].end = nodes[parent].end.max(end);
            }
        }
        nodes
    }
}
