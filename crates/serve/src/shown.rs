//! Selects which part of a reading a viewer sees: everything, or only the processes that the viewer follows.
//!
//! A viewer that follows processes sees the cgroups of these processes and all ancestors of these cgroups. Culprits are counted
//! for a cgroup, not for its tasks. So the viewer sees the culprits of a cgroup only if it sees all tasks in this cgroup.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use cgscope_model::follower::{Followed, Follower};
use cgscope_model::{
    ChainKey, ChainReading, PairKey, PairReading, Sample, TaskReading, between, chains,
    path::path_and_ancestors, rest_of,
};

/// Everything that was read at one moment, with the followers of each task.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub sample: Sample,
    /// The followers of each task, in ascending order of the task's serial.
    pub followed: Vec<Followed>,
}

impl Reading {
    pub(crate) fn followers_of(&self, serial: u64) -> Option<Followed> {
        let at = self.followed.binary_search_by_key(&serial, |task| task.serial).ok()?;
        Some(self.followed[at])
    }

    fn is_followed(&self, task: &TaskReading, follower: Follower) -> bool {
        self.followers_of(task.serial).is_some_and(|followed| followed.is_for(follower))
    }
}

/// Selects the visible part of consecutive readings, for a viewer that follows processes.
#[derive(Debug)]
pub struct Shower {
    follower: Follower,
    /// The cgroups whose culprits were visible in the previous sample, and the pairs that this sample had for these cgroups.
    victims: HashSet<u64>,
    read: Vec<PairReading>,
    /// For each pair, the time that was added after the culprits of its victim became visible.
    reported: BTreeMap<PairKey, PairReading>,
    /// All chains of the previous sample, and the visible ones, counted from when they became visible.
    chains: Vec<ChainReading>,
    shown_chains: BTreeMap<ChainKey, ChainReading>,
}

impl Shower {
    pub fn new(follower: Follower) -> Self {
        Self {
            follower,
            victims: HashSet::new(),
            read: Vec::new(),
            reported: BTreeMap::new(),
            chains: Vec::new(),
            shown_chains: BTreeMap::new(),
        }
    }

    pub fn show(&mut self, reading: &Reading) -> Sample {
        let sample = &reading.sample;
        let is_shown = |task: &&Arc<TaskReading>| reading.is_followed(task, self.follower);
        let (tasks, others): (Vec<_>, Vec<_>) = sample.tasks.iter().partition(is_shown);
        let own: HashSet<u64> = tasks.iter().map(|task| task.cgroup_id).filter(|id| *id != 0).collect();
        let of_others: HashSet<u64> = others.iter().map(|task| task.cgroup_id).collect();
        let pairs = self.pairs(&own - &of_others, sample);
        let serials: HashSet<u64> = tasks.iter().map(|task| task.serial).collect();
        let tids: HashSet<u32> = tasks.iter().map(|task| task.tid).collect();
        let chains = self.chains(&tids, sample);
        let culprits = pairs.iter().map(|pair| pair.culprit).chain(chains.iter().map(|row| row.waker_cgroup));
        let shown = with_ancestors(own.iter().copied().chain(culprits), &sample.cgroups);
        let is_visible = |id: &u64| shown.contains(id);
        let mut cpus = sample.cpus.clone();
        cpus.iter_mut().for_each(|cpu| cpu.waits = None);
        Sample {
            unix_ns: sample.unix_ns,
            mono_ns: sample.mono_ns,
            mode: sample.mode,
            sched_ext: sample.sched_ext.clone(),
            limits: sample.limits.iter().filter(|limits| is_visible(&limits.id)).cloned().collect(),
            tasks: tasks.into_iter().cloned().collect(),
            pairs,
            containers: sample.containers.iter().filter(|row| is_visible(&row.cgroup_id)).cloned().collect(),
            cgroups: sample.cgroups.iter().filter(|(id, _)| is_visible(id)).cloned().collect(),
            cpus,
            nodes: sample.nodes.clone(),
            has_chains: sample.has_chains,
            chains,
            stacks: sample.stacks.iter().filter(|stack| serials.contains(&stack.serial)).cloned().collect(),
            losses: sample.losses.clone(),
            cost: sample.cost,
            // Not shown: the demand of a cgroup, for example, includes the demand of its hidden tasks.
            ..Sample::default()
        }
    }

    /// Returns the visible part of the rows that [ended](cgscope_model::skipped::ended).
    pub fn ended(&self, reading: &Reading) -> Sample {
        let Sample { mut tasks, cgroups, containers, .. } = reading.sample.clone();
        tasks.retain(|task| reading.is_followed(task, self.follower));
        Sample { tasks, cgroups, containers, ..Sample::default() }
    }

    fn chains(&mut self, tids: &HashSet<u32>, sample: &Sample) -> Vec<ChainReading> {
        let changes = chains::between(&self.chains, &sample.chains);
        let changes: HashMap<ChainKey, &ChainReading> = changes.iter().map(|row| (row.key(), row)).collect();
        let mut earlier = std::mem::take(&mut self.shown_chains);
        for row in chains::reached(&sample.chains, |row| tids.contains(&row.sleeper_tid)) {
            let key = row.key();
            let mut shown = earlier.remove(&key).unwrap_or_else(|| row.since(row.clone()));
            if let Some(change) = changes.get(&key) {
                shown.append((*change).clone());
            }
            self.shown_chains.insert(key, shown);
        }
        self.chains.clone_from(&sample.chains);
        self.shown_chains.values().cloned().collect()
    }

    fn pairs(&mut self, victims: HashSet<u64>, sample: &Sample) -> Vec<PairReading> {
        let read: Vec<PairReading> =
            sample.pairs.iter().filter(|pair| victims.contains(&pair.victim)).cloned().collect();
        // Excludes the waits from before the moment when the culprits of the cgroup became visible.
        let were_reported = read.iter().filter(|pair| self.victims.contains(&pair.victim));
        let came = between(&self.read, were_reported);
        let came: HashMap<PairKey, u64> = came.iter().map(|pair| (pair.key(), pair.ns)).collect();
        let mut present = HashSet::new();
        for pair in &read {
            let ns = came.get(&pair.key()).copied().unwrap_or(0);
            present.insert(pair.key());
            let reported =
                self.reported.entry(pair.key()).or_insert_with(|| PairReading { ns: 0, ..pair.clone() });
            reported.ns = reported.ns.saturating_add(ns);
        }
        let reported = std::mem::take(&mut self.reported).into_iter();
        let reported = reported.filter(|(_, pair)| victims.contains(&pair.victim));
        let left_out: BTreeMap<_, _>;
        (self.reported, left_out) = reported.partition(|(key, _)| present.contains(key));
        for pair in left_out.into_values() {
            // The reading now counts the time of this pair without a culprit, so the pair's sum moves there.
            if let Some(rest) = self.reported.get_mut(&rest_of(pair.key())) {
                rest.ns = rest.ns.saturating_add(pair.ns);
            }
        }
        (self.victims, self.read) = (victims, read);
        self.reported.values().cloned().collect()
    }
}

fn with_ancestors(ids: impl Iterator<Item = u64>, cgroups: &[(u64, Arc<str>)]) -> HashSet<u64> {
    let mut shown: HashSet<u64> = ids.collect();
    let own = cgroups.iter().filter(|(id, _)| shown.contains(id));
    let wanted: HashSet<&str> = own.flat_map(|(_, path)| path_and_ancestors(path)).collect();
    shown.extend(cgroups.iter().filter(|(_, path)| wanted.contains(path.as_ref())).map(|(id, _)| *id));
    shown
}

#[cfg(test)]
mod tests;
