//! Rules about all measured tasks together.

use cgscope_layout::Cause;

use super::{Context, Finding, is_much, is_share};
use crate::{Mode, Wait, words::findings as words};

/// A host is oversubscribed if more tasks than this run or wait for each CPU, percent, on average. Some waiting is usual on a
/// busy host.
const OVERSUBSCRIBED_PERCENT: u64 = 120;
/// If the CPUs are less busy than this, percent, the host has enough CPUs, but its tasks are badly spread.
const CPUS_BUSY_PERCENT: u64 = 90;
/// Wakeups are slow if three conditions hold. Wakeups take at least this share of all waiting, percent. A wakeup takes at least
/// this long on average (CPUs leave shallow idle states within some microseconds). There are at least this many waits (fewer
/// could be chance).
const WAKEUP_PERCENT: u64 = 20;
const WAKEUP_MEAN_NS: u64 = 50_000;
const WAKEUP_WAITS: u64 = 100;
/// Minimum share of all waiting, percent, and minimum total, ns, at which time that no task had is reported.
const TAKEN_PERCENT: u64 = 5;
const TAKEN_NS: u64 = 10_000_000;
/// Minimum share of all waiting, percent, and minimum total, ns, at which unattributed waiting is reported.
const UNATTRIBUTED_PERCENT: u64 = 5;
const UNATTRIBUTED_NS: u64 = 10_000_000;

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
    let waited_ns = sums.waited_ns.saturating_sub(sums.by_cause.limited_ns());
    let wanted_ns = sums.ran_ns.saturating_add(waited_ns);
    let too_many = u128::from(wanted_ns) * 100 > u128::from(capacity_ns) * u128::from(OVERSUBSCRIBED_PERCENT);
    (too_many && is_share(sums.ran_ns, capacity_ns, CPUS_BUSY_PERCENT)).then(|| {
        let wanted = wanted_ns as f64 / duration_ns as f64;
        // A run that began before the interval may raise the sum slightly above the time of all CPUs.
        let busy_of = (sums.ran_ns.min(capacity_ns), capacity_ns);
        words::cpu_oversubscription(cpus, wanted, busy_of, (waited_ns, duration_ns))
    })
}

fn wakeup_latency(context: &Context) -> Option<Finding> {
    let (ns, waited_ns) = (context.total.by_cause.get(Cause::Wakeup), context.total.waited_ns);
    if !is_share(ns, waited_ns, WAKEUP_PERCENT) {
        return None;
    }
    let mut all = Wait::default();
    context.groups().for_each(|group| all.add(&group.wait));
    // A wait with several causes counts in proportion to its wakeup part.
    let waits = all.hist.octaves().iter().map(|octave| octave.by_cause[Cause::Wakeup as usize]).sum::<f64>();
    let waits = waits.round() as u64;
    (waits >= WAKEUP_WAITS && ns / waits >= WAKEUP_MEAN_NS)
        .then(|| words::wakeup_latency(ns, waited_ns, waits, all.quantile_ns(0.99)))
}

/// Reports each cgroup whose real-time or deadline tasks used up their runtime.
fn real_time_limits(context: &Context) -> Vec<Finding> {
    let limited = context.nodes().filter_map(|(node, cgroup)| {
        let ns = cgroup.own.by_cause.get(Cause::RtThrottled);
        let all_ns = cgroup.own.active_ns();
        is_much(ns, TAKEN_NS, all_ns, TAKEN_PERCENT).then(|| words::real_time_limit(context, node, ns))
    });
    limited.collect()
}

fn interrupts(context: &Context) -> Option<Finding> {
    taken(context, Cause::Irq).map(|(ns, waited_ns)| words::interrupts(context, ns, waited_ns))
}

fn stolen_time(context: &Context) -> Option<Finding> {
    taken(context, Cause::Stolen).map(|(ns, waited_ns)| words::stolen_time(context, ns, waited_ns))
}

/// The waiting for this cause and all waiting, ns, if the cause has much of it.
fn taken(context: &Context, cause: Cause) -> Option<(u64, u64)> {
    let (ns, waited_ns) = (context.total.by_cause.get(cause), context.total.waited_ns);
    is_much(ns, TAKEN_NS, waited_ns, TAKEN_PERCENT).then_some((ns, waited_ns))
}

fn unattributed(context: &Context) -> Option<Finding> {
    let (ns, waited_ns) = (context.total.by_cause.get(Cause::Unattributed), context.total.waited_ns);
    let is_expected = context.interval.mode == Mode::Coarse;
    (!is_expected && is_much(ns, UNATTRIBUTED_NS, waited_ns, UNATTRIBUTED_PERCENT))
        .then(|| words::unattributed(ns, waited_ns, context.interval))
}
