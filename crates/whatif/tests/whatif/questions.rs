//! Tests bounds, and the comparison of a simulation with the recorded figures.

use cgscope_whatif::{
    Bounds, Cells, Check, Error, Figures, Limit, Loop, Node, Outcome, Profile, Replay, Setting, Slot, Tree,
};

use crate::random::{SLOT_NS, profile};

const MS: u64 = 1_000_000;
const PERIOD_NS: u64 = 100 * MS;

fn replay(limit: Limit) -> Replay {
    let profile = profile(&mut 7, 2_000, 3);
    Replay::new(&Tree::single(profile, Some(limit), 8.0)).unwrap()
}

fn outcomes(replay: &Replay, limit: Limit, cells: &Cells) -> Vec<Outcome> {
    let settings = cells.settings(0, limit.period_ns);
    settings.map(|setting| replay.run(&[Some(limit)], &setting).unwrap().swap_remove(0)).collect()
}

fn figures(replay: &Replay, limit: Limit, cells: &Cells) -> Figures {
    Figures::of(&outcomes(replay, limit, cells)).unwrap()
}

#[test]
fn bounds_contain_the_figures_of_every_cell() {
    let limit = Limit::new(110 * MS, PERIOD_NS);
    let (replay, cells) = (replay(limit), Cells::default());
    let outcomes = outcomes(&replay, limit, &cells);
    assert_eq!(outcomes.len(), 16);
    let figures = figures(&replay, limit, &cells);
    for outcome in &outcomes {
        let share = outcome.throttled_share();
        assert!(share >= figures.throttled_share.low && share <= figures.throttled_share.high);
        let (done, time) = (figures.done_ns.unwrap(), outcome.done_ns.unwrap());
        assert!(time >= done.low && time <= done.high);
    }
    assert!(figures.throttled_share.low < figures.throttled_share.high);
    assert!(figures.stall_p50_ns.high <= figures.stall_p99_ns.high && figures.stall_p99_ns.high <= PERIOD_NS);
    assert_eq!(Bounds::<u64>::of([]), None);
    assert_eq!(Bounds::of([3, 1, 2]), Some(Bounds { low: 1, high: 3 }));
}

#[test]
fn phases_are_spread_over_a_period_and_over_its_parts_in_both_loops() {
    let cells = Cells::default();
    let settings: Vec<Setting> = cells.settings(0, PERIOD_NS).collect();
    assert_eq!(settings.iter().filter(|setting| setting.replay == Loop::Open).count() * 2, settings.len());
    for node in [0, 1, 5] {
        let phases = || cells.settings(node, PERIOD_NS).map(|one| one.phase_of(node, PERIOD_NS));
        assert!(phases().eq(settings.iter().map(|setting| setting.phase_ns)), "those of its own grid");
        assert!(phases().all(|phase_ns| phase_ns != 0), "no refill at the start");
        for parts in [1, 2, 3, 4, 5, 10, 20] {
            let part_ns = PERIOD_NS / parts;
            let mut phases: Vec<u64> = phases().map(|phase_ns| phase_ns % part_ns).collect();
            phases.sort_unstable();
            phases.push(phases[0] + part_ns);
            let widest_ns = phases.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(widest_ns < part_ns * 4 / 10, "{parts}: {widest_ns}");
        }
    }
}

/// Bursts every 130 ms begin at ten different points of a period of 100 ms, 10 ms apart. Phases that differ by a multiple of 10
/// ms have the same result.
#[test]
fn a_few_phases_have_nearly_the_bounds_of_all_phases_for_bursts_on_a_clock() {
    let slots = (0..26_000u64).map(|ms| {
        let ran_ns = if ms % 130 < 30 { MS } else { 0 };
        Slot { ran_ns, firm_ns: ran_ns, ..Slot::default() }
    });
    let profile = Profile { slot_ns: MS, slots: slots.collect() };
    let limit = Limit::new(27 * MS, PERIOD_NS);
    let replay = Replay::new(&Tree::single(profile, Some(limit), 2.0)).unwrap();
    let of = |cells: Cells| {
        let cells = Cells { loops: vec![Loop::Open], ..cells };
        figures(&replay, limit, &cells).throttled_ns_per_s
    };
    let (few, all) = (of(Cells::default()), of(Cells { phases: 500, ..Cells::default() }));
    assert!(all.high > all.low * 1.2, "the phase matters: {all:?}");
    assert!(few.high - few.low > 0.8 * (all.high - all.low), "{few:?} of {all:?}");
}

