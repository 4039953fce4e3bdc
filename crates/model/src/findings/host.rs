//! What concerns all that was measured.

use cgscope_layout::{Cause, Loss, look_back::KNOWN};

use super::{
    CPUS_BUSY_PERCENT, Finding, OVERSUBSCRIBED_PERCENT, Rule, UNATTRIBUTED_NS, UNATTRIBUTED_PERCENT,
    WAKEUP_MEAN_NS, WAKEUP_PERCENT, WAKEUP_WAITS,
    context::Context,
    words::{is_share, percent},
};
use crate::{Mode, Wait, sum, units};

pub(super) fn cpu_oversubscription(context: &Context) -> Option<Finding> {
    let cpus = context.host.cpus.filter(|cpus| *cpus != 0 && context.host.whole)?;
    let sums = context.total;
    let capacity_ns = context.interval.duration_ns.saturating_mul(cpus.into());
    // Whoever is out of quota could not use another CPU.
    let waited_ns = sums.waited_ns.saturating_sub(sums.by_cause.get(Cause::Throttled));
    let wanted_ns = sums.ran_ns.saturating_add(waited_ns);
    let too_many = u128::from(wanted_ns) * 100 > u128::from(capacity_ns) * u128::from(OVERSUBSCRIBED_PERCENT);
    if !too_many || !is_share(sums.ran_ns, capacity_ns, CPUS_BUSY_PERCENT) {
        return None;
    }
    let wanted = wanted_ns as f64 / context.interval.duration_ns as f64;
    // Runs that began before the interval may add up to a little more than all CPUs.
    let busy = percent(sums.ran_ns.min(capacity_ns), capacity_ns);
    Some(Finding {
        rule: Rule::CpuOversubscription,
        cgroup: None,
        says: format!(
            "on average {wanted:.1} tasks wanted to run on {}, busy for {busy} of the time: they waited {}",
            units::count(cpus.into(), "CPU"),
            units::duration(waited_ns),
        ),
        advice:
            "run less at once on this host or give it more CPUs; until then weights (cpu.weight) and quotas \
                 (cpu.max) decide who waits"
                .into(),
        lost_ns: waited_ns,
    })
}

pub(super) fn wakeup_latency(context: &Context) -> Option<Finding> {
    let sums = context.total;
    let ns = sums.by_cause.get(Cause::Wakeup);
    if !is_share(ns, sums.waited_ns, WAKEUP_PERCENT) {
        return None;
    }
    let all = context.wait();
    let waits = wakeups(&all);
    if waits < WAKEUP_WAITS || ns / waits < WAKEUP_MEAN_NS {
        return None;
    }
    let p99 = all.quantile_ns(0.99).map(|p99| format!("; the p99 of all waits is {}", units::duration(p99)));
    Some(Finding {
        rule: Rule::WakeupLatency,
        cgroup: None,
        says: format!(
            "tasks waited {} for CPUs that ran nobody, {} of all waiting: {} on average over {}{}",
            units::duration(ns),
            percent(ns, sums.waited_ns),
            units::duration(ns / waits),
            units::count(waits, "wait"),
            p99.unwrap_or_default(),
        ),
        advice: "look for deep idle states of the CPUs (cpuidle: cpupower idle-info; cpupower idle-set -D 50 leaves \
                 them out), and in a virtual machine for CPUs that its host is slow to run (steal in /proc/stat)"
            .into(),
        lost_ns: ns,
    })
}

/// How many waits were for a wakeup, each counted by that part of it.
fn wakeups(wait: &Wait) -> u64 {
    let octaves = wait.hist.octaves();
    octaves.iter().map(|octave| octave.by_cause[Cause::Wakeup as usize]).sum::<f64>().round() as u64
}

pub(super) fn unattributed(context: &Context) -> Option<Finding> {
    let sums = context.total;
    let ns = sums.by_cause.get(Cause::Unattributed);
    let is_expected = context.interval.mode == Mode::Coarse;
    if is_expected || ns < UNATTRIBUTED_NS || !is_share(ns, sums.waited_ns, UNATTRIBUTED_PERCENT) {
        return None;
    }
    let interval = context.interval;
    let living = interval.tasks.iter().map(|task| task.totals.migrations);
    let exited = interval.exited.iter().map(|exited| exited.totals.migrations);
    let migrations = sum::total(living.chain(exited));
    let out_of_runtime = match interval.losses.get(Loss::OutOfRuntime) {
        0 => String::new(),
        waits => format!(
            "; in {} a real-time or deadline task had used up its runtime",
            units::count(waits, "wait")
        ),
    };
    Some(Finding {
        rule: Rule::Unattributed,
        cgroup: None,
        says: format!(
            "the cause of {} of waiting, {} of all, is not known: it passed on another CPU before a task was moved \
             ({} in all), or longer ago than is looked back (at most {KNOWN} runs of a CPU){out_of_runtime}",
            units::duration(ns),
            percent(ns, sums.waited_ns),
            units::count(migrations, "move"),
        ),
        advice: "take the other causes for lower bounds; tasks kept on fewer CPUs (cpuset, taskset) are moved less"
            .into(),
        lost_ns: ns,
    })
}
