//! What is wrong in an interval, in words with their figures, and what to do about it: judged by a pure function.
//!
//! Only completed waits count: they are the ones whose cause and culprits are known to the end. A rule whose data are
//! missing says nothing.

mod contention;
mod context;
mod host;
mod numa;
mod quota;
mod skew;
#[cfg(test)]
mod tests;
mod words;

use std::{cmp::Reverse, sync::Arc};

use serde::{Serialize, Serializer};

use crate::{Interval, Tree};
use context::Context;
pub(crate) use words::{is_share, list};

/// Where a quota is set.
pub const QUOTA_FILE: &str = "cpu.max, in v1 cpu.cfs_quota_us";
/// A quota is told of once it ran out in this share of the periods, percent: below it few requests meet it.
pub const THROTTLED_PERIODS_PERCENT: u64 = 5;
/// Or once tasks were throttled for this share of the time they waited or ran, percent...
pub const THROTTLED_WAIT_PERCENT: u64 = 5;
/// ... and for so long, ns summed over tasks.
pub const THROTTLED_WAIT_NS: u64 = 10_000_000;
/// A thread is busy if it ran or waited for this share of the interval, percent. Any program has idle threads, which do
/// not compete for the quota.
pub const BUSY_THREAD_PERCENT: u64 = 1;
/// Use below this share of the quota, percent, on average over its periods, is a quota that would do if it were not for
/// bursts.
pub const BELOW_LIMIT_PERCENT: u64 = 80;
/// Neighbours are noisy if they made tasks wait for this share of the time those waited or ran, percent...
pub const NEIGHBOUR_PERCENT: u64 = 10;
/// ... and for so long, ns summed over tasks.
pub const NEIGHBOUR_NS: u64 = 50_000_000;
/// A cgroup is not told of again if those told of below it have this share of its waiting, percent.
pub const EXPLAINED_PERCENT: u64 = 80;
/// More tasks than CPUs by this factor, percent, on average: some waiting is usual on a host that is just full.
pub const OVERSUBSCRIBED_PERCENT: u64 = 120;
/// CPUs less busy than this, percent, were not too few: their tasks were badly spread.
pub const CPUS_BUSY_PERCENT: u64 = 90;
/// Tasks of one cgroup are in each other's way if that took this share of the time they waited or ran, percent...
pub const OWN_PERCENT: u64 = 25;
/// ... and so long, ns summed over tasks.
pub const OWN_NS: u64 = 10_000_000;
/// Waking is slow if it is this share of all waiting, percent...
pub const WAKEUP_PERCENT: u64 = 20;
/// ... and takes so long on average, ns: shallow idle states are left within some microseconds...
pub const WAKEUP_MEAN_NS: u64 = 50_000;
/// ... over so many waits. Fewer may be one mishap.
pub const WAKEUP_WAITS: u64 = 100;
/// Waiting without a known cause is told of from this share on, percent...
pub const UNATTRIBUTED_PERCENT: u64 = 5;
/// ... and from so long on, ns summed over tasks.
pub const UNATTRIBUTED_NS: u64 = 10_000_000;
/// A node is full if its CPUs were busy for this share of the time, percent...
pub const NODE_BUSY_PERCENT: u64 = 90;
/// ... and tasks waited for them for this share of that, percent: below it the queues are those of any busy CPU...
pub const NODE_WAIT_PERCENT: u64 = 10;
/// ... and for so long, ns summed over tasks.
pub const NODE_WAIT_NS: u64 = 10_000_000;
/// A node idles if its CPUs were busy for at most this share of the time, percent: the scheduler spreads what it may spread
/// within some ticks, so that over an interval nodes differ by less.
pub const NODE_IDLE_PERCENT: u64 = 30;
/// Memory is far from the threads if this share of it is on another node than they are, percent...
pub const REMOTE_PERCENT: u64 = 50;
/// ... and so much more than memory spread evenly over all nodes would be, percentage points: who spreads it has chosen so...
pub const REMOTE_ABOVE_EVEN_PERCENT: u64 = 5;
/// ... of so many bytes: less fits in caches...
pub const REMOTE_BYTES: u64 = 16 << 20;
/// ... and they ran for this share of the interval, percent of one CPU.
pub const REMOTE_RAN_PERCENT: u64 = 10;
/// Threads bounce between nodes from so many moves a second on, on average over the busy ones: filling the caches anew takes
/// milliseconds...
pub const NODE_MOVES_PER_SECOND: u64 = 10;
/// ... and so many in all. Fewer may be the start of a program.
pub const NODE_MOVES: u64 = 20;
/// Weights and quotas are no advice for tasks of which real-time tasks have this share of what all of them did, percent.
pub const REALTIME_PERCENT: u64 = 50;
/// So many findings are told; the others cost less.
pub const MOST: usize = 12;

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $threshold:literal;)*) => {
        /// What is looked for. In ascending order where two findings cost the same.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule { $($(#[$doc])* $variant,)* }

        impl Rule {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in every output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// From where on it speaks, in a sentence.
            pub const fn threshold(self) -> &'static str {
                match self { $(Self::$variant => $threshold,)* }
            }
        }
    };
}

