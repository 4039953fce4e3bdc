//! The clocks, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Reads CLOCK_REALTIME.
pub fn unix_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// Reads the CPU time of this process.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Updates the clock of this CPU's run queue, which otherwise shows the time of the latest tick or switch. To do this, we set the
/// thread's priority to its current value: the priority stays the same, but the kernel updates the clock first
/// (`__sched_setscheduler`, Linux 4.6 to 7.3).
pub(crate) fn refresh_run_queue() {
    // SAFETY: the first call fills in our parameter. If a call fails, the clock is at most one tick old.
    unsafe {
        let mut parameter: libc::sched_param = std::mem::zeroed();
        if libc::sched_getparam(0, &raw mut parameter) == 0 {
            libc::sched_setparam(0, &raw const parameter);
        }
    }
}

pub(crate) fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// Converts the ticks in `/proc/PID/stat` (USER_HZ) to ns. Start times there count from boot; we convert them to CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// Length of a tick, ns.
    pub length_ns: u64,
    /// How far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, ns: the time that the host was suspended.
    pub ahead_ns: u64,
}

impl Ticks {
    /// Creates a converter for this host, with the current difference between the clocks.
    pub fn of_this_host() -> Self {
        let ahead_ns = nanoseconds(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic_ns());
        Self { length_ns: tick_ns(), ahead_ns }
    }

    pub(crate) fn ns(self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.length_ns)
    }

    /// Converts a start time. The result is correct only if the task started after the last suspend.
    pub fn monotonic_ns(self, ticks: u64) -> u64 {
        self.ns(ticks).saturating_sub(self.ahead_ns)
    }

    /// Converts a time of CLOCK_MONOTONIC to ticks of CLOCK_BOOTTIME.
    pub fn at(self, monotonic_ns: u64) -> u64 {
        (monotonic_ns + self.ahead_ns) / self.length_ns
    }

    /// Whether a task with the start time `ticks` started more than one tick after `monotonic_ns`. A task that started before a
    /// suspend seems to have started too early.
    pub fn is_later(self, ticks: u64, monotonic_ns: u64) -> bool {
        self.ns(ticks) > monotonic_ns.saturating_add(self.ahead_ns).saturating_add(self.length_ns)
    }

    /// Whether a task that started at `monotonic_ns` can have the start time `ticks`.
    pub(crate) fn is_start(self, ticks: u64, monotonic_ns: u64) -> bool {
        !self.is_later(ticks, monotonic_ns) && self.ns(ticks).saturating_add(self.length_ns) >= monotonic_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_start_times_are_distinguished() {
        let ticks = Ticks { length_ns: 10, ahead_ns: 1_000 };
        assert_eq!((ticks.ns(7), ticks.monotonic_ns(700)), (70, 6_000));
        assert!(ticks.is_start(700, 7_000) && ticks.is_start(700, 7_009), "started before the suspend");
        assert!(ticks.is_start(700, 6_000), "started after the suspend");
        assert!(!ticks.is_start(700, 7_050) && !ticks.is_start(700, 5_900));
    }
}
