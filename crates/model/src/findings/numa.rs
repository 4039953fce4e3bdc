//! Rules about NUMA: a full node beside an idle node, memory far from its threads, threads that move between nodes.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use itertools::Itertools;

use crate::{
    Interval, ProcessMemory, TaskInterval,
    findings::{Context, Finding, Rule, finding, is_much, is_share, leaf, most},
    nodes::{NodeGroup, remote_share},
    placement::{amount, cpu_list, parse_cpu_list, total},
    sum,
    tree::Node,
    units::{bytes, count},
    words::{list, percent},
};

/// A node is full if its CPUs were busy for at least this share of the time, percent, and tasks waited for these CPUs. The
/// waiting must reach this share of the busy time, percent (every busy CPU has short queues), and this total time.
pub(super) const NODE_BUSY_PERCENT: u64 = 90;
pub(super) const NODE_WAIT_PERCENT: u64 = 10;
pub(super) const NODE_WAIT_NS: u64 = 10_000_000;
/// A node is idle if its CPUs were busy for at most this share of the time, percent. The scheduler spreads tasks within a few
/// ticks, so the nodes usually differ by less over an interval.
pub(super) const NODE_IDLE_PERCENT: u64 = 30;
/// A finding names a process with at least this share of the activity on a full node, percent. Otherwise it names a cgroup with
/// at least this share, or else the most active process.
const NAMED_PERCENT: u64 = 50;
/// Memory is far from its threads if at least this share of it is on other nodes, percent. The share must also exceed the share
/// of evenly spread memory by this many percentage points, because an even spread is deliberate.
pub(super) const REMOTE_PERCENT: u64 = 50;
pub(super) const REMOTE_ABOVE_EVEN_PERCENT: u64 = 5;
/// Smaller memory fits in caches.
pub(super) const REMOTE_BYTES: u64 = 16 << 20;
/// Minimum run time of the threads, percent of one CPU.
pub(super) const REMOTE_RAN_PERCENT: u64 = 10;
/// Threads move too often from this many moves per second on, averaged over the busy threads: refilling the caches takes
/// milliseconds. The total must also reach this number of moves: fewer may be the start of a program.
pub(super) const NODE_MOVES_PER_SECOND: u64 = 10;
pub(super) const NODE_MOVES: u64 = 20;
/// Maximum number of findings of each rule. The worst processes or cgroups are kept.
const SHOWN: usize = 3;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let mut findings = remote_memory(context);
    findings.extend(node_bouncing(context));
    findings.extend(node_skew(context).map(|(finding, _)| finding));
    findings
}

