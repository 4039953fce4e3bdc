//! The state of a task at the moment of a reading, with the kernel's names and letters: as in `/proc`, ps and psn.

use serde::{Serialize, Serializer};

cgscope_ledger::named! {
    /// The state of a task. The crates that read the kernel's state bits map them to these states.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum TaskState (letter, name) {
        /// The letter in `/proc/PID/stat`, which ps and psn print.
        letter: char,
        /// The name in `/proc/PID/status`.
        name: &'static str,
    }

    /// R: on a CPU, or runnable and waiting for one.
    Running = 'R', "running";
    /// S: sleeps until an event or a signal.
    Sleeping = 'S', "sleeping";
    /// D: sleeps and ignores signals, mostly for I/O or a lock. Counts towards the load average.
    DiskSleep = 'D', "disk sleep";
    /// I: an idle kernel thread. Sleeps as in D, but does not count towards the load average.
    Idle = 'I', "idle";
    /// T: stopped by a signal.
    Stopped = 'T', "stopped";
    /// t: stopped by its tracer.
    Traced = 't', "tracing stop";
    /// P: a kernel thread that must not run, for example that of an offline CPU.
    Parked = 'P', "parked";
    /// Z: has exited, and the parent has not waited for the exit yet.
    Zombie = 'Z', "zombie";
    /// X: has exited, and no process will wait for the exit.
    Dead = 'X', "dead";
}

impl TaskState {
    /// The state of a letter; `None` if no state has this letter.
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.letter() == letter)
    }
}

/// Serialized as the letter.
impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_char(self.letter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_state_has_a_letter_and_a_name_of_its_own() {
        let letters: String = TaskState::ALL.iter().map(|state| state.letter()).collect();
        assert_eq!(letters, "RSDITtPZX");
        for state in TaskState::ALL.iter().copied() {
            assert_eq!(TaskState::from_letter(state.letter()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.letter().to_string());
        }
        let names: BTreeSet<&str> = TaskState::ALL.iter().map(|state| state.name()).collect();
        assert_eq!(names.len(), TaskState::ALL.len());
        assert_eq!(TaskState::from_letter('r'), None);
    }
}
