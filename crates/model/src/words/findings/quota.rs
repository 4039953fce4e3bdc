//! The texts about quotas that ran out.

use super::{Short, about, finding, micros, rate};
use crate::{
    CgroupReading,
    findings::{Finding, Held, Throttled, is_share},
    quota_use,
    units::{count, cpus, duration, number, times},
    words::{findings::Rule, percent, raise},
};

/// Time without a name is mentioned from this share of the throttled time on, percent. In recordings of older versions, the quota of a
/// wait that ended during a reading is in the interval before: up to 11 % in a second.
const UNNAMED_PERCENT: u64 = 20;

pub(crate) fn throttled(throttled: &Throttled, duration_ns: u64) -> Finding {
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

/// The kernel's own count of throttled time. It is not the time that tasks lost, although readers often take it as that.
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

/// The finding about more busy threads than CPUs of quota; `None` if the quota is unknown. `enough`: the quota's CPUs, rounded
/// up.
pub(crate) fn threads_over_quota(throttled: &Throttled, enough: u64, host: Option<u32>) -> Option<Finding> {
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

/// The finding about a quota exceeded only in bursts; `None` if the quota or the periods are unknown. `used`: average CPUs.
pub(crate) fn throttled_below_limit(throttled: &Throttled, used: f64) -> Option<Finding> {
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
    // The kernel refuses a burst above the quota.
    Some(if burst_us < quota_us {
        format!(
            "{already}: raise the burst ({FILES}) to at most its quota ({quota}), or make the period longer"
        )
    } else {
        format!("{already}, the maximum for its quota: make the period longer, or raise the limit")
    })
}
