//! The record that `cgscope sample` reads of each thread: what it does at one moment. Written by a task iterator that needs no
//! hook, in an object of its own (`ebpf/src/sample.rs`).

use crate::accounts::FRAMES;

/// One thread. In the stream [`Self::frames`] return addresses of the kernel follow, the innermost first. The last record of a
/// reading has [`END`] set, and in [`Self::tid`] the number of threads that were looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadRecord {
    /// [`END`], [`ON_CPU`], [`DISPLACED`], [`ON_RQ`], [`THROTTLED`], [`IOWAIT`], [`HAS_SYSCALL`].
    pub flags: u32,
    /// Addresses that follow.
    pub frames: u32,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// NUL-padded name.
    pub comm: [u8; 16],
    /// Its cgroup in the hierarchy that [`crate::wire::Config::cgroup_v2`] names; 0 where it is not asked for.
    pub cgroup_id: u64,
    /// `task_struct.__state`.
    pub state: u32,
    /// `task_struct.exit_state`: 0 unless it has ended.
    pub exit_state: u32,
    /// The CPU it runs on, or last ran on or was queued on.
    pub cpu: u32,
    /// Its real user id.
    pub uid: u32,
    /// With [`HAS_SYSCALL`]: the number of the system call that it is in, negative outside of one.
    pub syscall: i32,
    /// No meaning.
    pub padding: u32,
}

/// In [`ThreadRecord::flags`]: all threads have been told of.
pub const END: u32 = 1;
/// In [`ThreadRecord::flags`]: on a CPU at this moment.
pub const ON_CPU: u32 = 2;
/// In [`ThreadRecord::flags`]: it was on a CPU until the reader came there to read.
pub const DISPLACED: u32 = 4;
/// In [`ThreadRecord::flags`]: on a run queue.
pub const ON_RQ: u32 = 8;
/// In [`ThreadRecord::flags`]: taken off its CPU, or kept from one, because a quota has run out.
pub const THROTTLED: u32 = 16;
/// In [`ThreadRecord::flags`]: `task_struct.in_iowait`.
pub const IOWAIT: u32 = 32;
/// In [`ThreadRecord::flags`]: it is blocked, and its system call was read.
pub const HAS_SYSCALL: u32 = 64;

/// The longest record with its addresses, bytes.
pub const LONGEST: usize = size_of::<ThreadRecord>() + FRAMES * size_of::<u64>();

/// What user space sets before the program is loaded. What is not asked for is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadsConfig {
    /// 1: threads in every state. 0: those that are neither asleep, idle nor parked, and have not ended.
    pub all_states: u64,
    /// 1: the system call of threads that are blocked.
    pub syscall: u64,
    /// Bytes of return addresses to take of threads that are off their CPUs: a multiple of 8, at most `8 * FRAMES`; 0: none.
    pub stack_bytes: u64,
    /// 1: only threads in the table of the selected ([`crate::wire::SELECT_PROCESS`], [`crate::wire::SELECT_THREAD`]).
    pub selected_only: u64,
    /// 1: their users.
    pub uid: u64,
    /// 1: their cgroups.
    pub cgroup: u64,
}

/// Names of the object's map, program and global beside those of [`crate::wire::names`].
pub mod names {
    /// `static`: [`super::ThreadsConfig`].
    pub const THREADS: &str = "THREADS";
    /// Task iterator.
    pub const LOOK_AT_THREADS: &str = "look_at_threads";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_has_no_padding_of_its_own() {
        let members = 4 * 4 + 16 + 8 + 4 * 6;
        assert_eq!(size_of::<ThreadRecord>(), members);
        assert_eq!(size_of::<ThreadsConfig>(), 6 * size_of::<u64>());
    }
}
