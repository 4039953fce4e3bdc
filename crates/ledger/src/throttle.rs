//! A clock of throttled time that cgscope keeps on kernels without one ([`crate::Feature::ThrottleClock`]).

/// Number of clocks of each CPU, a power of two.
pub const CLOCKS: usize = 256;
/// Number of entries that a clock may use, starting at the entry of its hash.
pub const CLOCK_PROBES: usize = 8;

/// The clock of one queue: how long the queue was in a hierarchy out of quota.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleClock {
    /// Address of the queue; 0 if the entry is empty.
    pub cfs_rq: u64,
    /// Since when the queue has been throttled, ns of `rq->clock`; 0 if it is not throttled.
    pub since_ns: u64,
    /// Total length of the throttled phases that have ended, ns.
    pub sum_ns: u64,
}

/// The clocks of one CPU. Programs write these clocks only under the CPU's run queue lock. Programs on other CPUs read them
/// without the lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThrottleClocks {
    /// Number of clocks added so far.
    pub used: u64,
    /// The entries of a hash table, see [`clock_place_of`].
    pub clocks: [ThrottleClock; CLOCKS],
}

/// Returns the index of the first entry that the clock of this queue may use.
#[inline(always)]
pub const fn clock_place_of(cfs_rq: u64) -> usize {
    (cfs_rq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize & (CLOCKS - 1)
}
