//! The commands that write and read recordings.

use std::{path::PathBuf, time::Duration};

use cgscope_export::Format;
use cgscope_view::replay::player::{When, speed};
use cgscope_whatif::Loop;
use clap::{
    ArgGroup, Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{Measure, Select, Selectors, interval, long_time, short_time};
use crate::trigger::{Trigger, trigger};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rotation").multiple(true)))]
pub struct Record {
    #[command(flatten)]
    pub select: Select,

    /// File to write
    ///
    /// An existing file is renamed to FILE.old, or to FILE.old.2 if FILE.old exists.
    #[arg(short, long, value_name = "FILE", default_value = "cgscope.rec")]
    pub output: PathBuf,

    /// Length of an interval
    ///
    /// If cgscope is killed, at most one interval is lost.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,

    /// End after this time
    #[arg(short, long, value_name = "TIME", value_parser = long_time)]
    pub duration: Option<Duration>,

    /// Print only warnings and errors
    #[arg(short, long, hide_short_help = true)]
    pub quiet: bool,

    /// Start a new file at this size, like 100M
    ///
    /// A file is named after its start in UTC, FILE-20261121T101500.000Z.rec, so names sort by time. Each file is a complete
    /// recording. It begins with the last sample of the previous file, so no interval is lost between two files.
    #[arg(long, value_name = "SIZE", value_parser = size, group = "rotation", help_heading = ROTATION)]
    pub rotate_size: Option<u64>,

    /// Start a new file after this time: 30m, 1h, 7d
    #[arg(long, value_name = "TIME", value_parser = long_time, group = "rotation", help_heading = ROTATION)]
    pub rotate_age: Option<Duration>,

    /// Keep this number of files
    ///
    /// The number includes the file being written. Removes older files that this run wrote.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    #[arg(requires = "rotation", help_heading = ROTATION, hide_short_help = true)]
    pub keep_files: Option<u32>,

    /// Keep only the last TIME, until a trigger saves it
    ///
    /// SIGUSR1 also saves the recording. The directory FILE.ring holds the data in segments; each segment is a recording. The
    /// directory is removed at the end, but remains if cgscope is killed. A saved file is named after the time of its trigger in
    /// UTC, FILE-20261121T101500.000Z.rec, unless --triggers is 1.
    #[arg(long, value_name = "TIME", value_parser = long_time, conflicts_with = "rotation", help_heading = FLIGHT)]
    pub keep: Option<Duration>,

    /// Save when this is true, like 'p99>10ms'
    ///
    /// EXPR is FIGURE>LIMIT or FIGURE(CGROUP)>LIMIT, where CGROUP includes its descendants. Repeat the option for several triggers.
    ///
    /// p50, p90, p99, p999: a quantile of the waits that ended in the interval. Needs at least 20 waits (p99: 100, p999: 1000).
    /// A quantile is known to within one eighth of its value. The trigger fires if the lower bound exceeds the limit.
    ///
    /// max: the longest of these waits. pending: the longest wait that has not ended.
    ///
    /// waiting: the percentage of runnable time (running or waiting) that tasks waited. throttled: the percentage of runnable time
    /// that tasks were throttled.
    /// Both need a runnable time of at least 1 % of the interval. A wait counts in the interval in which it ends.
    ///
    /// Examples: 'p99>10ms', 'throttled>20%', 'pending(/system.slice/db.service)>1s'.
    #[arg(long, value_name = "EXPR", value_parser = trigger, requires = "keep", help_heading = FLIGHT)]
    pub trigger: Vec<Trigger>,

    /// Record for this time after a trigger, then save
    ///
    /// Default: a fifth of --keep.
    #[arg(long, value_name = "TIME", value_parser = long_time)]
    #[arg(requires = "keep", help_heading = FLIGHT, hide_short_help = true)]
    pub after: Option<Duration>,

    /// End after this number of saved files
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(requires = "keep", help_heading = FLIGHT, hide_short_help = true)]
    pub triggers: u64,

    /// Ignore triggers for this time after a file was saved
    ///
    /// Default: the value of --keep. A trigger fires again only after its figure was below the limit for an interval, so a
    /// condition that lasts for hours is saved once. SIGUSR1 always works, except while a file is being saved.
    #[arg(long, value_name = "TIME", value_parser = long_time)]
    #[arg(requires = "keep", help_heading = FLIGHT, hide_short_help = true)]
    pub cool_down: Option<Duration>,

    /// Limit the size of FILE.ring
    ///
    /// A ring that reaches this size holds less time than --keep.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    #[arg(requires = "keep", help_heading = FLIGHT, hide_short_help = true)]
    pub ring_size: u64,
}

const ROTATION: &str = "Rotation";
const FLIGHT: &str = "Flight recorder";

