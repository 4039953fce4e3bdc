//! Reads stacks of blocked tasks: stacks that the BPF side has counted, and the current stacks of tasks that are blocked now.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cgscope_ledger::{
    BlockedState,
    wire::{STACKS, StackCount, StackKey, names},
};
use cgscope_model::{StackReading, comm};

use crate::domain::{Domain, Draft, Setup};
use crate::kernel_side::{if_there, step};
use crate::{Failure, bpf_calls::Raw, known::KnownTask, readings::frames, stream::TaskReported};

fn counted(key: &StackKey, count: &StackCount) -> Option<StackReading> {
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
    /// Blocked time that was counted for all stacks of the task before the current blocking, ns.
    counted_ns: u64,
}

pub(crate) fn under_way(reported: &TaskReported<'_>, kept: &KnownTask) -> Option<UnderWay> {
    let record = reported.record;
    let accounts = reported.accounts?;
    let blocked_ns: u64 = accounts.own.blocked_ns.iter().sum();
    let stack = StackReading {
        serial: record.serial,
        state: *BlockedState::ALL.get((accounts.is_due as usize).checked_sub(1)?)?,
        stack: kept.more.as_ref()?.stack.clone()?,
        tid: record.tid,
        tgid: record.tgid,
        comm: kept.reading.comm.clone(),
        ns: accounts.uncounted_ns,
        count: 1,
    };
    Some(UnderWay { stack, counted_ns: blocked_ns.saturating_sub(accounts.uncounted_ns) })
}

type Key = (u64, BlockedState, Arc<[u64]>);

/// Sums that correct the counted stacks. Once we have reported blocked time for a stack, the time stays with this stack. When the
/// task wakes up, the BPF side may count the same time for another stack, or for no stack if a hardened kernel hides the switch
/// from the hook.
#[derive(Default)]
pub(crate) struct Stacks {
    /// Tasks that were blocked at the latest reading, by serial. The number is the time that was counted for the task's stack at
    /// that reading, ns.
    reported: HashMap<u64, (UnderWay, u64)>,
    /// Correction to the BPF side's time of each stack, ns.
    moved: HashMap<Key, (StackReading, i64)>,
    /// Exited tasks that had stacks at the latest reading, by serial.
    exited: HashSet<u64>,
}

impl Domain for Stacks {
    fn start(setup: &Setup<'_>) -> Option<(Self, u32)> {
        (setup.config.stack_every_ns != 0).then(|| (Self::default(), STACKS as u32))
    }

    fn read(&mut self, draft: &mut Draft) -> Result<(), Failure> {
        let counted = self.read_counted(draft)?;
        draft.sample.stacks = self.merged(counted, std::mem::take(&mut draft.under_way));
        Ok(())
    }
}

impl Stacks {
    /// Reads the counted stacks. Frees the stacks of tasks that had already exited at the previous reading, because that reading
    /// has reported their stacks.
    fn read_counted(&mut self, draft: &mut Draft) -> Result<Vec<StackReading>, Failure> {
        let (mut found, mut over, mut exited) = (Vec::new(), Vec::new(), HashSet::new());
        let (tasks, before) = (&draft.tasks, &self.exited);
        draft.side.each_entry("read the stacks", names::STACKS, |key, count: &StackCount| {
            found.extend(counted(key, count));
            if tasks.contains(count.serial) {
                return;
            }
            exited.insert(count.serial);
            if before.contains(&count.serial) {
                over.push(*key);
            }
        })?;
        self.exited = exited;
        step("free the stacks of exited tasks", || {
            let mut stacks = draft.side.hash_table::<Raw<StackKey>, Raw<StackCount>>(names::STACKS)?;
            Ok(over.iter().try_for_each(|key| if_there(stacks.remove(&Raw(*key))).map(drop))?)
        })?;
        Ok(found)
    }

