//! Records who made whom wait. Each CPU has a table of pairs. Only programs that hold the lock of its run queue write it.

use crate::{Loss, host::Host};

/// Entries in the table of culprits of each CPU. A power of two.
pub const PAIRS: usize = 512;
/// Number of entries that are tried for a pair, starting at the one that its hash gives.
pub const PROBES: usize = 8;

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
    /// Id of the cgroup that ran or was out of quota, or [`KERNEL`](crate::history::KERNEL).
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

/// The table of culprits of one CPU.
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

impl Pairs {
    #[inline(always)]
    fn at(&mut self, place: usize) -> &mut Pair {
        // SAFETY: the mask keeps it within the array.
        unsafe { &mut *self.pairs.as_mut_ptr().add(place & (PAIRS - 1)) }
    }

    /// Returns the entry of a pair. A new pair takes an empty entry, or replaces the pair that was charged longest ago.
    #[inline(always)]
    fn place<H: Host>(&mut self, victim: u64, who: u64, kind: u32, tid: u32) -> &mut Pair {
        let first = place_of(victim, who, tid);
        let mut oldest = first;
        let mut oldest_ns = u64::MAX;
        for probe in 0..PROBES {
            let pair = self.at(first + probe);
            if pair.victim == victim && pair.culprit == who && pair.tid == tid && pair.kind == kind {
                return self.at(first + probe);
            }
            if pair.last_ns < oldest_ns {
                (oldest, oldest_ns) = (first + probe, pair.last_ns);
            }
            if pair.kind == 0 {
                break;
            }
        }
        let pair = self.at(oldest);
        if pair.kind != 0 && oldest_ns > H::pairs_read_ns() {
            H::lost(Loss::CulpritForgotten);
        }
        // The sum is cleared first, so that a concurrent reader sees it fall before it sees another pair.
        pair.ns = 0;
        pair.victim = victim;
        pair.culprit = who;
        pair.kind = kind;
        pair.tid = tid;
        pair
    }
}

/// Where a charge is recorded, and where the culprit is found.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The CPU that records the charge.
    pub(crate) cpu: u32,
    /// The CPU whose history holds the culprit, and the number of the culprit's slice there.
    pub(crate) history: u32,
    pub(crate) number: u64,
}

impl Place {
    const KIND_BITS: u32 = 8;
    const CPU_BITS: u32 = 16;

    #[inline(always)]
    pub(crate) fn packed(self, kind: u32) -> u64 {
        let cpus = u64::from(self.cpu) | (u64::from(self.history) << Self::CPU_BITS);
        u64::from(kind) | (cpus << Self::KIND_BITS) | (self.number << (Self::KIND_BITS + 2 * Self::CPU_BITS))
    }

    #[inline(always)]
    fn unpacked(packed: u64) -> (Self, u32) {
        let cpu = |from: u32| (packed >> from) as u32 & ((1 << Self::CPU_BITS) - 1);
        let place = Self {
            cpu: cpu(Self::KIND_BITS),
            history: cpu(Self::KIND_BITS + Self::CPU_BITS),
            number: packed >> (Self::KIND_BITS + 2 * Self::CPU_BITS),
        };
        (place, packed as u32 & ((1 << Self::KIND_BITS) - 1))
    }
}

/// Records that `victim` waited `ns` because of `who`. `packed`: a kind and a place, as [`Host::charge`] gets them.
#[inline(always)]
pub fn enter<H: Host>(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) {
    let (at, kind) = Place::unpacked(packed);
    let Some(table) = H::pairs(at.cpu) else { return };
    let by_task = if H::blames_tasks() && kind == kind::RAN { H::ring(at.history) } else { None };
    let slice = by_task.map(|ring| ring.slice(at.number));
    let tid = slice.as_ref().map_or(0, |slice| slice.tid);
    let pair = table.place::<H>(victim, who, kind, tid);
    if pair.ns == 0
        && let Some(slice) = slice
    {
        pair.comm = slice.comm;
    }
    if pair.ns == 0 {
        pair.born_ns = clock_ns;
    }
    pair.ns += ns;
    pair.last_ns = clock_ns;
}

#[cfg(test)]
mod tests;
