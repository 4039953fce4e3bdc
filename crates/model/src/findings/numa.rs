//! Rules about NUMA: a full node beside an idle node, memory far from its threads, threads that move between nodes.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use crate::{
    Interval, ProcessMemory, TaskInterval,
    findings::{Context, Finding, Rule, Short, about, finding, is_much, is_share, leaf, most},
    nodes::{NodeGroup, remote_share},
    placement::{ByNode, amount, cpu_list, parse_cpu_list, total},
    sum,
    units::{bytes, count},
    words::{list, percent},
};

/// A node is full if its CPUs were busy for at least this share of the time, percent, and tasks waited for these CPUs. The
/// waiting must reach this share of the busy time, percent (every busy CPU has short queues), and this total time.
pub(super) const NODE_BUSY_PERCENT: u64 = 90;
const NODE_WAIT_PERCENT: u64 = 10;
const NODE_WAIT_NS: u64 = 10_000_000;
/// A node is idle if its CPUs were busy for at most this share of the time, percent. The scheduler spreads tasks within a few
/// ticks, so the nodes usually differ by less over an interval.
pub(super) const NODE_IDLE_PERCENT: u64 = 30;
/// A finding names a process with at least this share of the activity on a full node, percent. Otherwise it names a cgroup with
/// at least this share, or else the most active process.
const NAMED_PERCENT: u64 = 50;
/// Memory is far from its threads if at least this share of it is on other nodes, percent. The share must also exceed the share
/// of evenly spread memory by this many percentage points, because an even spread is deliberate.
const REMOTE_PERCENT: u64 = 50;
const REMOTE_ABOVE_EVEN_PERCENT: u64 = 5;
/// Smaller memory fits in caches.
const REMOTE_BYTES: u64 = 16 << 20;
/// Minimum run time of the threads, percent of one CPU.
const REMOTE_RAN_PERCENT: u64 = 10;
/// Threads move too often from this many moves per second on, averaged over the busy threads: refilling the caches takes
/// milliseconds. The total must also reach this number of moves: fewer may be the start of a program.
const NODE_MOVES_PER_SECOND: u64 = 10;
const NODE_MOVES: u64 = 20;
/// Maximum number of findings of each rule. The worst processes or cgroups are kept.
const SHOWN: usize = 3;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let mut findings = remote_memory(context);
    findings.extend(node_bouncing(context));
    findings.extend(node_skew(context).map(|(finding, _)| finding));
    findings
}

/// Returns the finding and the full node.
pub(super) fn node_skew(context: &Context) -> Option<(Finding, u32)> {
    let nodes: Vec<NodeGroup> = context.interval.by_node_of(&context.tree.ran(context.interval));
    let with_cpus = || nodes.iter().filter(|node| !node.cpus.is_empty());
    let full = with_cpus().filter(|node| is_full(node)).max_by_key(|node| node.contended_ns())?;
    let idle = with_cpus().filter(|node| is_idle(node)).min_by_key(|node| node.busy_ns)?;
    Some((node_skew_finding(&Skew::new(context, full, idle)?), full.node))
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

/// The reason why threads stay on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    Mask,
    Cpuset { path: Arc<str>, cpus: Arc<str> },
    Nothing,
    Unknown,
}

pub(crate) struct Skew<'a> {
    pub context: &'a Context<'a>,
    pub full: &'a NodeGroup,
    pub idle: &'a NodeGroup,
    /// The process with most of the activity on the full node; `None`: `cgroup` has most of it.
    pub process: Option<u32>,
    pub cgroup: Option<&'a Arc<str>>,
    /// The busy threads of the process or cgroup on the full node, each with its running and waiting time there, ns.
    pub threads: Vec<(&'a TaskInterval, u64)>,
    /// Time of the process or cgroup, and of all tasks, on the full node, ns. `ran_of`: running; `active_of`: running or waiting.
    pub ran_of: (u64, u64),
    pub active_of: (u64, u64),
    pub hold: Hold,
}

