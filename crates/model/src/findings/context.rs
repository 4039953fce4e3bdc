//! Sums that several rules look at, made once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cgscope_layout::Cause;

use super::Host;
use crate::{
    Blame, ByCause, CgroupReading, Interval, Wait,
    selection::{is_at_or_below, path_and_ancestors},
    sum,
};

/// What tasks did, exited ones included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// On a CPU, ns.
    pub ran_ns: u64,
    /// Completed waits, ns.
    pub waited_ns: u64,
    /// The same by cause.
    pub by_cause: ByCause,
}

impl Sums {
    fn add(&mut self, ran_ns: u64, wait: &Wait) {
        self.add_sums(&Self { ran_ns, waited_ns: wait.total_ns, by_cause: wait.by_cause });
    }

    fn add_sums(&mut self, other: &Self) {
        self.ran_ns = self.ran_ns.saturating_add(other.ran_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.by_cause.add(&other.by_cause);
    }

    /// Waited or ran, ns.
    pub fn active_ns(&self) -> u64 {
        self.waited_ns.saturating_add(self.ran_ns)
    }
}

/// The busy threads among some tasks.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// How many.
    pub threads: u64,
    /// The processes they are of.
    pub processes: BTreeSet<u32>,
    /// The CPUs they are on or were on last.
    pub cpus: BTreeSet<u32>,
    /// What they waited behind their own cgroup, ns.
    pub own_ns: u64,
}

/// An interval and what was derived from it.
pub(super) struct Context<'a> {
    pub interval: &'a Interval,
    pub host: Host,
    /// Every task, also where its cgroup's path is not known.
    pub total: Sums,
    /// By path, each cgroup with all below it.
    pub with_below: BTreeMap<Arc<str>, Sums>,
    /// By path, the tasks directly in the cgroup.
    pub direct: BTreeMap<Arc<str>, Sums>,
    /// How long tasks were throttled because the quota of this path had run out, ns.
    pub held_ns: BTreeMap<Arc<str>, u64>,
    limits: BTreeMap<Arc<str>, &'a CgroupReading>,
}

impl<'a> Context<'a> {
    pub fn new(interval: &'a Interval, host: Host) -> Self {
        let by_id = sums_by_id(interval);
        let (mut total, mut direct, mut with_below) = (Sums::default(), BTreeMap::new(), BTreeMap::new());
        for (id, sums) in &by_id {
            total.add_sums(sums);
            let Some(path) = interval.cgroup_path(*id) else { continue };
            // A cgroup that was removed and made again has two ids.
            direct.entry(path.clone()).or_insert_with(Sums::default).add_sums(sums);
            for at in path_and_ancestors(path) {
                with_below.entry(Arc::from(at)).or_insert_with(Sums::default).add_sums(sums);
            }
        }
        let limits = interval.limits.iter();
        let limits = limits.filter_map(|limits| Some((interval.cgroup_path(limits.id)?.clone(), limits)));
        Self {
            interval,
            host,
            total,
            with_below,
            direct,
            held_ns: held(interval, &by_id),
            limits: limits.collect(),
        }
    }

    /// The limits of a cgroup itself.
    pub fn limits(&self, path: &str) -> Option<&'a CgroupReading> {
        self.limits.get(path).copied()
    }

    /// Every path with limits.
    pub fn limited_paths(&self) -> impl Iterator<Item = (&Arc<str>, &'a CgroupReading)> {
        self.limits.iter().map(|(path, limits)| (path, *limits))
    }

    /// The busy threads among the tasks in cgroups that `at` is true for.
    pub fn busy(&self, at: impl Fn(&str) -> bool) -> Busy {
        let mut busy = Busy::default();
        let tasks = self.interval.tasks.iter().filter(|task| task.is_busy(self.interval.duration_ns));
        for task in tasks {
            let reading = &task.reading;
            if self.interval.cgroup_path(reading.cgroup_id).is_some_and(|path| at(path)) {
                busy.threads += 1;
                busy.processes.insert(reading.tgid);
                busy.cpus.insert(reading.cpu);
                sum::add(&mut busy.own_ns, task.wait.by_cause.get(Cause::OwnCgroup));
            }
        }
        busy
    }

    /// The busy threads of a cgroup and all below it.
    pub fn busy_below(&self, path: &str) -> Busy {
        self.busy(|at| is_at_or_below(at, path))
    }
}

fn sums_by_id(interval: &Interval) -> BTreeMap<u64, Sums> {
    let mut by_id: BTreeMap<u64, Sums> = BTreeMap::new();
    for task in &interval.tasks {
        by_id.entry(task.reading.cgroup_id).or_default().add(task.totals.on_cpu_ns, &task.wait);
    }
    for exited in &interval.exited {
        by_id.entry(exited.cgroup_id).or_default().add(exited.totals.on_cpu_ns, &exited.wait);
    }
    by_id
}

/// How long tasks were throttled, by the path whose quota had run out. Where that was not recorded, as in
/// [`Interval::limited_by`], the tightest quota is taken.
fn held(interval: &Interval, by_id: &BTreeMap<u64, Sums>) -> BTreeMap<Arc<str>, u64> {
    let mut limits: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Limited) {
        limits.entry(pair.victim).or_default().push((pair.ns, pair.culprit));
    }
    let mut held: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for (id, sums) in by_id {
        let mut rest_ns = sums.by_cause.get(Cause::Throttled);
        let mut hold = |path: Option<Arc<str>>, ns: u64| {
            if let Some(path) = path.filter(|_| ns != 0) {
                sum::add(held.entry(path).or_default(), ns);
            }
        };
        let Some(limits) = limits.get_mut(id) else {
            let tightest = interval.cgroup_path(*id).and_then(|path| interval.effective_limit(path));
            hold(tightest.map(|limit| limit.path), rest_ns);
            continue;
        };
        limits.sort_unstable_by(|a, b| b.cmp(a));
        for (ns, limit) in limits {
            // The pairs are of all tasks of the cgroup; a selection by name may have left only some of these.
            let ns = (*ns).min(rest_ns);
            rest_ns -= ns;
            hold(interval.cgroup_path(*limit).cloned(), ns);
        }
    }
    held
}
