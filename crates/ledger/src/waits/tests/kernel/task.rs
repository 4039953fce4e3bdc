//! A simulated task.

extern crate std;

use std::{boxed::Box, vec::Vec};

use super::Kernel;
use crate::{
    ByCause,
    segment::NO_CPU,
    waits::log,
    wire::{Histogram, TaskStorage, serial},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Sleeping,
    /// This state exists since Linux 6.12.
    SleepingOnQueue,
    Queued,
    Running,
    /// The task has exited, and its slot is free.
    Exited,
}

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Preempted,
    /// The task was about to sleep and has set its state, so the kernel does not record when its wait begins.
    PreemptedUnstamped,
    Sleeps,
    SleepsOnQueue,
    Exits,
}

/// A simulated task: the kernel's data about the task, and the data of the reference.
pub(super) struct Sim {
    pub(super) state: State,
    pub(super) cpu: u32,
    pub(super) cgroup: u64,
    pub(super) is_kernel_thread: bool,
    pub(super) is_real_time: bool,
    pub(super) is_deadline: bool,
    /// Whether the task has used up its runtime and has not received more.
    pub(super) is_out_of_runtime: bool,
    pub(super) is_throttled: bool,
    pub(super) is_forked: bool,
    pub(super) switches: u64,
    pub(super) run_delay_ns: u64,
    pub(super) last_queued_ns: u64,
    pub(super) storage: Box<TaskStorage>,
    /// The waits that a reader took from the log.
    pub(super) reported: Histogram,
    // Data of the reference.
    /// The part of the current wait before the task moved to another cgroup; 0 when the kernel has added it to its sum.
    pub(super) ended_ns: u64,
    pub(super) since_ns: Option<u64>,
    /// These four members are as in [`Segment`].
    pub(super) throttled_since_ns: Option<u64>,
    pub(super) is_phantom: bool,
    pub(super) has_no_clock: bool,
    pub(super) began_out_of_runtime: bool,
    /// The cgroup whose throttled time counts, if the task has not left it.
    pub(super) base: u64,
    /// Whether the hook saw the segment begin.
    pub(super) is_seen: bool,
    /// Whether the kernel had a sum of the cgroup's run time on the CPU when the segment began.
    pub(super) has_sum: bool,
    /// Time, CPU and cgroup of the task's last switch in. A move to another cgroup also updates this, if the task does not wait.
    pub(super) ran: (u64, u32, u64),
    pub(super) unstamped_since_ns: Option<u64>,
    pub(super) unstamped_ns: u64,
    pub(super) unstamped_count: u64,
    /// Parts of the completed segments of the current wait.
    pub(super) moved: ByCause,
    pub(super) parts: ByCause,
    /// Lengths of the completed waits, ns.
    pub(super) waits: Vec<u64>,
    /// Number of completed waits with throttled time.
    pub(super) throttled_waits: u64,
    pub(super) missed_ns: u64,
    /// Sum of [`Log::uncertain_ns`] over the waits.
    pub(super) uncertain_ns: u64,
    /// Number of segments that are longer than the history and whose start the hook saw.
    pub(super) beyond: u64,
}

impl Kernel {
    /// Creates a sleeping task that the hook has seen since the fork. `number` is the slot of the task.
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
            reported: Histogram::NONE,
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

    /// Takes the entries of a task's log, as a reader does.
    pub(super) fn report(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        let takes = (0..log::TAKES).map(|_| log::take(&mut task.storage)).filter(|entry| *entry != 0);
        takes.for_each(|entry| log::add(&mut task.reported, entry));
    }

    /// Creates the storage of a new task in the same way as the program at `task_newtask` (`create_storage`).
    fn create_storage(&self, cgroup: u64) -> Box<TaskStorage> {
        // SAFETY: the type contains only integers. The kernel's map is also filled with zeroes at first.
        let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
        storage.start.ran_on = NO_CPU;
        storage.serial = serial((self.tasks.len() + self.finished.len()) as u32 + 1, self.now_ns);
        (storage.reported.serial, storage.cgroup_id) = (storage.serial, cgroup);
        storage
    }
}
