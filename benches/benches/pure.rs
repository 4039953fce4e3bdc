//! Benchmarks the crates that do no I/O: `cargo bench -p cgscope-benches`.

use std::{hint::black_box, time::Duration};

use cgscope_ledger::bucket_of;
use cgscope_made_up::host;
use cgscope_model::{
    Interval, Tree,
    findings::{Host, findings_in},
    json::IntervalObject,
};
use cgscope_record::Outgoing;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

criterion_group! {
    name = pure;
    config = Criterion::default().warm_up_time(Duration::from_secs(1));
    targets = buckets, of_20000_tasks, of_2000_cgroups
}
criterion_main!(pure);

fn buckets(c: &mut Criterion) {
    // Wait times of all magnitudes, ns. The values are the same in every run.
    let wait_ns = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (number % 50 + 14);
    let waits: Vec<u64> = (1..=4_096).map(wait_ns).collect();
    c.bench_function("bucket_of 4,096 waits", |bencher| {
        bencher.iter(|| waits.iter().map(|ns| bucket_of(black_box(*ns))).sum::<usize>());
    });
}

/// Benchmarks a host whose tasks mostly sleep. Both samples share the readings of sleeping tasks, as the collector's samples do.
fn of_20000_tasks(c: &mut Criterion) {
    let (a, mut b) = (host(20_000, 200, 1), host(20_000, 200, 2));
    for (number, (before, now)) in a.tasks.iter().zip(&mut b.tasks).enumerate() {
        if number % 400 != 0 {
            *now = before.clone();
        }
    }
    let interval = Interval::between(&a, &b);
    assert!(interval.idle.len() > 19_000, "{} tasks are idle", interval.idle.len());
    let mut group = c.benchmark_group("20,000 tasks of which 50 waited");
    group.bench_function("between", |bencher| {
        bencher.iter(|| Interval::between(black_box(&a), black_box(&b)));
    });
    group.bench_function("between and json", |bencher| {
        bencher.iter(|| {
            let interval = Interval::between(black_box(&a), black_box(&b));
            serde_json::to_string(&IntervalObject::new(&interval, &Host::default()))
        });
    });
    let mut file = Outgoing::new().unwrap();
    let mut samples = [a, b].into_iter().cycle();
    group.bench_function("encode a sample", |bencher| {
        bencher.iter_batched(
            || samples.next().unwrap(),
            |sample| file.sample(&sample),
            BatchSize::SmallInput,
        );
    });
}

/// Benchmarks the figures that a screen needs from an interval.
fn of_2000_cgroups(c: &mut Criterion) {
    let (a, b) = (host(10_000, 2_000, 1), host(10_000, 2_000, 2));
    let machine = Host { cpus: Some(cgscope_made_up::CPUS), whole: true };
    let interval = Interval::between(&a, &b);
    let mut group = c.benchmark_group("interval of 10,000 tasks in 2,000 cgroups");
    group.sample_size(50);
    group.bench_function("between", |bencher| {
        bencher.iter(|| Interval::between(black_box(&a), black_box(&b)));
    });
    group.bench_function("tree", |bencher| bencher.iter(|| Tree::new(black_box(&interval))));
    let tree = Tree::new(&interval);
    group.bench_function("findings", |bencher| {
        bencher.iter(|| findings_in(black_box(&interval), &tree, &machine));
    });
    group.bench_function("total", |bencher| bencher.iter(|| black_box(&interval).total()));
}
