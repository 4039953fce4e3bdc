//! JSON objects that scripts rely on: an interval (`cgscope.interval/1`) and a command's run (`cgscope.stat/1`). Values that
//! could not be read are null, never 0. docs/figures.md explains the members and their units.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_ledger::{CAUSES, chains::Waker, history::KERNEL};
use serde::ser::{Error, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::class::{Classes, Classified};
use crate::command_run::{CommandRun, Ending, HeldBy};
use crate::findings::{Host, findings, findings_in};
use crate::nodes::{NodeGroup, remote_share};
use crate::pairs::{Culprit, NAMED};
use crate::{
    BlockedTime, ByCause, CgroupName, ChainReading, ContainerReading, Counter, CpuInterval, ExitedThreads,
    Group, Interval, Mode, Observed, ProcessMemory, TaskInterval, Totals, Tree, Wait, WallTime,
    causes::ORDER, counters,
};

/// Declares an object: its type, the values it is made from, and its members. A member is a name with a value; a `?` omits the
/// member if the value is `None`. `[value] a b` are the fields `a` and `b` of a value, `..` the members of another value.
/// Statements before `=>` prepare the values.
macro_rules! object {
    (
        $(#[$about:meta])*
        $vis:vis $type:ident $(<$life:lifetime>)? ($($part:ident: $of:ty),*) $({ $($prepare:tt)* })? => { $($members:tt)* }
    ) => {
        $(#[$about])*
        $vis struct $type $(<$life>)? ($($vis $of),*);

        impl $(<$life>)? Serialize for $type $(<$life>)? {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self($($part),*) = self;
                $($($prepare)*)?
                members!(serializer, { $($members)* })
            }
        }
    };
}

macro_rules! members {
    ($serializer:ident, { $($members:tt)* }) => {{
        let mut object = $serializer.serialize_map(None)?;
        members!(@ object $($members)*);
        object.end()
    }};
    (@ $object:ident) => {};
    (@ $object:ident ..$more:expr, $($rest:tt)*) => {
        $more.put(&mut $object)?;
        members!(@ $object $($rest)*);
    };
    (@ $object:ident [$of:expr] $($name:ident)+, $($rest:tt)*) => {
        $($object.serialize_entry(stringify!($name), &$of.$name)?;)+
        members!(@ $object $($rest)*);
    };
    (@ $object:ident $name:ident?: $value:expr, $($rest:tt)*) => {
        if let Some(value) = &$value {
            $object.serialize_entry(stringify!($name), value)?;
        }
        members!(@ $object $($rest)*);
    };
    (@ $object:ident $name:ident: $value:expr, $($rest:tt)*) => {
        $object.serialize_entry(stringify!($name), &$value)?;
        members!(@ $object $($rest)*);
    };
}

#[derive(Debug)]
pub struct IntervalObject<'a> {
    pub interval: &'a Interval,
    pub host: Host,
    /// True if tasks that did nothing are listed as well.
    pub all: bool,
    /// Classes of the same interval. They add `class` and `blocked_on` to each task, each cgroup and the total. `blocked_on` is
    /// null if blocked time is unknown.
    pub classes: Option<Classes<'a>>,
}

impl<'a> IntervalObject<'a> {
    pub fn new(interval: &'a Interval, host: &Host) -> Self {
        Self { interval, host: *host, all: false, classes: None }
    }

    /// Returns the cgroups by path. One object for all cgroups without a known path comes first.
    fn cgroups<'o>(&'o self, tree: &'o Tree) -> Vec<CgroupObject<'o>> {
        let nodes = tree.nodes();
        let mut known: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].has_tasks).collect();
        known.sort_unstable_by_key(|at| &nodes[*at].path);
        let known = known.into_iter().map(|at| (&nodes[at].group, Some(at)));
        let all = tree.unknown.iter().map(|group| (group, None)).chain(known);
        all.map(|(group, at)| CgroupObject(self, tree, group, at)).collect()
    }
}

