//! Benchmarks the crates that do no I/O: `cargo bench -p cgscope-benches --bench pure`.

use std::{hint::black_box, sync::Arc, time::Duration};

use cgscope_made_up::host;
use cgscope_model::{Interval, TaskState, findings::Host, json::IntervalObject};
use cgscope_record::Outgoing;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

criterion_group! {
    name = pure;
    config = Criterion::default().warm_up_time(Duration::from_secs(1));
    targets = readings
}
criterion_main!(pure);

/// Benchmarks two hosts. Both samples of a host share the readings of sleeping tasks, as the collector's samples do.
fn readings(c: &mut Criterion) {
    for (name, tasks, active_every) in
        [("20,000 tasks of which 50 waited", 20_000, 400), ("10,000 active tasks", 10_000, 1)]
    {
        let (mut a, mut b) = (host(tasks, 200, 1), host(tasks, 200, 2));
        for (number, (before, now)) in a.tasks.iter_mut().zip(&mut b.tasks).enumerate() {
            if number % active_every != 0 {
                let task = Arc::make_mut(before);
                (task.on_cpu, task.pending, task.state) = (false, None, Some(TaskState::Sleeping));
                *now = before.clone();
            }
        }
        let interval = Interval::between(&a, &b);
        assert_eq!(interval.tasks.len(), tasks as usize / active_every, "{name}");
        let mut group = c.benchmark_group(name);
        group.bench_function("between", |bencher| {
            bencher.iter(|| Interval::between(black_box(&a), black_box(&b)));
        });
        group.bench_function("json", |bencher| {
            let object = || IntervalObject::new(black_box(&interval), &Host::default());
            bencher.iter(|| serde_json::to_string(&object()));
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
}
