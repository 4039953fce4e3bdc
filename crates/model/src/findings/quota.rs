//! Quotas that ran out: told at the cgroup that has the quota, and nowhere else.

use std::{cmp::Reverse, sync::Arc};

use super::{
    BELOW_LIMIT_PERCENT, Finding, MOST, QUOTA_FILE, Rule, THROTTLED_PERIODS_PERCENT, THROTTLED_WAIT_NS,
    THROTTLED_WAIT_PERCENT,
    context::{Busy, Context},
    words::{as_long, cpus, is_share, micros, number, percent},
};
use crate::{CgroupReading, quota_use, tree::Sums, units};

/// A cgroup whose quota ran out.
struct Throttled<'a> {
    path: &'a Arc<str>,
    /// What its files tell; all `None` where they could not be read.
    limits: CgroupReading,
    sums: Sums,
    /// How long its quota throttled tasks, ns.
    held_ns: u64,
    busy: Busy,
}

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let throttled = throttled(context);
    let about = |throttled: &Throttled| {
        [
            Some(ran_out(throttled, context)),
            threads_over_quota(throttled, context),
            throttled_below_limit(throttled, context),
        ]
    };
    throttled.iter().flat_map(about).flatten().collect()
}

/// True if the quota of this cgroup or of an ancestor is told of.
pub(super) fn is_throttled(context: &Context, node: usize) -> bool {
    is_past_threshold(context, node) || context.tree.ancestors(node).any(|at| is_past_threshold(context, at))
}

/// Those that may be told of: each has a finding at least, and all of its findings cost the same.
fn throttled<'a>(context: &Context<'a>) -> Vec<Throttled<'a>> {
    let nodes = 0..context.tree.nodes().len();
    let mut past: Vec<usize> = nodes.filter(|node| is_past_threshold(context, *node)).collect();
    past.sort_by_key(|node| (Reverse(context.held_ns[*node]), context.path(*node)));
    past.truncate(MOST);
    past.into_iter()
        .map(|node| Throttled {
            path: context.path(node),
            limits: context.limits(node).cloned().unwrap_or_default(),
            sums: context.with_below(node),
            held_ns: context.held_ns[node],
            busy: context.busy(context.tree.tasks_below(node)),
        })
        .collect()
}

fn is_past_threshold(context: &Context, node: usize) -> bool {
    let held_ns = context.held_ns[node];
    context.limits(node).is_some_and(periods_ran_out)
        || held_ns >= THROTTLED_WAIT_NS
            && is_share(held_ns, context.with_below(node).active_ns(), THROTTLED_WAIT_PERCENT)
}

/// Often enough. `cpu.stat` counts periods of the cgroup's own quota only.
fn periods_ran_out(limits: &CgroupReading) -> bool {
    let periods = limits.nr_throttled.zip(limits.nr_periods);
    periods.is_some_and(|(throttled, all)| is_share(throttled, all, THROTTLED_PERIODS_PERCENT))
}

fn ran_out(throttled: &Throttled, context: &Context) -> Finding {
    let Throttled { path, held_ns, .. } = throttled;
    let clauses = [
        Some(periods_said(&throttled.limits)),
        tasks_said(throttled),
        stat_said(&throttled.limits, context.interval.duration_ns),
    ];
    let clauses: Vec<_> = clauses.into_iter().flatten().collect();
    Finding {
        rule: Rule::Throttled,
        cgroup: Some(Arc::clone(path)),
        says: format!("{path}: {}", clauses.join("; ")),
        advice: ran_out_advice(throttled),
        lost_ns: *held_ns,
    }
}

fn periods_said(limits: &CgroupReading) -> String {
    let quota = match (limits.quota_cores(), limits.quota_us, limits.period_us) {
        (Some(cores), Some(quota_us), Some(period_us)) => {
            format!(" ({}: {} of every {})", cpus(cores), micros(quota_us), micros(period_us))
        }
        _ => String::new(),
    };
    match limits.nr_throttled.zip(limits.nr_periods).filter(|(throttled, _)| *throttled != 0) {
        Some((throttled, all)) => {
            format!(
                "{} of its {} ran out of quota{quota}",
                percent(throttled, all),
                units::count(all, "period")
            )
        }
        None => format!("its quota ran out{quota}"),
    }
}

fn tasks_said(throttled: &Throttled) -> Option<String> {
    let Throttled { held_ns, sums, .. } = throttled;
    let held = (*held_ns != 0).then(|| units::duration(*held_ns))?;
    Some(match as_long(*held_ns, sums.ran_ns) {
        Some(times) => {
            format!(
                "its tasks were throttled for {held} while they ran {}, {times}",
                units::duration(sums.ran_ns)
            )
        }
        None => format!("its tasks were throttled for {held} and did not run"),
    })
}

