//! Tests with hostile and unusual recordings.

use cgscope_model::demand::parts;

use super::*;

const S: u64 = 1_000_000_000;
const SHIFT: u32 = 24;

/// Returns a sample of a cgroup with a quota. The cgroup has run in one slot.
fn sample(second: u64, slot: u64, amounts: [u64; 5]) -> Sample {
    let reading = CgroupReading {
        id: 1,
        quota_us: Some(50_000),
        period_us: Some(100_000),
        nr_periods: Some(second * 10),
        ..CgroupReading::default()
    };
    Sample {
        demand_until_ns: Some(second * S),
        demand: DemandReading::new(1, SHIFT, slot, &[amounts]).into_iter().collect(),
        limits: vec![reading],
        ..Sample::default()
    }
}

fn history(samples: impl IntoIterator<Item = Sample>) -> History {
    let mut history = History::default();
    samples.into_iter().for_each(|sample| history.add(&sample));
    history
}

#[test]
fn after_an_hour_neither_slots_nor_counters_are_added() {
    let seconds = [1, 2, 3, 4, 3_700, 3_800, 3_900];
    let history =
        history(seconds.map(|second| sample(second, (second * S) >> SHIFT, [parts(1 << SHIFT, SHIFT); 5])));
    assert_eq!(history.span_ns(), 2 * S);
    assert_eq!(history.cgroups[&1].counted().nr_periods, Some(20));
    assert_eq!(history.cgroups[&1].ran_ns(history.span_ns()), 1 << SHIFT, "that of the third sample");
}

#[test]
fn hostile_slots_neither_fill_the_memory_nor_overflow_a_sum() {
    let far = history([1, 2, 3, 4].map(|second| sample(second, u64::MAX / 2, [1; 5])));
    assert_eq!(far.cgroups[&1].slots.len(), 0);
    let mut many = sample(3, (5 * S / 2) >> SHIFT, [u64::MAX >> 30; 5]);
    many.demand = vec![many.demand.remove(0); 100_000];
    let many = history([sample(1, 0, [0; 5]), sample(2, 0, [0; 5]), many, sample(4, 0, [0; 5])]);
    assert_eq!(many.cgroups[&1].ran_ns(many.span_ns()), MOST_TASKS << SHIFT);
}

/// A file of a few KB can claim an hour of hundreds of cgroups. Each cgroup has one slot, at the end of the hour.
#[test]
fn an_hour_of_hundreds_of_cgroups_is_neither_kept_nor_simulated() {
    let ids = 1..=400;
    let at = |second: u64, slot: u64| {
        let one = sample(second, slot, [1; 5]);
        let limits = ids.clone().map(|id| CgroupReading { id, ..one.limits[0].clone() });
        let demand = ids.clone().flat_map(|id| DemandReading::new(id, SHIFT, slot, &[[1; 5]]));
        Sample { limits: limits.collect(), demand: demand.collect(), ..one }
    };
    let end = 3_590;
    let slot = (end * S) >> SHIFT;
    let history = history([at(1, 0), at(2, 0), at(end, slot), at(end + 1, slot)]);
    let slots: usize = history.cgroups.values().map(|cgroup| cgroup.slots.len()).sum();
    assert!(slots <= MOST_SLOTS && slots > MOST_SLOTS * 9 / 10, "{slots}");
    assert!(slots * size_of::<Packed>() <= 200 << 20);
    let family: Vec<_> = ids.map(|id| (id, None)).collect();
    assert!(!history.is_bounded(&family) && history.is_bounded(&family[..9]));
    assert!(history.simulated_slots(&family[..1]).abs_diff(slot) <= 121);
    // If a history has few slots, the simulation divides each slot into four parts. Otherwise it uses whole slots.
    let minutes = self::history([1, 2, 3, 100].map(|second| sample(second, second, [1; 5])));
    assert_eq!([MOST_SIMULATED / 4, MOST_SIMULATED / 4 + 1].map(|slots| minutes.refinement(slots)), [4, 1]);
}

#[test]
fn amounts_are_kept_to_the_part() {
    let slot = DemandSlot {
        ran_ns: 7 << (SHIFT - 5),
        wanted_ns: (MOST_TASKS << SHIFT) - (1 << (SHIFT - 5)),
        throttled_ns: MOST_TASKS << SHIFT,
        waited_ns: 0,
        presumed_ns: 1 << (SHIFT - 5),
    };
    assert_eq!(Packed::of(slot, SHIFT).slot(SHIFT), slot);
}

#[test]
fn a_quota_that_was_away_has_changed() {
    let mut samples = [1, 2, 3, 4, 5].map(|second| sample(second, 0, [0; 5]));
    samples[3].limits[0].quota_us = None;
    assert!(history(samples).cgroups[&1].has_changed);
}

#[test]
fn a_limit_that_no_kernel_allows_is_none() {
    let mut samples = [1, 2, 3, 4].map(|second| sample(second, 0, [0; 5]));
    assert!(history(samples.clone()).cgroups[&1].limit().is_some());
    samples.iter_mut().for_each(|sample| sample.limits[0].burst_us = Some(u64::MAX / 1_000));
    assert!(history(samples).cgroups[&1].limit().is_none());
}
