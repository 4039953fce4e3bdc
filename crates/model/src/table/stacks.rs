//! Kernel stacks in which tasks were blocked, each with the blocked time.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_ledger::BlockedState;

use crate::table::{Table, exited::ENDED, merge};
use crate::{Interval, Sample, sum};

/// The key of a stack: thread, state and return addresses.
pub type StackKey = (u64, BlockedState, Arc<[u64]>);

table! {
    /// The table: one row per thread and stack.
    Stacks: StackReading, by StackKey: |row| row.key(), "its stacks are not in the order of their threads";
    stacks = |a, b| between(&a.stacks, &b.stacks), by StackReading::key, StackReading::append;
}

/// Time that one thread was blocked with one stack: cumulative in a Sample, the increase in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackReading {
    /// Unique id of the thread ([`crate::TaskReading::serial`]).
    pub serial: u64,
    pub state: BlockedState,
    /// Return addresses in the kernel, innermost first; empty if the stack could not be read.
    pub stack: Arc<[u64]>,
    pub tid: u32,
    pub tgid: u32,
    /// Name of the thread when this stack was first seen.
    pub comm: Arc<str>,
    /// Blocked time, ns, including the current block.
    pub ns: u64,
    /// Number of times that the stack was recorded.
    pub count: u64,
}

impl StackReading {
    pub fn key(&self) -> StackKey {
        (self.serial, self.state, self.stack.clone())
    }

    /// Adds a later reading, or the reading of another thread.
    pub fn append(&mut self, next: Self) {
        sum::add(&mut self.ns, next.ns);
        sum::add(&mut self.count, next.count);
    }
}

/// Merges the stacks of exited threads: one row per stack, without a thread.
pub(crate) fn merge_exited(stacks: &mut Vec<StackReading>, is_there: impl Fn(u64) -> bool) {
    let mut sums: BTreeMap<_, StackReading> = BTreeMap::new();
    for stack in stacks.extract_if(.., |stack| !is_there(stack.serial)) {
        let merged = StackReading { serial: 0, tid: 0, tgid: 0, comm: ENDED.into(), ..stack };
        sums.entry(merged.key()).and_modify(|sum| sum.append(merged.clone())).or_insert(merged);
    }
    // No thread has the serial 0.
    stacks.splice(..0, sums.into_values());
}

/// Returns the increase between two Samples. Both must ascend by key; the result ascends by key.
fn between(a: &[StackReading], b: &[StackReading]) -> Vec<StackReading> {
    let mut earlier = sum::earlier(a, StackReading::key);
    let since = b.iter().map(|now| {
        let (ns, count) = earlier(now.key()).map_or((0, 0), |before| (before.ns, before.count));
        StackReading { ns: now.ns.saturating_sub(ns), count: now.count.saturating_sub(count), ..now.clone() }
    });
    since.filter(|stack| stack.ns != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exited_threads_are_merged_by_stack() {
        let mut stacks =
            vec![stack(0, 5, 1), stack(1, 5, 10), stack(2, 5, 20), stack(3, 6, 40), stack(4, 5, 80)];
        merge_exited(&mut stacks, |serial| serial == 4);
        let left: Vec<_> = stacks.iter().map(|stack| (stack.serial, stack.stack[0], stack.ns)).collect();
        assert_eq!(left, [(0, 5, 31), (0, 6, 40), (4, 5, 80)]);
    }

    fn stack(serial: u64, frame: u64, ns: u64) -> StackReading {
        StackReading {
            serial,
            state: BlockedState::Sleeping,
            stack: [frame, 9].into(),
            tid: 1,
            tgid: 1,
            comm: "a".into(),
            ns,
            count: 1,
        }
    }

    #[test]
    fn a_stack_counts_the_increase() {
        let a = [stack(1, 5, 100), stack(1, 7, 40), stack(3, 5, 8)];
        let b = [stack(1, 5, 130), stack(1, 6, 20), stack(1, 7, 40), stack(2, 5, 1)];
        let came: Vec<_> =
            between(&a, &b).iter().map(|stack| (stack.serial, stack.stack[0], stack.ns)).collect();
        assert_eq!(came, [(1, 5, 30), (1, 6, 20), (2, 5, 1)]);
    }
}
