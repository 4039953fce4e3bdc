extern crate std;

use std::{collections::BTreeMap, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::{
    history::{
        Taken,
        tests::{BEGIN_NS, Run, empty, interrupted, run, run_interrupted, schedules},
    },
    waits::tests::host::{Maps, Simulated},
};

/// Charged time by the party that ran, ns.
#[derive(Default)]
struct Charges(BTreeMap<u64, u64>);

impl Charge<()> for Charges {
    fn charge(&mut self, who: u64, ns: u64, _: Option<u64>) {
        *self.0.entry(who).or_default() += ns;
    }
}

const ALL_STEPS: u64 = (LOOK_BACK + STEPS_OF_BLOCKS) as u64;

/// Walks over `[from_ns, to_ns]` in the same way as the hook.
fn walked(ring: &mut Ring, victim: u64, from_ns: u64, to_ns: u64, steps: u64) -> (Walk, Charges, bool) {
    let mut walk = Walk { from_ns, to_ns, victim, steps_left: steps, ..Walk::default() };
    let mut charges = Charges::default();
    walk.begin(ring.head);
    for _ in 0..LOOK_BACK {
        if walk.step(ring, &mut charges) {
            break;
        }
    }
    if walk.is_at_blocks() {
        for _ in 0..STEPS_OF_BLOCKS {
            if walk.step_of_blocks(ring, &mut charges) {
                break;
            }
        }
    }
    let is_cut = walk.end();
    (walk, charges, is_cut)
}

/// Splits the span directly, run by run, and returns the sum for each party.
fn split(runs: &[Run], victim: u64, from_ns: u64, to_ns: u64) -> (ByCause, BTreeMap<u64, u64>) {
    let (mut parts, mut ran) = (ByCause::default(), BTreeMap::new());
    let mut clock_ns = BEGIN_NS;
    for (who, ns) in runs {
        let (begin_ns, end_ns) = (clock_ns.max(from_ns), (clock_ns + ns).min(to_ns));
        clock_ns += ns;
        let ns = end_ns.saturating_sub(begin_ns);
        parts[cause_of(*who, victim) as usize] += ns;
        *ran.entry(*who).or_default() += ns;
    }
    (parts, ran)
}

/// Splits the span directly, run by run. The interrupt time and stolen time of a run are placed at its end.
fn split_interrupted(runs: &[(Run, Taken)], victim: u64, from_ns: u64, to_ns: u64) -> ByCause {
    let mut parts = ByCause::default();
    let mut clock_ns = BEGIN_NS;
    for ((who, ns), taken) in runs {
        let phases = [
            (cause_of(*who, victim), ns - taken.ns()),
            (Cause::Irq, taken.irq_ns),
            (Cause::Stolen, taken.stolen_ns),
        ];
        for (cause, ns) in phases {
            let end_ns = clock_ns + ns;
            parts[cause as usize] += end_ns.min(to_ns).saturating_sub(clock_ns.max(from_ns));
            clock_ns = end_ns;
        }
    }
    parts
}

fn begin_of(runs: &[Run], at: usize) -> u64 {
    BEGIN_NS + runs[..at].iter().map(|(_, ns)| ns).sum::<u64>()
}

proptest! {
    /// If a wait begins with a slice, or within a slice without merged kernel threads, every part is exact.
    #[test]
    fn a_wait_within_the_slices_is_split_as_by_the_reference(
        runs in schedules(4, 300), victim in 1u64..6, at in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!runs.is_empty());
        let mut ring = empty();
        let to_ns = run(&mut ring, &runs);
        let mut from_ns = begin_of(&runs, at.index(runs.len()));
        // Move the start of the wait to the start of a slice.
        let head = ring.head;
        from_ns = (1..=head).map(|number| ring.slice(number).since_ns).rfind(|since_ns| *since_ns <= from_ns).unwrap();
        let (walk, charges, is_cut) = walked(&mut ring, victim, from_ns, to_ns, ALL_STEPS);
        let (parts, ran) = split(&runs, victim, from_ns, to_ns);
        prop_assert!(!is_cut);
        prop_assert_eq!(walk.parts, parts);
        for (who, ns) in ran.iter().filter(|(who, _)| **who != KERNEL) {
            prop_assert_eq!(charges.0.get(who).copied().unwrap_or(0), *ns, "{}", who);
        }
    }

    /// Interrupts and stolen time are separate causes. Their parts are exact if the wait begins with a slice. Otherwise the
    /// difference is less than the length of that slice, because it is unknown when in the slice they happened.
    #[test]
    fn interrupts_and_stolen_time_are_split_as_by_the_reference(
        runs in interrupted(4, 300), victim in 1u64..6, at in any::<prop::sample::Index>(), later in 0u64..1_000_000,
    ) {
        prop_assume!(!runs.is_empty());
        let mut ring = empty();
        let to_ns = run_interrupted(&mut ring, &runs);
        let plain: Vec<Run> = runs.iter().map(|(run, _)| *run).collect();
        let begin_ns = begin_of(&plain, at.index(runs.len()));
        let head = ring.head;
        let starts: Vec<u64> = (1..=head).map(|number| ring.slice(number).since_ns).chain([to_ns]).collect();
        let slice = starts.partition_point(|since_ns| *since_ns <= begin_ns).min(starts.len() - 1);
        let (start_ns, end_ns) = (starts[slice - 1], starts[slice]);
        for (from_ns, off_ns) in [(start_ns, 0), ((start_ns + later).min(end_ns), end_ns - start_ns)] {
            let (walk, ..) = walked(&mut ring, victim, from_ns, to_ns, ALL_STEPS);
            let parts = split_interrupted(&runs, victim, from_ns, to_ns);
            prop_assert_eq!(walk.parts.iter().sum::<u64>(), to_ns - from_ns, "the parts sum up");
            for (ours, theirs) in walk.parts.iter().zip(parts) {
                prop_assert!(ours.abs_diff(theirs) <= off_ns, "{:?} {:?}", walk.parts, parts);
            }
        }
    }

    /// If a wait begins with a block, every part is exact. Otherwise the difference is less than the length of that block.
    #[test]
    fn a_wait_that_reaches_into_blocks_is_split_as_by_the_reference(
        runs in schedules(6, 6_000), victim in 1u64..8, at in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!runs.is_empty());
        let mut ring = empty();
        let to_ns = run(&mut ring, &runs);
        let anywhere_ns = begin_of(&runs, at.index(runs.len()));
        let head = ring.head;
        let mut begins: Vec<u64> = (0..=head / BLOCK as u64).map(|block| ring.block(block * BLOCK as u64).since_ns).collect();
        begins[0] = BEGIN_NS;
        let after = begins.partition_point(|since_ns| *since_ns <= anywhere_ns);
        let begin_ns = begins[after - 1];
        let end_ns = begins.get(after).copied().unwrap_or(to_ns);
        for (from_ns, off_ns) in [(begin_ns, 0), (anywhere_ns, end_ns - begin_ns)] {
            // The start of block 0 is unknown, because block 0 has no slice before it.
            prop_assume!(from_ns != BEGIN_NS);
            let (walk, charges, is_cut) = walked(&mut ring, victim, from_ns, to_ns, ALL_STEPS);
            let (parts, ran) = split(&runs, victim, from_ns, to_ns);
            prop_assert!(!is_cut);
            prop_assert_eq!(walk.parts.iter().sum::<u64>(), to_ns - from_ns, "the parts sum up");
            for (ours, theirs) in walk.parts.iter().zip(parts) {
                prop_assert!(ours.abs_diff(theirs) <= off_ns, "{:?} {:?}", walk.parts, parts);
            }
            for who in (1..=6).filter(|who| *who != victim) {
                let (ours, theirs) = (charges.0.get(&who).copied().unwrap_or(0), ran.get(&who).copied().unwrap_or(0));
                prop_assert!(ours.abs_diff(theirs) <= off_ns, "{}: {} {}", who, ours, theirs);
            }
        }
    }

    /// With any number of steps, the parts sum to the wait, and what the walk did not reach is unattributed.
    #[test]
    fn a_walk_that_is_cut_short_still_sums_up(runs in schedules(9, 3_000), steps in 0u64..3_000) {
        prop_assume!(!runs.is_empty());
        let mut ring = empty();
        let to_ns = run(&mut ring, &runs);
        let (walk, _, is_cut) = walked(&mut ring, 1, BEGIN_NS, to_ns, steps);
        prop_assert_eq!(walk.parts.iter().sum::<u64>(), to_ns - BEGIN_NS);
        let (parts, _) = split(&runs, 1, BEGIN_NS, to_ns);
        for cause in [Cause::OwnCgroup, Cause::OtherCgroup, Cause::Wakeup, Cause::Kernel] {
            prop_assert!(walk.parts[cause as usize] <= parts[cause as usize] + FOLDED_NS, "{:?}", cause);
        }
        if is_cut {
            prop_assert!(walk.parts[Cause::Unattributed as usize] != 0);
        }
    }
}

