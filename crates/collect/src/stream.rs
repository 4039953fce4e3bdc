//! Parses the output of the BPF side's iterators.

use std::io::{self, Read};

use cgscope_ledger::{
    Loss, Stack,
    wire::{
        self, AccountsRecord, Exited, ExitedRecord, HAS_ACCOUNTS, HAS_BASE, HAS_BASE_HISTOGRAM, HAS_EXITED,
        HAS_HISTOGRAM, HAS_PLACEMENT, HAS_STACK, Histogram, LIST, ListRecord, Placement, SAME, SameRecord,
        TaskRecord,
    },
};
use cgscope_model::Losses;

use crate::{Failure, bpf_calls::Plain};

/// Size of our buffer, bytes: twice the size of the kernel's buffer, so that each read can empty the kernel's buffer.
const BUFFER: usize = 64 * 1024;

/// Buffer of a stream. The buffer consists of 64-bit words, so that records in it are aligned and need not be copied.
#[derive(Debug, Default)]
pub struct Buffer(Vec<u64>);

impl Buffer {
    fn bytes(&mut self) -> &mut [u8] {
        self.0.resize(BUFFER / size_of::<u64>(), 0);
        // SAFETY: the slice covers exactly the bytes of these words.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), BUFFER) }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Everything was read.
    Complete,
    /// The stream was cut, or contained bytes that are not a record.
    CutShort,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskReported<'a> {
    pub record: &'a TaskRecord,
    /// Figures of the task at its move to its current cgroup. `None` unless the task has moved since the last report.
    pub base: Option<&'a wire::Reported>,
    /// The waits between the last report and that move. `None` if the task did not wait.
    pub base_histogram: Option<&'a Histogram>,
    pub placement: Option<&'a Placement>,
    pub accounts: Option<&'a AccountsRecord>,
    pub stack: Option<&'a Stack>,
    /// The waits since the last report.
    pub histogram: Option<&'a Histogram>,
}

/// One record of the task iterator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reported<'a> {
    /// Nothing has changed since the last report.
    Same(&'a SameRecord),
    /// The task with this serial has exited.
    Exited(u64),
    /// The end of a list of changed tasks.
    List(&'a ListRecord),
    Task(TaskReported<'a>),
}

pub(crate) fn read_records(
    stream: &mut impl Read,
    buffer: &mut Buffer,
    mut each: impl FnMut(Reported<'_>),
) -> io::Result<StreamEnd> {
    drain(stream, buffer, |bytes| {
        let mut used = 0;
        // Every record begins with the fields of `SameRecord`, which is the shortest record.
        while let Some(head) = part::<SameRecord>(&mut &bytes[used..]) {
            let Some(mut rest) = bytes.get(used..used + head.len as usize) else { break };
            used += rest.len();
            let reported = match head.flags {
                SAME => Reported::Same(part(&mut rest)?),
                HAS_EXITED => Reported::Exited(part::<SameRecord>(&mut rest)?.serial),
                LIST => Reported::List(part(&mut rest)?),
                _ => Reported::Task(task(&mut rest)?),
            };
            if !rest.is_empty() {
                return None;
            }
            each(reported);
        }
        Some(used)
    })
}

fn task<'a>(bytes: &mut &'a [u8]) -> Option<TaskReported<'a>> {
    let record = part::<TaskRecord>(bytes)?;
    let has = |flag: u32| record.flags & flag != 0;
    Some(TaskReported {
        record,
        base: if has(HAS_BASE) { Some(part(bytes)?) } else { None },
        base_histogram: if has(HAS_BASE_HISTOGRAM) { Some(part(bytes)?) } else { None },
        placement: if has(HAS_PLACEMENT) { Some(part(bytes)?) } else { None },
        accounts: if has(HAS_ACCOUNTS) { Some(part(bytes)?) } else { None },
        stack: if has(HAS_STACK) { Some(part(bytes)?) } else { None },
        histogram: if has(HAS_HISTOGRAM) { Some(part(bytes)?) } else { None },
    })
}

/// Calls `each` with every cgroup that has exited tasks, and with the cgroup's figures if they may be new.
pub(crate) fn read_exited(
    stream: &mut impl Read,
    buffer: &mut Buffer,
    mut each: impl FnMut(u64, Option<&Exited>),
) -> io::Result<StreamEnd> {
    drain(stream, buffer, |mut bytes| {
        let whole = bytes.len();
        loop {
            let mut rest = bytes;
            let Some(record) = part::<ExitedRecord>(&mut rest) else { break };
            let place = match record.follows {
                0 => None,
                1 => match part::<Exited>(&mut rest) {
                    None => break,
                    place => place,
                },
                _ => return None,
            };
            each(record.cgroup_id, place);
            bytes = rest;
        }
        Some(whole - bytes.len())
    })
}

/// Converts the end of a stream of tasks, and counts a stream that was cut short as a loss.
pub(crate) fn count_cut(end: io::Result<StreamEnd>, losses: &mut Losses) -> Result<StreamEnd, Failure> {
    let end = end.map_err(|error| Failure::of_interval("the kernel's tasks", &error))?;
    losses.add(Loss::ReadingCutShort, u64::from(end == StreamEnd::CutShort));
    Ok(end)
}

/// Reads a stream to its end. `take` consumes whole records and returns their length, or `None` if the bytes are not a record.
pub fn drain(
    stream: &mut impl Read,
    buffer: &mut Buffer,
    mut take: impl FnMut(&[u8]) -> Option<usize>,
) -> io::Result<StreamEnd> {
    let buffer = buffer.bytes();
    let mut held = 0;
    loop {
        let read = match stream.read(&mut buffer[held..]) {
            // The kernel could not show any task of a whole buffer. Read again.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            other => other?,
        };
        if read == 0 {
            return Ok(if held == 0 { StreamEnd::Complete } else { StreamEnd::CutShort });
        }
        held += read;
        let Some(used) = take(&buffer[..held]) else { return Ok(StreamEnd::CutShort) };
        buffer.copy_within(used..held, 0);
        held -= used;
    }
}

/// Splits a part off the front of the bytes; `None` if there are too few bytes.
pub fn part<'a, T: Plain>(bytes: &mut &'a [u8]) -> Option<&'a T> {
    const { assert!(size_of::<T>().is_multiple_of(size_of::<u64>()) && align_of::<T>() <= align_of::<u64>()) }
    let (part, rest) = bytes.split_at_checked(size_of::<T>())?;
    let part = part.as_ptr().cast::<T>();
    // The buffer and all parts consist of words, so this never fails.
    if !part.is_aligned() {
        return None;
    }
    *bytes = rest;
    // SAFETY: the bytes are aligned, have the size of the part, and any bits are valid.
    Some(unsafe { &*part })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: usize = size_of::<TaskRecord>();
    const HISTOGRAM: usize = size_of::<Histogram>();

