//! The rule about tasks that wait for busy CPUs while other CPUs are idle.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Cause, CpuInterval, TaskInterval,
    findings::{
        Context, Finding, MOST, Rule, finding, is_share,
        numa::{self, Hold, hold_of, process_words},
        part,
    },
    placement::{cpu_list, parse_cpu_list},
    sum,
    units::count,
    words::percent,
};

/// Minimum wait for busy CPUs at which a cgroup's tasks are reported: percent of their waiting and running time, and percent of
/// the interval. The busy time of CPUs has a resolution of 10 ms, so short waits say little.
const WAITED_PERCENT: u64 = 10;
const WAITED_OF_INTERVAL_PERCENT: u64 = 10;

/// Tasks of one cgroup that waited for busy CPUs and did not use the idle CPUs, all for the same reason.
pub(crate) struct Kept<'a> {
    pub node: usize,
    pub hold: Hold,
    /// The busy CPUs: all CPUs that the tasks may use. For [`Hold::Nothing`]: the CPUs where the tasks were.
    pub busy: Vec<u32>,
    pub idle: Vec<u32>,
    pub tasks: Vec<&'a TaskInterval>,
    /// Time that the tasks waited, without time at a limit, and the part for their own cgroup, ns.
    pub ns: u64,
    pub own_ns: u64,
    /// Time that the tasks ran or waited, ns.
    pub active_ns: u64,
}

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    kept(context).iter().take(MOST).map(|kept| idle_cpus_finding(context, kept)).collect()
}

/// Returns the groups of tasks to report, the longest waiting time first.
pub(super) fn kept<'a>(context: &Context<'a>) -> Vec<Kept<'a>> {
    // A CPU between the two thresholds is in neither list: it may have been idle only while no task waited.
    let cpus = |is_busy| -> Vec<u32> {
        let is_such = |cpu: &&CpuInterval| numa::is_busy(cpu.busy_ns, cpu.idle_ns) == Some(is_busy);
        context.interval.cpus.iter().filter(is_such).map(|cpu| cpu.cpu).collect()
    };
    let (busy, idle) = (cpus(true), cpus(false));
    let is_on_busy = |cpu: &u32| busy.binary_search(cpu).is_ok();
    let waits = |task: &&TaskInterval| {
        is_on_busy(&task.reading.cpu) && !task.is_bound() && task.is_busy(context.interval.duration_ns)
    };
    let mut groups = BTreeMap::<_, Vec<&TaskInterval>>::new();
    for (node, _) in context.nodes().filter(|_| !idle.is_empty()) {
        for task in context.interval.tasks_at(context.tree.tasks_of(node)).filter(waits) {
            let hold = hold_of(task, &idle);
            let allowed = task.reading.placement.as_ref().and_then(|placed| placed.cpus_allowed.as_ref());
            let allowed = allowed.filter(|_| hold != Hold::Nothing);
            groups.entry((node, hold, allowed)).or_default().push(task);
        }
    }
    let groups = groups.into_iter().map(|((node, hold, allowed), tasks)| {
        let sum = |of: fn(&TaskInterval) -> u64| sum::total(tasks.iter().map(|task| of(task)));
        let ns = sum(|task| task.wait.contended_ns());
        let own_ns = sum(|task| task.wait.by_cause.get(Cause::OwnCgroup));
        let active_ns = ns.saturating_add(sum(|task| task.totals.on_cpu_ns));
        let used: BTreeSet<u32> = tasks.iter().map(|task| task.reading.cpu).collect();
        let allowed = allowed.map(|allowed| parse_cpu_list(allowed).unwrap_or_default());
        let busy = allowed.unwrap_or_else(|| used.into_iter().collect());
        Kept { node, hold, busy, idle: idle.clone(), tasks, ns, own_ns, active_ns }
    });
    let is_reported = |kept: &Kept| {
        // If one of the allowed CPUs is not busy, the affinity mask is not the reason for the waiting.
        kept.hold != Hold::Unknown
            && kept.busy.iter().all(is_on_busy)
            && is_share(kept.ns, kept.active_ns, WAITED_PERCENT)
            && is_share(kept.ns, context.interval.duration_ns, WAITED_OF_INTERVAL_PERCENT)
    };
    let mut groups: Vec<_> = groups.filter(is_reported).collect();
    if !groups.is_empty() {
        // The finding about the whole node is more informative.
        let full = numa::node_skew(context).map(|(_, full)| full);
        groups.retain(|kept| full.is_none() || kept.tasks.iter().any(|task| task.reading.node != full));
    }
    groups.sort_by_key(|kept| (Reverse(kept.ns), kept.node));
    groups
}