/// Returns the finding and the full node. `None` also if no task is known to have been on a full node.
pub(super) fn node_skew(context: &Context) -> Option<(Finding, u32)> {
    let interval = context.interval;
    let nodes = interval.by_node();
    let with_cpus = || nodes.iter().filter(|node| !node.cpus.is_empty());
    let full = with_cpus().filter(|node| is_full(node)).max_by_key(|node| node.wait.contended_ns())?;
    let idle = with_cpus()
        .filter(|node| is_busy(node.busy_ns, node.idle_ns) == Some(false))
        .min_by_key(|node| node.busy_ns)?;
    let there = interval.tasks.iter().filter_map(|task| {
        let (ran_ns, waited_ns) = activity(task, full.node);
        (ran_ns.max(waited_ns) != 0).then_some((task, ran_ns, ran_ns.saturating_add(waited_ns)))
    });
    let tasks: Vec<_> = there.collect();
    // A user cannot move a kernel thread that is bound to a CPU.
    let movable: Vec<_> = tasks.iter().filter(|(task, ..)| !task.is_bound()).copied().collect();
    let (process, user) = user(context, &movable)?;
    let cgroup_of = |task: &TaskInterval| interval.cgroup_path(task.reading.cgroup_id);
    let is_one = |task: &TaskInterval| match process {
        Some(tgid) => task.reading.tgid == tgid,
        None => cgroup_of(task) == user,
    };
    let sums = |which: &dyn Fn(&TaskInterval) -> bool| {
        let tasks = || tasks.iter().filter(|(task, ..)| which(task));
        (sum::total(tasks().map(|task| task.1)), sum::total(tasks().map(|task| task.2)))
    };
    let (ran_ns, active_ns) = sums(&is_one);
    let (mut all_ran_ns, mut all_active_ns) = sums(&|_| true);
    if interval.is_selection {
        // Tasks outside the selection are unknown. Their time shows only in the busy time and waiting of the CPUs.
        all_ran_ns = all_ran_ns.max(full.busy_ns.unwrap_or(0));
        all_active_ns = all_active_ns.max(all_ran_ns.saturating_add(full.wait.contended_ns()));
    }
    let busy = movable.iter().filter(|(task, ..)| is_one(task) && task.is_busy(interval.duration_ns));
    let threads: Vec<_> = busy.map(|(task, _, active_ns)| (*task, *active_ns)).collect();
    let cgroup = user.or_else(|| cgroup_of(threads.first()?.0));
    let (who, filler) = match process {
        Some(pid) => {
            let process = process_words(interval, pid);
            let of = cgroup.map(|path| format!(" of {}", interval.names.of(path))).unwrap_or_default();
            (format!("{process}{of}"), process)
        }
        None => {
            let path = cgroup.map_or("/", |path| path);
            (interval.names.of(path).into_owned(), leaf(&interval.names, path))
        }
    };
    let named = |node: &NodeGroup| format!("node {} (CPUs {})", node.node, cpu_list(&node.cpus));
    let busy = |node: &NodeGroup| format!("{:.1}%", node.busy_percent().unwrap_or_default());
    let (why, advice) = hold(interval, full, idle, process, &threads);
    let says = format!(
        "{} was busy {} of the time, with {:.1} tasks running or waiting on average; {} was busy {}; on node {}, {who} has {} \
         and takes {} of the node's run time ({} of its run and wait time together); {why}",
        named(full),
        busy(full),
        full.runnable_avg.unwrap_or_default(),
        named(idle),
        busy(idle),
        full.node,
        count(threads.len() as u64, "busy thread"),
        percent(ran_ns, all_ran_ns),
        percent(active_ns, all_active_ns),
    );
    let short = (
        format!("{filler} fills node {} while node {} has idle CPUs", full.node, idle.node),
        format!("busy {} and {}", busy(full), busy(idle)),
        format!("let its threads use node {}, too", idle.node),
    );
    Some((finding(Rule::NodeSkew, cgroup, full.wait.contended_ns(), short, says, advice), full.node))
}

fn is_full(node: &NodeGroup) -> bool {
    is_busy(node.busy_ns, node.idle_ns) == Some(true)
        && is_much(node.wait.contended_ns(), NODE_WAIT_NS, node.busy_ns.unwrap_or(0), NODE_WAIT_PERCENT)
}

/// True for busy CPUs, false for idle ones; `None`: between the two thresholds, or unknown.
pub(super) fn is_busy(busy_ns: Option<u64>, idle_ns: Option<u64>) -> Option<bool> {
    let (busy_ns, idle_ns) = busy_ns.zip(idle_ns)?;
    let all_ns = busy_ns.saturating_add(idle_ns);
    let is_idle = || is_share(idle_ns, all_ns, 100 - NODE_IDLE_PERCENT).then_some(false);
    is_share(busy_ns, all_ns, NODE_BUSY_PERCENT).then_some(true).or_else(is_idle)
}

/// The reason why threads stay on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    Mask,
    Cpuset { path: Arc<str>, cpus: Arc<str> },
    Nothing,
    Unknown,
}

/// Returns a task's running and waiting time on a node, ns, without time at a limit. Waits are split in proportion to run time.
fn activity(task: &TaskInterval, node: u32) -> (u64, u64) {
    let waited_ns = task.wait.contended_ns();
    let ran = task.ran_by_node();
    let all_ns = total(&ran);
    let ran_ns = amount(&ran, node);
    if all_ns == 0 {
        return (0, if task.reading.node == Some(node) { waited_ns } else { 0 });
    }
    (ran_ns, (u128::from(waited_ns) * u128::from(ran_ns) / u128::from(all_ns)) as u64)
}

