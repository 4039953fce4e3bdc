//! Measures cgscope's own cost while it runs.

use std::{
    fs,
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use cgscope_model::Cost;

use crate::{
    clock,
    kernel_side::{self, KernelSide},
    source::coarse::text,
};

const ENOUGH_RUNS: u64 = 50;
/// Number of readings between two measurements. A measurement costs about as much time as the work of the hook itself.
const MEASURE_EVERY: u64 = 30;

#[derive(Default)]
pub(crate) struct OwnCost {
    readings: u64,
    /// The current measurement: a descriptor that makes the kernel measure, and time and number of runs at the start.
    window: Option<(OwnedFd, (u64, u64))>,
    ns_per_run: Option<f64>,
}

impl OwnCost {
    /// Returns the current cost. Call this with every reading. Without a hook, switches cost nothing.
    pub(crate) fn read(&mut self, hook: Option<&KernelSide>) -> Cost {
        if let Some(now) = hook.and_then(KernelSide::hook_time) {
            if let Some(before) = self.window.as_ref().map(|(_, before)| *before) {
                if self.note(before, now) >= ENOUGH_RUNS {
                    self.window = None;
                }
            } else if self.readings.is_multiple_of(MEASURE_EVERY) || self.ns_per_run.is_none() {
                self.window = kernel_side::measure().map(|counting| (counting, now));
            }
        }
        self.readings += 1;
        let pages = fs::read("/proc/self/statm").ok().and_then(|statm| text::resident_pages(&statm));
        Cost {
            // The kernel increments this number at the same place where it runs the `sched_switch` tracepoint.
            switches: hook.and_then(|_| text::value(&fs::read("/proc/stat").ok()?, b"ctxt ")),
            hook_ns_per_run: self.ns_per_run,
            cpu_ns: Some(clock::process_cpu_ns()),
            rss_bytes: pages.map(|pages| pages * rustix::param::page_size() as u64),
        }
    }

    /// Measures the hook now, before we drop the privilege to measure: at most `runs` runs, and at most `longest`.
    pub(crate) fn measure(&mut self, side: &KernelSide, runs: u64, longest: Duration) {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let Some(_counting) = kernel_side::measure() else { return };
        let (begun, Some(before)) = (Instant::now(), side.hook_time()) else { return };
        loop {
            thread::sleep(LOOK_EVERY);
            let Some(now) = side.hook_time() else { return };
            if self.note(before, now) >= runs || begun.elapsed() >= longest {
                return;
            }
        }
    }

    /// Updates the time per run if the hook ran often enough between the two readings. Returns the number of runs in between.
    fn note(&mut self, before: (u64, u64), now: (u64, u64)) -> u64 {
        let runs = now.1.saturating_sub(before.1);
        if runs >= ENOUGH_RUNS {
            self.ns_per_run = Some(now.0.saturating_sub(before.0) as f64 / runs as f64);
        }
        runs
    }
}
