//! The nodes of the tree and their order.

use std::{collections::HashMap, sync::Arc};

use itertools::Itertools;

use super::Node;
use crate::{Blame, Interval, path::path_and_ancestors};

pub(super) fn place(interval: &Interval, id: u64) -> Option<usize> {
    interval.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok()
}

/// Returns the nodes, parents first, siblings by name, and the node of each cgroup in [`Interval::cgroups`].
pub(super) fn shape(interval: &Interval) -> (Vec<Node>, Vec<Option<usize>>) {
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
