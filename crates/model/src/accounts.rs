//! Accounts of a task's time outside its waits: in user space, in the kernel, and blocked by state. Read only on request.

use std::sync::Arc;

use cgscope_ledger::{BLOCKED_STATES, BlockedState, wire};
use serde::{Serialize, Serializer};

use crate::sum::{self, by};

by! {
    /// Blocked time by state, ns. In JSON, each state has a field that is named after it.
    ByState: BlockedState, BLOCKED_STATES
}

impl ByState {
    /// Returns the increase since `before`. A decrease counts as 0: the clocks of two CPUs may differ by some microseconds.
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }
}

impl Serialize for ByState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(state, ns)| (format!("{}_ns", state.name()), ns)))
    }
}

macro_rules! times {
    ($(#[$of:meta])* $type:ident { $($(#[$doc:meta])* $name:ident,)* } ) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $type { $($(#[$doc])* pub $name: u64,)* }

        impl $type {
            /// Returns the increase since `before`. A decrease counts as 0.
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* }
            }

            pub fn add(&mut self, other: &Self) {
                $(sum::add(&mut self.$name, other.$name);)*
            }
        }
    };
}

times! {
    /// Time on a CPU, ns, split as in `/proc/PID/stat`. The parts are scaled to the run time that the scheduler counts.
    CpuTimes {
        /// Time in user space, including guests.
        user_ns,
        system_ns,
        /// Time running a guest (virtual machine); part of `user_ns`.
        guest_ns,
    }
}

times! {
    /// Totals of the exited threads of a process, reported with its main thread. The last two count switches.
    ExitedThreads {
        on_cpu_ns,
        /// Part of `on_cpu_ns`, like the next two; includes guests.
        user_ns,
        system_ns,
        guest_ns,
        voluntary,
        involuntary,
    }
}

/// The accounts of a task: cumulative in a reading, the increase in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub cpu: CpuTimes,
    /// Time blocked by state, including the current block; `None`: not measured, because the hook is missing.
    pub blocked: Option<ByState>,
    /// The exited threads of the process; all 0 except on the main thread.
    pub exited_threads: ExitedThreads,
}

impl Accounts {
    pub fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu.since(&before.cpu),
            blocked: self.blocked.map(|now| now.since(&before.blocked.unwrap_or_default())),
            exited_threads: self.exited_threads.since(&before.exited_threads),
        }
    }

    /// Adds the accounts of another task. The sum of `blocked` is unknown if either part is unknown.
    pub fn add(&mut self, other: &Self) {
        self.cpu.add(&other.cpu);
        self.blocked = self.blocked.zip(other.blocked).map(|(mut sum, other)| {
            sum.add(&other);
            sum
        });
        self.exited_threads.add(&other.exited_threads);
    }
}

pub(crate) fn since(now: Option<&Arc<Accounts>>, before: Option<&Arc<Accounts>>) -> Option<Arc<Accounts>> {
    let now = now?;
    Some(before.map_or_else(|| now.clone(), |before| Arc::new(now.since(before))))
}

pub(crate) fn add_known(sum: &mut Option<Accounts>, other: Option<&Accounts>) {
    sum::add_known(sum, other.copied(), |sum, other| sum.add(&other));
}

impl CpuTimes {
    /// Scales ticks to the run time, as the kernel does for `/proc`: `cputime_adjust` (Linux 4.4 to 7.3, without native CPU time
    /// accounting). `before` is the previous result: neither user time nor system time decreases.
    pub fn scaled(user_ns: u64, system_ns: u64, guest_ns: u64, ran_ns: u64, before: &Self) -> Self {
        if before.user_ns.saturating_add(before.system_ns) >= ran_ns {
            return Self { guest_ns: guest_ns.max(before.guest_ns), ..*before };
        }
        let part = match (user_ns, system_ns) {
            (_, 0) => 0,
            (0, _) => ran_ns,
            (user, system) => {
                let ticks = u128::from(user) + u128::from(system);
                u64::try_from(u128::from(system) * u128::from(ran_ns) / ticks).unwrap_or(ran_ns)
            }
        };
        let mut system_ns = part.max(before.system_ns).min(ran_ns);
        let mut user_ns = ran_ns - system_ns;
        if user_ns < before.user_ns {
            user_ns = before.user_ns;
            system_ns = ran_ns - user_ns;
        }
        Self { user_ns, system_ns, guest_ns: guest_ns.max(before.guest_ns) }
    }

