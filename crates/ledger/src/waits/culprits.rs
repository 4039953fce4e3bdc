//! The culprits: which cgroup or task made which cgroup wait. Each CPU has a table of pairs of victim and culprit. Only programs
//! that hold the CPU's run queue lock write this table.
//!
//! A pair keeps its entry in this table if it was charged after the reading before the last one. So its time is complete, no
//! matter how many other pairs there are. A pair that gets no entry is stored with its victim, see [`Kept`]. This takes longer
//! and needs a lock.

pub use crate::wire::{Comm, KEPT, Kept, Pair};
use crate::{
    Loss,
    verifier::{add_atomic, exchange, opaque, set, wrapped},
    waits::{WaitHost, history::SLICES},
};

/// Number of pairs in the table of one CPU, a power of two.
pub const PAIRS: usize = 512;
/// Number of entries that a pair may use, starting at the entry of its hash.
pub const PROBES: usize = 8;

/// How a culprit made a victim wait.
pub mod kind {
    /// The culprit ran while the victim waited.
    pub const RAN: u32 = 1;
    /// The culprit's quota was used up.
    pub const LIMITED: u32 = 2;
}

/// The table of culprits of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// The entries of a hash table, see [`place_of`].
    pub pairs: [Pair; PAIRS],
}

/// The tasks that ran on one CPU, and the names of culprits. They are stored only if culprits are single tasks. Only programs that
/// hold the CPU's run queue lock write them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskNames {
    /// The task of each slice of the CPU's [`Ring`](crate::history::Ring).
    slices: [TaskName; SLICES],
    /// The names of the threads of the CPU's [`Pairs`].
    pub pairs: [Comm; PAIRS],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskName {
    pub comm: Comm,
    pub tid: u64,
}

impl TaskNames {
    /// Returns the task of the slice with this number.
    #[inline(always)]
    pub fn slice(&mut self, number: u64) -> &mut TaskName {
        wrapped(&mut self.slices, number)
    }
}

/// Returns the index of the first entry that a pair may use.
#[inline(always)]
pub const fn place_of(victim: u64, culprit: u64, tid: u32) -> usize {
    // Fibonacci hashing: the factor is 2^64 divided by the golden ratio.
    let mixed = (victim ^ culprit.rotate_left(21) ^ ((tid as u64) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 55) as usize & (PAIRS - 1)
}

/// Number of pairs of each kind that are stored with a victim. The first half of the entries is for [`kind::RAN`], the second
/// half for [`kind::LIMITED`].
const KEPT_OF_KIND: usize = KEPT / 2;
/// How often a CPU tries to take the lock of a victim's pairs. These tries take more instructions than the CPU that holds the
/// lock needs to release it.
const TRIES: usize = 16;

impl Kept {
    /// Adds the time of a charge to its pair. If the pair gets no entry, or if another CPU holds the lock for too long, the time
    /// is stored without the culprit.
    #[inline(always)]
    fn add<H: WaitHost>(&mut self, charge: &Charge) {
        let is_locked = (0..TRIES).any(|_| exchange(&mut self.lock, 1) == 0);
        // `opaque` hides the index from the verifier, which would otherwise follow each entry as a separate code path.
        let first = opaque(if charge.kind == kind::RAN { 0 } else { KEPT_OF_KIND });
        let place =
            if is_locked { place::<H, KEPT, KEPT_OF_KIND>(&mut self.pairs, first, charge) } else { None };
        let is_named = place.is_some();
        if let Some(place) = place {
            let Self { pairs, comms, .. } = self;
            charge.enter::<H>(wrapped(pairs, place), || Some(wrapped(comms, place)));
        }
        if is_locked {
            exchange(&mut self.lock, 0);
        }
        if !is_named {
            add_atomic(&mut self.unnamed_ns[usize::from(charge.kind != kind::RAN)], charge.ns);
        }
    }
}

struct Charge {
    victim: u64,
    culprit: u64,
    kind: u32,
    tid: u32,
    ns: u64,
    clock_ns: u64,
    packed: u64,
}

impl Charge {
    #[inline(always)]
    fn new<H: WaitHost>(victim: u64, culprit: u64, ns: u64, clock_ns: u64, packed: u64) -> Self {
        let kind = Place::unpacked(packed).1;
        let mut charge = Self { victim, culprit, kind, tid: 0, ns, clock_ns, packed };
        charge.tid = charge.task::<H>().map_or(0, |task| task.tid as u32);
        charge
    }

    /// Returns the task that ran, if culprits are single tasks.
    #[inline(always)]
    fn task<H: WaitHost>(&self) -> Option<&'static TaskName> {
        let at = Place::unpacked(self.packed).0;
        let names =
            if H::blames_tasks() && self.kind == kind::RAN { H::task_names(at.history) } else { None };
        names.map(|names| &*names.slice(at.number))
    }

    /// Adds the time to a pair. If the pair is new, writes the name of its task to the result of `comm`.
    #[inline(always)]
    fn enter<'c, H: WaitHost>(&self, pair: &mut Pair, comm: impl FnOnce() -> Option<&'c mut Comm>) {
        if pair.ns == 0 {
            pair.born_ns = self.clock_ns;
            if let Some(task) = self.task::<H>()
                && let Some(comm) = comm()
            {
                // A single write would become a call of `memmove`, which takes stack.
                set(&mut comm[0], task.comm[0]);
                set(&mut comm[1], task.comm[1]);
            }
        }
        pair.ns += self.ns;
        pair.last_ns = self.clock_ns;
    }
}

