//! Builds small `Interval`s and `Sample`s.

use std::sync::Arc;

use cgscope_model::{
    Blame, ByCause, Cause, Cost, Hist, Interval, PairReading, Pending, Sample, TaskReading, Totals,
};

/// Returns a task with these waits, all completed.
pub fn task(tid: u32, waits_ns: &[u64]) -> TaskReading {
    let hist = Hist::of_cause(Cause::OtherCgroup, waits_ns.iter().copied());
    let wait_ns = waits_ns.iter().sum();
    TaskReading {
        serial: u64::from(tid) << 42,
        tid,
        tgid: tid / 10 * 10,
        comm: format!("task-{tid}").into(),
        start_ns: 5_000,
        cgroup_id: u64::from(tid % 3),
        cpu: tid % 4,
        node: Some(0),
        max_ns: waits_ns.iter().copied().max().unwrap_or(0),
        totals: Totals {
            waits: hist.count(),
            wait_ns,
            run_delay_ns: wait_ns,
            on_cpu_ns: 1_000_000_000u64.saturating_sub(wait_ns),
            voluntary: 12,
            involuntary: u64::from(tid) * 100,
            migrations: 3,
            by_cause: split(tid, wait_ns),
            ..Totals::default()
        },
        hist: Arc::new(hist),
        ..TaskReading::default()
    }
}

/// Divides a wait among the causes. The division depends on the tid, so that the bars of different tasks differ.
fn split(tid: u32, wait_ns: u64) -> ByCause {
    let throttled = wait_ns * u64::from(tid % 4) / 4;
    let other = (wait_ns - throttled) * u64::from(tid % 3) / 3;
    let mut parts = ByCause::only(Cause::Throttled, throttled);
    parts.add(&ByCause::only(Cause::OtherCgroup, other));
    parts.add(&ByCause::only(Cause::Wakeup, wait_ns - throttled - other));
    parts
}

/// Returns the same task at a later time: it has now waited for `ns` and still waits.
pub fn waiting(task: TaskReading, ns: u64) -> TaskReading {
    TaskReading { pending: Some(Pending { ns, ..Pending::default() }.into()), ..task }
}

/// Returns an `Interval` of one second. All waits of these tasks begin and end in this interval.
pub fn interval(tasks: Vec<TaskReading>) -> Arc<Interval> {
    Arc::new(Interval::between(&before(), &after(tasks)))
}

/// Returns the `Sample` at the start of [`interval`].
pub fn before() -> Sample {
    let cost = Cost { switches: Some(0), cpu_ns: Some(0), ..Cost::default() };
    Sample { unix_ns: 1_700_000_000_000_000_000, mono_ns: 1_000, cost, ..Sample::default() }
}

/// Returns a `Sample` one second after [`before`], with these tasks.
pub fn after(mut tasks: Vec<TaskReading>) -> Sample {
    tasks.sort_by_key(|task| task.serial);
    let tasks = tasks.into_iter().map(Arc::new).collect();
    let cgroups = vec![
        (0, "/".into()),
        (1, "/system.slice/web.service".into()),
        (2, "/kubepods/burstable/pod7f/main".into()),
    ];
    let blame = Blame::Ran;
    let pair = PairReading { victim: 2, culprit: 1, blame, tid: 0, comm: "".into(), ns: 90_000_000 };
    let cost = Cost {
        switches: Some(25_000),
        hook_ns_per_run: Some(62.0),
        cpu_ns: Some(3_000_000),
        rss_bytes: Some(9 << 20),
    };
    Sample { mono_ns: 1_000_001_000, tasks, pairs: vec![pair], cgroups, cost, ..before() }
}
