//! The rule about tasks that have been waiting for very long. No other figure of the interval includes their pending waits.

use std::{cmp::Reverse, ops::RangeInclusive};

use cgscope_ledger::Cause;
use itertools::Itertools;

use crate::{
    TaskInterval, TaskReading,
    causes::{Shown, shown},
    findings::{Context, Finding, MOST, Rule, finding, quota},
    sum,
    units::{count, duration},
    words::{QUOTA_FILE, percent},
};

/// A task is starved if it has waited for more than this time, and for more than this share of the interval, percent. Even a busy
/// CPU runs each task several times a second. A wait that takes a smaller part of a long interval usually ends soon.
pub(super) const STARVED_NS: u64 = 1_000_000_000;
pub(super) const STARVED_PERCENT: u64 = 50;

/// Kernels that place the running entity again when its weight changes; distributions may have mended theirs.
const FAULTY: RangeInclusive<(u32, u32, u32)> = (6, 13, 0)..=(6, 18, 44);

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let findings = context.nodes().filter_map(|(node, _)| starved(context, node));
    findings.sorted_by_key(|finding| Reverse(finding.lost_ns)).take(MOST).collect()
}

/// Reports the task of a cgroup that has waited longest.
fn starved(context: &Context, node: usize) -> Option<Finding> {
    let interval = context.interval;
    let least_ns =
        STARVED_NS.max((u128::from(interval.duration_ns) * u128::from(STARVED_PERCENT) / 100) as u64);
    let waits = || {
        let tasks = interval.tasks_at(context.tree.tasks_of(node));
        let pending = tasks.filter_map(|task| Some((task, task.reading.pending.as_deref()?)));
        pending.filter(|(_, pending)| pending.ns > least_ns)
    };
    let (task, pending) = waits().max_by_key(|(_, pending)| pending.ns)?;
    let of = |cause: &Cause| pending.by_cause.get(*cause);
    let known = Cause::ALL.iter().filter(|cause| **cause != Cause::Unattributed && of(cause) != 0);
    let cause = known.copied().max_by_key(of).unwrap_or(Cause::Unattributed);
    if cause == Cause::Throttled && quota::is_throttled(context, node) {
        // The finding about the quota is more informative.
        return None;
    }
    let Shown { starved: why, behind, .. } = shown(cause);
    let (cause_ns, unknown_ns) = (of(&cause), of(&Cause::Unattributed));
    let why = if cause != Cause::Unattributed && unknown_ns > cause_ns {
        // The known part is the latest part of the wait, because cgscope started after the wait began.
        let known_ns = pending.ns.saturating_sub(unknown_ns);
        format!(
            "{} of the last {} {why} (before that nobody watched it, or the cause is unknown)",
            percent(cause_ns, known_ns),
            duration(known_ns)
        )
    } else {
        format!("{} of this {why}", percent(cause_ns, pending.ns))
    };
    // The task that ran most on the CPU for which `task` waits.
    let there = interval.tasks.iter().filter(|other| other.reading.cpu == task.reading.cpu);
    let ran = there.filter(|other| other.totals.on_cpu_ns != 0).max_by_key(|other| other.totals.on_cpu_ns);
    let behind = ran.filter(|_| behind.is_some_and(|behind| behind.is_task));
    let behind_words = behind.map_or_else(String::new, |ran| {
        let path = interval.cgroup_path(ran.reading.cgroup_id);
        let of = path.map_or_else(String::new, |path| format!(" of {}", interval.names.of(path)));
        format!("; {} (thread {}){of} ran most there", ran.reading.comm, ran.reading.tid)
    });
    let more = match waits().count() as u64 - 1 {
        0 => String::new(),
        more => format!("; {} of the cgroup also waited that long", count(more, "other thread")),
    };
    let TaskReading { comm, tid, cpu, .. } = &task.reading;
    let is_queued = matches!(cause, Cause::OwnCgroup | Cause::OtherCgroup)
        && behind.is_none_or(|ran| ran.realtime().is_none());
    let faulty = context.host.kernel.filter(|kernel| is_queued && FAULTY.contains(kernel));
    let faulty = faulty.map_or("", |_| {
        "; Linux 6.13 to 6.18.44 may misplace tasks when weights change (reweight_entity), and others then starve for seconds: try a \
         newer kernel"
    });
    let says = format!(
        "its thread {tid} ({comm}) has waited {} for CPU {cpu} and still waits, {why}{behind_words}{more}{faulty}",
        duration(pending.ns),
    );
    let (action, advice) = actions(cause, &task.reading, behind);
    let amount = format!("{comm} waits for {} so far", duration(pending.ns));
    let short = ("has a task that gets no CPU time", amount, action);
    let ns = sum::total(waits().map(|(_, pending)| pending.ns.min(interval.duration_ns)));
    Some(finding(Rule::Starved, Some(context.path(node)), ns, short, says, advice))
}

/// Returns the short and the long form of the advice. `behind`: the task that ran on the CPU.
fn actions(cause: Cause, waiting: &TaskReading, behind: Option<&TaskInterval>) -> (&'static str, String) {
    let TaskReading { tid, cpu, .. } = waiting;
    let realtime = behind.and_then(|ran| Some((ran.realtime()?, ran.reading.tid)));
    match (cause, realtime) {
        (Cause::Throttled, _) => ("raise its limit (cpu.max)", format!("raise its limit ({QUOTA_FILE})")),
        (Cause::RtThrottled, _) => (
            "raise its runtime, or let it sleep",
            "raise the runtime (cpu.rt_runtime_us, the sysctl kernel.sched_rt_runtime_us, or chrt --deadline --sched-runtime), or \
             find out why the task runs for so long"
                .into(),
        ),
        (_, Some((policy, by))) => (
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
                "check the kernel log for stalls of CPU {cpu} (dmesg: soft lockup, RCU stall), and let the thread use other CPUs \
                 (taskset -cp LIST {tid})"
            ),
        ),
    }
}
