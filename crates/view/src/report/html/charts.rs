//! The data of the charts.

use std::{cmp::Reverse, collections::BTreeMap};

use cgscope_ledger::{BUCKETS, bucket_of, cause::row_of, high_ns, low_ns};
use cgscope_model::{
    CAUSES, CgroupReading, Interval, Timeline, Wait,
    hist::Octave,
    timeline::{QuotaPart, Slice},
};
use serde::Serialize;

use crate::report::html::ordered;
use crate::report::{Whole, tables::limit_words};

/// Maximum number of quotas with a chart.
const QUOTAS: usize = 24;
/// Histogram buckets per row of the heatmap: two rows per octave.
const BUCKETS_TO_ROW: usize = 4;

fn us(ns: u64) -> u64 {
    (ns + 500) / 1_000
}

/// Time series of all tasks, with one entry per slice.
#[derive(Default, Serialize)]
pub struct Over {
    /// Start of each slice, from the start of the recording.
    at_us: Vec<u64>,
    length_us: Vec<u64>,
    waits: Vec<u64>,
    p50_ns: Vec<Option<u64>>,
    p99_ns: Vec<Option<u64>>,
    max_ns: Vec<u64>,
    /// Waiting by cause. The sum over all slices is the total.
    by_cause_ns: [Vec<u64>; CAUSES],
    on_cpu_us: Vec<u64>,
    busy_us: Vec<Option<u64>>,
    pending: Vec<u64>,
    pending_max_ns: Vec<u64>,
    /// Lowest and highest wait of each heatmap row, from the lowest row with a wait to the highest.
    heat_rows_ns: Vec<(u64, u64)>,
    /// For each slice `row, waits, row, waits, ...`, for rows with a wait.
    heat: Vec<Vec<u64>>,
}

impl Over {
    pub fn new(timeline: &Timeline, whole: &Interval) -> Self {
        let mut over = Self::default();
        let rows: Vec<Vec<u64>> = timeline.slices().iter().map(heat).collect();
        let is_used = |row: usize| rows.iter().any(|counts| counts[row] != 0);
        let mut used = (0..BUCKETS / BUCKETS_TO_ROW).filter(|row| is_used(*row));
        let first = used.next();
        let used = first.map_or(0..0, |first| first..used.next_back().unwrap_or(first) + 1);
        let ends = |row| (low_ns(row * BUCKETS_TO_ROW), high_ns((row + 1) * BUCKETS_TO_ROW - 1));
        over.heat_rows_ns = used.clone().map(ends).collect();
        for (slice, counts) in timeline.slices().iter().zip(&rows) {
            over.add(slice, whole);
            let counts = counts[used.clone()].iter().enumerate().filter(|(_, count)| **count != 0);
            over.heat.push(counts.flat_map(|(row, count)| [row as u64, *count]).collect());
        }
        over
    }

    fn add(&mut self, slice: &Slice, whole: &Interval) {
        let hist = slice.hist();
        self.at_us.push(us(slice.start_unix_ns.saturating_sub(whole.start_unix_ns)));
        self.length_us.push(us(slice.duration_ns));
        self.waits.push(slice.waits);
        self.p50_ns.push(hist.quantile_ns(0.5, slice.max_ns));
        self.p99_ns.push(hist.quantile_ns(0.99, slice.max_ns));
        self.max_ns.push(slice.max_ns);
        for (series, ns) in self.by_cause_ns.iter_mut().zip(ordered(&slice.all.by_cause.0)) {
            series.push(ns);
        }
        self.on_cpu_us.push(us(slice.all.on_cpu_ns));
        self.busy_us.push(slice.busy_ns.map(us));
        self.pending.push(slice.pending);
        self.pending_max_ns.push(slice.pending_max_ns);
    }
}

/// The number of waits in each row of the heatmap.
fn heat(slice: &Slice) -> Vec<u64> {
    slice.counts().chunks(BUCKETS_TO_ROW).map(|buckets| buckets.iter().sum()).collect()
}

/// A quota over time; `null` where the cgroup had no quota or its quota was not read.
#[derive(Serialize)]
pub struct Quota {
    path: String,
    words: String,
    allowed_us: Vec<Option<u64>>,
    used_us: Vec<Option<u64>>,
    periods: Vec<Option<u64>>,
    throttled: Vec<Option<u64>>,
    throttled_us: Vec<Option<u64>>,
}

/// Quotas of cgroups that ran, the most throttled first.
pub fn quotas(whole: &Whole) -> Vec<Quota> {
    let interval = &whole.interval;
    let limited = interval.limits.iter().filter(|limits| limits.quota_cores().is_some());
    let used = limited.filter(|limits| limits.nr_periods != Some(0));
    let mut quotas: Vec<(&CgroupReading, &str)> =
        used.filter_map(|limits| Some((limits, &**interval.cgroup_path(limits.id)?))).collect();
    quotas.sort_by_key(|(limits, _)| Reverse((limits.throttled_ns, limits.usage_ns)));
    quotas.truncate(QUOTAS);
    quotas.iter().map(|(limits, path)| Quota::new(limits, path, whole)).collect()
}

impl Quota {
    fn new(limits: &CgroupReading, path: &str, whole: &Whole) -> Self {
        let parts: Vec<Option<&QuotaPart>> =
            whole.timeline.slices().iter().map(|slice| slice.quotas.get(&limits.id)).collect();
        let series = |of: fn(&QuotaPart) -> Option<u64>| parts.iter().map(|part| part.and_then(of)).collect();
        Self {
            path: path.into(),
            words: limit_words(limits),
            allowed_us: series(|part| Some(us(part.allowed_ns))),
            used_us: series(|part| part.used_ns.map(us)),
            periods: series(|part| part.nr_periods),
            throttled: series(|part| part.nr_throttled),
            throttled_us: series(|part| part.throttled_ns.map(us)),
        }
    }
}

/// Waits with lengths in one octave.
#[derive(Serialize)]
pub struct HistRow {
    low_ns: u64,
    high_ns: u64,
    count: u64,
    /// `count` by cause.
    by_cause: [f64; CAUSES],
}

/// Waits by length and cause, from the shortest octave with a wait to the longest.
pub fn hist(wait: &Wait) -> Vec<HistRow> {
    let octaves: BTreeMap<usize, Octave> =
        wait.hist.octaves().into_iter().map(|octave| (row_of(bucket_of(octave.low_ns())), octave)).collect();
    let rows = octaves.first_key_value().zip(octaves.last_key_value());
    let rows = rows.map_or(0..0, |((first, _), (last, _))| *first..last + 1);
    let by_cause = |octave: &Octave| ordered(&octave.by_cause).map(|waits| (waits * 64.0).round() / 64.0);
    rows.map(|row| HistRow {
        low_ns: low_ns(row * 8),
        high_ns: high_ns(row * 8 + 7),
        count: octaves.get(&row).map_or(0, |octave| octave.count),
        by_cause: octaves.get(&row).map_or([0.0; CAUSES], by_cause),
    })
    .collect()
}
