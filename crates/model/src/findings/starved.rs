//! The rule about tasks that have been waiting for very long. No other figure of the interval includes their pending waits.

use std::cmp::Reverse;

use cgscope_ledger::Cause;

use crate::{
    Pending, TaskInterval,
    causes::{Shown, shown},
    findings::{Context, Finding, MOST, Rule, Short, about, finding, quota},
    sum,
    units::{count, duration},
    words::{QUOTA_FILE, percent},
};

/// A task is starved if it has waited for more than this time, and for more than this share of the interval, percent. Even on a
/// busy CPU, a scheduler runs each task several times a second. A wait that takes a smaller part of a long interval usually ends
/// soon.
const STARVED_NS: u64 = 1_000_000_000;
const STARVED_PERCENT: u64 = 50;

pub(crate) struct Starved<'a> {
    pub node: usize,
    /// The task that has waited longest.
    pub task: &'a TaskInterval,
    pub pending: &'a Pending,
    /// The cause of most of the task's wait, as far as known.
    pub cause: Cause,
    /// The part of the wait with a known cause, ns; set if the unattributed part is longer than the part due to `cause`. The
    /// known part is the latest part of the wait, because cgscope started after the wait began.
    pub known_ns: Option<u64>,
    /// The task that ran most on the CPU for which `task` waits, as far as known.
    pub runs: Option<&'a TaskInterval>,
    pub tasks: u64,
    /// Waiting time of the starved tasks in this interval, ns.
    pub ns: u64,
}

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let starved = context.nodes().filter_map(|(node, _)| starved(context, node));
    // The finding about the quota is more informative.
    let is_new =
        |starved: &Starved| starved.cause != Cause::Throttled || !quota::is_throttled(context, starved.node);
    let mut starved: Vec<_> = starved.filter(is_new).collect();
    starved.sort_by_key(|starved| (Reverse(starved.ns), starved.node));
    starved.iter().take(MOST).map(|starved| starved_finding(context, starved)).collect()
}

fn starved<'a>(context: &Context<'a>, node: usize) -> Option<Starved<'a>> {
    let interval = context.interval;
    let least_ns =
        STARVED_NS.max((u128::from(interval.duration_ns) * u128::from(STARVED_PERCENT) / 100) as u64);
    let waits = |at: &usize| {
        let task = &interval.tasks[*at];
        task.reading.pending.as_deref().filter(|pending| pending.ns > least_ns).map(|pending| (task, pending))
    };
    let waits = || context.tree.tasks_of(node).iter().filter_map(waits);
    let (task, pending) = waits().max_by_key(|(_, pending)| pending.ns)?;
    let of = |cause: &Cause| pending.by_cause.get(*cause);
    let known = Cause::ALL.iter().filter(|cause| **cause != Cause::Unattributed && of(cause) != 0);
    let known_ns = pending.ns.saturating_sub(of(&Cause::Unattributed));
    let cause = known.copied().max_by_key(of).unwrap_or(Cause::Unattributed);
    let is_partly_known = of(&Cause::Unattributed) > of(&cause) && cause != Cause::Unattributed;
    let known_ns = is_partly_known.then_some(known_ns);
    let there = interval.tasks.iter().filter(|other| other.reading.cpu == task.reading.cpu);
    let runs = there.filter(|other| other.totals.on_cpu_ns != 0).max_by_key(|other| other.totals.on_cpu_ns);
    let ns = sum::total(waits().map(|(_, pending)| pending.ns.min(interval.duration_ns)));
    Some(Starved { node, task, pending, cause, known_ns, runs, tasks: waits().count() as u64, ns })
}

fn starved_finding(context: &Context, starved: &Starved) -> Finding {
    let Starved { task, pending, cause, .. } = starved;
    let (cpu, tid) = (task.reading.cpu, task.reading.tid);
    let Shown { starved: why, behind, .. } = shown(*cause);
    let runs = starved.runs.filter(|_| behind.is_some_and(|behind| behind.is_task)).map_or_else(
        String::new,
        |runs| {
            let path = context.interval.cgroup_path(runs.reading.cgroup_id);
            let path =
                path.map_or_else(String::new, |path| format!(" of {}", context.interval.names.of(path)));
            format!("; {} (thread {}){path} ran most there", runs.reading.comm, runs.reading.tid)
        },
    );
    let more = match starved.tasks - 1 {
        0 => String::new(),
        more => format!("; {} of the cgroup also waited that long", count(more, "other thread")),
    };
    let cause_ns = pending.by_cause.get(*cause);
    let why = match starved.known_ns {
        None => format!("{} of this {why}", percent(cause_ns, pending.ns)),
        Some(ns) => format!(
            "{} of the last {} {why} (before that nobody watched it, or the cause is unknown)",
            percent(cause_ns, ns),
            duration(ns)
        ),
    };
    let says = format!(
        "its thread {tid} ({}) has waited {} for CPU {cpu} and still waits, {why}{runs}{more}",
        task.reading.comm,
        duration(pending.ns),
    );
    let (action, advice) = actions(starved);
    let short = Short::new(
        "has a task that gets no CPU time",
        format!("{} waits for {} so far", task.reading.comm, duration(pending.ns)),
        action,
    );
    about(context.path(starved.node), finding(Rule::Starved, starved.ns, short, says, advice))
}

/// Returns the short and the long form of the advice.
fn actions(starved: &Starved) -> (&'static str, String) {
    let tid = starved.task.reading.tid;
    let realtime = starved.runs.and_then(|runs| Some((runs.realtime()?, runs.reading.tid)));
    match (starved.cause, realtime) {
        (Cause::Throttled, _) => ("raise its limit (cpu.max)", format!("raise its limit ({QUOTA_FILE})")),
        (Cause::RtThrottled, _) => (
            "raise its runtime, or let it sleep",
            "raise the runtime (cpu.rt_runtime_us, the sysctl kernel.sched_rt_runtime_us, or chrt --deadline --sched-runtime), or \
             find out why the task runs for so long"
                .into(),
        ),
        (cause, Some((policy, by))) if shown(cause).behind.is_some_and(|behind| behind.is_task) => (
            "give the real-time task on its CPU an ordinary policy (chrt -o)",
            format!(
                "the task that runs is a real-time task ({policy}): give it an ordinary policy (chrt -o -p 0 {by}), or let the \
                 waiting thread use other CPUs (taskset -cp LIST {tid})"
            ),
        ),
        (Cause::OwnCgroup, _) => (
            "let it use other CPUs, or give it a higher priority (renice)",
            format!("let the thread use other CPUs (taskset -cp LIST {tid}), or give it a higher priority (renice -n -5 -p {tid})"),
        ),
        (Cause::OtherCgroup, _) => (
            "let it use other CPUs, or raise its cpu.weight",
            format!(
                "let the thread use other CPUs (taskset -cp LIST {tid}), or give its cgroup a higher cpu.weight (in v1 cpu.shares)"
            ),
        ),
        _ => (
            "check the kernel log for stalls of its CPU (dmesg)",
            format!(
                "check the kernel log for stalls of CPU {} (dmesg: soft lockup, RCU stall), and let the thread use other CPUs \
                 (taskset -cp LIST {tid})",
                starved.task.reading.cpu
            ),
        ),
    }
}
