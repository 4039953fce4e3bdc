//! Tasks, memory and NUMA nodes: a node that is full beside one that idles, memory far from threads, threads that bounce.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{
    Finding, NODE_BUSY_PERCENT, NODE_IDLE_PERCENT, NODE_MOVES, NODE_MOVES_PER_SECOND, NODE_WAIT_NS,
    NODE_WAIT_PERCENT, REMOTE_ABOVE_EVEN_PERCENT, REMOTE_BYTES, REMOTE_PERCENT, REMOTE_RAN_PERCENT, Rule,
    context::Context,
    skew,
    words::{is_share, percent},
};
use crate::{
    Interval, ProcessMemory,
    nodes::{ByNode, NodeGroup, remote_share, total},
    placement::cpu_list,
    units,
};

/// So many processes or cgroups are told of for each rule, the worst first.
const TOLD: usize = 3;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let mut findings = remote_memory(context);
    findings.extend(node_bouncing(context));
    findings
}

/// What is wrong, and the node that is full.
pub(super) fn node_skew(context: &Context) -> Option<(Finding, u32)> {
    let nodes: Vec<NodeGroup> = context.interval.by_node_of(&context.tree.ran(context.interval));
    let with_cpus = || nodes.iter().filter(|node| !node.cpus.is_empty());
    let full = with_cpus().filter(|node| is_full(node)).max_by_key(|node| node.contended_ns())?;
    let idle = with_cpus().filter(|node| is_idle(node));
    let idle = idle.min_by_key(|node| node.busy_ns)?;
    let skew = skew::Skew::new(context, full, idle)?;
    let finding = Finding {
        rule: Rule::NodeSkew,
        cgroup: skew.cgroup().cloned(),
        says: format!(
            "{} was busy for {} of the time, with {:.1} tasks running or waiting on average, while {} was busy for {}: {}",
            named(full),
            busy(full),
            full.runnable_avg.unwrap_or_default(),
            named(idle),
            busy(idle),
            skew.who_and_why(),
        ),
        advice: skew.advice(),
        lost_ns: full.contended_ns(),
    };
    Some((finding, full.node))
}

fn is_full(node: &NodeGroup) -> bool {
    let (Some(busy_ns), Some(idle_ns)) = (node.busy_ns, node.idle_ns) else { return false };
    let waited_ns = node.contended_ns();
    is_share(busy_ns, busy_ns.saturating_add(idle_ns), NODE_BUSY_PERCENT)
        && waited_ns >= NODE_WAIT_NS
        && is_share(waited_ns, busy_ns, NODE_WAIT_PERCENT)
}

fn is_idle(node: &NodeGroup) -> bool {
    let (Some(busy_ns), Some(idle_ns)) = (node.busy_ns, node.idle_ns) else { return false };
    let all_ns = busy_ns.saturating_add(idle_ns);
    is_share(all_ns.saturating_sub(busy_ns), all_ns, 100 - NODE_IDLE_PERCENT)
}

fn named(node: &NodeGroup) -> String {
    format!("node {} (CPUs {})", node.node, cpu_list(&node.cpus))
}

fn busy(node: &NodeGroup) -> String {
    node.busy_percent().map_or_else(|| "no known share".into(), |percent| format!("{percent:.1}%"))
}

/// Of processes where their memory was asked for, else of cgroups.
fn remote_memory(context: &Context) -> Vec<Finding> {
    if !context.interval.memory.is_empty() {
        return remote_processes(context.interval);
    }
    let told = worst(remote_cgroups(context)).into_iter();
    told.map(|remote| {
        let path = context.path(remote.of);
        remote_finding(Some(path.clone()), format!("{path}: {}", remote.says()), None)
    })
    .collect()
}

fn remote_processes(interval: &Interval) -> Vec<Finding> {
    let remote = interval.memory.iter().filter_map(|memory| {
        let ran_ns = interval.ran_by_node(|task| task.tgid == memory.tgid);
        Remote::new(interval, memory, &memory.by_node, &ran_ns)
    });
    let told = worst(remote.collect()).into_iter();
    told.map(|remote| {
        let ProcessMemory { tgid, policies, .. } = remote.of;
        let policy = policies.iter().find(|(policy, _)| &**policy != "default");
        let policy = policy
            .map(|(policy, bytes)| format!("; {} of it by the memory policy {policy}", units::bytes(*bytes)));
        let (name, says) = (interval.process_name(*tgid), remote.says());
        let says = format!("process {tgid} ({name}): {says}{}", policy.unwrap_or_default());
        remote_finding(None, says, Some(*tgid))
    })
    .collect()
}

