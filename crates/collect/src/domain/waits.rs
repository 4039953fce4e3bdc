//! Reads the waits of exited tasks and the culprits of waits. Up to [`EXITED_CGROUPS`] cgroups have an entry for exited tasks.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use cgscope_ledger::{
    Loss,
    culprits::{Pairs, TaskNames},
    pressure::KeptPressure,
    wire::{EXITED_CGROUPS, Exited, names},
};
use cgscope_model::{ExitedReading, Sample, Totals, path::family, skipped::ExitedSums};

use crate::domain::{
    Domain, Draft,
    culprits::{Culprits, Origin},
};
use crate::kernel_side::{KernelSide, if_there, step};
use crate::stream::{self, StreamEnd};
use crate::{Failure, Held, bpf_calls::Raw, cgroups::CgroupTree, readings::exited_reading};

/// Flag of map updates: create the entry, but fail if it exists (`linux/bpf.h`).
const BPF_NOEXIST: u64 = 1;

/// The waits of exited tasks, and the culprits of all waits.
#[derive(Default)]
pub(crate) struct Waits {
    culprits: Culprits,
    /// Last checksums of long-removed cgroups. We free the entry of a cgroup if two consecutive samples have the same checksum.
    remains: HashMap<u64, u64>,
    /// The latest reading of each cgroup's entry in the table of exited tasks.
    places: HashMap<u64, ExitedPlace>,
    /// Cgroups whose entries the latest reading found for the first time.
    new_places: Vec<u64>,
    /// The figures of freed entries. We keep these figures, because a new entry of the same cgroup counts from 0.
    given_back: ExitedSums,
}

impl Domain for Waits {
    fn read(&mut self, draft: &mut Draft) -> Result<(), Failure> {
        self.read_exited(draft)?;
        step("read the culprits", || {
            let tables = draft.side.array::<Raw<Pairs>>(names::PAIRS)?;
            let names = draft.side.array::<Raw<TaskNames>>(names::TASK_NAMES)?;
            for cpu in 0..tables.len() {
                let pairs = tables.get(&cpu, 0)?.0.pairs;
                // The names are read later, so a new pair has its name. A pair with new time keeps its entry until the next reading.
                let names =
                    if draft.config.blame_tasks == 0 { None } else { Some(names.get(&cpu, 0)?.0.pairs) };
                self.culprits.take(Origin::Cpu(cpu), &pairs, names.as_ref().map_or(&[], |names| names));
            }
            Ok(())
        })?;
        self.culprits.book(&draft.tasks.throttled, || draft.tasks.waiting_cgroups());
        draft.sample.pairs = self.culprits.readings();
        draft.losses.add(Loss::CulpritMerged, self.culprits.take_merged());
        Ok(())
    }

    /// Frees the data of removed cgroups when their figures stop changing. The figures can change after the removal, because an
    /// exiting task may still switch. If the table is crowded, we wait for less time, so that new cgroups get entries.
    fn complete(&mut self, draft: &mut Draft, tree: Option<&CgroupTree>) -> Result<(), Failure> {
        let Some(tree) = tree else { return Ok(()) };
        let (living, now) = (draft.tasks.cgroups(), Instant::now());
        let is_crowded = self.places.len() > EXITED_CGROUPS / 4;
        let is_over = |id| if is_crowded { tree.is_removed(id) } else { tree.was_removed_long_ago(id, now) };
        let mut figures = figures(&draft.sample, is_over);
        figures.retain(|id, _| !living.contains(id));
        let crowd = Crowd::of(&living, tree);
        self.make_missing(&mut draft.side, &living, crowd.as_ref())?;
        // The ancestors of cgroups with new entries need an entry for waits that find no entry in the pressure table.
        let above = self.new_places.drain(..).flat_map(|id| tree.ancestors(id));
        let missing: HashSet<u64> = above.filter(|id| !self.places.contains_key(id)).collect();
        make_places(&mut draft.side, missing)?;
        let settled = settled(&mut self.remains, figures);
        let surplus = surplus(&self.places, &living, draft.config.root_cgroup_id, crowd.as_ref());
        if settled.is_empty() && surplus.is_empty() {
            return Ok(());
        }
        let exited = draft.sample.exited.iter().map(|place| place.cgroup_id);
        let places: Vec<u64> = exited.filter(|id| settled.contains(id)).collect();
        for id in places.iter().chain(&surplus) {
            self.places.remove(id);
            self.culprits.seen.remove(&Origin::Victim(*id));
        }
        self.culprits.drop_entries(|id| settled.contains(&id));
        // Tasks must no longer count in these entries, because the kernel may at once reuse their memory for another entry
        // (`bpf_mem_alloc`, Linux 6.1).
        step("free the entries of removed cgroups", || {
            let mut exited = draft.side.hash_table::<u64, Raw<Exited>>(names::EXITED)?;
            Ok(places.iter().try_for_each(|id| if_there(exited.remove(id)).map(drop))?)
        })?;
        let (given_back, accounts) = (&mut self.given_back, draft.config.accounts != 0);
        take_back(&mut draft.side, surplus, |id, place| given_back.take(exited_reading(id, place, accounts)))
    }

