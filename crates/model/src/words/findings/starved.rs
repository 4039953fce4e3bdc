//! The text about tasks that wait for very long.

use cgscope_layout::Cause;

use super::{Rule, Short, about, finding};
use crate::{
    findings::{Context, Finding, Starved},
    units::{count, duration},
    words::{QUOTA_FILE, percent},
};

pub(crate) fn starved(context: &Context, starved: &Starved) -> Finding {
    let Starved { task, pending, cause, .. } = starved;
    let (cpu, tid) = (task.reading.cpu, task.reading.tid);
    let why = match cause {
        Cause::Throttled => "while it was out of quota",
        Cause::RtThrottled => "because its real-time or deadline runtime is used up",
        Cause::OwnCgroup => "behind its own cgroup",
        Cause::OtherCgroup => "behind other cgroups",
        Cause::Kernel => "behind kernel threads",
        Cause::Irq => "behind interrupts",
        Cause::Stolen => "for the hypervisor",
        Cause::Wakeup => "while its CPU ran nothing",
        Cause::Unattributed => "for an unknown cause",
    };
    let is_behind = matches!(cause, Cause::OwnCgroup | Cause::OtherCgroup | Cause::Kernel);
    let runs = starved.runs.filter(|_| is_behind).map_or_else(String::new, |runs| {
        let path = context.interval.cgroup_path(runs.reading.cgroup_id);
        let path = path.map_or_else(String::new, |path| format!(" of {}", context.interval.names.of(path)));
        format!("; {} (thread {}){path} ran most there", runs.reading.comm, runs.reading.tid)
    });
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

/// The short and the long form of the advice.
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
        (Cause::OwnCgroup | Cause::OtherCgroup | Cause::Kernel, Some((policy, by))) => (
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
