//! Detects whether other processes use this machine.
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The machine is busy if it uses more than this many CPUs and more than this percentage of all CPUs.
const CPUS: f64 = 0.3;
const PERCENT: f64 = 5.0;
/// Time between the two readings of `/proc/stat`.
const LOOK: Duration = Duration::from_millis(500);
/// `USER_HZ` of /proc, the same on all architectures that cgscope runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// Returns true as soon as the machine is quiet, or false if it is still busy after `patience`.
pub(crate) fn comes_within(patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let cpus = thread::available_parallelism().map_or(1, usize::from) as f64;
        if busy_cpus() <= CPUS.max(cpus * PERCENT / 100.0) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
    }
}

/// The average number of CPUs that were busy, or that a hypervisor used for something else (steal time).
fn busy_cpus() -> f64 {
    let ticks =
        || sum(fs::read_to_string("/proc/stat").unwrap_or_default().lines().next().unwrap_or_default());
    let (begun, before) = (Instant::now(), ticks());
    thread::sleep(LOOK);
    ticks().saturating_sub(before) as f64 / TICKS_A_SECOND / begun.elapsed().as_secs_f64()
}

/// Busy ticks in the first line of `/proc/stat`: all except idle, iowait and guests. `user` already includes guests.
fn sum(line: &str) -> u64 {
    let ticks = line.split_ascii_whitespace().skip(1).map(|ticks| ticks.parse::<u64>().unwrap_or(0));
    ticks.take(8).enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, ticks)| ticks).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{comes_within, sum};

    #[test]
    fn idle_time_and_guests_are_not_busy() {
        assert_eq!(sum("cpu  1 2 4 1000 2000 8 16 32 64 128"), 1 + 2 + 4 + 8 + 16 + 32);
    }

    #[test]
    fn a_busy_machine_is_not_taken_for_a_quiet_one() {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..cpus {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            assert!(!comes_within(Duration::ZERO));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
