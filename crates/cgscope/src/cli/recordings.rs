//! The commands that write and read recordings.

use std::{path::PathBuf, time::Duration};

use cgscope_export::Format;
use cgscope_view::replay::time::{When, speed};
use clap::{ArgGroup, Args};

use super::{Select, interval, long_time};
use crate::trigger::{Trigger, trigger};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rotation").multiple(true)))]
pub struct Record {
    #[command(flatten)]
    pub select: Select,

    /// The file to write; one that is there is kept as FILE.old, or FILE.old.2 and so on
    #[arg(short, long, value_name = "FILE", default_value = "cgscope.rec")]
    pub output: PathBuf,

    /// Length of an interval: what a kill loses at most
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,

    /// End after this time
    #[arg(short, long, value_name = "TIME", value_parser = long_time)]
    pub duration: Option<Duration>,

    /// Say only what is wrong: no progress, no words at the start and the end
    #[arg(short, long)]
    pub quiet: bool,

    /// Go on in another file at this size, like 100M
    ///
    /// Each file is called by its start, FILE-20261121T101500.000Z.rec in UTC, so that names sort by time, and is a recording
    /// of its own. It begins with the last Sample of the one before: no interval falls between two files.
    #[arg(long, value_name = "SIZE", value_parser = size, group = "rotation", help_heading = ROTATION)]
    pub rotate_size: Option<u64>,

    /// Go on in another file after this time: 30m, 1h, 7d
    #[arg(long, value_name = "TIME", value_parser = long_time, group = "rotation", help_heading = ROTATION)]
    pub rotate_age: Option<Duration>,

    /// Keep so many files, the one that is written included; older ones that this run wrote are removed
    #[arg(
        long,
        value_name = "N",
        requires = "rotation",
        value_parser = clap::value_parser!(u32).range(2..),
        help_heading = ROTATION
    )]
    pub keep_files: Option<u32>,

    /// Hold only the latest part, at least of this length, until a trigger or SIGUSR1 freezes it into FILE
    ///
    /// It is held in FILE.ring, a directory of segments that are recordings themselves. It is removed at the end, and stays after a
    /// kill. FILE is then called by the time of the trigger, FILE-20261121T101500.000Z.rec in UTC, unless --triggers is 1.
    #[arg(long, value_name = "TIME", value_parser = long_time, conflicts_with = "rotation", help_heading = FLIGHT)]
    pub keep: Option<Duration>,

    /// Freeze when this holds for an interval: FIGURE>LIMIT or FIGURE(CGROUP)>LIMIT. Can be given several times
    ///
    /// Figures: p50, p90, p99, p999: a quantile of the waits that ended in the interval, where at least 20 did (p99: 100, p999: 1000);
    /// it is known to an eighth, and triggers once it is above the limit for certain.
    /// max: the longest of them. pending: the longest wait that is not over. throttled, waiting: the share in percent of
    /// the time in which tasks could run (they ran or waited; waits count where they end) that they were throttled, that they waited;
    /// where that time is at least 1 % of the interval. Examples: 'p99>10ms', 'throttled>20%',
    /// 'pending(/system.slice/db.service)>1s'. CGROUP is with all below it.
    #[arg(long, value_name = "EXPR", value_parser = trigger, requires = "keep", help_heading = FLIGHT)]
    pub trigger: Vec<Trigger>,

    /// Go on for so long after a trigger before freezing [default: a fifth of --keep]
    #[arg(long, value_name = "TIME", value_parser = long_time, requires = "keep", help_heading = FLIGHT)]
    pub after: Option<Duration>,

    /// Freeze at most so many times, then end
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..),
        requires = "keep",
        help_heading = FLIGHT
    )]
    pub triggers: u64,

    /// Hear no trigger for so long after one was frozen [default: as --keep]
    ///
    /// A trigger that has frozen something is heard again only once an interval was not above its limit: what lasts for hours is
    /// frozen once. SIGUSR1 is heard all the same, unless something is being frozen at the moment.
    #[arg(long, value_name = "TIME", value_parser = long_time, requires = "keep", help_heading = FLIGHT)]
    pub cool_down: Option<Duration>,

    /// Let the ring take no more than this between two Samples, also where it then holds less than --keep
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1G",
        value_parser = size,
        requires = "keep",
        help_heading = FLIGHT
    )]
    pub ring_size: u64,
}

const ROTATION: &str = "Rotation";
const FLIGHT: &str = "Flight recorder";

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

#[derive(Debug, Args)]
pub struct Export {
    /// A file of `cgscope record`
    pub file: PathBuf,

    /// What to write
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Format,

    /// The file to write, which must not hold anything yet; `-` is standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
}

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

/// Parses a size in binary units, like `100M`; a plain number is bytes.
fn size(text: &str) -> Result<u64, String> {
    let nonsense = || "a size looks like 500K, 100M or 2G (1K is 1024 bytes)".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err(nonsense()),
    };
    let number: f64 = digits.parse().map_err(|_| nonsense())?;
    let bytes = number * (1u64 << shift) as f64;
    if !(SMALLEST as f64..=LARGEST as f64).contains(&bytes) {
        return Err("a size lies between 4K and 1024T".to_owned());
    }
    Ok(bytes as u64)
}

/// The smallest size: a smaller file has space for little more than its header.
const SMALLEST: u64 = 4 << 10;
const LARGEST: u64 = 1 << 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("100M", 100 << 20),
            ("100MiB", 100 << 20),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_sizes_are_refused() {
        for text in
            ["", "M", "-1M", "1", "4095", "nan", "inf", "10 M", "10MB", "10X", "iB", "10iB", "1e30", "2000T"]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
