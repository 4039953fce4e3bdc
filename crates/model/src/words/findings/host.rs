//! The texts about all measured tasks together.

use cgscope_layout::Loss;

use super::{Rule, Short, finding, rate};
use crate::{
    Interval,
    findings::Finding,
    units::{count, duration},
    words::percent,
};

/// The finding about an oversubscribed host. `busy_of`: the CPUs' busy time and available time, ns.
pub(crate) fn cpu_oversubscription(
    host: u32,
    wanted: f64,
    busy_of: (u64, u64),
    (waited_ns, duration_ns): (u64, u64),
) -> Finding {
    let says = format!(
        "on average {wanted:.1} tasks wanted to run on {}; the CPUs were busy {} of the time, and tasks waited {}",
        count(host.into(), "CPU"),
        percent(busy_of.0, busy_of.1),
        duration(waited_ns),
    );
    let advice = "run fewer tasks at once on this host, or add CPUs; until then, weights (cpu.weight) and quotas (cpu.max) \
                  decide who waits";
    let short = Short::new(
        "the host has too few CPUs",
        format!(
            "{wanted:.1} tasks want {}, waiting {}",
            count(host.into(), "CPU"),
            rate(waited_ns, duration_ns)
        ),
        "run fewer tasks at once on this host, or add CPUs",
    );
    finding(Rule::CpuOversubscription, waited_ns, short, says, advice)
}

pub(crate) fn wakeup_latency(ns: u64, waited_ns: u64, waits: u64, p99_ns: Option<u64>) -> Finding {
    let p99 = p99_ns.map(|p99_ns| format!("; the p99 of all waits is {}", duration(p99_ns)));
    let says = format!(
        "tasks waited {} ({} of all waiting) until an idle CPU had woken up; {} took {} on average{}",
        duration(ns),
        percent(ns, waited_ns),
        count(waits, "such wait"),
        duration(ns / waits),
        p99.unwrap_or_default(),
    );
    let advice = "check the CPUs for deep idle states (cpupower idle-info; cpupower idle-set -D 50 disables them); in a \
                  virtual machine, also check whether the host is slow to run its CPUs (steal in /proc/stat)";
    let short = Short::new(
        "idle CPUs take long to wake up",
        format!("{} per wait, {} of all waiting", duration(ns / waits), percent(ns, waited_ns)),
        "check deep idle states (cpupower idle-info) and steal time of the virtual machine",
    );
    finding(Rule::WakeupLatency, ns, short, says, advice)
}

/// Returns why waiting has no cause, for a loss that leaves it without one. `counted`: the counter of the loss.
fn without_cause(loss: Loss, counted: u64) -> Option<String> {
    let waits = count(counted, "wait");
    let times = count(counted, "time");
    let reason = match loss {
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
    };
    Some(reason)
}

pub(crate) fn unattributed(ns: u64, waited_ns: u64, interval: &Interval) -> Finding {
    let reasons: Vec<String> =
        interval.losses.nonzero().filter_map(|(loss, counted)| without_cause(loss, counted)).collect();
    let known = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
    let says = format!(
        "the cause of {} of waiting ({} of all) is not known{known}",
        duration(ns),
        percent(ns, waited_ns),
    );
    let advice = "read the other causes as lower bounds";
    let short = Short::new(
        "some waiting has no known cause",
        format!("{} ({} of all waiting)", rate(ns, interval.duration_ns), percent(ns, waited_ns)),
        advice,
    );
    finding(Rule::Unattributed, ns, short, says, advice)
}