impl Serialize for IntervalObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (interval, mode) = (self.interval, self.interval.mode);
        let (tree, total) = (Tree::new(interval), interval.total());
        let observed = Observed::group(&total, mode);
        let idle =
            || interval.idle.len() + interval.tasks.iter().filter(|task| !task.did_something()).count();
        let nodes = interval.by_node().into_iter().map(|node| NodeObject(node, mode));
        let class = self.classes.as_ref();
        let class = class.map(|classes| (classes.total(), classes.blocked.known_total(interval)));
        members!(serializer, {
            schema: "cgscope.interval/1",
            [interval] start_unix_ns duration_ns mode sched_ext,
            total: WaitObject(&total.wait, mode),
            usage_ns: total.totals.on_cpu_ns,
            ..Counters(counters::OF_TOTAL, &observed),
            ..Counters(counters::OF_CPU_TIMES, &observed),
            blocked: total.accounts.and_then(|accounts| accounts.blocked),
            pending: mode.exact(|| PendingObject(&total)),
            culprits: culprits(&tree.culprits(interval), mode),
            tasks: TaskObjects(self),
            idle_tasks: if self.all { 0 } else { idle() },
            cgroups: self.cgroups(&tree),
            cpus: some(interval.cpus.iter().map(|cpu| CpuObject(cpu, mode))),
            nodes: some(nodes),
            memory: interval.memory.iter().map(|memory| MemoryObject(memory, interval)).collect::<Vec<_>>(),
            findings: findings_in(interval, &tree, &self.host),
            waits_for: interval.chains.as_ref().map(|rows| {
                rows.iter().map(|row| ChainObject(row, interval)).collect::<Vec<_>>()
            }),
            losses: losses(interval),
            self: interval.cost,
            ..Members(class),
        })
    }
}

object! {
    /// Sleeps of a cgroup's tasks, or of one task, because of one waker.
    ChainObject<'a>(row: &'a ChainReading, interval: &'a Interval) {
        let is_task = row.waker == Waker::Task;
        let path = |id| interval.cgroup_path(id);
        let tid = |tid: u32| (tid != 0).then_some(tid);
    } => {
        cgroup: path(row.sleeper),
        tid: tid(row.sleeper_tid),
        kind: row.kind,
        count: row.count,
        slept_ns: row.slept_ns,
        waker: row.waker.name(),
        waker_cgroup: path(row.waker_cgroup),
        waker_kernel: row.waker_cgroup == KERNEL,
        waker_tid: tid(row.waker_tid),
        waker_comm: is_task.then_some(&row.comm),
        ran_ns: is_task.then_some(row.ran_ns),
        by_cause: is_task.then_some(CauseObject(row.by_cause, Mode::Bpf)),
        waker_slept_ns: is_task.then_some(row.waker_slept_ns),
        unknown_ns: is_task.then_some(row.unknown_ns),
        estimated_ns: is_task.then_some(row.estimated_ns),
    }
}

/// Returns the objects of a list; null if the list could not be read.
fn some<T>(objects: impl Iterator<Item = T>) -> Option<Vec<T>> {
    Some(objects.collect()).filter(|objects: &Vec<T>| !objects.is_empty())
}

fn losses(interval: &Interval) -> BTreeMap<&'static str, u64> {
    interval.losses.shown().map(|(loss, count)| (loss.name(), count)).collect()
}

object! {
    /// W: completed waits.
    WaitObject<'a>(wait: &'a Wait, mode: Mode) {
        let octaves = wait.hist.octaves();
        let octaves = octaves.iter().map(|row| (row.low_ns, row.high_ns, CauseCounts(row.by_cause)));
    } => {
        [wait] count total_ns,
        max_ns: mode.exact(|| wait.max_ns),
        p50_ns: wait.quantile_ns(0.5),
        p90_ns: wait.quantile_ns(0.9),
        p99_ns: wait.quantile_ns(0.99),
        p999_ns: wait.quantile_ns(0.999),
        by_cause: CauseObject(wait.by_cause, *mode),
        hist: mode.exact(|| wait.hist.buckets().collect::<Vec<_>>()),
        hist_by_cause: mode.exact(|| octaves.collect::<Vec<_>>()),
    }
}

/// The parts of waits by cause, ns; they sum to `total_ns`.
struct CauseObject(ByCause, Mode);

impl Serialize for CauseObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = |cause| self.0.known(cause, self.1);
        serializer.collect_map(ORDER.map(|cause| (format!("{}_ns", cause.name()), part(cause))))
    }
}

struct CauseCounts([f64; CAUSES]);

impl Serialize for CauseCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(ORDER.map(|cause| (cause.name(), self.0[cause as usize])))
    }
}

object! {
    /// Pending waits. Only the exact mode has them.
    PendingObject<'a>(group: &'a Group) => {
        count: group.pending,
        max_ns: group.pending_max_ns,
        by_cause: CauseObject(group.pending_by_cause, Mode::Bpf),
    }
}

