//! Tests bounds, and the comparison of a simulation with the recorded figures.

use cgscope_whatif::{
    Bounds, Check, Figures, Limit, Loop, Outcome, PHASES, Profile, Replay, Setting, Slot, settings,
};

use crate::random::{SLOT_NS, profile};

const MS: u64 = 1_000_000;
const PERIOD_NS: u64 = 100 * MS;

fn replay(limit: Limit) -> Replay {
    let profile = profile(&mut 7, 2_000, 3);
    Replay::new(&crate::single(profile, Some(limit), 8.0))
}

fn outcomes(replay: &Replay, limit: Limit, loops: &[Loop], phases: u32) -> Vec<Outcome> {
    let settings = settings(loops, phases, 0, limit.period_ns).into_iter();
    settings.map(|setting| replay.run(&[Some(limit)], &setting).unwrap().swap_remove(0)).collect()
}

fn figures(replay: &Replay, limit: Limit) -> Figures {
    Figures::of(&outcomes(replay, limit, &Loop::BOTH, PHASES)).unwrap()
}

#[test]
fn bounds_contain_the_figures_of_every_cell() {
    let limit = crate::limit(110 * MS, PERIOD_NS);
    let replay = replay(limit);
    let outcomes = outcomes(&replay, limit, &Loop::BOTH, PHASES);
    assert_eq!(outcomes.len(), 16);
    let figures = figures(&replay, limit);
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
    let of = |node| settings(&Loop::BOTH, PHASES, node, PERIOD_NS);
    let settings = of(0);
    assert_eq!(settings.iter().filter(|setting| setting.replay == Loop::Open).count() * 2, settings.len());
    for node in [0, 1, 5] {
        let phases = || of(node).into_iter().map(|one| one.phase_of(node, PERIOD_NS));
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
    let limit = crate::limit(27 * MS, PERIOD_NS);
    let replay = Replay::new(&crate::single(profile, Some(limit), 2.0));
    let of =
        |phases| Figures::of(&outcomes(&replay, limit, &[Loop::Open], phases)).unwrap().throttled_ns_per_s;
    let (few, all) = (of(PHASES), of(500));
    assert!(all.high > all.low * 1.2, "the phase matters: {all:?}");
    assert!(few.high - few.low > 0.8 * (all.high - all.low), "{few:?} of {all:?}");
}

#[test]
fn bounds_are_wider_by_as_much_as_the_limit_in_force_is_off() {
    let limit = crate::limit(90 * MS, PERIOD_NS);
    let replay = replay(limit);
    let of = |quota_ns| figures(&replay, Limit { quota_ns, ..limit });
    let (figures, other) = (of(90 * MS), of(70 * MS));
    let check = |recorded_share, recorded_ns_per_s| Check { figures, recorded_share, recorded_ns_per_s };
    let (share, time) = (figures.throttled_share, figures.throttled_ns_per_s);
    assert_eq!(check(share.low, time.high).widened(other), other, "within the bounds");
    let wider = check(share.high * 1.05, time.low * 0.9).widened(other);
    let (low, high) = (other.throttled_ns_per_s.low * 0.9, other.throttled_share.high * 1.05);
    assert!((wider.throttled_ns_per_s.low - low).abs() < 1.0, "{wider:?}");
    assert!((wider.throttled_share.high - high.min(1.0)).abs() < 1e-9, "{wider:?}");
    assert_eq!(wider.throttled_ns_per_s.high, other.throttled_ns_per_s.high);
    assert_eq!(wider.throttled_share.low, other.throttled_share.low);
    // The recorded share of 2 points is many times the simulated maximum of 0.01 points.
    let tiny = Figures { throttled_share: Bounds { low: 0.0, high: 0.0001 }, ..figures };
    let tiny = Check { figures: tiny, ..check(0.02, time.high) };
    assert!(tiny.agrees());
    let most = (other.throttled_share.high * 1.1).min(1.0);
    assert!((tiny.widened(other).throttled_share.high - most).abs() < 1e-9, "{tiny:?}");
}

#[test]
fn a_check_accepts_what_the_limit_in_force_does_and_nothing_else() {
    let limit = crate::limit(90 * MS, PERIOD_NS);
    let replay = replay(limit);
    let outcome = &outcomes(&replay, limit, &Loop::BOTH, 1)[0];
    let figures = figures(&replay, limit);
    let check = |periods, throttled_ns_per_s| Check {
        figures,
        recorded_share: outcome.throttled_share() * periods,
        recorded_ns_per_s: outcome.throttled_ns_per_s() * throttled_ns_per_s,
    };
    assert!(check(1.0, 1.0).agrees());
    assert!(![check(0.0, 0.0), check(0.0, 1.0), check(1.0, 3.0)].iter().any(Check::agrees));
}

#[test]
fn a_limit_that_is_too_short_for_the_kernel_is_not_replayed() {
    let profile = Profile { slot_ns: SLOT_NS, slots: vec![Slot::default()] };
    let limit = crate::limit(10, Limit::LEAST_NS);
    assert_eq!(
        Replay::new(&crate::single(profile, None, 1.0)).run(&[Some(limit)], &Setting::new(Loop::Open, 0)),
        None
    );
}
