//! Builds longer intervals from shorter ones.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Accounts, CgroupReading, ExitedThreads, Interval, PairReading, SchedExt, StackReading, TaskInterval,
    TaskReading, Totals, Wait,
    interval::{ExitedInterval, Figures, idle},
    nodes::CpuInterval,
    stacks, sum,
};

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
    fn join_moved(&mut self, adds: bool) {
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

    /// Adds the interval that follows this one. Tasks that exited in between stay, with their last readings.
    pub fn append(&mut self, mut next: Self) {
        if self.duration_ns == 0 {
            *self = next;
            return;
        }
        sum::add(&mut self.duration_ns, next.duration_ns);
        self.wake(&next.tasks);
        next.wake(&self.tasks);
        for task in &mut self.tasks {
            // A task that still exists gets its later reading. An exited task does not wait and has no state.
            let reading = &mut task.reading;
            (reading.pending, reading.on_cpu, reading.state) = (None, false, None);
        }
        merge(&mut self.tasks, next.tasks, |task| task.reading.serial, TaskInterval::append);
        self.append_idle(next.idle);
        merge(&mut self.exited, next.exited, |exited| exited.cgroup_id, ExitedInterval::append);
        self.join_moved(true);
        merge(&mut self.pairs, next.pairs, PairReading::key, |old, new| sum::add(&mut old.ns, new.ns));
        merge(&mut self.limits, next.limits, |limits| limits.id, CgroupReading::append);
        merge(&mut self.cgroups, next.cgroups, |(id, _)| *id, |old, new| *old = new);
        if *self.names != *next.names {
            Arc::make_mut(&mut self.names).append(&next.names);
        }
        merge(&mut self.cpus, next.cpus, |cpu| cpu.cpu, CpuInterval::append);
        merge(&mut self.memory, next.memory, |memory| memory.tgid, |old, new| *old = new);
        merge(&mut self.stacks, next.stacks, StackReading::key, StackReading::append);
        self.sched_ext = SchedExt::between(self.sched_ext.as_ref(), next.sched_ext.as_ref());
        (self.nodes, self.one_node) = (next.nodes, next.one_node);
        (self.is_selection, self.selected_cgroup) = (next.is_selection, next.selected_cgroup);
        self.losses.append(&next.losses);
        self.cost.append(&next.cost);
    }
}

/// One interval, built from many that are appended one after the other.
///
/// Old intervals are kept as sums and rarely touched. The work per interval grows with the logarithm of the number of
/// intervals, not with the number of tasks in all of them.
#[derive(Debug, Default)]
pub struct Appended {
    /// Sums of 2^n intervals; n decreases from first to last.
    sums: Vec<(u32, Interval)>,
}

impl Appended {
    /// Adds the interval that follows the last one.
    pub fn push(&mut self, next: Interval) {
        let (mut power, mut sum) = (0, next);
        while let Some((_, before)) = self.sums.pop_if(|(before, _)| *before == power) {
            sum = appended(before, sum);
            power += 1;
        }
        self.sums.push((power, sum));
    }

    /// Number of tasks held. Exited tasks stay: a caller that runs without end must [`Self::merge_exited`] them.
    pub fn held(&self) -> usize {
        self.sums.iter().map(|(_, sum)| sum.tasks.len() + sum.idle.len()).sum()
    }

    /// Moves tasks for which `is_there` is false into the exited tasks of their cgroup. Only their cgroup is known from then
    /// on.
    pub fn merge_exited(&mut self, is_there: impl Fn(&TaskReading) -> bool) {
        for (_, sum) in &mut self.sums {
            for task in sum.tasks.extract_if(.., |task| !is_there(&task.reading)) {
                merge_exited(&mut sum.exited, task);
            }
            sum.tasks.shrink_to_fit();
            sum.idle.retain(|task| is_there(task));
            stacks::merge_exited(&mut sum.stacks, |serial| {
                sum.tasks.binary_search_by_key(&serial, |task| task.reading.serial).is_ok()
            });
        }
    }

    /// The sum of all intervals.
    pub fn into_interval(self) -> Interval {
        let sums = self.sums.into_iter().rev().map(|(_, sum)| sum);
        sums.reduce(|later, before| appended(before, later)).unwrap_or_default()
    }
}

/// Merges a task into the exited tasks. Its exit, and the work of its exited threads, are already counted.
fn merge_exited(exited: &mut Vec<ExitedInterval>, task: TaskInterval) {
    add_exited(exited, task.reading.cgroup_id, task.figures());
}

fn add_exited(exited: &mut Vec<ExitedInterval>, cgroup_id: u64, figures: Figures) {
    let Figures { totals, accounts, wait } = figures;
    if totals == Totals::default() && accounts.is_none() && wait == Wait::default() {
        return;
    }
    let accounts =
        accounts.map(|accounts| Accounts { exited_threads: ExitedThreads::default(), ..*accounts });
    let exit = ExitedInterval { cgroup_id, tasks: 0, totals, accounts, wait };
    match exited.binary_search_by_key(&cgroup_id, |exited| exited.cgroup_id) {
        Ok(at) => exited[at].append(exit),
        Err(at) => exited.insert(at, exit),
    }
}

fn appended(mut before: Interval, next: Interval) -> Interval {
    before.append(next);
    before
}

/// Merges two lists in ascending order of `key`; `both` merges the later element into the earlier one.
fn merge<T, K: Ord>(into: &mut Vec<T>, from: Vec<T>, key: impl Fn(&T) -> K, both: impl Fn(&mut T, T)) {
    let mut later = from.into_iter().peekable();
    let mut merged = Vec::with_capacity(into.len() + later.len());
    for mut old in into.drain(..) {
        while let Some(new) = later.next_if(|new| key(new) < key(&old)) {
            merged.push(new);
        }
        if let Some(new) = later.next_if(|new| key(new) == key(&old)) {
            both(&mut old, new);
        }
        merged.push(old);
    }
    merged.extend(later);
    *into = merged;
}
