//! Tests the complete result of two lists of Intervals.

use std::sync::Arc;

use cgscope_ledger::BUCKETS;
use oorandom::Rand32;

use crate::{
    ByCause, Cause, CgroupReading, Counter, Hist, Interval, Mode, TaskInterval, TaskReading, Totals, Wait,
    diff::{
        Change, Diff, DiffSubject, FEWEST_BLOCKS, MOST_BLOCKS, Side, Verdict, compare,
        side::{Cell, block_length},
    },
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

#[derive(Clone)]
struct Does {
    serial: u64,
    path: &'static str,
    comm: &'static str,
    ran_ns: u64,
    waits: Vec<(Cause, u64)>,
}

impl Does {
    fn new(serial: u64, path: &'static str, comm: &'static str) -> Self {
        Self { serial, path, comm, ran_ns: 0, waits: Vec::new() }
    }

    fn task(&self, id: u64) -> TaskInterval {
        let mut wait = Wait::default();
        for (cause, ns) in &self.waits {
            wait.add(&Wait {
                count: 1,
                total_ns: *ns,
                max_ns: *ns,
                by_cause: ByCause::only(*cause, *ns),
                hist: Hist::of_cause(*cause, [*ns]),
            });
        }
        let totals = Totals {
            on_cpu_ns: self.ran_ns,
            waits: wait.count,
            wait_ns: wait.total_ns,
            by_cause: wait.by_cause,
            involuntary: wait.count,
            ..Totals::default()
        };
        let reading = TaskReading {
            serial: self.serial,
            tid: self.serial as u32,
            tgid: self.serial as u32,
            comm: self.comm.into(),
            cgroup_id: id,
            max_ns: wait.max_ns,
            totals,
            ..TaskReading::default()
        };
        TaskInterval { accounts: None, reading, totals, wait, placement: Default::default(), whole: None }
    }
}

fn interval(at: u64, duration_ns: u64, does: &[Does]) -> Interval {
    let mut paths: Vec<&str> = vec!["/"];
    paths.extend(does.iter().map(|does| does.path));
    paths.dedup();
    let cgroups = paths.iter().zip(1..).map(|(path, id)| (id, Arc::from(*path))).collect();
    let id = |path| 1 + paths.iter().position(|at| *at == path).unwrap() as u64;
    Interval {
        start_unix_ns: S + at * duration_ns,
        duration_ns,
        cgroups,
        tasks: does.iter().map(|does| does.task(id(does.path))).collect(),
        ..Interval::default()
    }
}

fn recorded(intervals: impl IntoIterator<Item = Interval>) -> Side {
    let mut side = Side::default();
    intervals.into_iter().for_each(|interval| side.add(&interval, 1));
    side
}

/// Returns noisy intervals of two tasks: one has a quota of `quota_ms` per 100 ms, the other has no quota. `periods` is the
/// number of quota periods in an interval.
fn quota(seed: u64, count: u64, periods: u64, quota_ms: u64) -> Vec<Interval> {
    let mut random = Rand32::new(seed);
    let mut jitter = |most: u64| u64::from(random.rand_range(0..(most * 1_000) as u32)) * 1_000;
    let mut all = Vec::new();
    for at in 0..count {
        let mut limited = Does::new(1, "/limited", "loop-7");
        let mut free = Does::new(2, "/free", "nginx");
        for _ in 0..periods {
            let throttled_ns = (100 - quota_ms) * MS - 2 * MS + jitter(4);
            limited.waits.push((Cause::Throttled, throttled_ns));
            limited.ran_ns += 100 * MS - throttled_ns;
            free.waits.extend([(Cause::Wakeup, 5_000 + jitter(1) / 100), (Cause::OwnCgroup, jitter(8))]);
            free.ran_ns += jitter(20);
        }
        let mut interval = interval(seed * 1_000_000 + at, periods * 100 * MS, &[limited, free]);
        interval.limits = vec![CgroupReading {
            id: 2,
            quota_us: Some(quota_ms * 1_000),
            period_us: Some(100_000),
            nr_periods: Some(periods),
            nr_throttled: Some(periods),
            throttled_ns: Some((100 - quota_ms) * MS * periods),
            ..CgroupReading::default()
        }];
        all.push(interval);
    }
    all
}

fn diff(before: Vec<Interval>, after: Vec<Interval>) -> Diff {
    compare(recorded(before), recorded(after))
}

fn cgroup(path: &str) -> DiffSubject {
    DiffSubject::Cgroup { path: path.into() }
}

fn of<'a>(diff: &'a Diff, subject: &DiffSubject, figure: &str) -> &'a Change {
    let found = diff.changes.iter().find(|change| change.subject == *subject && change.figure == figure);
    found.unwrap_or_else(|| panic!("{figure} of {subject:?} is not there"))
}