/// Counters by name. Allocates no memory, because a host has thousands of tasks.
struct Counters<'a>(&'static [Counter], &'a Observed<'a>);

impl Counters<'_> {
    fn put<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|counter| object.serialize_entry(counter.name(), &counter.of(self.1)))
    }
}

impl Serialize for Counters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        members!(serializer, { ..self, })
    }
}

/// The class of a target, and its blocked time by kind, ns, without kinds of 0 ns. For a cgroup and for the total, this is the
/// blocked time of threads that exist at the end. The total also includes exited threads with stacks.
struct Members(Option<(Classified, Option<BlockedTime>)>);

impl Members {
    fn put<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        let Some((class, blocked)) = &self.0 else { return Ok(()) };
        object.serialize_entry("class", class)?;
        object.serialize_entry("blocked_on", &blocked.as_ref().map(|blocked| kinds(blocked, |ns| ns != 0)))
    }
}

fn kinds(blocked: &BlockedTime, which: fn(u64) -> bool) -> BTreeMap<&'static str, u64> {
    blocked.iter().filter(|(_, ns)| which(*ns)).map(|(kind, ns)| (kind.name(), ns)).collect()
}

/// The objects of tasks. Each object is created when it is written: all objects at once would take megabytes.
struct TaskObjects<'a>(&'a IntervalObject<'a>);

impl Serialize for TaskObjects<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let IntervalObject { interval, all, ref classes, .. } = *self.0;
        let none = to_raw_value(&WaitObject(&Wait::default(), interval.mode)).map_err(S::Error::custom)?;
        let mut objects = serializer.serialize_seq(None)?;
        let mut write = |task: &TaskInterval, classes: Option<&Classes<'_>>| {
            objects.serialize_element(&TaskObject(task, interval, classes, &none))
        };
        let mut idle = all.then(|| interval.idle_figures()).into_iter().flatten().peekable();
        for task in interval.tasks.iter().filter(|task| all || task.did_something()) {
            while let Some(idle) = idle.next_if(|idle| idle.reading.serial < task.reading.serial) {
                write(&idle, None)?;
            }
            write(task, classes.as_ref())?;
        }
        idle.try_for_each(|idle| write(&idle, None))?;
        objects.end()
    }
}

