//! Filters samples to what a viewer may see: users see their own processes.
//!
//! A process belongs to a user if its real, effective and saved user id are the user's. The kernel uses the same rule for
//! inspecting a process. A user sees the cgroups of their processes with all ancestors. A user also sees the limits and totals
//! that the kernel publishes to everyone for those cgroups (`cpu.max`, `cpu.stat` and `cpu.pressure` are world-readable).
//!
//! Exited tasks are known only by cgroup: a user sees them if they own the cgroup's directory. Culprits are known only by cgroup,
//! too. A user sees the culprits of a cgroup if all tasks in it are the user's. Culprits that are other users' cgroups have no
//! name there.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use cgscope_layout::history::KERNEL;
use cgscope_model::{
    ContainerReading, ExitedReading, PairKey, PairReading, Sample, TaskReading,
    access::{Access, Follower},
    between, rest_of,
    selection::path_and_ancestors,
};

/// The id that stands for all cgroups that a viewer may not see. No cgroup has this id: the kernel counts up from 1.
const OTHERS: u64 = u64::MAX - 1;
const OTHERS_NAME: &str = "(cgroups of other users)";

/// Everything that was read at one moment, and who may see it.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// What was read.
    pub sample: Sample,
    /// Who may see each task, in ascending order of serial.
    pub access: Vec<Access>,
}

impl Reading {
    pub(crate) fn access_to(&self, serial: u64) -> Option<Access> {
        let at = self.access.binary_search_by_key(&serial, |access| access.serial).ok()?;
        Some(self.access[at])
    }
}

/// A viewer's permission and choice: which part of a sample they see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct View {
    /// The user whose processes are shown; `None` shows everything.
    pub user: Option<u32>,
    /// Show only processes that are followed for this viewer.
    pub follower: Option<Follower>,
}

impl View {
    pub const ALL: Self = Self { user: None, follower: None };

    pub fn shows(&self, access: &Access) -> bool {
        self.user.is_none_or(|user| access.owner == Some(user))
            && self.follower.is_none_or(|follower| access.is_followed_for(follower))
    }
}

/// Tells whether a cgroup's directory belongs to a user.
pub(crate) type IsOwned<'a> = &'a mut dyn FnMut(&str, u32) -> bool;

/// Filters successive readings for one view.
#[derive(Debug)]
pub(crate) struct Shower {
    view: View,
    /// The cgroups whose culprits were shown in the last sample, and the pairs read for them.
    victims: HashSet<u64>,
    read: Vec<PairReading>,
    /// The growth of each pair since its cgroup has been shown, under the name that this viewer sees for the culprit. The
    /// sums are accumulated here because the set of cgroups behind one name changes: a plain sum of the readings would rise
    /// and fall with that set.
    reported: BTreeMap<PairKey, PairReading>,
}

impl Shower {
    pub fn new(view: View) -> Self {
        Self { view, victims: HashSet::new(), read: Vec::new(), reported: BTreeMap::new() }
    }

    pub fn shows_all(&self) -> bool {
        self.view == View::ALL
    }

    /// Returns the part of a reading that is shown; `None` means all of it.
    pub fn show(&mut self, reading: &Reading, is_owned: IsOwned<'_>) -> Option<Sample> {
        if self.shows_all() {
            return None;
        }
        let Reading { sample, access } = reading;
        let tasks = tasks(sample, access, &self.view);
        let paths = paths(sample);
        let own: HashSet<u64> = tasks.iter().map(|task| task.cgroup_id).filter(|id| *id != 0).collect();
        let exited = self.exited(sample, &paths, is_owned);
        let of_exited = exited.iter().map(|exited| exited.cgroup_id);
        let victims = self.victims_in(&own, sample, access);
        let theirs = own.iter().copied().chain(of_exited);
        // Viewers who may see everything get the names of all culprits.
        let culprits =
            sample.pairs.iter().filter(|pair| self.view.user.is_none() && victims.contains(&pair.victim));
        let shown = with_ancestors(theirs.chain(culprits.map(|pair| pair.culprit)), &paths);
        let pairs = self.pairs(victims, sample, &shown);
        let mut cgroups: Vec<(u64, Arc<str>)> =
            sample.cgroups.iter().filter(|(id, _)| shown.contains(id)).cloned().collect();
        if pairs.iter().any(|pair| pair.culprit == OTHERS) {
            cgroups.push((OTHERS, OTHERS_NAME.into()));
        }
        let mut cpus = sample.cpus.clone();
        for cpu in &mut cpus {
            cpu.waits = None;
        }
        Some(Sample {
            unix_ns: sample.unix_ns,
            mono_ns: sample.mono_ns,
            mode: sample.mode,
            sched_ext: sample.sched_ext.clone(),
            limits: sample.limits.iter().filter(|limits| shown.contains(&limits.id)).cloned().collect(),
            tasks,
            exited,
            pairs,
            containers: containers(sample, &shown),
            cgroups,
            cpus,
            nodes: sample.nodes.clone(),
            // The demand of a cgroup is also that of tasks of others.
            demand: Vec::new(),
            demand_until_ns: None,
            memory: Vec::new(),
            stacks: Vec::new(),
            losses: sample.losses.clone(),
            cost: sample.cost,
        })
    }

