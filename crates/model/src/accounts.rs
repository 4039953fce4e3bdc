//! Where the time of tasks goes beside their waits: user space, kernel, blocked by state. Read only where that is asked for.

use cgscope_layout::{BLOCKED_STATES, BlockedState, wire};

use crate::sum;

/// ns blocked, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByState(pub [u64; BLOCKED_STATES]);

impl ByState {
    /// ns of one state.
    pub fn get(&self, state: BlockedState) -> u64 {
        self.0[state as usize]
    }

    /// Each state and its ns.
    pub fn iter(&self) -> impl Iterator<Item = (BlockedState, u64)> + '_ {
        BlockedState::ALL.iter().copied().zip(self.0)
    }

    /// Sum of all states, ns.
    pub fn total(&self) -> u64 {
        sum::total(self.0)
    }

    /// What came since `before`. Clocks of two CPUs may differ by some microseconds: what went backwards by that is 0.
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }

    /// Adds the time of another task.
    pub fn add(&mut self, other: &Self) {
        for (sum, ns) in self.0.iter_mut().zip(other.0) {
            sum::add(sum, ns);
        }
    }
}

macro_rules! times {
    ($(#[$of:meta])* $type:ident { $($(#[$doc:meta])* $name:ident,)* } ) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type { $($(#[$doc])* pub $name: u64,)* }

        impl $type {
            /// What came since `before`; what went backwards is 0.
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* }
            }

            /// Adds that of another.
            pub fn add(&mut self, other: &Self) {
                $(sum::add(&mut self.$name, other.$name);)*
            }
        }
    };
}

times! {
    /// Time on a CPU as `/proc/PID/stat` splits it: scaled to the run time that the scheduler counts, ns. In `guest_ns` what of
    /// `user_ns` ran a virtual machine.
    CpuTimes {
        /// In user space, guests included.
        user_ns,
        /// In the kernel.
        system_ns,
        /// Running a guest; part of `user_ns`.
        guest_ns,
    }
}

times! {
    /// What threads of a process had done when they exited, told with its main thread.
    Gone {
        /// Time on a CPU in user space, ns, guests included.
        user_ns,
        /// In the kernel, ns.
        system_ns,
        /// Running a guest, ns.
        guest_ns,
        /// Time on a CPU, ns.
        on_cpu_ns,
        /// Voluntary switches.
        voluntary,
        /// Involuntary switches.
        involuntary,
    }
}

/// The accounts of a task: cumulative in a reading, what came on top in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Its time on a CPU.
    pub cpu: CpuTimes,
    /// Its time off a CPU without waiting for one, that which is not over included; `None` where only the hook could tell.
    pub blocked: Option<ByState>,
    /// Of the threads of its process that have exited; all 0 but in a main thread.
    pub gone: Gone,
}

impl Accounts {
    /// What came since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu.since(&before.cpu),
            blocked: self.blocked.map(|now| now.since(&before.blocked.unwrap_or_default())),
            gone: self.gone.since(&before.gone),
        }
    }

    /// Adds those of another task. `blocked` is known where it is of both.
    pub fn add(&mut self, other: &Self) {
        self.cpu.add(&other.cpu);
        self.blocked = self.blocked.zip(other.blocked).map(|(mut sum, other)| {
            sum.add(&other);
            sum
        });
        self.gone.add(&other.gone);
    }
}

/// Sums of accounts that may not have been read: of those that were.
pub(crate) fn add_known(sum: &mut Option<Accounts>, other: Option<&Accounts>) {
    match (sum.as_mut(), other) {
        (Some(sum), Some(other)) => sum.add(other),
        (None, Some(other)) => *sum = Some(*other),
        (_, None) => {}
    }
}

impl CpuTimes {
    /// Ticks scaled to the run time as the kernel does it for `/proc` (`cputime_adjust`, Linux 4.4 to 7.3, where the CPU's time is
    /// not accounted natively): `before` is what was said last, and neither part goes backwards.
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
}

impl CpuTimes {
    /// The same in proportion, so that user space and kernel are `ran_ns` together.
    pub fn scaled_to(self, ran_ns: u64) -> Self {
        let scaled = Self::scaled(self.user_ns, self.system_ns, 0, ran_ns, &Self::default());
        Self { guest_ns: self.guest_ns.min(scaled.user_ns), ..scaled }
    }
}

impl Gone {
    /// The same with its time on a CPU split in proportion.
    pub fn in_proportion(self) -> Self {
        let Self { user_ns, system_ns, guest_ns, on_cpu_ns, .. } = self;
        let CpuTimes { user_ns, system_ns, guest_ns } =
            CpuTimes { user_ns, system_ns, guest_ns }.scaled_to(on_cpu_ns);
        Self { user_ns, system_ns, guest_ns, ..self }
    }
}

impl From<wire::Gone> for Gone {
    fn from(wire: wire::Gone) -> Self {
        let wire::Gone { user_ns, system_ns, guest_ns, on_cpu_ns, voluntary, involuntary } = wire;
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
            gone: Gone { voluntary: ns, ..Gone::default() },
        };
        let between = accounts(9).since(&accounts(4));
        assert_eq!((between.cpu.user_ns, between.cpu.system_ns, between.gone.voluntary), (5, 0, 5));
        assert_eq!(between.blocked, Some(ByState([5, 0, 0, 0, 0])));
        assert_eq!(accounts(4).since(&accounts(9)).blocked, Some(ByState::default()), "clocks differ");
        let mut sum = accounts(1);
        sum.add(&accounts(2));
        assert_eq!(sum.blocked.map(|blocked| blocked.total()), Some(17));
        sum.add(&Accounts::default());
        assert_eq!(sum.blocked, None, "not known of one of them");
        let mut known = None;
        add_known(&mut known, None);
        assert_eq!(known, None);
        add_known(&mut known, Some(&accounts(3)));
        add_known(&mut known, None);
        assert_eq!(known, Some(accounts(3)));
    }
}
