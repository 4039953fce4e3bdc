//! The waits of one subject over time.

use cgscope_model::Wait;

use super::sum::Sum;

/// What the last minute is, ns.
const MINUTE_NS: u64 = 60_000_000_000;

/// The waits of a subject in one interval.
#[derive(Clone, Debug)]
pub struct Past {
    pub(super) number: u64,
    /// Its end, wall clock, ns since 1970.
    pub end_unix_ns: u64,
    /// Length, ns.
    pub duration_ns: u64,
    /// The waits.
    pub wait: Wait,
}

impl Past {
    /// Tasks of it that waited, on average.
    pub fn waiting(&self) -> f64 {
        self.wait.total_ns as f64 / self.duration_ns.max(1) as f64
    }
}

/// All of them, and how long that is, ns.
pub fn all(past: &[Past]) -> (Wait, u64) {
    let mut sum = Sum::default();
    past.iter().for_each(|one| sum.add(&one.wait));
    (sum.into_wait(), past.iter().fold(0, |sum, one| sum.saturating_add(one.duration_ns)))
}

/// The last minute, or as much of it as there is; and how long that is, ns.
pub fn last_minute(past: &[Past]) -> (Wait, u64) {
    let (mut sum, mut length_ns) = (Wait::default(), 0u64);
    for one in past.iter().rev() {
        if length_ns != 0 && length_ns.saturating_add(one.duration_ns) > MINUTE_NS {
            break;
        }
        sum.add(&one.wait);
        length_ns = length_ns.saturating_add(one.duration_ns);
    }
    (sum, length_ns)
}
