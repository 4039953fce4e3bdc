//! A part of a long history, in which cells are simulated to find those that matter.

use crate::{Loop, Node, Outcome, Profile, Tree};

/// A longer history is simulated in part first, ns.
const LONG_NS: u64 = 600_000_000_000;
/// The part has this number of stretches of this length, ns: the busiest one in each of as many equal parts of the history.
const STRETCHES: u64 = 18;
const STRETCH_NS: u64 = 5_000_000_000;

/// A figure, and the difference that does not matter.
type Tolerated = (fn(&Outcome) -> f64, f64);

/// The figures of [`Figures`](crate::Figures).
const FIGURES: [Tolerated; 7] = [
    (Outcome::throttled_share, 0.002),
    (Outcome::throttled_ns_per_s, 5e6),
    (Outcome::limited_ns_per_s, 5e6),
    (|outcome| outcome.unused_share().unwrap_or(0.0), 0.01),
    (|outcome| outcome.done_ns.map_or(f64::MAX, |ns| ns as f64), (STRETCHES * STRETCH_NS / 100) as f64),
    (|outcome| outcome.stalls.quantile_ns(0.5).unwrap_or(0) as f64, 2e6),
    (|outcome| outcome.stalls.quantile_ns(0.99).unwrap_or(0) as f64, 2e6),
];

/// A quota is nearly used up if this part of it is unused. Measured with made-up loads: up to 0.15 leaves bounds that are 3 points too narrow.
/// Below 0.02, it is used up in every period, and phases hardly differ.
const NEARLY: std::ops::Range<f64> = 0.02..0.45;

/// The quota is nearly used up.
pub fn is_nearly_used_up(outcome: &Outcome) -> bool {
    outcome.unused_share().is_some_and(|share| NEARLY.contains(&share))
}

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

/// The places of a few outcomes whose bounds are those of all, but for differences that do not matter. At least one for each loop: late
/// work adds up over a whole history.
pub fn at_bounds(outcomes: &[Outcome], loop_of: impl Fn(usize) -> Loop) -> Vec<usize> {
    // For each bound, the outcomes that are near it.
    let near = |(figure, tolerance): Tolerated, sign: f64| {
        let values: Vec<f64> = outcomes.iter().map(|outcome| sign * figure(outcome)).collect();
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (0..values.len()).filter(|at| values[*at] >= most - tolerance).collect::<Vec<_>>()
    };
    let mut left: Vec<Vec<usize>> =
        FIGURES.into_iter().flat_map(|figure| [near(figure, 1.0), near(figure, -1.0)]).collect();
    left.extend(
        [Loop::Open, Loop::Closed].map(|of| (0..outcomes.len()).filter(|at| loop_of(*at) == of).collect()),
    );
    let mut chosen = Vec::new();
    while left.iter().any(|near| !near.is_empty()) {
        let most = (0..outcomes.len()).max_by_key(|at| left.iter().filter(|near| near.contains(at)).count());
        let Some(most) = most else { break };
        left.retain(|near| !near.contains(&most));
        chosen.push(most);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use crate::Slot;

    use super::*;

    #[test]
    fn the_part_has_the_busiest_stretches_of_a_long_history() {
        let slot_ns = 1 << 24;
        let tree = |seconds: u64| {
            let slots = (0..seconds * 1_000_000_000 / slot_ns).map(|at| {
                // Two seconds of each 100.
                let is_busy = at * slot_ns / 1_000_000_000 % 100 >= 98;
                Slot { ran_ns: if is_busy { slot_ns } else { slot_ns / 100 }, ..Slot::default() }
            });
            Tree::single(Profile { slot_ns, slots: slots.collect() }, None, 2.0)
        };
        assert_eq!(of(&tree(599)), None);
        let part = of(&tree(3_600)).expect("a part");
        let slots = &part.nodes[0].profile.slots;
        let busy = slots.iter().filter(|slot| slot.ran_ns == slot_ns).count() as u64;
        assert!(slots.len() as u64 * slot_ns <= STRETCHES * STRETCH_NS);
        assert!(busy * slot_ns > STRETCHES * 1_500_000_000, "{busy} of {}", slots.len());
    }

    #[test]
    fn outcomes_at_the_bounds_are_chosen() {
        let outcome = |throttled_periods: u64| Outcome {
            duration_ns: 1_000_000_000,
            periods: 1_000,
            throttled_periods,
            done_ns: Some(1_000_000_000),
            ..Outcome::default()
        };
        let sorted = |outcomes: &[Outcome]| {
            let mut chosen = at_bounds(outcomes, |_| Loop::Open);
            chosen.sort_unstable();
            chosen
        };
        assert_eq!(sorted(&[500, 300, 700, 320].map(outcome)), [1, 2]);
        assert_eq!(at_bounds(&[500, 499, 501].map(outcome), |_| Loop::Open).len(), 1);
        let loops = [Loop::Open, Loop::Closed, Loop::Open];
        assert_eq!(at_bounds(&[500, 500, 500].map(outcome), |at| loops[at]).len(), 2);
        let late = Outcome { done_ns: None, ..outcome(500) };
        assert_eq!(sorted(&[outcome(500), late, outcome(600)]), [1, 2]);
        assert!(at_bounds(&[], |_| Loop::Open).is_empty());
    }
}
