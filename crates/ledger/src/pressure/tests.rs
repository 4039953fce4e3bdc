//! Compares the unions of the ledger with a union that is computed directly from all spans.

extern crate std;

use std::{
    collections::{BTreeMap, BTreeSet},
    println, vec,
    vec::Vec,
};

use super::{
    BATCH_SHIFT, Batch, ENTRIES, Ended, Entry, KeptPressure, LEVELS, LIMITED, LONG_SHIFT, PROBES, Union,
    first_place,
};
use crate::{
    Loss,
    pressure::PressureHost,
    waits::{
        WaitHost,
        tests::host::{MOVING, Maps, NESTED, Simulated},
    },
};

/// Returns a random number below `end` (splitmix64).
pub(crate) fn below(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % end
}

/// Returns the length of the union of spans: the number of nanoseconds that at least one span covers.
fn plain(spans: &[(u64, u64)]) -> u64 {
    let end = spans.iter().map(|span| span.1).max().unwrap_or(0);
    let mut is_covered = vec![false; end as usize];
    for (start, end) in spans {
        is_covered[*start as usize..*end as usize].fill(true);
    }
    is_covered.iter().filter(|covered| **covered).count() as u64
}

#[test]
fn a_union_equals_the_plain_one_or_is_off_by_what_it_says() {
    let (mut total_ns, mut uncertain_ns) = (0, 0);
    for seed in 0..5_000u64 {
        let mut random = seed;
        let (mut union, mut spans) = (Union::default(), Vec::new());
        let longest = [5, 40, 400][seed as usize % 3];
        let mut now = 0;
        for _ in 0..60 {
            now += below(&mut random, 30);
            let length = below(&mut random, longest).min(now);
            if length != 0 {
                spans.push((now - length, now));
                union.add(now - length, now, length, 0);
            }
        }
        let plain = plain(&spans);
        assert!(union.total_ns.abs_diff(plain) <= union.uncertain_ns, "{seed}: {plain} {union:?}");
        (total_ns, uncertain_ns) = (total_ns + plain, uncertain_ns + union.uncertain_ns);
    }
    println!("{uncertain_ns} of {total_ns} ns uncertain");
    assert!(uncertain_ns > 0 && uncertain_ns < total_ns / 10, "{uncertain_ns} of {total_ns}");
}

/// One task waits for long while other tasks have many short waits, so the union merges spans.
#[test]
fn a_starved_task_beside_ten_thousand_short_waits_is_exact() {
    let mut union = Union::default();
    for wait in 0..10_000 {
        union.add(wait * 2_000_000, wait * 2_000_000 + 700_000, 700_000, 0);
    }
    assert_eq!((union.total_ns, union.uncertain_ns), (7_000_000_000, 0));
    union.add(0, 20_000_000_000, 20_000_000_000, 0);
    assert_eq!((union.total_ns, union.uncertain_ns), (20_000_000_000, 0));
    // If the long wait begins a little later, only the gaps between the short waits are uncertain.
    let mut union = Union::default();
    for wait in 0..10_000 {
        union.add(wait * 2_000_000, wait * 2_000_000 + 1_999_000, 1_999_000, 0);
    }
    union.add(1_000_000, 20_000_000_000, 19_999_000_000, 0);
    assert!(union.total_ns.abs_diff(20_000_000_000) <= union.uncertain_ns, "{union:?}");
    assert!(union.uncertain_ns <= 10_000_000, "{union:?}");
}

#[test]
fn spans_from_before_a_quiet_time_are_dropped() {
    let mut union = Union::default();
    for wait in 0..1_000u64 {
        union.add(wait * 100, wait * 100 + 10, 10, wait * 100);
    }
    union.add(100_000, 100_500, 500, 100_000);
    assert_eq!((union.total_ns, union.uncertain_ns), (10_500, 0));
    assert_eq!(union.spans.iter().filter(|span| span.len_ns != 0).count(), 1);
}

