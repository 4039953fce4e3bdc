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

/// Sums up what the task did from `from_ns` on, piece by piece.
fn reference(pieces: &[Piece], from_ns: u64) -> (u64, u64, [f64; CAUSES]) {
    let (mut ran_ns, mut slept_ns, mut waited_ns) = (0, 0, [0.0; CAUSES]);
    for Piece { from_ns: begun_ns, to_ns, does } in pieces {
        let ns = to_ns.saturating_sub(*begun_ns.max(&from_ns));
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

#[test]
fn a_span_has_what_the_task_did_in_it() {
    let count = env::var("CGSCOPE_SCHEDULES").map_or(SCHEDULES, |count| count.parse().expect("a number"));
    let (mut cut, mut within) = (0, 0);
    for seed in 0..count {
        let mut random = seed;
        let begun_ns = 1_000 + below(&mut random, 1_000_000);
        let mut past = Past { begun_ns, ..Past::NONE };
        let (mut pieces, mut now_ns) = (Vec::new(), begun_ns);
        for _ in 0..below(&mut random, 40) {
            let mut pass = |does: Does, ns: u64| {
                if ns != 0 {
                    pieces.push(Piece { from_ns: now_ns, to_ns: now_ns + ns, does });
                }
                now_ns += ns;
                now_ns
            };
            let from_ns = pass(Does::Runs, 1 + below(&mut random, 3_000_000));
            let sleeps = below(&mut random, 3) != 0;
            let woken_ns = if sleeps { pass(Does::Sleeps, 1 + below(&mut random, 9_000_000)) } else { from_ns };
            let mut by_cause = ByCause::default();
            for _ in 0..below(&mut random, 3) {
                by_cause[below(&mut random, CAUSES as u64) as usize] += below(&mut random, 5_000_000);
            }
            let to_ns = pass(Does::Waits(by_cause), by_cause.iter().sum());
            past.add(from_ns, woken_ns, to_ns, &by_cause);
        }
        let ns = 1 + below(&mut random, 3_000_000);
        pieces.push(Piece { from_ns: now_ns, to_ns: now_ns + ns, does: Does::Runs });
        now_ns += ns;
        for _ in 0..8 {
            let from_ns = below(&mut random, now_ns + 1);
            let did = past.since(from_ns, now_ns);
            let known_ns = from_ns + did.unknown_ns;
            let (ran_ns, slept_ns, waited_ns) = reference(&pieces, known_ns);
            assert_eq!(did.sums.slept_ns, slept_ns, "seed {seed}");
            let mut rounded_ns = 0;
            for (ours, exact) in did.sums.by_cause.iter().zip(waited_ns) {
                let away_ns = (*ours as f64 - exact).abs();
                assert!(away_ns <= 1.0 + 5_000_000.0 / 32_768.0, "seed {seed}: {ours} {exact}");
                rounded_ns += away_ns as u64 + 1;
            }
            assert!(did.ran_ns.abs_diff(ran_ns) <= rounded_ns, "seed {seed}: {} {ran_ns}", did.ran_ns);
            assert_eq!(did.ran_ns + did.unknown_ns + did.sums.total(), now_ns - from_ns, "seed {seed}");
            let is_kept = past.number <= PAUSES as u64;
            assert!(did.unknown_ns <= begun_ns.saturating_sub(from_ns) || !is_kept, "seed {seed}: kept, but unknown");
            cut += u64::from(!is_kept && did.unknown_ns != 0);
            within += u64::from(did.unknown_ns == 0);
        }
    }
    assert!(cut > count / 4 && within > count, "{cut} {within}");
}

#[test]
fn a_span_within_a_pause_has_its_part_of_the_wait() {
    let mut past = Past { begun_ns: 100, ..Past::NONE };
    let mut waited = ByCause::default();
    (waited[0], waited[2]) = (300, 100);
    past.add(1_000, 1_600, 2_000, &waited);
    let did = past.since(1_300, 2_500);
    assert_eq!((did.ran_ns, did.sums.slept_ns, did.unknown_ns), (500, 300, 0));
    assert_eq!((did.sums.by_cause[0], did.sums.by_cause[2]), (300, 100));
    let did = past.since(1_800, 2_500);
    assert_eq!((did.ran_ns, did.sums.slept_ns, did.unknown_ns), (500, 0, 0));
    assert_eq!((did.sums.by_cause[0], did.sums.by_cause[2]), (150, 50));
    assert_eq!(past.since(50, 2_500).unknown_ns, 50);
    assert_eq!(past.since(2_000, 2_500), Did { ran_ns: 500, ..Did::default() });
}
