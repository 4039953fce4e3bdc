//! The commands that write and read recordings.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{Select, interval};

/// `cgscope record`
#[derive(Debug, Args)]
pub struct Record {
    /// Whose waits.
    #[command(flatten)]
    pub select: Select,

    /// The file to write; one that is there is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "cgscope.rec")]
    pub output: PathBuf,

    /// Length of an interval: what a kill loses at most
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,

    /// End after this time
    #[arg(short, long, value_name = "TIME", value_parser = interval)]
    pub duration: Option<Duration>,
}

/// `cgscope report`
#[derive(Debug, Args)]
pub struct Report {
    /// A file of `cgscope record`
    pub file: PathBuf,

    /// One JSON object an interval (cgscope.interval/1) instead of words
    #[arg(long)]
    pub json: bool,
}

/// `cgscope export`
#[derive(Debug, Args)]
pub struct Export {
    /// A file of `cgscope record`
    pub file: PathBuf,

    /// What to write
    #[arg(short, long, value_name = "FORMAT")]
    pub format: ExportFormat,

    /// The file to write, which must not hold anything yet; `-` is standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
}

/// What `export --format` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
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
}
