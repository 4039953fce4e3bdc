//! Finding the way again after damage.

use std::io::{self, Read, Seek, SeekFrom};

use memchr::memmem;

use crate::{
    MAGIC,
    codec::SYNC,
    frame::{self, Found, HEAD, kind},
};

/// Looks for frames in what cannot be read one after the other.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Bytes read so far.
    read: u64,
    piece: Vec<u8>,
    payload: Vec<u8>,
}

/// How often all of the file may be read in search of frames: whoever makes a file of damage alone must not have it read once for
/// each piece of it.
const MOST_TIMES: u64 = 4;
/// What may be read of the smallest one.
const LEAST: u64 = 1 << 20;

impl Search {
    /// Where the next whole key frame at or after `from` begins. Where another recording begins it ends: nothing of that one
    /// belongs to this one.
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
            // What ends behind the end of the file need not be read.
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

    /// A whole frame is at `at`, or the end of the file; the next read of `input` is there, too.
    pub(crate) fn is_frame(&mut self, input: &mut (impl Read + Seek), at: u64) -> io::Result<bool> {
        input.seek(SeekFrom::Start(at))?;
        let (found, read) = frame::read(input, &mut self.payload)?;
        self.read += read;
        input.seek(SeekFrom::Start(at))?;
        Ok(matches!(found, Found::Frame(_) | Found::Nothing))
    }

    /// The next mark of a key frame or of the beginning of a recording, and whether it is the former.
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
                // It may lie across the end of the piece.
                _ => at += (PIECE - SYNC.len() + 1) as u64,
            }
        }
        Ok(None)
    }
}
