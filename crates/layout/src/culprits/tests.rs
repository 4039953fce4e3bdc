extern crate std;

use std::{collections::BTreeSet, vec::Vec};

use super::*;
use crate::{
    history::KERNEL,
    ledger::tests::host::{Maps, Simulated},
};

const TABLE: u32 = 1;
const HISTORY: u32 = 2;

/// Charges `who`, whose slice is number 5 of the history.
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
    maps.blame_tasks(0);
    let slice = Simulated::ring(HISTORY).expect("a CPU").slice(5);
    (slice.tid, slice.comm) = (77, *b"worker\0\0\0\0\0\0\0\0\0\0");
    charge(20, 7, 100, kind::RAN);
    // The slice belongs to another task later.
    slice.tid = 78;
    charge(20, 1, 200, kind::RAN);
    charge(20, 3, 400, kind::LIMITED);
    let found: BTreeSet<_> = pairs().iter().map(|pair| (pair.tid, pair.comm[0], pair.ns)).collect();
    assert_eq!(found, [(0, 0, 3), (77, b'w', 7), (78, b'w', 1)].into());
}

/// Culprits that have the same first entry as `first`, itself included.
fn beside(first: usize) -> impl Iterator<Item = u64> {
    (20..).filter(move |who| place_of(10, *who, 0) == first)
}

#[test]
fn a_pair_that_finds_no_entry_replaces_the_one_charged_longest_ago() {
    // The last entries are followed by the first ones.
    for first in [100, PAIRS - 3] {
        for (read_ns, is_lost) in [(101, false), (100, true)] {
            let maps = Maps::new(true);
            maps.blame_tasks(read_ns);
            let culprits: Vec<u64> = beside(first).take(PROBES + 1).collect();
            for (at, who) in culprits[..PROBES].iter().enumerate() {
                charge(*who, 1, 100 + at as u64, kind::LIMITED);
            }
            assert_eq!(pairs().len(), PROBES);
            // The oldest one is now the second.
            charge(culprits[0], 1, 200, kind::LIMITED);
            charge(culprits[PROBES], 4, 300, kind::LIMITED);
            let found: BTreeSet<_> =
                pairs().iter().map(|pair| (pair.culprit, pair.ns, pair.born_ns)).collect();
            let kept = (2..PROBES).map(|at| (culprits[at], 1, 100 + at as u64));
            assert_eq!(found, kept.chain([(culprits[0], 2, 100), (culprits[PROBES], 4, 300)]).collect());
            assert_eq!(Maps::losses().contains_key(Loss::CulpritForgotten.name()), is_lost);
        }
    }
}

/// Otherwise pairs would evict each other in a table that is mostly empty.
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
