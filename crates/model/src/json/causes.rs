//! The objects of waits by cause.

use serde::Serialize;

use cgscope_layout::{CAUSES, Cause};

use crate::{ByCause, Mode};

/// The parts of waits; they sum to `total_ns`.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct CauseObject {
    pub throttled_ns: u64,
    pub own_cgroup_ns: Option<u64>,
    pub other_cgroup_ns: Option<u64>,
    pub kernel_ns: Option<u64>,
    pub wakeup_ns: Option<u64>,
    pub unattributed_ns: u64,
}

impl CauseObject {
    pub(super) fn new(by_cause: &ByCause, mode: Mode) -> Self {
        let who_ran = |cause| by_cause.known(cause, mode);
        Self {
            throttled_ns: by_cause.get(Cause::Throttled),
            own_cgroup_ns: who_ran(Cause::OwnCgroup),
            other_cgroup_ns: who_ran(Cause::OtherCgroup),
            kernel_ns: who_ran(Cause::Kernel),
            wakeup_ns: who_ran(Cause::Wakeup),
            unattributed_ns: by_cause.get(Cause::Unattributed),
        }
    }
}

/// Waits of a row by cause, each wait divided in proportion to its parts.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct CauseCounts {
    pub throttled: f64,
    pub own_cgroup: f64,
    pub other_cgroup: f64,
    pub kernel: f64,
    pub wakeup: f64,
    pub unattributed: f64,
}

impl CauseCounts {
    pub(super) fn new(counts: &[f64; CAUSES]) -> Self {
        let of = |cause: Cause| counts[cause as usize];
        Self {
            throttled: of(Cause::Throttled),
            own_cgroup: of(Cause::OwnCgroup),
            other_cgroup: of(Cause::OtherCgroup),
            kernel: of(Cause::Kernel),
            wakeup: of(Cause::Wakeup),
            unattributed: of(Cause::Unattributed),
        }
    }
}
