//! Generates random profiles and trees.

use cgscope_whatif::{Limit, Node, Profile, Slot, Tree};

/// Returns a random number below `end` (splitmix64).
pub fn below(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % end
}

/// Length of a slot in tests, ns: a multiple of the reference's step.
pub const SLOT_NS: u64 = 16_300_000;

/// Returns a demand with quiet and busy phases, of up to `cpus` CPUs.
pub fn profile(random: &mut u64, slots: usize, cpus: u64) -> Profile {
    let mut profile = Profile { slot_ns: SLOT_NS, slots: Vec::with_capacity(slots) };
    while profile.slots.len() < slots {
        let (kind, length) = (below(random, 5), 1 + below(random, 12));
        let most_ns = SLOT_NS * cpus;
        for _ in 0..length {
            let busy_ns = match kind {
                0 => 0,
                1 => below(random, SLOT_NS / 8),
                2 => below(random, SLOT_NS),
                3 => below(random, most_ns),
                _ => SLOT_NS * (1 + below(random, cpus)) - below(random, SLOT_NS / 10),
            };
            let waited_ns = [0, 0, below(random, SLOT_NS), busy_ns][below(random, 4) as usize];
            let ran_ns = if below(random, 20) == 0 { 0 } else { busy_ns };
            let presumed_ns = if kind == 2 && below(random, 3) == 0 { SLOT_NS } else { 0 };
            profile.slots.push(Slot { ran_ns, waited_ns, firm_ns: busy_ns, presumed_ns });
        }
    }
    profile.slots.truncate(slots);
    profile
}

/// Returns a limit of 0.05 to about `cpus` CPUs, in whole steps of the reference.
pub fn limit(random: &mut u64, cpus: u64) -> Limit {
    let period_ns = [100, 100, 50, 20, 250][below(random, 5) as usize] * 1_000_000;
    let quota_ns = period_ns / 20 + below(random, cpus * 20) * period_ns / 20 + below(random, 50) * 13_000;
    let burst_ns = if below(random, 3) == 0 { below(random, quota_ns) } else { 0 };
    Limit { quota_ns, period_ns, burst_ns }
}

/// Returns a tree of up to `most` cgroups. Most of these cgroups have limits.
pub fn tree(random: &mut u64, most: u64, slots: usize) -> Tree {
    let count = 1 + below(random, most);
    let cpus = 1 + below(random, 6);
    let mut nodes = Vec::new();
    for at in 0..count {
        let parent = (at > 0 && below(random, 5) > 0).then(|| below(random, at) as usize);
        let threads = (below(random, 3) == 0).then(|| 1 + below(random, cpus) as u32);
        let limit = (below(random, 4) > 0).then(|| limit(random, cpus));
        nodes.push(Node { parent, limit, threads, profile: profile(random, slots, cpus) });
    }
    let is_plenty = below(random, 2) == 0;
    let capacity = if is_plenty { (cpus * count) as f64 } else { 0.5 + below(random, 4 * cpus) as f64 / 4.0 };
    Tree { nodes, capacity }
}
