//! One interval of the history.

use std::{collections::BTreeSet, sync::Arc};

use cgscope_model::{ByCause, Cause, Interval, Wait, selection::is_at_or_below};

use crate::history::Sum;
use crate::{data::busy_percent, subject::Key};

/// The waits of one task in one interval, or of all exited tasks of one cgroup.
#[derive(Clone, Debug)]
struct Entry {
    /// Serial number of the task; 0 for exited tasks.
    serial: u64,
    pid: u32,
    /// End of this entry's range in [`Entries::counts`] and [`Entries::shares`]. The range begins where the previous entry's
    /// range ends.
    counts_end: u32,
    shares_end: u32,
    cgroup: u64,
    count: u64,
    total_ns: u64,
    max_ns: u64,
    by_cause: ByCause,
}

/// The entries, with the cells of all histograms in shared vectors. Thousands of small vectors would need more memory than their
/// contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    entries: Vec<Entry>,
    counts: Vec<(u8, u32)>,
    shares: Vec<(u8, u32)>,
}

impl Entries {
    fn new(interval: &Interval) -> Self {
        let waits = || {
            interval
                .tasks
                .iter()
                .map(|task| &task.wait)
                .chain(interval.exited.iter().map(|exited| &exited.wait))
        };
        let mut all = Self {
            entries: Vec::with_capacity(waits().filter(|wait| is_kept(wait)).count()),
            counts: Vec::with_capacity(waits().map(|wait| wait.hist.counts().len()).sum()),
            shares: Vec::with_capacity(waits().map(|wait| wait.hist.shares().len()).sum()),
        };
        for task in &interval.tasks {
            let reading = &task.reading;
            all.push(reading.serial, reading.tgid, reading.cgroup_id, &task.wait);
        }
        for exited in &interval.exited {
            all.push(0, 0, exited.cgroup_id, &exited.wait);
        }
        all
    }

    fn push(&mut self, serial: u64, pid: u32, cgroup: u64, wait: &Wait) {
        if !is_kept(wait) {
            return;
        }
        let cell = |(cell, count): (usize, u64)| (cell as u8, u32::try_from(count).unwrap_or(u32::MAX));
        self.counts.extend(wait.hist.counts().map(cell));
        self.shares.extend(wait.hist.shares().map(cell));
        self.entries.push(Entry {
            serial,
            pid,
            counts_end: self.counts.len() as u32,
            shares_end: self.shares.len() as u32,
            cgroup,
            count: wait.count,
            total_ns: wait.total_ns,
            max_ns: wait.max_ns,
            by_cause: wait.by_cause,
        });
    }

    fn bytes(&self) -> usize {
        size_of::<Entry>() * self.entries.len()
            + size_of::<(u8, u32)>() * (self.counts.len() + self.shares.len())
    }

    /// Sums the waits of the wanted entries.
    fn sum(&self, is_wanted: impl Fn(&Entry) -> bool) -> Wait {
        let mut sum = Sum::default();
        let (mut counts_from, mut shares_from) = (0, 0);
        for entry in &self.entries {
            let (counts_end, shares_end) = (entry.counts_end as usize, entry.shares_end as usize);
            if is_wanted(entry) {
                sum.add_figures(entry.count, entry.total_ns, entry.max_ns, &entry.by_cause);
                for (cell, count) in &self.counts[counts_from..counts_end] {
                    sum.counts[usize::from(*cell)] += u64::from(*count);
                }
                for (cell, share) in &self.shares[shares_from..shares_end] {
                    sum.shares[usize::from(*cell)] += u64::from(*share);
                }
            }
            (counts_from, shares_from) = (counts_end, shares_end);
        }
        sum.into_wait()
    }
}

/// A task without waits takes no entry.
fn is_kept(wait: &Wait) -> bool {
    wait.count != 0 || wait.total_ns != 0
}

/// One interval of the history.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Unique number of the interval, ascending.
    pub(super) number: u64,
    /// End of the interval, wall clock, ns since 1970.
    pub end_unix_ns: u64,
    /// Length of the interval, ns.
    pub duration_ns: u64,
    /// The waits of all tasks.
    pub total: Wait,
    /// Busy share of all CPUs' time, percent.
    pub busy_percent: Option<f64>,
    /// Number of findings; 0 for intervals that were loaded later.
    pub findings: usize,
    /// The waits of single tasks; `None` after they were dropped.
    pub(super) entries: Option<Entries>,
    /// Paths of the tasks' cgroups, ascending by id.
    cgroups: Vec<(u64, Arc<str>)>,
    pub(super) bytes: usize,
}

impl Frame {
    /// Creates a frame of an interval.
    pub fn new(interval: &Interval) -> Self {
        Self::with_total(interval, interval.total().wait)
    }

    pub(super) fn with_total(interval: &Interval, total: Wait) -> Self {
        let entries = Entries::new(interval);
        let mut ids: Vec<u64> = entries.entries.iter().map(|entry| entry.cgroup).collect();
        ids.sort_unstable();
        ids.dedup();
        let cgroups = ids.into_iter().filter_map(|id| Some((id, interval.cgroup_path(id)?.clone())));
        Self {
            number: 0,
            end_unix_ns: interval.start_unix_ns.saturating_add(interval.duration_ns),
            duration_ns: interval.duration_ns,
            findings: 0,
            total,
            busy_percent: busy_percent(interval),
            cgroups: cgroups.collect(),
            bytes: entries.bytes(),
            entries: Some(entries),
        }
    }

    /// Average number of throttled tasks.
    pub fn throttled(&self) -> f64 {
        self.total.by_cause.get(Cause::Throttled) as f64 / self.duration_ns.max(1) as f64
    }

    /// Average number of waiting tasks.
    pub fn waiting(&self) -> f64 {
        self.total.total_ns as f64 / self.duration_ns.max(1) as f64
    }

    /// The waits of a subject; `None` if they were dropped.
    pub(super) fn wait(&self, key: &Key) -> Option<Wait> {
        if *key == Key::All {
            return Some(self.total.clone());
        }
        let entries = self.entries.as_ref()?;
        let ids = |is_in: &dyn Fn(&str) -> bool| -> BTreeSet<u64> {
            self.cgroups.iter().filter(|(_, path)| is_in(path)).map(|(id, _)| *id).collect()
        };
        Some(match key {
            Key::Cgroup(root) => {
                let below = ids(&|path| is_at_or_below(path, root));
                entries.sum(|entry| below.contains(&entry.cgroup))
            }
            Key::Unknown => {
                let known = ids(&|_| true);
                entries.sum(|entry| !known.contains(&entry.cgroup))
            }
            Key::Process(pid) => entries.sum(|entry| entry.serial != 0 && entry.pid == *pid),
            Key::Task(serial) => entries.sum(|entry| entry.serial == *serial),
            Key::All | Key::State(..) => Wait::default(),
        })
    }
}