#[test]
fn a_larger_quota_is_found_with_its_size_and_no_other_change_is_reported() {
    let diff = diff(quota(1, 30, 2, 50), quota(2, 30, 2, 60));
    let throttled = of(&diff, &cgroup("/limited"), "throttled");
    assert_eq!(throttled.verdict, Verdict::MoreThanNoise);
    assert!((throttled.change.unwrap() + 0.1).abs() < 0.005, "{throttled:?}");
    let (low, high) = throttled.low.zip(throttled.high).unwrap();
    assert!(low < -0.1 && -0.1 < high && high < -0.08, "{low} to {high}");
    assert!(of(&diff, &DiffSubject::Program { comm: "loop-#".into() }, "on_cpu").is_called());
    for change in diff.called() {
        assert_ne!(change.subject, cgroup("/free"), "{change:?}");
        assert_ne!(change.subject, DiffSubject::Program { comm: "nginx".into() }, "{change:?}");
    }
    let [limits] = diff.limits.as_slice() else { panic!("{:?}", diff.limits) };
    assert_eq!((limits.before.quota_us, limits.after.quota_us), (Some(50_000), Some(60_000)));
    assert!(diff.changes[0].is_called());
}

#[test]
fn repeated_runs_of_the_same_load_show_no_change() {
    let called =
        (0..20).filter(|i| diff(quota(10 + i, 30, 2, 50), quota(50 + i, 30, 2, 50)).called().count() != 0);
    let called = called.count();
    assert!(called <= 1, "{called} of 20");
}

#[test]
fn the_same_recording_twice_has_no_change_at_all() {
    let diff = diff(quota(1, 30, 2, 50), quota(1, 30, 2, 50));
    assert!(diff.changes.iter().all(|change| change.change == Some(0.0) && !change.is_called()));
    assert!(diff.changes.len() > 10 && diff.tested > 10);
    assert!(diff.limits.is_empty());
}

#[test]
fn swapping_the_recordings_mirrors_the_result() {
    let (there, back) =
        (diff(quota(1, 30, 2, 50), quota(2, 45, 3, 60)), diff(quota(2, 45, 3, 60), quota(1, 30, 2, 50)));
    assert_eq!(there.changes.len(), back.changes.len());
    assert_eq!(there.called().count(), back.called().count());
    for change in &there.changes {
        let mirrored = of(&back, &change.subject, change.figure);
        assert_eq!((change.before, change.after), (mirrored.after, mirrored.before));
        assert_eq!((change.p, change.verdict, change.size), (mirrored.p, mirrored.verdict, mirrored.size));
        let near = |a: f64, b: f64| (a + b).abs() <= 1e-9 * a.abs().max(1.0);
        let ends = [change.low.zip(mirrored.high), change.high.zip(mirrored.low)];
        assert!(
            ends.into_iter().flatten().all(|(end, mirrored)| near(end, mirrored)),
            "{change:?}\n{mirrored:?}"
        );
    }
}

#[test]
fn few_intervals_are_compared_but_not_tested() {
    let diff = diff(quota(1, FEWEST_BLOCKS as u64 - 1, 2, 50), quota(2, 30, 2, 60));
    assert!(!diff.is_enough());
    let throttled = of(&diff, &cgroup("/limited"), "throttled");
    assert_eq!((throttled.verdict, throttled.p, throttled.low), (Verdict::TooShort, None, None));
    assert!((throttled.change.unwrap() + 0.1).abs() < 0.01);
    let empty = compare(Side::default(), Side::default());
    assert!(!empty.is_enough() && empty.called().count() == 0);
}

#[test]
fn intervals_of_other_lengths_have_the_same_rates() {
    let diff = diff(quota(1, 120, 1, 50), quota(2, 20, 10, 50));
    assert_eq!(diff.called().count(), 0, "{:?}", diff.called().next());
    let stood = of(&diff, &cgroup("/limited"), "stood_throttled");
    assert_eq!((stood.before, stood.after), (Some(0.5), Some(0.5)));
}

