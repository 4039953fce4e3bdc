//! Frames (length, checksum, kind, payload), and the start and the end of a recording or a connection: magic and version, the
//! header, and the end frame.

use std::{
    collections::BTreeSet,
    io::{self, Read},
};

use cgscope_model::{Selection, doctor::CgroupLayout, printable};
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use crate::{ReadError, WriteError, codec::SampleDecoder, table::Table};

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

/// The header, in the first frame: what was measured, and where. A member that the file lacks is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of cgscope that wrote the file. All format versions have this member, so that an older cgscope can name the newer
    /// version in its error message.
    pub cgscope_version: String,
    pub hostname: String,
    /// The kernel release, as in `uname -r`.
    pub kernel_release: String,
    /// The architecture, with Rust's name, for example `x86_64` or `aarch64`.
    pub architecture: String,
    /// CPUs that were online at the start, ascending.
    pub cpus: Vec<Cpu>,
    /// The cgroup hierarchies of the host. All cgroup paths in the recording are in the hierarchy with the cpu controller.
    pub cgroups: CgroupLayout,
    pub selection: Selection,
    /// The measured command, with its arguments.
    pub command: Option<Vec<String>>,
    pub interval_ns: u64,
    /// Wall clock at the start, ns since 1970.
    pub start_unix_ns: u64,
}

impl Header {
    /// Replaces terminal control characters. They could come from anybody, because anybody may have written the file.
    pub(crate) fn printable(mut self) -> Self {
        self.selection = self.selection.printable();
        let Self { cgscope_version, hostname, kernel_release, architecture, command, .. } = &mut self;
        let texts = [cgscope_version, hostname, kernel_release, architecture];
        for text in texts.into_iter().chain(command.iter_mut().flatten()) {
            *text = printable(text).to_string();
        }
        self
    }
}

/// The payload of the first frame: the header, and a description of the tables in later frames.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct First<H> {
    #[serde(flatten)]
    pub(crate) header: H,
    pub(crate) tables: Vec<Table>,
}

/// A CPU that was online at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub cpu: u32,
    pub node: Option<u32>,
}

/// The end frame, which is the last frame. If there is no end frame, the writer was killed or is still recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub unix_ns: u64,
    #[serde(deserialize_with = "reason_or_other")]
    pub reason: Reason,
    /// Number of samples that could not be written.
    pub unwritten: u64,
}

fn reason_or_other<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
    let written = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(written).unwrap_or(Reason::Other))
}

/// Why a recording ended.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    #[error("the time asked for was over")]
    Finished,
    /// The user pressed Ctrl-C, or a signal arrived.
    #[error("it was interrupted")]
    Interrupted,
    #[error("the command ended with exit status {0}")]
    CommandExited(i32),
    #[error("the command was ended by signal {0}")]
    CommandKilled(i32),
    #[error("no selected task was left")]
    #[serde(rename = "target_gone")]
    TargetExited,
    /// The recording continues in another file. The first sample there is the last sample of this file.
    #[error("it continues in the next file")]
    Continued,
    /// A trigger saved this part of a longer recording. The text describes the trigger.
    #[error("a trigger saved this part ({})", printable(.0))]
    Triggered(String),
    /// Measuring failed, or the command could not be executed.
    #[error("measuring failed")]
    Failed,
    #[error("the disk was full")]
    DiskFull,
    /// Writing the file failed for another reason.
    #[error("its file could no longer be written")]
    WriteFailed,
    #[error("of a reason that only a later cgscope knows")]
    Other,
}

/// Returns magic and version, which precede the first frame.
pub(crate) fn version() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

const START: usize = MAGIC.len() + 4;

/// The start of a recording or a connection, in a supported version.
pub(crate) struct Opening {
    pub(crate) found: Found,
    pub(crate) payload: Vec<u8>,
    /// Number of bytes up to the end of the first frame.
    pub(crate) bytes: u64,
}

impl Opening {
    pub(crate) fn read(input: &mut impl Read) -> Result<Self, ReadError> {
        let mut payload = Vec::new();
        read_up_to(input, START as u64, &mut payload)?;
        let version = match payload.strip_prefix(&MAGIC) {
            Some(version) => version.try_into().map_err(|_| ReadError::HeaderCut)?,
            None if payload.is_empty() => return Err(ReadError::Empty),
            None if MAGIC.starts_with(&payload) => return Err(ReadError::HeaderCut),
            None => return Err(ReadError::Foreign),
        };
        let version = u32::from_le_bytes(version);
        let (found, read) = read(input, &mut payload)?;
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(ReadError::Version { found: version, wrote: writer_of(&found, &payload) });
        }
        Ok(Self { found, payload, bytes: START as u64 + read })
    }

    pub(crate) fn header(&self) -> Result<(Header, SampleDecoder), ReadError> {
        match self.found {
            Found::Frame(kind::HEADER) => {
                let first: First<Header> =
                    serde_json::from_slice(&self.payload).map_err(|_| ReadError::HeaderDamaged)?;
                // Reject two tables with the same name: the sample would get the rows of both.
                let names: BTreeSet<&str> = first.tables.iter().map(|table| table.name.as_str()).collect();
                if names.len() != first.tables.len() {
                    return Err(ReadError::HeaderDamaged);
                }
                Ok((first.header.printable(), SampleDecoder::new(&first.tables)?))
            }
            Found::Nothing | Found::Torn => Err(ReadError::HeaderCut),
            Found::Frame(_) | Found::BadLength | Found::BadChecksum => Err(ReadError::HeaderDamaged),
        }
    }
}

/// Returns the version of cgscope that wrote a header in another version of the format.
fn writer_of(frame: &Found, payload: &[u8]) -> Option<String> {
    let is_header = matches!(frame, Found::Frame(kind::HEADER));
    let header: serde_json::Value = is_header.then(|| serde_json::from_slice(payload).ok())??;
    header.get("cgscope_version")?.as_str().map(String::from)
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

    /// Recordings of earlier versions have these names.
    #[test]
    fn the_names_of_reasons_in_files_do_not_change() {
        let names = [
            (Reason::Finished, "\"finished\""),
            (Reason::Interrupted, "\"interrupted\""),
            (Reason::CommandExited(3), "{\"command_exited\":3}"),
            (Reason::CommandKilled(9), "{\"command_killed\":9}"),
            (Reason::TargetExited, "\"target_gone\""),
            (Reason::Continued, "\"continued\""),
            (Reason::Triggered("p99".into()), "{\"triggered\":\"p99\"}"),
            (Reason::Failed, "\"failed\""),
            (Reason::DiskFull, "\"disk_full\""),
            (Reason::WriteFailed, "\"write_failed\""),
            (Reason::Other, "\"other\""),
        ];
        for (reason, name) in names {
            assert_eq!(serde_json::to_string(&reason).unwrap(), name);
            assert_eq!(serde_json::from_str::<Reason>(name).unwrap(), reason);
        }
    }
}
