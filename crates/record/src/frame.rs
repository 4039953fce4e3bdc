//! Reads and writes frames: length, checksum, kind, payload.

use std::io::{self, Read};

use serde::Serialize;

use crate::WriteError;

/// The first eight bytes of a recording. The byte 0x8B is not ASCII, and no UTF-8 text starts with it. As in PNG, the line ends
/// show whether a text conversion has changed the file.
pub const MAGIC: [u8; 8] = *b"\x8Bcgs\r\n\x1A\n";

/// Version of the format. Increase this version for a change that older readers cannot read. New kinds of frames, tables and
/// columns need no new version, because readers skip what they do not know. If a file lacks a column, the column has its value in
/// an empty row.
pub const VERSION: u32 = 4;

/// The oldest version that readers still read. In version 3, a frame needs only one byte for 16 rows.
pub const OLDEST_VERSION: u32 = 3;

/// Maximum size of a payload, bytes. A host with 100,000 tasks needs much less.
pub(crate) const MAX_PAYLOAD: usize = 256 << 20;

/// Number of bytes before the payload.
pub(crate) const HEAD: usize = 9;

/// Kinds of frames. There is no kind 0, so zeros are never a frame.
pub(crate) mod kind {
    pub(crate) const HEADER: u8 = 1;
    pub(crate) const END: u8 = 3;
    /// A whole sample.
    pub(crate) const KEY: u8 = 4;
    /// The changes since the previous sample.
    pub(crate) const DELTA: u8 = 5;
    /// A message of the daemon to a viewer, as JSON. Recordings never contain it.
    pub(crate) const WORD: u8 = 6;
}

/// Appends a frame to `out`, and returns the kind of the frame. `payload` appends the payload and returns the kind.
pub(crate) fn append(
    out: &mut Vec<u8>,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<u8, WriteError>,
) -> Result<u8, WriteError> {
    let start = out.len();
    out.extend([0; HEAD]);
    let kind = payload(out)?;
    let payload = out.len() - start - HEAD;
    let length = u32::try_from(payload).ok().filter(|_| payload <= MAX_PAYLOAD);
    let length = length.ok_or(WriteError::TooLarge(payload))?.to_le_bytes();
    let crc = checksum(length, kind, &out[start + HEAD..]).to_le_bytes();
    out[start..start + 4].copy_from_slice(&length);
    out[start + 4..start + 8].copy_from_slice(&crc);
    out[start + 8] = kind;
    Ok(kind)
}

/// Appends a frame to `out`, and returns both.
pub(crate) fn with_json<T: Serialize>(mut out: Vec<u8>, kind: u8, value: &T) -> Result<Vec<u8>, WriteError> {
    append(&mut out, |out| serde_json::to_writer(out, value).map(|()| kind).map_err(WriteError::Encoding))?;
    Ok(out)
}

/// Returns the checksum of a frame. Without the length in it, we would notice a damaged length only at the next frame.
fn checksum(length: [u8; 4], kind: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(&[kind]);
    hasher.update(payload);
    hasher.finalize()
}

pub(crate) enum Found {
    /// A complete frame of this kind. Its payload is in the buffer.
    Frame(u8),
    /// The file ends before the frame.
    Nothing,
    /// The file ends within the frame.
    Torn,
    /// The length is one that no writer writes.
    BadLength,
    BadChecksum,
}

/// Reads a frame into the buffer, and returns what was found and how many bytes were read. The buffer grows only with the bytes
/// that arrive, even if a damaged length is huge.
pub(crate) fn read(input: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<(Found, u64)> {
    read_up_to(input, HEAD as u64, payload)?;
    let Ok([l0, l1, l2, l3, c0, c1, c2, c3, kind]) = <[u8; HEAD]>::try_from(payload.as_slice()) else {
        let found = if payload.is_empty() { Found::Nothing } else { Found::Torn };
        return Ok((found, payload.len() as u64));
    };
    let length = [l0, l1, l2, l3];
    let claimed = u32::from_le_bytes(length);
    if claimed as usize > MAX_PAYLOAD {
        return Ok((Found::BadLength, HEAD as u64));
    }
    read_up_to(input, claimed.into(), payload)?;
    let found = if payload.len() < claimed as usize {
        Found::Torn
    } else if checksum(length, kind, payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
        Found::BadChecksum
    } else {
        Found::Frame(kind)
    };
    Ok((found, (HEAD + payload.len()) as u64))
}

/// Reads this many bytes into the buffer, or fewer at the end of the input.
pub(crate) fn read_up_to(input: &mut impl Read, most: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    input.take(most).read_to_end(buffer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_length_allocates_no_memory() {
        let mut file = (MAX_PAYLOAD as u32).to_le_bytes().to_vec();
        file.extend([0; 100]);
        let mut payload = Vec::new();
        let (found, read) = read(&mut file.as_slice(), &mut payload).unwrap();
        assert!(matches!(found, Found::Torn));
        assert_eq!(read, 104);
        assert!(payload.capacity() < 64 << 10, "{}", payload.capacity());
    }

    #[test]
    fn zeros_are_not_a_frame() {
        let (found, _) = read(&mut [0; 64].as_slice(), &mut Vec::new()).unwrap();
        assert!(matches!(found, Found::BadChecksum));
    }
}