fn idle_cpus_finding(context: &Context, kept: &Kept) -> Finding {
    let Kept { busy, idle, tasks, .. } = kept;
    let named = |cpus: &[u32]| format!("{} {}", if cpus.len() == 1 { "CPU" } else { "CPUs" }, cpu_list(cpus));
    let (on_busy, on_idle) = (named(busy), named(idle));
    let time = |cpus: &[u32]| {
        let cpus = context.interval.cpus.iter().filter(|cpu| cpus.contains(&cpu.cpu));
        let busy_ns = sum::total(cpus.clone().filter_map(|cpu| cpu.busy_ns));
        (busy_ns, sum::total(cpus.filter_map(|cpu| cpu.idle_ns)))
    };
    let ((busy_ns, rest_ns), (other_ns, idle_ns)) = (time(busy), time(idle));
    let was_busy = percent(busy_ns, busy_ns.saturating_add(rest_ns));
    let was_idle = percent(idle_ns, idle_ns.saturating_add(other_ns));
    let threads = count(tasks.len() as u64, "busy thread");
    let waited = part(kept.ns, kept.active_ns, "their run and wait time");
    let (were, those) = if idle.len() == 1 { ("was", "CPU") } else { ("were", "CPUs") };
    let mut all: Vec<u32> = busy.iter().chain(idle).copied().collect();
    all.sort_unstable();
    let all = cpu_list(&all);
    let pid = tasks.iter().max_by_key(|task| task.wait.total_ns).map_or(0, |task| task.reading.tgid);
    let who = process_words(context.interval, pid);
    let may = |by: &str| {
        format!(
            "its {threads} may only run on {on_busy} ({by}), busy {was_busy} of the time, while {on_idle} {were} idle {was_idle} of \
             the time; they waited {waited}"
        )
    };
    let (says, advice, action) = match &kept.hold {
        Hold::Mask => (
            may("affinity mask"),
            format!(
                "let {who} use more CPUs (taskset -acp {all} {pid}), unless {on_idle} {were} kept free on purpose"
            ),
            format!("let it use more CPUs (taskset -acp {all} {pid})"),
        ),
        Hold::Cpuset { path, cpus } => {
            let name = context.interval.names.of(path);
            (
                may(&format!("cpuset.cpus {cpus} of {name}")),
                format!(
                    "let {name} use more CPUs (cpuset.cpus {all}), unless {on_idle} {were} kept free on purpose"
                ),
                format!("let {name} use more CPUs (cpuset.cpus {all})"),
            )
        }
        Hold::Nothing | Hold::Unknown => (
            format!(
                "its {threads} waited {waited} on {on_busy}, busy {was_busy} of the time, although no mask and no cpuset keeps them \
                 from {on_idle}, idle {was_idle} of the time"
            ),
            format!(
                "check whether {on_idle} {} isolated (/sys/devices/system/cpu/isolated, cpuset.cpus.partition), and which tasks \
                 wake the threads",
                if idle.len() == 1 { "is" } else { "are" },
            ),
            format!("check whether the idle {those} are isolated (/sys/devices/system/cpu/isolated)"),
        ),
    };
    let what = format!("waits for {on_busy} while {on_idle} {were} idle");
    let short = (what, format!("{threads}, waiting {}", context.rate(kept.ns)), action);
    finding(Rule::IdleCpus, Some(context.path(kept.node)), kept.ns, short, says, advice)
}
