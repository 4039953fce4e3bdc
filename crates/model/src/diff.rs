//! Compares two recordings: what changed, and which changes are more than noise. `docs/diff.md` explains the statistics.
//!
//! [`Side`] sums the Intervals of one recording over blocks of time. [`compare()`] turns two sides into a table of [`Change`]s. The
//! text and JSON outputs print that table.

mod blocks;
mod compare;
pub mod json;
mod resample;
mod series;
mod side;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

pub use crate::diff::compare::{Figure, FigureUnit, figures};
use crate::{CgroupReading, Finding, Mode};
pub use blocks::MOST_BLOCKS;
pub use compare::compare;
pub use resample::FEWEST_BLOCKS;
pub use side::Side;

/// Limit of [`Change::p`]: the maximum probability of a difference that counts as more than noise.
pub const ERROR: f64 = 0.01;
/// Limit of [`Change::p`] for differences that an output marks as more certain.
pub const SMALL_ERROR: f64 = 0.001;
/// Confidence level of a change's confidence interval.
pub const CONFIDENCE: f64 = 1.0 - ERROR;

/// The thing that a figure describes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
#[expect(missing_docs, reason = "self-explanatory fields")]
pub enum DiffSubject {
    /// The host, or the recorded selection.
    All,
    /// A cgroup with its descendants, by path, possibly [without ids](crate::cgroup_name::without_ids).
    Cgroup { path: Arc<str> },
    /// All threads with the same name; numbers in the name are removed.
    Program { comm: Arc<str> },
    /// A cgroup's own tasks while they wait because of one culprit.
    Behind {
        #[serde(rename = "path")]
        victim: Arc<str>,
        /// The cgroup that ran instead; `None`: kernel threads.
        culprit: Option<Arc<str>>,
    },
    /// cgscope itself.
    Own,
}

/// The recordings that contain a subject or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "self-explanatory names")]
pub enum Presence {
    Both,
    OnlyBefore,
    OnlyAfter,
}

/// The verdict on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// More than noise, and large enough to matter.
    MoreThanNoise,
    /// Possibly chance.
    WithinNoise,
    /// Certainly different, but below the least change that matters.
    Negligible,
    /// Too few events, or too few waits beyond a quantile.
    TooFewEvents,
    /// A recording has fewer than [`FEWEST_BLOCKS`] blocks.
    TooShort,
}

/// A row of the table: one figure of one subject, on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The subject.
    #[serde(flatten)]
    pub subject: DiffSubject,
    /// The figure.
    #[serde(flatten)]
    pub figure: Figure,
    /// The recordings that contain the subject.
    pub presence: Presence,
    /// The value before; `None`: no value, such as a quantile without waits.
    pub before: Option<f64>,
    /// The value after; `None`: no value.
    pub after: Option<f64>,
    /// `after` minus `before`.
    pub change: Option<f64>,
    /// The change as a share of `before`. Not finite (null in JSON) if `before` is 0.
    pub relative: Option<f64>,
    /// Lower end of the confidence interval of the change, at level [`CONFIDENCE`]; `None`: unknown.
    pub low: Option<f64>,
    /// Upper end of the confidence interval.
    pub high: Option<f64>,
    /// Probability that chance alone makes any figure of the table differ as significantly as this one; `None`: not tested.
    pub p: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Sort key of the table. For a share of wall time: the change. For other figures: the relative change times the share of
    /// wall time that the subject waited.
    pub size: f64,
}

impl Change {
    /// True if the change is more than noise.
    pub fn is_called(&self) -> bool {
        self.verdict == Verdict::MoreThanNoise
    }
}

/// The CPU limits of a cgroup. [`CgroupReading`] explains the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "as there")]
pub struct CpuLimits {
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub burst_us: Option<u64>,
    pub weight: Option<u64>,
    pub cpus: Option<u32>,
    pub cpuset: Option<Arc<str>>,
}

impl From<&CgroupReading> for CpuLimits {
    fn from(reading: &CgroupReading) -> Self {
        let CgroupReading { quota_us, period_us, burst_us, weight, cpus, ref cpuset, .. } = *reading;
        Self { quota_us, period_us, burst_us, weight, cpus, cpuset: cpuset.clone() }
    }
}

/// A cgroup whose limits differ. Limits have no noise, so they are not tested.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitChange {
    /// Path of the cgroup.
    pub path: Arc<str>,
    /// Limits at the end of the first recording; `None`: several cgroups with this path have different limits.
    pub before: Option<CpuLimits>,
    /// Limits at the end of the second recording.
    pub after: Option<CpuLimits>,
    /// For each recording: true if the limits changed during it.
    pub changed_during: [bool; 2],
}

/// A finding that only one recording has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FindingChange {
    /// The recording with the finding; never both.
    pub presence: Presence,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
}

/// One of the subjects that waited most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The subject.
    #[serde(flatten)]
    pub subject: DiffSubject,
    /// Waiting time, as a share of wall time.
    pub wait: f64,
    /// Time on a CPU, as a share of wall time.
    pub on_cpu: f64,
}

/// Length of a recording and number of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "self-explanatory names")]
pub struct Length {
    pub mode: Mode,
    pub intervals: u64,
    pub blocks: usize,
    pub duration_ns: u64,
}

/// The result of comparing two recordings.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Lengths of the two recordings: before, after.
    pub lengths: [Length; 2],
    /// Number of figures that were tested together.
    pub tested: usize,
    /// Changes: more than noise first, then the other changes. In each group: shares of wall time first, then by size.
    pub changes: Vec<Change>,
    /// Cgroups whose limits differ.
    pub limits: Vec<LimitChange>,
    /// Findings that only one recording has.
    pub findings: Vec<FindingChange>,
    /// Number of findings that both recordings have.
    pub kept_findings: usize,
    /// For each side, the cgroups that waited most.
    pub cgroups: [Vec<Ranked>; 2],
    /// For each side, the programs that waited most.
    pub programs: [Vec<Ranked>; 2],
    /// The compared subjects that only one recording has.
    pub alone: BTreeMap<DiffSubject, Presence>,
}

impl Diff {
    /// True if both recordings have enough blocks for a test.
    pub fn is_enough(&self) -> bool {
        self.lengths.iter().all(|length| length.blocks >= FEWEST_BLOCKS)
    }

    /// Returns the changes that are more than noise, in the order of the table.
    pub fn called(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.is_called())
    }
}
