//! The interval object that scripts rely on (`cgscope.interval/1`). Values that could not be read are null, never 0.

#![expect(missing_docs, reason = "the contract's own names; meanings and units are in docs/figures.md")]

mod nodes;
mod stat;

use std::{collections::BTreeMap, sync::Arc};

use cgscope_ledger::CAUSES;
use serde::{
    Serialize, Serializer,
    ser::{Error, SerializeSeq},
};
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    BlockedTime, ByCause, ByState, CgroupName, ContainerReading, Counter, ExitedThreads, Finding, Group,
    Interval, Mode, Observed, SchedExt, TaskInterval, TaskState, Totals, Tree, Wait,
    causes::ORDER,
    class::{Classes, Classified},
    counters,
    findings::{Host, findings_in},
    interval::CostInterval,
    nodes::remote_share,
    pairs::{Culprit, NAMED},
};
pub use nodes::{CpuObject, MemoryObject, NodeObject};
pub use stat::StatObject;

/// Name and version of the object.
pub const SCHEMA: &str = "cgscope.interval/1";

/// One interval.
#[derive(Serialize)]
pub struct IntervalObject<'a> {
    pub schema: &'static str,
    pub start_unix_ns: u64,
    pub duration_ns: u64,
    pub mode: Mode,
    pub sched_ext: Option<&'a SchedExt>,
    pub total: WaitObject,
    pub usage_ns: u64,
    #[serde(flatten)]
    pub counters: CountersObject,
    #[serde(flatten)]
    pub cpu_times: CountersObject,
    pub blocked: Option<ByState>,
    pub pending: Option<PendingObject>,
    pub culprits: Option<Vec<CulpritObject>>,
    pub tasks: TaskObjects<'a>,
    pub idle_tasks: usize,
    pub cgroups: Vec<CgroupObject>,
    pub cpus: Option<Vec<CpuObject>>,
    pub nodes: Option<Vec<NodeObject>>,
    pub memory: Vec<MemoryObject<'a>>,
    pub findings: Vec<Finding>,
    pub losses: BTreeMap<&'static str, u64>,
    #[serde(rename = "self")]
    pub cost: CostInterval,
    #[serde(flatten)]
    pub class: Option<ClassObject>,
}

/// W: completed waits.
#[derive(Serialize)]
pub struct WaitObject {
    pub count: u64,
    pub total_ns: u64,
    pub max_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub by_cause: CauseObject,
    pub hist: Option<Vec<(u64, u64, u64)>>,
    pub hist_by_cause: Option<Vec<(u64, u64, CauseCounts)>>,
}

/// Waits that are not over.
#[derive(Serialize)]
pub struct PendingObject {
    pub count: u64,
    pub max_ns: u64,
    pub by_cause: CauseObject,
}

/// T: a task.
#[derive(Serialize)]
pub struct TaskObject<'a> {
    pub tid: u32,
    pub tgid: u32,
    pub comm: &'a str,
    pub cgroup: Option<&'a str>,
    pub cpu: u32,
    pub node: Option<u32>,
    pub state: Option<TaskState>,
    pub wait: TaskWait<'a>,
    pub pending_ns: Option<u64>,
    #[serde(flatten)]
    pub time: CountersObject,
    pub blocked: Option<ByState>,
    /// Only on the main thread of a process whose threads exited; omitted elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exited_threads: Option<ExitedThreads>,
    #[serde(flatten)]
    pub counters: CountersObject,
    pub ran_by_node: Option<&'a [(u32, u64)]>,
    pub preferred_node: Option<u32>,
    /// Read for few tasks; omitted elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_allowed: Option<&'a str>,
    #[serde(flatten)]
    pub by_kernel: CountersObject,
    pub unstamped: Option<UnstampedObject>,
    #[serde(flatten)]
    pub class: Option<&'a ClassObject>,
}

/// Counters by name. Allocates no memory: a host has thousands of tasks.
pub struct CountersObject {
    counters: &'static [Counter],
    values: [Option<u64>; counters::OF_LIMITS.len()],
}

