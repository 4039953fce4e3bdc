//! The culprits and quotas that made the tasks of each node wait.

use cgscope_ledger::Cause;

use super::{Node, Tree};
use crate::{
    Blame, Interval, PairReading,
    pairs::{Culprit, NAMED},
    sum,
};

/// The time that a node's tasks waited for one culprit.
#[derive(Clone, Copy)]
struct Part {
    /// Id of the culprit's cgroup and thread id of its task; 0 if pairs do not distinguish tasks.
    culprit: (u64, u32),
    /// The first pair of this culprit.
    pair: usize,
    ns: u64,
    beyond_ns: Option<u64>,
}

impl Part {
    fn culprit(&self, interval: &Interval) -> Culprit {
        let culprit = interval.culprit(&interval.pairs[self.pair]);
        Culprit { ns: self.ns, beyond_ns: self.beyond_ns, ..culprit }
    }
}

impl Tree {
    pub(super) fn add_pairs(&mut self, interval: &Interval) {
        let victims = interval.pairs.iter().enumerate();
        let victims = victims.filter_map(|(at, pair)| Some((self.find_id(interval, pair.victim)?, at)));
        self.pairs = victims.collect();
        self.pairs.sort_unstable();
        self.add_behind_itself(interval);
        self.add_beyond(interval);
        self.sum_up(interval, Blame::Ran, |tree, node, parts| {
            let worst = worst(interval, parts, NAMED);
            tree.nodes[node].culprits = worst.map(|part| part.culprit(interval)).collect();
        });
        self.sum_up(interval, Blame::Limited, |tree, node, parts| {
            let worst = worst(interval, parts, usize::MAX);
            let limits = worst.map(|part| (tree.find_id(interval, part.culprit.0), part.ns));
            tree.nodes[node].throttled_by = limits.collect();
        });
        for node in &mut self.nodes {
            let ran_out = node.throttled_by.iter().find_map(|(limit, _)| *limit);
            node.limited_by = ran_out.or(node.effective.map(|limit| limit.node));
        }
    }

    /// Sums up each node's waits for itself: the pairs whose victim and culprit are both the node or a descendant. If pairs
    /// distinguish tasks, a cgroup can be its own culprit.
    fn add_behind_itself(&mut self, interval: &Interval) {
        let ran = interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran);
        if ran.clone().all(|pair| pair.tid == 0) {
            for node in &mut self.nodes {
                node.behind_itself_ns = node.own.by_cause.get(Cause::OwnCgroup);
            }
        }
        for pair in ran {
            let both = [pair.victim, pair.culprit].map(|id| self.find_id(interval, id));
            if let [Some(victim), Some(culprit)] = both {
                let meets = self.common(victim.min(culprit), victim.max(culprit));
                sum::add(&mut self.nodes[meets].behind_itself_ns, pair.ns);
            }
        }
        for at in (1..self.nodes.len()).rev() {
            let Node { parent: Some(parent), behind_itself_ns: ns, .. } = self.nodes[at] else { continue };
            sum::add(&mut self.nodes[parent].behind_itself_ns, ns);
        }
    }

    /// Returns the part of a cgroup's contention in which its own tasks or its descendants' tasks had the CPU, ns. This is an
    /// estimate: the share of such waits in all waits for a CPU. `None` if no such wait has ended.
    pub fn own_contention_ns(&self, interval: &Interval, node: usize) -> Option<u64> {
        let contention_ns = self.limits(interval, node)?.contention_ns?;
        let Node { group, behind_itself_ns, .. } = &self.nodes[node];
        let behind_ns = group.wait.contended_ns();
        if contention_ns == 0 {
            return Some(0);
        }
        let own_ns = u128::from((*behind_itself_ns).min(behind_ns));
        (u128::from(contention_ns) * own_ns).checked_div(behind_ns.into()).map(|ns| ns as u64)
    }

    /// Returns the culprits that ran during these pairs' waits, the worst first. A task gets the name in its first pair.
    pub(crate) fn culprits_among(
        &self,
        interval: &Interval,
        pairs: impl Iterator<Item = usize>,
    ) -> Vec<Culprit> {
        let ran = pairs.filter(|at| interval.pairs[*at].blame == Blame::Ran);
        let mut parts: Vec<Part> = ran.map(|at| self.part(interval, at)).collect();
        merge(&mut parts);
        worst(interval, &parts, usize::MAX).map(|part| part.culprit(interval)).collect()
    }

    /// Same as [`Interval::culprits`], for a caller that has the tree.
    pub fn culprits(&self, interval: &Interval) -> Vec<Culprit> {
        self.culprits_among(interval, 0..interval.pairs.len())
    }

    fn part(&self, interval: &Interval, pair: usize) -> Part {
        let PairReading { culprit, blame, tid, ns, .. } = interval.pairs[pair];
        // A quota runs out for all tasks of a cgroup, so single tasks do not matter.
        let tid = if blame == Blame::Ran { tid } else { 0 };
        Part { culprit: (culprit, tid), pair, ns, beyond_ns: self.beyond[pair] }
    }

    /// Calls `set` for each node. The parts of the node and its descendants are passed in the order of their culprits.
    fn sum_up(&mut self, interval: &Interval, blame: Blame, mut set: impl FnMut(&mut Self, usize, &[Part])) {
        let deepest = self.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        // One list per depth: when the loop reaches a node, all its descendants are done.
        let mut of_depth: Vec<Vec<Part>> = vec![Vec::new(); deepest + 1];
        let mut rest = self.pairs.len();
        for at in (0..self.nodes.len()).rev() {
            let depth = self.nodes[at].depth;
            let mut parts = std::mem::take(&mut of_depth[depth]);
            while let Some((_, pair)) = self.pairs[..rest].last().filter(|(victim, _)| *victim == at) {
                rest -= 1;
                if interval.pairs[*pair].blame == blame {
                    parts.push(self.part(interval, *pair));
                }
            }
            merge(&mut parts);
            set(self, at, &parts);
            if depth != 0 {
                of_depth[depth - 1].append(&mut parts);
            }
        }
    }
}

