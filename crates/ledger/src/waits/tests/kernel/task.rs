//! A simulated task.

extern crate std;

use std::{boxed::Box, vec::Vec};

use super::Kernel;
use crate::{
    ByCause,
    segment::NO_CPU,
    wire::{TaskStorage, serial},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Sleeping,
    /// Since Linux 6.12.
    SleepingOnQueue,
    Queued,
    Running,
    /// The slot is free.
    Exited,
}

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Preempted,
    /// On its way to sleep, with its state set: the kernel does not stamp it.
    PreemptedUnstamped,
    Sleeps,
    SleepsOnQueue,
    Exits,
}

/// A task: what the kernel keeps of it, and what the reference keeps.
pub(super) struct Sim {
    pub(super) state: State,
    pub(super) cpu: u32,
    pub(super) cgroup: u64,
    pub(super) is_kernel_thread: bool,
    pub(super) is_real_time: bool,
    pub(super) is_deadline: bool,
    /// It has used up its runtime, until it gets more.
    pub(super) is_out_of_runtime: bool,
    pub(super) is_throttled: bool,
    /// It was forked during the schedule.
    pub(super) is_forked: bool,
    pub(super) switches: u64,
    pub(super) run_delay_ns: u64,
    pub(super) last_queued_ns: u64,
    pub(super) storage: Box<TaskStorage>,
    // What the reference keeps.
    /// The part of the current wait that has ended with a move to another cgroup, and that the kernel has not added yet.
    pub(super) ended_ns: u64,
    /// When the current segment began.
    pub(super) since_ns: Option<u64>,
    /// As in [`Segment`].
    pub(super) throttled_since_ns: Option<u64>,
    pub(super) is_phantom: bool,
    pub(super) has_no_clock: bool,
    pub(super) began_out_of_runtime: bool,
    /// The cgroup whose throttled time counts, if it is still the task's.
    pub(super) base: u64,
    /// The hook saw the segment begin.
    pub(super) is_seen: bool,
    /// Its cgroup had run on the CPU by then, as far as the kernel has a sum.
    pub(super) has_sum: bool,
    /// When, where and in which cgroup it last switched in, or moved to the cgroup while it did not wait.
    pub(super) ran: (u64, u32, u64),
    pub(super) unstamped_since_ns: Option<u64>,
    pub(super) unstamped_ns: u64,
    pub(super) unstamped_count: u64,
    /// The segments of the current wait that have ended.
    pub(super) moved: ByCause,
    pub(super) parts: ByCause,
    /// The lengths of the waits that ended.
    pub(super) waits: Vec<u64>,
    /// How many of them had throttled time.
    pub(super) throttled_waits: u64,
    pub(super) missed_ns: u64,
    /// The sum of [`Log::uncertain_ns`].
    pub(super) uncertain_ns: u64,
    /// Segments that are longer than the history, and whose beginning the hook saw.
    pub(super) beyond: u64,
}

impl Kernel {
    /// A sleeping task that the hook knows since it was forked. `number`: its slot.
    pub(super) fn new_task(&self, number: usize, cgroup: u64, cpu: u32) -> Sim {
        Sim {
            state: State::Sleeping,
            cpu,
            cgroup,
            is_kernel_thread: number == 0,
            is_real_time: number == 1,
            is_deadline: number == 1 && self.seed.is_multiple_of(3),
            is_out_of_runtime: false,
            is_throttled: false,
            is_forked: false,
            switches: 0,
            run_delay_ns: 0,
            last_queued_ns: 0,
            storage: self.create_storage(cgroup),
            ended_ns: 0,
            since_ns: None,
            throttled_since_ns: None,
            is_phantom: false,
            has_no_clock: false,
            began_out_of_runtime: false,
            base: cgroup,
            is_seen: false,
            has_sum: false,
            ran: (0, u32::MAX, 0),
            unstamped_since_ns: None,
            unstamped_ns: 0,
            unstamped_count: 0,
            moved: ByCause::default(),
            parts: ByCause::default(),
            waits: Vec::new(),
            throttled_waits: 0,
            missed_ns: 0,
            uncertain_ns: 0,
            beyond: 0,
        }
    }

    /// Creates the storage of a new task as the program at `task_newtask` does (`create_storage`).
    fn create_storage(&self, cgroup: u64) -> Box<TaskStorage> {
        // SAFETY: it holds only integers; the kernel's map starts with the same zeroes.
        let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
        storage.start.ran_on = NO_CPU;
        storage.serial = serial((self.tasks.len() + self.finished.len()) as u32 + 1, self.now_ns);
        (storage.reported_serial, storage.cgroup_id) = (storage.serial, cgroup);
        storage
    }
}
