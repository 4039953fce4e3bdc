//! Writes intervals in the formats of other tools. This crate has no side effects except its output.
//!
//! A format with rows or histograms for each interval is written as the intervals arrive. A profile is a sum over all intervals,
//! so it is written at the end.

#![allow(missing_docs, reason = "comments say only what names and types do not say")]

mod csv;
mod folded;
mod hdr;
mod parquet;
pub mod perfetto;
pub mod pprof;
mod stacks;
pub mod table;

use std::io::{self, Write};

use ::parquet::errors::ParquetError;
use cgscope_model::{Interval, findings::Host};
use clap::ValueEnum;

pub type Result<T> = std::result::Result<T, Error>;

/// The output of a sink. The caller adds a buffer.
pub type Out = Box<dyn Write + Send>;

/// Receives intervals in time order.
pub trait Sink {
    fn interval(&mut self, interval: &Interval) -> Result<()>;

    /// Writes the end of the file and flushes. Without this call the file is incomplete.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The formats, as `--format` names and explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// HdrHistogram interval log: in each interval, a histogram of all waits and one of each cgroup
    Hdr,
    /// Trace for ui.perfetto.dev: waiting by cause, running and throttling over time, and findings
    Perfetto,
    /// A row for each task and interval, as text
    Csv,
    /// The same rows, typed: for DuckDB, pandas, Spark
    Parquet,
    /// Profile for `go tool pprof`: waiting by cgroup, process, thread and cause
    Pprof,
    /// Folded stacks for flamegraph.pl, inferno and speedscope: waiting by cgroup, process, thread and cause, in nanoseconds
    Folded,
    /// Folded stacks of a recording made with --chains: sleep by sleeper, kind, waker and what the waker did, in nanoseconds
    Chains,
}

impl Format {
    /// Whether the format is unreadable on a terminal.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Perfetto | Self::Parquet | Self::Pprof)
    }

    pub fn sink(self, out: Out, about: About) -> Result<Box<dyn Sink>> {
        Ok(match self {
            Self::Hdr => Box::new(hdr::Hdr::new(out, &about)?),
            Self::Perfetto => Box::new(perfetto::Perfetto::new(out, about)?),
            Self::Csv => Box::new(csv::Csv::new(out, about)?),
            Self::Parquet => Box::new(parquet::Parquet::new(out, about)?),
            Self::Pprof => Box::new(pprof::Pprof::new(out, about)),
            Self::Folded => Box::new(folded::Folded { out, stacks: stacks::Stacks::default() }),
            Self::Chains => Box::new(folded::Chains::new(out)),
        })
    }
}

/// Where the intervals were measured, and by which version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub cgscope_version: String,
    pub hostname: String,
    /// The version, the host, its kernel and its architecture, in one line.
    pub measured_by: String,
    pub start_unix_ns: u64,
    /// Facts about the host that findings depend on.
    pub host: Host,
}

/// Why the export failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the coarse mode measures only sums of waits, not histograms")]
    NoHistogram,
    #[error("the recording does not count for whom tasks slept")]
    NoChains,
    /// The library of a format refused the data, which is a bug of cgscope.
    #[error("{0}")]
    Refused(String),
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