/// Maximum time that the walk counts in a wrong part because of merged kernel threads, if the wait begins within a block, ns.
const FOLDED_NS: u64 = 64 * 50_000;

#[test]
fn a_cpu_on_which_hundreds_of_cgroups_take_turns_stops_looking_back() {
    let turns: Vec<Run> = (0..4_000).map(|turn| (1 + turn % 600, 2_000)).collect();
    let mut ring = empty();
    let end_ns = run(&mut ring, &turns);
    let mut budget = Budget::default();
    // A wait ends every 2 us, and 599 other cgroups ran during each wait. Such waits soon use up all saved steps.
    let mut steps = Vec::new();
    for switch in 0..1_000 {
        let clock_ns = end_ns + switch * 2_000;
        let allowed = budget.steps(clock_ns);
        let (walk, ..) = walked(&mut ring, 1, end_ns - 599 * 2_000, end_ns, allowed);
        budget.pay(walk.steps_left);
        steps.push(allowed - walk.steps_left);
    }
    assert!(steps[0] > 350, "an ordinary host looks back as far as it must: {steps:?}");
    assert!(steps[..10].iter().sum::<u64>() <= ALL_STEPS + 10 * (FREE_STEPS + 1), "{steps:?}");
    assert!(steps[100..].iter().all(|steps| *steps <= FREE_STEPS + 1), "{steps:?}");
    // After one second without waits, all steps are saved again.
    assert_eq!(budget.steps(end_ns + 1_000_000_000), ALL_STEPS + FREE_STEPS);
}

