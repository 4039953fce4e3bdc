//! Benchmarks the crates that do no I/O: `cargo bench -p cgscope-benches`.

use std::{hint::black_box, sync::Arc, time::Duration};

use cgscope_ledger::bucket_of;
use cgscope_made_up::host;
use cgscope_metrics::{Config, Format, Metrics};
use cgscope_model::{
    Hist, Interval, Sample, TaskReading, Totals, Tree,
    findings::{Host, findings_in},
    json::IntervalObject,
};
use cgscope_record::Outgoing;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

criterion_group! {
    name = pure;
    config = Criterion::default().warm_up_time(Duration::from_secs(1));
    targets = buckets, of_5000_tasks, of_20000_tasks, of_2000_cgroups, metrics
}
criterion_main!(pure);

/// Returns wait times of all magnitudes, ns. The values are the same in every run.
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

fn buckets(c: &mut Criterion) {
    let waits = waits();
    c.bench_function("bucket_of 4,096 waits", |bencher| {
        bencher.iter(|| waits.iter().map(|ns| bucket_of(black_box(*ns))).sum::<usize>());
    });
}

/// Returns a sample of `tasks` tasks. Every `busy`th task has new waits in each round.
fn sample(tasks: u32, busy: u32, round: u64) -> Sample {
    let quiet: Arc<Hist> = Arc::default();
    let hist = Arc::new(Hist::from_waits_ns((0..round * 50).map(|i| i * 10_000)));
    let task = |tid: u32| {
        Arc::new(TaskReading {
            serial: u64::from(tid),
            tid,
            tgid: tid / 10,
            comm: "task".into(),
            cgroup_id: u64::from(tid / 100),
            cpu: tid % 8,
            node: Some(0),
            max_ns: 500_000,
            totals: if tid.is_multiple_of(busy) {
                Totals { waits: hist.count(), wait_ns: round * 1_000_000, ..Totals::default() }
            } else {
                Totals::default()
            },
            hist: if tid.is_multiple_of(busy) { hist.clone() } else { quiet.clone() },
            ..TaskReading::default()
        })
    };
    Sample {
        mono_ns: round * 1_000_000_000,
        tasks: (1..=tasks).map(task).collect(),
        cgroups: (0..=u64::from(tasks / 100)).map(|id| (id, format!("/pod/{id}").into())).collect(),
        ..Sample::default()
    }
}

fn of_5000_tasks(c: &mut Criterion) {
    let (a, b) = (sample(5_000, 10, 1), sample(5_000, 10, 2));
    let interval = Interval::between(&a, &b);
    let mut group = c.benchmark_group("5,000 tasks of which 500 waited");
    group.bench_function("between", |bencher| {
        bencher.iter(|| Interval::between(black_box(&a), black_box(&b)));
    });
    group.bench_function("json", |bencher| {
        bencher.iter(|| serde_json::to_string(&IntervalObject::new(black_box(&interval), &Host::default())));
    });
}

/// Benchmarks a host whose tasks mostly sleep. Both samples share the readings of sleeping tasks, as the collector's samples do.
fn of_20000_tasks(c: &mut Criterion) {
    let (mut a, mut b) = (sample(20_000, 400, 1), sample(20_000, 400, 2));
    for task in a.tasks.iter_mut().chain(&mut b.tasks).map(Arc::make_mut) {
        task.cgroup_id /= 10;
    }
    for (before, now) in a.tasks.iter().zip(&mut b.tasks) {
        if before == now {
            *now = before.clone();
        }
    }
    let interval = Interval::between(&a, &b);
    assert_eq!((interval.tasks.len(), interval.idle.len()), (50, 19_950));
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
    group.bench_function("figures of a screen", |bencher| {
        bencher.iter(|| {
            let interval = Interval::between(black_box(&a), black_box(&b));
            let tree = Tree::new(&interval);
            (findings_in(&interval, &tree, &Host::default()), interval.total(), tree, interval)
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

/// Benchmarks the figures that a screen needs from an interval. Dropping the figures counts, too.
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
    group.bench_function("together", |bencher| {
        bencher.iter(|| {
            let interval = Interval::between(black_box(&a), black_box(&b));
            let tree = Tree::new(&interval);
            (findings_in(&interval, &tree, &machine), interval.total(), tree, interval)
        });
    });
}

/// Benchmarks a scrape without the collection: an `Interval` is added, then the page is written.
fn metrics(c: &mut Criterion) {
    let samples: Vec<Sample> = (1..4).map(|round| host(20_000, 10_000, round)).collect();
    let intervals: Vec<Interval> =
        samples.windows(2).map(|pair| Interval::between(&pair[0], &pair[1])).collect();
    let mut metrics = Metrics::new(Config::default());
    intervals.iter().for_each(|interval| metrics.add(interval));
    let mut group = c.benchmark_group("metrics of 20,000 tasks in 10,000 cgroups, of which 200 are exported");
    group.sample_size(30);
    group.bench_function("between", |bencher| {
        bencher.iter(|| Interval::between(black_box(&samples[0]), black_box(&samples[1])));
    });
    group.bench_function("add", |bencher| bencher.iter(|| metrics.add(black_box(&intervals[1]))));
    for format in Format::ALL {
        let bytes = metrics.page(format, &[]).len();
        group.bench_function(format!("page, {format:?}, {bytes} bytes"), |bencher| {
            bencher.iter(|| black_box(&metrics).page(format, &[]));
        });
    }
}
