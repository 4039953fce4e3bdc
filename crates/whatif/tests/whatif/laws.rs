//! Tests laws that hold for every demand.

use cgscope_whatif::{Limit, Loop, Node, Outcome, Profile, Replay, Setting, Slot, Tree};

use crate::random::{SLOT_NS, below, limit, profile, tree};

const LOOPS: [Loop; 2] = [Loop::Open, Loop::Closed];
const MS: u64 = 1_000_000;

/// Replays a single cgroup on plenty of CPUs.
fn single(profile: &Profile, limit: Option<Limit>, setting: &Setting) -> Outcome {
    let tree = crate::single(profile.clone(), limit, 64.0);
    Replay::new(&tree).run(&[limit], setting).unwrap().remove(0)
}

/// Returns a constant demand that keeps `cpus` CPUs busy.
fn constant(cpus: f64, slots: usize) -> Profile {
    let busy_ns = (cpus * SLOT_NS as f64) as u64;
    let slot = Slot { ran_ns: busy_ns, firm_ns: busy_ns, ..Slot::default() };
    Profile { slot_ns: SLOT_NS, slots: vec![slot; slots] }
}

#[test]
fn no_work_is_lost_or_made_in_the_open_loop() {
    for seed in 0..1_000u64 {
        let mut random = seed;
        let mut tree = tree(&mut random, 5, 60);
        tree.nodes.iter_mut().flat_map(|node| &mut node.profile.slots).for_each(|slot| slot.presumed_ns = 0);
        let setting = Setting { longest: 1, ..Setting::new(Loop::Open, below(&mut random, 100 * MS)) };
        let outcomes = Replay::new(&tree).run(&crate::limits(&tree), &setting).unwrap();
        let arrived_ns: u64 =
            tree.nodes.iter().flat_map(|node| &node.profile.slots).map(|slot| slot.firm_ns).sum();
        let roots = outcomes.iter().zip(&tree.nodes).filter(|(_, node)| node.parent.is_none());
        let known_ns: u64 = roots.map(|(outcome, _)| outcome.ran_ns + outcome.backlog_ns).sum();
        assert!(
            arrived_ns.abs_diff(known_ns) <= 1_000,
            "{seed}: {arrived_ns} arrived, {known_ns} ran or are late"
        );
    }
}

#[test]
fn no_work_is_lost_or_made_in_the_closed_loop() {
    for seed in 0..1_000u64 {
        let mut random = seed;
        let tree = tree(&mut random, 5, 60);
        let setting = Setting { longest: 1_000, ..Setting::new(Loop::Closed, below(&mut random, 100 * MS)) };
        let outcomes = Replay::new(&tree).run(&crate::limits(&tree), &setting).unwrap();
        let recorded_ns: u64 =
            tree.nodes.iter().flat_map(|node| &node.profile.slots).map(|slot| slot.ran_ns).sum();
        let roots = outcomes.iter().zip(&tree.nodes).filter(|(_, node)| node.parent.is_none());
        let ran_ns: u64 = roots.map(|(outcome, _)| outcome.ran_ns).sum();
        assert!(outcomes.iter().all(|outcome| outcome.done_ns.is_some()), "{seed}");
        assert!(recorded_ns.abs_diff(ran_ns) <= 1_000, "{seed}: {recorded_ns} recorded, {ran_ns} ran");
    }
}

/// The largest amounts by which a second outcome is worse than a first outcome.
#[derive(Debug, Default)]
struct Worse {
    periods: f64,
    throttled_ns: f64,
    done_ns: f64,
    backlog_ns: f64,
}

impl Worse {
    /// Raises each member to the difference between these outcomes, if the difference is larger.
    fn add(&mut self, better: &Outcome, worse: &Outcome) {
        let more = |at: &mut f64, a: u64, b: u64| *at = at.max(b as f64 - a as f64);
        more(&mut self.periods, better.throttled_periods, worse.throttled_periods);
        more(&mut self.throttled_ns, better.throttled_ns, worse.throttled_ns);
        more(&mut self.done_ns, better.done_ns.unwrap(), worse.done_ns.unwrap());
        more(&mut self.backlog_ns, better.backlog_ns, worse.backlog_ns);
    }
}

