//! The waits of one stack, with their number divided among the causes.

use cgscope_model::{ByCause, CAUSES, Cause, Wait, sum};

/// Waits of one task or of what ended in one cgroup.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    count: u64,
    by_cause: ByCause,
    /// Waits by cause, each divided in proportion to its parts; empty where there is no histogram.
    shares: [f64; CAUSES],
}

impl Waits {
    pub(crate) fn add(&mut self, wait: &Wait) {
        sum::add(&mut self.count, wait.count);
        self.by_cause.add(&wait.by_cause);
        for octave in wait.hist.octaves() {
            for (sum, share) in self.shares.iter_mut().zip(octave.by_cause) {
                *sum += share;
            }
        }
    }

    /// Each cause that has any: waits and ns. The waits sum to their number: a wait of several causes is with one of them.
    pub(crate) fn by_cause(&self) -> impl Iterator<Item = (Cause, u64, u64)> + '_ {
        let has_shares = self.shares.iter().any(|share| *share > 0.0);
        let shares = if has_shares { self.shares } else { self.by_cause.0.map(|ns| ns as f64) };
        let counts = divide(self.count, &shares);
        self.by_cause
            .iter()
            .map(move |(cause, ns)| (cause, counts[cause as usize], ns))
            .filter(|(_, waits, ns)| *waits != 0 || *ns != 0)
    }
}

/// `count` in whole numbers in proportion to `shares`; what rounding down leaves goes to the largest remainders. Without
/// shares all of it is with the last cause, which has the waits of 0 ns.
fn divide<const N: usize>(count: u64, shares: &[f64; N]) -> [u64; N] {
    let total: f64 = shares.iter().sum();
    let mut counts = [0; N];
    if total <= 0.0 {
        counts[N - 1] = count;
        return counts;
    }
    let exact = shares.map(|share| share / total * count as f64);
    for (part, exact) in counts.iter_mut().zip(exact) {
        *part = exact as u64;
    }
    let mut order: [usize; N] = std::array::from_fn(|i| i);
    order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    let mut left = count.saturating_sub(sum::total(counts));
    for i in order.into_iter().cycle() {
        if left == 0 {
            break;
        }
        counts[i] += 1;
        left -= 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_divided_without_a_rest() {
        assert_eq!(divide(3, &[1.0, 1.0, 0.0, 0.0, 0.0, 1.0]), [1, 1, 0, 0, 0, 1]);
        assert_eq!(divide(10, &[2.0, 1.0, 0.0, 0.0, 0.0, 0.0]), [7, 3, 0, 0, 0, 0]);
        assert_eq!(divide(5, &[0.0; 6]), [0, 0, 0, 0, 0, 5]);
        assert_eq!(divide(0, &[1.0; CAUSES]), [0; CAUSES]);
        for count in [1, 2, 3, 7, 1_000_003] {
            assert_eq!(divide(count, &[0.1, 0.7, 1e-9, 3.0, 0.3, 5.0]).iter().sum::<u64>(), count);
        }
    }

    #[test]
    fn waits_without_a_histogram_go_by_their_time() {
        let mut waits = Waits::default();
        let mut wait = Wait { count: 4, total_ns: 400, ..Wait::default() };
        wait.by_cause.add(&ByCause::only(Cause::Throttled, 100));
        wait.by_cause.add(&ByCause::only(Cause::Unattributed, 300));
        waits.add(&wait);
        let by_cause: Vec<_> = waits.by_cause().collect();
        assert_eq!(by_cause, [(Cause::Throttled, 1, 100), (Cause::Unattributed, 3, 300)]);
    }
}
