//! Rules about quotas that ran out. Findings name the cgroup with the quota.

use std::cmp::Reverse;

use crate::{
    Cause, CgroupReading, Totals,
    causes::TABLE,
    findings::{Context, Finding, Held, MOST, Rule, finding, is_much, is_share, micros},
    quota_use,
    units::{count, cpus, duration, number, times},
    words::{percent, raise, set_quota},
};

/// A quota is reported if it ran out in at least this share of its periods, percent (a smaller share affects few requests). It is
/// also reported if it throttled tasks for this share of their waiting and running time, percent, and for this total time.
pub(super) const PERIODS_PERCENT: u64 = 5;
pub(super) const THROTTLED_PERCENT: u64 = 5;
pub(super) const THROTTLED_NS: u64 = 10_000_000;
/// When a load ends, the kernel counts up to two periods that are not fully used: the last period of the load, and one more
/// period before the timer stops (`do_sched_cfs_period_timer`, Linux 4.18 to 7.2).
pub(super) const IDLE_PERIODS: u64 = 2;
/// Minimum number of other periods for a finding about bursts. A steady load's use of the first of these periods may lie in the
/// previous interval. With five periods, 80 % of the use then remains.
pub(super) const LEAST_PERIODS: u64 = 5;
/// If a cgroup uses less than this share of its quota on average over the periods, percent, only bursts exceed the quota.
pub const BELOW_LIMIT_PERCENT: u64 = 80;

/// What is advised avoids at least this share of the waiting, percent.
pub(super) const CURE_PERCENT: u64 = 80;

/// Reports nothing while a BPF scheduler schedules all normal tasks: it replaces the quotas, and their counters do not increase.
pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let nodes = 0..context.tree.nodes().len();
    let mut past: Vec<usize> = nodes.filter(|node| is_past_threshold(context, *node)).collect();
    past.sort_by_key(|node| (Reverse(context.held[*node].ns), context.path(*node)));
    // Each of these cgroups has at least one finding.
    past.truncate(MOST);
    let of = |node: usize| {
        let threads = threads_over_quota(context, node);
        // "At its limit" and "below its limit" exclude each other.
        let at_limit = || throttled(context, node, threads.is_some());
        let limit = throttled_below_limit(context, node).or_else(at_limit);
        threads.into_iter().chain(limit)
    };
    past.into_iter().flat_map(of).collect()
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

fn threads_over_quota(context: &Context, node: usize) -> Option<Finding> {
    let cores = context.limits(node)?.quota_cores()?;
    let busy = context.busy(context.tree.tasks_below(node));
    let enough = cores.ceil().max(1.0) as u64;
    if busy.threads <= enough {
        return None;
    }
    let (path, held_ns) = (context.path(node), context.held[node].ns);
    let waited_ns = held_ns.saturating_add(busy.own_ns);
    let left_ns = ((enough as f64 - cores).max(0.0) * context.interval.duration_ns as f64) as u64;
    // Nothing is gained where fewer threads also exceed the quota: below 1 CPU, one thread does.
    let gained_ns = waited_ns.saturating_sub(left_ns).min(held_ns);
    if gained_ns == 0 && held_ns != 0 {
        return None;
    }
    // Nor with a higher limit where the threads then wait for each other instead.
    let usable =
        context.limits(node).and_then(|limits| limits.cpus).into_iter().chain(context.host.cpus).min();
    let still_ns = |cpus: u32| {
        let active_ns = context.with_below(node).active_ns();
        active_ns.saturating_sub(context.interval.duration_ns.saturating_mul(cpus.into()))
    };
    let is_crowd = usable.is_some_and(|cpus| is_share(still_ns(cpus), waited_ns, 100 - CURE_PERCENT));
    let (cores, enough_threads) = (cpus(cores), count(enough, "thread"));
    let host = context.host.cpus.filter(|host| u64::from(*host) > enough);
    let host = host.map_or_else(String::new, |host| {
        format!("; programs that count the host's CPUs ({host}) start too many")
    });
    let says = format!(
        "{} of {} share a quota of {cores}, and together use it up before the period ends; they waited {} for each other and {} \
         for the quota",
        count(busy.threads, "thread"),
        count(busy.processes.len() as u64, "process"),
        duration(busy.own_ns),
        duration(held_ns),
    );
    let (instead, or) = if is_crowd {
        let still = "; with a higher limit alone, they still wait for each other, and if they spin meanwhile, their CPU time is not \
                     work";
        (still, "")
    } else {
        (", or raise the limit", ", or raise the limit")
    };
    let advice = format!("start at most {enough_threads} (one for each CPU of the limit){instead}{host}");
    let amount = format!("{} on {cores}", count(busy.threads, "busy thread"));
    let short = ("has too many threads", amount, format!("start at most {enough_threads}{or}"));
    Some(finding(Rule::ThreadsOverQuota, Some(path), gained_ns, short, says, advice))
}