impl CountersObject {
    fn new(counters: &'static [Counter], observed: &Observed<'_>) -> Self {
        let of = |counter: &Counter| counter.of(observed);
        Self { counters, values: std::array::from_fn(|at| counters.get(at).and_then(of)) }
    }
}

impl Serialize for CountersObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.counters.iter().map(|counter| counter.name());
        serializer.collect_map(names.zip(self.values))
    }
}

/// The waits of a task. Most tasks have none in an interval; these all share one pre-serialized object.
#[derive(Serialize)]
#[serde(untagged)]
pub enum TaskWait<'a> {
    /// The task has waited.
    Some(Box<WaitObject>),
    /// The task has not waited: the serialized object.
    None(&'a RawValue),
}

/// The objects of tasks. Each object is created when it is written, because all objects at once would take megabytes.
pub struct TaskObjects<'a> {
    interval: &'a Interval,
    /// Also tasks that did nothing.
    all: bool,
    /// One per task, or empty.
    classes: Vec<ClassObject>,
}

impl Serialize for TaskObjects<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let none = WaitObject::new(&Wait::default(), self.interval.mode);
        let none = to_raw_value(&none).map_err(S::Error::custom)?;
        let classes = self.classes.iter().map(Some).chain(std::iter::repeat(None));
        let tasks = self.interval.tasks.iter().zip(classes);
        let mut objects = serializer.serialize_seq(None)?;
        let idle = self.all.then(|| self.interval.idle_figures());
        let mut idle = idle.into_iter().flatten().peekable();
        let mut write = |task: &TaskInterval, class| {
            let waited = (*task.all_waits() != Wait::default())
                .then(|| WaitObject::new(task.all_waits(), self.interval.mode));
            let wait = waited.map_or(TaskWait::None(&none), |wait| TaskWait::Some(Box::new(wait)));
            objects.serialize_element(&TaskObject::new(task, wait, class, self.interval))
        };
        for (task, class) in tasks.filter(|(task, _)| self.all || task.did_something()) {
            while let Some(idle) = idle.next_if(|idle| idle.reading.serial < task.reading.serial) {
                write(&idle, None)?;
            }
            write(task, class)?;
        }
        idle.try_for_each(|idle| write(&idle, None))?;
        objects.end()
    }
}

/// Waits that the kernel does not count: tasks preempted after they had set their state to sleeping. Not in `wait`.
#[derive(Serialize)]
pub struct UnstampedObject {
    pub count: u64,
    pub total_ns: u64,
}

/// C: a cgroup with all cgroups below it.
#[derive(Serialize)]
pub struct CgroupObject {
    pub path: Option<String>,
    /// The name that tables show; the path if it has none.
    pub name: Option<String>,
    #[serde(flatten)]
    pub ids: CgroupName,
    pub container_name: Option<String>,
    pub pod: Option<String>,
    pub namespace: Option<String>,
    pub id: Option<u64>,
    pub wait: WaitObject,
    pub pending: Option<PendingObject>,
    pub usage_ns: u64,
    #[serde(flatten)]
    pub cpu_times: CountersObject,
    pub blocked: Option<ByState>,
    #[serde(flatten)]
    pub counters: CountersObject,
    pub tasks: u64,
    pub threads: u64,
    pub exited: Option<u64>,
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    pub burst_us: Option<u64>,
    pub weight: Option<u64>,
    pub cpus: Option<u32>,
    pub cpuset: Option<String>,
    pub mem_by_node: Option<Vec<(u32, u64)>>,
    pub remote_share: Option<f64>,
    pub effective_cores: Option<f64>,
    pub limited_by: Option<String>,
    #[serde(flatten)]
    pub limit_counters: CountersObject,
    pub own_contention_ns: Option<u64>,
    pub throttled_by: Vec<LimitObject>,
    pub culprits: Option<Vec<CulpritObject>>,
    #[serde(flatten)]
    pub class: Option<ClassObject>,
}

