//! What is known of the whole host: losses, the hook's cost, NUMA nodes.

use std::collections::BTreeMap;

use cgscope_layout::Loss;
use cgscope_model::{Interval, Losses, nodes::NodeGroup, sum};

use crate::{
    family,
    labels::Labels,
    page::{Figure, Writer},
    value::Value,
};

/// Sums since the first interval. What was never read is `None`.
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
    busy_ns: Option<u64>,
    migrations_in: Option<u64>,
    migrations_out: Option<u64>,
    cpus: usize,
    used_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

/// The families of nodes, in the order of the page.
const OF_NODES: [Figure<Node>; 6] = [
    (&family::NODE_BUSY, |node| node.busy_ns.map(Value::Ns)),
    (&family::NODE_CPUS, |node| Some(Value::Count(node.cpus as u64))),
    (&family::NODE_MEMORY_USED, |node| node.used_bytes.map(Value::Count)),
    (&family::NODE_MEMORY_TOTAL, |node| node.total_bytes.map(Value::Count)),
    (&family::NODE_MIGRATIONS_IN, |node| node.migrations_in.map(Value::Count)),
    (&family::NODE_MIGRATIONS_OUT, |node| node.migrations_out.map(Value::Count)),
];

impl Host {
    /// Adds an interval. Nodes that are not in it are forgotten.
    pub fn add(&mut self, interval: &Interval) {
        self.created_unix_ns.get_or_insert(interval.start_unix_ns);
        self.losses.append(&interval.losses);
        self.hook_ns = sum::known(self.hook_ns, interval.cost.hook_ns);
        self.hook_runs = sum::known(self.hook_runs, interval.cost.hook_runs);
        let groups = interval.by_node();
        self.nodes.retain(|node, _| groups.iter().any(|group| group.node == *node));
        for group in &groups {
            let new = || Node::new(group.node, interval.start_unix_ns);
            self.nodes.entry(group.node).or_insert_with(new).add(group);
        }
    }

    /// Writes the families of nodes.
    pub fn write_nodes(&self, page: &mut impl Writer) {
        for (family, value) in OF_NODES {
            page.begin(family);
            for node in self.nodes.values() {
                if let Some(value) = value(node) {
                    page.sample(&node.labels, None, value, Some(node.created_unix_ns));
                }
            }
        }
    }

    /// Writes losses, each by name, and the cost.
    pub fn write_cost(&self, page: &mut impl Writer) {
        let none = Labels::default();
        page.begin(&family::LOSSES);
        for loss in Loss::ALL {
            let count = Value::Count(self.losses.get(*loss));
            page.sample(&none, Some(("loss", loss.name())), count, self.created_unix_ns);
        }
        let figures = [
            (&family::HOOK_TIME, self.hook_ns.map(Value::Ns)),
            (&family::HOOK_RUNS, self.hook_runs.map(Value::Count)),
        ];
        for (family, value) in figures {
            page.begin(family);
            if let Some(value) = value {
                page.sample(&none, None, value, self.created_unix_ns);
            }
        }
    }
}

impl Node {
    fn new(number: u32, created_unix_ns: u64) -> Self {
        Self {
            labels: Labels::new(vec![("node", number.to_string())]),
            created_unix_ns,
            busy_ns: None,
            migrations_in: None,
            migrations_out: None,
            cpus: 0,
            used_bytes: None,
            total_bytes: None,
        }
    }

    fn add(&mut self, group: &NodeGroup) {
        self.busy_ns = sum::known(self.busy_ns, group.busy_ns);
        self.migrations_in = sum::known(self.migrations_in, group.migrations_in);
        self.migrations_out = sum::known(self.migrations_out, group.migrations_out);
        self.cpus = group.cpus.len();
        (self.used_bytes, self.total_bytes) = (group.used_bytes, group.memory_bytes);
    }
}
