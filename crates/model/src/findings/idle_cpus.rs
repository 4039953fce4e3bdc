//! The rule about tasks that wait for busy CPUs while other CPUs are idle.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{
    Cause, CpuInterval, TaskInterval, TaskReading,
    findings::{
        Context, Finding, MOST, POLLER, Rule, finding, is_share,
        numa::{self, Hold, hold_of, process_words},
        part, poller,
    },
    placement::{cpu_list, parse_cpu_list},
    sum,
    units::{count, cpus},
    words::percent,
};

/// Minimum wait for busy CPUs at which a cgroup's tasks are reported: percent of their waiting and running time, and percent of
/// the interval. The busy time of CPUs has a resolution of 10 ms, so short waits say little.
pub(super) const WAITED_PERCENT: u64 = 10;
pub(super) const WAITED_OF_INTERVAL_PERCENT: u64 = 10;

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
    let isolated: BTreeSet<u32> =
        context.interval.cpus.iter().filter(|cpu| cpu.is_isolated).map(|cpu| cpu.cpu).collect();
    // An isolated CPU is kept free on purpose from tasks that may not use it.
    let idle_for = |allowed: Option<&Arc<str>>| -> Vec<u32> {
        let allowed = if isolated.is_empty() { None } else { allowed.and_then(|cpus| parse_cpu_list(cpus)) };
        let is_meant = |cpu: &u32| {
            !isolated.contains(cpu) || allowed.as_ref().is_some_and(|allowed| allowed.contains(cpu))
        };
        idle.iter().copied().filter(is_meant).collect()
    };
    let mut groups = BTreeMap::<_, Vec<&TaskInterval>>::new();
    for (node, _) in context.nodes().filter(|_| !idle.is_empty()) {
        for task in context.interval.tasks_at(context.tree.tasks_of(node)).filter(waits) {
            let allowed = task.reading.placement.as_ref().and_then(|placed| placed.cpus_allowed.as_ref());
            let idle = idle_for(allowed);
            if idle.is_empty() {
                continue;
            }
            let hold = hold_of(task, &idle);
            let allowed = allowed.filter(|_| hold != Hold::Nothing);
            groups.entry((node, hold, allowed, idle)).or_default().push(task);
        }
    }
    let groups = groups.into_iter().map(|((node, hold, allowed, idle), tasks)| {
        let sum = |of: fn(&TaskInterval) -> u64| sum::total(tasks.iter().map(|task| of(task)));
        let ns = sum(|task| task.wait.contended_ns());
        let own_ns = sum(|task| task.wait.by_cause.get(Cause::OwnCgroup));
        let active_ns = ns.saturating_add(sum(|task| task.totals.on_cpu_ns));
        let used: BTreeSet<u32> = tasks.iter().map(|task| task.reading.cpu).collect();
        let allowed = allowed.map(|allowed| parse_cpu_list(allowed).unwrap_or_default());
        let busy = allowed.unwrap_or_else(|| used.into_iter().collect());
        Kept { node, hold, busy, idle, tasks, ns, own_ns, active_ns }
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
    let were = if idle.len() == 1 { "was" } else { "were" };
    let mut all: Vec<u32> = busy.iter().chain(idle).copied().collect();
    all.sort_unstable();
    let all = cpu_list(&all);
    let Processes { who, short, command, inherited } = Processes::of(context, tasks, &all);
    let short_command = format!("taskset -acp {all} PID");
    let may = |by: &str| {
        format!(
            "its {threads} may only run on {on_busy} ({by}), busy {was_busy} of the time, while {on_idle} {were} idle {was_idle} of \
             the time; they waited {waited}"
        )
    };
    let unless = format!("unless {on_idle} {were} kept free on purpose");
    let (mut says, mut advice, mut action) = match &kept.hold {
        Hold::Mask => (
            may("affinity mask"),
            format!("let {who} use more CPUs ({command}), {unless}{inherited}"),
            format!("let {short} use more CPUs ({short_command})"),
        ),
        Hold::Cpuset { path, cpus } => {
            let name = context.interval.names.of(path);
            (
                may(&format!("cpuset.cpus {cpus} of {name}")),
                format!("let {name} use more CPUs (cpuset.cpus {all}), {unless}"),
                format!("let {name} use more CPUs (cpuset.cpus {all})"),
            )
        }
        Hold::Nothing | Hold::Unknown => {
            let (advice, action) = not_balanced(context, kept, &on_idle);
            (
                format!(
                    "its {threads} waited {waited} on {on_busy}, busy {was_busy} of the time, although no mask and no cpuset keeps \
                     them from {on_idle}, idle {was_idle} of the time"
                ),
                advice,
                action,
            )
        }
    };
    if let Some(poller) = poller(context, tasks.iter().copied()) {
        let TaskReading { comm, tid, cpu, .. } = &poller.reading;
        says += &format!("; {comm} (thread {tid}) polls an io_uring on CPU {cpu}");
        advice = format!("{POLLER}; or {advice}");
        action = format!("give the poller {comm} a CPU of its own (sq_thread_cpu)");
    }
    let quota = context.tree.nodes()[kept.node].effective;
    let cpus_wanted = tasks.len().min(busy.len() + idle.len()) as f64;
    let binds_next =
        |cores: f64| cores < cpus_wanted && cores <= busy.len() as f64 && kept.hold != Hold::Nothing;
    if let Some(quota) = quota.filter(|quota| binds_next(quota.cores)) {
        let (by, cores) = (context.interval.names.of(context.path(quota.node)), cpus(quota.cores));
        let enough = (busy.len() as u64).min(quota.cores.ceil() as u64).max(1);
        let fewer = format!("start at most {}", count(enough, "thread"));
        advice = format!(
            "{fewer}, or change two limits: {advice}; and raise the quota of {by}, because more CPUs alone gain nothing with {cores}"
        );
        let other = if matches!(kept.hold, Hold::Mask) { "the mask" } else { "cpuset.cpus" };
        action = format!("{fewer}, or change both {other} and the quota ({cores})");
    }
    let what = format!("waits for {on_busy} while {on_idle} {were} idle");
    let amount = format!("{}, {}", count(tasks.len() as u64, "thread"), context.rate(kept.ns));
    let short = (what, amount, action);
    finding(Rule::IdleCpus, Some(context.path(kept.node)), kept.ns, short, says, advice)
}

/// How advice about the mask of some tasks names their processes.
struct Processes {
    who: String,
    short: String,
    /// The command that lets all of them use the CPUs.
    command: String,
    /// A clause on the process from which they may have inherited the mask.
    inherited: String,
}

/// Maximum number of processes or threads that are listed.
const LISTED: usize = 8;

impl Processes {
    /// `all`: the CPUs that the tasks should use.
    fn of(context: &Context, tasks: &[&TaskInterval], all: &str) -> Self {
        let interval = context.interval;
        let pids: BTreeSet<u32> = tasks.iter().map(|task| task.reading.tgid).collect();
        let parent_of = |task: &&TaskInterval| task.reading.placement.as_deref()?.parent;
        let parent = tasks.first().and_then(parent_of);
        // The parent of a process whose creator has exited is usually process 1.
        let is_creator = |pid: &u32| {
            *pid != 1
                && !pids.contains(pid)
                && tasks.iter().all(|task| parent_of(task) == parent)
                && !interval.process_name(*pid).is_empty()
        };
        let inherited = parent.filter(is_creator);
        let inherited = inherited.map_or_else(String::new, |pid| {
            let parent = process_words(interval, pid);
            format!("; a mask is inherited: check {parent}, which started them, too (taskset -cp {pid})")
        });
        if pids.len() == 1 {
            let pid = tasks[0].reading.tgid;
            let command = format!("taskset -acp {all} {pid}");
            return Self { who: process_words(interval, pid), short: "it".into(), command, inherited };
        }
        let who = format!("all {}", count(pids.len() as u64, "process"));
        let list = pids.iter().map(u32::to_string).take(LISTED).collect::<Vec<_>>().join(" ");
        let more = if pids.len() > LISTED { ", and so on" } else { "" };
        let command = format!("for pid in {list}; do taskset -acp {all} $pid; done{more}");
        Self { short: who.clone(), who, command, inherited }
    }
}

/// What to do where nothing but the scheduler keeps tasks on busy CPUs.
fn not_balanced(context: &Context, kept: &Kept, on_idle: &str) -> (String, String) {
    let is_isolated = |cpu: &&CpuInterval| {
        cpu.is_isolated && (kept.busy.contains(&cpu.cpu) || kept.idle.contains(&cpu.cpu))
    };
    let isolated: Vec<u32> = context.interval.cpus.iter().filter(is_isolated).map(|cpu| cpu.cpu).collect();
    if isolated.is_empty() {
        return (
            format!(
                "check whether a cpuset switches load balancing off for {on_idle} (v1 cpuset.sched_load_balance), and which tasks wake \
                 the threads"
            ),
            "check whether load balancing is off there (cpuset.sched_load_balance)".into(),
        );
    }
    let (cpus, tids) = (cpu_list(&isolated), kept.tasks.iter().map(|task| task.reading.tid.to_string()));
    let tids = tids.take(LISTED).collect::<Vec<_>>().join(", ");
    (
        format!(
            "CPUs {cpus} are isolated, so the kernel does not spread tasks over them: give each thread a CPU of its own (taskset -cp \
             CPU TID, for {tids}), or leave these CPUs out of the mask"
        ),
        format!("CPUs {cpus} are isolated: give each thread a CPU of its own (taskset -cp CPU TID)"),
    )
}
