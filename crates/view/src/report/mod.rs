//! What happened in a recording, as text with tables, or as an HTML page.

pub mod html;
mod tables;
#[cfg(test)]
mod tests;
pub mod words;

use cgscope_model::{
    Finding, Interval, Losses, Timeline,
    findings::{Host, findings},
};

use crate::report::tables::{Pair, Row};

/// Facts about the recording itself, in words.
pub struct About {
    /// The path as the user gave it.
    pub file: String,
    /// What was recorded, and on which host.
    pub what: String,
    /// Like `Linux 6.12 x86_64, 2 CPUs`.
    pub host_words: String,
    /// Number of samples, duration and start.
    pub extent: String,
    /// How it ended.
    pub ending: String,
    /// The host on which it was recorded.
    pub host: Host,
}

/// A whole recording.
pub struct Whole {
    /// All intervals joined.
    pub interval: Interval,
    timeline: Timeline,
    findings: Vec<Finding>,
    cgroups: Vec<Row>,
    processes: Vec<Row>,
    threads: Vec<Row>,
    pairs: Vec<Pair>,
    /// The quotas that would have been enough, a line for each cgroup.
    pub enough: Vec<String>,
}

impl Whole {
    /// Joined intervals, with the losses of reading them.
    pub fn new(mut interval: Interval, timeline: Timeline, losses: &Losses, host: &Host) -> Self {
        for (loss, count) in losses.nonzero() {
            interval.losses.add(loss, count);
        }
        Self {
            findings: findings(&interval, host),
            cgroups: tables::cgroups(&interval),
            processes: tables::processes(&interval),
            threads: tables::threads(&interval),
            pairs: tables::pairs(&interval),
            enough: Vec::new(),
            timeline,
            interval,
        }
    }
}
