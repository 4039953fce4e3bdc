//! How a recording and a connection begin: what it is, in which version, and a frame.

use std::io::Read;

use serde::Deserialize;

use crate::{
    Header, MAGIC, ReadError, VERSION, WriteError, codec,
    frame::{self, Found, kind},
    header::First,
};

/// Appends it, with a header.
pub(crate) fn put(out: &mut Vec<u8>, header: &Header) -> Result<(), WriteError> {
    put_version(out);
    frame::append_json(out, kind::HEADER, &First { header, tables: codec::tables() })
}

/// Appends what stands before the first frame.
pub(crate) fn put_version(out: &mut Vec<u8>) {
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
}

/// What was found there, of a version that can be read.
pub(crate) struct Opening {
    /// The first frame.
    pub(crate) found: Found,
    /// What it holds.
    pub(crate) payload: Vec<u8>,
    /// Bytes in all.
    pub(crate) bytes: u64,
}

impl Opening {
    pub(crate) fn read(input: &mut impl Read) -> Result<Self, ReadError> {
        let mut start = [0u8; MAGIC.len() + 4];
        let got = frame::read_up_to(input, &mut start)?;
        let (magic, version) = start.split_at(MAGIC.len());
        let same = got.min(MAGIC.len());
        if got == 0 {
            return Err(ReadError::Empty);
        } else if magic[..same] != MAGIC[..same] {
            return Err(ReadError::Foreign);
        } else if got < start.len() {
            return Err(ReadError::HeaderCut);
        }
        let version = version.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let mut payload = Vec::new();
        let (found, read) = frame::read(input, &mut payload)?;
        if version != VERSION {
            return Err(ReadError::Version { found: version, wrote: writer_of(&found, &payload) });
        }
        Ok(Self { found, payload, bytes: start.len() as u64 + read })
    }
}

/// The first frame, where it is a header.
pub(crate) fn first(payload: &[u8]) -> Result<First<Header>, ReadError> {
    serde_json::from_slice(payload).map_err(|_| ReadError::HeaderDamaged)
}

/// The cgscope that wrote a header of another version.
fn writer_of(frame: &Found, payload: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Wrote {
        cgscope_version: String,
    }
    match frame {
        Found::Frame(kind::HEADER) => {
            serde_json::from_slice(payload).ok().map(|wrote: Wrote| wrote.cgscope_version)
        }
        _ => None,
    }
}
