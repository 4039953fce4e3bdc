//! What changed from one recording to another, and what of it is more than noise. How it is judged is in `docs/diff.md`.
//!
//! [`Side`] takes the Intervals of a recording, one at a time, and keeps sums over blocks of time; [`compare`] sets two of them
//! side by side.

mod blocks;
mod compare;
mod distribution;
mod figure;
pub mod json;
mod matching;
mod program;
mod recorded;
mod resample;
mod series;
mod side;
mod subjects;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use crate::{CgroupReading, Finding, Hist, Mode};
pub use blocks::MOST_BLOCKS;
pub use compare::compare;
pub use figure::{Figure, Least, Unit};
pub use resample::FEWEST_BLOCKS;
pub use side::Side;

/// A difference is called more than noise if chance alone gives the whole table one like it in less than this share of cases.
pub const ERROR: f64 = 0.01;
/// The same, where it may be said to be surer still.
pub const SMALL_ERROR: f64 = 0.001;
/// Confidence of the interval of a change.
pub const CONFIDENCE: f64 = 1.0 - ERROR;
/// A rate of fewer events than these, on both sides together, says nothing.
pub const FEW_EVENTS: f64 = 10.0;
/// A subject that ran and waited for less than this share of wall time on both sides is left out.
pub const LEAST_ACTIVITY: f64 = 0.001;
/// Two distributions that differ nowhere by this share of the waits are taken for the same.
pub const LEAST_DISTANCE: f64 = 0.05;
/// So many cgroups, and so many programs, are compared: those that waited and ran most.
pub const MOST_SUBJECTS: usize = 60;
/// So many are ranked on each side.
pub const TOP: usize = 10;

/// What a figure is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// All that was recorded: the host, or the selection.
    All,
    /// A cgroup with all below it, by path; what is another at each start may be left out of it
    /// ([`without_ids`](crate::cgroup_name::without_ids)).
    Cgroup(Arc<str>),
    /// The threads of a name, numbers left out.
    Program(Arc<str>),
    /// A cgroup's own tasks behind those of another; `None`: behind kernel threads.
    Behind {
        /// Whose tasks waited.
        victim: Arc<str>,
        /// Whose ran.
        culprit: Option<Arc<str>>,
    },
    /// cgscope itself.
    Own,
}

/// On which side something was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// On both.
    Both,
    /// In the first recording alone.
    OnlyBefore,
    /// In the second one alone.
    OnlyAfter,
}

impl Presence {
    fn of(before: bool, after: bool) -> Self {
        match (before, after) {
            (true, false) => Self::OnlyBefore,
            (false, true) => Self::OnlyAfter,
            _ => Self::Both,
        }
    }
}

/// What is to be thought of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// More than noise, and large enough to tell.
    MoreThanNoise,
    /// It may be chance.
    WithinNoise,
    /// Sure, but below [`Figure::least`].
    Negligible,
    /// Of fewer than [`FEW_EVENTS`] events.
    TooFewEvents,
    /// A recording has fewer than [`FEWEST_BLOCKS`] intervals.
    TooShort,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What it is about.
    pub subject: Subject,
    /// Which figure.
    pub figure: Figure,
    /// On which side the subject was there.
    pub presence: Presence,
    /// In the unit of the figure; `None`: there is none, as a quantile without waits.
    pub before: Option<f64>,
    /// The same after.
    pub after: Option<f64>,
    /// Where the change lies with [`CONFIDENCE`]; `None`: not known.
    pub interval: Option<(f64, f64)>,
    /// How likely chance alone gives any figure of the table a difference as sure as this one; `None`: not tested.
    pub p: Option<f64>,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// What the table is ordered by: the change of a share of wall time; of other figures the relative change times the share
    /// of wall time that the subject waited.
    pub size: f64,
}

impl Change {
    /// After less before. A side without a figure has none.
    pub fn change(&self) -> Option<f64> {
        Some(self.after? - self.before?)
    }

    /// Said to be more than noise.
    pub fn is_called(&self) -> bool {
        self.verdict == Verdict::MoreThanNoise
    }
}

/// The lengths of waits of a subject on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Whose waits.
    pub subject: Subject,
    /// Waits before.
    pub before: Hist,
    /// Waits after.
    pub after: Hist,
    /// The longest, ns.
    pub longest_ns: [u64; 2],
    /// The largest difference between the shares of waits up to some length (Kolmogorov and Smirnov's distance), 0 to 1.
    pub distance: f64,
    /// That length, ns.
    pub at_ns: u64,
    /// As in [`Change::p`], the smallest at the lengths looked at.
    pub p: f64,
    /// More than noise, and by at least [`LEAST_DISTANCE`].
    pub differs: bool,
}

/// The limits of a cgroup, where they are not the same. Facts: there is no noise in them.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitChange {
    /// The cgroup.
    pub path: Arc<str>,
    /// At the end of the first recording; `None`: several cgroups are told by this name, and their limits are not the same.
    pub before: Option<CgroupReading>,
    /// At the end of the second one.
    pub after: Option<CgroupReading>,
    /// They were changed while this side was recorded.
    pub during: [bool; 2],
}

/// A finding that only one recording has.
#[derive(Clone, Debug, PartialEq)]
pub struct FindingChange {
    /// Which recording has it; never both.
    pub presence: Presence,
    /// The finding.
    pub finding: Finding,
}

/// One of the subjects that waited most.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Which.
    pub subject: Subject,
    /// Waited, share of wall time.
    pub wait: f64,
    /// On a CPU, share of wall time.
    pub on_cpu: f64,
}

/// What is known of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Intervals in it.
    pub intervals: u64,
    /// Blocks that they make.
    pub blocks: usize,
    /// All of it, ns.
    pub duration_ns: u64,
    /// How it was measured.
    pub mode: Mode,
}

/// Two recordings side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Before and after.
    pub lengths: [Length; 2],
    /// Figures that were tested together.
    pub tested: usize,
    /// Those called first; of these and of the others shares of wall time first, by size.
    pub changes: Vec<Change>,
    /// The distributions of waits of those who waited most, by distance.
    pub distributions: Vec<Distribution>,
    /// Limits that are not the same.
    pub limits: Vec<LimitChange>,
    /// Findings that are new or gone.
    pub findings: Vec<FindingChange>,
    /// Findings that both have.
    pub kept_findings: usize,
    /// The cgroups that waited most, on each side.
    pub cgroups: [Vec<Ranked>; 2],
    /// The programs that waited most, on each side.
    pub programs: [Vec<Ranked>; 2],
    /// Who ran or waited worth telling and was on one side alone.
    pub alone: BTreeMap<Subject, Presence>,
}

impl Diff {
    /// True if something can be said: both recordings have enough intervals.
    pub fn is_enough(&self) -> bool {
        self.lengths.iter().all(|length| length.blocks >= FEWEST_BLOCKS)
    }

    /// What is more than noise, by size.
    pub fn called(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.is_called())
    }
}