#[test]
fn a_counter_that_one_side_did_not_record_is_not_compared() {
    let counted = |mut intervals: Vec<Interval>| {
        for task in intervals.iter_mut().flat_map(|interval| &mut interval.tasks) {
            task.totals.throttled_waits = 10 * task.wait.count * u64::from(task.reading.serial == 1);
        }
        intervals
    };
    let throttled_waits = "throttled_waits";
    let both = diff(counted(quota(1, 60, 10, 50)), counted(quota(2, 60, 10, 50)));
    assert_eq!(of(&both, &cgroup("/limited"), throttled_waits).before, Some(100.0));
    for one in [
        diff(quota(1, 60, 10, 50), counted(quota(2, 60, 10, 50))),
        diff(counted(quota(1, 60, 10, 50)), quota(2, 60, 10, 50)),
    ] {
        assert!(one.changes.iter().all(|change| change.figure != throttled_waits));
    }
}

/// Returns intervals of one task. `waits` returns the length of each wait in an interval.
fn waiting(count: u64, waits: impl Fn(u64) -> Vec<u64>) -> Vec<Interval> {
    let one = |at| {
        let mut does = Does::new(1, "/a", "worker");
        does.ran_ns = 100 * MS;
        does.waits = waits(at).into_iter().map(|ns| (Cause::OtherCgroup, ns)).collect();
        interval(at, S, &[does])
    };
    (0..count).map(one).collect()
}

#[test]
fn a_change_from_always_zero_to_always_something_is_found() {
    let diff = diff(waiting(20, |_| vec![]), waiting(20, |_| vec![5 * MS; 10]));
    let behind = of(&diff, &cgroup("/a"), "other_cgroup");
    assert!(behind.is_called() && behind.before == Some(0.0), "{behind:?}");
}

#[test]
fn three_events_are_too_few_for_a_rate() {
    let diff =
        diff(waiting(20, |at| if at == 4 { vec![90 * MS; 3] } else { vec![] }), waiting(20, |_| vec![]));
    assert_eq!(of(&diff, &cgroup("/a"), "wait").verdict, Verdict::TooFewEvents);
    assert_eq!(diff.called().count(), 0);
}

#[test]
fn one_large_spike_is_not_reported_as_a_change() {
    let diff =
        diff(waiting(30, |at| vec![if at == 9 { 900 * MS } else { MS }; 12]), waiting(30, |_| vec![MS; 12]));
    assert_eq!(of(&diff, &cgroup("/a"), "wait").verdict, Verdict::WithinNoise);
}

#[test]
fn a_certain_change_that_is_too_small_to_matter_is_not_reported() {
    let diff = diff(waiting(30, |_| vec![MS; 100]), waiting(30, |_| vec![MS + 20_000; 100]));
    assert_eq!(of(&diff, &cgroup("/a"), "wait").verdict, Verdict::Negligible);
}

#[test]
fn a_longer_tail_changes_the_high_quantiles_but_not_the_median() {
    let tail = |slow: u64| {
        move |at: u64| {
            (0..100).map(|i| if i < 3 { slow + at % 7 * 10_000 } else { 50_000 + i % 9 * 5_000 }).collect()
        }
    };
    let diff = diff(waiting(30, tail(2 * MS)), waiting(30, tail(6 * MS)));
    let a = cgroup("/a");
    let p99 = of(&diff, &a, "p99");
    assert!(p99.is_called(), "{p99:?}");
    let times = p99.after.unwrap() / p99.before.unwrap();
    assert!((2.6..3.4).contains(&times), "{times}");
    assert!(!of(&diff, &a, "p50").is_called());
}

