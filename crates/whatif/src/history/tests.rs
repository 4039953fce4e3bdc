//! Tests with hostile and unusual recordings.

use super::*;
use crate::demand::Assumption;

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

/// The demand of cgroup 1, which shares its quota with no other.
fn target() -> Target {
    Target { path: "/1".into(), family: vec![(1, None)], at: 0 }
}

/// A sample of each second, in which cgroup 1 ran all the time from `from` to `to`.
fn busy(seconds: u64, from: u64, to: u64) -> History {
    let mut ran_ns = 0;
    let samples = (1..=seconds).map(|second| {
        let slots = (((second - 1) * S) >> SHIFT)..((second * S) >> SHIFT);
        let is_busy = (from..to).contains(&second);
        ran_ns += if is_busy { S } else { 0 };
        let amounts = [if is_busy { 32 } else { 0 }, 1, 0, 0, 0];
        let demand = DemandReading::new(1, SHIFT, slots.start, &vec![amounts; slots.count()]);
        let mut sample = Sample { demand: demand.into_iter().collect(), ..sample(second, 0, [0; 5]) };
        sample.limits[0].usage_ns = Some(ran_ns);
        sample
    });
    history(samples)
}

#[test]
fn the_busiest_ten_minutes_of_an_hour_are_kept() {
    let history = busy(3_600, 1_300, 1_800);
    let target = target();
    let demand = history.busiest(&target).expect("demand");
    let start_s = demand.start_ns.expect("a part") as f64 / 1e9;
    assert!((1_150.0..1_300.0).contains(&start_s), "{start_s}");
    assert_eq!(demand.span_ns, WINDOW << BLOCK_SHIFT);
    assert!(demand.ran_ns().abs_diff(500 * S) < 2 * S, "{}", demand.ran_ns());
    let counted = demand.own().expect("a cgroup").counted();
    assert_eq!(counted.usage_ns, Some(500 * S));
    assert!(counted.nr_periods.is_some_and(|periods| periods.abs_diff(6_184) < 20), "{counted:?}");
    assert_eq!(history.latest(&target).expect("demand").ran_ns(), 0);
    // Those of the two windows, and one after each.
    assert!(history.cgroups[&1].blocks.len() <= 2 * WINDOW as usize + 2);
}

#[test]
fn a_recording_of_ten_minutes_is_simulated_as_a_whole() {
    let history = busy(602, 0, 602);
    let target = target();
    let demand = history.busiest(&target).expect("demand");
    assert_eq!((demand.start_ns, demand.span_ns), (None, 599 * S));
    assert_eq!(demand.own().expect("a cgroup").counted().nr_periods, Some(5_990));
}

/// The busiest windows of two cgroups that share a quota are different. Each has the demand of both.
#[test]
fn cgroups_that_share_a_quota_have_each_the_window_of_the_other() {
    let ids = [1, 2, 3];
    let paths = ["/pod", "/pod/a", "/pod/b"];
    let samples = (1..=3_000).map(|second| {
        let one = sample(second, 0, [0; 5]);
        // One is busy in the first 600 s, and the other in the last 600 s of 50 minutes.
        let ran_ns = [second, second.min(600), second.saturating_sub(2_400)].map(|seconds| seconds * S);
        let limits = ids.iter().zip(ran_ns);
        let limits =
            limits.map(|(id, ns)| CgroupReading { id: *id, usage_ns: Some(ns), ..one.limits[0].clone() });
        let slot = (second * S) >> SHIFT;
        let demand =
            ids[1..].iter().filter_map(|id| DemandReading::new(*id, SHIFT, slot - 1, &[[32, 32, 0, 0, 0]]));
        let cgroups = ids.into_iter().zip(paths.map(Into::into)).collect();
        Sample { limits: limits.collect(), demand: demand.collect(), cgroups, ..one }
    });
    let history = history(samples);
    for at in [1, 2] {
        let family = vec![(1, None), (2, Some(0)), (3, Some(0))];
        let target = Target { path: paths[at].into(), family, at };
        let demand = history.busiest(&target).expect("demand");
        let tree = demand.tree(&[false; 3], Assumption::NeighboursYield);
        let ran_ns: Vec<u64> =
            tree.nodes.iter().map(|node| node.profile.slots.iter().map(|slot| slot.ran_ns).sum()).collect();
        assert!(
            ran_ns[0] == 0 && ran_ns[1] > 580 << SHIFT && ran_ns[1].abs_diff(ran_ns[2]) <= 2 << SHIFT,
            "{ran_ns:?}"
        );
    }
}

