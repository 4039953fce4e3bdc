//! Compares spans of random pasts with a list of everything that the task did.

extern crate std;

use std::{env, vec::Vec};

use super::*;

/// Number of pasts in each run. `CGSCOPE_SCHEDULES` sets another number.
const SCHEDULES: u64 = 10_000;

/// Returns a random number below `end` (splitmix64).
fn below(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % end
}

/// One thing that the task did, and until when.
struct Piece {
    from_ns: u64,
    to_ns: u64,
    does: Does,
}

enum Does {
    Runs,
    Sleeps,
    Waits(ByCause),
}

/// Sums up what the task did from `from_ns` to `until_ns`, piece by piece.
fn reference(pieces: &[Piece], from_ns: u64, until_ns: u64) -> (u64, u64, [f64; CAUSES]) {
    let (mut ran_ns, mut slept_ns, mut waited_ns) = (0, 0, [0.0; CAUSES]);
    for Piece { from_ns: begun_ns, to_ns, does } in pieces {
        let ns = to_ns.min(&until_ns).saturating_sub(*begun_ns.max(&from_ns));
        match does {
            Does::Runs => ran_ns += ns,
            Does::Sleeps => slept_ns += ns,
            Does::Waits(by_cause) => {
                for (sum, part) in waited_ns.iter_mut().zip(by_cause) {
                    *sum += *part as f64 * ns as f64 / (to_ns - begun_ns) as f64;
                }
            }
        }
    }
    (ran_ns, slept_ns, waited_ns)
}

/// Returns the largest error of the rounded shares of a wait, ns.
const ROUNDED_NS: u64 = 1 + 40_000_000 / (1 << SHIFT);

#[test]
fn a_span_has_what_the_task_did_in_it() {
    let count = env::var("CGSCOPE_SCHEDULES").map_or(SCHEDULES, |count| count.parse().expect("a number"));
    let (mut estimated, mut unknown, mut exact) = (0, 0, 0);
    for seed in 0..count {
        let mut random = seed;
        let begun_ns = 1_000 + below(&mut random, 1_000_000);
        let mut past = Past::NONE;
        let mut waited: ByCause = core::array::from_fn(|_| below(&mut random, 1_000));
        past.begin(begun_ns, waited.iter().sum(), &waited);
        let (mut pieces, mut now_ns) = (Vec::new(), begun_ns);
        let mut ends = std::vec![begun_ns];
        for _ in 0..below(&mut random, 100) {
            let mut pass = |does: Does, ns: u64| {
                if ns != 0 {
                    pieces.push(Piece { from_ns: now_ns, to_ns: now_ns + ns, does });
                }
                now_ns += ns;
                now_ns
            };
            let from_ns = pass(Does::Runs, 1 + below(&mut random, 3_000_000));
            let sleeps = below(&mut random, 3) != 0;
            let woken_ns =
                if sleeps { pass(Does::Sleeps, 1 + below(&mut random, 9_000_000)) } else { from_ns };
            let mut by_cause = ByCause::default();
            for _ in 0..below(&mut random, 3) {
                by_cause[below(&mut random, CAUSES as u64) as usize] += below(&mut random, 5_000_000);
            }
            waited.iter_mut().zip(by_cause).for_each(|(sum, ns)| *sum += ns);
            let to_ns = pass(Does::Waits(by_cause), by_cause.iter().sum());
            let number = past.number;
            assert_eq!(
                past.add(if sleeps { from_ns } else { 0 }, to_ns, waited.iter().sum(), &waited),
                woken_ns
            );
            if past.number != number {
                ends.push(to_ns);
            }
        }
        let ns = 1 + below(&mut random, 3_000_000);
        pieces.push(Piece { from_ns: now_ns, to_ns: now_ns + ns, does: Does::Runs });
        now_ns += ns;
        for _ in 0..8 {
            let from_ns = below(&mut random, now_ns + 1);
            let did = did_since(&mut past, from_ns, now_ns);
            assert_eq!(did.ran_ns + did.unknown_ns + did.sums.total(), now_ns - from_ns, "seed {seed}");
            // All pauses up to this number ago are kept one by one, and of those before that some.
            let back = ends.iter().filter(|end| **end > from_ns).count();
            if back < KEPT {
                let unborn_ns = begun_ns.saturating_sub(from_ns);
                assert_eq!(
                    (did.unknown_ns, did.estimated_ns),
                    (unborn_ns, 0),
                    "seed {seed}: {back} pauses ago"
                );
            }
            if back <= KEPT * (STRIDE as usize - 1) {
                assert!(did.unknown_ns <= begun_ns.saturating_sub(from_ns), "seed {seed}: {back} pauses ago");
            }
            // The estimated part is at the beginning. What came after it is exact, and it is what it can be.
            let known_ns = from_ns + did.unknown_ns + did.estimated_ns;
            let (ran_ns, slept_ns, waited_ns) = reference(&pieces, known_ns, now_ns);
            let part = |ours: u64, exact: f64| {
                let (least, most) =
                    (exact - ROUNDED_NS as f64, exact + (did.estimated_ns + ROUNDED_NS) as f64);
                assert!(
                    (least..=most).contains(&(ours as f64)),
                    "seed {seed}: {ours} is not in {least}..{most}"
                );
            };
            part(did.sums.slept_ns, slept_ns as f64);
            did.sums.by_cause.iter().zip(waited_ns).for_each(|(ours, exact)| part(*ours, exact));
            let rounded_ns = CAUSES as u64 * ROUNDED_NS;
            assert!(did.ran_ns + rounded_ns >= ran_ns, "seed {seed}: {} {ran_ns}", did.ran_ns);
            estimated += u64::from(did.estimated_ns != 0);
            unknown += u64::from(did.unknown_ns > begun_ns);
            exact += u64::from(did.unknown_ns == 0 && did.estimated_ns == 0);
        }
    }
    assert!(estimated > count && unknown > count / 4 && exact > count, "{estimated} {unknown} {exact}");
}