    fn count_held(&self, held: &mut Held) {
        (held.places, held.pairs) = (self.places.len(), self.culprits.len());
    }
}

impl Waits {
    fn read_exited(&mut self, draft: &mut Draft) -> Result<(), Failure> {
        let stream = draft.side.read_exited()?;
        let has_stream = stream.is_some();
        let (turn, accounts) = (draft.tasks.turn, draft.config.accounts != 0);
        let (places, culprits, new) = (&mut self.places, &mut self.culprits, &mut self.new_places);
        let throttled = &mut draft.tasks.throttled;
        let mut take = |cgroup_id: u64, reported: Option<&Exited>| {
            let place = places.entry(cgroup_id).or_insert_with(|| {
                new.push(cgroup_id);
                ExitedPlace::new(cgroup_id, accounts)
            });
            let reported = reported.filter(|now| has_stream || place.is_new(now));
            (place.reported_in, place.is_quiet) = (turn, reported.is_none());
            if let Some(reported) = reported {
                let before = place.reading.totals.by_cause;
                place.reading = exited_reading(cgroup_id, reported, accounts);
                throttled.add(cgroup_id, &before, &place.reading.totals.by_cause);
                place.pressure = reported.pressure;
                culprits.take_kept(cgroup_id, &reported.kept);
            }
        };
        let end = match stream {
            Some(mut stream) => stream::read_exited(&mut stream, &mut draft.buffer, take),
            None => {
                let each = |id: &u64, place: &Exited| take(*id, Some(place));
                draft.side.each_entry("read the exited tasks", names::EXITED, each)?;
                Ok(StreamEnd::Complete)
            }
        };
        if stream::count_cut(end, &mut draft.losses)? == StreamEnd::Complete {
            self.places.retain(|_, place| place.reported_in == turn);
        }
        // Skip cgroups without kept pressure, which are the majority.
        let kept = self.places.iter().filter(|(_, place)| place.pressure != KeptPressure::default());
        draft.kept_pressure = kept.map(|(id, place)| (*id, place.pressure)).collect();
        let exited = &mut draft.sample.exited;
        exited.extend(self.places.values().map(|place| place.reading.clone()));
        exited.sort_unstable_by_key(|place| place.cgroup_id);
        self.given_back.add_to(exited);
        Ok(())
    }

    /// Creates entries for cgroups that have tasks but no entry. Either we freed the entry, or no program could create it when a
    /// task moved to the cgroup.
    fn make_missing(
        &mut self,
        side: &mut KernelSide,
        living: &HashSet<u64>,
        crowd: Option<&Crowd>,
    ) -> Result<(), Failure> {
        let missing = living.iter().copied().filter(|id| !self.places.contains_key(id));
        let mut has_room = crowd.map(|crowd| crowd.has_room(self.places.keys().copied()));
        let missing = missing.filter(|id| has_room.as_mut().is_none_or(|has_room| has_room(*id)));
        // If the table is full, create none: the kernel would refuse each new entry at every reading.
        make_places(side, missing.take(EXITED_CGROUPS.saturating_sub(self.places.len())))
    }
}

/// Frees the entries of existing cgroups, and passes their figures to `each`. The figures of tasks that exit between the two
/// system calls (a few µs) are lost.
fn take_back(
    side: &mut KernelSide,
    cgroups: Vec<u64>,
    mut each: impl FnMut(u64, &Exited),
) -> Result<(), Failure> {
    step("free the entries of idle cgroups", || {
        let mut exited = side.hash_table::<u64, Raw<Exited>>(names::EXITED)?;
        for id in cgroups {
            let held = exited.get(&id, 0).and_then(|place| exited.remove(&id).map(|()| place));
            if let Some(place) = if_there(held)? {
                each(id, &place.0);
            }
        }
        Ok(())
    })
}

fn make_places(side: &mut KernelSide, cgroups: impl IntoIterator<Item = u64>) -> Result<(), Failure> {
    step("create entries for cgroups", || {
        let mut exited = side.hash_table::<u64, Raw<Exited>>(names::EXITED)?;
        for id in cgroups {
            // The BPF side may have created the entry already. If the map is full, the BPF side counts a loss for exited tasks of
            // this cgroup.
            let _ = exited.insert(id, Raw(Exited::NONE), BPF_NOEXIST);
        }
        Ok(())
    })
}

/// Returns a checksum of the figures of each removed cgroup. A further exited task always changes the checksum.
fn figures(found: &Sample, is_over: impl Fn(u64) -> bool) -> HashMap<u64, u64> {
    let of_places = found.exited.iter().map(|place| (place.cgroup_id, motion(place)));
    let of_pairs = found.pairs.iter().flat_map(|pair| [(pair.victim, pair.ns), (pair.culprit, pair.ns)]);
    let mut figures: HashMap<u64, u64> = HashMap::new();
    for (id, figure) in of_places.chain(of_pairs).filter(|(id, _)| is_over(*id)) {
        let sum = figures.entry(id).or_default();
        *sum = sum.wrapping_add(figure);
    }
    figures
}