#[test]
fn hostile_slots_neither_fill_the_memory_nor_overflow_a_sum() {
    let far = history([1, 2, 3, 4].map(|second| sample(second, u64::MAX / 2, [1; 5])));
    assert_eq!(far.cgroups[&1].slots(..), BLOCK_SLOTS);
    let mut many = sample(3, (5 * S / 2) >> SHIFT, [u64::MAX >> 30; 5]);
    many.demand = vec![many.demand.remove(0); 100_000];
    let many = history([sample(1, 0, [0; 5]), sample(2, 0, [0; 5]), many, sample(4, 0, [0; 5])]);
    assert_eq!(many.busiest(&target()).expect("demand").ran_ns(), u64::from(u16::MAX) << (SHIFT - 5));
}

/// A file of a few KB can claim an hour of hundreds of cgroups. Each cgroup has one slot at the end of each block. The one that is
/// throttled least shares a quota with the one that is throttled longest.
#[test]
fn hours_of_hundreds_of_cgroups_take_bounded_memory_and_those_throttled_longest_stay() {
    let ids = 1..=600;
    let at = |second: u64| {
        let slot = (second * S) >> SHIFT;
        let one = sample(second, slot, [1; 5]);
        let limits = ids.clone().map(|id| CgroupReading {
            id,
            usage_ns: Some(second * S),
            throttled_ns: Some(second * id),
            ..one.limits[0].clone()
        });
        let demand = ids.clone().flat_map(|id| DemandReading::new(id, SHIFT, slot, &[[1; 5]]));
        let path = |id| if id == 1 { "/600/1".into() } else { format!("/{id}").into() };
        let cgroups = ids.clone().map(|id| (id, path(id))).collect();
        Sample { limits: limits.collect(), demand: demand.collect(), cgroups, ..one }
    };
    let block_s = (1 << BLOCK_SHIFT) / S;
    let history = history([1, 2].into_iter().chain((1..40).map(|block| 2 + block * block_s - 1)).map(at));
    let slots: usize = history.cgroups.values().map(|cgroup| cgroup.slots(..)).sum();
    assert!(slots == history.slots && slots <= MOST_SLOTS && slots > MOST_SLOTS / 2, "{slots}");
    assert!(slots * size_of::<Amounts>() <= 100_000_000);
    let dropped = |id: &u64| history.cgroups[id].is_dropped;
    let last = ids.clone().filter(dropped).max().expect("one that is dropped");
    assert!(ids.clone().all(|id| dropped(&id) == (2..=last).contains(&id)), "{last}");
    let family = |count: u64| Target {
        path: "/1".into(),
        family: (500..500 + count).map(|id| (id, None)).collect(),
        at: 0,
    };
    assert!(!history.latest(&family(100)).expect("demand").is_bounded());
    assert!(history.latest(&family(50)).expect("demand").is_bounded());
}

#[test]
fn amounts_are_kept_to_the_part() {
    let amounts = [7, 2_000 << 5, 0, 9 << 5, 1];
    let history = history([1, 2, 3, 4].map(|second| sample(second, (second * S) >> SHIFT, amounts)));
    let kept = history.cgroups[&1].blocks[&0].slots().last().expect("slots");
    let [ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns] = amounts.map(|parts| ns_of(parts, SHIFT));
    assert_eq!(kept, DemandSlot { ran_ns, wanted_ns, throttled_ns, waited_ns, presumed_ns });
}

#[test]
fn a_quota_that_was_away_has_changed() {
    let mut samples = [1, 2, 3, 4, 5].map(|second| sample(second, 0, [0; 5]));
    samples[3].limits[0].quota_us = None;
    assert!(history(samples).busiest(&target()).expect("demand").has_changed());
}

#[test]
fn a_limit_that_no_kernel_allows_is_none() {
    let mut samples = [1, 2, 3, 4].map(|second| sample(second, 0, [0; 5]));
    let limit = |history: History| history.busiest(&target()).expect("demand").limits()[0];
    assert!(limit(history(samples.clone())).is_some());
    samples.iter_mut().for_each(|sample| sample.limits[0].burst_us = Some(u64::MAX / 1_000));
    assert!(limit(history(samples)).is_none());
}