/// A cgroup whose quota had run out while tasks waited because of it.
#[derive(Serialize)]
pub struct LimitObject {
    pub path: Option<String>,
    pub ns: u64,
}

/// A culprit that ran while tasks waited. `tid` and `comm` are set if the target was selected by process or thread.
#[derive(Serialize)]
pub struct CulpritObject {
    pub path: Option<String>,
    pub kernel: bool,
    pub tid: Option<u32>,
    pub comm: Option<String>,
    pub ns: u64,
    pub beyond_ns: Option<u64>,
}

impl CulpritObject {
    fn all(culprits: &[Culprit], mode: Mode) -> Option<Vec<Self>> {
        mode.exact(|| culprits.iter().take(NAMED).map(Self::new).collect())
    }

    fn new(culprit: &Culprit) -> Self {
        let (tid, comm) = culprit.task.as_ref().map(|(tid, comm)| (*tid, comm.to_string())).unzip();
        Self {
            path: culprit.path.as_deref().map(Into::into),
            kernel: culprit.kernel,
            tid,
            comm,
            ns: culprit.ns,
            beyond_ns: culprit.beyond_ns,
        }
    }
}

impl WaitObject {
    fn new(wait: &Wait, mode: Mode) -> Self {
        let octaves = wait.hist.octaves();
        let octaves =
            octaves.iter().map(|octave| (octave.low_ns(), octave.high_ns(), CauseCounts(octave.by_cause)));
        Self {
            count: wait.count,
            total_ns: wait.total_ns,
            max_ns: mode.exact(|| wait.max_ns),
            p50_ns: wait.quantile_ns(0.5),
            p90_ns: wait.quantile_ns(0.9),
            p99_ns: wait.quantile_ns(0.99),
            p999_ns: wait.quantile_ns(0.999),
            by_cause: CauseObject::new(wait.by_cause, mode),
            hist: mode.exact(|| wait.hist.buckets().collect()),
            hist_by_cause: mode.exact(|| octaves.collect()),
        }
    }
}

impl PendingObject {
    fn new(group: &Group, mode: Mode) -> Option<Self> {
        mode.exact(|| Self {
            count: group.pending,
            max_ns: group.pending_max_ns,
            by_cause: CauseObject::new(group.pending_by_cause, mode),
        })
    }
}

impl<'a> TaskObject<'a> {
    fn new(
        task: &'a TaskInterval,
        wait: TaskWait<'a>,
        class: Option<&'a ClassObject>,
        interval: &'a Interval,
    ) -> Self {
        let Totals { unstamped, unstamped_ns, .. } = *task.all_totals();
        let observed = Observed::task(task, interval.mode);
        let reading = &task.reading;
        let placement = reading.placement.as_deref();
        let exited_threads = task
            .all_accounts()
            .map(|accounts| accounts.exited_threads)
            .filter(|exited_threads| *exited_threads != ExitedThreads::default());
        Self {
            tid: reading.tid,
            tgid: reading.tgid,
            comm: &reading.comm,
            cgroup: interval.cgroup_path(reading.cgroup_id).map(AsRef::as_ref),
            cpu: reading.cpu,
            node: reading.node.or(interval.one_node),
            state: reading.state,
            wait,
            pending_ns: reading.pending_ns(),
            time: CountersObject::new(counters::OF_TASK_TIME, &observed),
            blocked: task.all_accounts().and_then(|accounts| accounts.blocked),
            exited_threads,
            counters: CountersObject::new(counters::OF_TASK, &observed),
            ran_by_node: task.placement.ran_ns.as_deref(),
            preferred_node: placement.and_then(|placement| placement.preferred_node),
            cpus_allowed: placement.and_then(|placement| placement.cpus_allowed.as_deref()),
            by_kernel: CountersObject::new(counters::OF_TASK_BY_KERNEL, &observed),
            unstamped: interval.mode.exact(|| UnstampedObject { count: unstamped, total_ns: unstamped_ns }),
            class,
        }
    }
}