#[test]
fn a_batch_takes_waits_of_one_cgroup_for_four_milliseconds_as_long_as_their_union_is_known() {
    let begun =
        Batch { who: 7, start_ns: 1_000, end_ns: 2_000, len_ns: 900, solid_ns: 1_500, filled_ns: 500 };
    let after = |who, queued_ns, clock_ns| {
        let mut batch = begun;
        batch.add(who, queued_ns, clock_ns).then_some((batch.end_ns, batch.len_ns, batch.solid_ns))
    };
    assert_eq!(after(7, 2_000, 2_500), Some((2_500, 1_400, 2_000)));
    assert_eq!(after(7, 2_100, 2_500), Some((2_500, 1_300, 2_100)), "after a gap");
    assert_eq!(after(7, 1_500, 2_500), Some((2_500, 1_400, 1_500)), "another task waited all the time");
    assert_eq!(after(7, 1_499, 2_500), None, "there was a gap in the meantime");
    assert_eq!(after(8, 2_000, 2_500), None, "another cgroup");
    assert_eq!(after(7, 1_600, 1_900), None, "it ended before the one before");
    let (long, late) = (1 << LONG_SHIFT, 1_000 + (1 << BATCH_SHIFT));
    assert_eq!(after(7, 2_000, 2_000 + long), None, "long");
    assert_eq!(
        after(7, 1_900, 1_999 + long),
        Some((1_999 + long, 899 + long, 1_500)),
        "a part of it is counted"
    );
    assert_eq!(after(7, late - 1, late), None, "too late");
    assert_eq!(after(7, late - long, late), None, "too late and long");
    assert!(after(7, late - 2, late - 1).is_some());
}

#[test]
fn a_wait_that_lasted_for_all_of_a_batch_leaves_no_gap_in_it() {
    let begun =
        Batch { who: 7, start_ns: 1_000, end_ns: 2_000, len_ns: 300, solid_ns: 1_900, filled_ns: 500 };
    let covered = |who, queued_ns, clock_ns, limit_ns| {
        let mut batch = begun;
        let is_covered = batch.cover(&Ended { cpu: 0, who, queued_ns, clock_ns, limit_ns });
        is_covered.then_some((batch.start_ns, batch.end_ns, batch.len_ns, batch.solid_ns, batch.filled_ns))
    };
    for queued_ns in [500, 999, 1_000] {
        assert_eq!(covered(7, queued_ns, 2_500, 0), Some((1_000, 2_500, 1_500, 500, 500)), "{queued_ns}");
    }
    assert_eq!(covered(7, 1_000, 2_000, 0), Some((1_000, 2_000, 1_000, 500, 500)), "both end now");
    assert_eq!(
        covered(7, 499, 2_500, 0),
        Some((499, 2_500, 2_001, 499, 499)),
        "there was a gap before the batch"
    );
    for (who, queued_ns, clock_ns, limit_ns) in
        [(8, 900, 2_500, 0), (7, 900, 2_500, 1), (7, 1_001, 2_500, 0), (7, 900, 1_999, 0)]
    {
        assert_eq!(covered(who, queued_ns, clock_ns, limit_ns), None);
    }
    // A batch may be 1 ms long after a gap, otherwise 4 ms.
    let (long, longest) = (1 << LONG_SHIFT, 1 << BATCH_SHIFT);
    assert!(covered(7, 499, 498 + long, 0).is_some() && covered(7, 499, 499 + long, 0).is_none());
    assert!(covered(7, 900, 999 + longest, 0).is_some() && covered(7, 900, 1_000 + longest, 0).is_none());
}

/// Adds a wait in cgroup `who` on CPU 0. The wait is too long for a batch, so it is counted at once.
fn waits(who: u64, clock_ns: u64, limit_ns: u64) {
    Simulated::press(who << 1, Ended { cpu: 0, who, queued_ns: clock_ns - LONG_NS, clock_ns, limit_ns });
}

const LONG_NS: u64 = 1 << LONG_SHIFT;

fn entry(id: u64) -> Option<Entry> {
    Simulated::pressures(0).expect("a CPU").entries.iter().find(|entry| entry.id == id).copied()
}

fn whole(entry: Entry) -> Union {
    Simulated::pressures(0).expect("a CPU").whole(&entry)
}

