//! Errors of reading and writing, and how a recording ended. Each message is one sentence; most messages include a remedy.

use std::{io, path::PathBuf};

use cgscope_ledger::Loss;
use cgscope_model::{Losses, units::count};
use thiserror::Error;

use crate::{End, OLDEST_VERSION, VERSION};

/// Why a recording cannot be read at all. Damage after the header is not an error: see [`Ending`].
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("is empty: nothing was recorded into it; record again")]
    Empty,
    #[error("is not a cgscope recording; give a file that `cgscope record -o FILE` wrote")]
    Foreign,
    #[error(
        "ends within its header, so it contains no sample: cgscope was killed, or the disk was full, at the start; record \
         again"
    )]
    HeaderCut,
    /// The checksum of the header is wrong, or the header cannot be parsed.
    #[error("has a damaged header (wrong checksum); use another copy of the file")]
    HeaderDamaged,
    #[error(
        "has format version {found}, {} than the versions {} to {} that this cgscope reads{}",
        age(*found),
        OLDEST_VERSION,
        VERSION,
        remedy(*found, wrote)
    )]
    Version {
        found: u32,
        /// The version of cgscope that wrote the file, if known.
        wrote: Option<String>,
    },
    #[error("could not be read: {0}")]
    Io(#[from] io::Error),
}

fn age(version: u32) -> &'static str {
    if version > VERSION { "newer" } else { "older" }
}

fn remedy(version: u32, wrote: &Option<String>) -> String {
    match wrote {
        Some(version) => format!(": it was written by cgscope {version}; read it with that version"),
        None => format!("; read it with the {} cgscope that wrote it", age(version)),
    }
}

/// Why a recording could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    #[error("could not be written: {}", cause(.0))]
    Io(#[from] io::Error),
    /// An earlier write left an incomplete frame. Nothing after an incomplete frame can be read.
    #[error("accepts no more samples: an earlier write was incomplete; record to a new file")]
    Broken,
    /// The sample breaks this rule. This is a bug of cgscope.
    #[error("rejected a sample, because {0}; this is a bug in cgscope, please report it")]
    Invalid(&'static str),
    /// The payload has this many bytes, which is more than a frame can hold.
    #[error("rejected a sample of {0} bytes, which is too long for a frame; select fewer tasks")]
    TooLarge(usize),
    /// The sample could not be encoded. This is a bug of cgscope.
    #[error("rejected a sample ({0}); this is a bug in cgscope, please report it")]
    Encoding(serde_json::Error),
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full; free some space or record to another disk".into(),
        _ => error.to_string(),
    }
}

/// An error, and the file in which it occurred. Example of a message: `PATH is empty: ...`.
#[derive(Debug, Error)]
#[error("{} {error}", path.display())]
pub struct FileError<E: std::error::Error> {
    /// The file as the user named it.
    pub path: PathBuf,
    pub error: E,
}

/// How a recording ended. A reader knows this only after the last sample.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Ending {
    /// The writer closed the recording.
    #[error("the recording ended because {}{}", .0.reason, unwritten(.0.unwritten))]
    Clean(End),
    /// The last frame is complete, but it is not an end frame. The writer was killed between two samples, or it is still
    /// recording.
    #[error("the recording has no end: cgscope was killed, or is still recording")]
    Killed,
    /// The file ends within a frame: the writer was killed while writing, or the file was cut.
    #[error(
        "the recording breaks off in its last frame, and {lost_bytes} bytes are ignored: cgscope was killed while it wrote, \
         or the file was cut"
    )]
    Torn { lost_bytes: u64 },
    /// The file is damaged, and no key frame follows the damage. The gap extends to the end of the file.
    #[error(
        "the recording is damaged at byte {} ({}); the {} bytes from there to the end are ignored",
        .0.at, .0.damage, .0.lost_bytes
    )]
    Corrupt(Gap),
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The length is one that no writer writes.
    #[error("a frame has an impossible length")]
    Length,
    #[error("a frame has a wrong checksum")]
    Checksum,
    /// The payload does not match the kind of the frame.
    #[error("the contents of a frame are invalid")]
    Payload,
    /// The sample in the frame breaks this rule.
    #[error("a sample was rejected, because {0}")]
    Sample(&'static str),
    #[error("a frame follows the end, or is a second header")]
    Misplaced,
}

/// A damaged part of the file, up to the next key frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the recording is damaged at byte {at} ({damage}); {lost_bytes} bytes and at least {} are skipped",
    count(*samples, "sample")
)]
pub struct Gap {
    /// Offset of the damaged frame.
    pub at: u64,
    pub lost_bytes: u64,
    /// What is wrong with the first damaged frame.
    pub damage: Damage,
    /// Minimum number of lost samples: the damaged sample, and the readable frames after it that cannot be decoded without it.
    pub samples: u64,
}

impl Ending {
    /// Returns the samples that are certainly lost.
    pub fn losses(&self) -> Losses {
        let samples = match self {
            Self::Clean(end) => end.unwritten,
            Self::Killed => 0,
            Self::Torn { .. } => 1,
            Self::Corrupt(gap) => gap.samples,
        };
        let mut losses = Losses::default();
        losses.add(Loss::SamplesUnreadable, samples);
        losses
    }
}

fn unwritten(samples: u64) -> String {
    if samples == 0 { String::new() } else { format!("; samples that could not be written to it: {samples}") }
}
