//! The rows that a reader misses if it skips Samples.
//!
//! When a task exits, the kernel side adds only its unreported work to the exited tasks of its cgroup. So a reader that skips
//! Samples misses work that only the skipped Samples report: of tasks that exited or moved later, and of cgroups that were
//! removed later. [`ended`] finds these rows from one Sample to the next. [`Skipped`] sums them up for a reader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cgscope_ledger::Loss;

use crate::table::{exited, later, tasks};
use crate::{ContainerReading, ExitedReading, Interval, Sample, TaskReading, Totals, sum};

/// Returns the rows of `before` that the next Sample, `now`, lacks: tasks, exited tasks by cgroup, their cgroups' names.
pub fn ended(before: &Sample, now: &Sample) -> Sample {
    let mut still_there = tasks::same_task(&now.tasks);
    let tasks: Vec<_> = before.tasks.iter().filter(|task| still_there(task).is_none()).cloned().collect();
    let mut still_there = sum::earlier(&now.exited, |exited| exited.cgroup_id);
    let exited = before.exited.iter().filter(|exited| still_there(exited.cgroup_id).is_none()).cloned();
    let exited: Vec<_> = exited.collect();
    let of_tasks = tasks.iter().map(|task| task.cgroup_id);
    let ids: BTreeSet<u64> = of_tasks.chain(exited.iter().map(|exited| exited.cgroup_id)).collect();
    let cgroups = before.cgroups.iter().filter(|(id, _)| ids.contains(id)).cloned().collect();
    let containers = before.containers.iter().filter(|row| ids.contains(&row.cgroup_id)).cloned().collect();
    Sample { tasks, exited, cgroups, containers, ..Sample::default() }
}

/// The rows that a reader missed by skipping Samples, as sums by cgroup to add to the exited tasks. Accounts are omitted, because
/// only readers of every Sample request them. A reader may skip a day with thousands of removed cgroups a second. So sums beyond
/// [`MOST_CGROUPS`] are added to the root cgroup, and counted as [`Loss::ExitedInOtherCgroup`].
#[derive(Debug, Default)]
pub struct Skipped {
    sums: ExitedSums,
    paths: BTreeMap<u64, Arc<str>>,
    containers: BTreeMap<u64, ContainerReading>,
    /// Number of readings that were added to the root cgroup.
    in_root: u64,
}

/// Maximum number of cgroups with their own sum. The kernel side's table of exited tasks has the same size.
pub const MOST_CGROUPS: usize = 4_096;

/// The id of the root cgroup, in v1 and v2 (`KERNFS_ROOT_INO`, since Linux 4.20).
const ROOT: u64 = 1;

/// Sums of exited tasks by cgroup, to add to each later reading. The flag is true if the sum grew since the latest reading.
#[derive(Debug, Default)]
pub struct ExitedSums(BTreeMap<u64, (ExitedReading, bool)>);

impl ExitedSums {
    pub fn take(&mut self, more: ExitedReading) {
        let sum = self.0.entry(more.cgroup_id).and_modify(|(sum, is_new)| {
            sum.add(&more);
            *is_new = true;
        });
        sum.or_insert((more, true));
    }

    /// Adds the sums to a reading, which ascends by cgroup. The sum of a cgroup that is missing there is reported once more, if
    /// it grew, and dropped. The reader drops that cgroup, too, so later both count from 0.
    pub fn add_to(&mut self, exited: &mut Vec<ExitedReading>) {
        let mut others = Vec::new();
        self.0.retain(|id, (sum, is_new)| {
            let is_new = std::mem::take(is_new);
            match exited.binary_search_by_key(id, |exited| exited.cgroup_id) {
                Ok(at) => exited[at].add(sum),
                Err(_) if is_new => others.push(sum.clone()),
                Err(_) => return false,
            }
            true
        });
        exited.extend(others);
        exited.sort_unstable_by_key(|exited| exited.cgroup_id);
    }
}

impl Skipped {
    /// True if a reader whose latest Sample has the number `since` may lack a row that [`ended`] in Sample `number`. A reader
    /// that has the previous Sample has the tasks' last readings. But the exited tasks of a cgroup may later count from 0 again.
    pub fn concerns(ended: &Sample, number: u64, since: u64) -> bool {
        number > since + 1 || !ended.exited.is_empty()
    }