#[test]
fn a_cgroup_that_finds_no_entry_replaces_the_one_that_waited_longest_ago() {
    const MS: u64 = 4_000_000;
    let place = |id| first_place(id) as usize % ENTRIES;
    // After the last entry, the search continues with the first entry.
    for first in [60, ENTRIES - 3] {
        for since_ns in [3 * MS, 3 * MS - 1] {
            let is_kept = since_ns < 3 * MS;
            let maps = Maps::new(true);
            Maps::keep_since(since_ns);
            let ids: Vec<u64> = (2..).filter(|id| place(*id) == first).take(PROBES + 1).collect();
            for (id, at) in ids[..PROBES].iter().zip(2..) {
                waits(*id, at * MS, 1_000);
            }
            // Now the second entry was used longest ago.
            waits(ids[0], 50 * MS, 0);
            assert!(ids[..PROBES].iter().all(|id| entry(*id).is_some()));
            waits(ids[PROBES], 51 * MS, 0);
            if is_kept {
                // All of these cgroups waited recently, so the new cgroup gets no entry.
                assert!(entry(ids[PROBES]).is_none() && ids[..PROBES].iter().all(|id| entry(*id).is_some()));
                assert_eq!(Maps::losses().get(Loss::PressureForgotten.name()), Some(&1));
                maps.make_place(ids[PROBES]);
                waits(ids[PROBES], 52 * MS, 1_000);
                let place = Simulated::exited(ids[PROBES]).expect("its place");
                let (contention_ns, whole_ns) = (LONG_NS - 1_000, LONG_NS);
                assert_eq!(place.pressure, KeptPressure { contention_ns, whole_ns, uncertain_ns: LONG_NS });
                assert_eq!((place.complete, Maps::losses().len()), (1, 1));
                assert_eq!(whole(entry(1).expect("the root")).total_ns, (PROBES as u64 + 3) * LONG_NS);
                continue;
            }
            assert_eq!(entry(ids[1]), None);
            let kept = ids[2..PROBES].iter().map(|id| entry(*id).expect("it is kept"));
            assert!(
                kept.zip(4..).all(|(entry, at)| (whole(entry).total_ns, entry.born_ns) == (LONG_NS, at * MS))
            );
            let new = entry(ids[PROBES]).expect("it waited last");
            assert_eq!((new.born_ns, new.parent, new.limited), (51 * MS, 1, 0));
            assert_eq!(new.contention.total_ns, LONG_NS);
            assert_eq!(new.contention.spans.iter().filter(|span| span.len_ns != 0).count(), 1);
            assert_eq!(whole(entry(ids[0]).expect("it waited again")).total_ns, 2 * LONG_NS);
            waits(ids[3], 52 * MS, 0);
            assert_eq!(whole(entry(ids[3]).expect("it is found again")).total_ns, 2 * LONG_NS);
            assert_eq!(Maps::losses().len(), 0);
        }
    }
}

#[test]
fn a_wait_with_time_at_a_limit_is_counted_at_once() {
    for limit_ns in [1, 1_000] {
        let _maps = Maps::new(true);
        waits(2, 4_000_000, limit_ns);
        let entry = entry(2).expect("it waited");
        assert_eq!((entry.contention.total_ns, whole(entry).total_ns), (LONG_NS - limit_ns, LONG_NS));
    }
}

/// Before Linux 6.18, it is unknown during which part of its wait a task was at the limit.
#[test]
fn time_at_a_limit_makes_contention_uncertain_where_whole_queues_are_throttled() {
    for (throttles_tasks, uncertain_ns) in [(true, 0), (false, 1_000)] {
        let _maps = Maps::new(throttles_tasks);
        for time in 1..3 {
            waits(2, time * 4_000_000, 1_000);
            let contention = entry(2).expect("it waited").contention;
            assert_eq!(
                (contention.total_ns, contention.uncertain_ns),
                (time * (LONG_NS - 1_000), time * uncertain_ns)
            );
        }
    }
}

#[test]
fn the_wait_of_a_task_that_moves_counts_for_the_cgroup_that_it_leaves() {
    let _maps = Maps::new(true);
    let leaves_3_for_2 = (3 * MOVING) | (2 << 1);
    let clock_ns = 4 * LONG_NS;
    let queued_ns = clock_ns - LONG_NS;
    Simulated::press(leaves_3_for_2, Ended { cpu: 0, who: 3, queued_ns, clock_ns, limit_ns: 0 });
    assert_eq!(entry(3).expect("it waited").contention.total_ns, LONG_NS);
    assert!(entry(2).is_none());
}