/// What the kernel counts. People take it for the time that tasks lost, which it is not.
fn stat_said(limits: &CgroupReading, duration_ns: u64) -> Option<String> {
    let throttled_ns = limits.throttled_ns.filter(|ns| *ns != 0)?;
    let used = limits
        .usage_ns
        .and_then(|used| Some(format!(", {} as it used the CPU", as_long(throttled_ns, used)?)));
    let why = if throttled_ns > duration_ns {
        format!(
            ": that counts each CPU by itself, so it may exceed the {} that passed",
            units::duration(duration_ns)
        )
    } else {
        ", each CPU by itself".into()
    };
    Some(format!(
        "cpu.stat says throttled for {}{}{why}",
        units::duration(throttled_ns),
        used.unwrap_or_default()
    ))
}

fn ran_out_advice(throttled: &Throttled) -> String {
    let threads = if throttled.busy.threads > 1 { ", or let fewer threads run at once" } else { "" };
    let modes = throttled.limits.user_ns.zip(throttled.limits.system_ns);
    let computes = modes
        .filter(|(user, system)| quota_use::mode(*user, *system) == Some(quota_use::Mode::CpuBound))
        .map(|(user, system)| {
            let share = percent(user, user.saturating_add(system));
            format!("; it is CPU-bound ({share} of its CPU time in user mode)")
        });
    format!("raise its limit ({QUOTA_FILE}){threads}{}", computes.as_deref().unwrap_or_default())
}

fn threads_over_quota(throttled: &Throttled, context: &Context) -> Option<Finding> {
    let Throttled { path, busy, held_ns, .. } = throttled;
    let cores = throttled.limits.quota_cores()?;
    let enough = cores.ceil().max(1.0) as u64;
    if busy.threads <= enough {
        return None;
    }
    let host = context.host.cpus.filter(|host| u64::from(*host) > enough);
    let host = host
        .map(|host| format!(": programs that count the host's CPUs ({host}) start too many"))
        .unwrap_or_default();
    let threads = units::count(busy.threads, "thread");
    let processes = units::count(busy.processes.len() as u64, "process");
    let quota = cpus(cores);
    Some(Finding {
        rule: Rule::ThreadsOverQuota,
        cgroup: Some(Arc::clone(path)),
        says: format!(
            "{path}: {threads} of {processes} share {quota} of quota, which they use up together before the period ends",
        ),
        advice: format!("start as many threads as the limit has CPUs ({enough}){host}; or raise the limit"),
        lost_ns: *held_ns,
    })
}

fn throttled_below_limit(throttled: &Throttled, context: &Context) -> Option<Finding> {
    let Throttled { path, limits, sums, held_ns, .. } = throttled;
    if !periods_ran_out(limits) {
        return None;
    }
    let cores = limits.quota_cores()?;
    // Periods begin only while something runs: what it could have used is less than its quota times the time that passed.
    let granted_ns = limits.quota_us?.saturating_mul(1_000).saturating_mul(limits.nr_periods?);
    // What was measured of a selection is less than what the cgroup used; a quota that ran out was used by somebody.
    let measured_ns = Some(sums.ran_ns).filter(|ns| context.host.whole && *ns != 0);
    // The counters of a cgroup that was found within the interval begin later than its tasks' own.
    let used_ns = limits.usage_ns.or(measured_ns)?.max(sums.ran_ns);
    if granted_ns == 0 || is_share(used_ns, granted_ns, BELOW_LIMIT_PERCENT) {
        return None;
    }
    let share = percent(limits.nr_throttled?, limits.nr_periods?);
    Some(Finding {
        rule: Rule::ThrottledBelowLimit,
        cgroup: Some(Arc::clone(path)),
        says: format!(
            "{path}: it used {} of {} on average in its {}, yet {share} of them ran out of quota: it works in bursts",
            number(cores * used_ns as f64 / granted_ns as f64),
            cpus(cores),
            units::count(limits.nr_periods?, "period"),
        ),
        advice: burst_advice(limits)?,
        lost_ns: *held_ns,
    })
}

fn burst_advice(limits: &CgroupReading) -> Option<String> {
    const FILES: &str = "cpu.max.burst, in v1 cpu.cfs_burst_us";
    let quota_us = limits.quota_us?;
    let quota = micros(quota_us);
    let Some(burst_us) = limits.burst_us.filter(|burst| *burst != 0) else {
        return Some(format!(
            "allow a burst ({FILES}, Linux 5.14) of up to its quota ({quota}), or make the period longer"
        ));
    };
    let periods = limits.nr_bursts.map(|bursts| format!(" and did in {}", units::count(bursts, "period")));
    let already = format!("it may burst by {} already{}", micros(burst_us), periods.unwrap_or_default());
    // The kernel refuses a burst above the quota.
    Some(if burst_us < quota_us {
        format!("{already}: raise that ({FILES}) up to its quota ({quota}), or make the period longer")
    } else {
        format!("{already}, the most that its quota allows: make the period longer or raise the limit")
    })
}