object! {
    /// T: a task. `none` is the object of the waits of most tasks: no wait.
    TaskObject<'a>(task: &'a TaskInterval, interval: &'a Interval, classes: Option<&'a Classes<'a>>, none: &'a RawValue) {
        let (mode, reading) = (interval.mode, &task.reading);
        let Totals { unstamped, unstamped_ns, .. } = *task.all_totals();
        let is_none = *task.all_waits() == Wait::default();
        let wait = if is_none { TaskWait::None(none) } else { TaskWait::Some(WaitObject(task.all_waits(), mode)) };
        let (accounts, placement) = (task.all_accounts(), reading.placement.as_deref());
        let exited_threads = accounts.map(|accounts| accounts.exited_threads);
        let observed = Observed::task(task, mode);
        let class = classes.map(|classes| (classes.threads(&[task]), classes.blocked.thread(reading.serial).copied()));
    } => {
        [reading] tid tgid comm,
        cgroup: interval.cgroup_path(reading.cgroup_id),
        [reading] cpu,
        node: reading.node.or(interval.one_node),
        [reading] state,
        wait: wait,
        pending_ns: reading.pending_ns(),
        ..Counters(counters::OF_TASK_TIME, &observed),
        blocked: accounts.and_then(|accounts| accounts.blocked),
        // Only on the main thread of a process whose threads exited; omitted elsewhere.
        exited_threads?: exited_threads.filter(|exited| *exited != ExitedThreads::default()),
        ..Counters(counters::OF_TASK, &observed),
        ran_by_node: task.placement.ran_ns,
        preferred_node: placement.and_then(|placement| placement.preferred_node),
        // Read for few tasks; omitted elsewhere.
        cpus_allowed?: placement.and_then(|placement| placement.cpus_allowed.as_ref()),
        ..Counters(counters::OF_TASK_BY_KERNEL, &observed),
        unstamped: mode.exact(|| UnstampedObject { count: unstamped, total_ns: unstamped_ns }),
        ..Members(class),
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum TaskWait<'a> {
    None(&'a RawValue),
    Some(WaitObject<'a>),
}

/// Waits that the kernel's sum omits: of tasks preempted after they had set their state to sleeping. `wait` excludes them.
#[derive(Serialize)]
struct UnstampedObject {
    count: u64,
    total_ns: u64,
}

object! {
    /// C: a cgroup with its descendants. `at`: its node; `None`: all cgroups without a known path.
    CgroupObject<'a>(of: &'a IntervalObject<'a>, tree: &'a Tree, group: &'a Group, at: Option<usize>) {
        let (interval, mode) = (of.interval, of.interval.mode);
        let limits = at.and_then(|at| tree.limits(interval, at)).cloned().unwrap_or_default();
        let (observed, of_limits) = (Observed::group(group, mode), Observed::limits(&limits));
        let node = at.map(|at| &tree.nodes()[at]);
        let path = node.map(|node| &*node.path);
        let (_, named) = path.and_then(|path| interval.names.container(path)).unzip();
        let name = |one: fn(&ContainerReading) -> &Option<Arc<str>>| named.and_then(|row| one(row).as_ref());
        let ids = path.map(CgroupName::of).unwrap_or_default();
        let path_of = |node: usize| tree.nodes()[node].path.clone();
        let throttled_by = node.map_or(&[][..], |node| &node.throttled_by).iter();
        let throttled_by = throttled_by.map(|(by, ns)| LimitObject { path: by.map(path_of), ns: *ns });
        let class = of.classes.as_ref().map(|classes| {
            let (class, tasks) = match at {
                Some(at) => (classes.cgroup(*at), tree.tasks_below(*at)),
                None => {
                    let tasks = tree.tasks_unknown();
                    (classes.threads(&interval.tasks_at(tasks).collect::<Vec<_>>()), tasks)
                }
            };
            (class, classes.blocked.known_of_tasks(interval, tasks))
        });
    } => {
        path: path,
        // The name that tables show, or else the path.
        name: path.map(|path| interval.names.of(path)),
        unit: ids.unit,
        container: ids.container,
        pod_uid: ids.pod_uid,
        container_name: name(|named| &named.container),
        pod: name(|named| &named.pod),
        namespace: name(|named| &named.namespace),
        id: node.and_then(|node| node.id),
        wait: WaitObject(&group.wait, mode),
        pending: mode.exact(|| PendingObject(group)),
        usage_ns: group.totals.on_cpu_ns,
        ..Counters(counters::OF_CPU_TIMES, &observed),
        blocked: group.accounts.and_then(|accounts| accounts.blocked),
        ..Counters(counters::OF_CGROUP, &observed),
        tasks: group.processes,
        threads: group.threads,
        exited: mode.exact(|| group.exited),
        [limits] quota_us period_us burst_us weight cpus cpuset,
        mem_by_node: Some(&limits.memory_by_node).filter(|by_node| !by_node.is_empty()),
        remote_share: remote_share(&limits.memory_by_node, node.map_or(&[], |node| &node.ran)),
        effective_cores: node.and_then(|node| node.effective).map(|limit| limit.cores),
        limited_by: node.and_then(|node| node.limited_by).map(path_of),
        ..Counters(counters::OF_LIMITS, &of_limits),
        own_contention_ns: at.and_then(|at| tree.own_contention_ns(interval, at)),
        throttled_by: throttled_by.collect::<Vec<_>>(),
        culprits: culprits(node.map_or(&[], |node| &node.culprits), mode),
        ..Members(class),
    }
}

#[derive(Serialize)]
struct LimitObject {
    path: Option<Arc<str>>,
    ns: u64,
}

object! {
    /// A culprit that ran while tasks waited. `tid` and `comm` are set if the target was selected by process or thread.
    CulpritObject<'a>(culprit: &'a Culprit) => {
        [culprit] path kernel,
        tid: culprit.task.as_ref().map(|(tid, _)| tid),
        comm: culprit.task.as_ref().map(|(_, comm)| comm),
        [culprit] ns beyond_ns,
    }
}

fn culprits(culprits: &[Culprit], mode: Mode) -> Option<Vec<CulpritObject<'_>>> {
    mode.exact(|| culprits.iter().take(NAMED).map(CulpritObject).collect())
}

object! {
    /// N: a NUMA node.
    NodeObject(node: NodeGroup, mode: Mode) => {
        [node] node cpus busy_ns idle_ns ran_ns,
        wait: WaitObject(&node.wait, *mode),
        [node] contention_ns throttled_pressure_ns runnable_avg migrations_in migrations_out,
        mem_bytes: node.used_bytes,
        mem_total_bytes: node.memory_bytes,
        mem_free_bytes: node.free_bytes,
    }
}