#[test]
fn containers_that_differ_only_in_ids_are_compared_as_one_service() {
    const IDS: [&str; 3] = [
        "/kubepods/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde0",
        "/kubepods/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde1",
        "/kubepods/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde2",
    ];
    let run = |ids: &'static [&'static str], quotas_us: [u64; 2]| {
        let one = |at| {
            let does = ids.iter().zip(1..).map(|(path, serial)| {
                let mut does = Does::new(serial, path, "app");
                (does.ran_ns, does.waits) = (100 * MS, vec![(Cause::OtherCgroup, 20 * MS); 5]);
                does
            });
            let mut interval = interval(at, S, &does.collect::<Vec<_>>());
            let limits = (2..).zip(quotas_us).take(ids.len());
            interval.limits = limits
                .map(|(id, us)| CgroupReading {
                    id,
                    quota_us: Some(us),
                    period_us: Some(100_000),
                    ..CgroupReading::default()
                })
                .collect();
            interval
        };
        (0..20).map(one).collect::<Vec<_>>()
    };
    let one = || run(&IDS[..1], [50_000, 0]);
    assert!(diff(one(), run(&IDS[1..], [50_000, 50_000])).limits.is_empty(), "several with the same limits");
    let changed = diff(one(), run(&IDS[1..], [60_000, 60_000]));
    let [limits] = changed.limits.as_slice() else { panic!("{:?}", changed.limits) };
    assert_eq!((&*limits.path, limits.after.quota_us), ("/kubepods/<container>", Some(60_000)));
    let diff = diff(one(), run(&IDS[1..], [50_000, 70_000]));
    assert!(diff.limits.is_empty(), "several with different limits");
    let wait = of(&diff, &cgroup("/kubepods/<container>"), "wait");
    assert!(
        (wait.before.unwrap() - 0.1).abs() < 1e-9 && (wait.after.unwrap() - 0.2).abs() < 1e-9,
        "{wait:?}"
    );
    let paths = diff.changes.iter().filter(|change| matches!(change.subject, DiffSubject::Cgroup { .. }));
    assert!(paths.clone().all(|change| change.subject == wait.subject), "{:?}", paths.collect::<Vec<_>>());
}

#[test]
fn subjects_of_only_one_recording_are_compared_with_zero() {
    let other = |at| {
        let mut does = Does::new(1, "/b", "other");
        (does.ran_ns, does.waits) = (100 * MS, vec![(Cause::Wakeup, MS); 20]);
        interval(at, S, &[does])
    };
    let diff = diff(waiting(20, |_| vec![MS; 20]), (0..20).map(other).collect());
    for (subject, [before, after]) in [
        (cgroup("/a"), [0.02, 0.0]),
        (cgroup("/b"), [0.0, 0.02]),
        (DiffSubject::Program { comm: "other".into() }, [0.0, 0.02]),
        (DiffSubject::Program { comm: "worker".into() }, [0.02, 0.0]),
    ] {
        let wait = of(&diff, &subject, "wait");
        assert_eq!((wait.before, wait.after), (Some(before), Some(after)), "{subject:?}");
        assert!(wait.is_called(), "{subject:?}");
    }
}

#[test]
fn figures_that_a_coarse_recording_lacks_are_not_compared() {
    let coarse = |intervals: Vec<Interval>| -> Vec<Interval> {
        let blur = |mut interval: Interval| {
            interval.mode = Mode::Coarse;
            interval.tasks.iter_mut().for_each(|task| task.wait.hist = Hist::default());
            interval
        };
        intervals.into_iter().map(blur).collect()
    };
    let diff = diff(coarse(quota(1, 30, 2, 50)), quota(2, 30, 2, 60));
    assert!(of(&diff, &cgroup("/limited"), "throttled").is_called());
    for exact_only in ["p50", "p90", "p99", "own_cgroup", "unattributed"] {
        assert!(diff.changes.iter().all(|change| change.figure != exact_only), "{exact_only}");
    }
}

#[test]
fn an_hour_is_summed_in_few_blocks() {
    let intervals = quota(3, 3_600, 1, 50);
    let mut whole = Interval::default();
    intervals.iter().cloned().for_each(|interval| whole.append(interval));
    let diff = diff(intervals, quota(4, 601, 1, 50));
    assert!((24..=48).contains(&diff.lengths[0].blocks) && (24..=48).contains(&diff.lengths[1].blocks));
    assert_eq!(diff.lengths[0].duration_ns, whole.duration_ns);
    let wait = of(&diff, &DiffSubject::All, "wait").before.unwrap();
    let expected = whole.total().wait.total_ns as f64 / whole.duration_ns as f64;
    assert!((wait - expected).abs() < 1e-9);
    assert_eq!(diff.called().count(), 0, "{:?}", diff.called().next());
}