    /// Returns which parts follow the record of task `tid`.
    fn flags_of(tid: u32) -> u32 {
        if tid % 13 == 5 {
            return SAME;
        }
        let if_nth = |nth, flag| if tid.is_multiple_of(nth) { flag } else { 0 };
        if_nth(3, HAS_HISTOGRAM)
            | if_nth(2, HAS_PLACEMENT)
            | if_nth(5, HAS_ACCOUNTS)
            | if_nth(7, HAS_STACK)
            | if_nth(11, HAS_BASE)
            | if_nth(19, HAS_BASE_HISTOGRAM)
    }

    /// Yields the bytes in pieces of this length.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    /// Encodes records. Also returns the end of each record.
    fn stream(tasks: u32) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for tid in 0..tasks {
            let (start, flags) = (bytes.len(), flags_of(tid));
            let record = TaskRecord { flags, tid, ..Default::default() };
            // SAFETY: the record consists of integers and has no padding.
            let whole = unsafe { std::slice::from_raw_parts((&raw const record).cast::<u8>(), RECORD) };
            bytes.extend(&whole[..if flags == SAME { size_of::<SameRecord>() } else { RECORD }]);
            let parts = [
                (HAS_BASE, size_of::<wire::Reported>()),
                (HAS_BASE_HISTOGRAM, HISTOGRAM),
                (HAS_PLACEMENT, size_of::<Placement>()),
                (HAS_ACCOUNTS, size_of::<AccountsRecord>()),
                (HAS_STACK, size_of::<Stack>()),
                (HAS_HISTOGRAM, HISTOGRAM),
            ];
            for (flag, size) in parts {
                bytes.extend(vec![tid as u8; if flags & flag != 0 { size } else { 0 }]);
            }
            let length = bytes.len() - start;
            bytes[start..start + 4].copy_from_slice(&(length as u32).to_ne_bytes());
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    #[test]
    fn records_are_found_in_pieces_of_any_length() {
        let (bytes, _) = stream(100);
        for piece in [1, 7, RECORD, RECORD + HISTOGRAM, 4096, 1 << 20] {
            let (mut seen, mut same) = (Vec::new(), 0);
            let end = read_records(&mut Pieces(&bytes, piece), &mut Buffer::default(), |reported| {
                let Reported::Task(reported) = reported else {
                    same += 1;
                    return;
                };
                let tid = reported.record.tid;
                let word = u64::from_ne_bytes([tid as u8; 8]);
                let if_has = |flag: u32| (flags_of(tid) & flag != 0).then_some(word);
                assert_eq!(reported.base.map(|base| base.totals.on_cpu_ns), if_has(HAS_BASE));
                assert_eq!(reported.placement.map(|placement| placement.ran_ns[1]), if_has(HAS_PLACEMENT));
                assert_eq!(reported.accounts.map(|accounts| accounts.uncounted_ns), if_has(HAS_ACCOUNTS));
                assert_eq!(reported.stack.map(|stack| stack[61]), if_has(HAS_STACK));
                for (histogram, flag) in
                    [(reported.base_histogram, HAS_BASE_HISTOGRAM), (reported.histogram, HAS_HISTOGRAM)]
                {
                    assert_eq!(
                        histogram.map(|waits| waits.counters[479]),
                        if_has(flag).map(|word| word as u32)
                    );
                }
                seen.push(tid);
            });
            assert_eq!(end.unwrap(), StreamEnd::Complete);
            let is_same = |tid: &u32| flags_of(*tid) == SAME;
            assert_eq!(seen, (0..100).filter(|tid| !is_same(tid)).collect::<Vec<_>>());
            assert_eq!(same, (0..100).filter(is_same).count());
        }
    }

    #[test]
    fn a_cut_stream_is_reported() {
        let (bytes, ends) = stream(10);
        for length in 1..bytes.len() {
            let mut tasks = 0;
            let end =
                read_records(&mut Pieces(&bytes[..length], 4096), &mut Buffer::default(), |_| tasks += 1)
                    .unwrap();
            assert_eq!(tasks, ends.iter().filter(|end| **end <= length).count());
            assert_eq!(end == StreamEnd::Complete, ends.contains(&length));
        }
    }

    /// Encodes entries of cgroups. Every third entry has figures.
    fn exited_stream(cgroups: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for cgroup_id in 0..cgroups {
            let record = ExitedRecord { cgroup_id, follows: u64::from(cgroup_id % 3 == 0) };
            let place = Exited { tasks: cgroup_id, complete: cgroup_id, ..Exited::NONE };
            // SAFETY: both types consist of integers and have no padding.
            let (record, place) = unsafe {
                (
                    std::slice::from_raw_parts((&raw const record).cast::<u8>(), size_of::<ExitedRecord>()),
                    std::slice::from_raw_parts((&raw const place).cast::<u8>(), size_of::<Exited>()),
                )
            };
            bytes.extend(record);
            bytes.extend(if cgroup_id % 3 == 0 { place } else { &[] });
        }
        bytes
    }

    #[test]
    fn entries_of_exited_tasks_are_found_in_pieces_of_any_length() {
        let bytes = exited_stream(50);
        for piece in [1, 8, 4096, 1 << 20] {
            let mut seen = Vec::new();
            let end = read_exited(&mut Pieces(&bytes, piece), &mut Buffer::default(), |id, place| {
                seen.push((id, place.map(|place| place.complete)));
            });
            assert_eq!(end.unwrap(), StreamEnd::Complete);
            let expected = (0..50).map(|id| (id, (id % 3 == 0).then_some(id)));
            assert!(seen.into_iter().eq(expected), "{piece}");
        }
        let cut = &bytes[..bytes.len() - 8];
        let end = read_exited(&mut Pieces(cut, 4096), &mut Buffer::default(), |_, _| {});
        assert_eq!(end.unwrap(), StreamEnd::CutShort);
        let end = read_exited(&mut Pieces(&[7; 64], 64), &mut Buffer::default(), |_, _| panic!("no record"));
        assert_eq!(end.unwrap(), StreamEnd::CutShort);
    }

    #[test]
    fn a_record_with_another_length_than_its_parts_is_invalid() {
        for change in [-8i32, 8] {
            let (mut bytes, _) = stream(2);
            let length = u32::from_ne_bytes(bytes[..4].try_into().unwrap()).wrapping_add_signed(change);
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            let end =
                read_records(&mut Pieces(&bytes, 4096), &mut Buffer::default(), |_| panic!("no record"));
            assert_eq!(end.unwrap(), StreamEnd::CutShort);
        }
    }

    #[test]
    fn invalid_bytes_are_not_a_record() {
        let end =
            read_records(&mut Pieces(&[7; 5_000], 4096), &mut Buffer::default(), |_| panic!("no record"));
        assert_eq!(end.unwrap(), StreamEnd::CutShort);
    }
}
