//! Converts the kernel's task states to [`TaskState`].

use cgscope_ledger::task_state::{
    DEAD, FROZEN, IDLE, INTERRUPTIBLE, PARKED, RTLOCK_WAIT, STOPPED, TRACED, UNINTERRUPTIBLE,
};
use cgscope_model::TaskState;

/// Converts `__state` as the kernel does for the state letters (`__task_state_index`): the highest bit decides. Other bits
/// (TASK_WAKEKILL, TASK_WAKING, TASK_NEW, TASK_FREEZABLE since 6.1) only describe how the task can be woken.
///
/// There are two differences from the kernel. First, we do not read `exit_state`. Instead, `TASK_DEAD`, the last bit that a task
/// sets, means that the task is dead. Second, a frozen task always has the state D, as in Linux until 6.0 and since 6.14. In the
/// versions in between, the kernel shows R (f718faf3940e).
pub fn from_bits(state: u32) -> TaskState {
    const HIGHEST_FIRST: [(u32, TaskState); 9] = [
        (DEAD, TaskState::Dead),
        (RTLOCK_WAIT, TaskState::DiskSleep),
        (FROZEN, TaskState::DiskSleep),
        (IDLE, TaskState::Idle),
        (PARKED, TaskState::Parked),
        (TRACED, TaskState::Traced),
        (STOPPED, TaskState::Stopped),
        (UNINTERRUPTIBLE, TaskState::DiskSleep),
        (INTERRUPTIBLE, TaskState::Sleeping),
    ];
    let found = HIGHEST_FIRST.iter().find(|(bits, _)| state & bits == *bits);
    found.map_or(TaskState::Running, |(_, state)| *state)
}

/// Parses field 3 of `/proc/PID/stat`. `x` is a dead task before 3.14. Other letters of old kernels are `None`.
pub(crate) fn from_stat(field: &[u8]) -> Option<TaskState> {
    match field {
        b"x" => Some(TaskState::Dead),
        [letter] => TaskState::from_letter(char::from(*letter)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::task_state::NOLOAD;

    const WAKEKILL: u32 = 0x100;
    const WAKING: u32 = 0x200;
    const NEW: u32 = 0x800;
    const FREEZABLE: u32 = 0x2000;
    const FREEZABLE_UNSAFE: u32 = 0x4000;

    #[test]
    fn states_are_converted_as_the_kernel_does() {
        for (bits, letter) in [
            (0, 'R'),
            (WAKING, 'R'),
            (NEW, 'R'),
            (INTERRUPTIBLE, 'S'),
            (INTERRUPTIBLE | FREEZABLE, 'S'),
            (INTERRUPTIBLE | FREEZABLE | FREEZABLE_UNSAFE, 'S'),
            (UNINTERRUPTIBLE, 'D'),
            // TASK_KILLABLE, the state of the parent of a vfork.
            (UNINTERRUPTIBLE | WAKEKILL, 'D'),
            (UNINTERRUPTIBLE | WAKEKILL | FREEZABLE, 'D'),
            (IDLE, 'I'),
            (IDLE | FREEZABLE, 'I'),
            (RTLOCK_WAIT, 'D'),
            (FROZEN, 'D'),
            // TASK_STOPPED, then TASK_TRACED until 5.18 and TASK_TRACED since then.
            (STOPPED | WAKEKILL, 'T'),
            (TRACED | WAKEKILL, 't'),
            (TRACED, 't'),
            (PARKED, 'P'),
            (DEAD, 'X'),
        ] {
            assert_eq!(from_bits(bits).letter(), letter, "{bits:#x}");
        }
    }

    /// TASK_NOLOAD alone changes nothing. If two sleep bits are set, the higher bit decides.
    #[test]
    fn the_highest_of_several_bits_decides() {
        assert_eq!(from_bits(NOLOAD | INTERRUPTIBLE), TaskState::Sleeping);
        assert_eq!(from_bits(INTERRUPTIBLE | UNINTERRUPTIBLE), TaskState::DiskSleep);
        assert_eq!(from_bits(STOPPED | TRACED | INTERRUPTIBLE), TaskState::Traced);
        assert_eq!(from_bits(FROZEN | STOPPED), TaskState::DiskSleep);
    }

    #[test]
    fn the_letters_of_proc_are_parsed() {
        for state in TaskState::ALL.iter().copied() {
            assert_eq!(from_stat(&[state.letter() as u8]), Some(state));
        }
        assert_eq!(from_stat(b"x"), Some(TaskState::Dead));
        for other in [&b"W"[..], b"K", b"", b"RS", b"\xff"] {
            assert_eq!(from_stat(other), None);
        }
    }
}
