use std::sync::Arc;

use cgscope_model::{ByCause, Hist, Pending, Sample, TaskReading, Totals};

use super::*;

const MS: u64 = 1_000_000;

/// Returns an interval of one second with one task in each cgroup. A tuple has the cgroup's path, the task's waits (ns, all
/// throttled), and its time on a CPU.
fn interval(tasks: &[(&str, &[u64], u64)]) -> Interval {
    let mut after = Sample { mono_ns: 1_000 * MS, ..Sample::default() };
    for (id, (path, waits, on_cpu_ns)) in (1u64..).zip(tasks) {
        let wait_ns = waits.iter().sum();
        let hist = Hist::of_cause(Cause::Throttled, waits.iter().copied());
        let totals = Totals {
            waits: hist.count(),
            wait_ns,
            on_cpu_ns: *on_cpu_ns,
            by_cause: ByCause::only(Cause::Throttled, wait_ns),
            ..Totals::default()
        };
        after.cgroups.push((id, Arc::from(*path)));
        after.tasks.push(Arc::new(TaskReading {
            serial: id,
            tid: id as u32,
            tgid: id as u32,
            comm: "task".into(),
            start_ns: 1,
            cgroup_id: id,
            max_ns: waits.iter().copied().max().unwrap_or(0),
            totals,
            hist: Arc::new(hist),
            ..TaskReading::default()
        }));
    }
    Interval::between(&Sample::default(), &after)
}

fn exceeded(expression: &str, interval: &Interval) -> Option<String> {
    trigger(expression).unwrap_or_else(|error| panic!("{expression}: {error}")).exceeded(interval)
}

#[test]
fn a_share_is_of_the_time_in_which_tasks_ran_or_waited() {
    let interval = interval(&[("/a", &[150 * MS, 50 * MS], 600 * MS)]);
    assert_eq!(
        exceeded("throttled>20%", &interval).as_deref(),
        Some("throttled>20%: tasks were throttled for 25.0% of the 800ms in which they were runnable")
    );
    assert_eq!(exceeded("throttled>25%", &interval), None, "above, not at the limit");
    assert!(exceeded("waiting > 24.9 %", &interval).is_some());
}

#[test]
fn a_share_of_very_little_time_does_not_trigger() {
    assert_eq!(exceeded("throttled>20%", &interval(&[("/a", &[9 * MS], 0)])), None);
    assert!(exceeded("throttled>20%", &interval(&[("/a", &[10 * MS], 0)])).is_some());
    assert_eq!(exceeded("throttled>0%", &interval(&[])), None);
}

#[test]
fn a_quantile_needs_enough_waits_to_have_one_above_it() {
    for (name, fewest) in [("p50", 20), ("p90", 20), ("p99", 100), ("p999", 1_000)] {
        let expression = format!("{name}>10ms");
        let waits = vec![20 * MS; fewest];
        assert!(exceeded(&expression, &interval(&[("/a", &waits, 0)])).is_some(), "{name} of {fewest}");
        assert_eq!(exceeded(&expression, &interval(&[("/a", &waits[1..], 0)])), None, "{name} of fewer");
    }
    let mut waits = vec![MS; 99];
    waits.push(500 * MS);
    let one_in_a_hundred = interval(&[("/a", &waits, 0)]);
    assert_eq!(exceeded("p99>10ms", &one_in_a_hundred), None);
    assert_eq!(
        exceeded("max>100ms", &one_in_a_hundred).as_deref(),
        Some("max>100ms: the longest wait took 500ms")
    );
    waits.push(500 * MS);
    let said = exceeded("p99>10ms", &interval(&[("/a", &waits, 0)])).expect("two of 101");
    assert!(said.starts_with("p99>10ms: p99 of 101 waits was between "), "{said}");
}

#[test]
fn a_quantile_that_triggers_was_above_the_limit() {
    let mut first = None;
    for us in (9_000..12_000).step_by(10) {
        let fires = exceeded("p99>10ms", &interval(&[("/a", &[us * 1_000; 200], 0)])).is_some();
        assert!(!fires || us > 10_000, "{us} us triggers");
        assert!(fires || first.is_none(), "{us} us does not, and less does");
        first = first.or(fires.then_some(us));
    }
    let first = first.expect("what is far above it triggers");
    assert!(first <= 11_250 + 130, "only {first} us trigger");
}

#[test]
fn an_unfinished_wait_triggers() {
    let mut starving = interval(&[("/a/b", &[], 0), ("/c", &[], 0)]);
    starving.tasks[0].reading.pending = Some(Pending { ns: 3_000 * MS, ..Pending::default() }.into());
    assert_eq!(
        exceeded("pending>1s", &starving).as_deref(),
        Some("pending>1s: a task has been waiting for 3.00s so far")
    );
    assert!(exceeded("pending(/a)>1s", &starving).is_some());
    assert_eq!(exceeded("pending(/c)>1s", &starving), None);
    assert_eq!(exceeded("max>1us", &starving), None, "it has not ended");
}

