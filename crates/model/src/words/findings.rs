//! The names of the rules. The sentences and the advice are in the file of each subject below `findings/`.

mod contention;
mod host;
mod idle_cpus;
mod numa;
mod quota;
mod starved;
mod taken;

use std::sync::Arc;

use crate::{Names, cgroup_name::container_words, findings::Finding, named::by_name, units::duration};
pub(crate) use contention::{noisy_neighbour, own_contention};
pub(crate) use host::{cpu_oversubscription, unattributed, wakeup_latency};
pub(crate) use idle_cpus::idle_cpus;
pub(crate) use numa::{node_bouncing, node_skew, remote_cgroup, remote_process};
pub(crate) use quota::{threads_over_quota, throttled, throttled_below_limit};
pub(crate) use starved::starved;
pub(crate) use taken::{interrupts, real_time_limit, stolen_time};

cgscope_layout::named! {
    /// A rule for findings. Findings of equal cost and cgroup are sorted in this order.
    Rule {
        /// A quota ran out.
        Throttled = "throttled",
        /// There are more busy threads than the quota has CPUs.
        ThreadsOverQuota = "threads_over_quota",
        /// A quota ran out although on average the cgroup used less than the quota.
        ThrottledBelowLimit = "throttled_below_limit",
        /// Tasks of other cgroups had the CPU.
        NoisyNeighbour = "noisy_neighbour",
        /// The host has fewer CPUs than runnable tasks.
        CpuOversubscription = "cpu_oversubscription",
        /// Tasks of one cgroup wait for each other.
        OwnContention = "own_contention",
        /// A task waits for very long and still waits.
        Starved = "starved",
        /// Tasks wait for busy CPUs while other CPUs are idle.
        IdleCpus = "idle_cpus",
        /// Idle CPUs take long to wake up.
        WakeupLatency = "wakeup_latency",
        /// Real-time or deadline tasks used up their runtime.
        RealTimeLimit = "real_time_limit",
        /// Interrupts had the CPUs.
        Interrupts = "interrupts",
        /// The hypervisor had the CPUs.
        StolenTime = "stolen_time",
        /// One node is full while another is idle.
        NodeSkew = "node_skew",
        /// Threads run on other nodes than their memory.
        RemoteMemory = "remote_memory",
        /// Threads often move between nodes.
        NodeBouncing = "node_bouncing",
        /// The cause of waiting is unknown.
        Unattributed = "unattributed",
    }
}
by_name!(Rule);

/// The short form of a finding: what happens, how much, and one action.
struct Short {
    what: String,
    amount: String,
    action: String,
}

impl Short {
    fn new(what: impl Into<String>, amount: impl Into<String>, action: impl Into<String>) -> Self {
        Self { what: what.into(), amount: amount.into(), action: action.into() }
    }
}

fn finding(rule: Rule, lost_ns: u64, short: Short, says: String, advice: impl Into<String>) -> Finding {
    let Short { what, amount, action } = short;
    let advice = advice.into();
    Finding { rule, cgroup: None, what, amount, action, says, advice, lost_ns, is_heavier: false }
}

/// A finding about a cgroup. [`name`] adds the cgroup's name.
fn about(path: &Arc<str>, finding: Finding) -> Finding {
    Finding { cgroup: Some(path.clone()), ..finding }
}

/// Adds the name of the cgroup that a finding is about.
pub(crate) fn name(finding: &mut Finding, names: &Names) {
    // Its sentence names the cgroup itself.
    if let Some(path) = finding.cgroup.as_ref().filter(|_| finding.rule != Rule::NodeSkew) {
        finding.what = format!("{} {}", leaf(names, path), finding.what);
        finding.says = format!("{}: {}", names.of(path), finding.says);
    }
}

/// The short name of a cgroup: that of its container, pod or unit, or else its last part, without its ancestors.
fn leaf(names: &Names, path: &str) -> String {
    match names.of(path) {
        _ if path == "/" => "the root cgroup".into(),
        name if *name == *path => container_words(path).unwrap_or_else(|| names.leaf(path).into()),
        name => name.into(),
    }
}

/// Time per second: `494ms/s`.
fn rate(ns: u64, duration_ns: u64) -> String {
    let per_second = u128::from(ns) * 1_000_000_000 / u128::from(duration_ns.max(1));
    format!("{}/s", duration(u64::try_from(per_second).unwrap_or(u64::MAX)))
}

fn micros(us: u64) -> String {
    duration(us.saturating_mul(1_000))
}
