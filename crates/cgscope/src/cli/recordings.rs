//! The commands that write and read recordings.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Select, interval};
use crate::replay::{When, speed};

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

/// `cgscope replay`
#[derive(Debug, Args)]
pub struct Replay {
    /// A file of `cgscope record`
    pub file: PathBuf,

    /// How many times as fast as it was recorded, 0.25 to 64
    #[arg(short, long, value_name = "X", default_value = "1", value_parser = speed)]
    pub speed: f64,

    /// Begin there: a time of day in UTC as on the screen (14:03 or 14:03:20), or so long after the start (90s, 5m, 1h)
    #[arg(long, value_name = "TIME")]
    pub at: Option<When>,

    /// Begin paused
    #[arg(long)]
    pub paused: bool,
}
