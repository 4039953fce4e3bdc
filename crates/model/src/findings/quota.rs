//! Rules about quotas that ran out. Findings name the cgroup with the quota.

use std::{cmp::Reverse, sync::Arc};

use crate::{
    Cause, CgroupReading,
    causes::TABLE,
    findings::{
        BusyThreads, Context, Finding, Held, MOST, Rule, Short, about, finding, is_much, is_share, micros,
        rate,
    },
    quota_use,
    tree::Sums,
    units::{count, cpus, duration, number, times},
    words::{percent, raise},
};

/// A quota is reported if it ran out in at least this share of its periods, percent (a smaller share affects few requests). It is
/// also reported if it throttled tasks for this share of their waiting and running time, percent, and for this total time.
const PERIODS_PERCENT: u64 = 5;
const THROTTLED_PERCENT: u64 = 5;
const THROTTLED_NS: u64 = 10_000_000;
/// When a load ends, the kernel counts up to two periods that are not fully used: the last period of the load, and one more
/// period before the timer stops (`do_sched_cfs_period_timer`, Linux 4.18 to 7.2).
pub(super) const IDLE_PERIODS: u64 = 2;
/// Minimum number of other periods for a finding about bursts. A steady load's use of the first of these periods may lie in the
/// previous interval. With five periods, 80 % of the use then remains.
pub(super) const LEAST_PERIODS: u64 = 5;
/// If a cgroup uses less than this share of its quota on average over the periods, percent, only bursts exceed the quota.
pub const BELOW_LIMIT_PERCENT: u64 = 80;

pub(crate) struct Throttled<'a> {
    pub path: &'a Arc<str>,
    /// The limits from the cgroup's files; all `None` if the files could not be read.
    pub limits: CgroupReading,
    pub sums: Sums,
    pub held: Held,
    pub busy: BusyThreads,
}

/// Reports nothing while a BPF scheduler schedules all normal tasks: it replaces the quotas, and their counters do not increase.
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
            Some(throttled_finding(&throttled, context.interval.duration_ns)),
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

/// True if the cgroup's own quota ran out in enough periods. `cpu.stat` counts only that quota's periods.
fn periods_ran_out(limits: &CgroupReading) -> bool {
    let periods = limits.nr_throttled.zip(limits.nr_periods);
    periods.is_some_and(|(throttled, all)| is_share(throttled, all, PERIODS_PERCENT))
}

fn threads_over_quota(throttled: &Throttled, context: &Context) -> Option<Finding> {
    let enough = throttled.limits.quota_cores()?.ceil().max(1.0) as u64;
    (throttled.busy.threads > enough)
        .then(|| threads_over_quota_finding(throttled, enough, context.host.cpus))
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
    // A selection measures only a part of the usage. The quota ran out, so the cgroup ran: a measured run time of 0 is
    // incomplete.
    let measured_ns = Some(sums.ran_ns).filter(|ns| context.host.whole && *ns != 0);
    // For a cgroup found during the interval, the counters of its tasks start earlier than its own.
    let used_ns = limits.usage_ns.or(measured_ns)?.max(sums.ran_ns);
    // CPU time that other tasks took from the cgroup is no sign of bursts.
    let causes = &sums.by_cause;
    let behind_others = TABLE.iter().filter(|row| row.behind.is_some() && row.cause != Cause::OwnCgroup);
    let wanted_ns = behind_others.fold(used_ns, |sum, row| sum.saturating_add(causes.get(row.cause)));
    if usable_ns == 0 || is_share(wanted_ns, usable_ns, BELOW_LIMIT_PERCENT) {
        return None;
    }
    throttled_below_limit_finding(throttled, cores * used_ns as f64 / granted_ns as f64)
}

/// Minimum share of the throttled time at which time without a known quota is mentioned, percent. In recordings of older
/// versions, the previous interval holds the quota of a wait that ended during a reading. This affects up to 11 % of a second.
const UNNAMED_PERCENT: u64 = 20;

fn throttled_finding(throttled: &Throttled, duration_ns: u64) -> Finding {
    let Throttled { limits, sums, held, .. } = throttled;
    let Held { ns: held_ns, unnamed_ns } = *held;
    let mut clauses = vec![periods(limits)];
    if held_ns != 0 {
        let ran = times(held_ns, sums.ran_ns).map_or_else(
            || " and did not run".into(),
            |times| format!(", {times} their run time ({})", duration(sums.ran_ns)),
        );
        clauses.push(format!("its tasks were throttled for {}{ran}", duration(held_ns)));
        if is_share(unnamed_ns, held_ns, UNNAMED_PERCENT) {
            let unnamed = duration(unnamed_ns);
            clauses.push(format!("for {unnamed} of these it is not recorded whose quota had run out"));
        }
    }
    clauses.extend(cpu_stat(limits, duration_ns));
    let threads = if throttled.busy.threads > 1 { ", or let fewer threads run at once" } else { "" };
    let modes = limits.user_ns.zip(limits.system_ns);
    let computes =
        modes.filter(|(user, system)| quota_use::mode(*user, *system) == Some(quota_use::Mode::CpuBound));
    let computes = computes.map_or_else(String::new, |(user, system)| {
        let share = percent(user, user.saturating_add(system));
        format!("; the cgroup is CPU-bound ({share} of its CPU time is in user mode)")
    });
    let (place, how) = raise(throttled.path, limits.quota_cores());
    let advice = format!("raise its limit{how}{threads}{computes}");
    let limit = limits.quota_cores().map(|cores| format!(" of {}", cpus(cores))).unwrap_or_default();
    let short = Short::new(
        format!("is at its CPU limit{limit}"),
        format!("throttled {}", rate(held_ns, duration_ns)),
        format!("raise its limit ({place}){threads}"),
    );
    about(throttled.path, finding(Rule::Throttled, held_ns, short, clauses.join("; "), advice))
}