/// Replaces the known checksums. Returns the cgroups whose checksum has not changed, and drops their checksums.
fn settled(known: &mut HashMap<u64, u64>, mut figures: HashMap<u64, u64>) -> HashSet<u64> {
    let is_same = |id: &u64, sum: &mut u64| known.get(id) == Some(&*sum);
    let settled = figures.extract_if(is_same).map(|(id, _)| id).collect();
    *known = figures;
    settled
}

fn motion(place: &ExitedReading) -> u64 {
    let Totals { waits, wait_ns, run_delay_ns, on_cpu_ns, voluntary, involuntary, .. } = place.totals;
    let figures = [waits, wait_ns, run_delay_ns, on_cpu_ns, voluntary, involuntary];
    figures.into_iter().fold(place.tasks, u64::wrapping_add)
}

/// An entry of the table of exited tasks, as last read.
struct ExitedPlace {
    reading: ExitedReading,
    pressure: KeptPressure,
    /// Number of the latest task reading that reported this entry.
    reported_in: u64,
    is_quiet: bool,
    /// [`Exited::complete`] in the latest report and in the one before.
    seen: [u64; 2],
}

impl ExitedPlace {
    fn new(cgroup_id: u64, accounts: bool) -> Self {
        let (none, pressure) = (&Exited::NONE, KeptPressure::default());
        let reading = exited_reading(cgroup_id, none, accounts);
        Self { reading, pressure, reported_in: 0, is_quiet: false, seen: [0; 2] }
    }

    /// Returns whether the stream of entries would have the figures of this entry. If the kernel has no stream, all are read.
    fn is_new(&mut self, now: &Exited) -> bool {
        let is_new = !Exited::is_reported(now.complete, self.seen);
        self.seen = [now.complete, self.seen[0]];
        is_new
    }
}

/// Shares of the table for a host with many cgroups, whose tasks may fill the table. Each [`family`] gets a share.
/// Otherwise one user could take all entries by creating many cgroups with one sleeping task each.
struct Crowd {
    families: HashMap<u64, Arc<str>>,
    /// Maximum number of entries of one family.
    level: usize,
}

impl Crowd {
    fn of(living: &HashSet<u64>, tree: &CgroupTree) -> Option<Self> {
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

    /// Returns a function that counts one more entry for the family of a cgroup, and returns whether the family is still within
    /// its share. The function has already counted `entries`.
    fn has_room(&self, entries: impl Iterator<Item = u64>) -> impl FnMut(u64) -> bool {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut has_room = move |id| {
            let Some(family) = self.families.get(&id) else { return true };
            let count = counts.entry(&**family).or_default();
            *count += 1;
            *count <= self.level
        };
        entries.for_each(|id| _ = has_room(id));
        has_room
    }
}

/// Returns the cgroups whose idle entries we free if most entries are in use. Otherwise a user who creates many cgroups could
/// take all entries.
fn surplus(
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
        let mut has_room = crowd.has_room(std::iter::empty());
        let over = places.iter().filter(|(id, _)| living.contains(id) && !has_room(**id));
        surplus.extend(over.filter(|(id, place)| place.is_quiet && **id != root_id).map(|(id, _)| *id));
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_new_until_it_was_read_twice_without_a_change() {
        let mut place = ExitedPlace::new(7, false);
        let is_new = |complete| place.is_new(&Exited { complete, ..Exited::NONE });
        assert_eq!([0, 1, 1, 1, 3, 4, 4, 4].map(is_new), [false, true, true, false, true, true, true, false]);
    }

    #[test]
    fn an_added_task_changes_the_checksum() {
        let mut place = ExitedReading { cgroup_id: 7, tasks: 1, ..ExitedReading::default() };
        let before = motion(&place);
        place.tasks += 1;
        let after = motion(&place);
        place.totals.wait_ns += 1;
        assert!(before != after && after != motion(&place));
    }

    #[test]
    fn an_entry_is_freed_after_two_equal_readings() {
        let mut remains = HashMap::new();
        let mut settled = |figures: &[(u64, u64)]| {
            let settled = settled(&mut remains, figures.iter().copied().collect());
            let mut settled: Vec<u64> = settled.into_iter().collect();
            settled.sort_unstable();
            settled
        };
        assert!(settled(&[(1, 10), (2, 20)]).is_empty());
        assert_eq!(settled(&[(1, 11), (2, 20)]), [2]);
        assert_eq!(settled(&[(1, 11)]), [1]);
        assert!(settled(&[(1, 11)]).is_empty(), "the comparison restarts");
    }

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

    /// One user has a sleeping task in each of 15,000 cgroups, and 300 pods run.
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
        // Each pod without an entry gets an entry, and the user's cgroups get no entries back.
        let mut has_room = crowd.has_room(places.keys().copied());
        let missing = living.iter().filter(|id| !places.contains_key(id));
        let made: Vec<&u64> = missing.filter(|id| has_room(**id)).collect();
        assert!(made.len() == 99 && made.iter().all(|id| !is_hostile(**id)), "{}", made.len());
    }
}
