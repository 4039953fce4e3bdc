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

/// What CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC: the time for which the host was suspended.
pub(crate) fn boottime_ahead_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic_ns())
}

/// The unit of times in `/proc/PID/stat` (USER_HZ).
pub(crate) fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}
