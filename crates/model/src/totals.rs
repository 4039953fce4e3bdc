//! Readings that can be summed: over the tasks of a cgroup, over time, and over exited tasks.

use crate::ByCause;

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Cumulative readings of one task, or differences and sums of them over many tasks. Times in ns.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// Time of completed waits by cause; the parts sum to `wait_ns`.
            pub by_cause: ByCause,
        }

        impl Totals {
            /// The increase since `before`; `None` if any counter went backwards: then there is no reading.
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

cgscope_layout::totals!(totals);