impl CgroupObject {
    /// Ordered by path; all cgroups without a known path come first, as one object.
    fn all(interval: &Interval, tree: &Tree) -> Vec<Self> {
        let known = Self::known(tree)
            .into_iter()
            .map(|at| Self::new(&tree.nodes()[at].group, Some((tree, at)), interval));
        let unknown = tree.unknown.iter().map(|group| Self::new(group, None, interval));
        unknown.chain(known).collect()
    }

    /// The nodes that have tasks, ordered by path.
    fn known(tree: &Tree) -> Vec<usize> {
        let nodes = tree.nodes();
        let mut known: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].has_tasks).collect();
        known.sort_unstable_by_key(|at| &nodes[*at].path);
        known
    }

    fn new(group: &Group, at: Option<(&Tree, usize)>, interval: &Interval) -> Self {
        let limits = at.and_then(|(tree, at)| tree.limits(interval, at)).cloned().unwrap_or_default();
        let observed = Observed::group(group, interval.mode);
        let limit_counters = CountersObject::new(counters::OF_LIMITS, &Observed::limits(&limits));
        let name = |node: usize| at.map(|(tree, _)| tree.nodes()[node].path.to_string());
        let node = at.map(|(tree, at)| &tree.nodes()[at]);
        let path = node.map(|node| &*node.path);
        let throttled_by = node.map_or(&[][..], |node| &node.throttled_by).iter();
        let (_, named) = path.and_then(|path| interval.names.container(path)).unzip();
        let name_of = |one: fn(&ContainerReading) -> &Option<Arc<str>>| {
            named.and_then(|named| one(named).as_deref().map(Into::into))
        };
        Self {
            path: path.map(Into::into),
            name: path.map(|path| interval.names.of(path).into()),
            ids: path.map(CgroupName::of).unwrap_or_default(),
            container_name: name_of(|named| &named.container),
            pod: name_of(|named| &named.pod),
            namespace: name_of(|named| &named.namespace),
            id: node.and_then(|node| node.id),
            wait: WaitObject::new(&group.wait, interval.mode),
            pending: PendingObject::new(group, interval.mode),
            usage_ns: group.totals.on_cpu_ns,
            cpu_times: CountersObject::new(counters::OF_CPU_TIMES, &observed),
            blocked: group.accounts.and_then(|accounts| accounts.blocked),
            counters: CountersObject::new(counters::OF_CGROUP, &observed),
            tasks: group.processes,
            threads: group.threads,
            exited: interval.mode.exact(|| group.exited),
            quota_us: limits.quota_us,
            period_us: limits.period_us,
            burst_us: limits.burst_us,
            weight: limits.weight,
            cpus: limits.cpus,
            cpuset: limits.cpuset.map(|cpus| cpus.to_string()),
            remote_share: remote_share(&limits.memory_by_node, node.map_or(&[], |node| &node.ran)),
            mem_by_node: (!limits.memory_by_node.is_empty()).then_some(limits.memory_by_node),
            effective_cores: node.and_then(|node| node.effective).map(|limit| limit.cores),
            limited_by: node.and_then(|node| node.limited_by).and_then(name),
            limit_counters,
            own_contention_ns: at.and_then(|(tree, at)| tree.own_contention_ns(interval, at)),
            throttled_by: throttled_by
                .map(|(node, ns)| LimitObject { path: node.and_then(name), ns: *ns })
                .collect(),
            culprits: CulpritObject::all(node.map_or(&[], |node| &node.culprits), interval.mode),
            class: None,
        }
    }
}

