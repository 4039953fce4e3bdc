//! The interval object that scripts rely on (`cgscope.interval/1`). What could not be read is null, never 0.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Group, Interval, TaskInterval, Totals, Wait};

/// Name and version of the object.
pub const SCHEMA: &str = "cgscope.interval/1";

/// One interval.
#[derive(Serialize)]
#[expect(
    missing_docs,
    reason = "the contract's own names; meanings and units are in the README's table of metrics"
)]
pub struct IntervalObject<'a> {
    pub schema: &'static str,
    pub start_unix_ns: u64,
    pub duration_ns: u64,
    pub total: WaitObject,
    pub pending: PendingObject,
    pub tasks: Vec<TaskObject<'a>>,
    pub cgroups: Vec<CgroupObject>,
    pub cpus: Option<Vec<u32>>,
    pub nodes: Option<Vec<u32>>,
    pub losses: BTreeMap<&'static str, u64>,
    #[serde(rename = "self")]
    pub cost: CostObject,
}

/// W: completed waits.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct WaitObject {
    pub count: u64,
    pub total_ns: u64,
    pub max_ns: u64,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub by_cause: CauseObject,
    pub hist: Vec<(u64, u64, u64)>,
}

/// The parts of a wait. Not split yet: all null.
#[derive(Serialize, Default)]
#[expect(missing_docs, reason = "as above")]
pub struct CauseObject {
    pub throttled_ns: Option<u64>,
    pub own_cgroup_ns: Option<u64>,
    pub other_cgroup_ns: Option<u64>,
    pub kernel_ns: Option<u64>,
    pub wakeup_ns: Option<u64>,
    pub unattributed_ns: Option<u64>,
}

/// Waits that are not over.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct PendingObject {
    pub count: u64,
    pub max_ns: u64,
}

/// T: a task.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct TaskObject<'a> {
    pub tid: u32,
    pub tgid: u32,
    pub comm: &'a str,
    pub cgroup: Option<&'a str>,
    pub cpu: u32,
    pub node: Option<u32>,
    pub wait: WaitObject,
    pub pending_ns: Option<u64>,
    pub on_cpu_ns: u64,
    pub voluntary: u64,
    pub involuntary: u64,
    pub migrations: u64,
    pub node_migrations: Option<u64>,
    pub run_delay_ns: u64,
    pub unstamped: UnstampedObject,
}

/// Waits that the kernel's figure leaves out: preempted with the state already set. Not in `wait`.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct UnstampedObject {
    pub count: u64,
    pub total_ns: u64,
}

/// C: a cgroup with all below it.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct CgroupObject {
    pub path: Option<String>,
    pub id: Option<u64>,
    pub wait: WaitObject,
    pub pending: PendingObject,
    pub usage_ns: u64,
    pub run_delay_ns: u64,
    pub tasks: u64,
    pub threads: u64,
    pub exited: u64,
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub burst_us: Option<u64>,
    pub effective_cores: Option<f64>,
    pub limited_by: Option<String>,
    pub nr_periods: Option<u64>,
    pub nr_throttled: Option<u64>,
    pub throttled_ns: Option<u64>,
    pub culprits: Option<Vec<String>>,
}

/// What cgscope itself cost.
#[derive(Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct CostObject {
    pub hook_ns: Option<u64>,
    pub hook_runs: Option<u64>,
    pub cpu_ns: Option<u64>,
    pub rss_bytes: Option<u64>,
}

impl WaitObject {
    fn new(wait: &Wait) -> Self {
        Self {
            count: wait.count,
            total_ns: wait.total_ns,
            max_ns: wait.max_ns,
            p50_ns: wait.quantile_ns(0.5),
            p90_ns: wait.quantile_ns(0.9),
            p99_ns: wait.quantile_ns(0.99),
            p999_ns: wait.quantile_ns(0.999),
            by_cause: CauseObject::default(),
            hist: wait.hist.buckets().collect(),
        }
    }
}

impl PendingObject {
    fn new(group: &Group) -> Self {
        Self { count: group.pending, max_ns: group.pending_max_ns }
    }
}

impl<'a> TaskObject<'a> {
    fn new(task: &'a TaskInterval, interval: &'a Interval) -> Self {
        let Totals { unstamped, unstamped_ns, on_cpu_ns, voluntary, involuntary, migrations, .. } =
            task.totals;
        let reading = &task.reading;
        Self {
            tid: reading.tid,
            tgid: reading.tgid,
            comm: &reading.comm,
            cgroup: interval.cgroup_path(reading.cgroup_id).map(AsRef::as_ref),
            cpu: reading.cpu,
            node: reading.node,
            wait: WaitObject::new(&task.wait),
            pending_ns: reading.pending.map(|pending| pending.ns),
            on_cpu_ns,
            voluntary,
            involuntary,
            migrations,
            node_migrations: None,
            run_delay_ns: task.totals.run_delay_ns,
            unstamped: UnstampedObject { count: unstamped, total_ns: unstamped_ns },
        }
    }
}

impl CgroupObject {
    fn new(path: Option<&str>, id: Option<u64>, group: &Group) -> Self {
        Self {
            path: path.map(Into::into),
            id,
            wait: WaitObject::new(&group.wait),
            pending: PendingObject::new(group),
            usage_ns: group.totals.on_cpu_ns,
            run_delay_ns: group.totals.run_delay_ns,
            tasks: group.processes,
            threads: group.threads,
            exited: group.exited,
            quota_us: None,
            period_us: None,
            burst_us: None,
            effective_cores: None,
            limited_by: None,
            nr_periods: None,
            nr_throttled: None,
            throttled_ns: None,
            culprits: None,
        }
    }
}

impl<'a> IntervalObject<'a> {
    /// The object of an interval.
    pub fn new(interval: &'a Interval) -> Self {
        let total = interval.total();
        let ids: BTreeMap<&str, u64> =
            interval.cgroups.iter().map(|(id, path)| (path.as_ref(), *id)).collect();
        let groups = interval.by_cgroup();
        Self {
            schema: SCHEMA,
            start_unix_ns: interval.start_unix_ns,
            duration_ns: interval.duration_ns,
            total: WaitObject::new(&total.wait),
            pending: PendingObject::new(&total),
            tasks: interval.tasks.iter().map(|task| TaskObject::new(task, interval)).collect(),
            cgroups: groups
                .iter()
                .map(|(path, group)| {
                    let path = path.as_deref();
                    CgroupObject::new(path, path.and_then(|path| ids.get(path).copied()), group)
                })
                .collect(),
            cpus: None,
            nodes: None,
            losses: interval.losses.nonzero().map(|(loss, count)| (loss.name(), count)).collect(),
            cost: CostObject {
                hook_ns: interval.cost.hook_ns,
                hook_runs: interval.cost.hook_runs,
                cpu_ns: interval.cost.cpu_ns,
                rss_bytes: interval.cost.rss_bytes,
            },
        }
    }
}
