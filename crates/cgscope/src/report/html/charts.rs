//! What the charts are drawn from.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use cgscope_layout::{BUCKETS, bucket_of, cause::row_of, high_ns, low_ns};
use cgscope_model::{
    CAUSES, CgroupReading, Interval, Timeline, Wait,
    selection::is_at_or_below,
    timeline::{Part, QuotaPart, Slice},
};
use serde::Serialize;

use super::data::ordered;
use crate::report::{Whole, quotas::limit_words};

/// Cgroups that have a chart of their own.
const PATHS: usize = 12;
/// Quotas that have one.
const QUOTAS: usize = 24;
/// Buckets to a row of the heatmap: two rows to each doubling.
const BUCKETS_TO_ROW: usize = 4;

fn us(ns: u64) -> u64 {
    (ns + 500) / 1_000
}

/// All tasks over time: an entry for each slice.
#[derive(Default, Serialize)]
pub struct Over {
    /// Start after that of the recording.
    at_us: Vec<u64>,
    length_us: Vec<u64>,
    waits: Vec<u64>,
    p50_ns: Vec<Option<u64>>,
    p99_ns: Vec<Option<u64>>,
    max_ns: Vec<u64>,
    /// By cause, ns: these sum to what was waited in all.
    by_cause_ns: [Vec<u64>; CAUSES],
    on_cpu_us: Vec<u64>,
    busy_us: Vec<Option<u64>>,
    pending: Vec<u64>,
    pending_max_ns: Vec<u64>,
    /// Lower and upper end of each row of the heatmap, ns, ascending; from the lowest to the highest with a wait.
    heat_rows_ns: Vec<(u64, u64)>,
    /// Of each slice `row, waits, row, waits, ...`, only rows with a wait.
    heat: Vec<Vec<u64>>,
    /// The slice in which most was waited for its length.
    worst: Option<usize>,
}

