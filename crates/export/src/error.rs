//! What can go wrong while writing.

use std::io;

use parquet::errors::ParquetError;

/// Why nothing, or no more, could be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The output could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The format holds histograms, and an interval of the coarse mode has none.
    #[error("the coarse mode measures sums of waits and no histogram")]
    NoHistogram,
    /// The library of a format refused it: a bug of ours.
    #[error("{0}")]
    Refused(String),
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
