//! The clocks, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC: what durations and the starts of tasks are taken from.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CLOCK_REALTIME, since 1970.
pub fn unix_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// CPU time of this process.
pub(crate) fn process_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
