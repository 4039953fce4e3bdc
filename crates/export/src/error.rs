//! What can go wrong while writing.

use std::{fmt, io};

use parquet::errors::ParquetError;

/// Why nothing, or no more, could be written.
#[derive(Debug)]
pub enum Error {
    /// The output could not be written.
    Io(io::Error),
    /// The format holds histograms, and an interval of the coarse mode has none.
    NoHistogram,
    /// The library of a format refused it: a bug of ours.
    Refused(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<csv::Error> for Error {
    fn from(error: csv::Error) -> Self {
        Self::Io(error.into())
    }
}

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(cause) => match cause.downcast::<io::Error>() {
                Ok(error) => Self::Io(*error),
                Err(cause) => Self::Refused(cause.to_string()),
            },
            error => Self::Refused(error.to_string()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoHistogram => f.write_str("the coarse mode measures sums of waits and no histogram"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}
