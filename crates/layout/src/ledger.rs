//! The data that the hook keeps to split waits: how each runnable task left its CPU, and who made whom wait.

/// Entries in the table of culprits of each CPU. A power of two.
pub const PAIRS: usize = 512;
/// Number of entries that are tried for a pair, starting at the one that its hash gives.
pub const PROBES: usize = 8;

/// In [`Slice::who`](crate::history::Slice::who): nobody ran.
pub const IDLE: u64 = 0;
/// In [`Slice::who`](crate::history::Slice::who): a kernel thread ran. No cgroup has this id.
pub const KERNEL: u64 = u64::MAX;

/// How a task left its CPU although it could have run on, which begins a wait; and on which CPU it ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// ns of `rq->clock`; 0: the task went to sleep, or was preempted on its way to sleep.
    pub ns: u64,
    /// The task's number of switches when it left the CPU. If it has changed since, the wait that ends now is a later one.
    pub switches: u64,
    /// Throttled time of the task's cfs_rq until the task left the CPU, ns.
    pub throttle_ns: u64,
    /// Address of that cfs_rq.
    pub cfs_rq: u64,
    /// Address of the task's group.
    pub group: u64,
    /// Id of the cgroup whose quota had run out, or [`RUNTIME`]; 0: neither.
    pub limit: u64,
    /// [`Ring::kernel_ns`](crate::history::Ring::kernel_ns) of the CPU when the task left it.
    pub kernel_ns: u64,
    /// [`Ring::idle_ns`](crate::history::Ring::idle_ns) of the CPU when the task left it.
    pub idle_ns: u64,
    /// How long the task's group had run on the CPU when the task left it, ns.
    pub group_ran_ns: u64,
    /// The CPU on which the task last ran, or [`NO_CPU`].
    pub cpu: u32,
    /// The task's number of migrations when it switched in there, truncated to 32 bits.
    pub migrations: u32,
}

/// In [`Left::limit`]: a real-time or deadline task had used up its runtime, which is not a quota. No cgroup has this id.
pub const RUNTIME: u64 = u64::MAX;

/// In [`Left::cpu`]: the task has not run yet.
pub const NO_CPU: u32 = u32::MAX;

/// What a culprit did to a victim.
pub mod kind {
    /// The culprit ran while the victim waited.
    pub const RAN: u32 = 1;
    /// The culprit was out of quota.
    pub const LIMITED: u32 = 2;
}

/// Time that tasks of one cgroup waited because of another.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Id of the cgroup that waited.
    pub victim: u64,
    /// Id of the cgroup that ran or was out of quota, or [`KERNEL`].
    pub culprit: u64,
    /// See [`kind`]; 0: an empty entry.
    pub kind: u32,
    /// The task that ran, if culprits are single tasks.
    pub tid: u32,
    /// Sum, ns.
    pub ns: u64,
    /// ns of `rq->clock` at the latest addition.
    pub last_ns: u64,
    /// ns of `rq->clock` at the first addition. If it changes, the pair was evicted and added again.
    pub born_ns: u64,
    /// Name of the task.
    pub comm: [u8; 16],
}

/// The table of culprits of one CPU. Only that CPU's hook writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// The entries, as a hash table; see [`place_of`].
    pub pairs: [Pair; PAIRS],
}

/// Returns the index of the first entry that a pair may use.
#[inline(always)]
pub const fn place_of(victim: u64, culprit: u64, tid: u32) -> usize {
    // Fibonacci hashing: the factor is 2^64 divided by the golden ratio.
    let mixed = (victim ^ culprit.rotate_left(21) ^ ((tid as u64) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 55) as usize & (PAIRS - 1)
}
