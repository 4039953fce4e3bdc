//! The stream of the task iterator, taken apart into records.

use std::io::{self, Read};

use cgscope_layout::wire::{HAS_HISTOGRAM, Histogram, TaskRecord};

const RECORD: usize = size_of::<TaskRecord>();
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
    mut each: impl FnMut(&TaskRecord, Option<&Histogram>),
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
fn take_records(bytes: &[u8], each: &mut impl FnMut(&TaskRecord, Option<&Histogram>)) -> Option<usize> {
    let mut used = 0;
    while let Some(head) = bytes[used..].first_chunk::<RECORD>() {
        // SAFETY: integers alone, of the size of the chunk; any bits are valid.
        let record = unsafe { head.as_ptr().cast::<TaskRecord>().read_unaligned() };
        let with_histogram = record.flags & HAS_HISTOGRAM != 0;
        if record.len as usize != RECORD + if with_histogram { HISTOGRAM } else { 0 } {
            return None;
        }
        if with_histogram {
            let Some(tail) = bytes[used + RECORD..].first_chunk::<HISTOGRAM>() else { break };
            // SAFETY: as above.
            let histogram = unsafe { tail.as_ptr().cast::<Histogram>().read_unaligned() };
            each(&record, Some(&histogram));
        } else {
            each(&record, None);
        }
        used += record.len as usize;
    }
    Some(used)
}

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

    fn stream(tasks: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for tid in 0..tasks {
            let with_histogram = tid % 3 == 0;
            let len = RECORD + if with_histogram { HISTOGRAM } else { 0 };
            let record =
                TaskRecord { len: len as u32, flags: u32::from(with_histogram), tid, ..Default::default() };
            // SAFETY: integers without padding.
            bytes.extend(unsafe { std::slice::from_raw_parts((&raw const record).cast::<u8>(), RECORD) });
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
            let end = read_records(&mut Pieces(&bytes, piece), &mut Vec::new(), |record, counts| {
                assert_eq!(counts.is_some(), record.tid % 3 == 0);
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
            let end = read_records(&mut Pieces(&bytes[..length], 4096), &mut Vec::new(), |_, _| tasks += 1)
                .unwrap();
            let whole = (0..10).scan(0, |at, tid| {
                *at += if tid % 3 == 0 { RECORD + HISTOGRAM } else { RECORD };
                Some(*at)
            });
            let ends: Vec<usize> = whole.collect();
            assert_eq!(tasks, ends.iter().filter(|end| **end <= length).count());
            assert_eq!(end == End::Complete, ends.contains(&length));
        }
    }

    #[test]
    fn what_is_no_record_is_not_taken_for_one() {
        let end = read_records(&mut Pieces(&[7; 5_000], 4096), &mut Vec::new(), |_, _| panic!("no record"));
        assert_eq!(end.unwrap(), End::CutShort);
    }
}
