//! What is wrong in an interval, with its figures, and what to do about it: judged by a pure function.
//!
//! A rule has thresholds and a predicate, in the file of its kind below `findings/`, and a name and words, in `words/findings.rs`.
//! Only completed waits count: they are the ones whose cause and culprits are known to the end. A rule without data has no
//! findings.

mod contention;
mod context;
mod host;
mod numa;
mod quota;
mod skew;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, sync::Arc};

use serde::Serialize;

pub use crate::words::{QUOTA_FILE, findings::Rule};
use crate::{Interval, Tree};
pub use contention::REALTIME_PERCENT;
pub(crate) use contention::{Neighbour, realtime_neighbour, realtime_victim, siblings};
pub(crate) use context::{Busy, Context};
pub(crate) use numa::{Bouncing, Remote};
pub use quota::BELOW_LIMIT_PERCENT;
pub(crate) use quota::Throttled;
pub(crate) use skew::{Hold, Skew, Who};

/// A thread is busy if it ran or waited for this share of the interval, percent. Any program has idle threads, which do
/// not compete for the quota.
pub const BUSY_THREAD_PERCENT: u64 = 1;
/// At most this many findings are shown; the others cost less.
pub const MOST: usize = 12;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked for.
    pub rule: Rule,
    /// Path of the cgroup it is about, as under the mount; `None`: the host, or all that was measured of it.
    pub cgroup: Option<Arc<str>>,
    /// What is wrong, with the figures: one sentence, without a full stop.
    pub says: String,
    /// What to do: one sentence, without a full stop.
    pub advice: String,
    /// The waiting behind it, ns summed over tasks. Two findings may share it.
    pub lost_ns: u64,
}

/// What the rules need of the host besides the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
    /// Every task was measured: nothing was left out by a selection.
    pub whole: bool,
}

/// What is wrong in `interval`, at most [`MOST`]: by what it cost, the worst first, and last what only limits the
/// other figures.
pub fn findings(interval: &Interval, host: &Host) -> Vec<Finding> {
    findings_in(interval, &Tree::new(interval), host)
}

/// The same, where the tree of the interval is there already.
pub fn findings_in(interval: &Interval, tree: &Tree, host: &Host) -> Vec<Finding> {
    if interval.duration_ns == 0 {
        return Vec::new();
    }
    let context = Context::new(interval, tree, *host);
    let kinds = [quota::findings, contention::findings, host::findings, numa::findings];
    let mut findings: Vec<Finding> = kinds.iter().flat_map(|kind| kind(&context)).collect();
    findings.sort_by(|a, b| order(a).cmp(&order(b)));
    findings.truncate(MOST);
    findings
}

fn order(finding: &Finding) -> (bool, Reverse<u64>, Option<&str>, Rule) {
    let Finding { rule, cgroup, lost_ns, .. } = finding;
    (*rule == Rule::Unattributed, Reverse(*lost_ns), cgroup.as_deref(), *rule)
}

/// True if `part` is at least this share of `whole`, percent; nothing is a share of nothing.
pub(crate) fn is_share(part: u64, whole: u64, percent: u64) -> bool {
    whole != 0 && u128::from(part) * 100 >= u128::from(whole) * u128::from(percent)
}

/// Such a share, and not too short.
fn is_much(ns: u64, least_ns: u64, whole_ns: u64, percent: u64) -> bool {
    ns >= least_ns && is_share(ns, whole_ns, percent)
}
