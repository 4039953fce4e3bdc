extern crate std;

use std::{
    collections::{BTreeMap, BTreeSet},
    println,
    vec::Vec,
};

use super::*;
use crate::{
    history::KERNEL,
    pressure::tests::below,
    waits::tests::host::{Maps, Simulated},
};

const TABLE: u32 = 1;
const HISTORY: u32 = 2;

/// Charges `ns` to the culprit `who`, which ran in slice number 5 of the history.
fn charge(who: u64, ns: u64, clock_ns: u64, kind: u32) {
    let place = Place { cpu: TABLE, history: HISTORY, number: 5 };
    enter::<Simulated>(10, who, ns, clock_ns, place.packed(kind));
}

fn pairs() -> Vec<Pair> {
    let table = Simulated::pairs(TABLE).expect("a CPU");
    table.pairs.iter().copied().filter(|pair| pair.kind != 0).collect()
}

#[test]
fn a_place_keeps_its_parts() {
    let top = (1 << 16) - 1;
    for (cpu, history, number) in [(1, 2, 5), (top, 0, 1), (0, top, 0), (3, 4, (1 << 24) - 1)] {
        for kind in [kind::RAN, kind::LIMITED] {
            let (place, of) = Place::unpacked(Place { cpu, history, number }.packed(kind));
            assert_eq!((place.cpu, place.history, place.number, of), (cpu, history, number, kind));
        }
    }
}

/// If the ids of victim and culprit differ in the same bits, these differences must not cancel out.
#[test]
fn a_pair_is_found_only_if_all_of_it_is_the_same() {
    let _maps = Maps::new(true);
    let charge =
        |victim, culprit, tid, kind| Charge { victim, culprit, kind, tid, ns: 1, clock_ns: 1, packed: 0 };
    let at = |pairs: &mut [Pair; KEPT], charge: &Charge| {
        let found = place::<Simulated, KEPT, KEPT>(pairs, 0, charge).expect("an entry");
        let found = &mut pairs[found as usize];
        (found.ns, found.last_ns) = (found.ns + 1, 1);
        (found.ns, found.tid)
    };
    let same = || charge(10, 20, 4, 1);
    let others = [
        charge(11, 20, 4, 1),
        charge(10, 21, 4, 1),
        charge(10, 20, 5, 1),
        charge(10, 20, 4, 2),
        charge(11, 21, 4, 1),
        charge(11, 20, 5, 1),
        charge(10, 23, 7, 1),
        charge(10, 23, 4, 2),
        charge(10, 20, 7, 2),
    ];
    for other in others {
        let mut pairs = [Pair::default(); KEPT];
        assert_eq!(at(&mut pairs, &same()), (1, 4));
        assert_eq!(at(&mut pairs, &other), (1, other.tid), "{:?}", (other.victim, other.culprit, other.tid));
        assert_eq!(at(&mut pairs, &same()), (2, 4));
    }
}

#[test]
fn charges_of_a_pair_add_up_from_its_first_to_its_latest_time() {
    let _maps = Maps::new(true);
    charge(20, 7, 100, kind::RAN);
    charge(20, 5, 300, kind::RAN);
    charge(20, 3, 400, kind::LIMITED);
    let pair = Pair {
        victim: 10,
        culprit: 20,
        kind: kind::RAN,
        ns: 12,
        born_ns: 100,
        last_ns: 300,
        ..Pair::default()
    };
    let limited = Pair { kind: kind::LIMITED, ns: 3, born_ns: 400, last_ns: 400, ..pair };
    let found = pairs();
    assert!(found.len() == 2 && found.contains(&pair) && found.contains(&limited), "{found:?}");
}

#[test]
fn a_task_is_blamed_by_the_slice_in_which_it_ran_but_not_for_a_quota() {
    let maps = Maps::new(true);
    maps.blame_tasks();
    let task =
        |tid| *Simulated::task_names(HISTORY).expect("a CPU").slice(5) = TaskName { comm: [tid; 2], tid };
    task(77);
    charge(20, 7, 100, kind::RAN);
    // The slice now describes another task.
    task(78);
    charge(20, 1, 200, kind::RAN);
    charge(20, 3, 400, kind::LIMITED);
    let comms = &Simulated::task_names(TABLE).expect("a CPU").pairs;
    let pairs = Simulated::pairs(TABLE).expect("a CPU").pairs.iter().zip(comms);
    let found: BTreeSet<_> = pairs.map(|(pair, comm)| (pair.tid, comm[0], pair.ns)).collect();
    assert_eq!(found, [(0, 0, 0), (0, 0, 3), (77, 77, 7), (78, 78, 1)].into());
    // A pair that finds no entry keeps its name, too.
    Maps::keep_since(0);
    maps.make_place(10);
    let crowded = Pair { victim: 11, kind: kind::RAN, last_ns: 1, ..Pair::default() };
    Simulated::pairs(TABLE).expect("a CPU").pairs = [crowded; PAIRS];
    charge(20, 5, 500, kind::RAN);
    task(77);
    charge(20, 6, 500, kind::RAN);
    let found: Vec<_> =
        kept(10).pairs.iter().zip(kept(10).comms).map(|(pair, comm)| (pair.tid, comm[0], pair.ns)).collect();
    assert_eq!(found[..3], [(78, 78, 5), (77, 77, 6), (0, 0, 0)]);
}

