//! The viewers of a daemon that follow processes.

use cgscope_ledger::wire::{FOLLOWED_SHIFT, FOLLOWERS};

/// A viewer that follows processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Follower(u32);

impl Follower {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..FOLLOWERS).map(Self)
    }

    pub fn bit(self) -> u64 {
        1 << (FOLLOWED_SHIFT + self.0)
    }
}

/// A task, and the viewers that follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// The task: [`TaskReading::serial`](crate::TaskReading::serial).
    pub serial: u64,
    /// The [bits](Follower::bit) of the viewers that follow the task's process or one of its ancestors.
    pub followers: u64,
}

impl Followed {
    pub fn is_for(&self, follower: Follower) -> bool {
        self.followers & follower.bit() != 0
    }
}