impl<'a> IntervalObject<'a> {
    /// The object of an interval, with its findings on this host.
    pub fn new(interval: &'a Interval, host: &Host) -> Self {
        let total = interval.total();
        let observed = Observed::group(&total, interval.mode);
        let tree = Tree::new(interval);
        let still = interval.tasks.iter().filter(|task| !task.did_something());
        Self {
            schema: SCHEMA,
            start_unix_ns: interval.start_unix_ns,
            duration_ns: interval.duration_ns,
            mode: interval.mode,
            sched_ext: interval.sched_ext.as_ref(),
            total: WaitObject::new(&total.wait, interval.mode),
            usage_ns: total.totals.on_cpu_ns,
            counters: CountersObject::new(counters::OF_TOTAL, &observed),
            cpu_times: CountersObject::new(counters::OF_CPU_TIMES, &observed),
            blocked: total.accounts.and_then(|accounts| accounts.blocked),
            pending: PendingObject::new(&total, interval.mode),
            culprits: CulpritObject::all(&tree.culprits(interval), interval.mode),
            tasks: TaskObjects { interval, all: false, classes: Vec::new() },
            idle_tasks: interval.idle.len() + still.count(),
            cgroups: CgroupObject::all(interval, &tree),
            cpus: CpuObject::all(interval),
            nodes: NodeObject::all(interval),
            memory: interval.memory.iter().map(|memory| MemoryObject::new(memory, interval)).collect(),
            findings: findings_in(interval, &tree, host),
            losses: interval.losses.shown().map(|(loss, count)| (loss.name(), count)).collect(),
            cost: interval.cost,
            class: None,
        }
    }

    /// Also lists tasks that did nothing, if `all` is true.
    pub fn listing(mut self, all: bool) -> Self {
        if all {
            (self.tasks.all, self.idle_tasks) = (true, 0);
        }
        self
    }
}

/// The parts of waits; they sum to `total_ns`.
pub struct CauseObject {
    by_cause: ByCause,
    mode: Mode,
}

impl CauseObject {
    pub(crate) const fn new(by_cause: ByCause, mode: Mode) -> Self {
        Self { by_cause, mode }
    }
}

impl Serialize for CauseObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = |cause| self.by_cause.known(cause, self.mode);
        serializer.collect_map(ORDER.map(|cause| (format!("{}_ns", cause.name()), part(cause))))
    }
}

/// The waits of a row by cause; each wait is split in proportion to its parts.
pub struct CauseCounts(pub(crate) [f64; CAUSES]);

impl Serialize for CauseCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(ORDER.map(|cause| (cause.name(), self.0[cause as usize])))
    }
}

/// The class of a target, and its blocked time: ns by kind, without kinds of 0 ns.
///
/// For a cgroup and the whole, this is the time of threads that exist at the end. The whole also includes exited threads with
/// stacks.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct ClassObject {
    pub class: Classified,
    pub blocked_on: Option<BTreeMap<&'static str, u64>>,
}

impl ClassObject {
    fn new(class: Classified, blocked: Option<&BlockedTime>) -> Self {
        let by_kind = |blocked: &BlockedTime| {
            blocked.iter().filter(|(_, ns)| *ns != 0).map(|(kind, ns)| (kind.name(), ns)).collect()
        };
        Self { class, blocked_on: blocked.map(by_kind) }
    }
}

impl IntervalObject<'_> {
    /// Adds `class` and `blocked_on` to each task, each cgroup and the whole; `blocked_on` is null if blocked time is
    /// unknown. `classes` must belong to the same interval.
    pub fn with_classes(mut self, classes: &Classes<'_>) -> Self {
        let Classes { interval, tree, blocked, .. } = *classes;
        let of_task = |task| ClassObject::new(classes.thread(task), blocked.of_task(task));
        self.tasks.classes = interval.tasks.iter().map(of_task).collect();
        let known = CgroupObject::known(tree).into_iter().map(|node| {
            let time = blocked.known_of_tasks(interval, tree.tasks_below(node));
            ClassObject::new(classes.cgroup(node), time.as_ref())
        });
        let unknown = tree.unknown.iter().map(|_| {
            let time = blocked.known_of_tasks(interval, tree.tasks_unknown());
            ClassObject::new(classes.unknown_cgroup(), time.as_ref())
        });
        for (object, class) in self.cgroups.iter_mut().zip(unknown.chain(known)) {
            object.class = Some(class);
        }
        self.class = Some(ClassObject::new(classes.total(), blocked.known_total(interval).as_ref()));
        self
    }
}