fn periods(limits: &CgroupReading) -> String {
    let quota = match (limits.quota_cores(), limits.quota_us, limits.period_us) {
        (Some(cores), Some(quota_us), Some(period_us)) => {
            format!(" ({}: {} of every {})", cpus(cores), micros(quota_us), micros(period_us))
        }
        _ => String::new(),
    };
    match limits.nr_throttled.zip(limits.nr_periods).filter(|(throttled, _)| *throttled != 0) {
        Some((throttled, all)) => {
            format!("its quota{quota} ran out in {} of {}", percent(throttled, all), count(all, "period"))
        }
        None => format!("its quota{quota} ran out"),
    }
}

/// Returns a clause on the kernel's count of throttled time. Readers often mistake this count for the time that tasks lost.
fn cpu_stat(limits: &CgroupReading, duration_ns: u64) -> Option<String> {
    let throttled_ns = limits.throttled_ns.filter(|ns| *ns != 0)?;
    let used = limits.usage_ns.and_then(|used_ns| times(throttled_ns, used_ns));
    let used = used.map_or_else(String::new, |times| format!(", {times} the CPU time that the cgroup used"));
    let why = if throttled_ns > duration_ns {
        let passed = duration(duration_ns);
        format!(" (a sum over CPUs, so it may exceed the {passed} that passed)")
    } else {
        " (a sum over CPUs)".into()
    };
    Some(format!("cpu.stat reports {} of throttled time{why}{used}", duration(throttled_ns)))
}

/// Returns the finding about more busy threads than CPUs; `None`: the quota is unknown. `enough`: CPUs of the quota, rounded up.
fn threads_over_quota_finding(throttled: &Throttled, enough: u64, host: Option<u32>) -> Option<Finding> {
    let Throttled { path, limits, busy, held, .. } = throttled;
    let host = host.filter(|host| u64::from(*host) > enough).map_or_else(String::new, |host| {
        format!("; programs that count the host's CPUs ({host}) start too many")
    });
    let says = format!(
        "{} of {} share a quota of {}, and together use it up before the period ends",
        count(busy.threads, "thread"),
        count(busy.processes.len() as u64, "process"),
        cpus(limits.quota_cores()?),
    );
    let advice = format!(
        "start at most {} (one for each CPU of the limit), or raise the limit{host}",
        count(enough, "thread")
    );
    let short = Short::new(
        "has too many threads",
        format!("{} on {}", count(busy.threads, "busy thread"), cpus(limits.quota_cores()?)),
        format!("start {}, or raise the limit", count(enough, "thread")),
    );
    Some(about(path, finding(Rule::ThreadsOverQuota, held.ns, short, says, advice)))
}

/// Returns the finding about a quota exceeded only in bursts; `None` if the quota or periods are unknown. `used`: average CPUs.
fn throttled_below_limit_finding(throttled: &Throttled, used: f64) -> Option<Finding> {
    let Throttled { path, limits, held, .. } = throttled;
    let says = format!(
        "it used {} of {} on average, yet its quota ran out in {} of {}: it works in bursts",
        number(used),
        cpus(limits.quota_cores()?),
        percent(limits.nr_throttled?, limits.nr_periods?),
        count(limits.nr_periods?, "period"),
    );
    let short = Short::new(
        "is throttled during bursts",
        format!("uses {} of {} on average", number(used), cpus(limits.quota_cores()?)),
        "allow bursts (cpu.max.burst), or make the period longer",
    );
    Some(about(path, finding(Rule::ThrottledBelowLimit, held.ns, short, says, burst_advice(limits)?)))
}

fn burst_advice(limits: &CgroupReading) -> Option<String> {
    const FILES: &str = "cpu.max.burst, in v1 cpu.cfs_burst_us";
    let quota_us = limits.quota_us?;
    let quota = micros(quota_us);
    let Some(burst_us) = limits.burst_us.filter(|burst| *burst != 0) else {
        return Some(format!(
            "allow a burst of up to its quota, {quota} ({FILES}; Linux 5.14), or make the period longer"
        ));
    };
    let periods = limits.nr_bursts.map(|bursts| format!(" (used in {})", count(bursts, "period")));
    let already = format!("its burst is {}{}", micros(burst_us), periods.unwrap_or_default());
    // The kernel rejects a burst above the quota.
    Some(if burst_us < quota_us {
        format!(
            "{already}: raise the burst ({FILES}) to at most its quota ({quota}), or make the period longer"
        )
    } else {
        format!("{already}, the maximum for its quota: make the period longer, or raise the limit")
    })
}
