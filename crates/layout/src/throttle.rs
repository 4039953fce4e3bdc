//! A clock of throttled time, for kernels that keep none ([`crate::Feature::ThrottleClock`]).

/// Clocks of each CPU.
pub const CLOCKS: usize = 256;
/// Places that a clock may take from the one that its hash gives.
pub const CLOCK_PROBES: usize = 8;

/// How long the queue of a cgroup on a CPU has stood in a hierarchy out of quota.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleClock {
    /// Address of the queue; 0: an empty place.
    pub cfs_rq: u64,
    /// ns of `rq->clock`: since when it stands; 0: it does not.
    pub since_ns: u64,
    /// How long it has stood before, ns.
    pub sum_ns: u64,
}

/// The clocks of one CPU; written under its run queue lock alone, read by others without it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThrottleClocks {
    /// Places taken.
    pub used: u64,
    /// In no order; see [`clock_place_of`].
    pub clocks: [ThrottleClock; CLOCKS],
}

/// The first place at which the clock of a queue may be.
#[inline(always)]
pub const fn clock_place_of(cfs_rq: u64) -> usize {
    (cfs_rq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize & (CLOCKS - 1)
}
