//! The objects of waits by cause.

use serde::{Serialize, Serializer};

use cgscope_layout::CAUSES;

use crate::{ByCause, Mode, causes::ORDER};

/// The parts of waits; they sum to `total_ns`.
pub struct CauseObject {
    by_cause: ByCause,
    mode: Mode,
}

impl CauseObject {
    pub(super) const fn new(by_cause: ByCause, mode: Mode) -> Self {
        Self { by_cause, mode }
    }
}

impl Serialize for CauseObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = |cause| self.by_cause.known(cause, self.mode);
        serializer.collect_map(ORDER.map(|cause| (format!("{}_ns", cause.name()), part(cause))))
    }
}

/// The waits of a row by cause; each wait is split in proportion to its parts.
pub struct CauseCounts(pub(super) [f64; CAUSES]);

impl Serialize for CauseCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(ORDER.map(|cause| (cause.name(), self.0[cause as usize])))
    }
}