impl<'a> Skew<'a> {
    /// Returns `None` if no task is known to have been on the full node.
    fn new(context: &'a Context<'a>, full: &'a NodeGroup, idle: &'a NodeGroup) -> Option<Self> {
        let there = |task: &'a TaskInterval| {
            let (ran_ns, waited_ns) = activity(task, full.node);
            (ran_ns.max(waited_ns) != 0).then_some((task, ran_ns, ran_ns.saturating_add(waited_ns)))
        };
        let tasks: Vec<_> = context.interval.tasks.iter().filter_map(there).collect();
        // A user cannot move a kernel thread that is bound to a CPU.
        let movable: Vec<_> = tasks.iter().filter(|(task, ..)| !task.is_bound()).copied().collect();
        let (process, user) = user(context, &movable)?;
        let cgroup_of = |task: &TaskInterval| context.interval.cgroup_path(task.reading.cgroup_id);
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
        if context.interval.is_selection {
            // Tasks outside the selection are unknown. Their time shows only in the busy time and waiting of the CPUs.
            all_ran_ns = all_ran_ns.max(full.busy_ns.unwrap_or(0));
            all_active_ns = all_active_ns.max(all_ran_ns.saturating_add(full.contended_ns()));
        }
        let is_movable = |task: &TaskInterval| !task.is_bound() && task.is_busy(context.interval.duration_ns);
        let threads = tasks.iter().filter(|(task, ..)| is_one(task) && is_movable(task));
        let threads: Vec<_> = threads.map(|(task, _, active_ns)| (*task, *active_ns)).collect();
        let holds = threads.iter().map(|(task, active_ns)| (hold_of(task, &idle.cpus), *active_ns));
        let hold = most(holds).map_or(Hold::Unknown, |(hold, _)| hold);
        let cgroup = user.or_else(|| cgroup_of(threads.first()?.0));
        let (ran_of, active_of) = ((ran_ns, all_ran_ns), (active_ns, all_active_ns));
        Some(Self { context, full, idle, process, cgroup, threads, ran_of, active_of, hold })
    }

    /// Returns the distinct affinity masks of the threads, the most active first.
    pub fn masks(&self) -> Vec<&'a str> {
        let masks = self.threads.iter().filter_map(|(task, active_ns)| {
            let mask = task.reading.placement.as_deref()?.cpus_allowed.as_deref()?;
            (!mask.is_empty()).then_some((mask, *active_ns))
        });
        let mut masks: Vec<_> = sum::tally(masks).into_iter().collect();
        masks.sort_by_key(|(_, ns)| Reverse(*ns));
        masks.into_iter().map(|(mask, _)| mask).collect()
    }
}

/// Returns a task's running and waiting time on a node, ns, without time at a limit. Waits are split in proportion to run time.
fn activity(task: &TaskInterval, node: u32) -> (u64, u64) {
    let waited_ns = task.wait.total_ns.saturating_sub(task.wait.by_cause.limited_ns());
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

pub(crate) struct FarMemory<'a> {
    pub share: f64,
    /// Memory on each node, bytes.
    pub memory: &'a [(u32, u64)],
    /// Run time of the threads on each node, ns.
    pub ran: ByNode,
}