#[test]
fn a_cgroup_includes_its_descendants_and_no_similar_names() {
    let interval = interval(&[("/a/b", &[400 * MS], 100 * MS), ("/ab", &[0], 900 * MS)]);
    assert!(exceeded("throttled(/a)>70%", &interval).is_some());
    assert!(exceeded("throttled( a/b/ )>70%".replace(" a", " /a").as_str(), &interval).is_some());
    assert_eq!(exceeded("throttled>70%", &interval), None);
    assert_eq!(exceeded("throttled(/ab)>1%", &interval), None);
    assert_eq!(exceeded("throttled(/none)>1%", &interval), None);
}

#[test]
fn exited_tasks_count() {
    let mut ended = interval(&[("/a", &[900 * MS], 0)]);
    let task = ended.tasks.remove(0);
    ended.exited.push(cgscope_model::ExitedInterval {
        accounts: None,
        cgroup_id: 1,
        tasks: 1,
        totals: task.totals,
        wait: task.wait,
    });
    assert!(exceeded("throttled(/a)>90%", &ended).is_some());
}

#[test]
fn an_expression_is_printed_in_its_normal_form() {
    for (typed, said) in [
        ("p99>10ms", "p99>10ms"),
        (" p999 ( //a/b/ ) > 1.5s ", "p999(/a/b)>1.5s"),
        ("throttled(/a>b)>20%", "throttled(/a>b)>20%"),
        ("max>250us", "max>250us"),
    ] {
        assert_eq!(trigger(typed).unwrap().to_string(), said);
    }
    let needs = |text| trigger(text).unwrap().needs_lengths();
    assert!(needs("p50>1s") && needs("max>1s") && needs("pending>1s"));
    assert!(!needs("throttled>1%") && !needs("waiting>1%"));
}

#[test]
fn nonsense_is_refused_with_examples() {
    for text in [
        "",
        ">",
        "p99",
        "p99>",
        "p99>10",
        "p99>10%",
        "p99>-1ms",
        "p99>nanms",
        "p99>9m",
        "p99<10ms",
        "p95>10ms",
        "throttled>20",
        "throttled>1s",
        "throttled>100%",
        "throttled>-1%",
        "throttled>nan%",
        "p99(a)>1ms",
        "p99()>1ms",
        "p99(/a>1ms",
        "p99(/a)x>1ms",
        "waits>5",
    ] {
        let refused = trigger(text).expect_err(text);
        assert!(refused.contains("'p99>10ms'"), "{text}: {refused}");
    }
}

/// Returns the indexes of the triggers that fire.
fn fires(watch: &mut Watch, exceeded: &[bool], now_ns: u64) -> Vec<usize> {
    let exceeded = exceeded.iter().enumerate().map(|(at, exceeded)| exceeded.then(|| at.to_string()));
    watch.fires(exceeded, now_ns).iter().map(|at| at.parse().unwrap()).collect()
}

#[test]
fn a_lasting_condition_is_saved_once_and_again_after_it_ended() {
    let mut watch = Watch::new(2, 5);
    assert_eq!(fires(&mut watch, &[false, false], 10), [0usize; 0]);
    assert_eq!(fires(&mut watch, &[true, false], 20), [0]);
    watch.saved(50);
    assert_eq!(fires(&mut watch, &[true, true], 30), [0usize; 0], "in the cool-down");
    assert_eq!(
        fires(&mut watch, &[true, true], 50),
        [1],
        "only the second trigger: the first one never fell below its limit"
    );
    watch.saved(60);
    assert_eq!(fires(&mut watch, &[false, true], 70), [0usize; 0]);
    assert_eq!(fires(&mut watch, &[true, true], 80), [0]);
    assert_eq!(watch.left, 3);
}

#[test]
fn a_condition_that_begins_in_the_cool_down_and_lasts_is_saved_after_it() {
    let mut watch = Watch::new(1, 5);
    assert_eq!(fires(&mut watch, &[true], 1), [0]);
    watch.saved(100);
    assert_eq!(fires(&mut watch, &[false], 2), [0usize; 0]);
    assert_eq!(fires(&mut watch, &[true], 99), [0usize; 0]);
    assert_eq!(fires(&mut watch, &[true], 100), [0]);
}

#[test]
fn no_more_parts_are_saved_than_requested() {
    let mut watch = Watch::new(1, 1);
    assert_eq!(fires(&mut watch, &[true], 1), [0]);
    watch.saved(2);
    assert_eq!(watch.left, 0);
    for now in 3..9 {
        assert_eq!(fires(&mut watch, &[now % 2 == 0], now), [0usize; 0]);
    }
}
