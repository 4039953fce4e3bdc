//! The data in the page. Time series are in whole microseconds, tables in nanoseconds.

use cgscope_model::{CAUSES, Cause, Group, Mode, Totals, Wait};
use serde::Serialize;

use super::charts::{HistRow, Over, Quota, hist, quotas};
use crate::{
    causes::{self, ORDER},
    report::{
        Whole,
        rows::{Pair, Row},
        words::About,
    },
};

/// Maximum number of rows per table; further tasks hardly wait.
const ROWS: usize = 500;

#[derive(Serialize)]
pub struct Data<'a> {
    start_unix_ms: u64,
    duration_ns: u64,
    /// False in the coarse mode: then the lengths of waits are unknown, and so are all causes except throttling.
    exact: bool,
    cpus: Option<u32>,
    /// The causes, in the order that every array by cause uses.
    causes: Vec<CauseWords>,
    total: RowData<'a>,
    over: Over,
    quotas: Vec<Quota>,
    hist: Vec<HistRow>,
    cgroups: RowsData<RowData<'a>>,
    processes: RowsData<RowData<'a>>,
    threads: RowsData<RowData<'a>>,
    pairs: RowsData<&'a Pair>,
}

#[derive(Serialize)]
struct CauseWords {
    name: &'static str,
    letter: char,
    words: &'static str,
}

#[derive(Serialize)]
struct RowsData<T> {
    rows: Vec<T>,
    left_out: usize,
    /// The waiting of the omitted rows, ns.
    left_out_ns: u64,
}

#[derive(Serialize)]
struct RowData<'a> {
    name: &'a str,
    /// The path of a cgroup that has another name.
    path: Option<&'a str>,
    id: Option<u32>,
    process: Option<u32>,
    cgroup: Option<&'a str>,
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
            quotas: quotas(whole),
            hist: hist(&total.wait),
            cgroups: RowsData::new(&whole.cgroups, |row| row.wait.total_ns, row),
            processes: RowsData::new(&whole.processes, |row| row.wait.total_ns, row),
            threads: RowsData::new(&whole.threads, |row| row.wait.total_ns, row),
            pairs: RowsData::new(&whole.pairs, |pair| pair.ns, |pair| pair),
        }
    }
}

impl<T> RowsData<T> {
    fn new<'r, R>(rows: &'r [R], waited_ns: impl Fn(&R) -> u64, row: impl Fn(&'r R) -> T) -> Self {
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
            path: None,
            id: None,
            process: None,
            cgroup: None,
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
            path: row.path.as_deref().filter(|path| *path != row.name),
            id: row.id,
            process: row.process,
            cgroup: row.cgroup.as_deref(),
            ..Self::of(&row.name, &row.wait, &row.totals, exact)
        }
    }
}
