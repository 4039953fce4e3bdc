//! Sums waiting over all intervals, by stack and cause. A stack consists of the cgroups from the root down, the process and the
//! thread. The memory for the sums grows with the number of tasks, not with time.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_model::{
    ByCause, CAUSES, Cause, Interval, Wait, cgroup_name::UNNAMED, path::path_and_ancestors, sum,
    table::exited::ENDED,
};

#[derive(Default)]
pub(crate) struct Stacks(BTreeMap<StackOwner, StackWaits>);

/// The owner of waits. If a task changes its name or its cgroup, its later waits have another owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StackOwner {
    path: Option<Arc<str>>,
    pub(crate) task: Option<StackTask>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StackTask {
    pub(crate) tgid: u32,
    process: Arc<str>,
    serial: u64,
    pub(crate) tid: u32,
    pub(crate) comm: Arc<str>,
}

impl Stacks {
    pub(crate) fn add(&mut self, interval: &Interval) {
        let processes = interval.naming_tasks();
        for task in interval.tasks.iter().filter(|task| task.wait.count != 0 || task.wait.total_ns != 0) {
            let reading = &task.reading;
            let stack = StackTask {
                tgid: reading.tgid,
                process: processes.get(&reading.tgid).map_or(&reading.comm, |task| &task.comm).clone(),
                serial: reading.serial,
                tid: reading.tid,
                comm: reading.comm.clone(),
            };
            let path = interval.cgroup_path(reading.cgroup_id).cloned();
            self.0.entry(StackOwner { path, task: Some(stack) }).or_default().add(&task.wait);
        }
        for exited in &interval.exited {
            let owner = StackOwner { path: interval.cgroup_path(exited.cgroup_id).cloned(), task: None };
            self.0.entry(owner).or_default().add(&exited.wait);
        }
    }

    /// Iterates over all owners. Yields the owner, the frames of its stack from the root down, and its waits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&StackOwner, Vec<String>, &StackWaits)> {
        self.0.iter().map(|(owner, waits)| (owner, frames(owner), waits))
    }
}

/// Returns a frame for each cgroup on the path, from the root down, with the full path: many last components are equal.
pub(crate) fn frames_of_path(path: Option<&str>) -> Vec<String> {
    let Some(path) = path else { return vec![UNNAMED.to_owned()] };
    let mut frames: Vec<String> = path_and_ancestors(path).map(str::to_owned).collect();
    frames.reverse();
    frames
}

fn frames(owner: &StackOwner) -> Vec<String> {
    let mut frames = frames_of_path(owner.path.as_deref());
    match &owner.task {
        Some(StackTask { tgid, process, tid, comm, .. }) => {
            frames.push(format!("{process} [{tgid}]"));
            frames.push(format!("{comm} [{tgid}/{tid}]"));
        }
        None => frames.push(ENDED.to_owned()),
    }
    frames
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StackWaits {
    count: u64,
    by_cause: ByCause,
    /// Number of waits by cause; a wait with several causes is divided among them. All are 0 if there is no histogram.
    shares: [f64; CAUSES],
}

impl StackWaits {
    pub(crate) fn add(&mut self, wait: &Wait) {
        sum::add(&mut self.count, wait.count);
        self.by_cause.add(&wait.by_cause);
        for octave in wait.hist.octaves() {
            self.shares.iter_mut().zip(octave.by_cause).for_each(|(sum, share)| *sum += share);
        }
    }

    /// Iterates over the causes that have waits. Yields the cause, its number of waits, and its time in ns. Numbers are rounded
    /// so that each wait counts for one cause.
    pub(crate) fn by_cause(&self) -> impl Iterator<Item = (Cause, u64, u64)> + '_ {
        let has_shares = self.shares.iter().any(|share| *share > 0.0);
        let shares = if has_shares { self.shares } else { self.by_cause.0.map(|ns| ns as f64) };
        let counts = divide(self.count, &shares);
        let all = self.by_cause.iter().map(move |(cause, ns)| (cause, counts[cause as usize], ns));
        all.filter(|(_, waits, ns)| *waits != 0 || *ns != 0)
    }
}

/// Divides `count` in proportion to `shares`. The parts are rounded down, and the rest goes to the parts with the largest
/// remainders. If all shares are 0, all waits took 0 ns, and the last cause gets all waits.
fn divide<const N: usize>(count: u64, shares: &[f64; N]) -> [u64; N] {
    let total: f64 = shares.iter().sum();
    if total <= 0.0 {
        return std::array::from_fn(|i| if i == N - 1 { count } else { 0 });
    }
    let exact = shares.map(|share| share / total * count as f64);
    let mut counts = exact.map(|part| part as u64);
    let mut order: [usize; N] = std::array::from_fn(|i| i);
    order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    let left = count.saturating_sub(sum::total(counts));
    order.into_iter().cycle().take(left as usize).for_each(|i| counts[i] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_divided_without_a_remainder() {
        assert_eq!(divide(3, &[1.0, 1.0, 0.0, 0.0, 0.0, 1.0]), [1, 1, 0, 0, 0, 1]);
        assert_eq!(divide(10, &[2.0, 1.0, 0.0, 0.0, 0.0, 0.0]), [7, 3, 0, 0, 0, 0]);
        assert_eq!(divide(5, &[0.0; 6]), [0, 0, 0, 0, 0, 5]);
        assert_eq!(divide(0, &[1.0; CAUSES]), [0; CAUSES]);
        for count in [1, 2, 3, 7, 1_000_003] {
            assert_eq!(divide(count, &[0.1, 0.7, 1e-9, 3.0, 0.3, 5.0]).iter().sum::<u64>(), count);
        }
    }

    #[test]
    fn waits_without_a_histogram_are_divided_by_time() {
        let mut waits = StackWaits::default();
        let mut wait = Wait { count: 4, total_ns: 400, ..Wait::default() };
        wait.by_cause.add(&ByCause::only(Cause::Throttled, 100));
        wait.by_cause.add(&ByCause::only(Cause::Unattributed, 300));
        waits.add(&wait);
        let by_cause: Vec<_> = waits.by_cause().collect();
        assert_eq!(by_cause, [(Cause::Throttled, 1, 100), (Cause::Unattributed, 3, 300)]);
    }
}
