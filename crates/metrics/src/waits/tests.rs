use cgscope_model::{ByCause, Hist};
use proptest::{collection::vec, prelude::*};

use super::*;
use cgscope_ledger::cause::CELLS;

/// Waits of an interval, as (bucket, shares of the columns in 64ths of a wait). The remainder of each wait has the cause wakeup.
type Made = Vec<(usize, [u32; COLUMNS])>;

fn made() -> impl Strategy<Value = Made> {
    let parts = vec(0..=WHOLE, COLUMNS).prop_map(|ends| {
        let mut ends = ends;
        ends.sort_unstable();
        let mut before = 0;
        let parts: Vec<u32> = ends.iter().map(|end| end - std::mem::replace(&mut before, *end)).collect();
        parts.try_into().expect("one for each")
    });
    vec((prop_oneof![16..24usize, 0..BUCKETS], parts), 0..60)
}

fn wait(made: &Made) -> Wait {
    let (mut counts, mut shares, mut by_cause) = ([0u64; BUCKETS], [0u64; CELLS], ByCause::default());
    for (bucket, parts) in made {
        counts[*bucket] += 1;
        for (column, part) in parts.iter().enumerate() {
            shares[row_of(*bucket) * COLUMNS + column] += u64::from(*part);
            by_cause.0[COLUMN_NAMES[column] as usize] += u64::from(*part);
        }
        by_cause.0[Cause::Wakeup as usize] += u64::from(WHOLE - parts.iter().sum::<u32>());
    }
    let hist = Hist::from_counts(counts, shares);
    Wait { count: hist.count(), total_ns: by_cause.total(), by_cause, hist, ..Wait::default() }
}

fn counts(waits: &Waits) -> [[u64; BUCKETS]; CAUSES] {
    let mut counts = [[0; BUCKETS]; CAUSES];
    waits.series().for_each(|(cause, series)| counts[cause as usize] = series.counts);
    counts
}

/// Returns the number of waits in a row of `counts`, in 64ths of a wait.
fn of_row(counts: &[u64; BUCKETS], row: usize) -> i64 {
    (counts[row * 8..][..8].iter().sum::<u64>() * u64::from(WHOLE)) as i64
}

proptest! {
    #[test]
    fn causes_sum_to_the_waits_and_no_count_falls(intervals in vec(made(), 1..8)) {
        let (mut waits, mut sum, mut by_cause) = (Waits::default(), Hist::default(), ByCause::default());
        let mut before = counts(&waits);
        for interval in &intervals {
            let wait = wait(interval);
            waits.add(&wait);
            sum.add(&wait.hist);
            by_cause.add(&wait.by_cause);
            let now = counts(&waits);
            for bucket in 0..BUCKETS {
                prop_assert!((0..CAUSES).all(|cause| now[cause][bucket] >= before[cause][bucket]));
                let over_causes: u64 = now.iter().map(|counts| counts[bucket]).sum();
                prop_assert_eq!(over_causes, sum.counts.iter().find(|(at, _)| *at == bucket).map_or(0, |(_, count)| count));
            }
            before = now;
        }
        for (cause, series) in waits.series() {
            prop_assert_eq!(series.ns, by_cause.get(cause));
        }
        prop_assert!(Cause::ALL.into_iter().all(|cause| by_cause.get(cause) == 0 || waits.series().any(|(with, _)| with == cause)));
    }

    #[test]
    fn every_cause_has_as_many_waits_as_its_parts_sum_to(intervals in vec(made(), 1..30)) {
        let mut waits = Waits::default();
        let mut exact = [[0i64; CAUSES]; ROWS];
        for interval in &intervals {
            waits.add(&wait(interval));
            for (bucket, parts) in interval {
                let row = &mut exact[row_of(*bucket)];
                let shared = parts.iter().zip(COLUMN_NAMES).map(|(part, cause)| { row[cause as usize] += i64::from(*part); *part }).sum::<u32>();
                row[Cause::Wakeup as usize] += i64::from(WHOLE - shared);
            }
            let now = counts(&waits);
            for (row, exact) in exact.iter().enumerate() {
                for (cause, exact) in exact.iter().enumerate() {
                    let off = of_row(&now[cause], row) - exact;
                    prop_assert!(off.abs() < 2 * i64::from(WHOLE), "{off}/64 of row {row}, cause {cause}");
                }
            }
        }
    }

    #[test]
    fn contradicting_figures_are_counted_without_lasting_effects(
        cells in proptest::collection::btree_map(0..BUCKETS as u32, prop_oneof![1..9u64, any::<u64>().prop_map(|n| n.max(1))], 0..20),
        shares in proptest::collection::btree_map(0..CELLS as u32, prop_oneof![1..900u64, any::<u64>().prop_map(|n| n.max(1))], 0..20),
    ) {
        let hist = Hist::from_cells(cells.clone(), shares).expect("cells in order");
        let mut waits = Waits::default();
        waits.add(&Wait { hist: hist.clone(), ..Wait::default() });
        let sums = counts(&waits);
        for (bucket, count) in hist.counts.iter() {
            prop_assert_eq!(sums.iter().map(|counts| u128::from(counts[bucket])).sum::<u128>(), u128::from(count));
        }
    }
}

#[test]
fn a_share_that_is_read_before_its_count_is_not_lost() {
    let mut waits = Waits::default();
    let share = Hist::from_cells([], [((2 * COLUMNS) as u32, 64)]).expect("a cell");
    waits.add(&Wait { hist: share, ..Wait::default() });
    assert_eq!(waits.series().count(), 0, "no wait is over");
    waits.add(&Wait { hist: Hist::from_cells([(17, 1)], []).expect("a cell"), ..Wait::default() });
    let series: Vec<_> = waits.series().map(|(cause, series)| (cause, series.counts[17])).collect();
    assert_eq!(series, [(Cause::Throttled, 1)]);
}

#[test]
fn halves_take_turns() {
    let mut waits = Waits::default();
    for _ in 0..10 {
        waits.add(&wait(&vec![(20, std::array::from_fn(|cause| if cause == 0 { 32 } else { 0 }))]));
    }
    let series: Vec<_> = waits.series().map(|(cause, series)| (cause, series.count(), series.ns)).collect();
    assert_eq!(series, [(Cause::Throttled, 5, 320), (Cause::Wakeup, 5, 320)]);
}
