//! Tasks, memory and NUMA nodes: a node that is full beside one that idles, memory far from threads, threads that bounce.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Finding, context::Context, is_much, is_share, skew::Skew};
use crate::{
    Interval,
    nodes::{ByNode, NodeGroup, remote_share, total},
    sum,
    words::findings as words,
};

/// A node is full if its CPUs were busy for this share of the time, percent...
const NODE_BUSY_PERCENT: u64 = 90;
/// ... and tasks waited for them for this share of that, percent (below it the queues are those of any busy CPU), and for this long, ns
/// summed over tasks.
const NODE_WAIT_PERCENT: u64 = 10;
const NODE_WAIT_NS: u64 = 10_000_000;
/// A node idles if its CPUs were busy for at most this share of the time, percent: the scheduler spreads what it may spread
/// within some ticks, so that over an interval nodes differ by less.
const NODE_IDLE_PERCENT: u64 = 30;
/// Memory is far from the threads if this share of it is on another node than they are, percent...
const REMOTE_PERCENT: u64 = 50;
/// ... and this much more than memory spread evenly over all nodes would be, percentage points: whoever spreads it has chosen so...
const REMOTE_ABOVE_EVEN_PERCENT: u64 = 5;
/// ... of this many bytes: less fits in caches...
const REMOTE_BYTES: u64 = 16 << 20;
/// ... and they ran for this share of the interval, percent of one CPU.
const REMOTE_RAN_PERCENT: u64 = 10;
/// Threads bounce between nodes from this many moves a second on, on average over the busy ones: filling the caches anew takes
/// milliseconds...
const NODE_MOVES_PER_SECOND: u64 = 10;
/// ... and this many in all. Fewer may be the start of a program.
const NODE_MOVES: u64 = 20;
/// Each rule has findings about at most this many processes or cgroups, the worst first.
const SHOWN: usize = 3;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let mut findings = remote_memory(context);
    findings.extend(node_bouncing(context));
    findings.extend(node_skew(context).map(|(finding, _)| finding));
    findings
}

/// The finding, and the node that is full.
pub(super) fn node_skew(context: &Context) -> Option<(Finding, u32)> {
    let nodes: Vec<NodeGroup> = context.interval.by_node_of(&context.tree.ran(context.interval));
    let with_cpus = || nodes.iter().filter(|node| !node.cpus.is_empty());
    let full = with_cpus().filter(|node| is_full(node)).max_by_key(|node| node.contended_ns())?;
    let idle = with_cpus().filter(|node| is_idle(node)).min_by_key(|node| node.busy_ns)?;
    Some((words::node_skew(&Skew::new(context, full, idle)?), full.node))
}

fn is_full(node: &NodeGroup) -> bool {
    node.busy_ns.zip(node.idle_ns).is_some_and(|(busy_ns, idle_ns)| {
        is_share(busy_ns, busy_ns.saturating_add(idle_ns), NODE_BUSY_PERCENT)
            && is_much(node.contended_ns(), NODE_WAIT_NS, busy_ns, NODE_WAIT_PERCENT)
    })
}

fn is_idle(node: &NodeGroup) -> bool {
    node.busy_ns.zip(node.idle_ns).is_some_and(|(busy_ns, idle_ns)| {
        let all_ns = busy_ns.saturating_add(idle_ns);
        is_share(all_ns.saturating_sub(busy_ns), all_ns, 100 - NODE_IDLE_PERCENT)
    })
}

/// Memory that is far from the threads that use it.
pub(crate) struct Remote<'a> {
    /// How much of it.
    pub share: f64,
    /// Where it is, bytes.
    pub memory: &'a [(u32, u64)],
    /// Where the threads ran, ns.
    pub ran: ByNode,
}

