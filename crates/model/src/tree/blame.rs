//! The culprits and quotas that made the tasks of each node wait.

use std::sync::Arc;

use super::Tree;
use crate::{
    Blame, Interval,
    culprits::{NAMED, by_harm},
    sum,
};

/// The wait time of a node's tasks that is due to one culprit.
#[derive(Clone, Copy)]
struct Part {
    /// The culprit's cgroup, and the id of its task; 0 if pairs do not distinguish tasks.
    culprit: (u64, u32),
    /// The first pair of this culprit.
    pair: usize,
    ns: u64,
}

impl Part {
    fn path<'a>(&self, interval: &'a Interval) -> Option<&'a Arc<str>> {
        interval.cgroup_path(self.culprit.0)
    }
}

impl Tree {
    pub(super) fn add_pairs(&mut self, interval: &Interval) {
        let victims = interval.pairs.iter().enumerate();
        let victims = victims.filter_map(|(at, pair)| Some((self.find_id(interval, pair.victim)?, at)));
        self.pairs = victims.collect();
        self.pairs.sort_unstable();
        self.sum_up(interval, Blame::Ran, |tree, node, parts| {
            let worst = worst(interval, parts, NAMED);
            let culprits = worst.map(|part| {
                let culprit = interval.culprit(&interval.pairs[part.pair]);
                crate::culprits::Culprit { ns: part.ns, ..culprit }
            });
            tree.nodes[node].culprits = culprits.collect();
        });
        self.sum_up(interval, Blame::Limited, |tree, node, parts| {
            let worst = worst(interval, parts, usize::MAX);
            let limits: Vec<_> =
                worst.map(|part| (tree.find_id(interval, part.culprit.0), part.ns)).collect();
            tree.nodes[node].throttled_by = limits;
        });
        for node in &mut self.nodes {
            let ran_out = node.throttled_by.iter().find_map(|(limit, _)| *limit);
            node.limited_by = ran_out.or(node.effective.map(|limit| limit.node));
        }
    }

    /// Calls `set` for each node that has parts: its own and those of all nodes below it, in the order of their culprits.
    fn sum_up(&mut self, interval: &Interval, blame: Blame, mut set: impl FnMut(&mut Self, usize, &[Part])) {
        let deepest = self.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        // One list per depth: when the loop reaches a node, all nodes below it are done.
        let mut of_depth: Vec<Vec<Part>> = vec![Vec::new(); deepest + 1];
        let mut rest = self.pairs.len();
        for at in (0..self.nodes.len()).rev() {
            let depth = self.nodes[at].depth;
            let mut parts = std::mem::take(&mut of_depth[depth]);
            while let Some((_, pair)) = self.pairs[..rest].last().filter(|(victim, _)| *victim == at) {
                rest -= 1;
                let reading = &interval.pairs[*pair];
                if reading.blame == blame {
                    // A quota runs out for all tasks alike, so the tasks do not matter.
                    let tid = if blame == Blame::Ran { reading.tid } else { 0 };
                    let culprit = (reading.culprit, tid);
                    parts.push(Part { culprit, pair: *pair, ns: reading.ns });
                }
            }
            if parts.is_empty() {
                continue;
            }
            merge(&mut parts);
            set(self, at, &parts);
            if depth != 0 {
                of_depth[depth - 1].append(&mut parts);
            }
            parts.clear();
            // Keeps the allocation for the next node.
            of_depth[depth] = parts;
        }
    }
}

/// Merges the parts of each culprit.
fn merge(parts: &mut Vec<Part>) {
    parts.sort_unstable_by_key(|part| (part.culprit, part.pair));
    sum::merge(parts, |part| part.culprit, |part| &mut part.ns);
}

/// The worst `most` parts, the worst first.
fn worst(interval: &Interval, parts: &[Part], most: usize) -> impl Iterator<Item = Part> {
    let mut worst = parts.to_vec();
    let order = |a: &Part, b: &Part| {
        by_harm(a.ns, b.ns, || a.path(interval).cmp(&b.path(interval))).then(a.culprit.cmp(&b.culprit))
    };
    if worst.len() > most {
        worst.select_nth_unstable_by(most, order);
        worst.truncate(most);
    }
    worst.sort_unstable_by(order);
    worst.into_iter()
}
