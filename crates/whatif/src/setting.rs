//! How a profile is replayed.

/// When work arrives if earlier work is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loop {
    /// Work arrives when it did: requests from outside. Late work waits in a backlog.
    Open,
    /// A cgroup does its work in order, and everything after a hindrance moves later by its length: a batch job.
    Closed,
}

/// The conditions of one replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// When work arrives.
    pub replay: Loop,
    /// Time of the first refill of the first cgroup after the start, ns, modulo its period. The kernel's grid of periods begins at a random time, so any
    /// value is as likely.
    pub phase_ns: u64,
    /// The grid of each further cgroup of the tree begins later by this time, ns. Nested limits depend on it: quota that a cgroup gets
    /// while the one above it is throttled is left for the next period of that one.
    pub spread_ns: u64,
    /// A CPU notices at multiples of this time that its runtime is used up, ns: the tick of the kernel, 4 ms at `HZ=250`. 0: at once, which is also
    /// the fastest to replay.
    pub tick_ns: u64,
    /// Runtime that a CPU takes from the pool at a time, ns: the sysctl `kernel.sched_cfs_bandwidth_slice_us`.
    pub slice_ns: u64,
    /// The replay ends after this multiple of the profile's length, even if work is left.
    pub longest: u32,
}

impl Setting {
    /// The kernel's default slice, 5 ms (`sysctl_sched_cfs_bandwidth_slice`, Linux 6.1 to 7.2).
    pub const SLICE_NS: u64 = 5_000_000;

    /// The kernel's defaults, without the delay of the tick.
    pub fn new(replay: Loop, phase_ns: u64) -> Self {
        Self { replay, phase_ns, spread_ns: 0, tick_ns: 0, slice_ns: Self::SLICE_NS, longest: 16 }
    }

    /// Time of the first refill of a cgroup after the start, ns, below its period.
    pub fn phase_of(&self, node: usize, period_ns: u64) -> u64 {
        let later_ns = u128::from(self.spread_ns) * node as u128;
        ((u128::from(self.phase_ns) + later_ns) % u128::from(period_ns.max(1))) as u64
    }
}
