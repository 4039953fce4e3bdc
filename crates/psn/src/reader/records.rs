//! Parses the stream of the iterator into records, and records into states.

use std::io::{self, Read};

use cgscope_layout::{
    FRAMES,
    threads::{DISPLACED, END, HAS_SYSCALL, IOWAIT, LONGEST, ON_CPU, THROTTLED, ThreadRecord},
};
use cgscope_model::TaskState;

use crate::ThreadState;
use cgscope_collect::shared_parts::{Buffer, StreamEnd, drain, task_state_from_bits};

const RECORD: usize = size_of::<ThreadRecord>();

// `task_struct.exit_state` (include/linux/sched.h), in all versions.
const EXIT_DEAD: u32 = 0x10;
const EXIT_ZOMBIE: u32 = 0x20;

/// Calls `each` with every thread and its addresses; returns the number of threads that the kernel went over, `None` if the stream
/// is cut short.
pub(super) fn read_records(
    stream: &mut impl Read,
    buffer: &mut Buffer,
    mut each: impl FnMut(&ThreadRecord, &[u64]),
) -> io::Result<Option<u64>> {
    let mut looked_at = None;
    let end = drain(stream, buffer, |bytes| take_records(bytes, &mut each, &mut looked_at))?;
    Ok(looked_at.filter(|_| end == StreamEnd::Complete))
}

/// Parses whole records; returns the bytes used, or `None` for what is no record.
fn take_records(
    bytes: &[u8],
    each: &mut impl FnMut(&ThreadRecord, &[u64]),
    looked_at: &mut Option<u64>,
) -> Option<usize> {
    let mut used = 0;
    let mut addresses = [0; FRAMES];
    while let Some(head) = bytes[used..].first_chunk::<RECORD>() {
        // SAFETY: integers alone, of the size of the chunk; any bits are valid.
        let record: ThreadRecord = unsafe { head.as_ptr().cast::<ThreadRecord>().read_unaligned() };
        let frames = record.frames as usize;
        let length = RECORD + frames.checked_mul(size_of::<u64>())?;
        if length > LONGEST {
            return None;
        }
        let Some(whole) = bytes.get(used..used + length) else { break };
        if record.flags & END != 0 {
            *looked_at = Some(record.tid.into());
        } else {
            for (address, word) in addresses.iter_mut().zip(whole[RECORD..].chunks_exact(size_of::<u64>())) {
                *address = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            }
            each(&record, &addresses[..frames]);
        }
        used += length;
    }
    Some(used)
}

/// What a thread does. Being on a run queue says nothing: since 6.12 a task may sleep there (DELAY_DEQUEUE). A thread that was
/// preempted on its way to sleep is reported as asleep.
pub(super) fn state(record: &ThreadRecord) -> ThreadState {
    let has = |flag: u32| record.flags & flag != 0;
    if has(ON_CPU | DISPLACED) {
        return ThreadState::OnCpu;
    }
    if record.exit_state & EXIT_ZOMBIE != 0 {
        return ThreadState::Zombie;
    }
    if record.exit_state & EXIT_DEAD != 0 {
        return ThreadState::Dead;
    }
    match task_state_from_bits(record.state) {
        // Also a thread that is just woken and not on a queue yet.
        TaskState::Running if has(THROTTLED) => ThreadState::Throttled,
        TaskState::Running => ThreadState::Runnable,
        TaskState::DiskSleep if has(IOWAIT) => ThreadState::Iowait,
        other => ThreadState::of_letter(Some(other)),
    }
}

pub(super) fn syscall(record: &ThreadRecord) -> Option<i32> {
    (record.flags & HAS_SYSCALL != 0 && record.syscall >= 0).then_some(record.syscall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_layout::threads::ON_RQ;

    fn bytes_of(record: &ThreadRecord, addresses: &[u64]) -> Vec<u8> {
        // SAFETY: integers without padding.
        let head = unsafe { std::slice::from_raw_parts((&raw const *record).cast::<u8>(), RECORD) };
        head.iter().copied().chain(addresses.iter().flat_map(|address| address.to_ne_bytes())).collect()
    }

    /// Threads with 0 to 4 addresses each, and the end.
    fn stream(threads: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for tid in 0..threads {
            let addresses: Vec<u64> = (0..tid % 5).map(u64::from).collect();
            let record = ThreadRecord { tid, frames: addresses.len() as u32, ..Default::default() };
            bytes.extend(bytes_of(&record, &addresses));
        }
        bytes.extend(bytes_of(&ThreadRecord { flags: END, tid: 2 * threads, ..Default::default() }, &[]));
        bytes
    }

    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn records_are_found_whatever_pieces_they_come_in() {
        let bytes = stream(1000);
        for piece in [1, 7, RECORD, 4096, 1 << 20] {
            let mut seen = Vec::new();
            let looked_at =
                read_records(&mut Pieces(&bytes, piece), &mut Buffer::default(), |record, addresses| {
                    assert!(addresses.iter().copied().eq((0..record.tid % 5).map(u64::from)));
                    seen.push(record.tid);
                });
            assert_eq!(looked_at.unwrap(), Some(2_000));
            assert!(seen.into_iter().eq(0..1000));
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_says_so() {
        let bytes = stream(10);
        for length in 0..bytes.len() {
            let looked_at =
                read_records(&mut Pieces(&bytes[..length], 4096), &mut Buffer::default(), |_, _| {});
            assert_eq!(looked_at.unwrap(), None, "{length}");
        }
        let none =
            read_records(&mut Pieces(&[0xff; 500], 4096), &mut Buffer::default(), |_, _| panic!("no record"));
        assert_eq!(none.unwrap(), None);
    }

    #[test]
    fn the_reason_why_a_thread_is_off_its_cpu_is_told_apart() {
        let record = |flags, state| ThreadRecord { flags, state, ..Default::default() };
        for (flags, bits, expected) in [
            (ON_CPU | ON_RQ, 0, ThreadState::OnCpu),
            (ON_CPU | ON_RQ, 1, ThreadState::OnCpu),
            (ON_RQ, 0, ThreadState::Runnable),
            (ON_RQ | DISPLACED, 0, ThreadState::OnCpu),
            (0, 0x200, ThreadState::Runnable),
            (ON_RQ | THROTTLED, 0, ThreadState::Throttled),
            (ON_RQ, 1, ThreadState::Sleeping),
            (ON_RQ | THROTTLED, 1, ThreadState::Sleeping),
            (0, 2, ThreadState::Uninterruptible),
            (IOWAIT, 2, ThreadState::Iowait),
            (IOWAIT, 1, ThreadState::Sleeping),
            (0, 0x402, ThreadState::Idle),
            (0, 4, ThreadState::Stopped),
            (0, 8, ThreadState::Traced),
            (0, 0x40, ThreadState::Parked),
        ] {
            assert_eq!(state(&record(flags, bits)), expected, "{flags:#x} {bits:#x}");
        }
        let gone = |exit_state| state(&ThreadRecord { exit_state, state: 0x80, ..Default::default() });
        assert_eq!((gone(0x20), gone(0x10)), (ThreadState::Zombie, ThreadState::Dead));
    }

    #[test]
    fn a_system_call_is_told_where_it_was_read() {
        let record = |flags, syscall| ThreadRecord { flags, syscall, ..Default::default() };
        assert_eq!(syscall(&record(HAS_SYSCALL, 202)), Some(202));
        assert_eq!(syscall(&record(HAS_SYSCALL, -1)), None, "in none");
        assert_eq!(syscall(&record(0, 202)), None, "not read");
    }
}