#[test]
fn the_hook_pays_for_its_steps_and_a_reader_does_not() {
    let _maps = Maps::new(true);
    let turns: Vec<Run> = (0..4_000).map(|turn| (1 + turn % 6, 2_000)).collect();
    let end_ns = run(Simulated::ring(0).expect("a CPU"), &turns);
    // The wait begins at the start of a block, so the walk can explain all of it.
    let from_ns = begin_of(&turns, 31 * BLOCK - 1);
    let unexplained_ns = |which, charging| {
        let work = Simulated::work(which).expect("its memory");
        work.begin(1, charging, end_ns);
        work.span(0, from_ns, end_ns);
        look_back::<Simulated>(which);
        assert_eq!(work.walk.parts.iter().sum::<u64>(), end_ns - from_ns);
        work.walk.parts[Cause::Unattributed as usize]
    };
    let hook: Vec<u64> = (0..20).map(|_| unexplained_ns(Work::HOOK, 0)).collect();
    assert!(hook[0] == 0 && hook[19] > 0, "{hook:?}");
    let cut = hook.iter().filter(|ns| **ns != 0).count() as u64;
    assert_eq!(Maps::losses().get(Loss::LookBackCut.name()), Some(&cut));
    assert_eq!(unexplained_ns(Work::READER, Work::NOBODY), 0);
    assert_eq!(Maps::losses().get(Loss::LookBackCut.name()), Some(&cut));
}

