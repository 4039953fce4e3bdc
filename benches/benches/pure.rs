//! The pure rooms: `cargo bench -p cgscope-benches`.

use std::{hint::black_box, sync::Arc};

use cgscope_layout::bucket_of;
use cgscope_model::{Hist, Interval, Sample, TaskReading, Totals, findings::Host, json::IntervalObject};
use divan::Bencher;

fn main() {
    divan::main();
}

/// Waits of all magnitudes, the same in every run.
fn waits() -> Vec<u64> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    (0..4_096)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x >> (x % 50 + 14)
        })
        .collect()
}

#[divan::bench]
fn bucket_of_4096_waits(bencher: Bencher<'_, '_>) {
    let waits = waits();
    bencher.bench_local(|| waits.iter().map(|ns| bucket_of(black_box(*ns))).sum::<usize>());
}

/// `tasks` tasks, of which every `busy`th waited since the other sample.
fn sample(tasks: u32, busy: u32, round: u64) -> Sample {
    let quiet: Arc<Hist> = Arc::default();
    let hist = Arc::new(Hist::from_waits_ns((0..round * 50).map(|i| i * 10_000)));
    let task = |tid: u32| TaskReading {
        serial: u64::from(tid),
        tid,
        tgid: tid / 10,
        comm: "task".into(),
        start_ns: 0,
        cgroup_id: u64::from(tid / 100),
        cpu: tid % 8,
        node: Some(0),
        on_cpu: false,
        pending: None,
        placement: None,
        max_ns: 500_000,
        totals: if tid.is_multiple_of(busy) {
            Totals { waits: hist.count(), wait_ns: round * 1_000_000, ..Totals::default() }
        } else {
            Totals::default()
        },
        hist: if tid.is_multiple_of(busy) { hist.clone() } else { quiet.clone() },
    };
    Sample {
        mono_ns: round * 1_000_000_000,
        tasks: (1..=tasks).map(task).collect(),
        cgroups: (0..=u64::from(tasks / 100)).map(|id| (id, format!("/pod/{id}").into())).collect(),
        ..Sample::default()
    }
}

#[divan::bench]
fn between_5000_tasks_of_which_500_waited(bencher: Bencher<'_, '_>) {
    let (a, b) = (sample(5_000, 10, 1), sample(5_000, 10, 2));
    bencher.bench_local(|| Interval::between(black_box(&a), black_box(&b)));
}

#[divan::bench]
fn json_of_5000_tasks_of_which_500_waited(bencher: Bencher<'_, '_>) {
    let interval = Interval::between(&sample(5_000, 10, 1), &sample(5_000, 10, 2));
    bencher
        .bench_local(|| serde_json::to_string(&IntervalObject::new(black_box(&interval), &Host::default())));
}
