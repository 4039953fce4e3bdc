//! Tests how much memory an exported cgroup takes.
#![allow(missing_docs, reason = "tests are sentences")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use cgscope_made_up::host;
use cgscope_metrics::{Config, Metrics};
use cgscope_model::Interval;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator handles all calls, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the same contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns how many bytes [`Metrics`] holds after these intervals, if it exports at most `cgroups` cgroups.
fn held(intervals: &[Interval], cgroups: usize) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    let mut metrics = Metrics::new(Config { cgroups, ..Config::default() });
    intervals.iter().for_each(|interval| metrics.add(interval));
    let held = HELD.load(Ordering::Relaxed) - before;
    drop(metrics);
    held
}

#[test]
fn an_exported_cgroup_takes_at_most_20_kib_and_any_other_at_most_1() {
    let intervals: Vec<Interval> = (1..4)
        .map(|round| Interval::between(&host(6_000, 2_000, round), &host(6_000, 2_000, round + 1)))
        .collect();
    let (one, many) = (held(&intervals, 1), held(&intervals, 201));
    let (exported, other) = ((many - one) / 200, one / intervals[0].cgroups.len());
    println!("{exported} bytes an exported cgroup, {other} another");
    assert!(exported < 20 << 10, "{exported}");
    assert!(other < 1 << 10, "{other}");
}