    /// Scales the times in proportion, so that user time plus system time is `ran_ns`.
    pub fn scaled_to(self, ran_ns: u64) -> Self {
        let scaled = Self::scaled(self.user_ns, self.system_ns, 0, ran_ns, &Self::default());
        Self { guest_ns: self.guest_ns.min(scaled.user_ns), ..scaled }
    }
}

impl ExitedThreads {
    /// Splits the time on a CPU in proportion to the ticks.
    pub fn in_proportion(self) -> Self {
        let Self { user_ns, system_ns, guest_ns, on_cpu_ns, .. } = self;
        let CpuTimes { user_ns, system_ns, guest_ns } =
            CpuTimes { user_ns, system_ns, guest_ns }.scaled_to(on_cpu_ns);
        Self { user_ns, system_ns, guest_ns, ..self }
    }
}

impl From<wire::ExitedThreads> for ExitedThreads {
    fn from(wire: wire::ExitedThreads) -> Self {
        let wire::ExitedThreads { user_ns, system_ns, guest_ns, on_cpu_ns, voluntary, involuntary } = wire;
        let scaled = CpuTimes::scaled(user_ns, system_ns, guest_ns, on_cpu_ns, &CpuTimes::default());
        let CpuTimes { user_ns, system_ns, guest_ns } = scaled;
        Self { user_ns, system_ns, guest_ns, on_cpu_ns, voluntary, involuntary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_scaled_to_the_run_time_and_never_go_back() {
        let none = CpuTimes::default();
        let times = |user_ns, system_ns| CpuTimes { user_ns, system_ns, guest_ns: 0 };
        assert_eq!(CpuTimes::scaled(3, 1, 0, 1_000, &none), times(750, 250));
        assert_eq!(CpuTimes::scaled(0, 0, 0, 1_000, &none), times(1_000, 0), "no tick yet");
        assert_eq!(CpuTimes::scaled(0, 4, 0, 1_000, &none), times(0, 1_000));
        assert_eq!(CpuTimes::scaled(3, 1, 0, 900, &times(750, 250)), times(750, 250));
        assert_eq!(CpuTimes::scaled(9, 1, 0, 1_100, &times(750, 250)), times(850, 250));
        assert_eq!(CpuTimes::scaled(1, 9, 0, 1_100, &times(750, 250)), times(750, 350));
    }

    #[test]
    fn accounts_are_subtracted_and_added() {
        let accounts = |ns| Accounts {
            cpu: CpuTimes { user_ns: ns, system_ns: 1, guest_ns: 0 },
            blocked: Some(ByState([ns, 0, 0, 0, 7])),
            exited_threads: ExitedThreads { voluntary: ns, ..ExitedThreads::default() },
        };
        let between = accounts(9).since(&accounts(4));
        assert_eq!((between.cpu.user_ns, between.cpu.system_ns, between.exited_threads.voluntary), (5, 0, 5));
        assert_eq!(between.blocked, Some(ByState([5, 0, 0, 0, 0])));
        assert_eq!(accounts(4).since(&accounts(9)).blocked, Some(ByState::default()), "clocks differ");
        let mut sum = accounts(1);
        sum.add(&accounts(2));
        assert_eq!(sum.blocked.map(|blocked| blocked.total()), Some(17));
        sum.add(&Accounts::default());
        assert_eq!(sum.blocked, None, "unknown for one task");
        let mut known = None;
        add_known(&mut known, None);
        assert_eq!(known, None);
        add_known(&mut known, Some(&accounts(3)));
        add_known(&mut known, None);
        assert_eq!(known, Some(accounts(3)));
    }
    #[test]
    fn blocked_time_has_the_names_of_its_states() {
        let object = serde_json::to_value(ByState([1, 2, 3, 4, 5])).unwrap();
        let object = object.as_object().unwrap();
        assert_eq!(object.len(), BlockedState::ALL.len());
        for (at, state) in BlockedState::ALL.iter().enumerate() {
            assert_eq!(object[&format!("{}_ns", state.name())], at + 1, "{}", state.name());
        }
    }
}
