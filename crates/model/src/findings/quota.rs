//! Rules about quotas that ran out. Findings name the cgroup that has the quota.

use std::{cmp::Reverse, sync::Arc};

use super::{BusyThreads, Context, Finding, Held, MOST, is_much, is_share};
use crate::{Cause, CgroupReading, tree::Sums, words::findings as words};

/// A quota is reported if it ran out in this share of its periods, percent (below this share few requests are affected). A quota
/// is also reported if it throttled tasks for this share of their waiting and running time, percent, and for this total time.
const PERIODS_PERCENT: u64 = 5;
const THROTTLED_PERCENT: u64 = 5;
const THROTTLED_NS: u64 = 10_000_000;
/// The kernel counts up to two periods in which nothing runs when a load ends: the last one that it used only in part, and one more
/// before the timer stops (`do_sched_cfs_period_timer`, Linux 4.18 to 7.2).
pub(super) const IDLE_PERIODS: u64 = 2;
/// To speak of bursts, this many other periods are needed: what a steady load used of the first one may be in the interval before, which
/// leaves 80 %.
pub(super) const LEAST_PERIODS: u64 = 5;
/// If a cgroup uses less than this share of its quota, percent, on average over the periods, only bursts exceed the quota.
pub const BELOW_LIMIT_PERCENT: u64 = 80;

/// A cgroup whose quota ran out.
pub(crate) struct Throttled<'a> {
    pub path: &'a Arc<str>,
    /// The limits from the cgroup's files; all `None` if the files could not be read.
    pub limits: CgroupReading,
    pub sums: Sums,
    pub held: Held,
    pub busy: BusyThreads,
}

/// None while a BPF scheduler schedules all normal tasks: it replaces the quotas, and their counters stand still.
pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let nodes = 0..context.tree.nodes().len();
    let mut past: Vec<usize> = nodes.filter(|node| is_past_threshold(context, *node)).collect();
    past.sort_by_key(|node| (Reverse(context.held[*node].ns), context.path(*node)));
    // Each of these cgroups has at least one finding, and all findings of a cgroup have the same cost.
    past.truncate(MOST);
    let throttled = past.into_iter().map(|node| Throttled {
        path: context.path(node),
        limits: context.limits(node).cloned().unwrap_or_default(),
        sums: context.with_below(node),
        held: context.held[node],
        busy: context.busy(context.tree.tasks_below(node)),
    });
    let about = |throttled: Throttled| {
        [
            Some(words::throttled(&throttled, context.interval.duration_ns)),
            threads_over_quota(&throttled, context),
            throttled_below_limit(&throttled, context),
        ]
    };
    throttled.flat_map(about).flatten().collect()
}

/// True if a finding reports the quota of this cgroup or of an ancestor.
pub(super) fn is_throttled(context: &Context, node: usize) -> bool {
    is_past_threshold(context, node) || context.tree.ancestors(node).any(|at| is_past_threshold(context, at))
}

fn is_past_threshold(context: &Context, node: usize) -> bool {
    if context.interval.scheduler_instead_of_quotas().is_some() {
        return false;
    }
    let (held_ns, active_ns) = (context.held[node].ns, context.with_below(node).active_ns());
    context.limits(node).is_some_and(periods_ran_out)
        || is_much(held_ns, THROTTLED_NS, active_ns, THROTTLED_PERCENT)
}

/// True if the cgroup's own quota ran out in enough periods. `cpu.stat` counts only the periods of that quota.
fn periods_ran_out(limits: &CgroupReading) -> bool {
    let periods = limits.nr_throttled.zip(limits.nr_periods);
    periods.is_some_and(|(throttled, all)| is_share(throttled, all, PERIODS_PERCENT))
}

/// Reports more busy threads than the quota has CPUs, rounded up.
fn threads_over_quota(throttled: &Throttled, context: &Context) -> Option<Finding> {
    let enough = throttled.limits.quota_cores()?.ceil().max(1.0) as u64;
    (throttled.busy.threads > enough)
        .then(|| words::threads_over_quota(throttled, enough, context.host.cpus))
        .flatten()
}

fn throttled_below_limit(throttled: &Throttled, context: &Context) -> Option<Finding> {
    let Throttled { limits, sums, .. } = throttled;
    if !periods_ran_out(limits) {
        return None;
    }
    let cores = limits.quota_cores()?;
    // The kernel starts periods only while a task runs. So the cgroup could use less than its quota times the elapsed time.
    let granted = |periods: u64| limits.quota_us.map(|us| us.saturating_mul(1_000).saturating_mul(periods));
    let granted_ns = granted(limits.nr_periods?)?;
    let busy_periods = limits.nr_periods?.saturating_sub(IDLE_PERIODS);
    let usable_ns = granted(busy_periods).filter(|_| busy_periods >= LEAST_PERIODS)?;
    // A selection measures only part of the cgroup's usage. The quota ran out, so the cgroup ran: a measured run time of 0
    // cannot be its whole run time.
    let measured_ns = Some(sums.ran_ns).filter(|ns| context.host.whole && *ns != 0);
    // The counters of a cgroup found during the interval start later than those of its tasks.
    let used_ns = limits.usage_ns.or(measured_ns)?.max(sums.ran_ns);
    // What it did not use because others had the CPUs is no sign of bursts.
    let causes = &sums.by_cause;
    let behind_others = [Cause::OtherCgroup, Cause::Kernel, Cause::Irq, Cause::Stolen];
    let wanted_ns = behind_others.iter().fold(used_ns, |sum, cause| sum.saturating_add(causes.get(*cause)));
    if usable_ns == 0 || is_share(wanted_ns, usable_ns, BELOW_LIMIT_PERCENT) {
        return None;
    }
    words::throttled_below_limit(throttled, cores * used_ns as f64 / granted_ns as f64)
}