impl<'a> FarMemory<'a> {
    /// Returns `None` below the thresholds.
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

/// Reports processes if their memory was read, otherwise cgroups.
fn remote_memory(context: &Context) -> Vec<Finding> {
    let interval = context.interval;
    let mut found: Vec<(f64, Finding)> = if interval.memory.is_empty() {
        let cgroup = |(node, remote): (usize, FarMemory)| {
            (remote.share, remote_cgroup_finding(&remote, context.path(node)))
        };
        remote_cgroups(context).into_iter().map(cgroup).collect()
    } else {
        let processes = interval.memory.iter().filter_map(|memory| {
            let ran_ns = interval.ran_by_node(|task| task.tgid == memory.tgid);
            let remote = FarMemory::new(interval, &memory.by_node, &ran_ns)?;
            Some((remote.share, remote_process_finding(&remote, memory, interval)))
        });
        processes.collect()
    };
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found.into_iter().take(SHOWN).map(|(_, finding)| finding).collect()
}

/// Returns the lowest cgroups with far memory, except the root, because nobody chose the root's placement.
fn remote_cgroups<'a>(context: &Context<'a>) -> Vec<(usize, FarMemory<'a>)> {
    let Context { interval, tree, .. } = context;
    let with_memory = interval.limits.iter().filter(|limits| !limits.memory_by_node.is_empty());
    let mut limits: Vec<_> =
        with_memory.filter_map(|limits| Some((tree.find_id(interval, limits.id)?, limits))).collect();
    limits.sort_by_key(|(node, _)| Reverse(context.path(*node).len()));
    let mut is_explained = vec![false; tree.nodes().len()];
    let mut found = Vec::new();
    for (node, limits) in limits {
        if tree.nodes()[node].parent.is_none() || is_explained[node] {
            continue;
        }
        if let Some(remote) = FarMemory::new(interval, &limits.memory_by_node, &tree.nodes()[node].ran) {
            tree.ancestors(node).chain([node]).for_each(|at| is_explained[at] = true);
            found.push((node, remote));
        }
    }
    found
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
    let mut found: Vec<_> = processes.into_iter().collect();
    found.retain(|(_, (threads, moves))| {
        *moves >= NODE_MOVES && each(*threads, *moves) >= NODE_MOVES_PER_SECOND as f64
    });
    found.sort_by_key(|(_, (_, moves))| Reverse(*moves));
    let words = |(tgid, (threads, moves))| {
        node_bouncing_finding(interval, tgid, threads, moves, each(threads, moves))
    };
    found.into_iter().take(SHOWN).map(words).collect()
}

/// Maximum number of named affinity masks.
const MASKS: usize = 4;
/// Memory is named as a reason if at least this share of it is on the full node, percent.
const MEMORY_PERCENT: u64 = 80;

fn node_skew_finding(skew: &Skew) -> Finding {
    let Skew { full, idle, .. } = skew;
    let named = |node: &NodeGroup| format!("node {} (CPUs {})", node.node, cpu_list(&node.cpus));
    let busy = |node: &NodeGroup| match node.busy_percent() {
        Some(percent) => format!("{percent:.1}%"),
        None => "no known share".into(),
    };
    let names = &skew.context.interval.names;
    let who = match (skew.process, skew.cgroup) {
        (Some(tgid), cgroup) => {
            let cgroup = cgroup.map(|path| format!(" of {}", names.of(path))).unwrap_or_default();
            format!("process {tgid} ({}){cgroup}", skew.context.interval.process_name(tgid))
        }
        (None, cgroup) => cgroup.map_or_else(String::new, |path| names.of(path).into()),
    };
    let filler = match (skew.process, skew.cgroup) {
        (Some(tgid), _) => format!("process {tgid} ({})", skew.context.interval.process_name(tgid)),
        (None, cgroup) => leaf(names, cgroup.map_or("/", |path| path)),
    };
    let (why, advice) = hold(skew);
    let says = format!(
        "{} was busy {} of the time, with {:.1} tasks running or waiting on average; {} was busy {}; on node {}, {who} has {} \
         and takes {} of the node's run time ({} of its run and wait time together); {why}",
        named(full),
        busy(full),
        full.runnable_avg.unwrap_or_default(),
        named(idle),
        busy(idle),
        full.node,
        count(skew.threads.len() as u64, "busy thread"),
        percent(skew.ran_of.0, skew.ran_of.1),
        percent(skew.active_of.0, skew.active_of.1),
    );
    let short = Short::new(
        format!("{filler} fills node {} while node {} has idle CPUs", full.node, idle.node),
        format!("busy {} and {}", busy(full), busy(idle)),
        format!("let its threads use node {}, too", idle.node),
    );
    Finding {
        cgroup: skew.cgroup.cloned(),
        ..finding(Rule::NodeSkew, full.contended_ns(), short, says, advice)
    }
}

