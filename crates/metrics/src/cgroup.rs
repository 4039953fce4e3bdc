//! Keeps the figures of an exported cgroup, and of the host.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_ledger::Loss;
use cgscope_model::{
    CgroupName, CgroupReading, ContainerReading, Counter, Group, Interval, Losses, Mode, Names, Observed,
    counters::{COUNTERS, Counts},
    nodes::NodeGroup,
    sum,
};

use crate::family::{self, Family};
use crate::value::{Labels, Value};
use crate::{culprits::Culprits, metrics::Writer, waits::Waits};

/// An exported cgroup. Its figures include its descendants.
#[derive(Debug, Default)]
pub(crate) struct Cgroup {
    /// The path below the cgroup mount point.
    pub path: Arc<str>,
    /// Start of the first interval that exported this cgroup, ns since 1970.
    pub created_unix_ns: u64,
    pub labels: Labels,
    /// Names of the container or pod, as the container runtime reports them.
    names: Option<ContainerReading>,
    pub waits: Waits,
    pub culprits: Culprits<1>,
    /// The wakers of its sleeping tasks.
    pub wakers: Culprits<5>,
    /// Sums of the counters since the first interval that exported this cgroup; `None` for a counter that we have never read.
    counters: [Option<u64>; COUNTERS],
    /// Values of the gauges at the end of the last interval, by family name. Unknown values are missing.
    gauges: BTreeMap<&'static str, Value>,
}

impl Cgroup {
    pub fn new(path: Arc<str>, created_unix_ns: u64) -> Self {
        let mut cgroup = Self { path, created_unix_ns, ..Self::default() };
        cgroup.label();
        cgroup
    }

    /// Updates the names of the container or pod. Without new names, the known names stay: the runtime may be unavailable.
    pub fn name(&mut self, names: &Names) {
        let reported = names.container(&self.path).map(|(_, named)| named);
        if reported.is_some() && reported != self.names.as_ref() {
            self.names = reported.cloned();
            self.label();
        }
    }

    fn label(&mut self) {
        let ContainerReading { container, pod, namespace, .. } = self.names.clone().unwrap_or_default();
        let [container, pod, namespace] =
            [container, pod, namespace].map(|name| name.map(|name| name.to_string()));
        let CgroupName { unit, container: id, pod_uid, is_rootless: _ } = CgroupName::of(&self.path);
        let values = [Some(self.path.to_string()), unit, id, pod_uid, container, pod, namespace];
        let known = family::CGROUP_LABELS.into_iter().zip(values);
        self.labels = Labels::new(known.filter_map(|(name, value)| Some((name, value?))).collect());
    }

    /// Returns the cgroup's figure for a family that has one series per cgroup. `None` if the figure is unknown.
    pub fn value(&self, family: &Family) -> Option<Value> {
        let Some(counter) = family.counter else {
            return self.gauges.get(family.name).copied();
        };
        let value = if counter.info().counts == Counts::Ns { Value::Ns } else { Value::Count };
        self.counters[counter as usize].map(value)
    }

    /// Adds the figures of the cgroup's tasks in an interval.
    pub fn add(&mut self, group: &Group, mode: Mode) {
        self.count(&Observed::group(group, mode));
        self.set(&family::WAITING, mode.exact(|| Value::Count(group.pending)));
        self.set(&family::LONGEST_WAIT, mode.exact(|| Value::Ns(group.pending_max_ns)));
        self.set(&family::TASKS, Some(Value::Count(group.threads)));
        // Coarse mode has only sums of waits, but a histogram needs the lengths of single waits.
        if mode == Mode::Bpf {
            self.waits.add(&group.wait);
        }
    }

    fn set(&mut self, gauge: &Family, value: Option<Value>) {
        self.gauges.remove(gauge.name);
        self.gauges.extend(value.map(|value| (gauge.name, value)));
    }

    fn count(&mut self, observed: &Observed<'_>) {
        for (sum, counter) in self.counters.iter_mut().zip(Counter::ALL) {
            *sum = sum::known(*sum, counter.of(observed));
        }
    }

