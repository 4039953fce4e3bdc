//! Tasks, memory and NUMA nodes: a node that is full beside one that idles, memory far from threads, threads that bounce.

use std::collections::BTreeMap;

use super::{
    Finding, NODE_BUSY_PERCENT, NODE_IDLE_PERCENT, NODE_MOVES, NODE_MOVES_PER_SECOND, NODE_WAIT_NS,
    NODE_WAIT_PERCENT, REMOTE_ABOVE_EVEN_PERCENT, REMOTE_BYTES, REMOTE_PERCENT, REMOTE_RAN_PERCENT, Rule,
    context::Context,
    skew,
    words::{is_share, percent},
};
use crate::{
    Interval, ProcessMemory,
    nodes::{NodeGroup, remote_share, total},
    placement::cpu_list,
    selection::is_at_or_below,
    units,
};

/// So many processes or cgroups are told of for each rule, the worst first.
const TOLD: usize = 3;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let mut findings: Vec<Finding> = node_skew(context).into_iter().collect();
    findings.extend(remote_memory(context));
    findings.extend(node_bouncing(context));
    findings
}

fn node_skew(context: &Context) -> Option<Finding> {
    let nodes: Vec<NodeGroup> = context.interval.by_node();
    let with_cpus = || nodes.iter().filter(|node| !node.cpus.is_empty());
    let full = with_cpus().filter(|node| is_full(node)).max_by_key(|node| node.contended_ns())?;
    let idle = with_cpus().filter(|node| is_idle(node));
    let idle = idle.min_by_key(|node| node.busy_ns)?;
    let skew = skew::Skew::new(context, full, idle)?;
    Some(Finding {
        rule: Rule::NodeSkew,
        cgroup: None,
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
    })
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
    let interval = context.interval;
    let mut found: Vec<(f64, Finding)> = if interval.memory.is_empty() {
        remote_cgroups(interval)
    } else {
        interval.memory.iter().filter_map(|memory| remote_process(interval, memory)).collect()
    };
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().take(TOLD).map(|(_, finding)| finding).collect()
}

fn remote_process(interval: &Interval, memory: &ProcessMemory) -> Option<(f64, Finding)> {
    let ran_ns = interval.ran_by_node(|task| task.tgid == memory.tgid);
    let (share, says) = remote_words(interval, &memory.by_node, &ran_ns)?;
    let policy = memory.policies.iter().find(|(policy, _)| &**policy != "default");
    let policy = policy
        .map(|(policy, bytes)| format!("; {} of it by the memory policy {policy}", units::bytes(*bytes)));
    let says = format!(
        "process {} ({}): {says}{}",
        memory.tgid,
        interval.process_name(memory.tgid),
        policy.unwrap_or_default()
    );
    Some((share, remote_finding(None, says, Some(memory.tgid))))
}

/// The lowest ones that have it; the root is no cgroup that somebody chose.
fn remote_cgroups(interval: &Interval) -> Vec<(f64, Finding)> {
    let with_memory = interval.limits.iter().filter(|limits| !limits.memory_by_node.is_empty());
    let mut limits: Vec<_> =
        with_memory.filter_map(|limits| Some((interval.cgroup_path(limits.id)?, limits))).collect();
    if limits.is_empty() {
        return Vec::new();
    }
    let ran = interval.ran_by_cgroup();
    limits.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    let mut told: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for (path, limits) in limits {
        if &**path == "/" || told.iter().any(|below| is_at_or_below(below, path)) {
            continue;
        }
        let words = ran.get(path).and_then(|ran| remote_words(interval, &limits.memory_by_node, ran));
        if let Some((share, says)) = words {
            told.push(path);
            found.push((share, remote_finding(Some(path.clone()), format!("{path}: {says}"), None)));
        }
    }
    found
}

/// How remote, where it is past the threshold, and that in words.
fn remote_words(interval: &Interval, memory: &[(u32, u64)], ran: &[(u32, u64)]) -> Option<(f64, String)> {
    let (bytes, ran_ns) = (total(memory), total(ran));
    if bytes < REMOTE_BYTES || !is_share(ran_ns, interval.duration_ns, REMOTE_RAN_PERCENT) {
        return None;
    }
    let share = remote_share(memory, ran)?;
    let even = 1.0 - 1.0 / interval.nodes.len().max(1) as f64;
    let least = (REMOTE_PERCENT as f64).max(even * 100.0 + REMOTE_ABOVE_EVEN_PERCENT as f64);
    if share * 100.0 < least {
        return None;
    }
    let (at, there) = most(memory)?;
    let (node, ran_there_ns) = most(ran)?;
    Some((
        share,
        format!(
            "{:.1}% of its memory is on another node than its threads: {} of its {} is on node {at}, and {} of its time it ran \
             on node {node}",
            share * 100.0,
            percent(there, bytes),
            units::bytes(bytes),
            percent(ran_there_ns, ran_ns),
        ),
    ))
}

fn remote_finding(cgroup: Option<std::sync::Arc<str>>, says: String, tgid: Option<u32>) -> Finding {
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
    let mut found: Vec<(u64, Finding)> = processes
        .into_iter()
        .filter_map(|(tgid, (threads, moves))| {
            let each = moves as f64 / threads as f64 * 1e9 / interval.duration_ns as f64;
            (moves >= NODE_MOVES && each >= NODE_MOVES_PER_SECOND as f64)
                .then(|| (moves, bouncing(interval, tgid, threads, moves, each)))
        })
        .collect();
    found.sort_by_key(|(moves, _)| std::cmp::Reverse(*moves));
    found.into_iter().take(TOLD).map(|(_, finding)| finding).collect()
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

fn most(amounts: &[(u32, u64)]) -> Option<(u32, u64)> {
    amounts.iter().copied().max_by_key(|(_, amount)| *amount)
}
