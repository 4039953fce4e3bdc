//! The rows of tasks over several intervals.

use std::{collections::BTreeSet, sync::Arc};

use super::{TaskInterval, TaskReading, exited::add_exited, idle};
use crate::Interval;

impl Interval {
    /// Adds the tasks to a longer interval that was built by appending intervals without tasks.
    ///
    /// Only the first and the last reading of each task are needed. `before` and `now` are the tasks of the first and the
    /// last Sample, ascending by serial. `late` are the first readings of tasks that were not read from their start on.
    /// `exited` are the last readings of tasks that were in a Sample in between but are not in the last one.
    ///
    /// The sums equal those of appended intervals. `max_ns` may be more exact, and a task counts in the cgroup where it was
    /// last.
    pub fn with_tasks(
        mut self,
        since_ns: u64,
        mut before: Vec<Arc<TaskReading>>,
        late: Vec<Arc<TaskReading>>,
        now: &[Arc<TaskReading>],
        mut exited: Vec<Arc<TaskReading>>,
    ) -> Self {
        // A task that disappeared and returned is in `now`. If a task disappeared twice, its last reading counts.
        exited.reverse();
        exited.sort_by_key(|task| task.serial);
        exited.dedup_by_key(|task| task.serial);
        for task in exited.iter_mut().map(Arc::make_mut) {
            (task.pending, task.on_cpu, task.state) = (None, false, None);
        }
        // If a task was there at the start, or appeared twice, its first reading counts.
        before.extend(late);
        before.sort_by_key(|task| task.serial);
        before.dedup_by_key(|task| task.serial);
        let mut went = exited.iter().peekable();
        let mut later = now.iter().peekable();
        let last = std::iter::from_fn(|| {
            let has_exited = match (went.peek(), later.peek()) {
                (Some(went), Some(later)) => went.serial < later.serial,
                (went, None) => went.is_some(),
                (None, _) => false,
            };
            if has_exited {
                return went.next();
            }
            let now = later.next()?;
            while went.next_if(|went| went.serial <= now.serial).is_some() {}
            Some(now)
        });
        (self.tasks, self.idle) = idle::split(&before, last, since_ns, self.one_node);
        // The later row has the figures of the earlier one, because it counts from the first reading.
        self.join_moved(false);
        self
    }

    /// Joins the rows of each task that moved to another cgroup. What it did before stays with the cgroup before. `adds`: the later row
    /// does not have the figures of the earlier ones.
    pub(super) fn join_moved(&mut self, adds: bool) {
        let moved = || self.tasks.iter().map(|task| &task.reading).filter(|task| task.moved_ns.is_some());
        let idle = moved().filter_map(|task| idle::before_it_moved(&self.idle, task)).map(|idle| idle.serial);
        let idle: BTreeSet<u64> = idle.collect();
        if !idle.is_empty() {
            self.idle.retain(|task| !idle.contains(&task.serial));
        }
        // Each move adds one to the serial, so they are neighbours.
        let is_moved = |pair: &[TaskInterval]| idle::has_moved(&pair[0].reading, &pair[1].reading);
        if !self.tasks.windows(2).any(is_moved) {
            return;
        }
        let mut joined: Vec<TaskInterval> = Vec::with_capacity(self.tasks.len());
        for mut task in std::mem::take(&mut self.tasks) {
            if let Some(before) = joined.pop_if(|before| idle::has_moved(&before.reading, &task.reading)) {
                let figures = before.figures();
                if adds {
                    task.add_before(before.whole.as_deref().unwrap_or(&figures));
                }
                add_exited(&mut self.exited, before.reading.cgroup_id, figures);
            }
            joined.push(task);
        }
        self.tasks = joined;
    }
}