    /// Returns the shown part of what [ended](cgscope_model::skipped::ended); `None` means all of it.
    pub fn ended(&self, reading: &Reading, is_owned: IsOwned<'_>) -> Option<Sample> {
        if self.shows_all() {
            return None;
        }
        let Reading { sample, access } = reading;
        let paths = paths(sample);
        let (tasks, exited) = (tasks(sample, access, &self.view), self.exited(sample, &paths, is_owned));
        let (cgroups, containers) = (sample.cgroups.clone(), sample.containers.clone());
        Some(Sample { tasks, exited, cgroups, containers, ..Sample::default() })
    }

    fn exited(
        &self,
        sample: &Sample,
        paths: &BTreeMap<u64, &Arc<str>>,
        is_owned: IsOwned<'_>,
    ) -> Vec<ExitedReading> {
        match (self.view.follower, self.view.user) {
            (Some(_), _) => Vec::new(),
            (None, None) => sample.exited.clone(),
            (None, Some(user)) => {
                let mut is_theirs = |id: &u64| paths.get(id).is_some_and(|path| is_owned(path, user));
                let theirs = sample.exited.iter().filter(|exited| is_theirs(&exited.cgroup_id));
                theirs.cloned().collect()
            }
        }
    }

    /// Returns the cgroups whose culprits are shown: those of which all tasks are shown.
    fn victims_in(&self, own: &HashSet<u64>, sample: &Sample, access: &[Access]) -> HashSet<u64> {
        let mut victims = own.clone();
        for (task, access) in with_access(sample, access) {
            if access.is_none_or(|access| !self.view.shows(access)) {
                victims.remove(&task.cgroup_id);
            }
        }
        victims
    }

    fn pairs(&mut self, victims: HashSet<u64>, sample: &Sample, shown: &HashSet<u64>) -> Vec<PairReading> {
        let read: Vec<PairReading> =
            sample.pairs.iter().filter(|pair| victims.contains(&pair.victim)).cloned().collect();
        // Leave out waits from before the cgroup's culprits were shown.
        let were_reported = read.iter().filter(|pair| self.victims.contains(&pair.victim));
        let came = between(&self.read, were_reported);
        let came: HashMap<PairKey, u64> = came.iter().map(|pair| (pair.key(), pair.ns)).collect();
        let mut present = HashSet::new();
        for pair in &read {
            let is_shown = pair.culprit == KERNEL || shown.contains(&pair.culprit);
            let culprit = if is_shown { pair.culprit } else { OTHERS };
            let new =
                PairReading { culprit, ns: came.get(&pair.key()).copied().unwrap_or(0), ..pair.clone() };
            present.insert(new.key());
            let reported =
                self.reported.entry(new.key()).or_insert_with(|| PairReading { ns: 0, ..new.clone() });
            reported.ns = reported.ns.saturating_add(new.ns);
        }
        let stays = |pair: &PairReading| pair.culprit == OTHERS || present.contains(&pair.key());
        self.reported.retain(|_, pair| victims.contains(&pair.victim));
        let (reported, left_out): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.reported).into_iter().partition(|(_, pair)| stays(pair));
        self.reported = reported;
        for pair in left_out.into_values() {
            // The reading now counts this pair in the rest of its victim, so its sum moves there.
            if let Some(rest) = self.reported.get_mut(&rest_of(pair.key())) {
                rest.ns = rest.ns.saturating_add(pair.ns);
            }
        }
        (self.victims, self.read) = (victims, read);
        self.reported.values().cloned().collect()
    }
}

fn containers(sample: &Sample, shown: &HashSet<u64>) -> Vec<ContainerReading> {
    sample.containers.iter().filter(|named| shown.contains(&named.cgroup_id)).cloned().collect()
}

fn paths(sample: &Sample) -> BTreeMap<u64, &Arc<str>> {
    sample.cgroups.iter().map(|(id, path)| (*id, path)).collect()
}

/// Returns the processes in a view.
pub(crate) fn seen(reading: &Reading, view: &View) -> HashSet<u32> {
    let all = with_access(&reading.sample, &reading.access);
    all.filter(|(_, access)| access.is_some_and(|access| view.shows(access)))
        .map(|(task, _)| task.tgid)
        .collect()
}

fn tasks(sample: &Sample, access: &[Access], view: &View) -> Vec<Arc<TaskReading>> {
    let shown = |access: Option<&Access>| access.is_some_and(|access| view.shows(access));
    let tasks = with_access(sample, access).filter(|(_, access)| shown(*access));
    tasks.map(|(task, _)| task.clone()).collect()
}

/// Pairs tasks with their access. Both inputs ascend by serial.
fn with_access<'a>(
    sample: &'a Sample,
    access: &'a [Access],
) -> impl Iterator<Item = (&'a Arc<TaskReading>, Option<&'a Access>)> {
    let mut access = access.iter().peekable();
    sample.tasks.iter().map(move |task| {
        while access.next_if(|access| access.serial < task.serial).is_some() {}
        (task, access.peek().copied().filter(|access| access.serial == task.serial))
    })
}

fn with_ancestors(ids: impl Iterator<Item = u64>, paths: &BTreeMap<u64, &Arc<str>>) -> HashSet<u64> {
    let mut shown: HashSet<u64> = ids.collect();
    let wanted: HashSet<&str> =
        shown.iter().filter_map(|id| paths.get(id)).flat_map(|path| path_and_ancestors(path)).collect();
    shown.extend(paths.iter().filter(|(_, path)| wanted.contains(path.as_ref())).map(|(id, _)| *id));
    shown
}

#[cfg(test)]
mod tests;
