//! The states that sampling tells apart.

use crate::TaskState;

/// What a thread does at one moment. Beside the kernel's own letters ([`TaskState`]) it is told apart why a thread in R or D is
/// not on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadState {
    /// R, on a CPU.
    OnCpu,
    /// R, could run and waits for a CPU.
    Runnable,
    /// R, and it is not known which of these, nor whether it is out of quota: the coarse mode.
    Running,
    /// R, taken off its CPU or kept from one because a quota has run out.
    Throttled,
    /// D, and it waits for a device.
    Iowait,
    /// D for another reason; in the coarse mode for any.
    Uninterruptible,
    /// T.
    Stopped,
    /// t.
    Traced,
    /// X.
    Dead,
    /// S.
    Sleeping,
    /// I: a kernel thread that has nothing to do.
    Idle,
    /// P.
    Parked,
    /// Z.
    Zombie,
    /// A letter that this version does not know.
    Unknown,
}

impl ThreadState {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::OnCpu,
        Self::Runnable,
        Self::Running,
        Self::Throttled,
        Self::Iowait,
        Self::Uninterruptible,
        Self::Stopped,
        Self::Traced,
        Self::Dead,
        Self::Sleeping,
        Self::Idle,
        Self::Parked,
        Self::Zombie,
        Self::Unknown,
    ];

    /// Of the kernel's letter alone.
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

    /// The kernel's letter, as psn sees it; `?` where it is not known.
    pub const fn letter(self) -> char {
        match self {
            Self::OnCpu | Self::Runnable | Self::Running | Self::Throttled => 'R',
            Self::Iowait | Self::Uninterruptible => 'D',
            Self::Stopped => 'T',
            Self::Traced => 't',
            Self::Dead => 'X',
            Self::Sleeping => 'S',
            Self::Idle => 'I',
            Self::Parked => 'P',
            Self::Zombie => 'Z',
            Self::Unknown => '?',
        }
    }

    /// The name in objects.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on_cpu",
            Self::Runnable => "runnable",
            Self::Running => "running",
            Self::Throttled => "throttled",
            Self::Iowait => "iowait",
            Self::Uninterruptible => "uninterruptible",
            Self::Stopped => "stopped",
            Self::Traced => "traced",
            Self::Dead => "dead",
            Self::Sleeping => "sleeping",
            Self::Idle => "idle",
            Self::Parked => "parked",
            Self::Zombie => "zombie",
            Self::Unknown => "unknown",
        }
    }

    /// In tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::OnCpu => "Running (on CPU)",
            Self::Runnable => "Runnable (waiting for a CPU)",
            Self::Running => "Running or runnable",
            Self::Throttled => "Throttled (out of quota)",
            Self::Iowait => "Disk (uninterruptible, iowait)",
            Self::Uninterruptible => "Disk (uninterruptible)",
            Self::Stopped => "Stopped",
            Self::Traced => "Stopped (traced)",
            Self::Dead => "Dead",
            Self::Sleeping => "Sleep (interruptible)",
            Self::Idle => "Idle (kernel thread)",
            Self::Parked => "Parked",
            Self::Zombie => "Zombie",
            Self::Unknown => "Unknown",
        }
    }

    /// It does something, or is kept from it: what psn shows unless all states are asked for.
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Sleeping | Self::Idle | Self::Parked | Self::Zombie)
    }

    /// It waits for an event, in the kernel, and is not to run before: there is a place and a system call where it does.
    pub const fn is_blocked(self) -> bool {
        !matches!(
            self,
            Self::OnCpu
                | Self::Runnable
                | Self::Running
                | Self::Throttled
                | Self::Zombie
                | Self::Dead
                | Self::Unknown
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_state_has_a_name_and_words_of_its_own() {
        let names: BTreeSet<&str> = ThreadState::ALL.into_iter().map(ThreadState::name).collect();
        let words: BTreeSet<&str> = ThreadState::ALL.into_iter().map(ThreadState::words).collect();
        assert_eq!((names.len(), words.len()), (ThreadState::ALL.len(), ThreadState::ALL.len()));
    }

    #[test]
    fn of_the_letter_alone_the_letter_is_kept() {
        for state in TaskState::ALL {
            assert_eq!(ThreadState::of_letter(Some(state)).letter(), state.letter());
        }
        assert_eq!(ThreadState::of_letter(None), ThreadState::Unknown);
    }

    /// `not(state_id IN ('S', 'Z', 'I', 'P'))`
    #[test]
    fn active_is_what_psn_calls_active() {
        for state in ThreadState::ALL {
            assert_eq!(state.is_active(), !"SZIP".contains(state.letter()), "{state:?}");
        }
    }
}
