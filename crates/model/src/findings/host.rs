//! Rules about all measured tasks together.

use cgscope_ledger::{Cause, Loss};

use crate::{
    Mode, Wait,
    findings::{Context, Finding, Rule, finding, is_much, is_share, part},
    units::{count, duration},
    words::percent,
};

/// A host is oversubscribed if more tasks run or wait per CPU on average, percent. Some waiting is normal on a busy host.
pub(super) const OVERSUBSCRIBED_PERCENT: u64 = 120;
/// If the CPUs are less busy than this, percent, the host has enough CPUs but its tasks are badly spread.
pub(super) const CPUS_BUSY_PERCENT: u64 = 90;
/// Wakeups are slow if three conditions hold. They take at least this share of all waiting, percent. They take at least this long
/// on average, ns: CPUs leave shallow idle states within some microseconds. Their number is at least this: fewer may be chance.
pub(super) const WAKEUP_PERCENT: u64 = 20;
pub(super) const WAKEUP_MEAN_NS: u64 = 50_000;
pub(super) const WAKEUP_WAITS: u64 = 100;
/// Minimum waiting with one of the other causes for a finding: share of all waiting, percent, and total, ns.
pub(super) const CAUSE_PERCENT: u64 = 5;
pub(super) const CAUSE_NS: u64 = 10_000_000;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let rules = [cpu_oversubscription, wakeup_latency, interrupts, stolen_time, unattributed];
    let mut findings = real_time_limits(context);
    findings.extend(rules.iter().filter_map(|rule| rule(context)));
    findings
}

/// Reports that more tasks run and wait than the CPUs can serve. `None` for a selection.
pub(super) fn cpu_oversubscription(context: &Context) -> Option<Finding> {
    let cpus = context.host.cpus.filter(|cpus| *cpus != 0 && context.host.whole)?;
    let (sums, duration_ns) = (context.total, context.interval.duration_ns);
    let capacity_ns = duration_ns.saturating_mul(cpus.into());
    // A task at its limit could not use another CPU.
    let waited_ns = sums.waited_ns().saturating_sub(sums.by_cause.limited_ns());
    let wanted_ns = sums.on_cpu_ns.saturating_add(waited_ns);
    let too_many = u128::from(wanted_ns) * 100 > u128::from(capacity_ns) * u128::from(OVERSUBSCRIBED_PERCENT);
    if !too_many || !is_share(sums.on_cpu_ns, capacity_ns, CPUS_BUSY_PERCENT) {
        return None;
    }
    let (wanted, cpus) = (wanted_ns as f64 / duration_ns as f64, count(cpus.into(), "CPU"));
    // A run that began before the interval may raise the sum slightly above the time of all CPUs.
    let busy = percent(sums.on_cpu_ns.min(capacity_ns), capacity_ns);
    let says = format!(
        "on average {wanted:.1} tasks wanted to run on {cpus}; the CPUs were busy {busy} of the time, and tasks waited {}",
        duration(waited_ns),
    );
    let advice = "run fewer tasks at once on this host, or add CPUs; until then, weights (cpu.weight) and quotas (cpu.max) \
                  decide who waits";
    let amount = format!("{wanted:.1} tasks want {cpus}, waiting {}", context.rate(waited_ns));
    let short = ("the host has too few CPUs", amount, "run fewer tasks at once on this host, or add CPUs");
    Some(finding(Rule::CpuOversubscription, None, waited_ns, short, says, advice))
}

fn wakeup_latency(context: &Context) -> Option<Finding> {
    let (ns, waited_ns) = (context.total.by_cause.get(Cause::Wakeup), context.total.waited_ns());
    if !is_share(ns, waited_ns, WAKEUP_PERCENT) {
        return None;
    }
    let mut all = Wait::default();
    context.groups().for_each(|group| all.add(&group.wait));
    // A wait with several causes counts in proportion to its wakeup part.
    let waits = all.hist.octaves().iter().map(|octave| octave.by_cause[Cause::Wakeup as usize]).sum::<f64>();
    let waits = waits.round() as u64;
    let mean_ns = ns.checked_div(waits).filter(|mean| waits >= WAKEUP_WAITS && *mean >= WAKEUP_MEAN_NS)?;
    let p99 = all.quantile_ns(0.99).map(|ns| format!("; the p99 of all waits is {}", duration(ns)));
    let says = format!(
        "tasks waited {} until an idle CPU had woken up; {} took {} on average{}",
        part(ns, waited_ns, "all waiting"),
        count(waits, "such wait"),
        duration(mean_ns),
        p99.unwrap_or_default(),
    );
    let advice = "check the CPUs for deep idle states (cpupower idle-info; cpupower idle-set -D 50 disables them); in a \
                  virtual machine, also check whether the host is slow to run its CPUs (steal in /proc/stat)";
    let amount = format!("{} per wait, {} of all waiting", duration(mean_ns), percent(ns, waited_ns));
    let action = "check deep idle states (cpupower idle-info) and steal time of the virtual machine";
    let short = ("idle CPUs take long to wake up", amount, action);
    Some(finding(Rule::WakeupLatency, None, ns, short, says, advice))
}

