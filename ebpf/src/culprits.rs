//! Records who made whom wait. Each CPU has a table of pairs that only its own hook writes, without locks or allocations.

use cgscope_layout::{
    Loss,
    ledger::{PAIRS, PROBES, Pair, Pairs, kind, place_of},
};

use crate::{
    kernel::blame_tasks,
    maps::{lost, pairs, pairs_read_ns, ring},
};

/// Where a charge is recorded, and where the culprit is found.
#[derive(Clone, Copy)]
pub struct Place {
    /// The CPU that records the charge.
    pub cpu: u32,
    /// The CPU whose history holds the culprit, and the number of the culprit's slice there.
    pub history: u32,
    pub number: u64,
}

impl Place {
    const KIND_BITS: u32 = 8;
    const CPU_BITS: u32 = 16;

    #[inline(always)]
    fn packed(self, kind: u32) -> u64 {
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

/// Records that `victim` waited `ns` because of `who`.
#[inline(always)]
pub fn charge(victim: u64, who: u64, kind: u32, ns: u64, clock_ns: u64, place: Place) {
    enter_charge(victim, who, ns, clock_ns, place.packed(kind));
}

/// Does the work of [`charge`]. It takes only numbers and is exported, so that the verifier checks it once, not at each call.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn enter_charge(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) -> u32 {
    let (at, kind) = Place::unpacked(packed);
    let Some(table) = pairs(at.cpu) else { return 0 };
    let by_task = if blame_tasks() && kind == kind::RAN { ring(at.history) } else { None };
    let slice = by_task.map(|ring| ring.slice(at.number));
    let tid = slice.as_ref().map_or(0, |slice| slice.tid);
    let pair = place(table, victim, who, kind, tid);
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
    0
}

#[inline(always)]
fn at(table: &mut Pairs, place: usize) -> &mut Pair {
    // SAFETY: the mask keeps it within the array.
    unsafe { table.pairs.as_mut_ptr().add(place & (PAIRS - 1)).as_mut_unchecked() }
}

/// Returns the entry of a pair. A new pair takes an empty entry, or replaces the pair that was charged longest ago.
#[inline(always)]
fn place(table: &mut Pairs, victim: u64, who: u64, kind: u32, tid: u32) -> &mut Pair {
    let first = place_of(victim, who, tid);
    let mut oldest = first;
    let mut oldest_ns = u64::MAX;
    for probe in 0..PROBES {
        let pair = at(table, first + probe);
        if pair.victim == victim && pair.culprit == who && pair.tid == tid && pair.kind == kind {
            return at(table, first + probe);
        }
        if pair.last_ns < oldest_ns {
            (oldest, oldest_ns) = (first + probe, pair.last_ns);
        }
        if pair.kind == 0 {
            break;
        }
    }
    let pair = at(table, oldest);
    if pair.kind != 0 && oldest_ns > pairs_read_ns() {
        lost(Loss::CulpritForgotten);
    }
    // The sum is cleared first, so that a concurrent reader sees it fall before it sees another pair.
    pair.ns = 0;
    pair.victim = victim;
    pair.culprit = who;
    pair.kind = kind;
    pair.tid = tid;
    pair
}
