//! The name, the sentence and the advice of each rule.

mod taken;

use std::sync::Arc;

use cgscope_layout::{Cause, Loss};

use super::{QUOTA_FILE, list, percent};
use crate::{
    CgroupReading, Interval, ProcessMemory, REST_NAME,
    culprits::Culprit,
    findings::{
        BusyThreads, Context, FarMemory, Finding, Hold, Skew, Throttled, is_share, realtime_neighbour,
        realtime_victim, siblings,
    },
    named::by_name,
    nodes::{NodeGroup, amount, total},
    placement::cpu_list,
    quota_use, sum,
    units::{self, bytes, count, cpus, duration, number, times},
};

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

pub(crate) use taken::{interrupts, real_time_limit, stolen_time};

/// Maximum number of named neighbours. All but the worst need at least this share of the waiting, percent.
const NEIGHBOURS: usize = 3;
const NEIGHBOUR_NAMED_PERCENT: u64 = 10;
/// Maximum number of named affinity masks.
const MASKS: usize = 4;
/// Memory is named as a reason if this share of it lies on the full node, percent.
const MEMORY_PERCENT: u64 = 80;

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

/// A finding about a cgroup.
fn about(path: &Arc<str>, finding: Finding) -> Finding {
    let (what, says) = (format!("{} {}", leaf(path), finding.what), format!("{path}: {}", finding.says));
    Finding { cgroup: Some(path.clone()), what, says, ..finding }
}

