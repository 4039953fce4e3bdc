//! The table of exited tasks, which has an entry for each of at most [`EXITED_CGROUPS`] cgroups.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cgscope_ledger::{
    pressure::KeptPressure,
    wire::{EXITED_CGROUPS, Exited},
};
use cgscope_model::{ExitedReading, selection::family};

use crate::{cgroups::CgroupTree, readings::exited_reading};

/// An entry, as last read.
pub(super) struct ExitedPlace {
    pub(super) reading: ExitedReading,
    pub(super) pressure: KeptPressure,
    /// The number of the latest task reading when this entry was read.
    pub(super) reported_in: u64,
    pub(super) is_quiet: bool,
}

impl ExitedPlace {
    pub(super) fn new(cgroup_id: u64, accounts: bool) -> Self {
        let (none, pressure) = (&Exited::NONE, KeptPressure::default());
        Self { reading: exited_reading(cgroup_id, none, accounts), pressure, reported_in: 0, is_quiet: false }
    }
}

/// More cgroups have tasks than the table should have entries. Then each [`family`] has a share, or the cgroups of
/// one user, in each of which a task sleeps, would take the entries of all others.
#[derive(Debug)]
pub(super) struct Crowd {
    families: HashMap<u64, Arc<str>>,
    /// The most entries of one family.
    level: usize,
}

/// How many entries each family has.
#[derive(Debug)]
pub(super) struct Kept<'a> {
    crowd: &'a Crowd,
    entries: HashMap<&'a str, usize>,
}

impl Crowd {
    pub(super) fn of(living: &HashSet<u64>, tree: &CgroupTree) -> Option<Self> {
        (living.len() >= EXITED_CGROUPS / 4 * 3).then(|| Self::of_paths(living, |id| tree.path(id).cloned()))
    }

    fn of_paths(living: &HashSet<u64>, path: impl Fn(u64) -> Option<Arc<str>>) -> Self {
        let mut names: HashSet<Arc<str>> = HashSet::new();
        let mut families = HashMap::new();
        for id in living {
            let path = path(*id).unwrap_or_default();
            let name = family(&path);
            let name = names.get(name).cloned().unwrap_or_else(|| name.into());
            names.insert(name.clone());
            families.insert(*id, name);
        }
        let mut counts: HashMap<&str, usize> = HashMap::new();
        families.values().for_each(|family| *counts.entry(&**family).or_default() += 1);
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable();
        let (mut level, mut left) = (0, EXITED_CGROUPS / 2);
        for (done, count) in counts.iter().enumerate() {
            let others = counts.len() - done;
            let step = (count - level).min(left / others);
            (level, left) = (level + step, left - step * others);
            if level < *count {
                break;
            }
        }
        Self { families, level: level.max(1) }
    }

    pub(super) fn kept(&self, entries: impl Iterator<Item = u64>) -> Kept<'_> {
        let mut kept = Kept { crowd: self, entries: HashMap::new() };
        entries.for_each(|id| _ = kept.has_room(id));
        kept
    }
}

impl Kept<'_> {
    /// Counts one more entry. Returns whether it is within the share of its family.
    pub(super) fn has_room(&mut self, id: u64) -> bool {
        let Some(family) = self.crowd.families.get(&id) else { return true };
        let entries = self.entries.entry(family).or_default();
        *entries += 1;
        *entries <= self.crowd.level
    }
}

/// Returns idle entries to free when most are in use. Otherwise a user who creates many cgroups could take all entries.
pub(super) fn surplus(
    places: &HashMap<u64, ExitedPlace>,
    living: &HashSet<u64>,
    root_id: u64,
    crowd: Option<&Crowd>,
) -> Vec<u64> {
    if places.len() < EXITED_CGROUPS / 4 * 3 {
        return Vec::new();
    }
    let is_idle = |id: &u64, place: &ExitedPlace| place.is_quiet && *id != root_id && !living.contains(id);
    let idle = places.iter().filter(|(id, place)| is_idle(id, place)).map(|(id, _)| *id);
    let mut surplus: Vec<u64> = idle.take(places.len() - EXITED_CGROUPS / 2).collect();
    if let Some(crowd) = crowd {
        let mut kept = crowd.kept(std::iter::empty());
        let over = places.iter().filter(|(id, _)| living.contains(id) && !kept.has_room(**id));
        surplus.extend(over.filter(|(id, place)| place.is_quiet && **id != root_id).map(|(id, _)| *id));
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_cgroups_do_not_use_up_the_entries_for_exited_tasks() {
        let living: HashSet<u64> = (100..200).collect();
        let quiet = |id| (id, ExitedPlace { is_quiet: id % 10 != 0, ..ExitedPlace::new(id, false) });
        let mut places: HashMap<u64, ExitedPlace> = (1..=EXITED_CGROUPS as u64).map(quiet).collect();
        let given_back = surplus(&places, &living, 1, None);
        assert_eq!(places.len() - given_back.len(), EXITED_CGROUPS / 2);
        assert!(given_back.iter().all(|id| id % 10 != 0 && *id != 1 && !(100..200).contains(id)));
        given_back.iter().for_each(|id| drop(places.remove(id)));
        assert!(surplus(&places, &living, 1, None).is_empty(), "entries are free");
    }

    /// One user has a sleeper in each of 15,000 cgroups, and 300 pods run.
    #[test]
    fn the_sleepers_of_one_user_do_not_take_the_entries_of_others() {
        let is_hostile = |id: u64| id > 1_000;
        let path = |id: u64| match id {
            _ if is_hostile(id) => format!("/user.slice/user-1000.slice/x/{id}"),
            _ => format!("/kubepods.slice/burstable/pod{id}"),
        };
        let living: HashSet<u64> = (1..=300).chain(1_001..=16_000).collect();
        let crowd = Crowd::of_paths(&living, |id| Some(path(id).into()));
        assert_eq!(crowd.level, EXITED_CGROUPS / 2 - 300);
        let quiet = |id| (id, ExitedPlace { is_quiet: true, ..ExitedPlace::new(id, false) });
        let mut places: HashMap<u64, ExitedPlace> = (100..=300).chain(1_001..=16_000).map(quiet).collect();
        let freed = surplus(&places, &living, 1, Some(&crowd));
        assert!(freed.iter().all(|id| is_hostile(*id)));
        freed.iter().for_each(|id| drop(places.remove(id)));
        let of_user = places.keys().filter(|id| is_hostile(**id)).count();
        assert_eq!((of_user, places.len() - of_user), (crowd.level, 201));
        // The pods without an entry get one, and what was freed stays free.
        let mut kept = crowd.kept(places.keys().copied());
        let missing = living.iter().filter(|id| !places.contains_key(id));
        let made: Vec<&u64> = missing.filter(|id| kept.has_room(**id)).collect();
        assert!(made.len() == 99 && made.iter().all(|id| !is_hostile(**id)), "{}", made.len());
    }
}