/// Replays random demands with a random limit, and again after `raise` changed this limit. Returns the largest differences, and
/// the total throttled time with the first and with the changed limits, ns.
fn raised(replay: Loop, slice_ns: u64, raise: impl Fn(&mut u64, &mut Limit)) -> (Worse, [u64; 2]) {
    let (mut worse, mut sums) = (Worse::default(), [0; 2]);
    for seed in 0..1_000u64 {
        let mut random = seed;
        let cpus = 1 + below(&mut random, 6);
        let profile = profile(&mut random, 60, cpus);
        let limit = Limit { burst_ns: 0, ..limit(&mut random, cpus) };
        let mut higher = limit;
        raise(&mut random, &mut higher);
        let phase_ns = below(&mut random, limit.period_ns);
        let setting = Setting { longest: 100, slice_ns, ..Setting::new(replay, phase_ns) };
        let outcomes = [limit, higher].map(|limit| single(&profile, Some(limit), &setting));
        worse.add(&outcomes[0], &outcomes[1]);
        sums.iter_mut().zip(&outcomes).for_each(|(sum, outcome)| *sum += outcome.throttled_ns);
    }
    println!("{replay:?}, slices of {slice_ns} ns: {worse:?}, throttled {sums:?}");
    (worse, sums)
}

fn more_quota(random: &mut u64, limit: &mut Limit) {
    limit.quota_ns += 1 + below(random, limit.quota_ns);
}

fn more_burst(random: &mut u64, limit: &mut Limit) {
    limit.burst_ns = 1 + below(random, limit.quota_ns);
}

/// A slice that is too short to matter.
const SHORT_NS: u64 = MS / 10;

/// Throttled time is a sum over CPUs. In the closed loop, a higher quota may increase throttled time a little, because later
/// work, on more CPUs, is throttled instead. Then the number of throttled periods may also grow by one or two. The work is never
/// done later.
#[test]
fn more_quota_and_burst_never_throttle_more() {
    for raise in [more_quota, more_burst] {
        let (worse, sums) = raised(Loop::Open, SHORT_NS, raise);
        assert!(
            worse.periods == 0.0 && worse.throttled_ns <= MS as f64 && worse.done_ns <= MS as f64,
            "{worse:?}"
        );
        assert!(worse.backlog_ns <= 6.0 * SHORT_NS as f64 && sums[1] < sums[0], "{worse:?} {sums:?}");
        let (worse, sums) = raised(Loop::Closed, SHORT_NS, raise);
        assert!(worse.periods <= 2.0 && worse.done_ns <= MS as f64, "{worse:?}");
        assert!(sums[1] < sums[0], "{sums:?}");
    }
}

/// With the kernel's slices, a CPU may keep up to 5 ms of quota that other CPUs need. Therefore a higher quota may delay work by
/// up to 5 ms for each CPU.
#[test]
fn slices_make_a_difference_of_one_slice_a_cpu() {
    for raise in [more_quota, more_burst] {
        let (worse, sums) = raised(Loop::Open, Setting::SLICE_NS, raise);
        assert!(
            worse.periods == 0.0 && worse.backlog_ns <= 6.0 * 5e6 && sums[1] < sums[0],
            "{worse:?} {sums:?}"
        );
        let (worse, sums) = raised(Loop::Closed, Setting::SLICE_NS, raise);
        assert!(worse.periods <= 2.0 && worse.done_ns <= 250e6 && sums[1] < sums[0], "{worse:?} {sums:?}");
    }
}

