//! The data that the hook keeps to split waits: how the current wait of each task began, and who made whom wait.

use crate::cause::ByCause;

/// Entries in the table of culprits of each CPU. A power of two.
pub const PAIRS: usize = 512;
/// Number of entries that are tried for a pair, starting at the one that its hash gives.
pub const PROBES: usize = 8;

/// In [`Slice::who`](crate::history::Slice::who): nobody ran.
pub const IDLE: u64 = 0;
/// In [`Slice::who`](crate::history::Slice::who): a kernel thread ran. No cgroup has this id.
pub const KERNEL: u64 = u64::MAX;

/// How the current wait segment of a task began: with a switch out or with a move to this CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// 1: the hook saw the segment begin. 0: the task went to sleep, or was preempted on its way to sleep.
    pub is_seen: u64,
    /// The task's number of switches at that time. If it has changed since, the current wait is a later one.
    pub switches: u64,
    /// [`Throttled time`](Self::throttled_ns) of the task's cfs_rq at the start, ns. After a move the clock of the new CPU is not
    /// known yet: negative (as `i64`) if the cfs_rq is throttled; then the time at which the task was queued must be added.
    pub throttle_ns: u64,
    /// Address of that cfs_rq.
    pub cfs_rq: u64,
    /// Address of the task's group.
    pub group: u64,
    /// Id of the cgroup whose quota had run out, or [`RUNTIME`], or [`ASLEEP`]; 0: none of them.
    pub limit: u64,
    /// [`Ring::kernel_ns`](crate::history::Ring::kernel_ns) of the CPU when the task left it.
    pub kernel_ns: u64,
    /// [`Ring::idle_ns`](crate::history::Ring::idle_ns) of the CPU when the task left it.
    pub idle_ns: u64,
    /// How long the task's group had run on the CPU when the task left it, ns; 0: unknown.
    pub group_ran_ns: u64,
    /// The CPU on which the segment began.
    pub cpu: u32,
    /// The CPU on which the task last ran, or [`NO_CPU`]. Kept if there are several nodes.
    pub ran_on: u32,
}

impl Start {
    /// Returns the throttled time of a segment. `now_ns`: the throttled time of its cfs_rq at the end; `queued_ns`: when the task
    /// was queued.
    #[inline(always)]
    pub fn throttled_ns(&self, now_ns: u64, queued_ns: u64) -> u64 {
        let was_throttled = (self.throttle_ns as i64) < 0;
        let before_ns =
            if was_throttled { self.throttle_ns.wrapping_add(queued_ns) } else { self.throttle_ns };
        now_ns.saturating_sub(before_ns)
    }
}

/// The segments of the current wait that ended with a move to another CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Their length, ns. 0: the task has not moved during this wait.
    pub ns: u64,
    /// Their parts by cause, which sum to `ns`.
    pub parts: ByCause,
}

/// In [`Start::limit`]: a real-time or deadline task had used up its runtime, which is not a quota. No cgroup has this id.
pub const RUNTIME: u64 = u64::MAX;

/// In [`Start::limit`]: the task was moved while it slept, so the kernel's stamp is not the beginning of a wait. No cgroup has this
/// id.
pub const ASLEEP: u64 = u64::MAX - 1;

/// In [`Start::ran_on`]: the task has not run yet.
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
