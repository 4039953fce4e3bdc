//! The metric families of a page: names, kinds, units, labels and help. The model's table defines the families of counters.
//! `docs/metrics.md` adds sources and limits; a test compares both.

use std::sync::LazyLock;

use cgscope_model::counters::{Counter, Counts, Metric, OF_METRICS, OF_METRICS_FIRST};

cgscope_ledger::named! {
    /// How the values of a family change.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind (name, number,) {
        /// The name for the line `# TYPE`.
        name: &'static str,
        /// The number in protobuf messages: `io.prometheus.client.MetricType`.
        number: i32,
    }

    /// A sum that never falls while its series exists.
    Counter = "counter", 0;
    /// The current value at the time of the page.
    Gauge = "gauge", 1;
    /// Numbers of waits by length, which never fall.
    Histogram = "histogram", 4;
}

/// A metric family: all series with one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Name of the family, without the suffix `_total` of counters. If the family has a unit, its name ends with the unit.
    pub name: &'static str,
    pub kind: Kind,
    /// Base unit (`seconds`, `bytes`); `None` for a plain number.
    pub unit: Option<&'static str>,
    /// Names of the labels. [`CGROUP`] stands for all labels of a cgroup.
    pub labels: &'static [&'static str],
    pub help: &'static str,
    /// The counter of the model that the family exports, if any.
    pub(crate) counter: Option<Counter>,
}

impl Family {
    /// Returns the name of the samples; for a histogram, without the suffixes `_bucket`, `_sum` and `_count`.
    pub fn sample_name(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{suffix}", self.name)
    }
}

/// Placeholder in [`Family::labels`] for those labels in [`CGROUP_LABELS`] that are known.
pub const CGROUP: &str = "cg";

/// Labels of a cgroup: its path, three derived from the path, and three from the container runtime, as far as known.
pub const CGROUP_LABELS: [&str; 7] =
    ["cgroup", "unit", "container_id", "pod_uid", "container", "pod", "namespace"];

const SECONDS: Option<&str> = Some("seconds");
const BYTES: Option<&str> = Some("bytes");

macro_rules! families {
    ($($name:ident: $text:literal $kind:ident $unit:expr, [$($label:expr),*], $help:literal;)*) => {
        $(
            #[doc = concat!("`", $text, "`: ", $help)]
            pub const $name: Family = Family {
                name: $text,
                kind: Kind::$kind,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
                counter: None,
            };
        )*

        const BESIDE_COUNTERS: &[&Family] = &[$(&$name),*];
    };
}

