//! Records who made whom wait. Each CPU has a table of pairs, which only programs that hold its run queue lock write.
//!
//! A pair keeps its entry if it was charged since the reading before the last one. So the number of other pairs does not affect
//! its time. A pair that finds no entry is kept with its victim, see [`Kept`]. That takes longer and needs a lock.

pub use crate::wire::{KEPT, Kept, Pair};
use crate::{
    Loss,
    verifier::{add_atomic, exchange, opaque},
    waits::{WaitHost, history::Slice},
};

/// Number of pairs in the table of one CPU. A power of two.
pub const PAIRS: usize = 512;
/// Number of entries that are tried for a pair, starting at the entry of its hash.
pub const PROBES: usize = 8;

/// What a culprit did to a victim.
pub mod kind {
    /// The culprit ran while the victim waited.
    pub const RAN: u32 = 1;
    /// The culprit was out of quota.
    pub const LIMITED: u32 = 2;
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

/// Number of kept pairs for each kind. The first half is for [`kind::RAN`], the second half for [`kind::LIMITED`].
const KEPT_OF_KIND: usize = KEPT / 2;
/// How often a CPU tries to lock the pairs of a victim. The CPU that holds the lock needs fewer instructions than these tries.
const TRIES: usize = 16;

impl Kept {
    /// Adds a charge. If its pair finds no entry, or another CPU holds the lock for long, the time is kept without a name.
    #[inline(always)]
    fn add<H: WaitHost>(&mut self, charge: &Charge, slice: Option<&mut Slice>) {
        let mut is_locked = false;
        for _ in 0..TRIES {
            if exchange(&mut self.lock, 1) == 0 {
                is_locked = true;
                break;
            }
        }
        // `opaque` hides the number from the verifier, which would otherwise follow each entry as a separate code path.
        let first = opaque(if charge.kind == kind::RAN { 0 } else { KEPT_OF_KIND });
        let place =
            if is_locked { place::<H, KEPT, KEPT_OF_KIND>(&mut self.pairs, first, charge) } else { None };
        let is_named = place.is_some();
        if let Some(pair) = place {
            charge.enter(pair, slice);
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
}

impl Charge {
    /// Creates a charge. If single tasks are blamed, also returns the slice of the task that ran.
    #[inline(always)]
    fn new<H: WaitHost>(
        victim: u64,
        culprit: u64,
        ns: u64,
        clock_ns: u64,
        packed: u64,
    ) -> (Self, Option<&'static mut Slice>) {
        let (at, kind) = Place::unpacked(packed);
        let by_task = if H::blames_tasks() && kind == kind::RAN { H::ring(at.history) } else { None };
        let slice = by_task.map(|ring| ring.slice(at.number));
        let tid = slice.as_ref().map_or(0, |slice| slice.tid);
        (Self { victim, culprit, kind, tid, ns, clock_ns }, slice)
    }

    #[inline(always)]
    fn enter(&self, pair: &mut Pair, slice: Option<&mut Slice>) {
        if pair.ns == 0 {
            pair.born_ns = self.clock_ns;
            if let Some(slice) = slice {
                pair.comm = slice.comm;
            }
        }
        pair.ns += self.ns;
        pair.last_ns = self.clock_ns;
    }
}

/// Returns the entry of a pair, among `ENTRIES` entries from `first` on. A new pair takes an empty entry, or replaces the pair
/// that was charged longest ago. `None`: all pairs were charged lately.
#[inline(always)]
fn place<'p, H: WaitHost, const N: usize, const ENTRIES: usize>(
    pairs: &'p mut [Pair; N],
    first: usize,
    charge: &Charge,
) -> Option<&'p mut Pair> {
    let mut oldest = first;
    let mut oldest_ns = u64::MAX;
    for probe in 0..ENTRIES {
        let pair = at(pairs, first + probe);
        // One comparison: the verifier would follow each of several comparisons as a separate code path.
        let is_other = (pair.victim ^ charge.victim)
            | (pair.culprit ^ charge.culprit)
            | u64::from((pair.tid ^ charge.tid) | (pair.kind ^ charge.kind));
        if is_other == 0 {
            return Some(at(pairs, first + probe));
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
    let pair = at(pairs, oldest);
    // The sum is cleared first, so a concurrent reader sees a smaller sum before it sees another pair.
    pair.ns = 0;
    pair.victim = charge.victim;
    pair.culprit = charge.culprit;
    pair.kind = charge.kind;
    pair.tid = charge.tid;
    Some(pair)
}

#[inline(always)]
fn at<const N: usize>(pairs: &mut [Pair; N], place: usize) -> &mut Pair {
    // SAFETY: the mask keeps the index within the array.
    unsafe { &mut *pairs.as_mut_ptr().add(place & (N - 1)) }
}

/// The CPU that records a charge, and the history that holds the culprit.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The CPU that records the charge.
    pub(crate) cpu: u32,
    /// The CPU whose history holds the culprit, and the number of the culprit's slice.
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

/// Records that `victim` waited for `ns` because of `who`. `packed`: a kind and a place, as passed to [`WaitHost::charge`].
#[inline(always)]
pub fn enter<H: WaitHost>(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) {
    let Some(table) = H::pairs(Place::unpacked(packed).0.cpu) else { return };
    let (charge, slice) = Charge::new::<H>(victim, who, ns, clock_ns, packed);
    let first = place_of(victim, who, charge.tid);
    match place::<H, PAIRS, PROBES>(&mut table.pairs, first, &charge) {
        Some(pair) => charge.enter(pair, slice),
        None => keep::<H>(&charge, slice),
    }
}

/// Keeps a charge in the victim's entry of the table of exited tasks.
#[inline(always)]
fn keep<H: WaitHost>(charge: &Charge, slice: Option<&'static mut Slice>) {
    let Some(of_victim) = H::exited(charge.victim) else { return H::lost(Loss::CulpritForgotten) };
    of_victim.kept.add::<H>(charge, slice);
    add_atomic(&mut of_victim.complete, 1);
}

#[cfg(test)]
mod tests;