/// Returns the process, or else the cgroup, with most of the activity of these tasks.
fn user<'a>(
    context: &Context<'a>,
    tasks: &[(&TaskInterval, u64, u64)],
) -> Option<(Option<u32>, Option<&'a Arc<str>>)> {
    let all_ns = sum::total(tasks.iter().map(|(.., active_ns)| *active_ns));
    let cgroups = tasks.iter().filter_map(|(task, _, active_ns)| {
        let path = context.interval.cgroup_path(task.reading.cgroup_id)?;
        (&**path != "/").then_some((path, *active_ns))
    });
    let (tgid, ns) = most(tasks.iter().map(|(task, _, active_ns)| (task.reading.tgid, *active_ns)))?;
    let cgroup = most(cgroups).filter(|(_, ns)| is_share(*ns, all_ns, NAMED_PERCENT));
    Some(match cgroup.filter(|_| !is_share(ns, all_ns, NAMED_PERCENT)) {
        Some((path, _)) => (None, Some(path)),
        None => (Some(tgid), None),
    })
}

/// Returns the reason why a task does not use any of these idle CPUs.
pub(super) fn hold_of(task: &TaskInterval, idle_cpus: &[u32]) -> Hold {
    let placement = task.reading.placement.as_deref();
    let leaves_out = |cpus: &str| Some(!parse_cpu_list(cpus)?.iter().any(|cpu| idle_cpus.contains(cpu)));
    match placement.and_then(|placement| leaves_out(placement.cpus_allowed.as_deref()?)) {
        None => Hold::Unknown,
        Some(false) => Hold::Nothing,
        Some(true) => {
            let cpuset = placement.and_then(|placement| placement.cpuset.as_deref());
            match cpuset.filter(|cpuset| leaves_out(&cpuset.cpus) == Some(true)) {
                Some(cpuset) => Hold::Cpuset { path: cpuset.path.clone(), cpus: cpuset.cpus.clone() },
                None => Hold::Mask,
            }
        }
    }
}

/// Reports processes if their memory was read, otherwise cgroups.
fn remote_memory(context: &Context) -> Vec<Finding> {
    let interval = context.interval;
    let found: Vec<(f64, Finding)> = if interval.memory.is_empty() {
        remote_cgroups(context)
    } else {
        interval.memory.iter().filter_map(|memory| remote_process(interval, memory)).collect()
    };
    let found = found.into_iter().sorted_by(|(a, _), (b, _)| b.total_cmp(a));
    found.take(SHOWN).map(|(_, finding)| finding).collect()
}

/// Reports the lowest cgroups with far memory, except the root, because nobody chose the root's placement.
fn remote_cgroups(context: &Context) -> Vec<(f64, Finding)> {
    let Context { interval, tree, .. } = context;
    let with_memory = interval.limits.iter().filter(|limits| !limits.memory_by_node.is_empty());
    let limits = with_memory.filter_map(|limits| Some((tree.find_id(interval, limits.id)?, limits)));
    let limits = limits.sorted_by_key(|(node, _)| Reverse(context.path(*node).len()));
    let mut is_explained = vec![false; tree.nodes().len()];
    let mut found = Vec::new();
    for (node, limits) in limits {
        let Node { parent, path, ran, .. } = &tree.nodes()[node];
        if parent.is_none() || is_explained[node] {
            continue;
        }
        if let Some(remote) = remote(interval, Some(path), &limits.memory_by_node, ran, "") {
            tree.ancestors(node).chain([node]).for_each(|at| is_explained[at] = true);
            found.push(remote);
        }
    }
    found
}