impl<'a> Remote<'a> {
    /// `None` below the threshold.
    fn new(interval: &Interval, memory: &'a [(u32, u64)], ran: &[(u32, u64)]) -> Option<Self> {
        if total(memory) < REMOTE_BYTES || !is_share(total(ran), interval.duration_ns, REMOTE_RAN_PERCENT) {
            return None;
        }
        let share = remote_share(memory, ran)?;
        let even = 1.0 - 1.0 / interval.nodes.len().max(1) as f64;
        let least = (REMOTE_PERCENT as f64).max(even * 100.0 + REMOTE_ABOVE_EVEN_PERCENT as f64);
        (share * 100.0 >= least).then_some(Self { share, memory, ran: ran.to_vec() })
    }
}

/// Of processes where the memory of processes was read, else of cgroups.
fn remote_memory(context: &Context) -> Vec<Finding> {
    let interval = context.interval;
    let mut found: Vec<(f64, Finding)> = if interval.memory.is_empty() {
        let cgroup = |(node, remote): (usize, Remote)| {
            (remote.share, words::remote_memory_of_cgroup(&remote, context.path(node)))
        };
        remote_cgroups(context).into_iter().map(cgroup).collect()
    } else {
        let processes = interval.memory.iter().filter_map(|memory| {
            let ran_ns = interval.ran_by_node(|task| task.tgid == memory.tgid);
            let remote = Remote::new(interval, &memory.by_node, &ran_ns)?;
            Some((remote.share, words::remote_memory_of_process(&remote, memory, interval)))
        });
        processes.collect()
    };
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found.into_iter().take(SHOWN).map(|(_, finding)| finding).collect()
}

/// The lowest ones that have it; the root is no cgroup that somebody chose.
fn remote_cgroups<'a>(context: &Context<'a>) -> Vec<(usize, Remote<'a>)> {
    let Context { interval, tree, .. } = context;
    let with_memory = interval.limits.iter().filter(|limits| !limits.memory_by_node.is_empty());
    let mut limits: Vec<_> =
        with_memory.filter_map(|limits| Some((tree.find_id(interval, limits.id)?, limits))).collect();
    limits.sort_by_key(|(node, _)| Reverse(context.path(*node).len()));
    // True for each that has a finding and those above it.
    let mut is_explained = vec![false; tree.nodes().len()];
    let mut found = Vec::new();
    for (node, limits) in limits {
        if tree.nodes()[node].parent.is_none() || is_explained[node] {
            continue;
        }
        if let Some(remote) = Remote::new(interval, &limits.memory_by_node, &tree.nodes()[node].ran) {
            tree.ancestors(node).chain([node]).for_each(|at| is_explained[at] = true);
            found.push((node, remote));
        }
    }
    found
}

/// A process with threads that move between nodes.
pub(crate) struct Bouncing {
    pub tgid: u32,
    /// Its busy threads.
    pub threads: u64,
    pub moves: u64,
    /// Moves of a thread a second.
    pub each: f64,
}

fn node_bouncing(context: &Context) -> Vec<Finding> {
    let interval = context.interval;
    let mut processes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for task in interval.tasks.iter().filter(|task| task.is_busy(interval.duration_ns)) {
        let (threads, moves) = processes.entry(task.reading.tgid).or_default();
        *threads += 1;
        sum::add(moves, task.placement.node_migrations.unwrap_or(0));
    }
    let bouncing = |(tgid, (threads, moves)): (u32, (u64, u64))| {
        let each = moves as f64 / threads as f64 * 1e9 / interval.duration_ns as f64;
        (moves >= NODE_MOVES && each >= NODE_MOVES_PER_SECOND as f64).then_some(Bouncing {
            tgid,
            threads,
            moves,
            each,
        })
    };
    let mut found: Vec<Bouncing> = processes.into_iter().filter_map(bouncing).collect();
    found.sort_by_key(|bouncing| Reverse(bouncing.moves));
    found.iter().take(SHOWN).map(|bouncing| words::node_bouncing(bouncing, interval)).collect()
}