rules! {
    /// A quota ran out.
    Throttled = "throttled",
        "a cgroup's own quota ran out in at least 5% of its periods, or throttled its tasks for at least 5% of the time \
         they waited or ran and for 10ms";
    /// More threads than the quota has CPUs.
    ThreadsOverQuota = "threads_over_quota",
        "a cgroup is throttled, and more of its threads than its quota has CPUs, rounded up, each ran or waited for at \
         least 1% of the interval";
    /// A quota ran out although it was not used up on average.
    ThrottledBelowLimit = "throttled_below_limit",
        "a cgroup's own quota ran out in at least 5% of its periods, yet it used less than 80% of what they allow together";
    /// Tasks of other cgroups had the CPU.
    NoisyNeighbour = "noisy_neighbour",
        "tasks of other cgroups made a cgroup's tasks wait for at least 10% of the time these waited or ran and for 50ms; \
         unless cgroups told of below it have 80% of that";
    /// The host has fewer CPUs than tasks that could run.
    CpuOversubscription = "cpu_oversubscription",
        "on a host measured as a whole, more than 120% as many tasks as CPUs ran or could have run on average, and the \
         CPUs were busy for at least 90% of the time";
    /// Tasks of one cgroup are in each other's way.
    OwnContention = "own_contention",
        "tasks of a cgroup waited behind each other for at least 25% of the time they waited or ran and for 10ms, and no \
         quota and no full NUMA node beside an idle one explains it";
    /// Idle CPUs take long to wake.
    WakeupLatency = "wakeup_latency",
        "waking up is at least 20% of all waiting and takes 50us or more on average over at least 100 waits";
    /// One node is full while another idles.
    NodeSkew = "node_skew",
        "of several NUMA nodes with CPUs one was busy for at least 90% of the time, and tasks waited for its CPUs for at \
         least 10% of that and for 10ms, while another was busy for at most 30%";
    /// Threads are far from their memory.
    RemoteMemory = "remote_memory",
        "at least 50% of the memory of a process or cgroup, and 5% of it more than if it were spread evenly, is on another \
         NUMA node than its threads ran; of at least 16.0MiB, with threads that ran for 10% of one CPU";
    /// Threads move between nodes all the time.
    NodeBouncing = "node_bouncing",
        "the threads of a process came on another NUMA node at least 10 times a second, on average over those that ran or \
         waited for at least 1% of the interval, and 20 times in all";
    /// Waiting without a known cause.
    Unattributed = "unattributed",
        "the cause of at least 5% of all waiting, and of 10ms, is not known";
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked for.
    pub rule: Rule,
    /// Path of the cgroup it is about, as under the mount; `None`: the host, or all that was measured of it.
    pub cgroup: Option<Arc<str>>,
    /// What is wrong, with the figures: one sentence, without a full stop.
    pub says: String,
    /// What to do: one sentence, without a full stop.
    pub advice: String,
    /// The waiting behind it, ns summed over tasks. Two findings may share it.
    pub lost_ns: u64,
}

/// What has to be known about the host besides the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
    /// Every task was measured: nothing was left out by a selection.
    pub whole: bool,
}

/// What is wrong in `interval`, at most [`MOST`]: by what it cost, the worst first, and last what only limits the
/// other figures.
pub fn findings(interval: &Interval, host: &Host) -> Vec<Finding> {
    findings_in(interval, &Tree::new(interval), host)
}

/// The same, where the tree of the interval is there already.
pub fn findings_in(interval: &Interval, tree: &Tree, host: &Host) -> Vec<Finding> {
    if interval.duration_ns == 0 {
        return Vec::new();
    }
    let context = Context::new(interval, tree, *host);
    let mut findings = quota::findings(&context);
    let oversubscribed = host::cpu_oversubscription(&context);
    findings.extend(contention::noisy_neighbours(&context));
    let (skew, full_node) = numa::node_skew(&context).unzip();
    findings.extend(contention::own_contention(&context, oversubscribed.is_some(), full_node));
    findings.extend(skew);
    findings.extend(oversubscribed);
    findings.extend(host::wakeup_latency(&context));
    findings.extend(numa::findings(&context));
    findings.extend(host::unattributed(&context));
    findings.sort_by(|a, b| order(a).cmp(&order(b)));
    findings.truncate(MOST);
    findings
}

fn order(finding: &Finding) -> (bool, Reverse<u64>, Option<&str>, Rule) {
    let Finding { rule, cgroup, lost_ns, .. } = finding;
    (*rule == Rule::Unattributed, Reverse(*lost_ns), cgroup.as_deref(), *rule)
}
