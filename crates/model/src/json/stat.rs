//! The JSON object of a command that was run (`cgscope.stat/1`). Unknown values are null, never 0.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CauseObject, CountersObject, CulpritObject, LimitObject, WaitObject};
use crate::{
    BlockedState, Finding, Mode, Observed, WallTime,
    class::Classified,
    command_run::{CommandRun, CpuUse, Ending, HeldBy, Outlived, Usage},
    counters::OF_QUOTA,
    findings::findings,
    interval::CostInterval,
};

/// Name and version of the object.
const SCHEMA: &str = "cgscope.stat/1";

/// One command. Times are ns.
#[derive(Serialize)]
pub struct StatObject<'a> {
    pub schema: &'static str,
    pub command: &'a [String],
    pub start_unix_ns: u64,
    pub mode: Mode,
    pub exit_code: Option<u8>,
    pub signal: Option<i32>,
    pub core_dumped: bool,
    pub wall_ns: u64,
    pub cpu: CommandCpuObject,
    pub waited_for: Usage,
    pub own_cgroup: Option<&'a str>,
    pub peak_threads: u64,
    pub peak_processes: u64,
    pub sampled_every_ns: u64,
    pub threads_time: ThreadsTimeObject,
    pub class: Option<&'a Classified>,
    pub wait: WaitObject,
    pub throttled_by: Vec<LimitObject>,
    pub culprits: Option<Vec<CulpritObject>>,
    pub quotas: Vec<QuotaObject<'a>>,
    pub outlived: &'a [Outlived],
    pub findings: Vec<Finding>,
    pub remarks: &'a [String],
    pub losses: BTreeMap<&'static str, u64>,
    #[serde(rename = "self")]
    pub cost: CostInterval,
}

/// CPU time. `of` is `own_cgroup` (all processes that the command started) or `waited_for`.
#[derive(Serialize)]
pub struct CommandCpuObject {
    pub of: &'static str,
    #[serde(flatten)]
    pub cpu: CpuUse,
}

/// Where the time of all threads went: `on_cpu_ns`, `waited` and `blocked` sum to `total_ns`.
#[derive(Serialize)]
pub struct ThreadsTimeObject {
    pub total_ns: u64,
    pub on_cpu_ns: u64,
    pub waited: CauseObject,
    pub own_is_the_command_alone: bool,
    pub blocked: Option<BTreeMap<&'static str, u64>>,
    pub blocked_on: Option<BTreeMap<&'static str, u64>>,
}

/// A quota that applied to the command: the kernel's counters, and figures derived from them.
#[derive(Serialize)]
pub struct QuotaObject<'a> {
    pub path: &'a str,
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub burst_us: Option<u64>,
    pub cores: Option<f64>,
    pub before: CountersObject,
    pub after: CountersObject,
    pub delta: CountersObject,
    pub throttled_percent: Option<f64>,
    pub periods_ns: Option<u64>,
    pub times_throttled: Option<f64>,
    pub threads_held_ns: u64,
    pub others: &'a [Outlived],
}

impl<'a> QuotaObject<'a> {
    fn new(held: &'a HeldBy, run: &CommandRun) -> Self {
        let quota = &held.quota;
        let counters = |reading| CountersObject::new(OF_QUOTA, &Observed::limits(reading));
        Self {
            path: &quota.path,
            quota_us: quota.delta.quota_us,
            period_us: quota.delta.period_us,
            burst_us: quota.delta.burst_us,
            cores: quota.delta.quota_cores(),
            before: counters(&quota.before),
            after: counters(&quota.after),
            delta: counters(&quota.delta),
            throttled_percent: quota.throttled_percent(),
            periods_ns: quota.periods_ns(),
            times_throttled: quota.times_throttled(run.ran_under(quota)),
            threads_held_ns: run.held_ns(quota.after.id),
            others: &held.others,
        }
    }
}

impl ThreadsTimeObject {
    fn new(time: &WallTime, run: &CommandRun) -> Self {
        let named = |(state, ns): (BlockedState, u64)| (state.name(), ns);
        Self {
            total_ns: time.total_ns(),
            on_cpu_ns: time.on_cpu_ns,
            waited: CauseObject::new(time.waited, run.interval.mode),
            own_is_the_command_alone: run.own_is_distinct,
            blocked: time.blocked.map(|blocked| blocked.iter().map(named).collect()),
            blocked_on: run
                .blocked_on
                .map(|kinds| kinds.iter().map(|(kind, ns)| (kind.name(), ns)).collect()),
        }
    }
}

impl CommandCpuObject {
    fn new(run: &CommandRun) -> Self {
        let of = if run.cpu.is_some() { "own_cgroup" } else { "waited_for" };
        Self { of, cpu: run.cpu_use() }
    }
}

impl<'a> StatObject<'a> {
    /// Builds the JSON object of a command, with the findings about it on the host where it ran.
    pub fn new(run: &'a CommandRun) -> Self {
        let interval = &run.interval;
        let total = interval.total();
        let (exit_code, signal) = match run.ending {
            Ending::Exited(code) => (Some(code), None),
            Ending::Killed { signal, .. } => (None, Some(signal)),
        };
        let limit = |(path, ns): (Option<std::sync::Arc<str>>, u64)| LimitObject {
            path: path.map(|path| path.to_string()),
            ns,
        };
        Self {
            schema: SCHEMA,
            command: &run.command,
            start_unix_ns: interval.start_unix_ns,
            mode: interval.mode,
            exit_code,
            signal,
            core_dumped: matches!(run.ending, Ending::Killed { dumped: true, .. }),
            wall_ns: run.wall_ns,
            cpu: CommandCpuObject::new(run),
            waited_for: run.usage,
            own_cgroup: run.own_cgroup.as_deref(),
            peak_threads: run.peak_threads,
            peak_processes: run.peak_processes,
            sampled_every_ns: run.every_ns,
            threads_time: ThreadsTimeObject::new(&WallTime::new(&total), run),
            class: run.class.as_ref(),
            wait: WaitObject::new(&total.wait, interval.mode),
            throttled_by: interval.limits_of("/").into_iter().map(limit).collect(),
            culprits: CulpritObject::all(&interval.culprits(), interval.mode),
            quotas: run.quotas.iter().map(|held| QuotaObject::new(held, run)).collect(),
            outlived: &run.outlived,
            findings: findings(interval, &run.host),
            remarks: &run.remarks,
            losses: interval.losses.shown().map(|(loss, count)| (loss.name(), count)).collect(),
            cost: interval.cost,
        }
    }
}
