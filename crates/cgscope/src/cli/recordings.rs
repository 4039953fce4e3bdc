//! The commands that write and read recordings.

use std::{path::PathBuf, time::Duration};

use clap::Args;

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

/// `cgscope diff`
#[derive(Debug, Args)]
pub struct Diff {
    /// A file of `cgscope record`: how it was
    pub before: PathBuf,

    /// Another one: how it is now
    pub after: PathBuf,

    /// Every figure that was compared, not only the largest changes
    #[arg(short, long)]
    pub all: bool,

    /// One JSON object a line (cgscope.diff/1) instead of words
    #[arg(long)]
    pub json: bool,
}
