//! Waits split by cause.

use cgscope_layout::{CAUSES, Cause};

use crate::Mode;

/// ns by cause. The parts of a wait sum to the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByCause(pub [u64; CAUSES]);

impl ByCause {
    /// All of it for one cause.
    pub fn only(cause: Cause, ns: u64) -> Self {
        let mut parts = Self::default();
        parts.0[cause as usize] = ns;
        parts
    }

    /// ns of one cause.
    pub fn get(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// ns of one cause as a reading of this mode knows it: the coarse mode does not see who ran.
    pub fn known(&self, cause: Cause, mode: Mode) -> Option<u64> {
        match cause {
            Cause::Throttled | Cause::Unattributed => Some(self.get(cause)),
            Cause::OwnCgroup | Cause::OtherCgroup | Cause::Kernel | Cause::Wakeup => {
                mode.exact(|| self.get(cause))
            }
        }
    }

    /// Each cause and its ns.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.into_iter().zip(self.0)
    }

    /// Sum of all parts.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// What came since `before`; `None` if a part went backwards.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut out = Self::default();
        for (out, (now, before)) in out.0.iter_mut().zip(self.0.iter().zip(before.0)) {
            *out = now.checked_sub(before)?;
        }
        Some(out)
    }

    /// Adds the parts of another wait.
    pub fn add(&mut self, other: &Self) {
        for (sum, ns) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(ns);
        }
    }
}
