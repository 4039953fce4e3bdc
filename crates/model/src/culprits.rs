//! Who made whom wait.

use std::{cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

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
    /// Id of the cgroup that ran or whose quota had run out; [`KERNEL`]: a kernel thread.
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

impl PairReading {
    /// What makes it one pair.
    pub fn key(&self) -> (u64, u64, Blame, u32) {
        (self.victim, self.culprit, self.blame, self.tid)
    }
}

/// What came between two readings, ascending by key. A pair that fell or is new counts from 0.
pub(crate) fn between(a: &[PairReading], b: &[PairReading]) -> Vec<PairReading> {
    let mut earlier = a.iter().peekable();
    b.iter()
        .filter_map(|now| {
            while earlier.next_if(|before| before.key() < now.key()).is_some() {}
            let before = earlier.next_if(|before| before.key() == now.key()).map_or(0, |before| before.ns);
            let ns = now.ns.checked_sub(before).unwrap_or(now.ns);
            (ns != 0).then(|| PairReading { ns, ..now.clone() })
        })
        .collect()
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
        self.culprits_where(|id| self.is_in(id, victim))
    }

    /// Who ran while any followed task waited, the worst first.
    pub fn culprits(&self) -> Vec<Culprit> {
        self.culprits_where(|_| true)
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

    fn culprits_where(&self, victim: impl Fn(u64) -> bool) -> Vec<Culprit> {
        let mut sums: BTreeMap<(u64, u32), Culprit> = BTreeMap::new();
        for pair in self.pairs.iter().filter(|pair| pair.blame == Blame::Ran && victim(pair.victim)) {
            let sum = sums.entry((pair.culprit, pair.tid));
            sum.and_modify(|culprit| sum::add(&mut culprit.ns, pair.ns))
                .or_insert_with(|| self.culprit(pair));
        }
        let mut culprits: Vec<Culprit> = sums.into_values().collect();
        culprits.sort_by(|a, b| by_harm(a.ns, b.ns, || a.path.cmp(&b.path)));
        culprits
    }

    /// Which cgroups' quotas had run out while tasks of `victim` (with all below it) were throttled, the worst first.
    pub fn limits_of(&self, victim: &str) -> Vec<(Option<Arc<str>>, u64)> {
        let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
        let limited = self.pairs.iter().filter(|pair| pair.blame == Blame::Limited);
        for pair in limited.filter(|pair| self.is_in(pair.victim, victim)) {
            sum::add(sums.entry(pair.culprit).or_default(), pair.ns);
        }
        let mut limits: Vec<_> =
            sums.into_iter().map(|(id, ns)| (self.cgroup_path(id).cloned(), ns)).collect();
        limits.sort_by(|a, b| by_harm(a.1, b.1, || a.0.cmp(&b.0)));
        limits
    }

    fn is_in(&self, id: u64, root: &str) -> bool {
        self.cgroup_path(id).is_some_and(|path| crate::selection::is_at_or_below(path, root))
    }
}
