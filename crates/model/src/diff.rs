//! Compares two recordings: what changed, and which changes are more than noise. `docs/diff.md` explains the statistics.
//!
//! [`Side`] sums the Intervals of one recording over blocks of time. [`compare()`] turns two sides into a table of [`Change`]s. The
//! text and JSON outputs print that table.

mod compare;
mod resample;
mod side;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::Serialize;

use crate::{CgroupReading, Mode};
pub use compare::compare;
pub use resample::FEWEST_BLOCKS;
pub use side::{MOST_BLOCKS, Side};

/// Limit of [`Change::p`]: the maximum probability of a difference that counts as more than noise.
pub const ERROR: f64 = 0.01;
/// Limit of [`Change::p`] for differences that an output marks as more certain.
pub const SMALL_ERROR: f64 = 0.001;
/// Confidence level of a change's confidence interval.
pub const CONFIDENCE: f64 = 1.0 - ERROR;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    MoreThanNoise,
    WithinNoise,
    Negligible,
    TooFewEvents,
    TooShort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Share of wall time, summed over tasks or CPUs. 0.5 is half the time of one task, or half a CPU.
    WallShare,
    PerSecond,
    /// Share of a total, 0 to 1.
    Share,
    Ns,
}

/// A row of the table: one figure of one subject, on both sides. `None`: no value, such as a quantile without waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    #[serde(flatten)]
    pub subject: DiffSubject,
    pub figure: &'static str,
    /// Name of the figure in sentences and tables.
    #[serde(skip)]
    pub words: &'static str,
    pub unit: FigureUnit,
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub change: Option<f64>,
    /// Not finite (null in JSON) if `before` is 0.
    pub relative: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub p: Option<f64>,
    pub verdict: Verdict,
    /// Sort key of the table.
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

/// A cgroup whose limits at the ends of the recordings differ. Limits have no noise, so they are not tested.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitChange {
    pub path: Arc<str>,
    pub before: CpuLimits,
    pub after: CpuLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Length {
    pub mode: Mode,
    pub intervals: u64,
    pub blocks: usize,
    pub duration_ns: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Lengths of the two recordings: before, after.
    pub lengths: [Length; 2],
    pub tested: usize,
    /// Changes: more than noise first, then the other changes. In each group: shares of wall time first, then by size.
    pub changes: Vec<Change>,
    pub limits: Vec<LimitChange>,
}

impl Diff {
    /// True if both recordings have enough blocks for a test.
    pub fn is_enough(&self) -> bool {
        self.lengths.iter().all(|length| length.blocks >= FEWEST_BLOCKS)
    }

    pub fn called(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.is_called())
    }
}

/// A line of the JSON output, `cgscope.diff/1`.
#[derive(Serialize)]
pub struct Object<T> {
    pub schema: &'static str,
    #[serde(flatten)]
    pub members: T,
}

pub fn object<T: Serialize>(members: T) -> Object<T> {
    Object { schema: "cgscope.diff/1", members }
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Members<'a> {
    Summary {
        enough: bool,
        tested: usize,
        called: usize,
        family_wise_error: f64,
        confidence: f64,
        before: Length,
        after: Length,
    },
    Limits(&'a LimitChange),
    Figure(&'a Change),
}

/// Returns the lines of a result, in the order of the output.
pub fn objects(diff: &Diff) -> impl Iterator<Item = Object<impl Serialize>> {
    let [before, after] = diff.lengths;
    let summary = Members::Summary {
        enough: diff.is_enough(),
        tested: diff.tested,
        called: diff.called().count(),
        family_wise_error: ERROR,
        confidence: CONFIDENCE,
        before,
        after,
    };
    let limits = diff.limits.iter().map(Members::Limits);
    [summary].into_iter().chain(limits).chain(diff.changes.iter().map(Members::Figure)).map(object)
}
