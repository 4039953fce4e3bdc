//! Why a recording cannot be written or read: each in one sentence that says what to do.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::VERSION;

/// Why a recording cannot be read at all. Damage after the header is no error: see [`crate::Ending`].
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file is empty.
    #[error("is empty: nothing was recorded into it; record again")]
    Empty,
    /// The file does not begin as a recording does.
    #[error("is not a cgscope recording; name a file that `cgscope record -o FILE` wrote")]
    Foreign,
    /// The file ends within the header.
    #[error(
        "ends before its header does, so it holds no sample: cgscope was killed or the disk was full as it started; record \
         again"
    )]
    HeaderCut,
    /// The header does not fit its checksum, or cannot be parsed.
    #[error("has a damaged header (its checksum does not fit); take another copy of the file")]
    HeaderDamaged,
    /// The file is in another version of the format.
    #[error(
        "is in version {found} of the format, {} than version {} that this cgscope reads{}",
        age(*found),
        VERSION,
        remedy(*found, wrote)
    )]
    Version {
        /// The version of the format.
        found: u32,
        /// The version of the cgscope that wrote it, if known.
        wrote: Option<String>,
    },
    /// The file could not be read.
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

/// Why something could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The file could not be written.
    #[error("could not be written: {}", cause(.0))]
    Io(#[from] io::Error),
    /// An earlier write ended within a frame; what follows it could never be read.
    #[error("takes no more samples: an earlier write was cut short; record to a new file")]
    Broken,
    /// The Sample breaks this rule: a fault of cgscope.
    #[error("did not take a sample, because {0}; this is a fault of cgscope, please report it")]
    Invalid(&'static str),
    /// The payload of this many bytes is longer than a frame may be.
    #[error("did not take a sample of {0} bytes, longer than a frame may be; select fewer tasks")]
    TooLarge(usize),
    /// The Sample could not be encoded: a fault of cgscope.
    #[error("did not take a sample ({0}); this is a fault of cgscope, please report it")]
    Encoding(serde_json::Error),
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full; free some space or record to another disk".into(),
        _ => error.to_string(),
    }
}

/// An error with the file it is about: `PATH is empty: ...`.
#[derive(Debug, Error)]
#[error("{} {error}", path.display())]
pub struct FileError<E: std::error::Error> {
    /// The file as it was named.
    pub path: PathBuf,
    /// What failed.
    pub error: E,
}
