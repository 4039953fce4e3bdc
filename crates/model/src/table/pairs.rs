//! Culprits: the cgroups that made other cgroups wait.

use std::{collections::HashMap, sync::Arc};

use cgscope_ledger::history::KERNEL;
use itertools::EitherOrBoth::{Both, Left, Right};
use itertools::Itertools;

use crate::sum::{self, is_share};
use crate::table::{Selected, Table, merge};
use crate::{Interval, Names, Sample, cgroup_name::UNNAMED};

table! {
    /// The table: one row per victim, culprit, blame and task that ran.
    Pairs: PairReading, by PairKey: |row| row.key(), "its pairs of victim and culprit are not in the order of their ids";
    pairs = |a, b| between(&a.pairs, &b.pairs), by PairReading::key, |old, new| sum::add(&mut old.ns, new.ns);

    fn select(interval: &mut Interval, selected: &Selected<'_>) {
        interval.pairs.retain(|pair| selected.has_cgroup(pair.victim));
    }
}

/// How a culprit made a victim wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The culprit ran while the victim waited.
    Ran,
    /// The culprit's quota had run out.
    Limited,
}

/// Total time so far that tasks of one cgroup waited because of another cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairReading {
    /// Id of the cgroup whose tasks waited.
    pub victim: u64,
    /// Id of the cgroup that ran or whose quota had run out. [`KERNEL`]: a kernel thread; [`REST`]: several cgroups.
    pub culprit: u64,
    pub blame: Blame,
    /// Thread id of the task that ran, if the target is selected by process or thread; otherwise 0.
    pub tid: u32,
    pub comm: Arc<str>,
    pub ns: u64,
}

/// Id of the sum of a victim's remaining culprits, which have no own pairs. The kernel counts up from 1: no cgroup has this id.
pub const REST: u64 = u64::MAX - 2;

pub const REST_NAME: &str = "(other cgroups)";

/// The key of a pair: victim, culprit, blame and task id.
pub type PairKey = (u64, u64, Blame, u32);

impl PairReading {
    pub fn key(&self) -> PairKey {
        (self.victim, self.culprit, self.blame, self.tid)
    }
}

/// Returns the key of the sum that absorbs this pair when a victim has too many culprits to keep each one. There are separate
/// sums for the victim's own cgroup, kernel threads and other cgroups. The key of a sum is returned unchanged.
pub fn rest_of((victim, culprit, blame, _): PairKey) -> PairKey {
    let stays = culprit == KERNEL || culprit == victim;
    (victim, if stays { culprit } else { REST }, blame, 0)
}

/// Subtracts reading `a` from reading `b`. Both must ascend by key; the result ascends by key. A new pair, or a pair whose time
/// decreased, counts from 0. If a pair vanished or its time decreased, its earlier time was added to the sum named by
/// [`rest_of`], if that sum exists. This time is not new, so it is subtracted from the sum.
pub fn between<'a>(
    a: impl IntoIterator<Item = &'a PairReading>,
    b: impl IntoIterator<Item = &'a PairReading>,
) -> Vec<PairReading> {
    let mut moved: HashMap<PairKey, u64> = HashMap::new();
    let mut moves = |pair: &PairReading| {
        let rest = rest_of(pair.key());
        if rest != pair.key() {
            sum::add(moved.entry(rest).or_default(), pair.ns);
        }
    };
    let mut came = Vec::new();
    for pair in a.into_iter().merge_join_by(b, |before, now| before.key().cmp(&now.key())) {
        match pair {
            Left(missing) => moves(missing),
            Right(now) => came.push(now.clone()),
            Both(before, now) if before.ns <= now.ns => {
                came.push(PairReading { ns: now.ns - before.ns, ..now.clone() });
            }
            Both(before, now) => {
                moves(before);
                came.push(now.clone());
            }
        }
    }
    came.retain_mut(|pair| {
        if let Some(moved) = moved.get(&pair.key()) {
            pair.ns = pair.ns.saturating_sub(*moved);
        }
        pair.ns != 0
    });
    came
}