/// In the open loop, this law holds only for one thread and without busy loops: late work may use more threads, and a busy loop
/// takes quota that other work then lacks.
#[test]
fn nested_limits_are_never_better_than_each_alone() {
    for replay in LOOPS {
        let mut worse = Worse::default();
        for seed in 0..1_000u64 {
            let mut random = seed;
            let cpus = if replay == Loop::Open { 1 } else { 1 + below(&mut random, 6) };
            let empty = Profile { slot_ns: SLOT_NS, slots: Vec::new() };
            let mut own = profile(&mut random, 60, cpus);
            own.slots.iter_mut().for_each(|slot| slot.presumed_ns = 0);
            let child = Node { parent: Some(0), profile: own, ..Node::default() };
            let tree =
                Tree { nodes: vec![Node { profile: empty, ..Node::default() }, child], capacity: 64.0 };
            let (outer, inner) = (Some(limit(&mut random, cpus)), Some(limit(&mut random, cpus)));
            let phase_ns = below(&mut random, 100 * MS);
            let spread_ns = below(&mut random, 100 * MS);
            let setting =
                Setting { longest: 100, slice_ns: SHORT_NS, spread_ns, ..Setting::new(replay, phase_ns) };
            let replayed = Replay::new(&tree);
            let run = |limits: [Option<Limit>; 2]| replayed.run(&limits, &setting).unwrap().remove(1);
            let both = run([outer, inner]);
            worse.add(&both, &run([outer, None]));
            worse.add(&both, &run([None, inner]));
        }
        println!("{replay:?}: each limit alone against both: {worse:?}");
        assert!(worse.done_ns <= MS as f64 && worse.backlog_ns <= 6.0 * SHORT_NS as f64, "{worse:?}");
    }
}

#[test]
fn without_a_limit_the_profile_comes_out_as_it_is() {
    for seed in 0..500u64 {
        let mut random = seed;
        let mut profile = profile(&mut random, 60, 4);
        profile.slots.iter_mut().for_each(|slot| (slot.waited_ns, slot.firm_ns) = (0, slot.ran_ns));
        for replay in LOOPS {
            for limit in [None, Some(crate::limit(6_400 * MS, 100 * MS))] {
                let outcome = single(&profile, limit, &Setting::new(replay, below(&mut random, 100 * MS)));
                let extra_ns = |slot: &Slot| if replay == Loop::Open { slot.presumed_ns } else { 0 };
                let ran_ns: u64 = profile.slots.iter().map(|slot| slot.ran_ns + extra_ns(slot)).sum();
                let last =
                    profile.slots.iter().rposition(|slot| slot.ran_ns > 0).map_or(0, |at| at as u64 + 1);
                assert!(outcome.ran_ns.abs_diff(ran_ns) <= 100, "{seed}: {outcome:?}");
                assert!(outcome.duration_ns.abs_diff(profile.length_ns()) <= 100, "{seed}: {outcome:?}");
                assert!(outcome.done_ns.unwrap().abs_diff(last * SLOT_NS) <= 100, "{seed}: {outcome:?}");
                assert_eq!((outcome.throttled_periods, outcome.throttled_ns), (0, 0), "{seed}");
            }
        }
    }
}

#[test]
fn waiting_is_taken_out_in_the_closed_loop() {
    let mut profile = constant(0.25, 100);
    profile.slots.iter_mut().for_each(|slot| slot.waited_ns = 3 * slot.ran_ns);
    let outcome = single(&profile, None, &Setting::new(Loop::Closed, 0));
    assert_eq!(outcome.duration_ns, profile.length_ns() / 4);
    assert_eq!(outcome.ran_ns, profile.length_ns() / 4);
    // A task runs, waits and sleeps in turn. The length of its sleep does not change.
    profile.slots.iter_mut().for_each(|slot| slot.waited_ns = 2 * slot.ran_ns);
    let outcome = single(&profile, None, &Setting::new(Loop::Closed, 0));
    assert_eq!(outcome.duration_ns, profile.length_ns() / 2);
    assert_eq!(outcome.ran_ns, profile.length_ns() / 4);
}

