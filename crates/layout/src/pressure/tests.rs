//! Unions against a plain union of all spans.

extern crate std;

use std::{println, vec, vec::Vec};

use super::{Batch, Union};

/// A number below `end` (splitmix64).
fn below(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % end
}

/// The length of the union, one nanosecond after another.
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

/// The case that needs merged spans: a task starves while others wait often and shortly.
#[test]
fn a_starved_task_beside_ten_thousand_short_waits_is_exact() {
    let mut union = Union::default();
    for wait in 0..10_000 {
        union.add(wait * 2_000_000, wait * 2_000_000 + 700_000, 700_000, 0);
    }
    assert_eq!((union.total_ns, union.uncertain_ns), (7_000_000_000, 0));
    union.add(0, 20_000_000_000, 20_000_000_000, 0);
    assert_eq!((union.total_ns, union.uncertain_ns), (20_000_000_000, 0));
    // Had it begun a little later, only the gaps would be uncertain.
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
fn a_batch_takes_waits_of_one_cgroup_that_do_not_overlap_for_a_millisecond() {
    let begun = Batch { who: 7, start_ns: 1_000, end_ns: 2_000, len_ns: 1_000 };
    let after = |who, queued_ns, clock_ns| {
        let mut batch = begun;
        batch.add(who, queued_ns, clock_ns).then_some((batch.end_ns, batch.len_ns))
    };
    assert_eq!(after(7, 2_000, 2_500), Some((2_500, 1_500)));
    assert_eq!(after(8, 2_000, 2_500), None, "another cgroup");
    assert_eq!(after(7, 1_999, 2_500), None, "they overlap");
    assert_eq!(after(7, 2_000, 1_000 + (1 << 20)), None, "too late");
}
