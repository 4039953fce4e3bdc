//! What a task does at the moment of a reading, in the kernel's own terms and letters: those of `/proc`, ps and psn.

use serde::{Serialize, Serializer};

cgscope_layout::named! {
    /// The state of a task. Which bits of the kernel make which of them is known where they are read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum TaskState (letter, name) {
        /// As `/proc/PID/stat` writes it, and ps and psn print it.
        letter: char,
        /// As `/proc/PID/status` names it.
        name: &'static str,
    }

    /// R: on a CPU, or could run and waits for one.
    Running = 'R', "running";
    /// S: sleeps until something happens or a signal comes.
    Sleeping = 'S', "sleeping";
    /// D: sleeps and takes no signal, mostly for I/O or a lock. It counts for the load average.
    DiskSleep = 'D', "disk sleep";
    /// I: a kernel thread that sleeps as in D, but has nothing to do and does not count for the load average.
    Idle = 'I', "idle";
    /// T: stopped by a signal.
    Stopped = 'T', "stopped";
    /// t: stopped by its tracer.
    Traced = 't', "tracing stop";
    /// P: a kernel thread that is kept from running, as those of a CPU that is offline.
    Parked = 'P', "parked";
    /// Z: has ended, and its parent has not waited for it.
    Zombie = 'Z', "zombie";
    /// X: has ended, and nobody will wait for it.
    Dead = 'X', "dead";
}

impl TaskState {
    /// `None` for a letter that is none of these.
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.letter() == letter)
    }
}

/// By its letter.
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