/// The name of a cgroup without its ancestors, which the long form has. A cgroup inside a service or scope keeps the name of this
/// unit: `cron.service/main`, not `main`.
fn leaf(path: &str) -> &str {
    let is_unit = |name: &str| [".service", ".scope"].iter().any(|kind| name.ends_with(kind));
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = above.rsplit('/').next().unwrap_or_default();
    match name {
        "" => "the root cgroup",
        _ if is_unit(parent) && !is_unit(name) => &path[path.len() - parent.len() - 1 - name.len()..],
        _ => name,
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

pub(crate) fn throttled(throttled: &Throttled, duration_ns: u64) -> Finding {
    let Throttled { limits, sums, held_ns, .. } = throttled;
    let mut clauses = vec![periods(limits)];
    if *held_ns != 0 {
        let ran = times(*held_ns, sums.ran_ns).map_or_else(
            || " and did not run".into(),
            |times| format!(", {times} their run time ({})", duration(sums.ran_ns)),
        );
        clauses.push(format!("its tasks were throttled for {}{ran}", duration(*held_ns)));
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
    let advice = format!("raise its limit ({QUOTA_FILE}){threads}{computes}");
    let limit = limits.quota_cores().map(|cores| format!(" of {}", cpus(cores))).unwrap_or_default();
    let short = Short::new(
        format!("is at its CPU limit{limit}"),
        format!("throttled {}", rate(*held_ns, duration_ns)),
        format!("raise its limit (cpu.max){threads}"),
    );
    about(throttled.path, finding(Rule::Throttled, *held_ns, short, clauses.join("; "), advice))
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
    let Throttled { path, limits, busy, held_ns, .. } = throttled;
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
    Some(about(path, finding(Rule::ThreadsOverQuota, *held_ns, short, says, advice)))
}

/// The finding about a quota exceeded only in bursts; `None` if the quota or the periods are unknown. `used`: average CPUs.
pub(crate) fn throttled_below_limit(throttled: &Throttled, used: f64) -> Option<Finding> {
    let Throttled { path, limits, held_ns, .. } = throttled;
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
    Some(about(path, finding(Rule::ThrottledBelowLimit, *held_ns, short, says, burst_advice(limits)?)))
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

/// The finding about noisy neighbours. `neighbours`: the culprits of the cgroup, the worst first.
pub(crate) fn noisy_neighbour(context: &Context, node: usize, neighbours: &[Culprit]) -> Finding {
    let sums = context.with_below(node);
    let ns = sums.by_cause.get(Cause::OtherCgroup);
    // The pairs cover all tasks of the cgroup. A selection by name may contain only some of these tasks.
    let all_ns = sum::total(neighbours.iter().map(|neighbour| neighbour.ns)).max(ns);
    let is_named = |(at, neighbour): &(usize, &Culprit)| {
        *at == 0 || is_share(neighbour.ns, all_ns, NEIGHBOUR_NAMED_PERCENT)
    };
    let named = neighbours.iter().take(NEIGHBOURS).enumerate().filter(is_named).map(|(_, neighbour)| {
        let path = neighbour.path.as_deref().unwrap_or("a removed cgroup");
        let task = neighbour.task.as_ref().map(|(tid, comm)| format!(" ({comm}, thread {tid})"));
        format!("{} behind {path}{}", percent(neighbour.ns, all_ns), task.unwrap_or_default())
    });
    let named: Vec<_> = named.collect();
    let named = if named.is_empty() { String::new() } else { format!(": {}", list(&named)) };
    let says = format!(
        "its tasks waited {} ({} of their run and wait time) behind other cgroups{named}",
        duration(ns),
        percent(ns, sums.active_ns()),
    );
    // The advice names one cgroup, not a sum of several.
    let worst = neighbours.iter().find(|neighbour| neighbour.path.as_deref() != Some(REST_NAME));
    let advice = neighbour_advice(context, node, worst);
    // The share of the first neighbour, of the waits that the selection has left.
    let first_ns = neighbours
        .first()
        .map_or(ns, |first| (u128::from(ns) * u128::from(first.ns) / u128::from(all_ns.max(1))) as u64);
    let is_heavier = worst.is_some_and(|worst| is_heavier(context, node, worst));
    let short = behind(context, node, neighbours.first(), first_ns, worst);
    let finding = about(context.path(node), finding(Rule::NoisyNeighbour, ns, short, says, advice));
    Finding { is_heavier, ..finding }
}

/// True if the victim used more CPU time than this neighbour, an ordinary cgroup beside it.
fn is_heavier(context: &Context, victim: usize, neighbour: &Culprit) -> bool {
    let Some(path) = neighbour.path.as_deref() else { return false };
    let ran_ns = |node| context.with_below(node).ran_ns;
    siblings(context.path(victim), path).is_some()
        && realtime_neighbour(context, neighbour).is_none()
        && realtime_victim(context, victim).is_none()
        && context.tree.find(path).is_some_and(|neighbour| ran_ns(victim) > ran_ns(neighbour))
}

/// The short form about the first neighbour; `ns`: the time behind it.
fn behind(
    context: &Context,
    node: usize,
    first: Option<&Culprit>,
    ns: u64,
    worst: Option<&Culprit>,
) -> Short {
    let waited_ns = context.with_below(node).waited_ns;
    let who = first.and_then(|first| first.path.as_deref()).map_or("other cgroups", leaf);
    let amount = format!(
        "{} ({:.0}% of its waiting)",
        rate(ns, context.interval.duration_ns),
        units::percent(ns, waited_ns).unwrap_or_default()
    );
    let realtime = worst.is_some_and(|worst| realtime_neighbour(context, worst).is_some());
    let action = match worst.and_then(|worst| worst.path.as_deref()) {
        neighbour if realtime => {
            let who = neighbour.map_or("that cgroup", leaf);
            format!("give real-time tasks of {who} an ordinary policy (chrt -o), or another cpuset")
        }
        _ if realtime_victim(context, node).is_some() => {
            "give its real-time tasks a higher priority (chrt -p), or another cpuset".to_owned()
        }
        // Weights count among siblings only, and the root has no quota.
        Some(neighbour) if siblings(context.path(node), neighbour).is_none() => {
            format!("move tasks of {} to a cgroup with a quota (cpu.max)", leaf(neighbour))
        }
        Some(_) if worst.is_some_and(|worst| is_heavier(context, node, worst)) => {
            format!("none, unless {} matters more: then raise its cpu.weight", leaf(context.path(node)))
        }
        Some(neighbour) => format!("give {} a quota (cpu.max) or a lower cpu.weight", leaf(neighbour)),
        None => "raise its cpu.weight, or give its neighbours a quota (cpu.max)".to_owned(),
    };
    Short::new(format!("waits behind {who}"), amount, action)
}

fn neighbour_advice(context: &Context, node: usize, worst: Option<&Culprit>) -> String {
    // The files of the cpu controller apply only to tasks that are not real-time tasks.
    const NOT: &str = "to which cpu.weight and cpu.max do not apply";
    if let Some((policy, task)) = worst.and_then(|worst| realtime_neighbour(context, worst)) {
        let tid = task.reading.tid;
        return format!(
            "the neighbour's tasks are real-time tasks ({policy}), {NOT}: give them an ordinary policy (chrt -o -p 0 {tid}), \
             or give each of the two cgroups its own cpuset"
        );
    }
    if let Some((policy, _)) = realtime_victim(context, node) {
        return format!(
            "the waiting tasks are real-time tasks ({policy}), {NOT}: give them a higher priority (chrt -p), or give each of \
             the two cgroups its own cpuset"
        );
    }
    let Some(neighbour) = worst.and_then(|worst| worst.path.as_deref()) else {
        return "give the cgroup a higher cpu.weight (in v1 cpu.shares); or give its neighbours a quota (cpu.max); or give \
                each its own cpuset"
            .into();
    };
    let Some((ours, theirs)) = siblings(context.path(node), neighbour) else {
        return format!(
            "move the tasks in {neighbour} itself (not those in cgroups below it) to a cgroup of their own; give that cgroup a \
             quota (cpu.max), a lower cpu.weight or another cpuset"
        );
    };
    let limits = |path: &str| context.limits(context.tree.find(path)?);
    let with_weight = |path: &str| match limits(path).and_then(|limits| limits.weight) {
        Some(weight) => format!("{path} (now {weight})"),
        None => path.into(),
    };
    format!(
        "give {} a higher cpu.weight (in v1 cpu.shares), or give {} a lower one; or give {neighbour} a quota (cpu.max); or \
         give each its own cpuset",
        with_weight(ours),
        with_weight(theirs),
    )
}

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

/// The finding that tasks of a cgroup wait for each other. `host`: number of CPUs that the cgroup may use.
pub(crate) fn own_contention(context: &Context, node: usize, host: u32, busy: &BusyThreads) -> Finding {
    let own = context.tree.nodes()[node].own;
    let ns = own.by_cause.get(Cause::OwnCgroup);
    let (cpus, threads) = (count(host.into(), "CPU"), busy.threads);
    let (why, advice) = if threads > u64::from(host) {
        (
            format!("{} were busy, but the cgroup may use only {cpus}", count(threads, "thread")),
            format!(
                "start at most {} (the number of CPUs that the cgroup may use), or allow more CPUs (cpuset.cpus)",
                count(host.into(), "thread"),
            ),
        )
    } else {
        let pid = busy.processes.first().copied().unwrap_or_default();
        (
            format!(
                "the cgroup may use {cpus}, but its {} were last seen on only {}",
                count(threads, "busy thread"),
                count(busy.cpus.len() as u64, "CPU"),
            ),
            format!(
                "check whether an affinity mask (taskset -acp {pid}) or a cpuset (/proc/{pid}/cpuset) pins these threads"
            ),
        )
    };
    let says = format!(
        "its tasks waited {} ({} of their run and wait time) for each other: {why}",
        duration(ns),
        percent(ns, own.active_ns()),
    );
    let amount = format!(
        "{} on {cpus}, waiting {}",
        count(threads, "busy thread"),
        rate(ns, context.interval.duration_ns)
    );
    let action = if threads > u64::from(host) {
        "start fewer threads, or let it use more CPUs (cpuset.cpus)"
    } else {
        "check whether an affinity mask pins its threads (taskset -acp)"
    };
    let short = Short::new("waits for its own threads", amount, action);
    about(context.path(node), finding(Rule::OwnContention, ns, short, says, advice))
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

pub(crate) fn node_skew(skew: &Skew) -> Finding {
    let Skew { full, idle, .. } = skew;
    let named = |node: &NodeGroup| format!("node {} (CPUs {})", node.node, cpu_list(&node.cpus));
    let busy = |node: &NodeGroup| match node.busy_percent() {
        Some(percent) => format!("{percent:.1}%"),
        None => "no known share".into(),
    };
    let who = match (skew.process, skew.cgroup) {
        (Some(tgid), cgroup) => {
            let cgroup = cgroup.map(|path| format!(" of {path}")).unwrap_or_default();
            format!("process {tgid} ({}){cgroup}", skew.context.interval.process_name(tgid))
        }
        (None, cgroup) => cgroup.map_or_else(String::new, ToString::to_string),
    };
    let filler = match (skew.process, skew.cgroup) {
        (Some(tgid), _) => format!("process {tgid} ({})", skew.context.interval.process_name(tgid)),
        (None, cgroup) => leaf(cgroup.map_or("/", |path| path)).to_owned(),
    };
    let (why, advice) = hold(skew);
    let says = format!(
        "{} was busy {} of the time, with {:.1} tasks running or waiting on average; {} was busy {}; on node {}, {who} has {} \
         and takes {} of the node's run time ({} of its run and wait time together); {why}",
        named(full),
        busy(full),
        full.runnable_avg.unwrap_or_default(),
        named(idle),
        busy(idle),
        full.node,
        count(skew.threads.len() as u64, "busy thread"),
        percent(skew.ran_of.0, skew.ran_of.1),
        percent(skew.active_of.0, skew.active_of.1),
    );
    let short = Short::new(
        format!("{filler} fills node {} while node {} has idle CPUs", full.node, idle.node),
        format!("busy {} and {}", busy(full), busy(idle)),
        format!("let its threads use node {}, too", idle.node),
    );
    Finding {
        cgroup: skew.cgroup.cloned(),
        ..finding(Rule::NodeSkew, full.contended_ns(), short, says, advice)
    }
}

/// The reason why the threads stay on the node, and what to do about it.
fn hold(skew: &Skew) -> (String, String) {
    let Skew { full, idle, .. } = skew;
    let mut both: Vec<u32> = full.cpus.iter().chain(&idle.cpus).copied().collect();
    both.sort_unstable();
    let (node, both) = (idle.node, cpu_list(&both));
    let pid = skew.threads.first().map_or_else(|| "PID".into(), |(task, _)| task.reading.tgid.to_string());
    match &skew.hold {
        Hold::Mask => {
            let mut masks = skew.masks();
            masks.truncate(MASKS);
            let (noun, verb) = if masks.len() == 1 { ("mask", "leaves") } else { ("masks", "leave") };
            (
                format!("the affinity {noun} {} of the threads {verb} out node {node}", list(&masks)),
                format!(
                    "let the threads use node {node}, too (taskset -acp {both} {pid}), or start at most {} (one for each CPU of \
                     node {})",
                    count(full.cpus.len() as u64, "thread"),
                    full.node,
                ),
            )
        }
        Hold::Cpuset { path, cpus } => (
            format!("the cpuset of {path} (cpuset.cpus {cpus}) leaves out node {node}"),
            format!("let {path} use CPUs of node {node}, too (cpuset.cpus {both})"),
        ),
        Hold::Nothing => (
            format!(
                "no affinity mask and no cpuset keeps the threads on node {}{}",
                full.node,
                held_by_memory(skew).unwrap_or_default()
            ),
            format!(
                "check where the memory is (--memory; numastat -p {pid}), the setting kernel.numa_balancing, and whether CPUs {} \
                 are isolated (/sys/devices/system/cpu/isolated)",
                cpu_list(&idle.cpus),
            ),
        ),
        Hold::Unknown => (
            format!(
                "it is not known whether an affinity mask or a cpuset keeps the threads on node {}",
                full.node
            ),
            format!(
                "check the affinity (taskset -acp {pid}) and the cpuset (/proc/{pid}/cpuset) of the threads"
            ),
        ),
    }
}

fn held_by_memory(skew: &Skew) -> Option<String> {
    let memory = skew.context.interval.memory.iter().find(|memory| Some(memory.tgid) == skew.process)?;
    let (there, all) = (amount(&memory.by_node, skew.full.node), total(&memory.by_node));
    let policy = memory.policies.first().filter(|(policy, _)| &**policy != "default");
    let policy = policy.map(|(policy, _)| format!(" (memory policy {policy})")).unwrap_or_default();
    is_share(there, all, MEMORY_PERCENT)
        .then(|| format!(", but {} of the memory is on this node{policy}", percent(there, all)))
}

pub(crate) fn remote_cgroup(remote: &FarMemory, path: &Arc<str>) -> Finding {
    about(path, remote_memory(remote, ""))
}

pub(crate) fn remote_process(remote: &FarMemory, memory: &ProcessMemory, interval: &Interval) -> Finding {
    let ProcessMemory { tgid, policies, .. } = memory;
    let finding =
        remote_memory(remote, &format!("; to move the memory it has now, run migratepages {tgid} FROM TO"));
    let policy = policies.iter().find(|(policy, _)| &**policy != "default");
    let policy = policy.map_or_else(String::new, |(policy, size)| {
        format!("; the memory policy {policy} covers {}", bytes(*size))
    });
    let name = interval.process_name(*tgid);
    let what = format!("process {tgid} ({name}) {}", finding.what);
    Finding { what, says: format!("process {tgid} ({name}): {}{policy}", finding.says), ..finding }
}

fn remote_memory(remote: &FarMemory, move_it: &str) -> Finding {
    // Neither is empty, because both are above a threshold.
    let most = |amounts: &[(u32, u64)]| amounts.iter().copied().max_by_key(|(_, amount)| *amount);
    let ((at, there), (node, ran_there_ns)) =
        (most(remote.memory).unwrap_or_default(), most(&remote.ran).unwrap_or_default());
    let size = total(remote.memory);
    let says = format!(
        "{:.1}% of its memory is on another node than its threads; {} of {} is on node {at}; the threads spent {} of their run \
         time on node {node}",
        remote.share * 100.0,
        percent(there, size),
        bytes(size),
        percent(ran_there_ns, total(&remote.ran)),
    );
    let advice = format!(
        "keep threads and memory on one node (numactl --cpunodebind=N --membind=N, or cpuset.cpus with cpuset.mems){move_it}"
    );
    let short = Short::new(
        "runs far from its memory",
        format!("{:.1}% is on another node", remote.share * 100.0),
        "keep threads and memory on one node (numactl --cpunodebind=N --membind=N)",
    );
    finding(Rule::RemoteMemory, 0, short, says, advice)
}

/// The finding that the busy threads of a process moved between NUMA nodes. `moves`: their moves in total; `each`: moves of one
/// thread per second, on average.
pub(crate) fn node_bouncing(interval: &Interval, tgid: u32, threads: u64, moves: u64, each: f64) -> Finding {
    let says = format!(
        "process {tgid} ({}): its {} moved to another node {} ({each:.1} times a second per thread); each move leaves caches \
         and memory behind",
        interval.process_name(tgid),
        count(threads, "busy thread"),
        count(moves, "time"),
    );
    let advice = format!(
        "keep the process on one node (numactl --cpunodebind, or a cpuset); otherwise find out what moves the threads: check \
         kernel.numa_balancing, their affinity (taskset -acp {tgid}), and tasks on other nodes that wake them"
    );
    let short = Short::new(
        format!("process {tgid} ({}) moves between NUMA nodes", interval.process_name(tgid)),
        format!("{each:.1} moves/s per thread"),
        "keep it on one node (numactl --cpunodebind, a cpuset)",
    );
    finding(Rule::NodeBouncing, 0, short, says, advice)
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
