//! Field case 1: the waits of a busy loop under a quota of 50 %, compared with the output of runqlat.

use std::{process::Command, thread, time::Duration};

use serde_json::Value;

use crate::{
    bench::{is_emulated, json_lines, run, stderr},
    load::{Cgroup, Load},
};

/// Duration of the measurement: 60 periods of the quota.
const SECONDS: u64 = 6;

/// Bounds of the row of runqlat that has most of the waits (32 to 65 ms), ns.
const HUMP_NS: (u64, u64) = (32_768_000, 65_536_000);

fn both(load: &Load) -> (Value, Vec<(u64, u64, u64)>) {
    let pid = load.pid().to_string();
    thread::scope(|scope| {
        let runqlat = scope.spawn(|| {
            let seconds = SECONDS.to_string();
            let output =
                Command::new("runqlat").args(["-p", &pid, &seconds, "1"]).output().expect("runqlat runs");
            assert!(output.status.success(), "runqlat: {}", String::from_utf8_lossy(&output.stderr));
            runqlat_rows(&String::from_utf8_lossy(&output.stdout))
        });
        let output = run(&["hist", "--json", "-p", &pid, &SECONDS.to_string(), "1"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let interval = json_lines(&output).remove(0);
        (interval, runqlat.join().expect("runqlat's rows"))
    })
}

/// Parses runqlat's rows: (low µs, high µs inclusive, count).
fn runqlat_rows(text: &str) -> Vec<(u64, u64, u64)> {
    text.lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(" : ")?;
            let (low, high) = range.split_once("->")?;
            let count = rest.split_ascii_whitespace().next()?;
            Some((low.trim().parse().ok()?, high.trim().parse().ok()?, count.parse().ok()?))
        })
        .collect()
}

fn hist(interval: &Value) -> Vec<(u64, u64, u64)> {
    let buckets = interval["total"]["hist"].as_array().expect("a histogram");
    let number = |value: &Value| value.as_u64().expect("a number");
    buckets.iter().map(|b| (number(&b[0]), number(&b[1]), number(&b[2]))).collect()
}

/// Returns the share of the waiting time that is in the row [`HUMP_NS`]. Uses the middle of a bucket as the length of each wait
/// in it.
fn hump_share(interval: &Value) -> f64 {
    let time = |b: &(u64, u64, u64)| (b.0 + b.1) as f64 / 2.0 * b.2 as f64;
    let buckets = hist(interval);
    let all: f64 = buckets.iter().map(time).sum();
    let hump: f64 =
        buckets.iter().filter(|b| b.0 + 100 >= HUMP_NS.0 && b.1 <= HUMP_NS.1 + 100).map(time).sum();
    hump / all
}

#[test]
#[ignore = "one CPU: asserts the share of throttled time"]
fn a_quota_of_half_a_cpu_shows_as_waits_of_32_to_66_ms() {
    let cgroup = Cgroup::new("half");
    cgroup.limit(50_000, 100_000);
    // Give the cgroup a high weight, so that only the quota limits its CPU time.
    cgroup.favour();
    let load = Load::busy_loop(Some(&cgroup));
    thread::sleep(Duration::from_millis(500));
    let (interval, runqlat) = both(&load);

    // Under emulation, timers are late, so the length of waits varies.
    assert!(is_emulated() || hump_share(&interval) >= 0.9, "{:?}", hist(&interval));
    let waited = interval["total"]["total_ns"].as_u64().expect("a sum") as f64;
    let share = waited / interval["duration_ns"].as_u64().expect("a duration") as f64;
    assert!((0.4..0.6).contains(&share), "half of the time must be waiting: {share}");

    // Compare two figures with runqlat: the number of long waits, and the row with the longest total wait. An adjacent row is
    // also accepted.
    let theirs: u64 = runqlat.iter().filter(|row| row.0 >= 16_384).map(|row| row.2).sum();
    let ours: u64 = hist(&interval).iter().filter(|b| b.0 >= 16_384_000).map(|b| b.2).sum();
    // Under emulation, cgscope and runqlat can attach at times that differ by seconds.
    let edges = if is_emulated() { 3 + theirs / 4 } else { 3 };
    assert!(ours.abs_diff(theirs) <= edges, "{ours} long waits, runqlat has {theirs}: {runqlat:?}");
    let top = |rows: &[(u64, u64, u64)]| {
        rows.iter().max_by_key(|row| row.2 * row.1).map(|row| row.0).expect("a row")
    };
    let our_rows = rows_of(&interval);
    let (ours, theirs) = (top(&our_rows), top(&runqlat));
    assert!(
        ours / 2 <= theirs && theirs <= ours * 2,
        "the peak: ours at {ours} us, runqlat's at {theirs} us"
    );
}

fn rows_of(interval: &Value) -> Vec<(u64, u64, u64)> {
    let mut rows: Vec<(u64, u64, u64)> = Vec::new();
    for (low, high, count) in hist(interval) {
        let us = (low + high) / 2_000;
        let row = 1u64 << us.max(1).ilog2();
        match rows.last_mut() {
            Some(last) if last.0 == row => last.2 += count,
            _ => rows.push((row, 2 * row - 1, count)),
        }
    }
    rows
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: a loop must have a CPU for itself"]
    fn without_the_quota_there_are_no_waits_of_this_length() {
        let load = Load::busy_loop(None);
        thread::sleep(Duration::from_millis(500));
        let (interval, runqlat) = both(&load);
        let in_hump = hist(&interval)
            .iter()
            .filter(|b| b.0 >= HUMP_NS.0 - 100 && b.0 < HUMP_NS.1)
            .map(|b| b.2)
            .sum::<u64>();
        assert_eq!(in_hump, 0, "{:?}, runqlat {runqlat:?}", hist(&interval));
        // cgscope and runqlat count the same waits, except at the start and end of their measurements. If one program starts
        // slowly, the measurements differ by seconds. While cgscope starts, its threads interrupt the loop some twenty times, and
        // only runqlat counts these waits. For example, cgscope counted 16 waits and runqlat 37, or 21 and 44.
        let theirs: u64 = runqlat.iter().map(|row| row.2).sum();
        let ours = interval["total"]["count"].as_u64().expect("a count");
        assert!(ours.abs_diff(theirs) <= 30 + theirs / 4, "{ours} waits, runqlat has {theirs}");
    }
}
