//! Host-wide figures: losses, the hook's cost, NUMA nodes.

use std::collections::BTreeMap;

use cgscope_layout::Loss;
use cgscope_model::{Interval, Losses, nodes::NodeGroup, sum};

use crate::{
    family,
    page::{Figure, Writer},
    value::{Labels, Value},
};

/// Sums since the first interval; `None` if never read.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Start of the first interval, ns since 1970.
    created_unix_ns: Option<u64>,
    losses: Losses,
    hook_ns: Option<u64>,
    hook_runs: Option<u64>,
    nodes: BTreeMap<u32, Node>,
}

#[derive(Debug)]
struct Node {
    labels: Labels,
    created_unix_ns: u64,
    /// Gauges of the latest interval, and counters since the node was first seen.
    group: NodeGroup,
}

/// The families of nodes, in the order of the page.
const OF_NODES: [Figure<Node>; 6] = [
    (&family::NODE_BUSY, |node| node.group.busy_ns.map(Value::Ns)),
    (&family::NODE_CPUS, |node| Some(Value::Count(node.group.cpus.len() as u64))),
    (&family::NODE_MEMORY_USED, |node| node.group.used_bytes.map(Value::Count)),
    (&family::NODE_MEMORY_TOTAL, |node| node.group.memory_bytes.map(Value::Count)),
    (&family::NODE_MIGRATIONS_IN, |node| node.group.migrations_in.map(Value::Count)),
    (&family::NODE_MIGRATIONS_OUT, |node| node.group.migrations_out.map(Value::Count)),
];

impl Host {
    /// Adds an interval, and drops nodes that it lacks.
    pub fn add(&mut self, interval: &Interval) {
        self.created_unix_ns.get_or_insert(interval.start_unix_ns);
        self.losses.append(&interval.losses);
        self.hook_ns = sum::known(self.hook_ns, interval.cost.hook_ns);
        self.hook_runs = sum::known(self.hook_runs, interval.cost.hook_runs);
        let groups = interval.by_node();
        self.nodes.retain(|node, _| groups.iter().any(|group| group.node == *node));
        for group in groups {
            let new = || Node {
                labels: Labels::new(vec![("node", group.node.to_string())]),
                created_unix_ns: interval.start_unix_ns,
                group: NodeGroup::default(),
            };
            self.nodes.entry(group.node).or_insert_with(new).add(group);
        }
    }

    pub fn write_nodes(&self, page: &mut impl Writer) {
        for (family, value) in OF_NODES {
            page.begin(family);
            for (node, value) in self.nodes.values().filter_map(|node| Some((node, value(node)?))) {
                page.sample(&node.labels, None, value, Some(node.created_unix_ns));
            }
        }
    }

    /// Writes losses and the hook's cost.
    pub fn write_cost(&self, page: &mut impl Writer) {
        let none = Labels::default();
        page.begin(&family::LOSSES);
        for loss in Loss::ALL {
            let count = Value::Count(self.losses.get(loss));
            page.sample(&none, Some(("loss", loss.name())), count, self.created_unix_ns);
        }
        page.begin(&family::HOOK_TIME);
        if let Some(ns) = self.hook_ns {
            page.sample(&none, None, Value::Ns(ns), self.created_unix_ns);
        }
        page.begin(&family::HOOK_RUNS);
        if let Some(runs) = self.hook_runs {
            page.sample(&none, None, Value::Count(runs), self.created_unix_ns);
        }
    }
}

impl Node {
    fn add(&mut self, now: NodeGroup) {
        let before = std::mem::replace(&mut self.group, now);
        let now = &mut self.group;
        now.busy_ns = sum::known(now.busy_ns, before.busy_ns);
        now.migrations_in = sum::known(now.migrations_in, before.migrations_in);
        now.migrations_out = sum::known(now.migrations_out, before.migrations_out);
    }
}
