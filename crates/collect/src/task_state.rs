//! From the kernel's words for what a task does to [`TaskState`]: plain functions.

use cgscope_layout::task_state::{
    DEAD, FROZEN, IDLE, INTERRUPTIBLE, PARKED, RTLOCK_WAIT, STOPPED, TRACED, UNINTERRUPTIBLE,
};
use cgscope_model::TaskState;

/// What the bits of `__state` say, by the kernel's own rule for the letters (`__task_state_index`): of several the highest, and
/// the others (TASK_WAKEKILL, TASK_WAKING, TASK_NEW, TASK_FREEZABLE since 6.1) only say how it may be woken. Two differences:
/// `exit_state` is not read, and the last bit that a task sets stands for it; and a frozen task is in D as it is since 6.14 and
/// was until 6.0, where the kernels between say R (f718faf3940e).
pub fn from_bits(state: u32) -> TaskState {
    let has = |bits: u32| state & bits == bits;
    if has(DEAD) {
        TaskState::Dead
    } else if has(RTLOCK_WAIT) || has(FROZEN) {
        TaskState::DiskSleep
    } else if has(IDLE) {
        TaskState::Idle
    } else if has(PARKED) {
        TaskState::Parked
    } else if has(TRACED) {
        TaskState::Traced
    } else if has(STOPPED) {
        TaskState::Stopped
    } else if has(UNINTERRUPTIBLE) {
        TaskState::DiskSleep
    } else if has(INTERRUPTIBLE) {
        TaskState::Sleeping
    } else {
        TaskState::Running
    }
}

/// Field 3 of `/proc/PID/stat`. Before 3.14 a dead task may be `x` there, too; other letters of old kernels are not known here.
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
    use cgscope_layout::task_state::NOLOAD;

    const WAKEKILL: u32 = 0x100;
    const WAKING: u32 = 0x200;
    const NEW: u32 = 0x800;
    const FREEZABLE: u32 = 0x2000;
    const FREEZABLE_UNSAFE: u32 = 0x4000;

    #[test]
    fn what_the_kernel_sets_is_told_as_the_kernel_tells_it() {
        for (bits, letter) in [
            (0, 'R'),
            (WAKING, 'R'),
            (NEW, 'R'),
            (INTERRUPTIBLE, 'S'),
            (INTERRUPTIBLE | FREEZABLE, 'S'),
            (INTERRUPTIBLE | FREEZABLE | FREEZABLE_UNSAFE, 'S'),
            (UNINTERRUPTIBLE, 'D'),
            // TASK_KILLABLE, as the parent of a vfork.
            (UNINTERRUPTIBLE | WAKEKILL, 'D'),
            (UNINTERRUPTIBLE | WAKEKILL | FREEZABLE, 'D'),
            (IDLE, 'I'),
            (IDLE | FREEZABLE, 'I'),
            (RTLOCK_WAIT, 'D'),
            (FROZEN, 'D'),
            // TASK_STOPPED; TASK_TRACED until 5.18 and since.
            (STOPPED | WAKEKILL, 'T'),
            (TRACED | WAKEKILL, 't'),
            (TRACED, 't'),
            (PARKED, 'P'),
            (DEAD, 'X'),
        ] {
            assert_eq!(from_bits(bits).letter(), letter, "{bits:#x}");
        }
    }

    /// TASK_NOLOAD alone changes nothing, and of two sleeps the deeper one is told.
    #[test]
    fn of_several_bits_the_highest_counts() {
        assert_eq!(from_bits(NOLOAD | INTERRUPTIBLE), TaskState::Sleeping);
        assert_eq!(from_bits(INTERRUPTIBLE | UNINTERRUPTIBLE), TaskState::DiskSleep);
        assert_eq!(from_bits(STOPPED | TRACED | INTERRUPTIBLE), TaskState::Traced);
        assert_eq!(from_bits(FROZEN | STOPPED), TaskState::DiskSleep);
    }

    #[test]
    fn letters_of_proc_are_told_apart() {
        for state in TaskState::ALL.iter().copied() {
            assert_eq!(from_stat(&[state.letter() as u8]), Some(state));
        }
        assert_eq!(from_stat(b"x"), Some(TaskState::Dead));
        for other in [&b"W"[..], b"K", b"", b"RS", b"\xff"] {
            assert_eq!(from_stat(other), None);
        }
    }
}
