//! What the page draws from. Times in whole microseconds where there are thousands of them, in ns in the tables.

use cgscope_model::{
    CAUSES, Cause, Group, Interval, Mode, Totals, Wait, nodes::NodeGroup, placement::cpu_list,
};
use serde::Serialize;

use super::charts::{HistRow, Over, PathOver, Quota, hist, paths, quotas};
use crate::{
    causes::{self, ORDER},
    report::{
        Whole,
        rows::{Pair, Row},
        words::About,
    },
};

/// Rows of each table that the page carries: beyond them there is hardly any waiting.
const ROWS: usize = 500;

/// Everything.
#[derive(Serialize)]
pub struct Data<'a> {
    start_unix_ms: u64,
    duration_ns: u64,
    /// False: `/proc` tells no lengths of waits, and of causes only the throttled.
    exact: bool,
    cpus: Option<u32>,
    /// In the order of every array of causes.
    causes: Vec<CauseWords>,
    total: RowData<'a>,
    over: Over,
    /// Cgroups over time, those with most waiting.
    paths: Vec<PathOver>,
    quotas: Vec<Quota>,
    hist: Vec<HistRow>,
    nodes: Vec<NodeData>,
    cgroups: Table<RowData<'a>>,
    processes: Table<RowData<'a>>,
    threads: Table<RowData<'a>>,
    pairs: Table<PairData<'a>>,
}

#[derive(Serialize)]
struct CauseWords {
    name: &'static str,
    letter: char,
    words: &'static str,
}

/// The first rows, and what is left out.
#[derive(Serialize)]
struct Table<T> {
    rows: Vec<T>,
    left_out: usize,
    /// The waiting of these, ns.
    left_out_ns: u64,
}

/// A cgroup, process or thread.
#[derive(Serialize)]
struct RowData<'a> {
    name: &'a str,
    whose: Option<&'a str>,
    id: Option<u32>,
    process: Option<u32>,
    cgroup: Option<&'a str>,
    threads: Option<u64>,
    count: u64,
    total_ns: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    by_cause_ns: [u64; CAUSES],
    on_cpu_ns: u64,
    voluntary: u64,
    involuntary: u64,
}

#[derive(Serialize)]
struct PairData<'a> {
    victim: &'a str,
    culprit: &'a str,
    ns: u64,
    of_ns: u64,
}

/// A NUMA node.
#[derive(Serialize)]
struct NodeData {
    node: u32,
    cpus: String,
    busy_percent: Option<f64>,
    runnable_avg: Option<f64>,
    ran_ns: u64,
    count: u64,
    total_ns: u64,
    p99_ns: Option<u64>,
    migrations_in: Option<u64>,
    migrations_out: Option<u64>,
    used_bytes: Option<u64>,
    memory_bytes: Option<u64>,
}

/// Parts in the order of [`ORDER`].
pub fn ordered<T: Copy>(parts: &[T; CAUSES]) -> [T; CAUSES] {
    ORDER.map(|cause: Cause| parts[cause as usize])
}

impl<'a> Data<'a> {
    pub fn new(about: &About, whole: &'a Whole, total: &Group) -> Self {
        let interval = &whole.interval;
        let exact = interval.mode == Mode::Bpf;
        let row = |row: &'a Row| RowData::new(row, exact);
        Self {
            start_unix_ms: interval.start_unix_ns / 1_000_000,
            duration_ns: interval.duration_ns,
            exact,
            cpus: about.host.cpus,
            causes: ORDER
                .map(|cause| CauseWords {
                    name: cause.name(),
                    letter: causes::letter(cause),
                    words: causes::words(cause),
                })
                .into(),
            total: RowData::of("", &total.wait, &total.totals, exact),
            over: Over::new(&whole.timeline, interval),
            paths: paths(whole),
            quotas: quotas(whole),
            hist: hist(&total.wait),
            nodes: nodes(interval),
            cgroups: Table::of(&whole.cgroups, |row| row.wait.total_ns, row),
            processes: Table::of(&whole.processes, |row| row.wait.total_ns, row),
            threads: Table::of(&whole.threads, |row| row.wait.total_ns, row),
            pairs: Table::of(&whole.pairs, |pair| pair.ns, PairData::new),
        }
    }
}

impl<T> Table<T> {
    fn of<'r, R>(rows: &'r [R], waited_ns: impl Fn(&R) -> u64, row: impl Fn(&'r R) -> T) -> Self {
        let (first, others) = rows.split_at(rows.len().min(ROWS));
        Self {
            rows: first.iter().map(row).collect(),
            left_out: others.len(),
            left_out_ns: others.iter().map(waited_ns).sum(),
        }
    }
}

impl<'a> RowData<'a> {
    fn of(name: &'a str, wait: &Wait, totals: &Totals, exact: bool) -> Self {
        Self {
            name,
            whose: None,
            id: None,
            process: None,
            cgroup: None,
            threads: None,
            count: wait.count,
            total_ns: wait.total_ns,
            p50_ns: wait.quantile_ns(0.5),
            p99_ns: wait.quantile_ns(0.99),
            max_ns: (exact && wait.count != 0).then_some(wait.max_ns),
            by_cause_ns: ordered(&wait.by_cause.0),
            on_cpu_ns: totals.on_cpu_ns,
            voluntary: totals.voluntary,
            involuntary: totals.involuntary,
        }
    }

    fn new(row: &'a Row, exact: bool) -> Self {
        Self {
            whose: row.whose.as_deref(),
            id: row.id,
            process: row.process,
            cgroup: row.cgroup.as_deref(),
            threads: row.threads,
            ..Self::of(&row.name, &row.wait, &row.totals, exact)
        }
    }
}

impl<'a> PairData<'a> {
    fn new(pair: &'a Pair) -> Self {
        Self { victim: &pair.victim, culprit: &pair.culprit, ns: pair.ns, of_ns: pair.of_ns }
    }
}

fn nodes(interval: &Interval) -> Vec<NodeData> {
    interval.by_node().into_iter().map(NodeData::new).collect()
}

impl NodeData {
    fn new(node: NodeGroup) -> Self {
        Self {
            node: node.node,
            cpus: cpu_list(&node.cpus),
            busy_percent: node.busy_percent(),
            runnable_avg: node.runnable_avg,
            ran_ns: node.ran_ns,
            count: node.wait.count,
            total_ns: node.wait.total_ns,
            p99_ns: node.wait.quantile_ns(0.99),
            migrations_in: node.migrations_in,
            migrations_out: node.migrations_out,
            used_bytes: node.used_bytes,
            memory_bytes: node.memory_bytes,
        }
    }
}
