//! The record that `cgscope sample` reads for each thread. It describes the thread at one moment. A task iterator writes the
//! record, in a separate BPF object that needs no hook (`ebpf/src/sample.rs`).

use crate::FRAMES;

/// The record of one thread. In the stream, [`Self::frames`] kernel return addresses follow the record, innermost first. The last
/// record of a reading has [`END`] set. In that record, [`Self::tid`] is the number of threads that the iterator has visited.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadRecord {
    /// [`END`], [`ON_CPU`], [`DISPLACED`], [`ON_RQ`], [`THROTTLED`], [`IOWAIT`], [`HAS_SYSCALL`].
    pub flags: u32,
    /// Number of return addresses that follow the record.
    pub frames: u32,
    pub tid: u32,
    pub tgid: u32,
    /// Name of the thread, padded with NUL bytes.
    pub comm: [u8; 16],
    /// Id of the cgroup in the hierarchy that [`crate::wire::Config::cgroup_v2`] selects; 0 if not requested.
    pub cgroup_id: u64,
    /// `task_struct.__state`.
    pub state: u32,
    /// `task_struct.exit_state`: 0 until the thread has exited.
    pub exit_state: u32,
    /// The CPU on which the thread runs, last ran, or is queued.
    pub cpu: u32,
    /// Real user id of the thread.
    pub uid: u32,
    /// If [`HAS_SYSCALL`] is set: number of the system call that the thread executes; negative if it executes none.
    pub syscall: i32,
    pub padding: u32,
}

/// In [`ThreadRecord::flags`]: this is the last record, after the records of all threads.
pub const END: u32 = 1;
pub const ON_CPU: u32 = 2;
/// In [`ThreadRecord::flags`]: the thread was on a CPU until the reader switched in on the same CPU.
pub const DISPLACED: u32 = 4;
pub const ON_RQ: u32 = 8;
/// In [`ThreadRecord::flags`]: the thread cannot run because a quota is used up.
pub const THROTTLED: u32 = 16;
/// In [`ThreadRecord::flags`]: `task_struct.in_iowait` is set.
pub const IOWAIT: u32 = 32;
/// In [`ThreadRecord::flags`]: the thread is blocked, and the number of its system call was read.
pub const HAS_SYSCALL: u32 = 64;

/// Maximum size of a record and its return addresses, bytes.
pub const LONGEST: usize = size_of::<ThreadRecord>() + FRAMES * size_of::<u64>();

/// Settings that user space writes before it loads the program. The iterator reads only the data that user space requested.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadsConfig {
    /// 1: report threads in every state. 0: omit exited threads and those that are asleep, idle or parked.
    pub all_states: u64,
    /// 1: read the system call of blocked threads.
    pub syscall: u64,
    /// Maximum size of the return addresses that are read for each thread off its CPU, bytes: a multiple of 8, at most `8 *
    /// FRAMES`; 0 to read none.
    pub stack_bytes: u64,
    /// 1: report only the threads in the table of selected ids ([`crate::wire::SELECT_PROCESS`], [`crate::wire::SELECT_THREAD`]).
    pub selected_only: u64,
    pub uid: u64,
    pub cgroup: u64,
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
