//! Checks the simulation with a plain simulation in small steps, with laws, and with closed formulas.

mod compare;
mod laws;
mod questions;
mod random;
mod reference;
mod rules;

use cgscope_whatif::{Limit, Node, Profile, Tree};

/// A single cgroup with this demand, on this number of CPUs.
fn single(profile: Profile, limit: Option<Limit>, cpus: f64) -> Tree {
    let node = Node { limit, profile, ..Node::default() };
    Tree { nodes: vec![node], capacity: cpus }
}

/// A limit without burst.
fn limit(quota_ns: u64, period_ns: u64) -> Limit {
    Limit { quota_ns, period_ns, burst_ns: 0 }
}

/// The limits in force when the profiles were recorded, one for each cgroup.
fn limits(tree: &Tree) -> Vec<Option<Limit>> {
    tree.nodes.iter().map(|node| node.limit).collect()
}
