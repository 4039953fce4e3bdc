//! Our own clock of throttled time, for kernels that have none ([`crate::Feature::ThrottleClock`]).

/// Number of clocks of each CPU. A power of two.
pub const CLOCKS: usize = 256;
/// Number of entries that are tried for a clock, starting at the one that its hash gives.
pub const CLOCK_PROBES: usize = 8;

/// How long the queue of a cgroup on a CPU was in a hierarchy out of quota.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleClock {
    /// Address of the queue; 0: an empty entry.
    pub cfs_rq: u64,
    /// Since when the queue is throttled, ns of `rq->clock`; 0: it is not.
    pub since_ns: u64,
    /// How long it was throttled before, ns.
    pub sum_ns: u64,
}

/// The clocks of one CPU. They are written only under its run queue lock, but read by others without it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThrottleClocks {
    /// Number of clocks that were added so far.
    pub used: u64,
    /// The entries, as a hash table; see [`clock_place_of`].
    pub clocks: [ThrottleClock; CLOCKS],
}

/// Returns the index of the first entry that the clock of a queue may use.
#[inline(always)]
pub const fn clock_place_of(cfs_rq: u64) -> usize {
    (cfs_rq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize & (CLOCKS - 1)
}
