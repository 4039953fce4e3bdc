//! The rule about tasks that wait for busy CPUs while other CPUs are idle.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Context, Finding, MOST, is_share,
    numa::{self, Hold, NODE_BUSY_PERCENT, NODE_IDLE_PERCENT, hold_of},
};
use crate::{CpuInterval, TaskInterval, placement::parse_cpu_list, sum, words::findings as words};

/// Tasks of a cgroup are reported if they waited for busy CPUs for this share of their waiting and running time, percent, and for
/// this share of the interval, percent. The busy time of CPUs is known in steps of 10 ms, so short waits say little.
const WAITED_PERCENT: u64 = 10;
const WAITED_OF_INTERVAL_PERCENT: u64 = 10;

/// Tasks of a cgroup that waited for busy CPUs, with the same reason not to use the idle ones.
pub(crate) struct Kept<'a> {
    pub node: usize,
    pub hold: Hold,
    /// The busy CPUs: all CPUs that the tasks may use, or for [`Hold::Nothing`] the CPUs where they were.
    pub busy: Vec<u32>,
    pub idle: &'a [u32],
    pub tasks: Vec<&'a TaskInterval>,
    /// How long the tasks waited behind others, and the part behind their own cgroup, ns.
    pub ns: u64,
    pub own_ns: u64,
    /// How long they ran or waited, ns.
    pub active_ns: u64,
}

/// The CPUs of an interval by use.
#[derive(Default)]
pub(super) struct Cpus {
    busy: BTreeSet<u32>,
    /// Ascending.
    idle: Vec<u32>,
}

impl Cpus {
    /// A CPU between the two thresholds is in neither list: it may have been idle only while nobody waited.
    pub fn new(context: &Context) -> Self {
        let is = |cpu: &CpuInterval, part: fn(u64, u64) -> bool| {
            cpu.busy_ns.zip(cpu.idle_ns).is_some_and(|(busy_ns, idle_ns)| part(busy_ns, idle_ns))
        };
        let is_busy = |busy_ns: u64, idle_ns: u64| {
            is_share(busy_ns, busy_ns.saturating_add(idle_ns), NODE_BUSY_PERCENT)
        };
        let is_idle = |busy_ns: u64, idle_ns: u64| {
            is_share(idle_ns, busy_ns.saturating_add(idle_ns), 100 - NODE_IDLE_PERCENT)
        };
        let those = |part| context.interval.cpus.iter().filter(move |cpu| is(cpu, part)).map(|cpu| cpu.cpu);
        Self { busy: those(is_busy).collect(), idle: those(is_idle).collect() }
    }
}

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let cpus = Cpus::new(context);
    kept(context, &cpus).iter().take(MOST).map(|kept| words::idle_cpus(context, kept)).collect()
}

/// The groups of tasks to report, those that waited most first.
pub(super) fn kept<'a>(context: &Context<'a>, cpus: &'a Cpus) -> Vec<Kept<'a>> {
    let waits = |task: &&TaskInterval| {
        cpus.busy.contains(&task.reading.cpu)
            && !task.is_bound()
            && task.is_busy(context.interval.duration_ns)
    };
    let mut groups: BTreeMap<(usize, Hold, Option<&Arc<str>>), Kept> = BTreeMap::new();
    for (node, _) in context.nodes().filter(|_| !cpus.idle.is_empty()) {
        let tasks = context.tree.tasks_of(node).iter().map(|at| &context.interval.tasks[*at]);
        for task in tasks.filter(waits) {
            let hold = hold_of(task, &cpus.idle);
            let allowed =
                task.reading.placement.as_ref().and_then(|placement| placement.cpus_allowed.as_ref());
            let allowed = allowed.filter(|_| hold != Hold::Nothing);
            let group = groups.entry((node, hold.clone(), allowed)).or_insert_with(|| Kept {
                node,
                hold,
                busy: allowed.and_then(|allowed| parse_cpu_list(allowed)).unwrap_or_default(),
                idle: &cpus.idle,
                tasks: Vec::new(),
                ns: 0,
                own_ns: 0,
                active_ns: 0,
            });
            let by_cause = task.wait.by_cause;
            let waited_ns = task.wait.total_ns.saturating_sub(by_cause.limited_ns());
            let own_ns = by_cause.get(cgscope_layout::Cause::OwnCgroup);
            sum::add(&mut group.ns, waited_ns);
            sum::add(&mut group.own_ns, own_ns);
            sum::add(&mut group.active_ns, waited_ns.saturating_add(task.totals.on_cpu_ns));
            group.tasks.push(task);
        }
    }
    let mut groups: Vec<Kept> =
        groups.into_values().filter(|kept| is_reported(context, cpus, kept)).collect();
    for kept in groups.iter_mut().filter(|kept| kept.hold == Hold::Nothing) {
        kept.busy =
            kept.tasks.iter().map(|task| task.reading.cpu).collect::<BTreeSet<_>>().into_iter().collect();
    }
    if !groups.is_empty() {
        // A finding about the whole node says more.
        let full = numa::node_skew(context).map(|(_, full)| full);
        groups.retain(|kept| full.is_none() || kept.tasks.iter().any(|task| task.reading.node != full));
    }
    groups.sort_by_key(|kept| (Reverse(kept.ns), kept.node));
    groups
}

fn is_reported(context: &Context, cpus: &Cpus, kept: &Kept) -> bool {
    // If one of the allowed CPUs is not busy, the mask is not what keeps the tasks.
    let is_full = kept.hold == Hold::Nothing || kept.busy.iter().all(|cpu| cpus.busy.contains(cpu));
    kept.hold != Hold::Unknown
        && is_full
        && is_share(kept.ns, kept.active_ns, WAITED_PERCENT)
        && is_share(kept.ns, context.interval.duration_ns, WAITED_OF_INTERVAL_PERCENT)
}