/// Returns the index of a pair's entry, which is one of the `ENTRIES` entries from index `first` on. A new pair takes an empty
/// entry, or replaces the pair that was charged longest ago. Returns `None` if all pairs were charged recently.
#[inline(always)]
fn place<H: WaitHost, const N: usize, const ENTRIES: usize>(
    pairs: &mut [Pair; N],
    first: usize,
    charge: &Charge,
) -> Option<u64> {
    let mut oldest = first;
    let mut oldest_ns = u64::MAX;
    for probe in 0..ENTRIES {
        let pair = wrapped(pairs, (first + probe) as u64);
        // There is only one comparison, because the verifier would follow each of several comparisons as a separate code path.
        let is_other = (pair.victim ^ charge.victim)
            | (pair.culprit ^ charge.culprit)
            | u64::from((pair.tid ^ charge.tid) | (pair.kind ^ charge.kind));
        if is_other == 0 {
            return Some((first + probe) as u64);
        }
        if pair.last_ns < oldest_ns {
            (oldest, oldest_ns) = (first + probe, pair.last_ns);
        }
        if pair.kind == 0 {
            break;
        }
    }
    if oldest_ns > H::kept_since_ns() {
        return None;
    }
    let pair = wrapped(pairs, oldest as u64);
    // The sum is cleared first, so that a concurrent reader sees a smaller sum before it sees another pair.
    pair.ns = 0;
    pair.victim = charge.victim;
    pair.culprit = charge.culprit;
    pair.kind = charge.kind;
    pair.tid = charge.tid;
    Some(oldest as u64)
}

/// The CPU that records a charge, and the slice of the culprit.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    /// The CPU whose history contains the culprit, and the number of the culprit's slice.
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

/// Records that `victim` waited for `ns` because of `who`. `packed` contains a kind and a place, as passed to
/// [`WaitHost::charge`].
#[inline(always)]
pub fn enter<H: WaitHost>(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) {
    let cpu = Place::unpacked(packed).0.cpu;
    let Some(table) = H::pairs(cpu) else { return };
    let charge = Charge::new::<H>(victim, who, ns, clock_ns, packed);
    let first = place_of(victim, who, charge.tid);
    if let Some(place) = place::<H, PAIRS, PROBES>(&mut table.pairs, first, &charge) {
        let comm = || H::task_names(cpu).map(|names| wrapped(&mut names.pairs, place));
        return charge.enter::<H>(wrapped(&mut table.pairs, place), comm);
    }
    let Some(of_victim) = H::exited(victim) else { return H::lost(Loss::CulpritForgotten) };
    of_victim.kept.add::<H>(&charge);
    add_atomic(&mut of_victim.complete, 1);
}

#[cfg(test)]
mod tests;