    /// Adds the rows that [`ended`] in a later Sample than `since`, the reader's latest Sample.
    pub fn add(&mut self, since: &Sample, ended: &Sample) {
        for task in &ended.tasks {
            let before = since.tasks.binary_search_by_key(&task.serial, |task| task.serial);
            let came = tasks::came(before.ok().map(|at| &*since.tasks[at]), task, since.mono_ns);
            if let Some((totals, hist)) = came.filter(|(totals, _)| *totals != Totals::default()) {
                let TaskReading { cgroup_id, max_ns, .. } = **task;
                let hist = Arc::new(hist);
                let reading = ExitedReading { cgroup_id, max_ns, totals, hist, ..Default::default() };
                self.take(reading, None, ended);
            }
        }
        for exited in &ended.exited {
            let before = since.exited.binary_search_by_key(&exited.cgroup_id, |exited| exited.cgroup_id);
            // Adds the whole sum, because the reader subtracts the part that it already has.
            self.take(exited.clone(), before.ok().map(|at| &since.exited[at]), ended);
        }
    }

    fn take(&mut self, mut exited: ExitedReading, before: Option<&ExitedReading>, ended: &Sample) {
        if self.sums.0.len() >= MOST_CGROUPS && !self.sums.0.contains_key(&exited.cgroup_id) {
            // The reader subtracts only its reading of the root cgroup, so the part that it already has is removed here.
            if let Some(more) = before.and_then(|before| exited.since(before)) {
                exited = more;
            }
            exited.cgroup_id = ROOT;
            self.in_root += 1;
        }
        if let Ok(at) = ended.cgroups.binary_search_by_key(&exited.cgroup_id, |(id, _)| *id) {
            self.paths.insert(exited.cgroup_id, ended.cgroups[at].1.clone());
        }
        if let Ok(at) = ended.containers.binary_search_by_key(&exited.cgroup_id, |named| named.cgroup_id) {
            self.containers.insert(exited.cgroup_id, ended.containers[at].clone());
        }
        self.sums.take(exited);
    }

    /// True if the reader's Samples lack no row.
    pub fn is_empty(&self) -> bool {
        self.sums.0.is_empty() && self.in_root == 0
    }

    /// Adds the skipped rows to the exited tasks of the reader's next Sample, and the names of their cgroups.
    pub fn add_to(&mut self, sample: &mut Sample) {
        self.sums.add_to(&mut sample.exited);
        self.paths.retain(|id, _| self.sums.0.contains_key(id));
        self.containers.retain(|id, _| self.sums.0.contains_key(id));
        let mut names = self.paths.clone();
        names.extend(std::mem::take(&mut sample.cgroups));
        sample.cgroups = names.into_iter().collect();
        let mut containers = self.containers.clone();
        containers.extend(sample.containers.drain(..).map(|named| (named.cgroup_id, named)));
        sample.containers = containers.into_values().collect();
        sample.losses.add(Loss::ExitedInOtherCgroup, self.in_root);
    }

    pub fn memory_bytes(&self) -> usize {
        let sums = self.sums.0.values().map(|sum| size_of_val(sum) + sum.0.hist.memory_bytes());
        let paths = self.paths.values().map(|path| path.len());
        sums.chain(paths).sum::<usize>() + self.containers.len() * size_of::<ContainerReading>()
    }
}

impl Interval {
    /// Returns the changes between `a` and the later `b`. `skipped` holds the rows that ended in the Samples between them.
    pub fn over(a: &Sample, b: &Sample, skipped: &mut Skipped) -> Self {
        let mut interval = Self::between(a, b);
        if !skipped.is_empty() {
            let (exited, cgroups) = (b.exited.clone(), b.cgroups.clone());
            let containers = b.containers.clone();
            let mut whole = Sample { exited, cgroups, containers, ..Sample::default() };
            skipped.add_to(&mut whole);
            interval.exited = exited::between(&a.exited, &whole.exited);
            interval.cgroups = later(&a.cgroups, &whole.cgroups, |(id, _)| *id);
            interval.set_names(&a.containers, &whole.containers);
            interval.losses.add(Loss::ExitedInOtherCgroup, skipped.in_root);
        }
        interval
    }
}

#[cfg(test)]
mod tests;
