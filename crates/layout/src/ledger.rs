//! What the hook remembers in order to split waits: who ran on each CPU, and how each runnable task left its CPU.

/// Slices that are remembered of each CPU.
pub const SLICES: usize = 512;
/// A wait is looked back over at most so many slices; what lies before is looked for in blocks.
pub const LOOK_BACK: usize = 400;
/// Slices that a block sums up. A power of two.
pub const BLOCK: usize = 64;
/// Blocks that are remembered of each CPU. A power of two.
pub const BLOCKS: usize = 256;
/// A wait is looked back over at most so many blocks; what lies before is unattributed. Fewer than there are, because the CPU
/// goes on while another looks back over them.
pub const LOOK_BACK_BLOCKS: usize = 240;
/// So many slices back, and up to [`BLOCK`] more, it is known who ran on a CPU.
pub const KNOWN: usize = LOOK_BACK_BLOCKS * BLOCK;
/// Cgroups that are told apart in a block. A power of two.
pub const PARTIES: usize = 8;
/// A kernel thread that runs for less than this between tasks of one cgroup takes no slice of its own: a load that calls one a
/// hundred thousand times a second would else push the history out in milliseconds.
pub const FOLD_NS: u64 = 50_000;
/// Places in the table of culprits of each CPU.
pub const PAIRS: usize = 512;
/// Places that a pair may take from the one that its hash gives.
pub const PROBES: usize = 8;

/// In [`Slice::who`]: nobody ran.
pub const IDLE: u64 = 0;
/// In [`Slice::who`]: a kernel thread ran. No cgroup has this id.
pub const KERNEL: u64 = u64::MAX;

/// Who ran on a CPU from `since_ns` until the slice that follows. Tasks of one cgroup in a row share a slice, unless
/// single tasks are blamed ([`crate::wire::Config::blame_tasks`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// ns of `rq->clock`; 0: no slice.
    pub since_ns: u64,
    /// Id of the cgroup, [`IDLE`] or [`KERNEL`].
    pub who: u64,
    /// ns of it in interrupts, where the kernel accounts for them, and in kernel threads that ran for less than [`FOLD_NS`].
    pub kernel_ns: u64,
    /// The task, where single tasks are blamed.
    pub tid: u32,
    /// No meaning.
    pub padding: u32,
    /// Its name.
    pub comm: [u8; 16],
}

/// Who ran on a CPU for how long in all, over [`BLOCK`] slices.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// ns of `rq->clock` when the first of them began; 0: no block.
    pub since_ns: u64,
    /// Sum of [`Slice::kernel_ns`].
    pub kernel_ns: u64,
    /// As [`Slice::who`], in the order in which they ended their first slice; who comes when all places are taken has none.
    pub who: [u64; PARTIES],
    /// How long each had the CPU, without `kernel_ns`; 0: an empty place.
    pub ns: [u64; PARTIES],
}

/// The history of one CPU; written by its own hook alone, read by others without a lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// The number of the latest slice; its place is that modulo [`SLICES`].
    pub head: u64,
    /// The task that came last, as far as the hook has seen.
    pub tid: u32,
    /// No meaning.
    pub padding: u32,
    /// `rq->prev_irq_time` at the latest switch.
    pub irq_seen_ns: u64,
    /// Sum of all slices of kernel threads that are over, ns.
    pub kernel_ns: u64,
    /// Sum of all slices in which nobody ran, ns.
    pub idle_ns: u64,
    /// The slices.
    pub slices: [Slice; SLICES],
    /// Slice `n` is in block `n /` [`BLOCK`], whose place is that modulo [`BLOCKS`].
    pub blocks: [Block; BLOCKS],
}

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
    /// Id of the cgroup whose quota had run out; 0: none had.
    pub limit: u64,
    /// [`Ring::kernel_ns`] of its CPU then.
    pub kernel_ns: u64,
    /// [`Ring::idle_ns`] of its CPU then.
    pub idle_ns: u64,
    /// How long its group had run on that CPU by then, ns.
    pub group_ran_ns: u64,
    /// The CPU that it ran on last, or [`NO_CPU`].
    pub cpu: u32,
    /// Its migrations when it came there, cut to 32 bits.
    pub migrations: u32,
}

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
