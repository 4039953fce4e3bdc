//! Prints tables that compare the answers of `cgscope whatif` with measurements. Run them with `cargo xtask test --root --
//! whatif::long`.

mod advice;
mod cell;
mod grid;
mod jobs;
mod loads;
mod nested;
mod size;

use std::io::{self, Write};

use super::{Bounds, Limit, REGULAR, Recorded, measure};

/// Length of a recording, s.
const RECORDED_S: u64 = 10;
/// Length of a recording for advice or of a random load, s. This is also the default time for which `cgscope whatif` measures.
const LONGER_S: u64 = 30;
/// Time of a recording that is not simulated, s: its first and its last second.
const NOT_SIMULATED_S: u64 = 2;
/// Length of each measured run, s. A measured run starts without unfinished work, and so does the simulation.
const MEASURED_S: u64 = RECORDED_S - NOT_SIMULATED_S;

/// Prints a line of a table at once, even if the test passes. (libtest would capture the output of `println!`.)
fn print(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[test]
#[ignore = "one CPU: asserts the share of throttled periods"]
fn requests_of_a_fixed_cost_under_two_other_quotas_are_within_the_bounds() {
    // After 7 s (50 simulated periods), the advice was 0.34 CPUs on one machine. After 14 s, it was at most 0.33 in three of three runs.
    let recorded = Recorded::new(&REGULAR, Limit::of(250), 14);
    // Do not test quotas that are just sufficient for the load (0.24) or for a burst (0.29), because there one percent more work
    // makes the throttled time ten percent longer.
    for milli in [180, 270] {
        let row = recorded.row(Limit::of(milli)).expect("advice");
        let measured = measure(&REGULAR, Limit::of(milli), 6);
        let (share, per_s) = (Bounds::of(&row, "throttled_share"), Bounds::of(&row, "throttled_ns_per_s"));
        println!("{milli}: {measured:?} {share:?} {per_s:?}");
        assert!(share.contains(measured.share, 0.05), "{measured:?}: {row}");
        // The simulation divides time into slots, so the time at which a quota runs out has an error of some ms. With bursts of
        // 30 ms, the measured throttled time exceeded the upper bound by 14 % under a quota of 27 ms, and by 17 % under 29 ms.
        let tolerance = 0.02e9 + 0.2 * measured.throttled * 1e9;
        assert!(per_s.contains(measured.throttled * 1e9, tolerance), "{measured:?}: {row}");
    }
    // Usually, a period has at most 30 ms of work. If the host stops for a moment, two requests follow each other, and the period
    // has more work. The target of 5 % allows six such periods of 120.
    let answer = recorded.ask(&["--target", "5%"]);
    let least = answer["least"]["cores"].as_f64().expect("a quota");
    assert!((0.25..=0.33).contains(&least), "{answer}");
}