/// A block with few parties takes as many steps as a full block. Therefore the number of blocks that a walk can reach is known.
#[test]
fn a_block_costs_a_step_for_each_entry_one_to_enter_it_and_one_to_leave_it() {
    let turns: Vec<Run> = (0..4_000).map(|turn| (1 + turn % 6, 2_000)).collect();
    let mut ring = empty();
    let end_ns = run(&mut ring, &turns);
    let mut steps_since = |block| {
        let (walk, ..) = walked(&mut ring, 1, begin_of(&turns, block * BLOCK - 1), end_ns, ALL_STEPS);
        ALL_STEPS - walk.steps_left
    };
    assert_eq!(steps_since(31) - steps_since(32), 1 + PARTIES as u64 + 1);
}

/// If only a part of a block is needed, each party gets the same fraction of its time, because it is unknown when in the block
/// the party ran.
#[test]
fn a_wait_that_begins_within_a_block_has_a_share_of_each_of_its_parties() {
    const TURN_NS: u64 = 2_000;
    let turns: Vec<Run> = (0..4_000).map(|turn| (1 + turn % 6, TURN_NS)).collect();
    let mut ring = empty();
    let end_ns = run(&mut ring, &turns);
    let block = begin_of(&turns, 31 * BLOCK - 1);
    for eighth in 1..8 {
        let from_ns = block + eighth * BLOCK as u64 / 8 * TURN_NS;
        let (walk, charges, is_cut) = walked(&mut ring, 1, from_ns, end_ns, ALL_STEPS);
        let (parts, ran) = split(&turns, 1, from_ns, end_ns);
        assert!(!is_cut);
        for (ours, theirs) in walk.parts.iter().zip(parts) {
            assert!(ours.abs_diff(theirs) <= 2 * TURN_NS, "{eighth}: {:?} {parts:?}", walk.parts);
        }
        for who in 2..=6 {
            assert!(charges.0[&who].abs_diff(ran[&who]) <= 2 * TURN_NS, "{eighth}: {:?} {ran:?}", charges.0);
        }
    }
    assert_eq!(in_proportion(1_000, 500, 2_000), 250);
    assert_eq!(in_proportion(1_000, 2_000, 2_000), 1_000);
}

#[test]
fn a_walk_is_cut_by_too_few_steps_or_too_many_parties_and_not_by_the_beginning_of_the_history() {
    let turns: Vec<Run> = (0..4_000).map(|turn| (1 + turn % 6, 2_000)).collect();
    let mut ring = empty();
    let end_ns = run(&mut ring, &turns);
    let from_ns = begin_of(&turns, 31 * BLOCK - 1);
    let (walk, ..) = walked(&mut ring, 1, from_ns, end_ns, ALL_STEPS);
    let needed = ALL_STEPS - walk.steps_left;
    let mut is_cut = |steps| walked(&mut ring, 1, from_ns, end_ns, steps).2;
    assert!(!is_cut(needed) && is_cut(needed - 1));

    let crowd: Vec<Run> = (0..4_000).map(|turn| (1 + turn % (PARTIES as u64 + 1), 2_000)).collect();
    let mut ring = empty();
    let end_ns = run(&mut ring, &crowd);
    let (walk, _, is_cut) = walked(&mut ring, 1, from_ns, end_ns, ALL_STEPS);
    assert!(is_cut && walk.parts[Cause::Unattributed as usize] != 0);

    let mut ring = empty();
    let end_ns = run(&mut ring, &turns[..9]);
    let (walk, _, is_cut) = walked(&mut ring, 1, BEGIN_NS - 500, end_ns, ALL_STEPS);
    assert!(!is_cut && walk.parts[Cause::Unattributed as usize] == 500, "{:?}", walk.parts);
}