#[test]
fn bounds_are_wider_by_as_much_as_the_limit_in_force_is_off() {
    let limit = Limit::new(90 * MS, PERIOD_NS);
    let (replay, cells) = (replay(limit), Cells::default());
    let figures = |quota_ns| figures(&replay, Limit { quota_ns, ..limit }, &cells);
    let (in_force, other) = (figures(90 * MS), figures(70 * MS));
    let check = |recorded_share, recorded_ns_per_s| Check {
        share: in_force.throttled_share,
        recorded_share,
        throttled_ns_per_s: in_force.throttled_ns_per_s,
        recorded_ns_per_s,
    };
    let (share, time) = (in_force.throttled_share, in_force.throttled_ns_per_s);
    assert_eq!(check(share.low, time.high).widened(other), other, "within the bounds");
    let wider = check(share.high * 1.05, time.low * 0.9).widened(other);
    let (low, high) = (other.throttled_ns_per_s.low * 0.9, other.throttled_share.high * 1.05);
    assert!((wider.throttled_ns_per_s.low - low).abs() < 1.0, "{wider:?}");
    assert!((wider.throttled_share.high - high.min(1.0)).abs() < 1e-9, "{wider:?}");
    assert_eq!(wider.throttled_ns_per_s.high, other.throttled_ns_per_s.high);
    assert_eq!(wider.throttled_share.low, other.throttled_share.low);
    // The recorded share of 2 points is many times the simulated maximum of 0.01 points.
    let tiny = Check { share: Bounds { low: 0.0, high: 0.0001 }, ..check(0.02, time.high) };
    assert!(tiny.periods_agree());
    let most = (other.throttled_share.high * 1.1).min(1.0);
    assert!((tiny.widened(other).throttled_share.high - most).abs() < 1e-9, "{tiny:?}");
}

#[test]
fn a_check_accepts_what_the_limit_in_force_does_and_nothing_else() {
    let limit = Limit::new(90 * MS, PERIOD_NS);
    let (replay, cells) = (replay(limit), Cells::default());
    let outcome = &outcomes(&replay, limit, &Cells { phases: 1, ..cells.clone() })[0];
    let figures = figures(&replay, limit, &cells);
    let check = |periods, throttled_ns_per_s| Check {
        share: figures.throttled_share,
        recorded_share: outcome.throttled_share() * periods,
        throttled_ns_per_s: figures.throttled_ns_per_s,
        recorded_ns_per_s: outcome.throttled_ns_per_s() * throttled_ns_per_s,
    };
    let agrees = |check: Check| (check.periods_agree(), check.times_agree());
    assert_eq!(agrees(check(1.0, 1.0)), (true, true));
    assert_eq!(agrees(check(0.0, 0.0)), (false, false));
    assert_eq!(agrees(check(1.0, 3.0)), (true, false));
}

#[test]
fn wrong_trees_and_limits_are_errors() {
    let profile = Profile { slot_ns: SLOT_NS, slots: vec![Slot::default()] };
    let node = |parent| Node { parent, profile: profile.clone(), ..Node::default() };
    let new = |nodes: Vec<Node>, capacity: Vec<f64>| Replay::new(&Tree { nodes, capacity }).map(|_| ());
    assert_eq!(new(vec![], vec![1.0]), Err(Error::Empty));
    assert_eq!(new(vec![node(Some(0))], vec![1.0]), Err(Error::Order(0)));
    assert_eq!(new(vec![node(None)], vec![]), Err(Error::Capacity));
    assert_eq!(new(vec![node(None)], vec![0.0]), Err(Error::Capacity));
    let short = Node { profile: Profile { slot_ns: 1, slots: Vec::new() }, ..Node::default() };
    assert_eq!(new(vec![node(None), short], vec![1.0]), Err(Error::Slots(1)));
    let replay = Replay::new(&Tree::single(profile.clone(), None, 1.0)).unwrap();
    let setting = Setting::new(Loop::Open, 0);
    assert_eq!(replay.run(&[], &setting), Err(Error::Limits));
    assert_eq!(replay.run(&[Some(Limit::new(10, Limit::LEAST_NS))], &setting), Err(Error::Limit(0)));
    assert!(Error::Order(3).to_string().contains("cgroup 3"));
}