#[test]
fn a_wait_of_a_task_that_was_alone_leaves_nothing_that_a_later_one_can_overlap() {
    for is_alone in [0, 1] {
        let _maps = Maps::new(true);
        for time in 1..4 {
            let clock_ns = time * 4_000_000;
            let queued_ns = clock_ns - LONG_NS;
            Simulated::press(2 << 1 | is_alone, Ended { cpu: 0, who: 2, queued_ns, clock_ns, limit_ns: 0 });
        }
        let union = entry(2).expect("it waited").contention;
        let spans = union.spans.iter().filter(|span| span.len_ns != 0).count();
        assert_eq!((union.total_ns, spans), (3 * LONG_NS, if is_alone == 0 { 3 } else { 1 }));
    }
}

/// If they had the same entries, cgroups would evict each other from a table that is mostly empty.
#[test]
fn cgroups_that_were_made_one_after_another_get_different_entries() {
    let places: BTreeSet<_> = (1_000..1_064).map(|id| first_place(id) as usize % ENTRIES).collect();
    assert!(places.len() > 50, "{places:?}");
}

#[test]
fn a_wait_counts_for_all_cgroups_above_up_to_the_limit_of_levels() {
    for depth in [LEVELS, LEVELS + 1] {
        let _maps = Maps::new(true);
        // The nested cgroups have two more ancestors: the root and a child of the root.
        let lowest = NESTED + depth as u64 - 3;
        for time in 1..3 {
            waits(lowest, time * 4_000_000, 0);
            let counted = (0..LEVELS as u64)
                .map(|level| entry(if level + 1 == depth as u64 { 1 } else { lowest - level }));
            let counted: Vec<_> =
                counted.map(|entry| entry.expect("its level counts").contention.total_ns).collect();
            assert_eq!(counted, [time * LONG_NS; LEVELS], "{depth}");
            let lost = Maps::losses().get(Loss::PressureForgotten.name()).copied();
            assert_eq!(lost, (depth > LEVELS).then_some(time), "{depth}");
        }
        assert_eq!(entry(1).is_some(), depth == LEVELS, "the root is the last level");
    }
}

/// Generates waits of one cgroup that mostly overlap, as on a busy CPU. The first number of each seed sets the length of the
/// waits.
#[test]
fn waits_in_batches_equal_the_plain_union_or_are_off_by_what_is_counted() {
    const SCALE: u64 = 1 << 12;
    let (mut batched, mut uncertain_ns, mut total_ns) = (0, 0, 0);
    for seed in 0..3_000u64 {
        let _maps = Maps::new(true);
        let mut random = seed;
        let longest = [10, 100, 1_000, 3_000][seed as usize % 4];
        let (mut now, mut spans) = (10_000, Vec::new());
        for _ in 0..60 {
            now += below(&mut random, [3, 300][seed as usize % 2]);
            let start = now - below(&mut random, longest);
            spans.push((start, now));
            let (queued_ns, clock_ns) = (start * SCALE, now * SCALE);
            let ring = Simulated::ring(0).expect("a CPU");
            if ring.batch.add(2, queued_ns, clock_ns) {
                batched += 1;
            } else {
                Simulated::press(2 << 1, Ended { cpu: 0, who: 2, queued_ns, clock_ns, limit_ns: 0 });
            }
        }
        Simulated::count_batch(0);
        let union = entry(2).map(|entry| entry.contention).unwrap_or_default();
        let plain_ns = plain(&spans) * SCALE;
        let off_ns = union.total_ns.abs_diff(plain_ns);
        assert!(off_ns <= union.uncertain_ns, "{seed}: {plain_ns} {union:?}");
        (uncertain_ns, total_ns) = (uncertain_ns + union.uncertain_ns, total_ns + plain_ns);
    }
    println!("{batched} in batches, {uncertain_ns} of {total_ns} ns uncertain");
    assert!(batched > 60_000 && uncertain_ns < total_ns / 10, "{batched} {uncertain_ns} {total_ns}");
}

/// Reads the entries of CPU 0 as user space does. `seen` has the latest reading of each cgroup: the start of its entry, and
/// contention, time at a limit, and uncertainty. Adds the increases to `sums`.
fn read(seen: &mut BTreeMap<u64, (u64, [u64; 3])>, sums: &mut BTreeMap<u64, [u64; 3]>) {
    let table = Simulated::pressures(0).expect("a CPU");
    for entry in table.entries.iter().filter(|entry| entry.id != 0) {
        let (contention, whole) = (entry.contention, table.whole(entry));
        let limit_ns = whole.total_ns.saturating_sub(contention.total_ns);
        let now = [contention.total_ns, limit_ns, contention.uncertain_ns + whole.uncertain_ns];
        let (born_ns, before) = seen.insert(entry.id, (entry.born_ns, now)).unwrap_or_default();
        let before = if born_ns == entry.born_ns { before } else { [0; 3] };
        let sum = sums.entry(entry.id).or_default();
        (0..3).for_each(|at| sum[at] += now[at].saturating_sub(before[at]));
    }
}