fn remote_process(interval: &Interval, memory: &ProcessMemory) -> Option<(f64, Finding)> {
    let ProcessMemory { tgid, by_node, policies } = memory;
    let ran_ns = interval.ran_by_node(|task| task.tgid == *tgid);
    let move_it = format!("; to move the memory it has now, run migratepages {tgid} FROM TO");
    let (share, finding) = remote(interval, None, by_node, &ran_ns, &move_it)?;
    let policy = policies.iter().find(|(policy, _)| &**policy != "default");
    let policy = policy.map_or_else(String::new, |(policy, size)| {
        format!("; the memory policy {policy} covers {}", bytes(*size))
    });
    let process = process_words(interval, *tgid);
    let what = format!("{process} {}", finding.what);
    Some((share, Finding { what, says: format!("{process}: {}{policy}", finding.says), ..finding }))
}

/// Returns the share of far memory with its finding; `None` below the thresholds. `memory`: bytes; `ran`: ns; both by node.
fn remote(
    interval: &Interval,
    cgroup: Option<&Arc<str>>,
    memory: &[(u32, u64)],
    ran: &[(u32, u64)],
    move_it: &str,
) -> Option<(f64, Finding)> {
    let (size, ran_ns) = (total(memory), total(ran));
    if size < REMOTE_BYTES || !is_share(ran_ns, interval.duration_ns, REMOTE_RAN_PERCENT) {
        return None;
    }
    let share = remote_share(memory, ran)?;
    let even = 1.0 - 1.0 / interval.nodes.len().max(1) as f64;
    if share * 100.0 < (REMOTE_PERCENT as f64).max(even * 100.0 + REMOTE_ABOVE_EVEN_PERCENT as f64) {
        return None;
    }
    let most = |amounts: &[(u32, u64)]| amounts.iter().copied().max_by_key(|(_, amount)| *amount);
    let ((at, there), (node, ran_there_ns)) = (most(memory)?, most(ran)?);
    let far = format!("{:.1}%", share * 100.0);
    let says = format!(
        "{far} of its memory is on another node than its threads; {} of {} is on node {at}; the threads spent {} of their run \
         time on node {node}",
        percent(there, size),
        bytes(size),
        percent(ran_there_ns, ran_ns),
    );
    let advice = format!(
        "keep threads and memory on one node (numactl --cpunodebind=N --membind=N, or cpuset.cpus with cpuset.mems){move_it}"
    );
    let action = "keep threads and memory on one node (numactl --cpunodebind=N --membind=N)";
    let short = ("runs far from its memory", format!("{far} is on another node"), action);
    Some((share, finding(Rule::RemoteMemory, cgroup, 0, short, says, advice)))
}

fn node_bouncing(context: &Context) -> Vec<Finding> {
    let interval = context.interval;
    let mut processes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for task in interval.tasks.iter().filter(|task| task.is_busy(interval.duration_ns)) {
        let (threads, moves) = processes.entry(task.reading.tgid).or_default();
        *threads += 1;
        sum::add(moves, task.placement.node_migrations.unwrap_or(0));
    }
    let each = |threads: u64, moves: u64| moves as f64 / threads as f64 * 1e9 / interval.duration_ns as f64;
    let found = processes.into_iter().filter(|(_, (threads, moves))| {
        *moves >= NODE_MOVES && each(*threads, *moves) >= NODE_MOVES_PER_SECOND as f64
    });
    let found = found.sorted_by_key(|(_, (_, moves))| Reverse(*moves));
    let bouncing = |(tgid, (threads, moves))| {
        let (process, each) = (process_words(interval, tgid), each(threads, moves));
        let says = format!(
            "{process}: its {} moved to another node {} ({each:.1} times a second per thread); each move leaves caches and memory \
             behind",
            count(threads, "busy thread"),
            count(moves, "time"),
        );
        let advice = format!(
            "keep the process on one node (numactl --cpunodebind, or a cpuset); otherwise find out what moves the threads: check \
             kernel.numa_balancing, their affinity (taskset -acp {tgid}), and tasks on other nodes that wake them"
        );
        let (what, amount) =
            (format!("{process} moves between NUMA nodes"), format!("{each:.1} moves/s per thread"));
        let short = (what, amount, "keep it on one node (numactl --cpunodebind, a cpuset)");
        finding(Rule::NodeBouncing, None, 0, short, says, advice)
    };
    found.into_iter().take(SHOWN).map(bouncing).collect()
}

