//! A recording that has been read, and what was set of its cgroups.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Subject,
    blocks::{Blocks, Rows},
};
use crate::{CgroupReading, Interval};

/// By path; `None`: several cgroups are told by one name, and their limits are not the same.
pub(super) type Limits = BTreeMap<Arc<str>, Option<CgroupReading>>;

/// A recording that has been read.
#[derive(Debug)]
pub(super) struct Recorded {
    pub blocks: Blocks,
    pub rows: BTreeMap<Subject, Rows>,
    /// Subjects that were there, also if they did nothing.
    pub present: BTreeSet<Subject>,
    /// All of it as one Interval. Of the histograms only the sum is in it.
    pub whole: Interval,
    pub intervals: u64,
    /// What was set at the end.
    pub limits: Limits,
    /// Cgroups whose limits changed on the way.
    pub changed_limits: BTreeSet<Arc<str>>,
    /// Paths that are told by another name, as they are other ones on the other side.
    pub names: BTreeMap<Arc<str>, Arc<str>>,
}

/// What was set of a cgroup, without its counters.
pub(super) fn settings(limits: &CgroupReading) -> CgroupReading {
    CgroupReading {
        id: limits.id,
        quota_us: limits.quota_us,
        period_us: limits.period_us,
        burst_us: limits.burst_us,
        weight: limits.weight,
        cpus: limits.cpus,
        cpuset: limits.cpuset.clone(),
        ..CgroupReading::default()
    }
}

/// True if the same limits were set.
pub(super) fn same_settings(a: &CgroupReading, b: &CgroupReading) -> bool {
    let numbers = |l: &CgroupReading| (l.quota_us, l.period_us, l.burst_us, l.weight, l.cpus);
    numbers(a) == numbers(b) && a.cpuset == b.cpuset
}