families! {
    WAIT: "cgscope_runqueue_wait_seconds" Histogram SECONDS, [CGROUP, "cause"],
        "Completed waits on a run queue, each under one cause. The sum over all causes is the distribution of all waits.";
    WAITING: "cgscope_runqueue_waiting" Gauge None, [CGROUP],
        "Tasks that wait for a CPU now.";
    LONGEST_WAIT: "cgscope_runqueue_longest_wait_seconds" Gauge SECONDS, [CGROUP],
        "How long the longest current wait has lasted; 0 if no task waits.";
    QUOTA: "cgscope_cgroup_quota_seconds" Gauge SECONDS, [CGROUP],
        "CPU time that the cgroup may use in a period; absent if it has no quota of its own.";
    PERIOD: "cgscope_cgroup_period_seconds" Gauge SECONDS, [CGROUP],
        "Length of a period of the cgroup's own quota.";
    BURST: "cgscope_cgroup_burst_seconds" Gauge SECONDS, [CGROUP],
        "Unused CPU time that the cgroup may save and use above its quota.";
    EFFECTIVE_CORES: "cgscope_cgroup_effective_cores" Gauge None, [CGROUP],
        "The tightest quota of the cgroup and its ancestors, in CPUs; absent if none of them has a quota.";
    TASKS: "cgscope_cgroup_tasks" Gauge None, [CGROUP],
        "Threads in the cgroup and in all cgroups below it.";
    CULPRIT_WAIT: "cgscope_culprit_wait_seconds" Counter SECONDS, [CGROUP, "culprit"],
        "How long tasks waited while the culprit ran: the path of a cgroup, kernel, or other for all culprits without a name.";
    SLEEP_FOR: "cgscope_sleep_for_seconds" Counter SECONDS, [CGROUP, "waker_cgroup", "doing"],
        "How long tasks slept until a task of waker_cgroup woke them, by what the waker did during the sleep. Only with chains.";
    NODE_BUSY: "cgscope_node_busy_seconds" Counter SECONDS, ["node"],
        "Time in which the CPUs of a NUMA node were busy, summed over the CPUs.";
    NODE_CPUS: "cgscope_node_cpus" Gauge None, ["node"],
        "Online CPUs of a NUMA node.";
    NODE_MEMORY_USED: "cgscope_node_memory_used_bytes" Gauge BYTES, ["node"],
        "Memory in use on a NUMA node.";
    NODE_MEMORY_TOTAL: "cgscope_node_memory_total_bytes" Gauge BYTES, ["node"],
        "Total memory of a NUMA node.";
    NODE_MIGRATIONS_IN: "cgscope_node_migrations_in" Counter None, ["node"],
        "Moves of tasks to a CPU of the node from another node.";
    NODE_MIGRATIONS_OUT: "cgscope_node_migrations_out" Counter None, ["node"],
        "Moves of tasks from the node to a CPU of another node.";
    CGROUPS: "cgscope_cgroups" Gauge None, ["state"],
        "Cgroups that have tasks in them or below them. The label state says if this page exports them, and if not, why.";
    LOSSES: "cgscope_losses" Counter None, ["loss"],
        "Number of losses by kind; docs/limits.md explains each kind.";
    HOOK_TIME: "cgscope_hook_seconds" Counter SECONDS, [],
        "Estimated CPU time of the hook that runs at each task switch: number of runs times the last measured length of a run.";
    HOOK_RUNS: "cgscope_hook_runs" Counter None, [],
        "Number of times that the hook ran, which is the number of task switches of the host.";
    COLLECTIONS: "cgscope_collections" Counter None, [],
        "Samples taken.";
    COLLECTION_TIME: "cgscope_collection_seconds" Counter SECONDS, [],
        "Time spent taking samples.";
    SAMPLE_AGE: "cgscope_sample_age_seconds" Gauge SECONDS, [],
        "Age of the latest sample on this page.";
    CLIENTS: "cgscope_clients" Gauge None, [],
        "Clients connected to the socket.";
    CLIENT_REQUESTS: "cgscope_client_requests" Counter None, [],
        "Requests on the socket, except malformed requests and requests above the rate limit.";
    CLIENTS_REFUSED: "cgscope_clients_refused" Counter None, ["reason"],
        "Connections that the daemon refused or ended.";
    HTTP_CONNECTIONS: "cgscope_http_connections" Gauge None, [],
        "Open connections to the server of this page.";
    HTTP_REQUESTS: "cgscope_http_requests" Counter None, [],
        "HTTP requests that succeeded.";
    HTTP_REFUSED: "cgscope_http_refused" Counter None, ["reason"],
        "HTTP requests and connections that the daemon refused or ended.";
    BUILD_INFO: "cgscope_build_info" Gauge None, ["version"],
        "Always 1; the label is the version of cgscope.";
    PROCESS_CPU: "process_cpu_seconds" Counter SECONDS, [],
        "CPU time of the daemon.";
    PROCESS_MEMORY: "process_resident_memory_bytes" Gauge BYTES, [],
        "Resident memory of the daemon.";
    PROCESS_START: "process_start_time_seconds" Gauge SECONDS, [],
        "Start time of the daemon, in seconds since 1970.";
}

static FIRST: LazyLock<Vec<Family>> = LazyLock::new(|| of_counters(OF_METRICS_FIRST));
static COUNTERS: LazyLock<Vec<Family>> = LazyLock::new(|| of_counters(OF_METRICS));

/// All families, in the order of the page. The daemon provides the values of the families at the end.
pub static ALL: LazyLock<Vec<&'static Family>> = LazyLock::new(|| {
    let before = |family: &Family| match family {
        family if *family == QUOTA => &FIRST[..],
        family if *family == TASKS => &COUNTERS[..],
        _ => &[],
    };
    BESIDE_COUNTERS.iter().flat_map(|family| before(family).iter().chain([*family])).collect()
});

fn of_counters(counters: &[Counter]) -> Vec<Family> {
    let family = |counter: &Counter| {
        let Metric { name, help } = counter.info().metric?;
        let (kind, unit) = (Kind::Counter, SECONDS.filter(|_| counter.info().counts == Counts::Ns));
        Some(Family { name, kind, unit, labels: &[CGROUP], help, counter: Some(*counter) })
    };
    counters.iter().filter_map(family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for (at, family) in ALL.iter().enumerate() {
            let name = family.name;
            assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{name}");
            assert!(name.starts_with("cgscope_") || name.starts_with("process_"), "{name}");
            assert!(
                !["_total", "_count", "_sum", "_bucket", "_created"].iter().any(|end| name.ends_with(end)),
                "{name}"
            );
            assert!(family.unit.is_none_or(|unit| name.ends_with(&format!("_{unit}"))), "{name}");
            assert_eq!(
                family.unit.is_some(),
                name.ends_with("_seconds") || name.ends_with("_bytes"),
                "{name}"
            );
            assert!(ALL[..at].iter().all(|earlier| earlier.name != name), "{name} occurs twice");
            assert!(family.help.ends_with('.') && !family.help.contains(['\\', '"', '\n']), "{name}");
        }
    }
}
