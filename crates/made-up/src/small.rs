//! Builds small `Interval`s and `Sample`s.

use std::sync::Arc;

use cgscope_ledger::{chains::Waker, history::KERNEL};
use cgscope_model::{
    Blame, BlockedKind, ByCause, Cause, ChainReading, Cost, Hist, Interval, PairReading, Pending, Sample,
    TaskReading, Totals,
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

/// Returns sleeps of a cgroup until a task of another cgroup woke it. During the sleep, the waker ran, was throttled, waited behind
/// other cgroups, slept, or its actions are unknown, ms each.
pub fn chain(sleeper: u64, kind: BlockedKind, waker_cgroup: u64, did_ms: [u64; 5]) -> ChainReading {
    let [ran_ns, throttled_ns, others_ns, waker_slept_ns, unknown_ns] = did_ms.map(|ms| ms * 1_000_000);
    let mut by_cause = ByCause::only(Cause::Throttled, throttled_ns);
    by_cause.add(&ByCause::only(Cause::OtherCgroup, others_ns));
    ChainReading {
        sleeper,
        sleeper_tid: 0,
        kind,
        waker: Waker::Task,
        waker_cgroup,
        waker_tid: 0,
        comm: "".into(),
        count: 100,
        slept_ns: did_ms.iter().sum::<u64>() * 1_000_000,
        ran_ns,
        by_cause,
        waker_slept_ns,
        unknown_ns,
        estimated_ns: 0,
    }
}

/// Returns an `Interval` of one second with the chains of a shop: `web` sleeps for `api` and `cron`, `api` for a throttled `db`, and
/// `db` for a disk.
pub fn shop() -> Interval {
    let no_task = |sleeper, kind, waker, slept_ms: u64| ChainReading {
        waker,
        slept_ns: slept_ms * 1_000_000,
        ..chain(sleeper, kind, 0, [0; 5])
    };
    let mut chains = vec![
        chain(2, BlockedKind::Network, 3, [60, 0, 40, 400, 0]),
        chain(2, BlockedKind::FileLock, 5, [30, 150, 20, 0, 0]),
        chain(2, BlockedKind::Lock, 2, [20, 0, 0, 0, 5]),
        chain(2, BlockedKind::Pipe, KERNEL, [8, 0, 0, 0, 0]),
        no_task(2, BlockedKind::Timer, Waker::Interrupt, 90),
        no_task(2, BlockedKind::Network, Waker::SoftInterrupt, 10),
        chain(3, BlockedKind::Network, 4, [90, 290, 0, 80, 0]),
        no_task(4, BlockedKind::Disk, Waker::Disk, 75),
        no_task(5, BlockedKind::Timer, Waker::Interrupt, 900),
    ];
    chains.sort_by_key(ChainReading::key);
    let cgroup = |id, path: &str| (id, path.into());
    let mut interval = (*interval(vec![])).clone();
    interval.cgroups = vec![
        cgroup(1, "/"),
        cgroup(2, "/shop.slice/web.service"),
        cgroup(3, "/shop.slice/api.service"),
        cgroup(4, "/shop.slice/db.service"),
        cgroup(5, "/system.slice/cron.service"),
    ];
    Interval { pairs: Vec::new(), chains: Some(chains), ..interval }
}