/// Returns the reason why the threads stay on the node, and what to do about it.
fn hold(skew: &Skew) -> (String, String) {
    let Skew { full, idle, .. } = skew;
    let mut both: Vec<u32> = full.cpus.iter().chain(&idle.cpus).copied().collect();
    both.sort_unstable();
    let (node, both) = (idle.node, cpu_list(&both));
    let pid = skew.threads.first().map_or_else(|| "PID".into(), |(task, _)| task.reading.tgid.to_string());
    match &skew.hold {
        Hold::Mask => {
            let mut masks = skew.masks();
            masks.truncate(MASKS);
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
            let name = skew.context.interval.names.of(path);
            (
                format!("the cpuset of {name} (cpuset.cpus {cpus}) leaves out node {node}"),
                format!("let {name} use CPUs of node {node}, too (cpuset.cpus {both})"),
            )
        }
        Hold::Nothing => (
            format!(
                "no affinity mask and no cpuset keeps the threads on node {}{}",
                full.node,
                held_by_memory(skew).unwrap_or_default()
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

fn held_by_memory(skew: &Skew) -> Option<String> {
    let memory = skew.context.interval.memory.iter().find(|memory| Some(memory.tgid) == skew.process)?;
    let (there, all) = (amount(&memory.by_node, skew.full.node), total(&memory.by_node));
    let policy = memory.policies.first().filter(|(policy, _)| &**policy != "default");
    let policy = policy.map(|(policy, _)| format!(" (memory policy {policy})")).unwrap_or_default();
    is_share(there, all, MEMORY_PERCENT)
        .then(|| format!(", but {} of the memory is on this node{policy}", percent(there, all)))
}

fn remote_cgroup_finding(remote: &FarMemory, path: &Arc<str>) -> Finding {
    about(path, remote_memory_finding(remote, ""))
}

fn remote_process_finding(remote: &FarMemory, memory: &ProcessMemory, interval: &Interval) -> Finding {
    let ProcessMemory { tgid, policies, .. } = memory;
    let finding = remote_memory_finding(
        remote,
        &format!("; to move the memory it has now, run migratepages {tgid} FROM TO"),
    );
    let policy = policies.iter().find(|(policy, _)| &**policy != "default");
    let policy = policy.map_or_else(String::new, |(policy, size)| {
        format!("; the memory policy {policy} covers {}", bytes(*size))
    });
    let name = interval.process_name(*tgid);
    let what = format!("process {tgid} ({name}) {}", finding.what);
    Finding { what, says: format!("process {tgid} ({name}): {}{policy}", finding.says), ..finding }
}

fn remote_memory_finding(remote: &FarMemory, move_it: &str) -> Finding {
    // Neither list is empty, because both sums are above a threshold.
    let most = |amounts: &[(u32, u64)]| amounts.iter().copied().max_by_key(|(_, amount)| *amount);
    let ((at, there), (node, ran_there_ns)) =
        (most(remote.memory).unwrap_or_default(), most(&remote.ran).unwrap_or_default());
    let size = total(remote.memory);
    let says = format!(
        "{:.1}% of its memory is on another node than its threads; {} of {} is on node {at}; the threads spent {} of their run \
         time on node {node}",
        remote.share * 100.0,
        percent(there, size),
        bytes(size),
        percent(ran_there_ns, total(&remote.ran)),
    );
    let advice = format!(
        "keep threads and memory on one node (numactl --cpunodebind=N --membind=N, or cpuset.cpus with cpuset.mems){move_it}"
    );
    let short = Short::new(
        "runs far from its memory",
        format!("{:.1}% is on another node", remote.share * 100.0),
        "keep threads and memory on one node (numactl --cpunodebind=N --membind=N)",
    );
    finding(Rule::RemoteMemory, 0, short, says, advice)
}

/// Returns the finding that a process's busy threads moved between nodes. `moves`: total; `each`: mean per second and thread.
fn node_bouncing_finding(interval: &Interval, tgid: u32, threads: u64, moves: u64, each: f64) -> Finding {
    let says = format!(
        "process {tgid} ({}): its {} moved to another node {} ({each:.1} times a second per thread); each move leaves caches \
         and memory behind",
        interval.process_name(tgid),
        count(threads, "busy thread"),
        count(moves, "time"),
    );
    let advice = format!(
        "keep the process on one node (numactl --cpunodebind, or a cpuset); otherwise find out what moves the threads: check \
         kernel.numa_balancing, their affinity (taskset -acp {tgid}), and tasks on other nodes that wake them"
    );
    let short = Short::new(
        format!("process {tgid} ({}) moves between NUMA nodes", interval.process_name(tgid)),
        format!("{each:.1} moves/s per thread"),
        "keep it on one node (numactl --cpunodebind, a cpuset)",
    );
    finding(Rule::NodeBouncing, 0, short, says, advice)
}