fn throttled_below_limit(context: &Context, node: usize) -> Option<Finding> {
    let limits = context.limits(node).filter(|limits| periods_ran_out(limits))?;
    let sums = context.with_below(node);
    let cores = limits.quota_cores()?;
    // The kernel starts periods only while a task runs. So the cgroup could use less than its quota times the elapsed time.
    let busy_periods =
        limits.nr_periods?.checked_sub(IDLE_PERIODS).filter(|periods| *periods >= LEAST_PERIODS)?;
    let usable_ns = limits.quota_us?.saturating_mul(1_000).saturating_mul(busy_periods);
    // A selection measures only a part of the usage. The quota ran out, so a measured run time of 0 is incomplete.
    let measured_ns = Some(sums.on_cpu_ns).filter(|ns| context.host.whole && *ns != 0);
    // For a cgroup found during the interval, the counters of its tasks start earlier than its own.
    let used_ns = limits.usage_ns.or(measured_ns)?.max(sums.on_cpu_ns);
    // CPU time that other tasks took from the cgroup is no sign of bursts.
    let behind_others = TABLE.iter().filter(|row| row.behind.is_some() && row.cause != Cause::OwnCgroup);
    let wanted_ns = behind_others.fold(used_ns, |sum, row| sum.saturating_add(sums.by_cause.get(row.cause)));
    let totals = &context.tree.nodes()[node].group.totals;
    // Several threads may run at once, for longer together than each of them.
    let ran_ns = context.interval.tasks_at(context.tree.tasks_below(node)).map(|task| task.totals.on_cpu_ns);
    let is_single = ran_ns.max().is_some_and(|ns| is_share(ns, totals.on_cpu_ns, CURE_PERCENT));
    let run_ns = too_long_for_a_burst(limits, totals).filter(|_| is_single);
    // Such a run fills several periods in a row, but there are pauses between runs.
    let passed_ns = run_ns.map_or(0, |_| (cores * context.interval.duration_ns as f64) as u64);
    if usable_ns == 0 || is_share(wanted_ns, usable_ns.max(passed_ns), BELOW_LIMIT_PERCENT) {
        return None;
    }
    let (used, held_ns) = (used_ns as f64 / context.interval.duration_ns as f64, context.held[node].ns);
    let used = format!("{} of {}", number(used), cpus(cores));
    let held = if held_ns == 0 { String::new() } else { format!(" (throttled for {})", duration(held_ns)) };
    let says = format!(
        "it used {used} on average, yet its quota ran out in {} of the {} in which it ran{held}: it works in bursts",
        percent(limits.nr_throttled?, limits.nr_periods?),
        count(limits.nr_periods?, "period"),
    );
    let path = context.path(node);
    let (says, action, advice) = match run_ns {
        Some(run_ns) => {
            // In whole hundredths of a CPU.
            let period_us = limits.period_us?.max(100);
            let enough_us = (run_ns / 1_000)
                .saturating_mul(SPARE_PERCENT)
                .div_ceil(period_us)
                .saturating_mul(period_us / 100);
            let enough = cpus(enough_us as f64 / period_us as f64);
            let set = set_quota(path, &context.interval.names, enough_us, period_us);
            let longer_us = enough_us.saturating_mul(period_us) / limits.quota_us?.max(1);
            let (or, longer) = if longer_us <= MOST_PERIOD_US {
                let every = format!(
                    ", or keep it and make the period longer ({} of every {})",
                    micros(enough_us),
                    micros(longer_us)
                );
                (", or make the period longer", every)
            } else {
                ("", String::new())
            };
            (
                format!(
                    "{says} of {} on average, and the longest burst adds only {}",
                    duration(run_ns),
                    micros(limits.quota_us?)
                ),
                format!("raise its limit to {enough}{or}"),
                format!("raise its limit to {enough} ({set}){longer}"),
            )
        }
        None => (
            says,
            "allow bursts (cpu.max.burst), or make the period longer".to_owned(),
            burst_advice(limits)?,
        ),
    };
    let short = ("is throttled during bursts", format!("uses {used}"), action);
    Some(finding(Rule::ThrottledBelowLimit, Some(path), held_ns, short, says, advice))
}

