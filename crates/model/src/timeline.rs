//! A timeline: Intervals summed over a bounded number of time slices. It needs one pass and bounded memory. When the timeline is
//! full, adjacent slices merge in pairs. From then on, a slice holds twice as many Intervals.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{CgroupReading, Interval, Wait, sum, tree::Sums};

/// Time slices in order. Consecutive Intervals leave no gaps between slices.
#[derive(Clone, Debug)]
pub struct Timeline {
    pub slices: Vec<Slice>,
    most: usize,
    /// Intervals per slice, a power of two.
    per_slice: usize,
    in_last: usize,
}

impl Timeline {
    /// Creates a timeline with at most `most` slices, but at least two.
    pub fn new(most: usize) -> Self {
        Self { slices: Vec::new(), most: most.max(2), per_slice: 1, in_last: 0 }
    }

    pub fn add(&mut self, interval: &Interval) {
        if self.slices.len() == self.most && self.in_last == self.per_slice {
            self.merge_pairs();
        }
        match self.slices.last_mut() {
            Some(last) if self.in_last < self.per_slice => last.append(Slice::of(interval)),
            _ => {
                self.slices.push(Slice::of(interval));
                self.in_last = 0;
            }
        }
        self.in_last += 1;
    }

    /// Returns the index of the slice with the most wait time per unit of time; if equal, the earliest. `None` if no task waited.
    pub fn worst(&self) -> Option<usize> {
        let waited = self.slices.iter().enumerate().filter(|(_, slice)| slice.all.waited_ns() != 0);
        let worst = waited.max_by(|(i, a), (j, b)| {
            a.average(a.all.waited_ns()).total_cmp(&b.average(b.all.waited_ns())).then(j.cmp(i))
        });
        worst.map(|(i, _)| i)
    }

    fn merge_pairs(&mut self) {
        let was_odd = self.slices.len() % 2 == 1;
        let mut slices = std::mem::take(&mut self.slices).into_iter();
        while let Some(mut first) = slices.next() {
            if let Some(second) = slices.next() {
                first.append(second);
            }
            self.slices.push(first);
        }
        // An odd slice at the end was not merged, so it is only half full.
        self.in_last = if was_odd { self.per_slice } else { self.per_slice * 2 };
        self.per_slice *= 2;
    }
}

/// CPU time that a quota allowed, and its use, as in [`CgroupReading`]. `None`: could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaPart {
    /// The allowed CPU time, ns: the quota in CPUs times the length of the slice.
    pub allowed_ns: u64,
    /// CPU time used by the cgroup and its descendants, ns.
    pub used_ns: Option<u64>,
    pub nr_periods: Option<u64>,
    pub nr_throttled: Option<u64>,
    /// Time that the quota kept the cgroup from running, ns, summed over CPUs.
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
        // If a figure was read only for some intervals, its sum covers those intervals.
        self.used_ns = sum::known(self.used_ns, later.used_ns);
        self.nr_periods = sum::known(self.nr_periods, later.nr_periods);
        self.nr_throttled = sum::known(self.nr_throttled, later.nr_throttled);
        self.throttled_ns = sum::known(self.throttled_ns, later.throttled_ns);
    }
}

/// Sums over a time slice: one Interval, or several consecutive Intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Wall clock at the start, ns since 1970.
    pub start_unix_ns: u64,
    pub duration_ns: u64,
    /// Completed waits.
    pub wait: Wait,
    /// All tasks, including exited tasks.
    pub all: Sums,
    /// Tasks by id of the cgroup that directly contains them, without cgroups whose tasks neither waited nor ran.
    pub cgroups: BTreeMap<u64, Sums>,
    pub quotas: BTreeMap<u64, QuotaPart>,
    /// Busy time of the host's CPUs, ns, summed over CPUs; `None`: not read.
    pub busy_ns: Option<u64>,
    /// Largest number of waiting tasks at any Sample in the slice.
    pub pending: u64,
    /// Longest of these pending waits so far, ns.
    pub pending_max_ns: u64,
}

impl Slice {
    fn of(interval: &Interval) -> Self {
        let total = interval.total();
        let mut slice = Self {
            start_unix_ns: interval.start_unix_ns,
            duration_ns: interval.duration_ns,
            all: Sums::new(&total.totals, &total.wait),
            wait: total.wait,
            busy_ns: interval.cpus.iter().fold(None, |busy, cpu| sum::known(busy, cpu.busy_ns)),
            pending: total.pending,
            pending_max_ns: total.pending_max_ns,
            ..Self::default()
        };
        let tasks = interval.tasks.iter().map(|task| (task.reading.cgroup_id, &task.totals, &task.wait));
        let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, &exited.totals, &exited.wait));
        let parts = tasks.chain(exited).map(|(id, totals, wait)| (id, Sums::new(totals, wait)));
        for (id, part) in parts.filter(|(_, part)| *part != Sums::default()) {
            slice.cgroups.entry(id).or_default().add(&part);
        }
        for limits in &interval.limits {
            if let Some(part) = QuotaPart::of(limits, interval.duration_ns) {
                slice.quotas.entry(limits.id).or_default().add(&part);
            }
        }
        slice
    }

    /// Returns the average number of tasks at a time, from a sum of their times in the slice, ns.
    pub fn average(&self, ns: u64) -> f64 {
        ns as f64 / self.duration_ns.max(1) as f64
    }

    /// Returns the id and the times of the cgroup whose own tasks waited longest; `None` if no task waited.
    pub fn worst_cgroup(&self) -> Option<(u64, &Sums)> {
        let waited = self.cgroups.iter().filter(|(_, part)| part.waited_ns() != 0);
        let worst = waited.max_by_key(|(id, part)| (part.waited_ns(), Reverse(**id)));
        worst.map(|(id, part)| (*id, part))
    }

    fn append(&mut self, later: Self) {
        sum::add(&mut self.duration_ns, later.duration_ns);
        self.wait.add(&later.wait);
        self.all.add(&later.all);
        later.cgroups.iter().for_each(|(id, part)| self.cgroups.entry(*id).or_default().add(part));
        later.quotas.iter().for_each(|(id, part)| self.quotas.entry(*id).or_default().add(part));
        self.busy_ns = sum::known(self.busy_ns, later.busy_ns);
        self.pending = self.pending.max(later.pending);
        self.pending_max_ns = self.pending_max_ns.max(later.pending_max_ns);
    }
}
