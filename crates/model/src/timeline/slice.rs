//! A slice of time.

use std::collections::BTreeMap;

use cgscope_layout::{BUCKETS, bucket_of};

use crate::{ByCause, CgroupReading, Hist, Interval, Totals, Wait, sum};

/// What tasks did: all of them, or those directly in a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Waits that ended, ns by cause, summed over tasks.
    pub by_cause: ByCause,
    /// Time on a CPU, ns, summed over tasks.
    pub on_cpu_ns: u64,
}

impl Part {
    fn of(totals: &Totals, wait: &Wait) -> Self {
        Self { by_cause: wait.by_cause, on_cpu_ns: totals.on_cpu_ns }
    }

    /// Waits that ended, ns, summed over tasks.
    pub fn waited_ns(&self) -> u64 {
        self.by_cause.total()
    }

    /// Adds what other tasks did, or the same ones later.
    pub fn add(&mut self, other: &Self) {
        self.by_cause.add(&other.by_cause);
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
    }
}

/// What a quota allowed and what was made of it. What could not be read is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaPart {
    /// What it allowed in this time, ns of CPU time: the quota in CPUs times the length.
    pub allowed_ns: u64,
    /// What the cgroup and all below it used, ns of CPU time.
    pub used_ns: Option<u64>,
    /// Periods that passed while it had something to run.
    pub nr_periods: Option<u64>,
    /// Those in which it ran out.
    pub nr_throttled: Option<u64>,
    /// Time it kept the cgroup from running, ns, each CPU by itself.
    pub throttled_ns: Option<u64>,
}

impl QuotaPart {
    fn of(limits: &CgroupReading, duration_ns: u64) -> Option<Self> {
        Some(Self {
            allowed_ns: (limits.quota_cores()? * duration_ns as f64) as u64,
            used_ns: limits.usage_ns,
            nr_periods: limits.nr_periods,
            nr_throttled: limits.nr_throttled,
            throttled_ns: limits.throttled_ns,
        })
    }

    fn add(&mut self, later: &Self) {
        self.allowed_ns = self.allowed_ns.saturating_add(later.allowed_ns);
        // Of a slice in which a figure was read at times, what was read.
        self.used_ns = sum::known(self.used_ns, later.used_ns);
        self.nr_periods = sum::known(self.nr_periods, later.nr_periods);
        self.nr_throttled = sum::known(self.nr_throttled, later.nr_throttled);
        self.throttled_ns = sum::known(self.throttled_ns, later.throttled_ns);
    }
}

/// What happened in a slice of time: in one Interval, or in several that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Wall clock at its start, ns since 1970.
    pub start_unix_ns: u64,
    /// Length, ns.
    pub duration_ns: u64,
    /// Waits that ended.
    pub waits: u64,
    /// The longest of them, ns; see [`Wait::max_ns`].
    pub max_ns: u64,
    /// All tasks together, the exited included.
    pub all: Part,
    /// By id of the cgroup that tasks are directly in; those without any waiting or running are left out.
    pub cgroups: BTreeMap<u64, Part>,
    /// By id of the cgroup, those with a quota of its own.
    pub quotas: BTreeMap<u64, QuotaPart>,
    /// Time in which the host's CPUs ran anything, ns, summed over them; `None` if it was not read.
    pub busy_ns: Option<u64>,
    /// Most tasks that waited at a Sample in it.
    pub pending: u64,
    /// The longest of these waits so far, ns.
    pub pending_max_ns: u64,
    /// Waits by bucket of [`cgscope_layout::bucket`].
    counts: Box<[u64; BUCKETS]>,
}

impl Slice {
    pub(super) fn starting(start_unix_ns: u64) -> Self {
        Self {
            start_unix_ns,
            duration_ns: 0,
            waits: 0,
            max_ns: 0,
            all: Part::default(),
            cgroups: BTreeMap::new(),
            quotas: BTreeMap::new(),
            busy_ns: None,
            pending: 0,
            pending_max_ns: 0,
            counts: Box::new([0; BUCKETS]),
        }
    }

    /// Its waits by length. Their causes are not kept by length: see `all`.
    pub fn hist(&self) -> Hist {
        Hist::from_counts(self.counts.iter().copied(), [])
    }

    /// Waits by bucket of [`cgscope_layout::bucket`].
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// So many at a time on average, of a sum of times in it.
    pub fn average(&self, ns: u64) -> f64 {
        ns as f64 / self.duration_ns.max(1) as f64
    }

    /// The cgroup, by its id, whose own tasks waited longest, and what they did; `None` if nobody waited.
    pub fn worst_cgroup(&self) -> Option<(u64, &Part)> {
        let waited = self.cgroups.iter().filter(|(_, part)| part.waited_ns() != 0);
        waited
            .max_by_key(|(id, part)| (part.waited_ns(), std::cmp::Reverse(**id)))
            .map(|(id, part)| (*id, part))
    }

    pub(super) fn add(&mut self, interval: &Interval) {
        sum::add(&mut self.duration_ns, interval.duration_ns);
        let mut pending = 0;
        for task in &interval.tasks {
            self.add_waits(task.reading.cgroup_id, &task.totals, &task.wait);
            if let Some(wait) = &task.reading.pending {
                pending += 1;
                self.pending_max_ns = self.pending_max_ns.max(wait.ns);
            }
        }
        self.pending = self.pending.max(pending);
        for exited in &interval.exited {
            self.add_waits(exited.cgroup_id, &exited.totals, &exited.wait);
        }
        for limits in &interval.limits {
            if let Some(part) = QuotaPart::of(limits, interval.duration_ns) {
                self.quotas.entry(limits.id).or_default().add(&part);
            }
        }
        let busy_ns = interval.cpus.iter().fold(None, |busy, cpu| sum::known(busy, cpu.busy_ns));
        self.busy_ns = sum::known(self.busy_ns, busy_ns);
    }

    fn add_waits(&mut self, cgroup_id: u64, totals: &Totals, wait: &Wait) {
        let part = Part::of(totals, wait);
        if part == Part::default() && wait.count == 0 {
            return;
        }
        sum::add(&mut self.waits, wait.count);
        self.max_ns = self.max_ns.max(wait.max_ns);
        self.all.add(&part);
        self.cgroups.entry(cgroup_id).or_default().add(&part);
        for (low_ns, _, count) in wait.hist.buckets() {
            sum::add(&mut self.counts[bucket_of(low_ns)], count);
        }
    }

    pub(super) fn append(&mut self, later: Self) {
        sum::add(&mut self.duration_ns, later.duration_ns);
        sum::add(&mut self.waits, later.waits);
        self.max_ns = self.max_ns.max(later.max_ns);
        self.all.add(&later.all);
        for (id, part) in &later.cgroups {
            self.cgroups.entry(*id).or_default().add(part);
        }
        for (id, part) in &later.quotas {
            self.quotas.entry(*id).or_default().add(part);
        }
        self.busy_ns = sum::known(self.busy_ns, later.busy_ns);
        self.pending = self.pending.max(later.pending);
        self.pending_max_ns = self.pending_max_ns.max(later.pending_max_ns);
        for (count, more) in self.counts.iter_mut().zip(later.counts.iter()) {
            sum::add(count, *more);
        }
    }
}