/// Waits at a limit in few and in many cgroups. All waits end before a reading.
#[test]
fn the_time_at_limits_is_off_by_at_most_what_is_counted_although_cgroups_have_no_union() {
    const SCALE: u64 = 1 << 12;
    let (mut total_ns, mut uncertain_ns, mut apart_ns) = ([0; 3], [0; 3], [0; 3]);
    for seed in 0..90u64 {
        let maps = Maps::new(true);
        let kind = seed as usize % 3;
        let cgroups = [LIMITED as u64 / 4, 2 * LIMITED as u64, 6 * LIMITED as u64][kind];
        (1..cgroups + 2).for_each(|id| maps.make_place(id));
        let mut random = seed;
        let (mut seen, mut sums, mut spans) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::<_, [Vec<_>; 2]>::new());
        let (mut now, mut read_at) = (1_000, 0);
        for _ in 0..8 {
            // In each part of the schedule, other cgroups are active.
            let active = (below(&mut random, cgroups), 1 + below(&mut random, cgroups));
            for _ in 0..80 {
                now += below(&mut random, 30);
                let who = 2 + (active.0 + below(&mut random, active.1)) % cgroups;
                let longest = [40, 400][below(&mut random, 2) as usize];
                let length = 1 + below(&mut random, longest);
                let limit = below(&mut random, 2) * below(&mut random, length + 1);
                for id in [who, 1] {
                    let [behind, whole] = spans.entry(id).or_default();
                    behind.push((now - length + limit, now));
                    whole.push((now - length, now));
                }
                let (queued_ns, clock_ns) = ((now - length) * SCALE, now * SCALE);
                let ring = Simulated::ring(0).expect("a CPU");
                if limit != 0 || !ring.batch.add(who, queued_ns, clock_ns) {
                    let ended = Ended { cpu: 0, who, queued_ns, clock_ns, limit_ns: limit * SCALE };
                    Simulated::press(who << 1, ended);
                }
            }
            Simulated::count_batch(0);
            read(&mut seen, &mut sums);
            Maps::keep_since(core::mem::replace(&mut read_at, now * SCALE));
            now += 500;
        }
        assert_eq!(Maps::losses().len(), 0);
        let entries = Simulated::pressures(0).expect("a CPU").entries;
        apart_ns[kind] += entries.iter().map(|entry| entry.apart_ns).sum::<u64>();
        for (id, [behind, whole]) in spans {
            let of_entry = sums.get(&id).copied().unwrap_or_default();
            let kept = Simulated::exited(id).expect("its place").pressure;
            let contention_ns = of_entry[0] + kept.contention_ns;
            let limit_ns = of_entry[1] + kept.whole_ns - kept.contention_ns;
            let may_differ_ns = of_entry[2] + kept.uncertain_ns;
            let behind_ns = plain(&behind) * SCALE;
            let plain_limit_ns = plain(&whole) * SCALE - behind_ns;
            let of = std::format!(
                "{seed}, {id}: {contention_ns} {limit_ns} {may_differ_ns}, {behind_ns} {plain_limit_ns}"
            );
            assert!(contention_ns.abs_diff(behind_ns) <= may_differ_ns, "{of}");
            assert!(limit_ns.abs_diff(plain_limit_ns) <= may_differ_ns, "{of}");
            total_ns[kind] += behind_ns + plain_limit_ns;
            uncertain_ns[kind] += may_differ_ns;
        }
    }
    println!("{uncertain_ns:?} of {total_ns:?} ns uncertain, {apart_ns:?} apart");
    assert!(apart_ns[0] == 0 && apart_ns[1] > 0 && apart_ns[2] > 0, "{apart_ns:?}");
    assert!((0..3).all(|kind| uncertain_ns[kind] < total_ns[kind] / 4), "{uncertain_ns:?} {total_ns:?}");
}
