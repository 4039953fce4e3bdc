//! What changed from one recording to another, and which changes are more than noise. `docs/diff.md` explains the judgement.
//!
//! [`Side`] sums the Intervals of a recording over blocks of time; [`compare`] makes a table of [`Change`]s from two of them, and
//! text and JSON are made from that.

mod blocks;
mod compare;
mod figure;
pub mod json;
mod names;
mod resample;
mod series;
mod side;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use crate::{CgroupReading, Finding, Mode};
pub use blocks::MOST_BLOCKS;
pub use compare::compare;
pub use figure::{Figure, FigureUnit, figures};
pub use resample::FEWEST_BLOCKS;
pub use side::Side;

/// A difference is more than noise if chance alone gives the whole table one like it in less than this share of cases.
pub const ERROR: f64 = 0.01;
/// The share for differences that are even surer.
pub const SMALL_ERROR: f64 = 0.001;
/// Confidence of the interval of a change.
pub const CONFIDENCE: f64 = 1.0 - ERROR;

/// What a figure is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
#[expect(missing_docs, reason = "self-explanatory fields")]
pub enum DiffSubject {
    /// The host, or the selection that was recorded.
    All,
    /// A cgroup with all below it, by path, possibly [without ids](crate::cgroup_name::without_ids).
    Cgroup { path: Arc<str> },
    /// The threads of a name, without numbers.
    Program { comm: Arc<str> },
    /// A cgroup's own tasks behind those of another.
    Behind {
        #[serde(rename = "path")]
        victim: Arc<str>,
        /// The cgroup that ran; `None`: kernel threads.
        culprit: Option<Arc<str>>,
    },
    /// cgscope itself.
    Own,
}

/// The recordings that have a subject or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "self-explanatory names")]
pub enum Presence {
    Both,
    OnlyBefore,
    OnlyAfter,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// More than noise, and large enough to matter.
    MoreThanNoise,
    /// It may be chance.
    WithinNoise,
    /// Sure, but below the least change that matters.
    Negligible,
    /// Too few events, or waits beyond a quantile.
    TooFewEvents,
    /// A recording has fewer than [`FEWEST_BLOCKS`] intervals.
    TooShort,
}

/// A row of the table: a figure of a subject on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What it is about.
    #[serde(flatten)]
    pub subject: DiffSubject,
    /// Which figure.
    #[serde(flatten)]
    pub figure: Figure,
    /// The recordings that have the subject.
    pub presence: Presence,
    /// The value before; `None`: there is none, such as a quantile without waits.
    pub before: Option<f64>,
    /// The value after.
    pub after: Option<f64>,
    /// After less before.
    pub change: Option<f64>,
    /// The change as a share of `before`; not finite (null in JSON) where that is 0.
    pub relative: Option<f64>,
    /// Lower end of the change's interval with [`CONFIDENCE`]; `None`: not known.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Probability that chance alone gives any figure of the table a difference as sure as this; `None`: not tested.
    pub p: Option<f64>,
    /// What it means.
    pub verdict: Verdict,
    /// The order of the table: the change of a share of wall time; for other figures the relative change times the share of wall
    /// time that the subject waited.
    pub size: f64,
}

impl Change {
    /// True if it is more than noise.
    pub fn is_called(&self) -> bool {
        self.verdict == Verdict::MoreThanNoise
    }
}

/// The CPU limits of a cgroup, as in [`CgroupReading`].
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

/// The limits of a cgroup that differ. There is no noise in them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitChange {
    /// The cgroup.
    pub path: Arc<str>,
    /// At the end of the first recording; `None`: several cgroups of this name have different limits.
    pub before: Option<CpuLimits>,
    /// At the end of the second one.
    pub after: Option<CpuLimits>,
    /// Whether they changed while each side was recorded.
    pub changed_during: [bool; 2],
}

/// A finding that only one recording has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FindingChange {
    /// Which recording has it; never both.
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
    /// Waited, share of wall time.
    pub wait: f64,
    /// On a CPU, share of wall time.
    pub on_cpu: f64,
}

/// The extent of a recording and its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "self-explanatory names")]
pub struct Length {
    pub mode: Mode,
    pub intervals: u64,
    pub blocks: usize,
    pub duration_ns: u64,
}

/// Two recordings side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Before and after.
    pub lengths: [Length; 2],
    /// Figures that were tested together.
    pub tested: usize,
    /// Those more than noise first; among these and among the others shares of wall time first, by size.
    pub changes: Vec<Change>,
    /// Limits that differ.
    pub limits: Vec<LimitChange>,
    /// Findings that are new or gone.
    pub findings: Vec<FindingChange>,
    /// Findings that both have.
    pub kept_findings: usize,
    /// The cgroups that waited most, on each side.
    pub cgroups: [Vec<Ranked>; 2],
    /// The programs that waited most, on each side.
    pub programs: [Vec<Ranked>; 2],
    /// Compared subjects that only one recording has.
    pub alone: BTreeMap<DiffSubject, Presence>,
}

impl Diff {
    /// True if changes can be tested: both recordings have enough intervals.
    pub fn is_enough(&self) -> bool {
        self.lengths.iter().all(|length| length.blocks >= FEWEST_BLOCKS)
    }

    /// What is more than noise, by size.
    pub fn called(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.is_called())
    }
}
