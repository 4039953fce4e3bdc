//! A clock of throttled time that cgscope keeps on kernels without one ([`crate::Feature::ThrottleClock`]).

/// Number of clocks for each CPU. A power of two.
pub const CLOCKS: usize = 256;
/// Number of entries that are tried for a clock, starting at the entry of its hash.
pub const CLOCK_PROBES: usize = 8;

/// How long a cgroup's queue on a CPU was in a hierarchy out of quota.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleClock {
    /// Address of the queue; 0: an empty entry.
    pub cfs_rq: u64,
    /// Since when the queue is throttled, ns of `rq->clock`; 0: it is not throttled.
    pub since_ns: u64,
    /// Length of the completed throttled times, ns.
    pub sum_ns: u64,
}

/// The clocks of one CPU. They are written only under its run queue lock. Other CPUs read them without the lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThrottleClocks {
    /// Number of clocks added so far.
    pub used: u64,
    /// The entries, as a hash table; see [`clock_place_of`].
    pub clocks: [ThrottleClock; CLOCKS],
}

/// Returns the index of the first entry that the clock of this queue may use.
#[inline(always)]
pub const fn clock_place_of(cfs_rq: u64) -> usize {
    (cfs_rq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize & (CLOCKS - 1)
}