    /// Merges all stacks, so that each key appears once, in ascending order. We read counts after tasks, so a task that was
    /// blocked may have woken up and may already be counted.
    fn merged(&mut self, counted: Vec<StackReading>, mut under_way: Vec<UnderWay>) -> Vec<StackReading> {
        let mut by_task: HashMap<u64, Vec<&StackReading>> = HashMap::new();
        counted.iter().for_each(|stack| by_task.entry(stack.serial).or_default().push(stack));
        let of_task = |serial: u64| by_task.get(&serial).map_or(&[][..], Vec::as_slice);
        let sum = |serial| of_task(serial).iter().map(|stack| stack.ns).sum::<u64>();
        let came_back = |now: &UnderWay| sum(now.stack.serial) > now.counted_ns;
        for (before, counted_ns) in std::mem::take(&mut self.reported).into_values() {
            if came_back(&before) {
                self.settle(&before.stack, counted_ns, of_task(before.stack.serial));
            }
        }
        self.moved.retain(|(serial, ..), _| by_task.contains_key(serial));
        under_way.retain(|now| !came_back(now));
        for now in &under_way {
            let counted_ns = of_key(of_task(now.stack.serial), &now.stack);
            self.reported.insert(now.stack.serial, (now.clone(), counted_ns));
        }
        let mut all = counted;
        all.extend(under_way.into_iter().map(|now| now.stack));
        all.extend(self.moved.values().map(|(stack, _)| StackReading { ns: 0, count: 0, ..stack.clone() }));
        all.sort_by_cached_key(StackReading::key);
        let mut merged: Vec<StackReading> = Vec::with_capacity(all.len());
        for stack in all {
            match merged.last_mut().filter(|last| last.key() == stack.key()) {
                Some(last) => last.append(stack),
                None => merged.push(stack),
            }
        }
        if !self.moved.is_empty() {
            for stack in &mut merged {
                let more_ns = self.moved.get(&stack.key()).map_or(0, |(_, ns)| *ns);
                stack.ns = stack.ns.saturating_add_signed(more_ns);
            }
        }
        merged
    }

    /// Corrects the times of a task that has woken up. If the BPF side counted the reported time for another stack of the task,
    /// we move this time back to the reported stack. `counted_ns` is the time that was counted for the reported stack before.
    /// `counted` holds the stacks of the task.
    fn settle(&mut self, reported: &StackReading, counted_ns: u64, counted: &[&StackReading]) {
        let came_ns = of_key(counted, reported).saturating_sub(counted_ns);
        let missing_ns = reported.ns.saturating_sub(came_ns);
        let left_ns = |stack: &StackReading| {
            stack.ns.saturating_add_signed(self.moved.get(&stack.key()).map_or(0, |(_, ns)| *ns))
        };
        let others = counted.iter().filter(|stack| stack.state == reported.state);
        let others = others.filter(|stack| stack.key() != reported.key());
        let Some(other) = others.max_by_key(|stack| (stack.stack.is_empty(), left_ns(stack))) else { return };
        let ns = missing_ns.min(left_ns(other)) as i64;
        if ns != 0 {
            self.moved.entry(other.key()).or_insert_with(|| ((*other).clone(), 0)).1 -= ns;
            self.moved.entry(reported.key()).or_insert_with(|| (reported.clone(), 0)).1 += ns;
        }
    }
}

/// Returns the time that was counted for a stack. `counted` holds the stacks of its task.
fn of_key(counted: &[&StackReading], of: &StackReading) -> u64 {
    counted.iter().filter(|stack| stack.key() == of.key()).map(|stack| stack.ns).sum()
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
            let merged = Stacks::default().merged(vec![before.clone(), other.clone()], vec![now(counted_ns)]);
            merged.iter().map(|stack| (stack.state, stack.ns, stack.count)).collect()
        };
        assert_eq!(reported(31), [(BlockedState::Sleeping, 1, 2), (BlockedState::Iowait, 34, 3)]);
        assert_eq!(reported(27)[1], (BlockedState::Iowait, 30, 2), "counted after the task was read");
        assert_eq!(counted(&StackKey { state: 99, ..key }, &count), None);
    }

    #[test]
    fn reported_time_stays_with_its_stack_if_the_wakeup_was_not_seen() {
        let stack = |frames: &[u64], ns| StackReading {
            serial: 70,
            state: BlockedState::Sleeping,
            stack: frames.into(),
            tid: 7,
            tgid: 7,
            comm: "t".into(),
            ns,
            count: 1,
        };
        let mut stacks = Stacks::default();
        let mut read = |counted: &[StackReading], blocked: Option<(u64, u64)>| -> Vec<u64> {
            let now = blocked.map(|(ns, counted_ns)| UnderWay { stack: stack(&[5], ns), counted_ns });
            let merged = stacks.merged(counted.to_vec(), now.into_iter().collect());
            merged.iter().map(|stack| stack.ns).collect()
        };
        assert_eq!(read(&[], Some((500, 0))), [500]);
        // 20 ns later the task woke up, in a switch that the hook did not see.
        assert_eq!(read(&[stack(&[], 520)], None), [20, 500]);
        assert_eq!(read(&[stack(&[], 520)], Some((300, 520))), [20, 800]);
        // This time the hook saw the switch, and counted the time for the stack.
        assert_eq!(read(&[stack(&[], 520), stack(&[5], 310)], None), [20, 810]);
    }
}
