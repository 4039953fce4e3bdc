//! Ownership of tasks, for readings shared by viewers of several users: who owns a task, and which viewers follow it.

use cgscope_layout::wire::{FOLLOWED_SHIFT, FOLLOWERS};

/// A viewer that follows processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Follower(u32);

impl Follower {
    /// All possible followers.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..FOLLOWERS).map(Self)
    }

    /// The bit of this follower.
    pub fn bit(self) -> u64 {
        1 << (FOLLOWED_SHIFT + self.0)
    }
}

/// The owner and the followers of a task, which decide who may see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The task: [`TaskReading::serial`](crate::TaskReading::serial).
    pub serial: u64,
    /// The user that owns the task: real, effective and saved id are this user's, as the kernel requires to inspect a
    /// process. `None`: no single owner, or unknown.
    pub owner: Option<u32>,
    /// The [bits](Follower::bit) of the viewers that follow the task's process or one of its ancestors.
    pub followers: u64,
}

impl Access {
    /// True if this viewer follows the task's process or one of its ancestors.
    pub fn is_followed_for(&self, follower: Follower) -> bool {
        self.followers & follower.bit() != 0
    }
}
