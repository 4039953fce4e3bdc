//! The readings that add up: over the tasks of a cgroup, over time, and over those that exited.

use crate::ByCause;

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Cumulative readings of one task (or, once subtracted and added, of many), times in nanoseconds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// The completed waits by cause; they sum to `wait_ns`.
            pub by_cause: ByCause,
        }

        impl Totals {
            /// What came since `before`; `None` if any counter went backwards: then there is no reading.
            pub fn since(&self, before: &Self) -> Option<Self> {
                Some(Self {
                    $($name: self.$name.checked_sub(before.$name)?,)*
                    by_cause: self.by_cause.since(&before.by_cause)?,
                })
            }

            /// Adds the readings of another task.
            pub fn add(&mut self, other: &Self) {
                $(crate::sum::add(&mut self.$name, other.$name);)*
                self.by_cause.add(&other.by_cause);
            }
        }

        impl From<cgscope_layout::wire::Totals> for Totals {
            fn from(wire: cgscope_layout::wire::Totals) -> Self {
                Self { $($name: wire.$name,)* by_cause: ByCause(wire.by_cause) }
            }
        }
    };
}

totals! {
    /// Completed waits on a run queue.
    waits,
    /// Their sum, including the parts waited on other CPUs before a migration.
    wait_ns,
    /// The kernel's own sum (`/proc/PID/schedstat`, second field).
    run_delay_ns,
    /// Waits that the kernel does not count: preempted with the state already set.
    unstamped,
    /// Their sum.
    unstamped_ns,
    /// Time on a CPU.
    on_cpu_ns,
    /// Voluntary switches.
    voluntary,
    /// Involuntary switches.
    involuntary,
    /// Moves between CPUs.
    migrations,
}
