//! A part of a long history, in which all cells are simulated to find those that matter.

use cgscope_whatif::{Node, Outcome, Profile, Tree};

/// A longer history is simulated in part first, ns.
const LONG_NS: u64 = 600_000_000_000;
/// The part has this number of stretches of this length, ns: the busiest one in each of as many equal parts of the history.
const STRETCHES: u64 = 18;
const STRETCH_NS: u64 = 10_000_000_000;

/// A figure, and the difference that does not matter.
type Tolerated = (fn(&Outcome) -> f64, f64);

/// The figures of [`Figures`](cgscope_whatif::Figures).
const FIGURES: [Tolerated; 6] = [
    (Outcome::throttled_share, 0.005),
    (Outcome::throttled_ns_per_s, 5e6),
    (|outcome| outcome.unused_share().unwrap_or(0.0), 0.005),
    (|outcome| outcome.done_ns.map_or(f64::MAX, |ns| ns as f64), (STRETCHES * STRETCH_NS / 200) as f64),
    (|outcome| outcome.stalls.quantile_ns(0.5).unwrap_or(0) as f64, 2e6),
    (|outcome| outcome.stalls.quantile_ns(0.99).unwrap_or(0) as f64, 2e6),
];

/// A part of a tree; `None`: it is short enough to be simulated as a whole.
pub fn of(tree: &Tree) -> Option<Tree> {
    let length = tree.nodes.iter().map(|node| node.profile.slots.len()).max()?;
    let slot_ns = tree.nodes[0].profile.slot_ns.max(1);
    if length as u64 * slot_ns <= LONG_NS {
        return None;
    }
    let stretch = (STRETCH_NS / slot_ns).max(1) as usize;
    let starts = busiest(tree, length, stretch);
    let cut = |node: &Node| {
        let slots = &node.profile.slots;
        let slots = starts.iter().flat_map(|start| {
            slots[(*start).min(slots.len())..(start + stretch).min(slots.len())].iter().copied()
        });
        Node {
            parent: node.parent,
            limit: node.limit,
            threads: node.threads,
            profile: Profile { slot_ns, slots: slots.collect() },
        }
    };
    Some(Tree { nodes: tree.nodes.iter().map(cut).collect(), capacity: tree.capacity.clone() })
}

/// Where the stretches begin. Bursts may be rare.
fn busiest(tree: &Tree, length: usize, stretch: usize) -> Vec<usize> {
    let mut demand = vec![0u64; length.div_ceil(stretch)];
    for node in &tree.nodes {
        for (sum, slots) in demand.iter_mut().zip(node.profile.slots.chunks(stretch)) {
            *sum += slots.iter().map(|slot| slot.ran_ns + slot.waited_ns).sum::<u64>();
        }
    }
    let each = demand.len().div_ceil(STRETCHES as usize).max(1);
    let parts = demand.chunks(each).enumerate();
    parts
        .filter_map(|(part, demand)| {
            let most = (0..demand.len()).max_by_key(|at| demand[*at])?;
            Some((part * each + most) * stretch)
        })
        .collect()
}

/// The places of a few outcomes whose bounds are those of all, but for differences that do not matter.
pub fn at_bounds(outcomes: &[Outcome]) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    for (figure, tolerance) in FIGURES {
        for sign in [1.0, -1.0] {
            let values: Vec<f64> = outcomes.iter().map(|outcome| sign * figure(outcome)).collect();
            let Some(most) = (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])) else {
                return chosen;
            };
            if !chosen.iter().any(|at| values[*at] >= values[most] - tolerance) {
                chosen.push(most);
            }
        }
    }
    chosen
}
