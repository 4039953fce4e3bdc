//! Stacks of blocked tasks: those that the BPF side counted, and those of tasks that are blocked now.

use std::{collections::HashMap, sync::Arc};

use cgscope_layout::{
    BlockedState, Stack,
    wire::{StackCount, StackKey},
};
use cgscope_model::{StackReading, comm};

use crate::{known::KnownTask, stream::TaskReported};

pub(crate) fn counted(key: &StackKey, count: &StackCount) -> Option<StackReading> {
    Some(StackReading {
        serial: count.serial,
        state: *BlockedState::ALL.get(key.state as usize)?,
        stack: frames(&key.stack),
        tid: key.tid,
        tgid: count.tgid,
        comm: comm(&count.comm),
        ns: count.ns,
        count: count.count,
    })
}

#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    stack: StackReading,
    /// Blocked time counted before the current stack, with any stack, ns.
    counted_ns: u64,
}

pub(crate) fn under_way(reported: &TaskReported<'_>, kept: &KnownTask) -> Option<UnderWay> {
    let record = reported.record;
    let accounts = reported.accounts?;
    let blocked_ns: u64 = accounts.own.blocked_ns.iter().sum();
    let stack = StackReading {
        serial: record.serial,
        state: *BlockedState::ALL.get((accounts.is_due as usize).checked_sub(1)?)?,
        stack: kept.stack.clone()?,
        tid: record.tid,
        tgid: record.tgid,
        comm: kept.reading.comm.clone(),
        ns: accounts.uncounted_ns,
        count: 1,
    };
    Some(UnderWay { stack, counted_ns: blocked_ns.saturating_sub(accounts.uncounted_ns) })
}

/// Merges all stacks in ascending order, with each key once. Counts are read after the tasks, so they include
/// tasks that have woken since.
pub(crate) fn merged(counted: Vec<StackReading>, under_way: Vec<UnderWay>) -> Vec<StackReading> {
    let mut sums: HashMap<u64, u64> = HashMap::new();
    for stack in &counted {
        *sums.entry(stack.serial).or_default() += stack.ns;
    }
    let came_back = |now: &UnderWay| sums.get(&now.stack.serial).is_some_and(|sum| *sum > now.counted_ns);
    let mut all = counted;
    all.extend(under_way.into_iter().filter(|now| !came_back(now)).map(|now| now.stack));
    all.sort_by_cached_key(StackReading::key);
    let mut merged: Vec<StackReading> = Vec::with_capacity(all.len());
    for stack in all {
        match merged.last_mut().filter(|last| last.key() == stack.key()) {
            Some(last) => last.append(stack),
            None => merged.push(stack),
        }
    }
    merged
}

/// Returns the frames of a stack, which ends at its first 0.
pub(crate) fn frames(stack: &Stack) -> Arc<[u64]> {
    let end = stack.iter().position(|frame| *frame == 0).unwrap_or(stack.len());
    stack[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_current_stack_adds_to_the_counted_stack() {
        let mut key = StackKey { tid: 7, state: BlockedState::Iowait as u32, stack: [0; 62] };
        key.stack[..2].copy_from_slice(&[5, 9]);
        let count = StackCount {
            ns: 30,
            count: 2,
            serial: 70,
            tgid: 7,
            padding: 0,
            comm: *b"dd\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        };
        let before = counted(&key, &count).unwrap();
        assert_eq!((&*before.comm, &*before.stack, before.state), ("dd", &[5, 9][..], BlockedState::Iowait));
        let now =
            |counted_ns| UnderWay { stack: StackReading { ns: 4, count: 1, ..before.clone() }, counted_ns };
        let other = StackReading { state: BlockedState::Sleeping, ns: 1, ..before.clone() };
        let reported = |counted_ns| -> Vec<_> {
            let merged = merged(vec![before.clone(), other.clone()], vec![now(counted_ns)]);
            merged.iter().map(|stack| (stack.state, stack.ns, stack.count)).collect()
        };
        assert_eq!(reported(31), [(BlockedState::Sleeping, 1, 2), (BlockedState::Iowait, 34, 3)]);
        assert_eq!(reported(27)[1], (BlockedState::Iowait, 30, 2), "counted after the task was read");
        assert_eq!(counted(&StackKey { state: 99, ..key }, &count), None);
    }
}