#[test]
fn a_task_that_moves_counts_where_it_waited() {
    let moved = |at: u64| {
        let mut does = Does::new(1, if at < 10 { "/a" } else { "/b" }, if at < 10 { "sh" } else { "make" });
        (does.ran_ns, does.waits) = (10 * MS, vec![(Cause::Wakeup, MS); 10]);
        let mut interval = interval(at, S, &[does]);
        // An id always keeps its path, so `/b` needs its own id.
        if at >= 10 {
            interval.cgroups = vec![(1, "/".into()), (3, "/b".into())];
            interval.tasks[0].reading.cgroup_id = 3;
        }
        interval
    };
    let diff = diff((0..20).map(moved).collect(), (0..20).map(moved).collect());
    for subject in [
        cgroup("/a"),
        cgroup("/b"),
        DiffSubject::Program { comm: "sh".into() },
        DiffSubject::Program { comm: "make".into() },
    ] {
        assert_eq!(of(&diff, &subject, "wait").before, Some(0.005), "{subject:?}");
    }
    assert_eq!(of(&diff, &DiffSubject::All, "wait").before, Some(0.01));
}

#[test]
fn blocks_grow_with_the_recording_and_enough_blocks_remain() {
    assert_eq!([1, 8, 16, 30, 48, 95, 96, 3_600].map(block_length), [1, 1, 2, 3, 2, 4, 4, 128]);
    for intervals in [7, 8, 16, 33, 48, 95, 96, 1_000] {
        let length = block_length(intervals);
        let mut side = Side::default();
        (0..intervals as u64).for_each(|at| side.add(&interval(at, S, &[]), 1));
        let whole = side.finish();
        assert_eq!(whole.duration_ns, intervals as u64 * S);
        let lengths: Vec<u64> = side.blocks.iter().map(|block| block.duration_ns / S).collect();
        assert!(lengths.len() <= MOST_BLOCKS && lengths.len() >= FEWEST_BLOCKS.min(intervals), "{lengths:?}");
        let (last, full) = lengths.split_last().unwrap();
        assert!(full.iter().all(|full| *full == length as u64), "{lengths:?}");
        assert!((length as u64..length as u64 * 3).contains(&(2 * last)), "{lengths:?}");
    }
}

#[test]
fn a_bucket_counts_beyond_32_bits() {
    const MANY: u64 = u32::MAX as u64;
    let mut side = Side::default();
    let counts: Vec<u64> = (0..BUCKETS)
        .map(|at| {
            [(10, MANY), (200, 3 * MANY)].into_iter().find(|(of, _)| *of == at).map_or(0, |(_, count)| count)
        })
        .collect();
    for at in 0..16 {
        let mut interval = interval(at, S, &[Does::new(1, "/a", "worker")]);
        let task = &mut interval.tasks[0];
        (task.totals.waits, task.wait.count) = (4 * MANY, 4 * MANY);
        task.wait.hist = Hist::from_counts(counts.iter().copied(), []);
        side.add(&interval, 1);
    }
    let whole = side.finish();
    let waits = Cell::Counter(Counter::Waits);
    assert!(side.blocks.iter().all(|block| block.of(&cgroup("/a")).get(waits) == 8 * MANY));
    assert_eq!(whole.of(&cgroup("/a")).get(waits), 64 * MANY);
    assert_eq!(whole.of(&cgroup("/a")).buckets().collect::<Vec<_>>(), [(10, 16 * MANY), (200, 48 * MANY)]);
}

#[test]
fn json_has_one_object_per_line_with_the_schema() {
    let diff = diff(quota(1, 30, 2, 50), quota(2, 30, 2, 60));
    let lines: Vec<serde_json::Value> =
        crate::diff::objects(&diff).map(|object| serde_json::to_value(object).unwrap()).collect();
    assert!(lines.iter().all(|line| line["schema"] == "cgscope.diff/1" && line["kind"].is_string()));
    assert_eq!(lines[0]["kind"], "summary");
    let throttled = lines
        .iter()
        .find(|line| line["kind"] == "figure" && line["figure"] == "throttled" && line["path"] == "/limited");
    let throttled = throttled.expect("the figure");
    for member in
        ["about", "unit", "before", "after", "change", "relative", "low", "high", "p", "verdict", "size"]
    {
        assert!(!throttled[member].is_null(), "{member} is not in {throttled}");
    }
    assert_eq!(throttled["verdict"], "more_than_noise");
}
