//! Sums over the tasks of each node.

use super::Tree;
use crate::{
    ByCause, Group, Interval, Wait,
    interval::{GroupSum, processes},
    placement::add_by_node,
};

/// Run and wait time of tasks, including exited ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Time on a CPU, ns.
    pub ran_ns: u64,
    /// Completed waits, ns.
    pub waited_ns: u64,
    /// Completed waits by cause, ns.
    pub by_cause: ByCause,
}

impl Sums {
    fn add(&mut self, ran_ns: u64, wait: &Wait) {
        self.add_sums(&Self { ran_ns, waited_ns: wait.total_ns, by_cause: wait.by_cause });
    }

    pub(crate) fn add_sums(&mut self, other: &Self) {
        self.ran_ns = self.ran_ns.saturating_add(other.ran_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.by_cause.add(&other.by_cause);
    }

    /// Time in which the tasks waited or ran, ns.
    pub fn active_ns(&self) -> u64 {
        self.waited_ns.saturating_add(self.ran_ns)
    }
}

impl From<&Group> for Sums {
    fn from(group: &Group) -> Self {
        let Wait { total_ns, by_cause, .. } = group.wait;
        Self { ran_ns: group.totals.on_cpu_ns, waited_ns: total_ns, by_cause }
    }
}

impl Tree {
    pub(super) fn add_tasks(&mut self, interval: &Interval) {
        let unknown = self.nodes.len();
        self.order_tasks(interval);
        let mut exited: Vec<(usize, usize)> = (0..interval.exited.len())
            .map(|at| (self.find_id(interval, interval.exited[at].cgroup_id).unwrap_or(unknown), at))
            .collect();
        exited.sort_unstable();
        let processes = self.processes(interval);
        let mut exited = exited.into_iter().rev().peekable();
        // One running sum per depth: when the loop reaches a node, all nodes below it are done.
        let deepest = self.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        let mut sums = vec![GroupSum::default(); deepest + 1];
        self.add_unknown(
            interval,
            &mut sums[0],
            std::iter::from_fn(|| exited.next_if(|(at, _)| *at == unknown)),
        );
        for at in (0..self.nodes.len()).rev() {
            let tasks = self.nodes[at].tasks.clone();
            let node = &mut self.nodes[at];
            let sum = &mut sums[node.depth];
            for task in self.tasks[tasks.clone()].iter().map(|task| &interval.tasks[*task]) {
                sum.add_task(task);
                node.own.add(task.totals.on_cpu_ns, &task.wait);
                task.ran_on().for_each(|(on, ns)| add_by_node(&mut node.ran, on, ns));
            }
            sum.add_idle(node.idle.len() as u64);
            node.has_tasks |= !tasks.is_empty() || !node.idle.is_empty();
            while let Some((_, exited)) = exited.next_if(|(node, _)| *node == at) {
                let exited = &interval.exited[exited];
                sum.add_exited(exited);
                node.own.add(exited.totals.on_cpu_ns, &exited.wait);
                node.has_tasks = true;
            }
            node.group = sum.take(processes[at]);
            let (depth, has_tasks) = (node.depth, node.has_tasks);
            if let Some(parent) = node.parent {
                let (above, below) = self.nodes.split_at_mut(at);
                sums[depth - 1].add_group(&below[0].group);
                below[0].ran.iter().for_each(|(on, ns)| add_by_node(&mut above[parent].ran, *on, *ns));
                above[parent].has_tasks |= has_tasks;
            }
        }
    }

    /// Sorts tasks by node; tasks without a node come last.
    fn order_tasks(&mut self, interval: &Interval) {
        let tasks = self.ordered(interval, interval.tasks.iter().map(|task| task.reading.cgroup_id));
        let idle = self.ordered(interval, interval.idle.iter().map(|idle| idle.cgroup_id));
        for (at, node) in self.nodes.iter_mut().enumerate() {
            (node.tasks, node.idle) = (tasks.1[at]..tasks.1[at + 1], idle.1[at]..idle.1[at + 1]);
        }
        (self.tasks, self.idle) = (tasks.0, idle.0);
    }

    /// Sorts tasks by node, from the cgroup of each. Returns their indexes, and where the tasks of each node start.
    fn ordered(
        &self,
        interval: &Interval,
        cgroups: impl ExactSizeIterator<Item = u64>,
    ) -> (Vec<usize>, Vec<usize>) {
        let unknown = self.nodes.len();
        let mut last = (0, self.find_id(interval, 0));
        let mut node_of = |id: u64| {
            if id != last.0 {
                last = (id, self.find_id(interval, id));
            }
            last.1.unwrap_or(unknown)
        };
        let nodes: Vec<usize> = cgroups.map(&mut node_of).collect();
        let mut starts = vec![0; unknown + 2];
        nodes.iter().for_each(|node| starts[node + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let (mut order, mut next) = (vec![0; nodes.len()], starts.clone());
        for (task, node) in nodes.into_iter().enumerate() {
            order[next[node]] = task;
            next[node] += 1;
        }
        (order, starts)
    }

    fn add_unknown(
        &mut self,
        interval: &Interval,
        sum: &mut GroupSum,
        exited: impl Iterator<Item = (usize, usize)>,
    ) {
        let tasks = || self.tasks_unknown().iter().map(|task| &interval.tasks[*task]);
        let idle = self.idle_unknown();
        let mut is_any = !self.tasks_unknown().is_empty() || !idle.is_empty();
        tasks().for_each(|task| sum.add_task(task));
        sum.add_idle(idle.len() as u64);
        for (_, exited) in exited {
            is_any = true;
            sum.add_exited(&interval.exited[exited]);
        }
        let idle = idle.iter().map(|idle| interval.idle[*idle].tgid);
        let group = sum.take(processes(tasks().map(|task| task.reading.tgid).chain(idle)));
        self.unknown = is_any.then_some(group);
    }

    /// Number of processes with a thread in each node or below it. A process with threads in several nodes counts in each of
    /// them, but only once in their common ancestors.
    fn processes(&self, interval: &Interval) -> Vec<u64> {
        let mut threads: Vec<(u32, usize)> = Vec::with_capacity(self.tasks.len() + self.idle.len());
        for (at, _) in self.nodes.iter().enumerate() {
            threads.extend(self.tasks_of(at).iter().map(|task| (interval.tasks[*task].reading.tgid, at)));
            let mut last = None;
            for tgid in self.idle_of(at).iter().map(|idle| interval.idle[*idle].tgid) {
                // The threads of a process mostly follow each other.
                if last.replace(tgid) != Some(tgid) {
                    threads.push((tgid, at));
                }
            }
        }
        threads.sort_unstable();
        threads.dedup();
        let mut counts = vec![0i64; self.nodes.len()];
        threads.iter().for_each(|(_, node)| counts[*node] += 1);
        for pair in threads.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            counts[self.common(pair[0].1, pair[1].1)] -= 1;
        }
        for at in (1..self.nodes.len()).rev() {
            if let Some(parent) = self.nodes[at].parent {
                counts[parent] += counts[at];
            }
        }
        counts.into_iter().map(|count| count as u64).collect()
    }

    /// The lowest node that contains or is both `a` and `b`; `a` comes before `b`.
    pub(super) fn common(&self, a: usize, b: usize) -> usize {
        let mut at = a;
        while self.nodes[at].end <= b {
            at = self.nodes[at].parent.unwrap_or(0);
        }
        at
    }
}
