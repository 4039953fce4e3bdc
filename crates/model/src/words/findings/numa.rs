//! The texts about NUMA.

use std::sync::Arc;

use super::{Rule, Short, about, finding, leaf};
use crate::{
    Interval, ProcessMemory,
    findings::{FarMemory, Finding, Hold, Skew, is_share},
    nodes::NodeGroup,
    placement::cpu_list,
    placement::{amount, total},
    units::{bytes, count},
    words::{list, percent},
};

/// Maximum number of named affinity masks.
const MASKS: usize = 4;
/// Memory is named as a reason if this share of it lies on the full node, percent.
const MEMORY_PERCENT: u64 = 80;

pub(crate) fn node_skew(skew: &Skew) -> Finding {
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

/// The reason why the threads stay on the node, and what to do about it.
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

pub(crate) fn remote_cgroup(remote: &FarMemory, path: &Arc<str>) -> Finding {
    about(path, remote_memory(remote, ""))
}

pub(crate) fn remote_process(remote: &FarMemory, memory: &ProcessMemory, interval: &Interval) -> Finding {
    let ProcessMemory { tgid, policies, .. } = memory;
    let finding =
        remote_memory(remote, &format!("; to move the memory it has now, run migratepages {tgid} FROM TO"));
    let policy = policies.iter().find(|(policy, _)| &**policy != "default");
    let policy = policy.map_or_else(String::new, |(policy, size)| {
        format!("; the memory policy {policy} covers {}", bytes(*size))
    });
    let name = interval.process_name(*tgid);
    let what = format!("process {tgid} ({name}) {}", finding.what);
    Finding { what, says: format!("process {tgid} ({name}): {}{policy}", finding.says), ..finding }
}

fn remote_memory(remote: &FarMemory, move_it: &str) -> Finding {
    // Neither is empty, because both are above a threshold.
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

/// The finding that the busy threads of a process moved between NUMA nodes. `moves`: their moves in total; `each`: moves of one
/// thread per second, on average.
pub(crate) fn node_bouncing(interval: &Interval, tgid: u32, threads: u64, moves: u64, each: f64) -> Finding {
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
