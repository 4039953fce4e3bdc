//! Builds longer intervals from shorter ones.

use crate::{
    Interval, TaskReading,
    table::{exited::add_exited, stacks},
};

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
                // Its exit, and the work of its exited threads, are already counted.
                add_exited(&mut sum.exited, task.reading.cgroup_id, task.figures());
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

fn appended(mut before: Interval, next: Interval) -> Interval {
    before.append(next);
    before
}
