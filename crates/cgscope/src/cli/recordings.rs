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

    /// Write a page to look at in a browser instead of words; it needs no network and no other file. A former page is replaced,
    /// anything else that is there is left alone; - is standard output
    #[arg(long, value_name = "OUT", conflicts_with = "json")]
    pub html: Option<PathBuf>,
}
