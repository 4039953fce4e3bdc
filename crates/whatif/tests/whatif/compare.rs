//! The simulation against the reference.

use cgscope_whatif::{Loop, Outcome, Replay, Setting, Tree};

use crate::{
    random::{below, tree},
    reference::{Figures, Reference},
};

/// Steps of the reference, ns, from coarse to fine. The next one is used where the figures differ: an event that falls close to a
/// refill may fall on its other side in steps, and then a whole period differs.
const STEPS_NS: [u64; 3] = [100_000, 20_000, 4_000];

/// A difference that is accepted at any step: a share of the duration, and of the CPUs for sums over CPUs.
const TOLERANCE: f64 = 0.004;

/// The first figure that differs by more than the tolerance.
fn difference(tree: &Tree, found: &[Outcome], plain: &[Figures], times: f64) -> Option<String> {
    let cpus = tree.capacity.iter().copied().fold(1.0, f64::max);
    for (at, (found, plain)) in found.iter().zip(plain).enumerate() {
        let one = plain.duration_ns.max(1e8);
        let (done, plain_done) = (found.done_ns.map(|ns| ns as f64), plain.done_ns);
        let figures = [
            ("periods", found.periods as f64, plain.periods as f64, 1.0 / TOLERANCE),
            ("throttled periods", found.throttled_periods as f64, plain.throttled_periods as f64, 1.0 / TOLERANCE),
            ("throttled", found.throttled_ns as f64, plain.throttled_ns, one * cpus),
            ("limited", found.limited_ns as f64, plain.limited_ns, one),
            ("stalled", found.stalled_ns as f64, plain.stalled_ns, one),
            ("ran", found.ran_ns as f64, plain.ran_ns, one * cpus),
            ("duration", found.duration_ns as f64, plain.duration_ns, one),
            ("backlog", found.backlog_ns as f64, plain.backlog_ns, one * cpus),
            ("done", done.unwrap_or(0.0), plain_done.unwrap_or(0.0), if done.is_some() == plain_done.is_some() { one } else { 0.0 }),
        ];
        for (name, a, b, scale) in figures {
            if (a - b).abs() > scale * TOLERANCE * times {
                return Some(format!("{name} of cgroup {at}: {a:.0}, in steps {b:.0}"));
            }
        }
    }
    None
}

/// Compares random trees of up to `most` cgroups. Returns the number of those that differ at each step.
fn compare(cases: u64, most: u64, replay: Loop) -> [usize; STEPS_NS.len()] {
    let mut differing = [0; STEPS_NS.len()];
    for seed in 0..cases {
        let mut random = seed * 4 + most;
        let tree = tree(&mut random, most, 30);
        let tick_ns = [0, 0, 1_000_000, 4_000_000][below(&mut random, 4) as usize];
        let phase_ns = below(&mut random, 1_000) * 100_000;
        let setting = Setting { tick_ns, longest: 3, ..Setting::new(replay, phase_ns) };
        let limits = tree.limits();
        let found = Replay::new(&tree).unwrap().run(&limits, &setting).unwrap();
        for (step_ns, differing) in STEPS_NS.into_iter().zip(&mut differing) {
            let plain = Reference::run(&tree, &limits, setting, step_ns);
            let Some(difference) = difference(&tree, &found, &plain, 1.0) else { break };
            *differing += 1;
            if step_ns == STEPS_NS[2] { println!("{seed} {difference} {tick_ns}"); }
        }
    }
    println!("{cases} {most} {replay:?}: {differing:?} differ");
    differing
}

#[test]
fn single() {
    compare(1_000, 1, Loop::Open);
    compare(1_000, 1, Loop::Closed);
}
#[test]
fn trees() {
    compare(1_000, 5, Loop::Open);
    compare(1_000, 5, Loop::Closed);
}
