//! What `cgscope whatif` says beside what happens, in tables: `cargo xtask test --root -- whatif::long`.

mod advice;
mod cell;
mod grid;
mod jobs;
mod loads;
mod nested;
mod size;

use std::io::{self, Write};

/// Seconds of a recording.
const RECORDED_S: u64 = 10;
/// Seconds of a recording for advice, and of loads by chance: as long as `cgscope whatif` measures by default.
const LONGER_S: u64 = 30;
/// The first and the last second of a recording are left out of the simulation.
const NOT_SIMULATED_S: u64 = 2;
/// Seconds of each run. The simulation begins without late work, as a load does.
const MEASURED_S: u64 = RECORDED_S - NOT_SIMULATED_S;

/// Prints a line of a table at once, even if the test passes: libtest only captures what macros print.
fn print(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The middle one of some values; 0 without any.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
