//! Who made whom wait.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use cgscope_layout::ledger::KERNEL;

use crate::{Interval, cgroup_name::UNNAMED, sum};

/// What a culprit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// It ran while the victim waited.
    Ran,
    /// Its quota had run out.
    Limited,
}

/// How long tasks of one cgroup have waited because of another cgroup so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairReading {
    /// Id of the cgroup whose tasks waited.
    pub victim: u64,
    /// Id of the cgroup that ran or whose quota had run out; [`KERNEL`]: a kernel thread; [`REST`]: several.
    pub culprit: u64,
    /// What it did.
    pub blame: Blame,
    /// The task that ran, where the target was selected by process or thread; else 0.
    pub tid: u32,
    /// Its name.
    pub comm: Arc<str>,
    /// Sum, ns.
    pub ns: u64,
}

/// The id under which the culprits of a victim are summed that are not told apart. No cgroup has it: the kernel counts up from 1.
pub const REST: u64 = u64::MAX - 2;
/// The name of [`REST`].
pub const REST_NAME: &str = "(other cgroups)";

/// What makes it one pair: victim, culprit, what it did, and the task.
pub type PairKey = (u64, u64, Blame, u32);

impl PairReading {
    /// See [`PairKey`].
    pub fn key(&self) -> PairKey {
        (self.victim, self.culprit, self.blame, self.tid)
    }
}

/// The pair that a pair is added to when a victim has more culprits than are told apart: tasks of its own cgroup, kernel threads
/// and other cgroups stay apart. A sum has itself.
pub fn rest_of((victim, culprit, blame, _): PairKey) -> PairKey {
    let stays = culprit == KERNEL || culprit == victim;
    (victim, if stays { culprit } else { REST }, blame, 0)
}

/// What came between two readings, both ascending by key; so is the result. A pair that fell or is new counts from 0. What it had
/// before has been added to the sum that [`rest_of`] names, if there is one, and is not new there.
pub fn between<'a>(
    a: impl IntoIterator<Item = &'a PairReading>,
    b: impl IntoIterator<Item = &'a PairReading>,
) -> Vec<PairReading> {
    let mut earlier = a.into_iter().peekable();
    let mut moved: HashMap<PairKey, u64> = HashMap::new();
    let mut moves = |pair: &PairReading| {
        let rest = rest_of(pair.key());
        if rest != pair.key() {
            sum::add(moved.entry(rest).or_default(), pair.ns);
        }
    };
    let mut came = Vec::new();
    for now in b {
        while let Some(gone) = earlier.next_if(|before| before.key() < now.key()) {
            moves(gone);
        }
        let ns = match earlier.next_if(|before| before.key() == now.key()) {
            Some(before) if before.ns <= now.ns => now.ns - before.ns,
            Some(before) => {
                moves(before);
                now.ns
            }
            None => now.ns,
        };
        came.push(PairReading { ns, ..now.clone() });
    }
    earlier.for_each(moves);
    came.retain_mut(|pair| {
        if let Some(moved) = moved.get(&pair.key()) {
            pair.ns = pair.ns.saturating_sub(*moved);
        }
        pair.ns != 0
    });
    came
}

/// So many culprits are named in an output; the others have done less.
pub const NAMED: usize = 16;

/// The order of culprits, the worst first; of the same harm by path.
pub(crate) fn by_harm(a_ns: u64, b_ns: u64, paths: impl FnOnce() -> Ordering) -> Ordering {
    b_ns.cmp(&a_ns).then_with(paths)
}

/// A culprit of a cgroup's waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Path of its cgroup, as under the mount; `None`: a kernel thread, or a cgroup that was gone before it could be named.
    pub path: Option<Arc<str>>,
    /// A kernel thread, or all of them where single tasks are not told apart.
    pub kernel: bool,
    /// Thread id and name, where single tasks are told apart.
    pub task: Option<(u32, Arc<str>)>,
    /// How long the cgroup's tasks waited behind it, ns summed over tasks.
    pub ns: u64,
}

impl fmt::Display for Culprit {
    /// Its cgroup, and the task where single tasks are told apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (&self.path, self.kernel) {
            (Some(path), _) => path,
            (None, true) => "kernel threads",
            (None, false) => UNNAMED,
        };
        match &self.task {
            Some((tid, comm)) if self.kernel => write!(f, "{comm} [{tid}], a kernel thread"),
            Some((tid, comm)) => write!(f, "{comm} [{tid}] of {place}"),
            None => f.write_str(place),
        }
    }
}

impl Interval {
    /// Who ran while tasks of `victim` (with all below it) waited, the worst first.
    pub fn culprits_of(&self, victim: &str) -> Vec<Culprit> {
        self.culprits_where(Blame::Ran, |id| self.is_in(id, victim))
    }

    /// Who ran while any followed task waited, the worst first.
    pub fn culprits(&self) -> Vec<Culprit> {
        self.culprits_where(Blame::Ran, |_| true)
    }

    /// The culprit of one pair.
    pub fn culprit(&self, pair: &PairReading) -> Culprit {
        Culprit {
            path: self.cgroup_path(pair.culprit).cloned(),
            kernel: pair.culprit == KERNEL,
            task: (pair.tid != 0).then(|| (pair.tid, pair.comm.clone())),
            ns: pair.ns,
        }
    }

    fn culprits_where(&self, blame: Blame, victim: impl Fn(u64) -> bool) -> Vec<Culprit> {
        let mut sums: BTreeMap<(u64, u32), Culprit> = BTreeMap::new();
        for pair in self.pairs.iter().filter(|pair| pair.blame == blame && victim(pair.victim)) {
            // A quota runs out for all alike.
            let sum = sums.entry((pair.culprit, if blame == Blame::Ran { pair.tid } else { 0 }));
            sum.and_modify(|culprit| sum::add(&mut culprit.ns, pair.ns))
                .or_insert_with(|| self.culprit(pair));
        }
        let mut culprits: Vec<Culprit> = sums.into_values().collect();
        culprits.sort_by(|a, b| by_harm(a.ns, b.ns, || a.path.cmp(&b.path)));
        culprits
    }

    /// Which cgroups' quotas had run out while tasks of `victim` (with all below it) were throttled, the worst first.
    pub fn limits_of(&self, victim: &str) -> Vec<(Option<Arc<str>>, u64)> {
        let limits = self.culprits_where(Blame::Limited, |id| self.is_in(id, victim));
        limits.into_iter().map(|limit| (limit.path, limit.ns)).collect()
    }

    fn is_in(&self, id: u64, root: &str) -> bool {
        self.cgroup_path(id).is_some_and(|path| crate::selection::is_at_or_below(path, root))
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
    fn what_a_pair_had_before_is_not_new_where_it_is_summed_with_others() {
        let a = [pair(6, 0, 100), pair(7, 0, 10), pair(REST, 0, 40)];
        assert_eq!(came(&a, &[pair(7, 0, 15), pair(REST, 0, 145)]), [(7, 5), (REST, 5)]);
        // It is told apart again.
        assert_eq!(came(&a, &[pair(6, 0, 3), pair(7, 0, 10), pair(REST, 0, 140)]), [(6, 3)]);
        // Kernel threads and its own tasks have sums of their own.
        let a = [pair(5, 1, 9), pair(6, 1, 8), pair(KERNEL, 1, 7)];
        let b = [pair(5, 0, 10), pair(REST, 0, 8), pair(KERNEL, 0, 7)];
        assert_eq!(came(&a, &b), [(5, 1)]);
        // Nobody has said where it went.
        assert_eq!(came(&a, &[pair(6, 1, 9)]), [(6, 1)]);
    }
}