/// N busy loops with a quota of q CPUs run until the quota is used up. They stall for the rest of the period P: P (1 - q / N).
#[test]
fn busy_loops_stall_for_the_rest_of_each_period() {
    for (loops, quota_ms) in [(1, 50), (2, 50), (4, 100), (4, 30), (3, 250), (8, 400)] {
        for replay in LOOPS {
            // The replay has 163 periods, and the first period begins with the first slot.
            let setting = Setting { longest: 100, ..Setting::new(replay, 0) };
            let outcome =
                single(&constant(loops as f64, 1_000), Some(crate::limit(quota_ms * MS, 100 * MS)), &setting);
            let stall_ns = 1e8 - (quota_ms * MS) as f64 / loops as f64;
            let mean_ns = outcome.throttled_ns as f64 / outcome.stalls.count as f64;
            assert!(
                outcome.throttled_periods + 1 >= outcome.periods && outcome.periods >= 162,
                "{outcome:?}"
            );
            assert!(
                (mean_ns / stall_ns - 1.0).abs() < 0.01,
                "{loops} loops, {quota_ms} ms: {mean_ns} {stall_ns}"
            );
            // A CPU runs at most one slice longer than another CPU.
            let p50_ns = outcome.stalls.quantile_ns(0.5).unwrap() as f64;
            assert!(
                (p50_ns - stall_ns).abs() <= 5e6 + 0.01 * stall_ns,
                "{loops} loops, {quota_ms} ms: {p50_ns}"
            );
            if replay == Loop::Open {
                assert_eq!(outcome.ran_ns, 163 * quota_ms * MS);
                assert_eq!(outcome.throttled_ns + outcome.ran_ns, loops * outcome.duration_ns);
                assert_eq!(outcome.unused_quota_ns, Some(0));
            }
        }
    }
}

#[test]
fn constant_demand_does_not_depend_on_the_phase() {
    for (cpus, quota_ms) in [(1.0, 40), (2.5, 120), (0.5, 60), (3.7, 55)] {
        for replay in LOOPS {
            let of = |phase_ms: u64| {
                let setting = Setting { longest: 16, ..Setting::new(replay, phase_ms * MS) };
                single(&constant(cpus, 600), Some(crate::limit(quota_ms * MS, 100 * MS)), &setting)
            };
            let first = of(0);
            for phase_ms in [1, 25, 50, 99] {
                let other = of(phase_ms);
                // The first period is shorter than the others, but has a whole quota.
                let period_ns = 1e8 * cpus.ceil();
                assert!(
                    first.throttled_periods.abs_diff(other.throttled_periods) <= 1,
                    "{first:?} {other:?}"
                );
                assert!(
                    first.done_ns.unwrap().abs_diff(other.done_ns.unwrap()) <= 100 * MS,
                    "{first:?} {other:?}"
                );
                assert!(
                    first.throttled_ns.abs_diff(other.throttled_ns) as f64 <= period_ns * 1.1,
                    "{first:?} {other:?}"
                );
            }
        }
    }
}

/// Replays demands of any size, in slots of any length, under any limit. If a replay made no progress, this test would not end.
#[test]
fn every_replay_ends() {
    let size = |random: &mut u64, bits: u64| {
        let end = 1 << below(random, bits);
        below(random, end)
    };
    for seed in 0..500u64 {
        let mut random = seed;
        let slot_ns = 1_000 + size(&mut random, 25);
        let slot = |random: &mut u64| Slot {
            ran_ns: size(random, 40),
            waited_ns: size(random, 40),
            firm_ns: size(random, 40),
            presumed_ns: size(random, 40),
        };
        let slots = (0..20).map(|_| slot(&mut random)).collect();
        let limit = Limit {
            quota_ns: Limit::LEAST_NS + size(&mut random, 32),
            period_ns: Limit::LEAST_NS + size(&mut random, 30),
            burst_ns: size(&mut random, 40),
        };
        let node = |parent| Node { parent, limit: Some(limit), threads: None, profile: Profile::default() };
        let capacity = [0.01, 1.5, 300.0][below(&mut random, 3) as usize];
        let mut tree = Tree { nodes: vec![node(None), node(Some(0))], capacity };
        tree.nodes[0].profile = Profile { slot_ns, slots };
        tree.nodes[1].profile = tree.nodes[0].profile.clone();
        for replay in LOOPS {
            let setting = Setting { longest: 5, ..Setting::new(replay, size(&mut random, 40)) };
            let outcomes = Replay::new(&tree).run(&crate::limits(&tree), &setting).unwrap();
            assert!(outcomes[1].ran_ns <= outcomes[0].ran_ns, "{seed}: {outcomes:?}");
        }
    }
}
