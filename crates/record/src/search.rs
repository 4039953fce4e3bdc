//! The positions of samples in a file: an index, and the search for the next key frame after damage.

use std::io::{self, Read, Seek, SeekFrom};

use memchr::memmem;

use crate::{
    MAGIC,
    codec::{Clocks, SYNC},
    frame::{self, Found, HEAD, kind},
};

/// The samples of a recording in order, with their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    entries: Vec<IndexEntry>,
}

/// A sample in an [`Index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Offset of the sample's frame.
    at: u64,
    is_key: bool,
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub mono_ns: u64,
}

impl Index {
    /// The samples.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Adds a sample. Omits a damaged frame, as the reader does.
    pub(crate) fn add(&mut self, at: u64, found: &Found, payload: &[u8]) {
        let is_key = matches!(found, Found::Frame(kind::KEY));
        let clocks = if is_key { payload.strip_prefix(&SYNC) } else { Some(payload) };
        if let Some(Clocks { unix_ns, mono_ns }) = clocks.and_then(Clocks::of) {
            self.entries.push(IndexEntry { at, is_key, unix_ns, mono_ns });
        }
    }

    /// Offsets of the key frame from which a sample must be read, and of the sample's own frame.
    pub(crate) fn key_and_frame(&self, number: usize) -> Option<(u64, u64)> {
        let target = self.entries.get(number)?;
        let key = self.entries[..=number].iter().rfind(|entry| entry.is_key).unwrap_or(target);
        Some((key.at, target.at))
    }
}

/// The search for frames after damage.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Bytes read so far.
    read: u64,
    piece: Vec<u8>,
    payload: Vec<u8>,
}

/// The search may read this many times the file size. Without a limit, a heavily damaged file could take minutes.
const MOST_TIMES: u64 = 4;
/// Bytes that the search may read even of a small file.
const LEAST: u64 = 1 << 20;

impl Search {
    /// Offset of the next complete key frame at or after `from`. The search stops at the start of another recording, whose frames
    /// do not belong to this one.
    pub(crate) fn key(&mut self, input: &mut (impl Read + Seek), from: u64) -> io::Result<Option<u64>> {
        let length = input.seek(SeekFrom::End(0))?;
        let mut from = from.saturating_add(HEAD as u64);
        while let Some((mark, is_key)) = self.mark(input, from, length)? {
            if !is_key {
                return Ok(None);
            }
            let frame = mark - HEAD as u64;
            input.seek(SeekFrom::Start(frame))?;
            let mut head = [0; 4];
            let got = frame::read_up_to(input, &mut head)?;
            // Do not read a frame that would end after the end of the file.
            let end = frame + HEAD as u64 + u64::from(u32::from_le_bytes(head));
            if got == head.len() && end <= length {
                input.seek(SeekFrom::Start(frame))?;
                let (found, read) = frame::read(input, &mut self.payload)?;
                self.read += read;
                if matches!(found, Found::Frame(kind::KEY)) {
                    return Ok(Some(frame));
                }
            }
            from = mark + 1;
        }
        Ok(None)
    }

    /// Whether a complete frame or the end of the file is at `at`. Leaves `input` at `at`.
    pub(crate) fn is_frame(&mut self, input: &mut (impl Read + Seek), at: u64) -> io::Result<bool> {
        input.seek(SeekFrom::Start(at))?;
        let (found, read) = frame::read(input, &mut self.payload)?;
        self.read += read;
        input.seek(SeekFrom::Start(at))?;
        Ok(matches!(found, Found::Frame(_) | Found::Nothing))
    }

    /// The offset of the next mark of a key frame (true) or of the start of a recording (false).
    fn mark(
        &mut self,
        input: &mut (impl Read + Seek),
        from: u64,
        length: u64,
    ) -> io::Result<Option<(u64, bool)>> {
        const PIECE: usize = 1 << 16;
        let mut at = from;
        while self.read <= LEAST.max(length.saturating_mul(MOST_TIMES)) {
            self.piece.resize(PIECE, 0);
            input.seek(SeekFrom::Start(at))?;
            let got = frame::read_up_to(input, &mut self.piece)?;
            self.read += got as u64;
            let first = |bytes: &[u8]| memmem::find(&self.piece[..got], bytes);
            match (first(&SYNC), first(&MAGIC)) {
                (Some(key), magic) if magic.is_none_or(|magic| key < magic) => {
                    return Ok(Some((at + key as u64, true)));
                }
                (_, Some(magic)) => return Ok(Some((at + magic as u64, false))),
                _ if got < PIECE => return Ok(None),
                // A mark may cross the end of the piece.
                _ => at += (PIECE - SYNC.len() + 1) as u64,
            }
        }
        Ok(None)
    }
}