impl Over {
    pub fn new(timeline: &Timeline, whole: &Interval) -> Self {
        let mut over = Self { worst: timeline.worst(), ..Self::default() };
        let rows: Vec<Vec<u64>> = timeline.slices().iter().map(heat).collect();
        let is_used = |row: usize| rows.iter().any(|counts| counts[row] != 0);
        let mut used = (0..BUCKETS / BUCKETS_TO_ROW).filter(|row| is_used(*row));
        let first = used.next();
        let used = first.map_or(0..0, |first| first..used.next_back().unwrap_or(first) + 1);
        over.heat_rows_ns = used
            .clone()
            .map(|row| (low_ns(row * BUCKETS_TO_ROW), high_ns((row + 1) * BUCKETS_TO_ROW - 1)))
            .collect();
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

/// Waits by row of the heatmap.
fn heat(slice: &Slice) -> Vec<u64> {
    slice.counts().chunks(BUCKETS_TO_ROW).map(|buckets| buckets.iter().sum()).collect()
}

/// A cgroup with all below it, over time.
#[derive(Serialize)]
pub struct PathOver {
    path: String,
    by_cause_us: [Vec<u64>; CAUSES],
    on_cpu_us: Vec<u64>,
}

/// Those with most waiting, the root left out: it holds everything.
pub fn paths(whole: &Whole) -> Vec<PathOver> {
    let waited = whole.cgroups.iter().filter(|row| row.wait.count != 0);
    let named = waited.filter(|row| row.name.starts_with('/') && row.name != "/");
    let paths: Vec<&str> = named.take(PATHS).map(|row| row.name.as_str()).collect();
    let parts = with_below(whole, &paths);
    paths.iter().zip(&parts).map(|(path, parts)| PathOver::new(path, parts)).collect()
}

/// What tasks at and below each path did in each slice.
fn with_below(whole: &Whole, paths: &[&str]) -> Vec<Vec<Part>> {
    let slices = whole.timeline.slices();
    let mut parts = vec![vec![Part::default(); slices.len()]; paths.len()];
    let mut chosen: HashMap<u64, Vec<usize>> = HashMap::new();
    for (i, slice) in slices.iter().enumerate() {
        for (id, part) in &slice.cgroups {
            let holders = chosen.entry(*id).or_insert_with(|| {
                let Some(at) = whole.interval.cgroup_path(*id) else { return Vec::new() };
                (0..paths.len()).filter(|path| is_at_or_below(at, paths[*path])).collect()
            });
            for holder in holders {
                parts[*holder][i].add(part);
            }
        }
    }
    parts
}

impl PathOver {
    fn new(path: &str, parts: &[Part]) -> Self {
        let mut by_cause_us: [Vec<u64>; CAUSES] = Default::default();
        for part in parts {
            for (series, ns) in by_cause_us.iter_mut().zip(ordered(&part.by_cause.0)) {
                series.push(us(ns));
            }
        }
        Self {
            path: path.into(),
            by_cause_us,
            on_cpu_us: parts.iter().map(|part| us(part.on_cpu_ns)).collect(),
        }
    }
}

/// A quota over time. `null`: the cgroup had none then, or it was not read.
#[derive(Serialize)]
pub struct Quota {
    path: String,
    words: String,
    allowed_us: Vec<Option<u64>>,
    /// Where it was not read of the cgroup: what the measured tasks ran.
    used_us: Vec<Option<u64>>,
    used_is_read: bool,
    periods: Vec<Option<u64>>,
    throttled: Vec<Option<u64>>,
    throttled_us: Vec<Option<u64>>,
}

/// Those that had something to run; the most throttled first.
pub fn quotas(whole: &Whole) -> Vec<Quota> {
    let interval = &whole.interval;
    let limited = interval.limits.iter().filter(|limits| limits.quota_cores().is_some());
    let used = limited.filter(|limits| limits.nr_periods != Some(0));
    let mut quotas: Vec<(&CgroupReading, &str)> =
        used.filter_map(|limits| Some((limits, &**interval.cgroup_path(limits.id)?))).collect();
    quotas.sort_by_key(|(limits, _)| Reverse((limits.throttled_ns, limits.usage_ns)));
    quotas.truncate(QUOTAS);
    let paths: Vec<&str> = quotas.iter().map(|(_, path)| *path).collect();
    let ran = with_below(whole, &paths);
    quotas.iter().zip(&ran).map(|((limits, path), ran)| Quota::new(limits, path, ran, whole)).collect()
}

impl Quota {
    fn new(limits: &CgroupReading, path: &str, ran: &[Part], whole: &Whole) -> Self {
        let slices = whole.timeline.slices();
        let parts: Vec<Option<&QuotaPart>> =
            slices.iter().map(|slice| slice.quotas.get(&limits.id)).collect();
        let series = |of: fn(&QuotaPart) -> Option<u64>| parts.iter().map(|part| part.and_then(of)).collect();
        let is_read = parts.iter().flatten().any(|part| part.used_ns.is_some());
        Self {
            path: path.into(),
            words: limit_words(limits),
            allowed_us: series(|part| Some(us(part.allowed_ns))),
            used_us: if is_read {
                series(|part| part.used_ns.map(us))
            } else {
                ran.iter().map(|part| Some(us(part.on_cpu_ns))).collect()
            },
            used_is_read: is_read,
            periods: series(|part| part.nr_periods),
            throttled: series(|part| part.nr_throttled),
            throttled_us: series(|part| part.throttled_ns.map(us)),
        }
    }
}

/// The waits of a doubling.
#[derive(Serialize)]
pub struct HistRow {
    low_ns: u64,
    high_ns: u64,
    count: u64,
    /// About how long they were together, ns: each wait is taken for the middle of its bucket.
    about_ns: u64,
    /// `count` by cause.
    by_cause: [f64; CAUSES],
}

/// By length and cause, ascending; doublings without waits between others are there too.
pub fn hist(wait: &Wait) -> Vec<HistRow> {
    let mut rows: BTreeMap<usize, HistRow> = BTreeMap::new();
    for octave in wait.hist.octaves() {
        let by_cause = ordered(&octave.by_cause).map(|waits| (waits * 64.0).round() / 64.0);
        let row = row_of(bucket_of(octave.low_ns()));
        rows.insert(row, HistRow { count: octave.count, by_cause, ..HistRow::of(row) });
    }
    for (low_ns, high_ns, count) in wait.hist.buckets() {
        let Some(row) = rows.get_mut(&row_of(bucket_of(low_ns))) else { continue };
        row.about_ns = row.about_ns.saturating_add(((low_ns + high_ns) / 2).saturating_mul(count));
    }
    let (Some(first), Some(last)) = (rows.keys().next().copied(), rows.keys().next_back().copied()) else {
        return Vec::new();
    };
    (first..=last).map(|row| rows.remove(&row).unwrap_or_else(|| HistRow::of(row))).collect()
}

impl HistRow {
    fn of(row: usize) -> Self {
        Self {
            low_ns: low_ns(row * 8),
            high_ns: high_ns(row * 8 + 7),
            count: 0,
            about_ns: 0,
            by_cause: [0.0; CAUSES],
        }
    }
}