fn merge(parts: &mut Vec<Part>) {
    parts.sort_unstable_by_key(|part| (part.culprit, part.pair));
    parts.dedup_by(|next, kept| {
        let is_same = next.culprit == kept.culprit;
        if is_same {
            sum::add(&mut kept.ns, next.ns);
            kept.beyond_ns = kept.beyond_ns.zip(next.beyond_ns).map(|(a, b)| a.saturating_add(b));
        }
        is_same
    });
}

fn worst(interval: &Interval, parts: &[Part], most: usize) -> impl Iterator<Item = Part> {
    let mut worst = parts.to_vec();
    let order = |a: &Part, b: &Part| {
        let path = |part: &Part| interval.cgroup_path(part.culprit.0);
        let paths = || path(a).cmp(&path(b));
        b.ns.cmp(&a.ns).then_with(paths).then(a.culprit.cmp(&b.culprit))
    };
    if worst.len() > most {
        worst.select_nth_unstable_by(most, order);
        worst.truncate(most);
    }
    worst.sort_unstable_by(order);
    worst.into_iter()
}

impl Interval {
    /// Returns the culprits that ran while tasks of `victim` and its descendants waited, the worst first.
    pub fn culprits_of(&self, victim: &str) -> Vec<Culprit> {
        let pairs = (0..self.pairs.len()).filter(|pair| self.is_in(self.pairs[*pair].victim, victim));
        Tree::new(self).culprits_among(self, pairs)
    }

    /// Returns the culprits that ran while any recorded task waited, the worst first.
    pub fn culprits(&self) -> Vec<Culprit> {
        Tree::new(self).culprits(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Blame, ByCause, Cause, CgroupReading, Interval, PairReading, TaskInterval, TaskReading, Tree, Wait,
    };

    /// A pod with two containers. A task of the first waited for its own cgroup, for the second, and for a cgroup outside the
    /// pod.
    fn pod(own_ns: u64, sibling_ns: u64, outside_ns: u64) -> Interval {
        let mut by_cause = ByCause::only(Cause::OwnCgroup, own_ns);
        by_cause.add(&ByCause::only(Cause::OtherCgroup, sibling_ns + outside_ns));
        // Time at a limit is not contention.
        by_cause.add(&ByCause::only(Cause::Throttled, 5_000));
        let reading = TaskReading { serial: 1, cgroup_id: 3, ..TaskReading::default() };
        let wait = Wait { count: 1, total_ns: by_cause.total(), by_cause, ..Wait::default() };
        let behind = |culprit: u64, ns: u64| PairReading {
            victim: 3,
            culprit,
            blame: Blame::Ran,
            tid: 0,
            comm: "".into(),
            ns,
        };
        let limits = |id| CgroupReading { id, contention_ns: Some(1_000), ..CgroupReading::default() };
        let paths = ["/", "/pod", "/pod/one", "/pod/two", "/other"];
        Interval {
            duration_ns: 10_000,
            tasks: vec![TaskInterval { reading, wait, ..TaskInterval::default() }],
            pairs: vec![behind(4, sibling_ns), behind(5, outside_ns)],
            limits: (1..=5).map(limits).collect(),
            cgroups: (1..).zip(paths.map(Into::into)).collect(),
            ..Interval::default()
        }
    }

    fn own_ns(interval: &Interval, path: &str) -> Option<u64> {
        let tree = Tree::new(interval);
        tree.own_contention_ns(interval, tree.find(path).expect("a cgroup"))
    }

    #[test]
    fn waits_within_a_cgroup_are_its_own_contention() {
        let interval = pod(200, 300, 500);
        let of = |path| own_ns(&interval, path);
        assert_eq!((of("/pod/one"), of("/pod"), of("/")), (Some(200), Some(500), Some(1_000)));
    }

    #[test]
    fn without_an_ended_wait_nobody_knows_whose_contention_it_is() {
        let mut interval = pod(0, 0, 0);
        assert_eq!(own_ns(&interval, "/pod"), None);
        interval.limits.iter_mut().for_each(|limits| limits.contention_ns = Some(0));
        assert_eq!(own_ns(&interval, "/pod"), Some(0));
        interval.limits.iter_mut().for_each(|limits| limits.contention_ns = None);
        assert_eq!(own_ns(&interval, "/pod"), None);
    }
}
