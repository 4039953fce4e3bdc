//! Samples that a reader skips.
//!
//! The kernel adds to the exited tasks of a cgroup only what it had not reported of a task at the last reading. So two Samples that do
//! not follow each other lack what was reported between them of tasks that exited or moved since, and of cgroups that were removed.
//! [`ended`] finds these rows from one Sample to the next; [`Skipped`] sums them up for a reader.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{ExitedReading, Hist, Interval, Sample, TaskReading, Totals, interval};

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
    let mut now = now.iter().peekable();
    let is_missing = |row: &&T| {
        while now.next_if(|now| key(now) < key(row)).is_some() {}
        now.peek().is_none_or(|now| key(now) != key(row))
    };
    before.iter().filter(is_missing).cloned().collect()
}

/// What a reader lacks who skips Samples, by cgroup: cumulative, as the exited tasks to which it is added.
///
/// Accounts are left out: only readers of every Sample ask for them.
#[derive(Debug, Default)]
pub struct Skipped {
    cgroups: BTreeMap<u64, Part>,
}

#[derive(Debug)]
struct Part {
    path: Option<Arc<str>>,
    reading: ExitedReading,
    /// Something was added since the reader's latest Sample.
    is_new: bool,
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
                let reading = ExitedReading {
                    cgroup_id,
                    tasks: 0,
                    max_ns,
                    totals,
                    accounts: None,
                    hist: Arc::new(hist),
                };
                self.part(cgroup_id, ended).reading.add(&reading);
            }
        }
        for exited in &ended.exited {
            // All of it: the reader compares it with what it has of it.
            self.part(exited.cgroup_id, ended).reading.add(exited);
        }
    }

    fn part(&mut self, cgroup_id: u64, ended: &Sample) -> &mut Part {
        let part = self.cgroups.entry(cgroup_id).or_insert_with(|| {
            let (tasks, max_ns, totals) = (0, 0, Totals::default());
            let reading =
                ExitedReading { cgroup_id, tasks, max_ns, totals, accounts: None, hist: Arc::default() };
            Part { path: None, reading, is_new: true }
        });
        if let Ok(at) = ended.cgroups.binary_search_by_key(&cgroup_id, |(id, _)| *id) {
            part.path = Some(ended.cgroups[at].1.clone());
        }
        part.is_new = true;
        part
    }

    /// True if the reader's Samples lack nothing.
    pub fn is_empty(&self) -> bool {
        self.cgroups.is_empty()
    }

    /// The exited tasks of the reader's next Sample with what was skipped, and the names of cgroups.
    pub fn added_to(&mut self, sample: &Sample) -> (Vec<ExitedReading>, Vec<(u64, Arc<str>)>) {
        let is_known = |id: &u64| sample.exited.binary_search_by_key(id, |exited| exited.cgroup_id).is_ok();
        // The reader no longer has a cgroup that is in neither: if more comes later, both count from 0.
        self.cgroups.retain(|id, part| std::mem::take(&mut part.is_new) || is_known(id));
        let mut exited: BTreeMap<u64, ExitedReading> =
            sample.exited.iter().map(|exited| (exited.cgroup_id, exited.clone())).collect();
        let mut names: BTreeMap<u64, Arc<str>> = sample.cgroups.iter().cloned().collect();
        for (id, part) in &self.cgroups {
            exited.entry(*id).and_modify(|exited| exited.add(&part.reading)).or_insert(part.reading.clone());
            if let Some(path) = &part.path {
                names.entry(*id).or_insert_with(|| path.clone());
            }
        }
        (exited.into_values().collect(), names.into_iter().collect())
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
