//! The stream of the task iterator, taken apart into records.

use std::io::{self, Read};

use cgscope_layout::wire::{HAS_HISTOGRAM, HAS_PLACEMENT, Histogram, Placement, TaskRecord};

const RECORD: usize = size_of::<TaskRecord>();
const PLACEMENT: usize = size_of::<Placement>();
const HISTOGRAM: usize = size_of::<Histogram>();
/// Twice the kernel's own buffer: each read then takes over all that it holds.
const BUFFER: usize = 64 * 1024;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All tasks were read.
    Complete,
    /// Something was cut off or was no record.
    CutShort,
}

/// Calls `each` for every record of `stream` in turn.
pub(crate) fn read_records(
    stream: &mut impl Read,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&TaskRecord, Option<&Placement>, Option<&Histogram>),
) -> io::Result<End> {
    buffer.resize(BUFFER, 0);
    let mut held = 0;
    loop {
        let read = match stream.read(&mut buffer[held..]) {
            // The kernel could not show a single task in a whole buffer's worth of others: ask again.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            other => other?,
        };
        if read == 0 {
            return Ok(if held == 0 { End::Complete } else { End::CutShort });
        }
        held += read;
        let Some(used) = take_records(&buffer[..held], &mut each) else { return Ok(End::CutShort) };
        buffer.copy_within(used..held, 0);
        held -= used;
    }
}

/// Takes whole records off the front; returns the bytes used, or `None` for what is no record.
fn take_records(
    bytes: &[u8],
    each: &mut impl FnMut(&TaskRecord, Option<&Placement>, Option<&Histogram>),
) -> Option<usize> {
    let mut used = 0;
    while let Some(record) = part::<TaskRecord, RECORD>(&bytes[used..]) {
        let has = |flag: u32, size: usize| if record.flags & flag != 0 { size } else { 0 };
        let placement_end = RECORD + has(HAS_PLACEMENT, PLACEMENT);
        let end = placement_end + has(HAS_HISTOGRAM, HISTOGRAM);
        if record.len as usize != end {
            return None;
        }
        let Some(whole) = bytes.get(used..used + end) else { break };
        let placement = part::<Placement, PLACEMENT>(&whole[RECORD..placement_end]);
        let histogram = part::<Histogram, HISTOGRAM>(&whole[placement_end..]);
        each(&record, placement.as_ref(), histogram.as_ref());
        used += end;
    }
    Some(used)
}

/// The first bytes as a part of a record; `None` where there are fewer.
fn part<T: Part, const SIZE: usize>(bytes: &[u8]) -> Option<T> {
    const { assert!(size_of::<T>() == SIZE) };
    let bytes = bytes.first_chunk::<SIZE>()?;
    // SAFETY: integers alone, of the size of the chunk; any bits are valid.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Integers alone.
trait Part {}
impl Part for TaskRecord {}
impl Part for Placement {}
impl Part for Histogram {}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: u32 = (HISTOGRAM / 4) as u32;

    /// Hands out `bytes` in pieces of `piece`.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    /// Of the record of a task with what follows it.
    fn length_of(tid: u32) -> usize {
        let part = |divisor, size| if tid.is_multiple_of(divisor) { size } else { 0 };
        RECORD + part(2, PLACEMENT) + part(3, HISTOGRAM)
    }

    fn stream(tasks: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for tid in 0..tasks {
            let with_histogram = tid % 3 == 0;
            let flags = u32::from(with_histogram) | if tid % 2 == 0 { HAS_PLACEMENT } else { 0 };
            let record = TaskRecord { len: length_of(tid) as u32, flags, tid, ..Default::default() };
            // SAFETY: integers without padding.
            bytes.extend(unsafe { std::slice::from_raw_parts((&raw const record).cast::<u8>(), RECORD) });
            if tid % 2 == 0 {
                bytes.extend([tid as u8; PLACEMENT]);
            }
            if with_histogram {
                bytes.extend((0..WORDS).flat_map(u32::to_ne_bytes));
            }
        }
        bytes
    }

    #[test]
    fn records_are_found_whatever_pieces_they_come_in() {
        let bytes = stream(100);
        for piece in [1, 7, RECORD, RECORD + HISTOGRAM, 4096, 1 << 20] {
            let mut seen = Vec::new();
            let end =
                read_records(&mut Pieces(&bytes, piece), &mut Vec::new(), |record, placement, counts| {
                    assert_eq!(counts.is_some(), record.tid % 3 == 0);
                    let word = u64::from_ne_bytes([record.tid as u8; 8]);
                    assert_eq!(
                        placement.map(|placement| placement.ran_ns[1]),
                        (record.tid % 2 == 0).then_some(word)
                    );
                    if let Some(counts) = counts {
                        assert_eq!((counts.counts[0], counts.shares.last()), (0, Some(&(WORDS - 1))));
                    }
                    seen.push(record.tid);
                });
            assert_eq!(end.unwrap(), End::Complete);
            assert_eq!(seen, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_says_so() {
        let bytes = stream(10);
        for length in 1..bytes.len() {
            let mut tasks = 0;
            let end =
                read_records(&mut Pieces(&bytes[..length], 4096), &mut Vec::new(), |_, _, _| tasks += 1)
                    .unwrap();
            let whole = (0..10).scan(0, |at, tid: u32| {
                *at += length_of(tid);
                Some(*at)
            });
            let ends: Vec<usize> = whole.collect();
            assert_eq!(tasks, ends.iter().filter(|end| **end <= length).count());
            assert_eq!(end == End::Complete, ends.contains(&length));
        }
    }

    #[test]
    fn what_is_no_record_is_not_taken_for_one() {
        let end =
            read_records(&mut Pieces(&[7; 5_000], 4096), &mut Vec::new(), |_, _, _| panic!("no record"));
        assert_eq!(end.unwrap(), End::CutShort);
    }
}