/// The advised quota is this share of the mean run, percent: runs differ a little.
const SPARE_PERCENT: u64 = 103;

/// Fewer runs may be a job that has ended.
const LEAST_RUNS: u64 = 3;
/// Longest period that the kernel accepts, µs (`max_cfs_quota_period`, Linux 3.2 to 7.2).
const MOST_PERIOD_US: u64 = 1_000_000;

/// Returns how long tasks ran between two sleeps on average, ns, if that is more than a quota and the largest possible burst. Then no
/// burst is enough for some of these runs. `None` also if a run takes longer than a period: it needs all of a CPU.
fn too_long_for_a_burst(limits: &CgroupReading, totals: &Totals) -> Option<u64> {
    let run_ns = totals.on_cpu_ns.checked_div(totals.voluntary).filter(|_| totals.voluntary >= LEAST_RUNS)?;
    let (quota_us, period_us) = limits.quota_us.zip(limits.period_us)?;
    (run_ns / 1_000 > quota_us.saturating_mul(2) && run_ns / 1_000 <= period_us).then_some(run_ns)
}

/// Minimum share of the throttled time at which time without a known quota is mentioned, percent. In recordings of older
/// versions, the previous interval holds the quota of a wait that ended during a reading. This affects up to 11 % of a second.
const UNNAMED_PERCENT: u64 = 20;

/// `are_too_many`: another finding advises fewer threads.
fn throttled(context: &Context, node: usize, are_too_many: bool) -> Option<Finding> {
    let unread = CgroupReading::default();
    let (limits, sums) = (context.limits(node).unwrap_or(&unread), context.with_below(node));
    let Held { ns: held_ns, unnamed_ns } = context.held[node];
    let mut clauses = vec![periods(limits)];
    if held_ns != 0 {
        let ran = times(held_ns, sums.on_cpu_ns).map_or_else(
            || " and did not run".into(),
            |times| format!(", {times} their run time ({})", duration(sums.on_cpu_ns)),
        );
        clauses.push(format!("its tasks were throttled for {}{ran}", duration(held_ns)));
        if is_share(unnamed_ns, held_ns, UNNAMED_PERCENT) {
            let unnamed = duration(unnamed_ns);
            clauses.push(format!("for {unnamed} of these it is not recorded whose quota had run out"));
        }
    }
    clauses.extend(cpu_stat(limits, context.interval.duration_ns));
    let busy = context.busy(context.tree.tasks_below(node));
    const FEWER: &str = "let fewer threads run at once";
    let or_raise = |limit: String| match busy.threads {
        _ if are_too_many => format!("{FEWER}, or {limit}"),
        0 | 1 => limit,
        _ => format!("{limit}, or {FEWER}"),
    };
    let modes = limits.user_ns.zip(limits.system_ns);
    let computes =
        modes.filter(|(user, system)| quota_use::mode(*user, *system) == Some(quota_use::Mode::CpuBound));
    let computes = computes.map_or_else(String::new, |(user, system)| {
        let share = percent(user, user.saturating_add(system));
        format!("; the cgroup is CPU-bound ({share} of its CPU time is in user mode)")
    });
    let (place, how) = raise(context.path(node), limits.quota_cores());
    let advice = or_raise(format!("raise its limit{how}")) + &computes;
    let limit = limits.quota_cores().map(|cores| format!(" of {}", cpus(cores))).unwrap_or_default();
    // A selection may have none of the tasks.
    let amount = match limits.nr_throttled.zip(limits.nr_periods) {
        Some((throttled, all)) if held_ns == 0 => format!("in {} of its periods", percent(throttled, all)),
        _ => format!("throttled {}", context.rate(held_ns)),
    };
    let short =
        (format!("is at its CPU limit{limit}"), amount, or_raise(format!("raise its limit ({place})")));
    Some(finding(Rule::Throttled, Some(context.path(node)), held_ns, short, clauses.join("; "), advice))
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
