//! Threads that wake each other without a pause.

use cgscope_ledger::chains::PAIRS;

use super::*;
use crate::bench::{kernel_figures, rss_bytes};

const THREADS: u64 = 5_000;
/// The load wakes for so long, s.
const SECONDS: u64 = 3;

struct Storm {
    interval: Interval,
    /// Increase of the kernel's voluntary switches of all threads.
    switches: u64,
    cgroup: u64,
}

fn storm(is_followed: bool) -> Storm {
    let mut collector = collector(is_followed);
    let cgroup = Cgroup::new("storm");
    let words = ["tokens", &THREADS.to_string(), "64", &SECONDS.to_string()];
    let (load, mut out) = Load::workload(&words, Some(&cgroup));
    if is_followed {
        collector.changes.follow(Follower::all().next().expect("one"), &[load.pid()]);
    }
    let voluntary = || sum::total(kernel_figures(&[load.pid()]).values().map(|figures| figures.voluntary));
    let first = collector.sample().expect("a sample");
    let before = voluntary();
    load.signal(libc::SIGUSR1);
    let mut line = String::new();
    out.read_line(&mut line).expect("its output is readable");
    let switches = voluntary() - before;
    let interval = Interval::between(&first, &collector.sample().expect("a sample"));
    println!("{} wakeups, {switches} voluntary switches; {}", line.trim(), interval.losses);
    let wakeups: u64 = line.trim().parse().expect("a number");
    // The slowest machine so far had 85,000 a second.
    assert!(is_emulated() || wakeups >= SECONDS * 50_000, "{wakeups}");
    Storm { interval, switches, cgroup: id(&cgroup) }
}

impl Storm {
    fn rows(&self) -> impl Iterator<Item = &ChainReading> {
        let rows = self.interval.chains.as_ref().expect("chains are counted").iter();
        rows.filter(|row| row.sleeper == self.cgroup)
    }

    fn assert_counts(&self, lost: u64) {
        let counted = sum::total(self.rows().map(|row| row.count));
        let unknown = sum::total(self.rows().filter(|row| row.waker == Waker::Unknown).map(|row| row.count));
        println!(
            "{} rows, {counted} sleeps, {unknown} of them by an unknown waker, {lost} lost",
            self.rows().count()
        );
        near(counted + lost, self.switches, 2.0, "sleeps, against the kernel's voluntary switches");
    }
}

#[test]
#[ignore = "all CPUs: wakes as often as possible"]
fn every_sleep_of_5000_threads_that_wake_each_other_all_the_time_is_counted() {
    let storm = storm(false);
    assert_eq!(storm.interval.losses.get(Loss::ChainForgotten), 0);
    storm.assert_counts(0);
    storm.rows().filter(|row| row.waker == Waker::Task && row.slept_ns > 1_000_000).for_each(assert_sums);
}

/// There are 1,500 times as many pairs of threads as the table has entries.
#[test]
#[ignore = "all CPUs: wakes as often as possible"]
fn sleeps_for_which_the_table_has_no_place_are_counted_as_lost_and_take_no_memory() {
    let before = rss_bytes(std::process::id());
    let storm = storm(true);
    let lost = storm.interval.losses.get(Loss::ChainForgotten);
    assert!(lost > 0);
    storm.assert_counts(lost);
    assert!(storm.rows().count() <= PAIRS);
    let more = rss_bytes(std::process::id()).saturating_sub(before);
    println!("{} KiB more memory", more >> 10);
    assert!(more < 64 << 20, "{more} bytes more");
}
