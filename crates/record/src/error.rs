//! Why a recording cannot be written or read: each in one sentence that says what to do.

use std::{error::Error, fmt, io, path::PathBuf};

use crate::VERSION;

/// Why a recording cannot be read at all. Damage after the header is no error: see [`crate::Ending`].
#[derive(Debug)]
pub enum ReadError {
    /// No byte in it.
    Empty,
    /// It does not begin as a recording does.
    Foreign,
    /// It ends within the header.
    HeaderCut,
    /// The header is there and does not fit its checksum, or makes no sense.
    HeaderDamaged,
    /// Written in another version of the format.
    Version {
        /// The version of the format.
        found: u32,
        /// The cgscope that wrote it, if it can be told.
        wrote: Option<String>,
    },
    /// The file could not be read.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "is empty: nothing was recorded into it; record again"),
            Self::Foreign => {
                write!(f, "is not a cgscope recording; name a file that `cgscope record -o FILE` wrote")
            }
            Self::HeaderCut => write!(
                f,
                "ends before its header does, so it holds no sample: cgscope was killed or the disk was full as it \
                 started; record again"
            ),
            Self::HeaderDamaged => {
                write!(f, "has a damaged header (its checksum does not fit); take another copy of the file")
            }
            Self::Version { found, wrote } => {
                let age = if *found > VERSION { "newer" } else { "older" };
                write!(
                    f,
                    "is in version {found} of the format, {age} than version {VERSION} that this cgscope reads"
                )?;
                match wrote {
                    Some(version) => {
                        write!(f, ": it was written by cgscope {version}; read it with that version")
                    }
                    None => write!(f, "; read it with the {age} cgscope that wrote it"),
                }
            }
            Self::Io(error) => write!(f, "could not be read: {error}"),
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why something could not be written.
#[derive(Debug)]
pub enum WriteError {
    /// The file could not be written.
    Io(io::Error),
    /// An earlier write ended within a frame; what followed it could never be read.
    Broken,
    /// The Sample breaks this rule: a fault of cgscope.
    Invalid(&'static str),
    /// The payload of this many bytes is longer than a frame may be.
    TooLarge(usize),
    /// It could not be encoded: a fault of cgscope.
    Encoding(serde_json::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                write!(f, "could not be written: the disk is full; free some space or record to another disk")
            }
            Self::Io(error) => write!(f, "could not be written: {error}"),
            Self::Broken => {
                write!(f, "takes no more samples: an earlier write was cut short; record to a new file")
            }
            Self::Invalid(rule) => {
                write!(
                    f,
                    "did not take a sample, because {rule}; this is a fault of cgscope, please report it"
                )
            }
            Self::TooLarge(bytes) => write!(
                f,
                "did not take a sample of {bytes} bytes, longer than a frame may be; select fewer tasks"
            ),
            Self::Encoding(error) => {
                write!(f, "did not take a sample ({error}); this is a fault of cgscope, please report it")
            }
        }
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Encoding(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An error with the file it is about: `PATH is empty: ...`.
#[derive(Debug)]
pub struct FileError<E> {
    /// The file as it was named.
    pub path: PathBuf,
    /// What happened.
    pub error: E,
}

impl<E: fmt::Display> fmt::Display for FileError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.error)
    }
}

impl<E: Error + 'static> Error for FileError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Not `error` itself: its words are already in ours.
        self.error.source()
    }
}
