//! Tasks that fork and exit, and cgroups that are created and removed.

extern crate std;

use super::{
    CGROUPS, CPUS, Kernel, ROOT, STARVED, Simulated,
    task::{Fate, Sim, State},
};
use crate::{history::BLOCK, waits::WaitHost};

/// Maximum number of cgroups that a schedule replaces. The tables of culprits are large enough for the pairs of all of them.
const MOST_REPLACED: u64 = 6;

/// How often each event happened in a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::waits::tests) struct Events {
    pub(in crate::waits::tests) exits: u64,
    /// Number of exited tasks whose last switch in the hook did not see.
    pub(in crate::waits::tests) unseen_exits: u64,
    /// Number of first waits of forked tasks that ended.
    pub(in crate::waits::tests) first_waits: u64,
    /// Number of `first_waits` in which the task moved.
    pub(in crate::waits::tests) moved_first_waits: u64,
    pub(in crate::waits::tests) replaced: u64,
    pub(in crate::waits::tests) out_of_runtime: u64,
    /// Number of waits that ended because the task moved to another cgroup.
    pub(in crate::waits::tests) moved_waits: u64,
    /// Number of `moved_waits` in which the task was throttled.
    pub(in crate::waits::tests) moved_throttled: u64,
    /// Number of charges for a cgroup that was removed before the wait ended.
    pub(in crate::waits::tests) behind_removed: u64,
}

impl Events {
    pub(in crate::waits::tests) fn add(&mut self, other: Self) {
        self.exits += other.exits;
        self.unseen_exits += other.unseen_exits;
        self.first_waits += other.first_waits;
        self.moved_first_waits += other.moved_first_waits;
        self.replaced += other.replaced;
        self.out_of_runtime += other.out_of_runtime;
        self.moved_waits += other.moved_waits;
        self.moved_throttled += other.moved_throttled;
        self.behind_removed += other.behind_removed;
    }

    pub(in crate::waits::tests) fn all_occurred(&self) -> bool {
        let Self {
            exits,
            unseen_exits,
            first_waits,
            moved_first_waits,
            replaced,
            out_of_runtime,
            moved_waits,
            // This cannot happen in a kernel that throttles whole queues.
            moved_throttled: _,
            behind_removed,
        } = *self;
        [
            exits,
            unseen_exits,
            first_waits,
            moved_first_waits,
            replaced,
            out_of_runtime,
            moved_waits,
            behind_removed,
        ]
        .iter()
        .all(|n| *n > 0)
    }
}

impl Kernel {
    pub(in crate::waits::tests) fn events(&self) -> Events {
        Events { behind_removed: self.log.behind_removed, ..self.events }
    }

    pub(super) fn all_tasks(&self) -> impl Iterator<Item = &Sim> {
        self.tasks.iter().chain(&self.finished)
    }

    /// Now and then lets a task exit, or replaces a cgroup.
    pub(super) fn come_and_go(&mut self, cpu: u32) {
        match self.below(60 * self.rarity) {
            0..2 => self.exit(cpu),
            2..6 => {
                let place = 1 + self.below(CGROUPS.len() as u64 - 1) as usize;
                self.replace_cgroup(place);
            }
            _ => {}
        }
    }

    fn exit(&mut self, cpu: u32) {
        let Some(at) = self.current[cpu as usize] else { return };
        self.events.exits += 1;
        self.events.unseen_exits += u64::from(self.is_unseen[cpu as usize]);
        let next = self.next(cpu);
        self.switch(cpu, next, Fate::Exits);
        assert_eq!(self.tasks[at].state, State::Exited);
    }

    /// Checks that the ledger has counted all waits of an exiting task. If the hook saw its last switch in,
    /// `count_unseen_arrival` has no wait left to count.
    pub(super) fn check_exit(&self, at: usize) {
        let (seed, task) = (self.seed, &self.tasks[at]);
        let waits = &task.storage.waits;
        assert_eq!(waits.expected_run_delay_ns, task.run_delay_ns, "schedule {seed}, task {at}: at the exit");
        assert_eq!(task.storage.moved.ns, 0, "schedule {seed}, task {at}: at the exit");
        assert_eq!(waits.unstamped_since_ns, 0, "schedule {seed}, task {at}: at the exit");
    }

    /// Forks a task into the slot of an exited task, and queues it on a CPU (`wake_up_new_task`). The first CPU is chosen before
    /// the task is queued, so this is no move and the hook does not run.
    pub(super) fn fork(&mut self, at: usize, cpu: u32) {
        // A cloned task may start in another cgroup than its parent (CLONE_INTO_CGROUP).
        let parent = self.current[self.below(CPUS as u64) as usize];
        let place = self.below(CGROUPS.len() as u64) as usize;
        let parents = parent.map(|parent| self.tasks[parent].cgroup).filter(|_| self.below(4) != 0);
        let cgroup = match at {
            0 => ROOT,
            STARVED if self.is_plain => self.cgroups[1],
            _ => parents.unwrap_or(self.cgroups[place]),
        };
        let mut task = self.new_task(at, cgroup, cpu);
        (task.state, task.is_forked) = (State::Queued, true);
        (task.last_queued_ns, task.since_ns) = (self.clock_ns(cpu), Some(self.now_ns));
        self.report(at);
        let old = core::mem::replace(&mut self.tasks[at], task);
        self.finished.push(old);
    }

    /// Counts the first wait of a forked task, which ends now.
    pub(super) fn count_first_wait(&mut self, at: usize) {
        let task = &self.tasks[at];
        if task.is_forked && task.ran.1 == u32::MAX {
            self.events.first_waits += 1;
            self.events.moved_first_waits += u64::from(task.moved.iter().sum::<u64>() != 0);
        }
    }

    /// Replaces a cgroup without tasks by a new cgroup, which has never run or been throttled.
    fn replace_cgroup(&mut self, place: usize) {
        let old = self.cgroups[place];
        let has_tasks = self.tasks.iter().any(|task| task.state != State::Exited && task.cgroup == old);
        if has_tasks || self.events.replaced == MOST_REPLACED || !self.is_past_a_block() {
            return;
        }
        for cpu in 0..CPUS {
            if self.queues[place][cpu].1 != 0 {
                self.log.unthrottle(old, cpu as u32, self.now_ns);
            }
            (self.queues[place][cpu], self.stopped[place][cpu]) = ((0, 0), false);
        }
        self.log.remove(old);
        self.cgroups[place] = old + CGROUPS.len() as u64;
        self.events.replaced += 1;
    }

    /// Returns whether each CPU has begun a new block since a cgroup was last replaced. If so, no block has more cgroups than
    /// entries. Short schedules have no blocks.
    fn is_past_a_block(&mut self) -> bool {
        let heads = core::array::from_fn(|cpu| Simulated::ring(cpu as u32).expect("a CPU").head);
        let is_past = (0..CPUS).all(|cpu| heads[cpu] >= self.replaced_at[cpu] + BLOCK as u64);
        if is_past || self.rarity == 1 {
            self.replaced_at = heads;
            return true;
        }
        false
    }
}
