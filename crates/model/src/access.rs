//! Readings that are shared by viewers of several users: whose a task is, and for whom it is followed.

use cgscope_layout::wire::{FOLLOWED_SHIFT, FOLLOWERS};

/// A viewer for whom processes are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Follower(u32);

impl Follower {
    /// All that there can be at a time.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..FOLLOWERS).map(Self)
    }

    /// The bit that stands for it.
    pub fn bit(self) -> u64 {
        1 << (FOLLOWED_SHIFT + self.0)
    }
}

/// What there is to know of a task before it is shown to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The task: [`TaskReading::serial`](crate::TaskReading::serial).
    pub serial: u64,
    /// The user whose it is, by the kernel's rule of who may look into a process: real, effective and saved id are theirs. `None`:
    /// nobody's alone, or not known.
    pub owner: Option<u32>,
    /// The [bits](Follower::bit) of the viewers for whom its process, or one that started it, is followed.
    pub followers: u64,
}

impl Access {
    /// It is of a process that is followed for this viewer, or was started by one.
    pub fn is_followed_for(&self, follower: Follower) -> bool {
        self.followers & follower.bit() != 0
    }
}