object! {
    /// A CPU. `wait` is null if waits are not counted by CPU: see `hist -C`.
    CpuObject<'a>(cpu: &'a CpuInterval, mode: Mode) => {
        [cpu] cpu node busy_ns idle_ns,
        wait: cpu.wait.as_ref().map(|wait| WaitObject(wait, *mode)),
        [cpu] contention_ns throttled_pressure_ns,
    }
}

object! {
    MemoryObject<'a>(memory: &'a ProcessMemory, interval: &'a Interval) {
        let ran_ns = interval.ran_by_node(|task| task.tgid == memory.tgid);
    } => {
        [memory] tgid by_node policies,
        remote_share: remote_share(&memory.by_node, &ran_ns),
    }
}

object! {
    /// The JSON object of a command's run, with the findings about it on the host where it ran. Times are ns.
    #[derive(Debug)]
    pub StatObject<'a>(run: &'a CommandRun) {
        let (interval, mode) = (&run.interval, run.interval.mode);
        let total = interval.total();
        let (exit_code, signal, core_dumped) = match run.ending {
            Ending::Exited(code) => (Some(code), None, false),
            Ending::Killed { signal, dumped } => (None, Some(signal), dumped),
        };
        let throttled_by = interval.limits_of("/").into_iter().map(|(path, ns)| LimitObject { path, ns });
    } => {
        schema: "cgscope.stat/1",
        [run] command,
        [interval] start_unix_ns mode,
        exit_code: exit_code,
        signal: signal,
        core_dumped: core_dumped,
        [run] wall_ns,
        cpu: CommandCpuObject(run),
        waited_for: run.usage,
        [run] own_cgroup peak_threads peak_processes,
        sampled_every_ns: run.every_ns,
        threads_time: ThreadsTimeObject(WallTime::new(&total), run),
        [run] class,
        wait: WaitObject(&total.wait, mode),
        throttled_by: throttled_by.collect::<Vec<_>>(),
        culprits: culprits(&interval.culprits(), mode),
        quotas: run.quotas.iter().map(|held| QuotaObject(held, run)).collect::<Vec<_>>(),
        [run] outlived,
        findings: findings(interval, &run.host),
        [run] remarks,
        losses: losses(interval),
        self: interval.cost,
    }
}

object! {
    /// CPU time. `of` is `own_cgroup` (all processes that the command started) or `waited_for`.
    CommandCpuObject<'a>(run: &'a CommandRun) => {
        of: if run.cpu.is_some() { "own_cgroup" } else { "waited_for" },
        [run.cpu_use()] usage_ns user_ns system_ns,
    }
}

object! {
    /// The time of all threads: `on_cpu_ns`, `waited` and `blocked` sum to `total_ns`.
    ThreadsTimeObject<'a>(time: WallTime, run: &'a CommandRun) {
        let by_state =
            time.blocked.map(|blocked| blocked.iter().map(|(state, ns)| (state.name(), ns)).collect());
    } => {
        total_ns: time.total_ns(),
        on_cpu_ns: time.on_cpu_ns,
        waited: CauseObject(time.waited, run.interval.mode),
        own_is_the_command_alone: run.own_is_distinct,
        blocked: by_state as Option<BTreeMap<_, _>>,
        blocked_on: run.blocked_on.as_ref().map(|blocked| kinds(blocked, |_| true)),
    }
}

object! {
    /// A quota that applied to the command: the kernel's counters, and figures derived from them.
    QuotaObject<'a>(held: &'a HeldBy, run: &'a CommandRun) {
        let HeldBy { quota, others } = held;
        let [before, after, delta] = [&quota.before, &quota.after, &quota.delta].map(Observed::limits);
    } => {
        [quota] path,
        [quota.delta] quota_us period_us burst_us,
        cores: quota.delta.quota_cores(),
        before: Counters(counters::OF_QUOTA, &before),
        after: Counters(counters::OF_QUOTA, &after),
        delta: Counters(counters::OF_QUOTA, &delta),
        throttled_percent: quota.throttled_percent(),
        periods_ns: quota.periods_ns(),
        times_throttled: quota.times_throttled(run.ran_under(quota)),
        threads_held_ns: run.held_ns(quota.after.id),
        others: others,
    }
}