/// The lowest ones that have it; the root is no cgroup that somebody chose.
fn remote_cgroups<'a>(context: &Context<'a>) -> Vec<Remote<'a, usize>> {
    let Context { interval, tree, .. } = context;
    let with_memory = interval.limits.iter().filter(|limits| !limits.memory_by_node.is_empty());
    let mut limits: Vec<_> =
        with_memory.filter_map(|limits| Some((tree.find_id(interval, limits.id)?, limits))).collect();
    if limits.is_empty() {
        return Vec::new();
    }
    limits.sort_by_key(|(node, _)| Reverse(context.path(*node).len()));
    // True for each that is told of and those above it.
    let mut told = vec![false; tree.nodes().len()];
    let mut found = Vec::new();
    for (node, limits) in limits {
        if tree.nodes()[node].parent.is_none() || told[node] {
            continue;
        }
        if let Some(remote) = Remote::new(interval, node, &limits.memory_by_node, &tree.nodes()[node].ran) {
            told[node] = true;
            tree.ancestors(node).for_each(|above| told[above] = true);
            found.push(remote);
        }
    }
    found
}

/// Memory that is far from the threads that use it.
struct Remote<'a, T> {
    /// Whose it is.
    of: T,
    /// How much of it.
    share: f64,
    /// Where it is, bytes.
    memory: &'a [(u32, u64)],
    /// Where the threads ran, ns.
    ran: ByNode,
}

impl<'a, T> Remote<'a, T> {
    /// `None` below the threshold.
    fn new(interval: &Interval, of: T, memory: &'a [(u32, u64)], ran: &[(u32, u64)]) -> Option<Self> {
        if total(memory) < REMOTE_BYTES || !is_share(total(ran), interval.duration_ns, REMOTE_RAN_PERCENT) {
            return None;
        }
        let share = remote_share(memory, ran)?;
        let even = 1.0 - 1.0 / interval.nodes.len().max(1) as f64;
        let least = (REMOTE_PERCENT as f64).max(even * 100.0 + REMOTE_ABOVE_EVEN_PERCENT as f64);
        (share * 100.0 >= least).then_some(Self { of, share, memory, ran: ran.to_vec() })
    }

    fn says(&self) -> String {
        let (bytes, ran_ns) = (total(self.memory), total(&self.ran));
        // Neither is empty: both are past a threshold.
        let ((at, there), (node, ran_there_ns)) = (most(self.memory), most(&self.ran));
        format!(
            "{:.1}% of its memory is on another node than its threads: {} of its {} is on node {at}, and {} of its time it ran \
             on node {node}",
            self.share * 100.0,
            percent(there, bytes),
            units::bytes(bytes),
            percent(ran_there_ns, ran_ns),
        )
    }
}

fn worst<T>(mut found: Vec<Remote<T>>) -> Vec<Remote<T>> {
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found.truncate(TOLD);
    found
}

fn remote_finding(cgroup: Option<Arc<str>>, says: String, tgid: Option<u32>) -> Finding {
    let move_it = tgid.map(|tgid| format!(" (migratepages {tgid} FROM TO moves what is there)"));
    let advice = format!(
        "keep threads and memory on one node (numactl --cpunodebind=N --membind=N, or cpuset.cpus with cpuset.mems){}",
        move_it.unwrap_or_default()
    );
    Finding { rule: Rule::RemoteMemory, cgroup, says, advice, lost_ns: 0 }
}

fn node_bouncing(context: &Context) -> Vec<Finding> {
    let interval = context.interval;
    let mut processes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for task in interval.tasks.iter().filter(|task| task.is_busy(interval.duration_ns)) {
        let (threads, moves) = processes.entry(task.reading.tgid).or_default();
        *threads += 1;
        crate::sum::add(moves, task.placement.node_migrations.unwrap_or(0));
    }
    let each = |threads: u64, moves: u64| moves as f64 / threads as f64 * 1e9 / interval.duration_ns as f64;
    let mut found: Vec<_> = processes.into_iter().collect();
    found.retain(|(_, (threads, moves))| {
        *moves >= NODE_MOVES && each(*threads, *moves) >= NODE_MOVES_PER_SECOND as f64
    });
    found.sort_by_key(|(_, (_, moves))| Reverse(*moves));
    let told = found.into_iter().take(TOLD);
    told.map(|(tgid, (threads, moves))| bouncing(interval, tgid, threads, moves, each(threads, moves)))
        .collect()
}

fn bouncing(interval: &Interval, tgid: u32, threads: u64, moves: u64, each: f64) -> Finding {
    Finding {
        rule: Rule::NodeBouncing,
        cgroup: None,
        says: format!(
            "process {tgid} ({}): its {} came on another node {}, {each:.1} a second each, and each time left caches and \
             memory behind",
            interval.process_name(tgid),
            units::count(threads, "busy thread"),
            units::count(moves, "time"),
        ),
        advice: format!(
            "keep the process on one node (numactl --cpunodebind, a cpuset), or look at what wakes its threads from the other \
             one; kernel.numa_balancing and taskset -acp {tgid} tell who moves them"
        ),
        lost_ns: 0,
    }
}

/// The node that has the most.
fn most(amounts: &[(u32, u64)]) -> (u32, u64) {
    amounts.iter().copied().max_by_key(|(_, amount)| *amount).unwrap_or_default()
}
