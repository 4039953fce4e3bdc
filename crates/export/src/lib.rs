//! Intervals in the formats of other tools. Pure: Intervals in one by one, bytes out.
//!
//! Formats with a row or a histogram per interval are written as Intervals arrive; a profile is one sum over all of them.

/// Declares messages of Protocol Buffers: a field is `"TAG" NAME: TYPE, [HOW prost ENCODES IT];`.
macro_rules! messages {
    ($($message:ident { $($tag:tt $field:ident: $type:ty, [$($how:tt)*];)* })*) => {$(
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct $message {
            $(#[prost($($how)*, tag = $tag)] pub $field: $type,)*
        }
    )*};
}

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

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Where the bytes go. The caller buffers it.
pub type Out = Box<dyn Write + Send>;

/// Takes Intervals in the order of time.
pub trait Sink {
    /// Adds an Interval.
    fn interval(&mut self, interval: &Interval) -> Result<()>;

    /// Writes the end, and flushes. Without it the file is not whole.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The formats, as `--format` names and explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Interval log of HdrHistogram: a histogram of the waits in each interval, of all and of each cgroup
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
}

impl Format {
    /// True for what nobody wants on a terminal.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Perfetto | Self::Parquet | Self::Pprof)
    }

    /// The sink that writes it.
    pub fn sink(self, out: Out, about: About) -> Result<Box<dyn Sink>> {
        Ok(match self {
            Self::Hdr => Box::new(hdr::Hdr::new(out, &about)?),
            Self::Perfetto => Box::new(perfetto::Perfetto::new(out, about)?),
            Self::Csv => Box::new(csv::Csv::new(out, about)?),
            Self::Parquet => Box::new(parquet::Parquet::new(out, about)?),
            Self::Pprof => Box::new(pprof::Pprof::new(out, about)),
            Self::Folded => Box::new(folded::Folded { out, stacks: stacks::Stacks::default() }),
        })
    }
}

/// Where and by what the Intervals were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The cgscope that measured them.
    pub cgscope_version: String,
    /// Name of the host.
    pub hostname: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -m`, in the words of Rust.
    pub architecture: String,
    /// Wall clock at the start, ns since 1970.
    pub start_unix_ns: u64,
    /// What findings are judged by.
    pub host: Host,
}

impl About {
    /// One line.
    fn words(&self) -> String {
        let Self { cgscope_version, hostname, kernel_release, architecture, .. } = self;
        format!("cgscope {cgscope_version} on {hostname}, Linux {kernel_release} {architecture}")
    }
}

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

impl From<::csv::Error> for Error {
    fn from(error: ::csv::Error) -> Self {
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