fn did_since(past: &mut Past, from_ns: u64, now_ns: u64) -> Did {
    let mut did = Did::UNKNOWN;
    let runs = past.runs_since(from_ns);
    past.since(from_ns, &mut did);
    did.complete(now_ns - from_ns);
    assert_eq!(runs, did == Did { ran_ns: now_ns - from_ns, ..Did::default() });
    did
}

/// A task that does the same again and again: an estimate is as good as the figures of each pause.
#[test]
fn an_estimate_of_a_steady_past_is_right() {
    let (mut past, mut waited, mut now_ns) = (Past::NONE, ByCause::default(), 0);
    past.begin(now_ns, 0, &waited);
    for _ in 0..1_000 {
        waited[0] += 50;
        now_ns += 1_000;
        past.add(now_ns - 300, now_ns, waited[0], &waited);
    }
    let did = did_since(&mut past, now_ns - 44_500, now_ns);
    assert_eq!((did.unknown_ns, did.estimated_ns), (0, 4_500));
    assert!(
        did.sums.slept_ns.abs_diff(44_500 / 4) < 200 && did.sums.by_cause[0].abs_diff(2_225) < 50,
        "{did:?}"
    );
    // Before the oldest pause that is kept.
    let did = did_since(&mut past, now_ns - 200_000, now_ns);
    assert_eq!((did.unknown_ns, did.estimated_ns), (144_000, 0));
    assert_eq!((did.sums.slept_ns, did.sums.by_cause[0], did.ran_ns), (14_000, 2_800, 39_200));
}

#[test]
fn a_span_within_a_pause_has_its_part_of_the_wait() {
    let (mut past, mut waited) = (Past::NONE, ByCause::default());
    past.begin(100, 0, &waited);
    (waited[0], waited[2]) = (300, 100);
    assert_eq!(past.add(1_000, 2_000, 400, &waited), 1_600);
    let mut since = |from_ns| {
        let did = did_since(&mut past, from_ns, 2_500);
        assert_eq!(did.estimated_ns, 0);
        (did.ran_ns, did.sums.slept_ns, did.sums.by_cause[0], did.sums.by_cause[2], did.unknown_ns)
    };
    assert_eq!(since(1_300), (500, 300, 300, 100, 0));
    assert_eq!(since(1_800), (500, 0, 150, 50, 0));
    assert_eq!(since(50), (500 + 900, 600, 300, 100, 50));
    assert_eq!(since(2_000), (500, 0, 0, 0, 0));
}
