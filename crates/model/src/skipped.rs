//! Samples that a reader skips.
//!
//! The kernel adds to the exited tasks of a cgroup only what it had not reported of a task at the last reading. So two Samples that do
//! not follow each other lack what was reported between them of tasks that exited or moved since, and of cgroups that were removed.
//! [`ended`] finds these rows from one Sample to the next; [`Skipped`] sums them up for a reader.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use crate::{ExitedReading, Hist, Interval, Sample, TaskReading, Totals, interval, sum};

/// The rows of `before` that `now`, the very next Sample, does not have: tasks, exited tasks by cgroup, and the names of their cgroups.
pub fn ended(before: &Sample, now: &Sample) -> Sample {
    let tasks = missing(&before.tasks, &now.tasks, |task| task.serial);
    let exited = missing(&before.exited, &now.exited, |exited| exited.cgroup_id);
    let of_tasks = tasks.iter().map(|task| task.cgroup_id);
    let ids: BTreeSet<u64> = of_tasks.chain(exited.iter().map(|exited| exited.cgroup_id)).collect();
    let cgroups = before.cgroups.iter().filter(|(id, _)| ids.contains(id)).cloned().collect();
    Sample { tasks, exited, cgroups, ..Sample::default() }
}

/// Those of `before` that are not in `now`; both are ascending by key.
fn missing<T: Clone>(before: &[T], now: &[T], key: impl Fn(&T) -> u64) -> Vec<T> {
    let mut find = sum::earlier(now, &key);
    before.iter().filter(|row| find(key(row)).is_none()).cloned().collect()
}

/// What a reader lacks who skips Samples, by cgroup: cumulative, as the exited tasks to which it is added.
///
/// Accounts are left out: only readers of every Sample ask for them.
#[derive(Debug, Default)]
pub struct Skipped {
    sums: ExitedSums,
    paths: BTreeMap<u64, Arc<str>>,
}

/// Sums of exited tasks by cgroup that are added to each later reading.
#[derive(Debug, Default)]
pub struct ExitedSums(BTreeMap<u64, ExitedSum>);

#[derive(Debug)]
struct ExitedSum {
    reading: ExitedReading,
    /// Something was added since the latest reading.
    is_new: bool,
}

impl ExitedSums {
    /// Adds to the sum of its cgroup.
    pub fn take(&mut self, more: ExitedReading) {
        match self.0.entry(more.cgroup_id) {
            Entry::Occupied(mut sum) => {
                let sum = sum.get_mut();
                sum.reading.add(&more);
                sum.is_new = true;
            }
            Entry::Vacant(sum) => drop(sum.insert(ExitedSum { reading: more, is_new: true })),
        }
    }

    /// Adds the sums to a reading, ascending by cgroup. A sum whose cgroup is not in it is read once more, with what came to it since,
    /// and then dropped: whoever reads no longer has that cgroup, and if more comes later, both count from 0.
    pub fn add_to(&mut self, exited: &mut Vec<ExitedReading>) {
        let mut others = Vec::new();
        self.0.retain(|id, sum| {
            let is_new = std::mem::take(&mut sum.is_new);
            match exited.binary_search_by_key(id, |exited| exited.cgroup_id) {
                Ok(at) => exited[at].add(&sum.reading),
                Err(_) if is_new => others.push(sum.reading.clone()),
                Err(_) => return false,
            }
            true
        });
        exited.extend(others);
        exited.sort_unstable_by_key(|exited| exited.cgroup_id);
    }

    /// No sum at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Skipped {
    /// True if a reader whose latest Sample is number `since` may lack a row that [`ended`] in Sample `number`. A reader of the Sample
    /// right before has the last readings of tasks; but the exited tasks of a cgroup may later count from 0 again.
    pub fn concerns(ended: &Sample, number: u64, since: u64) -> bool {
        number > since + 1 || !ended.exited.is_empty()
    }

    /// Adds what [`ended`] in a Sample after the reader's latest, which was at `since_ns` of CLOCK_MONOTONIC. `before` tells what a task
    /// had done there, by serial.
    pub fn add<'a>(
        &mut self,
        since_ns: u64,
        before: impl Fn(u64) -> Option<(&'a Totals, &'a Arc<Hist>)>,
        ended: &Sample,
    ) {
        for task in &ended.tasks {
            let came = interval::came(before(task.serial), task, since_ns);
            if let Some((totals, hist)) = came.filter(|(totals, _)| *totals != Totals::default()) {
                let TaskReading { cgroup_id, max_ns, .. } = *task;
                let hist = Arc::new(hist);
                self.take(ExitedReading { cgroup_id, max_ns, totals, hist, ..Default::default() }, ended);
            }
        }
        for exited in &ended.exited {
            // All of it: the reader compares it with what it has of it.
            self.take(exited.clone(), ended);
        }
    }

    fn take(&mut self, exited: ExitedReading, ended: &Sample) {
        if let Ok(at) = ended.cgroups.binary_search_by_key(&exited.cgroup_id, |(id, _)| *id) {
            self.paths.insert(exited.cgroup_id, ended.cgroups[at].1.clone());
        }
        self.sums.take(exited);
    }

    /// True if the reader's Samples lack nothing.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// The exited tasks of the reader's next Sample with what was skipped, and the names of cgroups.
    pub fn added_to(&mut self, sample: &Sample) -> (Vec<ExitedReading>, Vec<(u64, Arc<str>)>) {
        let mut exited = sample.exited.clone();
        self.sums.add_to(&mut exited);
        self.paths.retain(|id, _| self.sums.0.contains_key(id));
        let mut names = self.paths.clone();
        names.extend(sample.cgroups.iter().cloned());
        (exited, names.into_iter().collect())
    }
}

impl Sample {
    /// What a task had done, by serial.
    pub fn did(&self, serial: u64) -> Option<(&Totals, &Arc<Hist>)> {
        let at = self.tasks.binary_search_by_key(&serial, |task| task.serial).ok()?;
        Some((&self.tasks[at].totals, &self.tasks[at].hist))
    }
}

impl Interval {
    /// What happened between `a` and the later `b`, where `skipped` has what ended in the Samples between them.
    pub fn over(a: &Sample, b: &Sample, skipped: &mut Skipped) -> Self {
        let mut interval = Self::between(a, b);
        if !skipped.is_empty() {
            let (exited, cgroups) = skipped.added_to(b);
            interval.exited = interval::exited_between(&a.exited, &exited);
            interval.cgroups = interval::names(&a.cgroups, &cgroups);
        }
        interval
    }
}

#[cfg(test)]
mod tests;
