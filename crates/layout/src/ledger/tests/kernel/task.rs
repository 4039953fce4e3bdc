//! A simulated task.

extern crate std;

use std::boxed::Box;

use super::{CGROUPS, CPUS, Kernel, ROOT};
use crate::{ByCause, wire::TaskStorage};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Sleeping,
    /// Since Linux 6.12.
    SleepingOnQueue,
    Queued,
    Running,
}

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Preempted,
    /// On its way to sleep, with its state set: the kernel does not stamp it.
    PreemptedUnstamped,
    Sleeps,
    SleepsOnQueue,
}

/// A task: what the kernel keeps of it, and what the reference keeps.
pub(super) struct Sim {
    pub(super) state: State,
    pub(super) cpu: u32,
    pub(super) cgroup: u64,
    pub(super) is_kernel_thread: bool,
    pub(super) is_real_time: bool,
    pub(super) is_throttled: bool,
    pub(super) switches: u64,
    pub(super) run_delay_ns: u64,
    pub(super) last_queued_ns: u64,
    pub(super) storage: Box<TaskStorage>,
    // What the reference keeps.
    /// When the current segment began.
    pub(super) since_ns: Option<u64>,
    /// As in [`Segment`].
    pub(super) throttled_since_ns: Option<u64>,
    pub(super) is_phantom: bool,
    pub(super) has_no_clock: bool,
    /// The cgroup whose throttled time counts, if it is still the task's.
    pub(super) base: u64,
    /// The hook saw the segment begin.
    pub(super) is_seen: bool,
    /// When, where and in which cgroup it last switched in.
    pub(super) ran: (u64, u32, u64),
    pub(super) unstamped_since_ns: Option<u64>,
    pub(super) unstamped_ns: u64,
    /// The segments of the current wait that have ended.
    pub(super) moved: ByCause,
    pub(super) parts: ByCause,
    pub(super) waits: u64,
    pub(super) missed_ns: u64,
    /// The sum of [`Log::uncertain_ns`].
    pub(super) uncertain_ns: u64,
    /// Segments that are longer than the history, and whose beginning the hook saw.
    pub(super) beyond: u64,
}

impl Kernel {
    pub(super) fn new_task(&mut self, number: usize) -> Sim {
        let is_kernel_thread = number == 0;
        let cgroup = if is_kernel_thread { ROOT } else { CGROUPS[self.below(CGROUPS.len() as u64) as usize] };
        Sim {
            state: State::Sleeping,
            cpu: self.below(CPUS as u64) as u32,
            cgroup,
            is_kernel_thread,
            is_real_time: number == 1,
            is_throttled: false,
            switches: 0,
            run_delay_ns: 0,
            last_queued_ns: 0,
            // SAFETY: it holds only integers; the kernel's map starts with the same zeroes.
            storage: unsafe { Box::<TaskStorage>::new_zeroed().assume_init() },
            since_ns: None,
            throttled_since_ns: None,
            is_phantom: false,
            has_no_clock: false,
            base: cgroup,
            is_seen: false,
            ran: (0, u32::MAX, 0),
            unstamped_since_ns: None,
            unstamped_ns: 0,
            moved: ByCause::default(),
            parts: ByCause::default(),
            waits: 0,
            missed_ns: 0,
            uncertain_ns: 0,
            beyond: 0,
        }
    }
}
