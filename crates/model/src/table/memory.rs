//! Where the memory of processes lies.

use std::sync::Arc;

use crate::{
    Interval, Sample,
    table::{Table, merge},
};

/// The table: a row for each process for which it was requested.
#[derive(Debug)]
pub enum Memory {}

impl Table for Memory {
    type Row = ProcessMemory;
    type Key = u32;
    const ORDER: &'static str = "the memory of its processes is not in the order of their ids";

    fn key(row: &ProcessMemory) -> u32 {
        row.tgid
    }

    fn between(_: &Sample, b: &Sample, into: &mut Interval) {
        into.memory.clone_from(&b.memory);
    }

    fn append(into: &mut Interval, next: &mut Interval) {
        merge(&mut into.memory, &mut next.memory, |memory| memory.tgid, |old, new| *old = new);
    }
}

/// Where the memory of a process lies, from `/proc/PID/numa_maps`. Not cumulative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Process id.
    pub tgid: u32,
    /// Resident bytes by node, ascending by node. Pages shared by several processes count in each.
    pub by_node: Vec<(u32, u64)>,
    /// The same bytes by the memory policy of their mapping, named as in the kernel (`default`, `bind:1`, `interleave:0-1`),
    /// the largest first.
    pub policies: Vec<(Arc<str>, u64)>,
}
