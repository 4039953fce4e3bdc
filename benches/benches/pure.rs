//! Benchmarks the crates that do no I/O: `cargo bench -p cgscope-benches --bench pure`.

use std::{hint::black_box, time::Duration};

use cgscope_made_up::host;
use cgscope_model::{Interval, findings::Host, json::IntervalObject};
use cgscope_record::Outgoing;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

criterion_group! {
    name = pure;
    config = Criterion::default().warm_up_time(Duration::from_secs(1));
    targets = readings
}
criterion_main!(pure);

/// Benchmarks a host whose tasks mostly sleep. Both samples share the readings of sleeping tasks, as the collector's samples do.
fn readings(c: &mut Criterion) {
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
    group.bench_function("json", |bencher| {
        bencher.iter(|| serde_json::to_string(&IntervalObject::new(black_box(&interval), &Host::default())));
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