#[derive(Debug, Args)]
pub struct Report {
    /// Recording to read
    pub file: PathBuf,

    /// Print one JSON object (cgscope.interval/1) per interval
    #[arg(long)]
    pub json: bool,

    /// With --json: include tasks that did nothing
    #[arg(short, long, hide_short_help = true, requires = "json")]
    pub all: bool,

    /// Write an HTML page; - is standard output
    ///
    /// The page needs no network and no other file. An earlier report of cgscope is replaced; any other existing file is an error.
    #[arg(long, value_name = "OUT", conflicts_with = "json")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Export {
    /// Recording to read
    pub file: PathBuf,

    /// Format to write
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Format,

    /// File to write; - is standard output
    ///
    /// An existing file must be empty.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct Replay {
    /// Recording to play
    pub file: PathBuf,

    /// Speed relative to real time, 0.25 to 64
    #[arg(short, long, value_name = "X", default_value = "1", value_parser = speed)]
    pub speed: f64,

    /// Start at this time: 14:03 (UTC) or 5m after the start
    ///
    /// Either a time of day in UTC, as on the screen (14:03 or 14:03:20), or a time since the start of the recording (90s, 5m, 1h).
    #[arg(long, value_name = "TIME")]
    pub at: Option<When>,

    /// Start paused
    #[arg(long)]
    pub paused: bool,
}

#[derive(Debug, Args)]
pub struct Diff {
    /// Recording before the change
    pub before: PathBuf,

    /// Recording after the change
    pub after: PathBuf,

    /// Print every figure: one JSON object (cgscope.diff/1) per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Whatif {
    /// Recording to read; without it, measure this host
    pub file: Option<PathBuf>,

    /// How long to measure
    ///
    /// At most 10m. Samples are taken once a second, or ten times if the time is shorter than 10s.
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = short_time, conflicts_with = "file")]
    pub duration: Duration,

    #[command(flatten)]
    pub selectors: Selectors,

    /// Quotas to simulate, in CPUs: 1.5, or 0.5..4
    ///
    /// A range is simulated at eight quotas. Default: multiples of the quota in force.
    #[arg(long, value_name = "CPUS", value_parser = quotas)]
    pub quota: Option<Quotas>,

    /// Simulate at most this many tasks at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,

    /// Unused quota that may be saved (cpu.max.burst)
    ///
    /// In microseconds, at most the quota. Default: the burst in force.
    #[arg(long, value_name = "US")]
    pub burst: Option<u64>,

    /// Length of a period, in microseconds
    ///
    /// Default: the period in force.
    // Hidden because the short help is limited to 24 lines, and hardly anybody changes the period.
    #[arg(long, hide_short_help = true, value_name = "US", value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    pub period: Option<u64>,

    /// When work arrives: by itself, or after the work before it
    ///
    /// Open: requests come by themselves, as from many users. Closed: each piece of work follows the one before, as in a batch job. Default:
    /// what the recording shows, else both, with wider bounds.
    #[arg(long, value_name = "LOOP", value_parser = PossibleValuesParser::new(["open", "closed"]).map(arrivals))]
    pub r#loop: Option<Loop>,

    /// Share of periods that may be throttled
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = share)]
    pub target: f64,

    /// Print one JSON object (cgscope.whatif/1) per cgroup
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub measure: Measure,
}

fn arrivals(name: String) -> Loop {
    if name == "open" { Loop::Open } else { Loop::Closed }
}

/// Quotas in CPUs, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Quotas(pub Vec<f64>);

/// Parses `1.5` or `0.5..4`.
fn quotas(text: &str) -> Result<Quotas, String> {
    const STEPS: u32 = 7;
    let number = |text: &str| text.parse().ok().filter(|cpus: &f64| (0.001..=4096.0).contains(cpus));
    let range = match text.split_once("..") {
        None => number(text).map(|cpus| vec![cpus]),
        Some((low, high)) => {
            number(low).zip(number(high)).filter(|(low, high)| low < high).map(|(low, high)| {
                (0..=STEPS).map(|step| low + (high - low) * f64::from(step) / f64::from(STEPS)).collect()
            })
        }
    };
    range.map(Quotas).ok_or_else(|| "quotas are CPUs, like 1.5 or 0.5..4".to_owned())
}

/// Parses a percentage, and returns it as a fraction.
fn share(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.trim_end_matches('%').parse().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "a share is between 0% and 100%".to_owned())
}

/// Parses a size in binary units, like `100M`. A plain number is in bytes.
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
    // A file below 4K has space for little more than its header.
    if !(4_096.0..=(1_u64 << 50) as f64).contains(&bytes) {
        return Err("a size must be between 4K and 1024T".to_owned());
    }
    Ok(bytes as u64)
}

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