/// Returns culprits whose pairs are all searched from the index `first` on.
fn beside(first: usize) -> impl Iterator<Item = u64> {
    (20..).filter(move |who| place_of(10, *who, 0) == first)
}

#[test]
fn a_pair_that_finds_no_entry_replaces_the_one_charged_longest_ago() {
    // After the last entry, the search continues with the first entry.
    for first in [100, PAIRS - 3] {
        for (since_ns, is_lost) in [(101, false), (100, true)] {
            let _maps = Maps::new(true);
            Maps::keep_since(since_ns);
            let culprits: Vec<u64> = beside(first).take(PROBES + 1).collect();
            for (at, who) in culprits[..PROBES].iter().enumerate() {
                charge(*who, 1, 100 + at as u64, kind::LIMITED);
            }
            assert_eq!(pairs().len(), PROBES);
            // Now the second pair was charged longest ago.
            charge(culprits[0], 1, 200, kind::LIMITED);
            charge(culprits[PROBES], 4, 300, kind::LIMITED);
            let found: BTreeSet<_> =
                pairs().iter().map(|pair| (pair.culprit, pair.ns, pair.born_ns)).collect();
            let second = if is_lost { (culprits[1], 1, 101) } else { (culprits[PROBES], 4, 300) };
            let kept = (2..PROBES).map(|at| (culprits[at], 1, 100 + at as u64));
            assert_eq!(found, kept.chain([(culprits[0], 2, 100), second]).collect());
            // The victim has no entry in the table of exited tasks, so the pair cannot be stored there.
            assert_eq!(Maps::losses().contains_key(Loss::CulpritForgotten.name()), is_lost);
        }
    }
}

fn kept(victim: u64) -> &'static Kept {
    &Simulated::exited(victim).expect("its place").kept
}

#[test]
fn a_pair_that_finds_no_entry_is_kept_with_its_victim() {
    let maps = Maps::new(true);
    maps.make_place(10);
    let culprits: Vec<u64> = beside(100).take(PROBES + KEPT + 1).collect();
    culprits[..PROBES].iter().for_each(|who| charge(*who, 1, 100, kind::RAN));
    // Four of the culprits that ran get an entry. The time of the other five is stored without a name.
    for (at, who) in culprits[PROBES..].iter().enumerate() {
        charge(*who, 10 + at as u64, 200 + at as u64, kind::RAN);
        charge(*who, 5, 300, kind::RAN);
    }
    charge(culprits[PROBES], 3, 400, kind::LIMITED);
    let found: Vec<_> =
        kept(10).pairs.iter().map(|pair| (pair.culprit, pair.kind, pair.ns, pair.born_ns)).collect();
    let ran =
        (0..KEPT_OF_KIND as u64).map(|at| (culprits[PROBES + at as usize], kind::RAN, 15 + at, 200 + at));
    let limited = [(culprits[PROBES], kind::LIMITED, 3, 400)];
    let free = [(0, 0, 0, 0); KEPT_OF_KIND - 1];
    assert_eq!(found, ran.chain(limited).chain(free).collect::<Vec<_>>());
    assert_eq!(kept(10).unnamed_ns, [(14 + 15 + 16 + 17 + 18) + 5 * 5, 0]);
    assert_eq!(Maps::losses().len(), 0);
    assert_eq!(
        Simulated::exited(10).expect("its place").complete,
        2 * (KEPT as u64 + 1) + 1,
        "the reader sees each"
    );
    // User space has read all pairs that were not charged since then, so a new pair may replace them.
    Maps::keep_since(301);
    charge(beside(100).nth(100).expect("a culprit"), 7, 500, kind::RAN);
    assert_eq!((kept(10).pairs[0].ns, pairs().iter().filter(|pair| pair.ns == 7).count()), (15, 1));
}

