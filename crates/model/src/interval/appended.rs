//! Longer intervals from shorter ones.

use crate::{
    Accounts, CgroupReading, Gone, Interval, PairReading, StackReading, TaskInterval, TaskReading,
    interval::{ExitedInterval, task_between},
    nodes::CpuInterval,
    stacks, sum,
};

impl Interval {
    /// What happened over a longer time, of which `self` has all but the tasks: intervals without tasks, appended. Of the tasks
    /// it takes but the first and the last reading: `before` and `now` are those of its first and last Sample, ascending by
    /// serial; `late` those that were not read from their birth on, as they were read first; `gone` those that were in a Sample
    /// between and are not in the last one, as they were read last. The sums are those of appended intervals; `max_ns` may be more
    /// exact, and a task counts in the cgroup where it was last.
    pub fn with_tasks(
        mut self,
        since_ns: u64,
        mut before: Vec<TaskReading>,
        late: Vec<TaskReading>,
        now: &[TaskReading],
        mut gone: Vec<TaskReading>,
    ) -> Self {
        // One that went and came again is in `now`; of one that went twice the last reading counts.
        gone.reverse();
        gone.sort_by_key(|task| task.serial);
        gone.dedup_by_key(|task| task.serial);
        for task in &mut gone {
            (task.pending, task.on_cpu, task.state) = (None, false, None);
        }
        // Of one that was there at the beginning, or came twice, the first reading counts.
        before.extend(late);
        before.sort_by_key(|task| task.serial);
        before.dedup_by_key(|task| task.serial);
        let mut earlier = sum::earlier(&before, |task| task.serial);
        let mut went = gone.iter().peekable();
        let mut later = now.iter().peekable();
        self.tasks = std::iter::from_fn(|| {
            let is_gone = match (went.peek(), later.peek()) {
                (Some(went), Some(later)) => went.serial < later.serial,
                (went, None) => went.is_some(),
                (None, _) => false,
            };
            if is_gone {
                return went.next();
            }
            let now = later.next()?;
            while went.next_if(|went| went.serial <= now.serial).is_some() {}
            Some(now)
        })
        .filter_map(|now| task_between(earlier(now.serial), now, since_ns, self.one_node))
        .collect();
        self
    }

    /// Adds the interval that follows this one. Tasks that went meanwhile stay, with what was read of them.
    pub fn append(&mut self, next: Self) {
        if self.duration_ns == 0 {
            *self = next;
            return;
        }
        sum::add(&mut self.duration_ns, next.duration_ns);
        for task in &mut self.tasks {
            // Whoever is still there has a later reading; the others wait no more, nor do they anything else.
            let reading = &mut task.reading;
            (reading.pending, reading.on_cpu, reading.state) = (None, false, None);
        }
        merge(&mut self.tasks, next.tasks, |task| task.reading.serial, TaskInterval::append);
        merge(&mut self.exited, next.exited, |exited| exited.cgroup_id, ExitedInterval::append);
        merge(&mut self.pairs, next.pairs, PairReading::key, |old, new| sum::add(&mut old.ns, new.ns));
        merge(&mut self.limits, next.limits, |limits| limits.id, CgroupReading::append);
        merge(&mut self.cgroups, next.cgroups, |(id, _)| *id, |old, new| *old = new);
        merge(&mut self.cpus, next.cpus, |cpu| cpu.cpu, CpuInterval::append);
        merge(&mut self.memory, next.memory, |memory| memory.tgid, |old, new| *old = new);
        merge(&mut self.stacks, next.stacks, StackReading::key, StackReading::append);
        (self.nodes, self.one_node) = (next.nodes, next.one_node);
        (self.is_selection, self.selected_cgroup) = (next.is_selection, next.selected_cgroup);
        self.losses.append(&next.losses);
        self.cost.append(&next.cost);
    }
}

/// One interval of many, appended one after the other. Of those far back only sums are touched, and seldom: the work for each
/// grows with the logarithm of their number, not with the number of tasks that have ever been there.
#[derive(Debug, Default)]
pub struct Appended {
    /// Sums of 2^n intervals, ever fewer.
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

    /// Tasks that are held. Those that ended stay: whoever goes on without an end has to bury them.
    pub fn held(&self) -> usize {
        self.sums.iter().map(|(_, sum)| sum.tasks.len()).sum()
    }

    /// Takes those that are not there any more with what exited in their cgroups, where no more than that cgroup is known of them.
    pub fn bury(&mut self, is_there: impl Fn(&TaskReading) -> bool) {
        for (_, sum) in &mut self.sums {
            for task in sum.tasks.extract_if(.., |task| !is_there(&task.reading)) {
                bury(&mut sum.exited, task);
            }
            sum.tasks.shrink_to_fit();
            stacks::bury(&mut sum.stacks, |serial| {
                sum.tasks.binary_search_by_key(&serial, |task| task.reading.serial).is_ok()
            });
        }
    }

    /// All of them.
    pub fn into_interval(self) -> Interval {
        let sums = self.sums.into_iter().rev().map(|(_, sum)| sum);
        sums.reduce(|later, before| appended(before, later)).unwrap_or_default()
    }
}

/// Its death is counted already, and so is what threads of its process did that exited.
fn bury(exited: &mut Vec<ExitedInterval>, task: TaskInterval) {
    let accounts = task.accounts.map(|accounts| Accounts { gone: Gone::default(), ..*accounts });
    let cgroup_id = task.reading.cgroup_id;
    let dead = ExitedInterval { cgroup_id, tasks: 0, totals: task.totals, accounts, wait: task.wait };
    match exited.binary_search_by_key(&cgroup_id, |exited| exited.cgroup_id) {
        Ok(at) => exited[at].append(dead),
        Err(at) => exited.insert(at, dead),
    }
}

fn appended(mut before: Interval, next: Interval) -> Interval {
    before.append(next);
    before
}

/// Merges two lists in ascending order of `key`; `both` takes the later one into the earlier.
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
