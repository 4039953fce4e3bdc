//! The clocks, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC: what durations and the starts of tasks are taken from.
pub(crate) fn monotonic_ns() -> u64 {
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

/// Brings the clock of this CPU's run queue up to now: otherwise it is as old as the latest tick or switch. Asking for the priority
/// that the thread has changes nothing, but the kernel takes the time before it finds that out (`__sched_setscheduler`, Linux 4.6
/// to 7.3).
pub(crate) fn refresh_run_queue() {
    // SAFETY: a parameter of ours, which the first call fills in. Where one fails, the clock is a tick old at most.
    unsafe {
        let mut parameter: libc::sched_param = std::mem::zeroed();
        if libc::sched_getparam(0, &raw mut parameter) == 0 {
            libc::sched_setparam(0, &raw const parameter);
        }
    }
}

/// What CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC: the time for which the host was suspended.
pub(crate) fn boottime_ahead_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic_ns())
}

/// The unit of times in `/proc/PID/stat` (USER_HZ).
pub(crate) fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}