#[test]
fn a_locked_victim_keeps_the_time_without_a_name() {
    let maps = Maps::new(true);
    maps.make_place(10);
    let culprits: Vec<u64> = beside(100).take(PROBES + 1).collect();
    culprits[..PROBES].iter().for_each(|who| charge(*who, 1, 100, kind::RAN));
    let place = Simulated::exited(10).expect("its place");
    place.kept.lock = 1;
    charge(culprits[PROBES], 7, 200, kind::RAN);
    charge(culprits[PROBES], 9, 200, kind::LIMITED);
    assert_eq!((kept(10).unnamed_ns, kept(10).pairs, kept(10).lock), ([7, 9], Kept::default().pairs, 1));
    place.kept.lock = 0;
    charge(culprits[PROBES], 7, 200, kind::RAN);
    assert_eq!((kept(10).unnamed_ns, kept(10).pairs[0].ns, kept(10).lock), ([7, 9], 7, 0));
}

/// Charges some permanent victims among many short-lived victims. The test processes readings like user space: the sum of a pair
/// counts from the time when the pair got its entry.
#[test]
fn in_a_storm_of_cgroups_each_charge_is_named_or_counted_once() {
    let (mut named, mut unnamed) = (0, 0);
    for seed in 0..300u64 {
        let maps = Maps::new(true);
        (10..14).for_each(|victim| maps.make_place(victim));
        let mut random = seed;
        let (mut charged, mut found) = (BTreeMap::new(), BTreeMap::new());
        let mut seen: BTreeMap<(usize, u64, u64, u32), (u64, u64)> = BTreeMap::new();
        let (mut now, mut before) = (1_000, 0);
        for reading in 1..6u64 {
            for _ in 0..below(&mut random, 8_000) {
                now += 1;
                let passing = 1_000 * reading + below(&mut random, 3_000);
                let ns = 1 + below(&mut random, 1_000);
                let lasting = 10 + below(&mut random, 4);
                let kind = if below(&mut random, 4) == 0 { kind::LIMITED } else { kind::RAN };
                let (victim, culprit) = match below(&mut random, 6) {
                    0 => (lasting, if kind == kind::LIMITED { lasting } else { 20 + lasting }),
                    1 if kind == kind::RAN => (lasting, passing),
                    _ => (passing, 10 + below(&mut random, 9)),
                };
                let at = Place { cpu: below(&mut random, 3) as u32, history: HISTORY, number: 5 };
                enter::<Simulated>(victim, culprit, ns, now, at.packed(kind));
                if victim < 14 {
                    *charged.entry((victim, kind)).or_insert(0) += ns;
                }
            }
            let mut add = |key: (usize, u64, u64, u32), born_ns: u64, ns: u64| {
                let known = seen
                    .insert(key, (born_ns, ns))
                    .filter(|known| known.0 == born_ns)
                    .map_or(0, |known| known.1);
                if key.1 < 14 && ns != known {
                    *found.entry((key.1, key.3)).or_insert(0) += ns - known;
                    if key.2 == 0 { unnamed += ns - known } else { named += ns - known }
                }
            };
            for cpu in 0..3 {
                for pair in Simulated::pairs(cpu).expect("a CPU").pairs.iter().filter(|pair| pair.kind != 0) {
                    add((cpu as usize, pair.victim, pair.culprit, pair.kind), pair.born_ns, pair.ns);
                }
            }
            for victim in 10..14 {
                for pair in kept(victim).pairs.iter().filter(|pair| pair.kind != 0) {
                    add((9, pair.victim, pair.culprit, pair.kind), pair.born_ns, pair.ns);
                }
                for kind in [kind::RAN, kind::LIMITED] {
                    add((9, victim, 0, kind), 0, kept(victim).unnamed_ns[kind as usize - 1]);
                }
            }
            assert_eq!(found, charged, "{seed}");
            Maps::keep_since(before);
            before = now;
        }
    }
    println!("{named} ns with a name, {unnamed} without");
    assert!(named > unnamed && unnamed > 0, "{named} {unnamed}");
}

/// If they had the same entries, pairs would evict each other from a table that is mostly empty.
#[test]
fn pairs_that_differ_in_one_number_get_different_entries() {
    for culprit in [20, KERNEL] {
        let by_victim: BTreeSet<_> = (1..65).map(|victim| place_of(victim, culprit, 7)).collect();
        let by_task: BTreeSet<_> = (1..65).map(|tid| place_of(10, culprit, tid)).collect();
        assert!(by_victim.len() > 50 && by_task.len() > 50, "{culprit}: {by_victim:?} {by_task:?}");
    }
    let by_culprit: BTreeSet<_> = (1..65).map(|culprit| place_of(10, culprit, 7)).collect();
    assert!(by_culprit.len() > 50, "{by_culprit:?}");
}
