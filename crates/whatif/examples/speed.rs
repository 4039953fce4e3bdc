//! Measures replays of a synthetic hour: `cargo run --release -p cgscope-whatif --example speed`.
//!
//! The demand changes with the minute between quiet and two and a half CPUs. Each line is the best of several runs, and its
//! ratio to a plain pass over the slots.

use std::{hint::black_box, time::Instant};

use cgscope_whatif::{Limit, Loop, Node, Profile, Replay, Setting, Slot, Tree};

const SLOT_NS: u64 = 1 << 24;
const PERIOD_NS: u64 = 100_000_000;

/// A number below `end` (splitmix64).
fn below(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % end
}

fn hour(mut random: u64) -> Profile {
    let slots = (0..3_600_000_000_000 / SLOT_NS).map(|at| {
        let minute = at / 3_576;
        let most_ns = SLOT_NS * (1 + minute % 5) / 2;
        let busy_ns = most_ns / 4 + below(&mut random, most_ns * 3 / 4);
        let waited_ns = below(&mut random, 8) / 7 * below(&mut random, SLOT_NS / 4);
        Slot { ran_ns: busy_ns, waited_ns, firm_ns: busy_ns, presumed_ns: 0 }
    });
    Profile { slot_ns: SLOT_NS, slots: slots.collect() }
}

/// The best of several runs, ms.
fn best_ms(runs: u32, mut run: impl FnMut()) -> f64 {
    let times = (0..runs).map(|_| {
        let begin = Instant::now();
        run();
        begin.elapsed().as_secs_f64() * 1e3
    });
    times.fold(f64::INFINITY, f64::min)
}

fn main() {
    let profile = hour(1);
    let plain_ms = best_ms(7, || {
        let sum = profile.slots.iter().fold(0, |sum, slot| sum + slot.firm_ns + slot.presumed_ns);
        black_box(sum);
    });
    println!("{} slots, a plain pass takes {plain_ms:.3} ms", profile.slots.len());
    let prepare_ms = best_ms(7, || {
        black_box(Replay::new(&Tree::single(profile.clone(), None, 8.0)).expect("a tree"));
    });
    println!("to prepare, with a copy: {prepare_ms:.2} ms");
    let tree = Tree::single(profile.clone(), None, 8.0);
    measure("one cgroup", &tree, 1, plain_ms);
    let parent = Node { limit: None, ..Node::default() };
    let mut nodes = vec![Node { profile: Profile { slot_ns: SLOT_NS, slots: Vec::new() }, ..parent }];
    nodes.extend((1..10).map(|seed| Node { parent: Some(0), profile: hour(seed), ..Node::default() }));
    measure("ten cgroups", &Tree { nodes, capacity: vec![64.0] }, 10, plain_ms);
}

fn measure(name: &str, tree: &Tree, cgroups: u64, plain_ms: f64) {
    let replay = Replay::new(tree).expect("a tree");
    for replay_loop in [Loop::Open, Loop::Closed] {
        for cpus in [0.5, 1.0, 1.5, 2.0, 3.0] {
            let quota_ns = (cpus * PERIOD_NS as f64) as u64;
            let mut limits = vec![Some(Limit::new(quota_ns, PERIOD_NS)); tree.nodes.len()];
            if cgroups > 1 {
                limits[0] = Some(Limit::new(quota_ns * 5, PERIOD_NS));
            }
            let setting = Setting { longest: 2, ..Setting::new(replay_loop, 12_345_678) };
            let mut share = (0, 0);
            let ms = best_ms(if cgroups == 1 { 7 } else { 2 }, || {
                let outcomes = black_box(replay.run(&limits, &setting).expect("limits"));
                let last = outcomes.last().expect("a cgroup");
                share = (last.throttled_periods, last.periods);
            });
            let ratio = ms / plain_ms / cgroups as f64;
            println!(
                "{name}, {replay_loop:?}, {cpus} CPUs: {ms:.2} ms, {ratio:.0} plain passes; {} of {} throttled",
                share.0, share.1
            );
        }
    }
}