    /// Sets the gauges of the limits, and adds the increase of their counters. For unreadable limits, pass default values.
    pub fn limit(&mut self, limits: &CgroupReading, effective_cores: Option<f64>) {
        self.count(&Observed::limits(limits));
        let has_quota = limits.quota_us.is_some();
        self.set(&family::QUOTA, limits.quota_us.map(Value::us));
        self.set(&family::PERIOD, limits.period_us.filter(|_| has_quota).map(Value::us));
        self.set(&family::BURST, limits.burst_us.filter(|_| has_quota).map(Value::us));
        self.set(&family::EFFECTIVE_CORES, effective_cores.map(Value::Float));
    }
}

/// Host-wide sums since the first interval; `None` for a figure that we have never read.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Start of the first interval, ns since 1970.
    created_unix_ns: Option<u64>,
    losses: Losses,
    hook_ns: Option<u64>,
    hook_runs: Option<u64>,
    nodes: BTreeMap<u32, Node>,
}

#[derive(Debug)]
struct Node {
    labels: Labels,
    created_unix_ns: u64,
    group: NodeGroup,
}

/// Returns the value of a series; `None` if it is unknown, and the series is omitted.
type NodeFigure = fn(&Node) -> Option<Value>;

const OF_NODES: [(&Family, NodeFigure); 6] = [
    (&family::NODE_BUSY, |node| node.group.busy_ns.map(Value::Ns)),
    (&family::NODE_CPUS, |node| Some(Value::Count(node.group.cpus.len() as u64))),
    (&family::NODE_MEMORY_USED, |node| node.group.used_bytes.map(Value::Count)),
    (&family::NODE_MEMORY_TOTAL, |node| node.group.memory_bytes.map(Value::Count)),
    (&family::NODE_MIGRATIONS_IN, |node| node.group.migrations_in.map(Value::Count)),
    (&family::NODE_MIGRATIONS_OUT, |node| node.group.migrations_out.map(Value::Count)),
];

impl Host {
    /// Adds an interval. Drops the nodes that are missing from the interval.
    pub fn add(&mut self, interval: &Interval) {
        self.created_unix_ns.get_or_insert(interval.start_unix_ns);
        self.losses.append(&interval.losses);
        self.hook_ns = sum::known(self.hook_ns, interval.cost.hook_ns);
        self.hook_runs = sum::known(self.hook_runs, interval.cost.hook_runs);
        let groups = interval.by_node();
        self.nodes.retain(|node, _| groups.iter().any(|group| group.node == *node));
        for group in groups {
            let new = || Node {
                labels: Labels::new(vec![("node", group.node.to_string())]),
                created_unix_ns: interval.start_unix_ns,
                group: NodeGroup::default(),
            };
            self.nodes.entry(group.node).or_insert_with(new).add(group);
        }
    }

    pub fn write_nodes(&self, page: &mut impl Writer) {
        for (family, value) in OF_NODES {
            page.begin(family);
            for (node, value) in self.nodes.values().filter_map(|node| Some((node, value(node)?))) {
                page.sample(&node.labels, None, value, Some(node.created_unix_ns));
            }
        }
    }

    pub fn write_cost(&self, page: &mut impl Writer) {
        let none = Labels::default();
        page.begin(&family::LOSSES);
        for loss in Loss::ALL {
            let count = Value::Count(self.losses.get(loss));
            page.sample(&none, Some(("loss", loss.name())), count, self.created_unix_ns);
        }
        for (family, value) in [
            (&family::HOOK_TIME, self.hook_ns.map(Value::Ns)),
            (&family::HOOK_RUNS, self.hook_runs.map(Value::Count)),
        ] {
            page.begin(family);
            value.into_iter().for_each(|value| page.sample(&none, None, value, self.created_unix_ns));
        }
    }
}

impl Node {
    fn add(&mut self, now: NodeGroup) {
        let before = std::mem::replace(&mut self.group, now);
        let now = &mut self.group;
        now.busy_ns = sum::known(now.busy_ns, before.busy_ns);
        now.migrations_in = sum::known(now.migrations_in, before.migrations_in);
        now.migrations_out = sum::known(now.migrations_out, before.migrations_out);
    }
}
