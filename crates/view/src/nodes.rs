//! NUMA nodes as lines and as a table.

use cgscope_model::units::{self, busy_percent, bytes, duration};
use cgscope_model::{Interval, nodes::NodeGroup, placement::cpu_list};

use itertools::Itertools;

use crate::text::{or_dash, or_na};

/// Returns the busy share as text, such as `98.0%`.
pub fn busy_words(busy_ns: Option<u64>, idle_ns: Option<u64>) -> String {
    or_na(busy_percent(busy_ns, idle_ns).map(|share| format!("{share:.1}%")))
}

pub fn line(node: &NodeGroup) -> String {
    let moves = match node.migrations_in.zip(node.migrations_out) {
        Some((came, left)) => format!("{} came from other nodes, {left} left", units::count(came, "task")),
        None => "moves between nodes n/a".into(),
    };
    let (busy, memory) = (busy_words(node.busy_ns, node.idle_ns), memory(node, " in use of "));
    let runnable = or_na(node.runnable_avg.map(|tasks| format!("{tasks:.2}")));
    format!("busy {busy}, {runnable} tasks running or waiting on average; {moves}; memory {memory}")
}

/// Returns the used memory and all memory of a node, with words between them.
pub(crate) fn memory(node: &NodeGroup, between: &str) -> String {
    let [used, all] = [node.used_bytes, node.memory_bytes].map(|amount| or_na(amount.map(bytes)));
    format!("{used}{between}{all}")
}

/// Returns the line for the header of the screen: busy share and runnable tasks of each node. `None` if the host has one node.
pub fn short_line(interval: &Interval) -> Option<String> {
    let words = |node: &NodeGroup| {
        let runnable = or_na(node.runnable_avg.map(|tasks| format!("{tasks:.1}")));
        format!("node {}: busy {}, {runnable} runnable", node.node, busy_words(node.busy_ns, node.idle_ns))
    };
    Some(several(interval)?.iter().map(words).join("; "))
}

fn several(interval: &Interval) -> Option<Vec<NodeGroup>> {
    (interval.nodes.len() > 1).then(|| interval.by_node())
}

type NodeCell = fn(&NodeGroup) -> String;

/// Returns a table with a column per node; empty if the host has one node.
pub fn table(interval: &Interval) -> String {
    let Some(nodes) = several(interval) else { return String::new() };
    let rows: [(&str, NodeCell); 11] = [
        ("NUMA node", |node| node.node.to_string()),
        ("CPUs", |node| if node.cpus.is_empty() { "none".into() } else { cpu_list(&node.cpus) }),
        ("busy", |node| busy_words(node.busy_ns, node.idle_ns)),
        ("running or waiting", |node| or_na(node.runnable_avg.map(|tasks| format!("{tasks:.2}")))),
        ("these tasks ran", |node| duration(node.ran_ns)),
        ("waited", |node| duration(node.wait.total_ns)),
        ("waits", |node| node.wait.count.to_string()),
        ("p99", |node| or_dash(node.wait.quantile_ns(0.99))),
        ("came from others", |node| or_na(node.migrations_in.map(|moves| moves.to_string()))),
        ("memory in use", |node| or_na(node.used_bytes.map(bytes))),
        ("memory", |node| or_na(node.memory_bytes.map(bytes))),
    ];
    let lines = rows.into_iter().map(|(name, cell)| {
        let cells: String = nodes.iter().map(|node| format!(" {:>14}", cell(node))).collect();
        format!("{name:<18}{cells}\n")
    });
    std::iter::once("\n".to_owned()).chain(lines).collect()
}

/// Returns the memory by node: `1.0MiB on node 0, 9.0MiB on node 8`.
pub fn on_nodes(memory: &[(u32, u64)]) -> String {
    memory.iter().map(|(node, there)| format!("{} on node {node}", bytes(*there))).join(", ")
}

/// Returns a line for each process whose memory placement was read: the memory on each node.
pub fn memory_lines(interval: &Interval) -> String {
    let lines = interval.memory.iter().map(|memory| {
        let name = interval.process_name(memory.tgid);
        let policies = memory.policies.iter().filter(|(policy, _)| &**policy != "default");
        let policies = policies.map(|(policy, there)| format!("{policy} for {}", bytes(*there))).join(", ");
        let ran_ns = interval.ran_by_node(|task| task.tgid == memory.tgid);
        let remote = cgscope_model::nodes::remote_share(&memory.by_node, &ran_ns);
        format!(
            "memory of process {} {name}: {}; {} on another node than its threads; memory policy {}\n",
            memory.tgid,
            on_nodes(&memory.by_node),
            or_na(remote.map(|share| format!("{:.1}%", share * 100.0))),
            if policies.is_empty() { "default".into() } else { policies },
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use cgscope_model::{CpuInterval, NodeReading, ProcessMemory};

    use super::*;

    fn interval() -> Interval {
        let cpu = |cpu, node, busy_ns| CpuInterval {
            cpu,
            node: Some(node),
            busy_ns: Some(busy_ns),
            idle_ns: Some(1_000_000_000 - busy_ns),
            came_from: Some(vec![(8 - node, 3 + u64::from(cpu))]),
            ..CpuInterval::default()
        };
        let node =
            |node, free: u64| NodeReading { node, memory_bytes: Some(8 << 30), free_bytes: Some(free << 20) };
        Interval {
            duration_ns: 1_000_000_000,
            cpus: vec![cpu(0, 0, 990_000_000), cpu(1, 0, 1_000_000_000), cpu(4, 8, 10_000_000)],
            nodes: vec![node(0, 100), node(8, 8_000), node(252, 0)],
            ..Interval::default()
        }
    }

    #[test]
    fn nodes_are_side_by_side_with_memory_below() {
        let mut interval = interval();
        let mut text = table(&interval);
        interval.memory = vec![ProcessMemory {
            tgid: 7,
            by_node: vec![(0, 1 << 20), (8, 9 << 20)],
            policies: vec![("bind:8".into(), 9 << 20), ("default".into(), 1 << 20)],
        }];
        text += &memory_lines(&interval);
        for node in interval.by_node() {
            text += &format!("{}\n", line(&node));
        }
        text += &short_line(&interval).unwrap();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn one_node_needs_no_table() {
        let mut interval = interval();
        interval.cpus.truncate(2);
        interval.nodes.truncate(1);
        let text = table(&interval);
        assert_eq!((text.as_str(), short_line(&interval)), ("", None));
    }
}