/// Maximum number of culprits that an output names, the worst first.
pub const NAMED: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Culprit {
    /// Path of the culprit's cgroup, relative to the mount; `None`: a kernel thread, or a cgroup whose path was never read.
    pub path: Option<Arc<str>>,
    /// True for a kernel thread, or for all kernel threads together if tasks are not distinguished.
    pub kernel: bool,
    /// Thread id and name, if tasks are distinguished.
    pub task: Option<(u32, Arc<str>)>,
    /// Time that the cgroup's tasks waited for the culprit, ns, summed over tasks.
    pub ns: u64,
    /// The part of `ns` in which the culprit ran for longer than its weight allows, ns. `None`: weights do not apply between the
    /// two (own cgroup, kernel threads, an ancestor), a weight is unknown, or a selection removed tasks.
    pub beyond_ns: Option<u64>,
}

/// A culprit exceeds its weight from this share of [`Culprit::ns`] on, percent. The formula's error is smaller.
const BEYOND_PERCENT: u64 = 20;

impl Culprit {
    /// True if the culprit exceeded its weight, false if not; `None`: unknown.
    pub fn is_beyond(&self) -> Option<bool> {
        Some(is_share(self.beyond_ns?, self.ns, BEYOND_PERCENT))
    }

    /// Describes the culprit's cgroup, and the task if tasks are distinguished.
    pub fn words(&self, names: &Names) -> String {
        let place = match (&self.path, self.kernel) {
            (Some(path), _) => names.of(path),
            (None, true) => "kernel threads".into(),
            (None, false) => UNNAMED.into(),
        };
        match &self.task {
            Some((tid, comm)) if self.kernel => format!("{comm} [{tid}], a kernel thread"),
            Some((tid, comm)) => format!("{comm} [{tid}] of {place}"),
            None => place.into(),
        }
    }
}

impl Interval {
    /// Returns the culprit of one pair, without [`Culprit::beyond_ns`].
    pub fn culprit(&self, pair: &PairReading) -> Culprit {
        Culprit {
            path: self.cgroup_path(pair.culprit).cloned(),
            kernel: pair.culprit == KERNEL,
            task: (pair.tid != 0).then(|| (pair.tid, pair.comm.clone())),
            ns: pair.ns,
            beyond_ns: None,
        }
    }

    /// Returns the cgroups whose quotas throttled tasks of `victim` and its descendants, each with the time, ns; the worst first.
    pub fn limits_of(&self, victim: &str) -> Vec<(Option<Arc<str>>, u64)> {
        let limited = self.pairs.iter().filter(|pair| pair.blame == Blame::Limited);
        let limited = limited.filter(|pair| self.is_in(pair.victim, victim));
        let sums = sum::tally(limited.map(|pair| (pair.culprit, pair.ns)));
        let mut limits: Vec<_> =
            sums.into_iter().map(|(id, ns)| (self.cgroup_path(id).cloned(), ns)).collect();
        limits.sort_by(|(a, a_ns), (b, b_ns)| b_ns.cmp(a_ns).then_with(|| a.cmp(b)));
        limits
    }

    pub(crate) fn is_in(&self, id: u64, root: &str) -> bool {
        self.cgroup_path(id).is_some_and(|path| crate::path::is_at_or_below(path, root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(culprit: u64, tid: u32, ns: u64) -> PairReading {
        PairReading { victim: 5, culprit, blame: Blame::Ran, tid, comm: "".into(), ns }
    }

    fn came(a: &[PairReading], b: &[PairReading]) -> Vec<(u64, u64)> {
        between(a, b).iter().map(|pair| (pair.culprit, pair.ns)).collect()
    }

    #[test]
    fn earlier_time_of_a_pair_is_not_new_in_a_sum_of_several_pairs() {
        let a = [pair(6, 0, 100), pair(7, 0, 10), pair(REST, 0, 40)];
        assert_eq!(came(&a, &[pair(7, 0, 15), pair(REST, 0, 145)]), [(7, 5), (REST, 5)]);
        // Culprit 6 has its own pair again.
        assert_eq!(came(&a, &[pair(6, 0, 3), pair(7, 0, 10), pair(REST, 0, 140)]), [(6, 3)]);
        // Kernel threads and the victim's own cgroup have separate sums.
        let a = [pair(5, 1, 9), pair(6, 1, 8), pair(KERNEL, 1, 7)];
        let b = [pair(5, 0, 10), pair(REST, 0, 8), pair(KERNEL, 0, 7)];
        assert_eq!(came(&a, &b), [(5, 1)]);
        // Pairs that vanished and have no sum are ignored.
        assert_eq!(came(&a, &[pair(6, 1, 9)]), [(6, 1)]);
    }
}
