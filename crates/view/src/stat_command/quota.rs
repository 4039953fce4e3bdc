//! A quota that limited the command: `cpu.stat` before and after, and the figures that people derive from it by hand.

use std::fmt::{Result, Write as _};

use cgscope_model::{
    CgroupReading, QuotaUse,
    command_run::{CommandRun, CpuUse, HeldBy},
    findings::QUOTA_FILE,
    quota_use::{self, Mode},
    units::{self, cpus, duration, percent},
};

use super::{differs, names, number, sentence};

/// The table of one quota, and the figures derived from it.
pub fn quota(out: &mut String, run: &CommandRun, held: &HeldBy) -> Result {
    let quota = &held.quota;
    writeln!(out, "\ncpu.stat of {}: {}", quota.path, limit_words(&quota.delta))?;
    if !quota.is_used() {
        return writeln!(out, "  No period passed in which one of its tasks could run.");
    }
    table(out, quota, own(run, quota))?;
    for words in derived(run, held) {
        sentence(out, &words)?;
    }
    Ok(())
}

/// Describes a quota: `1 CPU of quota (100ms of every 100ms, burst none)`.
fn limit_words(limits: &CgroupReading) -> String {
    let us = |us: Option<u64>| us.map_or("?".into(), |us| duration(us.saturating_mul(1_000)));
    let burst = limits.burst_us.filter(|us| *us != 0).map_or("none".into(), |burst| us(Some(burst)));
    let cores =
        limits.quota_cores().map_or("no quota now".into(), |cores| format!("{} of quota", cpus(cores)));
    format!("{cores} ({} of every {}, burst {burst})", us(limits.quota_us), us(limits.period_us))
}

/// The command's own CPU time, if the files of the quota's cgroup have no CPU time.
fn own(run: &CommandRun, quota: &QuotaUse) -> Option<CpuUse> {
    run.cpu.filter(|_| quota.delta.usage_ns.is_none())
}

fn table(out: &mut String, quota: &QuotaUse, own: Option<CpuUse>) -> Result {
    writeln!(out, "  {:<16} {:>20} {:>20} {:>20}", "", "before", "after", "delta")?;
    let row = |out: &mut String, name: &str, figure: &dyn Fn(&CgroupReading) -> Option<u64>| {
        let said = |reading| figure(reading).map_or("-".into(), number);
        let [before, after, delta] = [&quota.before, &quota.after, &quota.delta].map(said);
        writeln!(out, "  {name:<16} {before:>20} {after:>20} {delta:>20}")
    };
    let us = |ns: Option<u64>| ns.map(|ns| ns / 1_000);
    match own {
        Some(CpuUse { usage_ns, user_ns, system_ns }) => {
            for (name, ns) in
                [("usage_usec *", usage_ns), ("user_usec *", user_ns), ("system_usec *", system_ns)]
            {
                writeln!(out, "  {name:<16} {:>20} {:>20} {:>20}", "-", "-", number(ns / 1_000))?;
            }
        }
        None => {
            row(out, "usage_usec", &|reading| us(reading.usage_ns))?;
            row(out, "user_usec", &|reading| us(reading.user_ns))?;
            row(out, "system_usec", &|reading| us(reading.system_ns))?;
        }
    }
    row(out, "nr_periods", &|reading| reading.nr_periods)?;
    row(out, "nr_throttled", &|reading| reading.nr_throttled)?;
    row(out, "throttled_usec", &|reading| us(reading.throttled_ns))
}

/// The derived figures, and which processes contribute to them.
fn derived(run: &CommandRun, held: &HeldBy) -> Vec<String> {
    let quota = &held.quota;
    [periods(run, quota), throttled(run, quota), mode(run, quota), threads(run, quota), whose(run, held)]
        .into_iter()
        .flatten()
        .collect()
}

fn periods(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let (all, throttled) = (quota.delta.nr_periods?, quota.delta.nr_throttled?);
    let share = quota.throttled_percent()?;
    let length = quota.periods_ns().zip(quota.delta.period_us).map(|(ns, us)| {
        let period = duration(us.saturating_mul(1_000));
        format!("; {all} x {period} = {}; the command took {}", duration(ns), duration(run.wall_ns))
    });
    let all = units::count(all, "period");
    Some(format!("the quota ran out in {share:.1}% of {all} ({throttled}){}", length.unwrap_or_default()))
}

fn throttled(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let ns = quota.delta.throttled_ns.filter(|ns| *ns != 0)?;
    let times = units::times(ns, run.ran_under(quota));
    let times = times.map_or(String::new(), |times| format!(", {times} its run time"));
    let over = if ns > run.wall_ns { ", so it may exceed the elapsed time" } else { "" };
    let threads = Some(run.held_ns(quota.after.id)).filter(|ns| *ns != 0);
    let threads = threads.map_or(String::new(), |ns| {
        format!(
            "; the command's threads waited {} for the quota, each thread counted separately",
            duration(ns)
        )
    });
    Some(format!("it was throttled for {}, each CPU counted separately{over}{times}{threads}", duration(ns)))
}

fn mode(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let cpu = run.cpu_use();
    let (user, system) =
        quota.delta.user_ns.zip(quota.delta.system_ns).unwrap_or((cpu.user_ns, cpu.system_ns));
    let said = match quota_use::mode(user, system)? {
        Mode::CpuBound => "CPU-bound, not I/O",
        Mode::InKernel => "it spends its time in the kernel",
        Mode::Mixed => "neither user mode nor the kernel dominates",
    };
    let share = percent(user, user.saturating_add(system))?;
    Some(format!("user {}, system {}: {share:.1}% user mode, {said}", duration(user), duration(system)))
}

fn threads(run: &CommandRun, quota: &QuotaUse) -> Option<String> {
    let cores = quota.delta.quota_cores()?;
    let enough = cores.ceil().max(1.0) as u64;
    // There may have been more threads between two counts.
    let threads = format!(
        "at least {} existed at the same time, with a quota of {}",
        units::count(run.peak_threads, "thread"),
        cpus(cores)
    );
    if run.peak_threads <= enough {
        return Some(threads);
    }
    let is_short = quota.delta.nr_throttled.is_some_and(|throttled| throttled != 0);
    let advice = format!(
        ": raise the limit ({QUOTA_FILE}), or start at most {} (one for each CPU of the limit)",
        units::count(enough, "thread")
    );
    Some(format!("{threads}{}", if is_short { &advice } else { "" }))
}

fn whose(run: &CommandRun, held: &HeldBy) -> Option<String> {
    let (quota, ours) = (&held.quota, run.cpu_use().usage_ns);
    let used = quota.delta.usage_ns;
    let share = used.filter(|used| differs(*used, ours)).and_then(|used| percent(ours, used));
    let share = share.map(|share| format!("the command used {share:.1}% of that CPU time"));
    let others = (!held.others.is_empty()).then(|| format!("also in this cgroup: {}", names(&held.others)));
    let own = own(run, quota).map(|_| {
        String::from(
            "lines with * are the command's own figures: the hierarchy of cpuacct does not have this cgroup",
        )
    });
    let both: Vec<String> = own.into_iter().chain(share).chain(others).collect();
    (!both.is_empty()).then(|| format!("these figures are of {}; {}", quota.path, both.join("; ")))
}