fn interrupts(context: &Context) -> Option<Finding> {
    let title = "tasks wait behind interrupts";
    let action = "spread the interrupts over more CPUs (/proc/interrupts)";
    let advice = "find the interrupts in /proc/interrupts and /proc/softirqs, and spread them over more CPUs (irqbalance, \
                  /proc/irq/N/smp_affinity), or pin the tasks to other CPUs";
    taken(context, Cause::Irq, Rule::Interrupts, "interrupts had their CPUs", [title, action, advice])
}

fn stolen_time(context: &Context) -> Option<Finding> {
    let had = "the hypervisor had their CPUs for something else";
    let title = "the hypervisor takes CPU time";
    let action = "move this virtual machine to a less busy host";
    let advice = "move this virtual machine to a less busy host, or to an offer with CPUs of its own; limits and weights within \
                  this machine do not help";
    taken(context, Cause::Stolen, Rule::StolenTime, had, [title, action, advice])
}

/// Reports time taken by interrupts or the hypervisor, if there was much of it.
fn taken(context: &Context, cause: Cause, rule: Rule, had: &str, words: [&str; 3]) -> Option<Finding> {
    let ([title, action, advice], waited_ns) = (words, context.total.waited_ns());
    let ns = context.total.by_cause.get(cause);
    is_much(ns, CAUSE_NS, waited_ns, CAUSE_PERCENT).then(|| {
        let says = format!("tasks waited {} while {had}", part(ns, waited_ns, "all waiting"));
        let amount = format!("{}, {} of all waiting", context.rate(ns), percent(ns, waited_ns));
        finding(rule, None, ns, (title, amount, action), says, advice)
    })
}

fn unattributed(context: &Context) -> Option<Finding> {
    let (ns, waited_ns) = (context.total.by_cause.get(Cause::Unattributed), context.total.waited_ns());
    if context.interval.mode == Mode::Coarse || !is_much(ns, CAUSE_NS, waited_ns, CAUSE_PERCENT) {
        return None;
    }
    let reasons = context.interval.losses.nonzero();
    let reasons: Vec<String> = reasons.filter_map(|(loss, counted)| without_cause(loss, counted)).collect();
    let known = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
    let share = percent(ns, waited_ns);
    let says = format!("the cause of {} of waiting ({share} of all) is not known{known}", duration(ns));
    let advice = "read the other causes as lower bounds";
    let amount = format!("{} ({share} of all waiting)", context.rate(ns));
    let short = ("some waiting has no known cause", amount, advice);
    Some(finding(Rule::Unattributed, None, ns, short, says, advice))
}

/// Returns why waiting has no cause, for a loss that leaves waits without one. `counted` is the loss's counter.
fn without_cause(loss: Loss, counted: u64) -> Option<String> {
    let waits = count(counted, "wait");
    let times = count(counted, "time");
    Some(match loss {
        Loss::LookBackCut => format!("{waits} began before the history of the CPU, or it lacks some cgroups"),
        Loss::OutOfRuntime => {
            format!("in {waits}, a real-time or deadline task probably had used up its runtime")
        }
        Loss::MovedAsleep => format!("{times}, the kernel counted sleep as waiting"),
        Loss::MovedThrottled => format!("{times}, a throttled task was moved to another CPU"),
        Loss::MovedUnseen => {
            format!("{times}, the kernel hid from cgscope that a task was moved to another CPU")
        }
        _ => return None,
    })
}

fn real_time_limits(context: &Context) -> Vec<Finding> {
    let limited = context.nodes().filter_map(|(_, cgroup)| {
        let ns = cgroup.own.by_cause.get(Cause::RtThrottled);
        is_much(ns, CAUSE_NS, cgroup.own.active_ns(), CAUSE_PERCENT).then(|| {
            let says = format!(
                "its real-time or deadline tasks waited {} because they had used up their runtime",
                part(ns, cgroup.own.waited_ns(), "the waiting of its tasks"),
            );
            let advice =
                "raise the runtime (real-time tasks: cpu.rt_runtime_us, or the sysctl kernel.sched_rt_runtime_us; deadline \
                 tasks: chrt --deadline --sched-runtime), or find out why these tasks run for so long";
            let title = "has tasks out of real-time or deadline runtime";
            let short = (title, context.rate(ns), "raise their runtime, or let them sleep");
            finding(Rule::RealTimeLimit, Some(&cgroup.path), ns, short, says, advice)
        })
    });
    limited.collect()
}
