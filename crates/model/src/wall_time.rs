//! Where the time of threads went: each moment of a thread's life is in one part.

use crate::{ByCause, ByState, Cause, Group, sum};

/// The elapsed time of some threads, by activity, summed over the threads. For one thread the parts sum to the elapsed time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallTime {
    /// On a CPU, ns.
    pub on_cpu_ns: u64,
    /// Runnable but not running, by cause: completed waits and unfinished ones.
    pub waited: ByCause,
    /// Blocked, by state; `None`: unknown.
    pub blocked: Option<ByState>,
}

impl WallTime {
    /// Computes the parts for a group of threads over an interval.
    pub fn new(group: &Group) -> Self {
        let mut waited = group.wait.by_cause;
        waited.add(&group.pending_by_cause);
        // The kernel does not count waits of tasks that were preempted on the way to sleep. Their cause was not recorded.
        waited.add(&ByCause::only(Cause::Unattributed, group.totals.unstamped_ns));
        let blocked = group.accounts.and_then(|accounts| accounts.blocked);
        Self { on_cpu_ns: group.totals.on_cpu_ns, waited, blocked }
    }

    /// The sum of all known parts, ns.
    pub fn total_ns(&self) -> u64 {
        let blocked_ns = self.blocked.map_or(0, |blocked| blocked.total());
        sum::total([self.on_cpu_ns, self.waited.total(), blocked_ns])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accounts, BLOCKED_STATES, CAUSES, Totals, Wait};
    use proptest::prelude::*;

    fn group(
        on_cpu_ns: u64,
        waited: ByCause,
        pending: ByCause,
        unstamped_ns: u64,
        blocked: Option<[u64; BLOCKED_STATES]>,
    ) -> Group {
        Group {
            totals: Totals { on_cpu_ns, unstamped_ns, ..Totals::default() },
            wait: Wait { by_cause: waited, ..Wait::default() },
            pending_by_cause: pending,
            accounts: blocked
                .map(|states| Accounts { blocked: Some(ByState(states)), ..Accounts::default() }),
            ..Group::default()
        }
    }

    fn any_by_cause() -> impl Strategy<Value = ByCause> {
        prop::collection::vec(0..1u64 << 50, CAUSES)
            .prop_map(|parts| ByCause(parts.try_into().expect("a part to each")))
    }

    proptest! {
        #[test]
        fn all_time_is_counted_once(
            ran in 0..1u64 << 50,
            waited in any_by_cause(),
            pending in any_by_cause(),
            unstamped in 0..1u64 << 50,
            blocked in prop::array::uniform5(0..1u64 << 50),
        ) {
            let all = ran + unstamped + waited.total() + pending.total() + blocked.iter().sum::<u64>();
            let time = WallTime::new(&group(ran, waited, pending, unstamped, Some(blocked)));
            prop_assert_eq!(time.total_ns(), all);
            let states = time.blocked.unwrap();
            let parts = time.waited.iter().map(|(_, ns)| ns).chain(states.iter().map(|(_, ns)| ns));
            prop_assert_eq!(time.on_cpu_ns + parts.sum::<u64>(), all);
        }
    }

    #[test]
    fn unknown_time_is_not_a_part() {
        let time = WallTime::new(&group(
            5,
            ByCause::only(Cause::Unattributed, 2),
            ByCause::only(Cause::Throttled, 1),
            3,
            None,
        ));
        assert_eq!((time.blocked, time.total_ns()), (None, 11));
        assert_eq!(time.waited.get(Cause::Unattributed), 5);
    }
}
