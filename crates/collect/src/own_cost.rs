//! What cgscope itself costs, measured while it runs.

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
/// Readings between two measurements: counting costs about as much as the hook's own bookkeeping.
const MEASURE_EVERY: u64 = 30;

#[derive(Default)]
pub(crate) struct OwnCost {
    readings: u64,
    window: Option<Window>,
    ns_per_run: Option<f64>,
}

struct Window {
    _counting: OwnedFd,
    time_ns: u64,
    runs: u64,
}

impl OwnCost {
    /// Call with every reading. Without a hook, switches cost nothing.
    pub(crate) fn read(&mut self, hook: Option<&KernelSide>) -> Cost {
        if let Some(side) = hook {
            self.step(side);
        }
        self.readings += 1;
        Cost {
            switches: hook.and_then(|_| switches()),
            hook_ns_per_run: self.ns_per_run,
            cpu_ns: Some(clock::process_cpu_ns()),
            rss_bytes: rss_bytes(),
        }
    }

    /// Measures the hook now, before the privilege is given up: over `runs`, or for `longest` if they take longer.
    pub(crate) fn measure(&mut self, side: &KernelSide, runs: u64, longest: Duration) {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let Some(_counting) = kernel_side::measure() else { return };
        let (begun, Some((time_ns, before))) = (Instant::now(), side.hook_time()) else { return };
        loop {
            thread::sleep(LOOK_EVERY);
            let Some((now_ns, now)) = side.hook_time() else { return };
            let ran = now.saturating_sub(before);
            if ran >= runs || (ran >= ENOUGH_RUNS && begun.elapsed() >= longest) {
                self.ns_per_run = Some(now_ns.saturating_sub(time_ns) as f64 / ran as f64);
            }
            if ran >= runs || begun.elapsed() >= longest {
                return;
            }
        }
    }

    fn step(&mut self, side: &KernelSide) {
        let Some((time_ns, runs)) = side.hook_time() else { return };
        if let Some(window) = &self.window {
            let runs = runs.saturating_sub(window.runs);
            if runs < ENOUGH_RUNS {
                return;
            }
            self.ns_per_run = Some(time_ns.saturating_sub(window.time_ns) as f64 / runs as f64);
            self.window = None;
        } else if self.readings.is_multiple_of(MEASURE_EVERY) || self.ns_per_run.is_none() {
            self.window =
                kernel_side::measure().map(|counting| Window { _counting: counting, time_ns, runs });
        }
    }
}

/// Switches of all CPUs since boot, which the kernel counts exactly where it runs the `sched_switch` tracepoint.
fn switches() -> Option<u64> {
    text::switches_of_host(&fs::read("/proc/stat").ok()?)
}

fn rss_bytes() -> Option<u64> {
    let pages = text::resident_pages(&fs::read("/proc/self/statm").ok()?)?;
    Some(pages * rustix::param::page_size() as u64)
}