pub(super) fn process_words(interval: &Interval, pid: u32) -> String {
    format!("process {pid} ({})", interval.process_name(pid))
}

/// Maximum number of named affinity masks.
const MASKS: usize = 4;
/// Memory is named as a reason if at least this share of it is on the full node, percent.
const MEMORY_PERCENT: u64 = 80;

/// Returns the reason why the threads stay on the full node, and what to do about it. `threads`: with their activity, ns.
fn hold(
    interval: &Interval,
    full: &NodeGroup,
    idle: &NodeGroup,
    process: Option<u32>,
    threads: &[(&TaskInterval, u64)],
) -> (String, String) {
    let both = full.cpus.iter().chain(&idle.cpus).copied().sorted_unstable().collect_vec();
    let (node, both) = (idle.node, cpu_list(&both));
    let pid = threads.first().map_or_else(|| "PID".into(), |(task, _)| task.reading.tgid.to_string());
    let holds = threads.iter().map(|(task, active_ns)| (hold_of(task, &idle.cpus), *active_ns));
    match most(holds).map_or(Hold::Unknown, |(hold, _)| hold) {
        Hold::Mask => {
            let masks = threads.iter().filter_map(|(task, active_ns)| {
                let mask = task.reading.placement.as_deref()?.cpus_allowed.as_deref()?;
                (!mask.is_empty()).then_some((mask, *active_ns))
            });
            let masks = sum::tally(masks).into_iter().sorted_by_key(|(_, ns)| Reverse(*ns));
            let masks: Vec<&str> = masks.take(MASKS).map(|(mask, _)| mask).collect();
            let (noun, verb) = if masks.len() == 1 { ("mask", "leaves") } else { ("masks", "leave") };
            (
                format!("the affinity {noun} {} of the threads {verb} out node {node}", list(&masks)),
                format!(
                    "let the threads use node {node}, too (taskset -acp {both} {pid}), or start at most {} (one for each CPU of \
                     node {})",
                    count(full.cpus.len() as u64, "thread"),
                    full.node,
                ),
            )
        }
        Hold::Cpuset { path, cpus } => {
            let name = interval.names.of(&path);
            (
                format!("the cpuset of {name} (cpuset.cpus {cpus}) leaves out node {node}"),
                format!("let {name} use CPUs of node {node}, too (cpuset.cpus {both})"),
            )
        }
        Hold::Nothing => (
            format!(
                "no affinity mask and no cpuset keeps the threads on node {}{}",
                full.node,
                held_by_memory(interval, process, full.node).unwrap_or_default()
            ),
            format!(
                "check where the memory is (--memory; numastat -p {pid}), the setting kernel.numa_balancing, and whether CPUs {} \
                 are isolated (/sys/devices/system/cpu/isolated)",
                cpu_list(&idle.cpus),
            ),
        ),
        Hold::Unknown => (
            format!(
                "it is not known whether an affinity mask or a cpuset keeps the threads on node {}",
                full.node
            ),
            format!(
                "check the affinity (taskset -acp {pid}) and the cpuset (/proc/{pid}/cpuset) of the threads"
            ),
        ),
    }
}

fn held_by_memory(interval: &Interval, process: Option<u32>, node: u32) -> Option<String> {
    let memory = interval.memory.iter().find(|memory| Some(memory.tgid) == process)?;
    let (there, all) = (amount(&memory.by_node, node), total(&memory.by_node));
    let policy = memory.policies.first().filter(|(policy, _)| &**policy != "default");
    let policy = policy.map(|(policy, _)| format!(" (memory policy {policy})")).unwrap_or_default();
    is_share(there, all, MEMORY_PERCENT)
        .then(|| format!(", but {} of the memory is on this node{policy}", percent(there, all)))
}
