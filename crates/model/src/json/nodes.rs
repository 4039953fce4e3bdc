//! The objects of CPUs and NUMA nodes, and of memory by node.

use serde::Serialize;

use super::WaitObject;
use crate::{
    CpuInterval, Interval, Mode, ProcessMemory,
    nodes::{NodeGroup, remote_share},
};

/// N: a NUMA node.
#[derive(Serialize)]
pub struct NodeObject {
    pub node: u32,
    pub cpus: Vec<u32>,
    pub busy_ns: Option<u64>,
    pub idle_ns: Option<u64>,
    pub ran_ns: u64,
    pub wait: WaitObject,
    pub contention_ns: Option<u64>,
    pub throttled_pressure_ns: Option<u64>,
    pub runnable_avg: Option<f64>,
    pub migrations_in: Option<u64>,
    pub migrations_out: Option<u64>,
    pub mem_bytes: Option<u64>,
    pub mem_total_bytes: Option<u64>,
    pub mem_free_bytes: Option<u64>,
}

impl NodeObject {
    /// The object of a node.
    pub fn new(node: NodeGroup, mode: Mode) -> Self {
        Self {
            node: node.node,
            wait: WaitObject::new(&node.wait, mode),
            cpus: node.cpus,
            busy_ns: node.busy_ns,
            idle_ns: node.idle_ns,
            ran_ns: node.ran_ns,
            contention_ns: node.contention_ns,
            throttled_pressure_ns: node.throttled_pressure_ns,
            runnable_avg: node.runnable_avg,
            migrations_in: node.migrations_in,
            migrations_out: node.migrations_out,
            mem_bytes: node.used_bytes,
            mem_total_bytes: node.memory_bytes,
            mem_free_bytes: node.free_bytes,
        }
    }

    /// Null if neither CPUs nor nodes could be read.
    pub(super) fn all(interval: &Interval) -> Option<Vec<Self>> {
        let nodes = interval.by_node();
        (!nodes.is_empty()).then(|| nodes.into_iter().map(|node| Self::new(node, interval.mode)).collect())
    }
}

/// A CPU. `wait` is null if waits are not counted by CPU: see `hist -C`.
#[derive(Serialize)]
pub struct CpuObject {
    pub cpu: u32,
    pub node: Option<u32>,
    pub busy_ns: Option<u64>,
    pub idle_ns: Option<u64>,
    pub wait: Option<WaitObject>,
    pub contention_ns: Option<u64>,
    pub throttled_pressure_ns: Option<u64>,
}

impl CpuObject {
    fn new(cpu: &CpuInterval, mode: Mode) -> Self {
        let wait = cpu.wait.as_ref().map(|wait| WaitObject::new(wait, mode));
        Self {
            cpu: cpu.cpu,
            node: cpu.node,
            busy_ns: cpu.busy_ns,
            idle_ns: cpu.idle_ns,
            wait,
            contention_ns: cpu.contention_ns,
            throttled_pressure_ns: cpu.throttled_pressure_ns,
        }
    }

    /// Null if the CPUs could not be read.
    pub(super) fn all(interval: &Interval) -> Option<Vec<Self>> {
        (!interval.cpus.is_empty())
            .then(|| interval.cpus.iter().map(|cpu| Self::new(cpu, interval.mode)).collect())
    }
}

/// The memory of a process by node.
#[derive(Serialize)]
pub struct MemoryObject<'a> {
    pub tgid: u32,
    pub by_node: &'a [(u32, u64)],
    pub policies: Vec<(&'a str, u64)>,
    pub remote_share: Option<f64>,
}

impl<'a> MemoryObject<'a> {
    /// The object of a process.
    pub fn new(memory: &'a ProcessMemory, interval: &Interval) -> Self {
        let ran_ns = interval.ran_by_node(|task| task.tgid == memory.tgid);
        Self {
            tgid: memory.tgid,
            by_node: &memory.by_node,
            policies: memory.policies.iter().map(|(policy, bytes)| (policy.as_ref(), *bytes)).collect(),
            remote_share: remote_share(&memory.by_node, &ran_ns),
        }
    }
}
