//! The states of threads.

use std::collections::{HashMap, HashSet};

use cgscope_ledger::named;
use cgscope_model::{Names, Selection, TaskState, selection::SelectionFilter};

use crate::{GroupBy, ThreadNames, ThreadReading};

named! {
    /// What a thread does at one moment. Unlike the kernel's letters ([`TaskState`]), it shows why a thread in R or D is off its
    /// CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ThreadState (letter, name, words) {
        /// The kernel's letter, as psn shows it.
        letter: char,
        /// The name in JSON objects.
        name: &'static str,
        /// The words in tables.
        words: &'static str,
    }

    OnCpu = 'R', "on_cpu", "Running (on CPU)";
    Runnable = 'R', "runnable", "Runnable (waiting for a CPU)";
    /// Any state with letter R, in coarse mode.
    Running = 'R', "running", "Running or runnable";
    Throttled = 'R', "throttled", "Throttled (out of quota)";
    Iowait = 'D', "iowait", "Disk (uninterruptible, iowait)";
    /// In D for a reason other than I/O; in coarse mode for any reason.
    Uninterruptible = 'D', "uninterruptible", "Disk (uninterruptible)";
    Stopped = 'T', "stopped", "Stopped";
    Traced = 't', "traced", "Stopped (traced)";
    /// Exited, and about to be removed.
    Dead = 'X', "dead", "Dead";
    Sleeping = 'S', "sleeping", "Sleep (interruptible)";
    Idle = 'I', "idle", "Idle (kernel thread)";
    /// A kernel thread that is not needed, for example while its CPU is offline.
    Parked = 'P', "parked", "Parked";
    /// Exited, but not reaped yet.
    Zombie = 'Z', "zombie", "Zombie";
    Unknown = '?', "unknown", "Unknown";
}

impl ThreadState {
    /// Returns the state for the kernel's letter alone.
    pub const fn of_letter(state: Option<TaskState>) -> Self {
        match state {
            Some(TaskState::Running) => Self::Running,
            Some(TaskState::Sleeping) => Self::Sleeping,
            Some(TaskState::DiskSleep) => Self::Uninterruptible,
            Some(TaskState::Idle) => Self::Idle,
            Some(TaskState::Stopped) => Self::Stopped,
            Some(TaskState::Traced) => Self::Traced,
            Some(TaskState::Parked) => Self::Parked,
            Some(TaskState::Zombie) => Self::Zombie,
            Some(TaskState::Dead) => Self::Dead,
            None => Self::Unknown,
        }
    }

    /// Whether the thread does something, or wants to but cannot. psn shows these states by default.
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Sleeping | Self::Idle | Self::Parked | Self::Zombie)
    }

    /// Whether the thread waits in the kernel, so that it has a place and a system call.
    pub const fn is_blocked(self) -> bool {
        !matches!(self.letter(), 'R' | 'Z' | 'X' | '?')
    }
}

/// Selects threads by name, CPU, node and cgroup.
pub struct ThreadFilter {
    filter: SelectionFilter,
    names: Names,
    /// Whether a cgroup is selected, by id. Contains only cgroups with a known path.
    cgroups: HashMap<u64, bool>,
}

impl ThreadFilter {
    /// Creates a filter from a selection, without its processes and threads. `names` has the pods and containers of this host. Fails
    /// if `comm` is not a regular expression.
    pub fn new(selection: &Selection, names: Names) -> Result<Self, regex::Error> {
        Ok(Self { filter: SelectionFilter::new(selection)?, names, cgroups: HashMap::new() })
    }

    pub(crate) fn needs_cgroups(&self) -> bool {
        self.filter.is_by_cgroup()
    }

    /// Whether the filter selects all threads.
    pub(crate) fn is_open(&self) -> bool {
        !self.filter.is_by_cgroup() && !self.filter.is_by_task()
    }

    pub(crate) fn unknown_cgroups(&self, readings: &[ThreadReading]) -> HashSet<u64> {
        let ids = readings.iter().filter_map(|reading| reading.cgroup_id);
        ids.filter(|id| !self.cgroups.contains_key(id)).collect()
    }

    /// Whether a thread is selected. A thread with an unknown cgroup, CPU or node is not selected if the filter depends on it.
    pub(crate) fn wants(&mut self, reading: &ThreadReading, names: &impl ThreadNames) -> bool {
        let comm = reading.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let node = reading.cpu.and_then(|cpu| names.node(cpu));
        self.filter.wants_task(&String::from_utf8_lossy(comm), reading.cpu, node)
            && self.is_in_cgroup(reading, names)
    }

    fn is_in_cgroup(&mut self, reading: &ThreadReading, names: &impl ThreadNames) -> bool {
        if !self.needs_cgroups() {
            return true;
        }
        let Some(id) = reading.cgroup_id else { return false };
        if let Some(is_in) = self.cgroups.get(&id) {
            return *is_in;
        }
        let Some(path) = names.name(GroupBy::Cgroup, reading) else { return false };
        *self.cgroups.entry(id).or_insert(self.filter.wants_cgroup(&path, &self.names))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_state_has_its_own_name_and_words() {
        let names: BTreeSet<&str> = ThreadState::ALL.iter().map(|state| state.name()).collect();
        let words: BTreeSet<&str> = ThreadState::ALL.iter().map(|state| state.words()).collect();
        assert_eq!((names.len(), words.len()), (ThreadState::ALL.len(), ThreadState::ALL.len()));
    }

    #[test]
    fn a_state_from_a_letter_keeps_the_letter() {
        for state in TaskState::ALL.iter().copied() {
            assert_eq!(ThreadState::of_letter(Some(state)).letter(), state.letter());
        }
        assert_eq!(ThreadState::of_letter(None), ThreadState::Unknown);
    }

    /// psn's condition: `not(state_id IN ('S', 'Z', 'I', 'P'))`.
    #[test]
    fn active_is_what_psn_calls_active() {
        for state in ThreadState::ALL {
            assert_eq!(state.is_active(), !"SZIP".contains(state.letter()), "{state:?}");
        }
    }
}
