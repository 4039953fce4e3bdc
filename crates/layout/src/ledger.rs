//! What the hook keeps in order to split waits: how each runnable task left its CPU, and who made whom wait.

/// Places in the table of culprits of each CPU.
pub const PAIRS: usize = 512;
/// Places that a pair may take from the one that its hash gives.
pub const PROBES: usize = 8;

/// In [`Slice::who`](crate::history::Slice::who): nobody ran.
pub const IDLE: u64 = 0;
/// In [`Slice::who`](crate::history::Slice::who): a kernel thread ran. No cgroup has this id.
pub const KERNEL: u64 = u64::MAX;

/// How a task left its CPU while it could have run on, the beginning of a wait; and where it ran before.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// ns of `rq->clock`; 0: it went to sleep, or was preempted on its way there.
    pub ns: u64,
    /// Its switches then: if it has switched since, this is not the wait that ends now.
    pub switches: u64,
    /// How long its cfs_rq had stood throttled by then, ns.
    pub throttle_ns: u64,
    /// Address of that cfs_rq.
    pub cfs_rq: u64,
    /// Address of its task group.
    pub group: u64,
    /// Id of the cgroup whose quota had run out, or [`RUNTIME`]; 0: none had.
    pub limit: u64,
    /// [`Ring::kernel_ns`](crate::history::Ring::kernel_ns) of its CPU then.
    pub kernel_ns: u64,
    /// [`Ring::idle_ns`](crate::history::Ring::idle_ns) of its CPU then.
    pub idle_ns: u64,
    /// How long its group had run on that CPU by then, ns.
    pub group_ran_ns: u64,
    /// The CPU that it ran on last, or [`NO_CPU`].
    pub cpu: u32,
    /// Its migrations when it came there, cut to 32 bits.
    pub migrations: u32,
}

/// In [`Left::limit`]: not a quota, but the runtime of a real-time or deadline task was used up. No cgroup has this id.
pub const RUNTIME: u64 = u64::MAX;

/// In [`Left::cpu`]: it has not run yet.
pub const NO_CPU: u32 = u32::MAX;

/// What a culprit did to a victim.
pub mod kind {
    /// It ran while the victim waited.
    pub const RAN: u32 = 1;
    /// Its quota had run out.
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
    /// See [`kind`]; 0: an empty place.
    pub kind: u32,
    /// The task that ran, where single tasks are blamed.
    pub tid: u32,
    /// Sum, ns.
    pub ns: u64,
    /// ns of `rq->clock` at the latest addition.
    pub last_ns: u64,
    /// ns of `rq->clock` at the first: another pair of the same name has begun anew.
    pub born_ns: u64,
    /// Name of the task.
    pub comm: [u8; 16],
}

/// The table of culprits of one CPU; written by its own hook alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// In no order; see [`place_of`].
    pub pairs: [Pair; PAIRS],
}

/// The first place at which a pair may be.
#[inline(always)]
pub const fn place_of(victim: u64, culprit: u64, tid: u32) -> usize {
    // Fibonacci hashing: the golden ratio of 2^64.
    let mixed = (victim ^ culprit.rotate_left(21) ^ ((tid as u64) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 55) as usize & (PAIRS - 1)
}
