//! The log of a task: its latest waits. The hook only appends an entry for each wait, which touches one cache line. Once the log is
//! full, all entries are counted in the task's [`Histogram`], which has a line for each power of two of a microsecond.
//!
//! Two programs may take entries from the log at the same time: the hook, and a reader. Each entry is taken once, because both move
//! [`TaskStorage::taken`] by an atomic exchange. A position is the number of a lap times [`LOGGED`] plus an
//! index. Each lap begins at index 0 and ends when the hook has counted the entries. Entries contain the number of their lap, so a
//! reader recognizes entries that another CPU wrote completely.

use crate::{
    Cause,
    cause::{BUCKETS_OF_ROW, COLUMNS, ROWS, WHOLE, cell_of, column_of},
    host::Host,
    verifier::{add_atomic, add_atomic_half, compare_exchange, exchange, get, opaque, set, wrapped},
    waits::WaitHost,
    wire::{COUNTERS_OF_ROW, Exited, Histogram, LOGGED, Log, TaskStorage},
};

/// Bits of an entry, from the lowest: the number of the counter that counts the wait, the number of the counter of a column, the
/// share of the wait that is added to it, and the lap. A wait with several causes has an entry for each column. The first of
/// them also counts the wait.
const COLUMN: u32 = 9;
const SHARE: u32 = 18;
const LAP: u32 = 25;
/// In the bits of the lap: always set, so that no entry is 0.
const IS_ENTRY: u32 = 1 << 6;

/// In [`TaskStorage::taken`]: the hook counts the entries.
const BUSY: u64 = 1 << u32::BITS;

/// Returns an entry that counts a wait. Column and share are 0, or those of one of the wait's causes. The lap is missing.
#[inline(always)]
pub const fn entry(bucket: u64, column: u64, share: u64) -> u32 {
    bits(counter(bucket), bucket, column, share)
}

/// Returns the number of the counter that counts the waits of a bucket.
#[inline(always)]
pub(crate) const fn counter(bucket: u64) -> u64 {
    2 * bucket - bucket % BUCKETS_OF_ROW as u64
}

/// A counter that nobody reads, for entries that count no wait.
pub(crate) const NO_COUNTER: u64 = COUNTERS_OF_ROW as u64 - 1;

#[inline(always)]
pub(crate) const fn bits(counter: u64, bucket: u64, column: u64, share: u64) -> u32 {
    let row = bucket / BUCKETS_OF_ROW as u64;
    let of_column = row * COUNTERS_OF_ROW as u64 + BUCKETS_OF_ROW as u64 + column;
    (counter | of_column << COLUMN | share << SHARE) as u32
}

/// Returns the entry of a wait with a single cause.
#[inline(always)]
pub fn entry_of(bucket: usize, cause: Cause) -> u32 {
    let column = column_of(cause);
    if column < COLUMNS {
        entry(bucket as u64, column as u64, WHOLE.into())
    } else {
        entry(bucket as u64, 0, 0)
    }
}

/// Returns the bits of the lap of this position.
#[inline(always)]
const fn lap(position: u32) -> u32 {
    ((position / LOGGED as u32) % IS_ENTRY) | IS_ENTRY
}

/// Adds the lap to the first entry of an empty log.
#[inline(always)]
pub const fn first(entry: u32) -> u32 {
    entry | lap(0) << LAP
}

/// Appends an entry. The caller must hold the run queue lock of the task.
#[inline(always)]
pub fn append(storage: &mut TaskStorage, entry: u32) {
    let at = get(&mut storage.logged);
    set(wrapped(&mut storage.log, at.into()), entry | lap(at) << LAP);
    set(&mut storage.logged, at.wrapping_add(1));
}

/// Counts the entries if the log is full.
#[inline(always)]
pub(crate) fn count_if_full<H: WaitHost>(task: H::Task, storage: &mut TaskStorage) {
    if get(&mut storage.logged).is_multiple_of(LOGGED as u32) {
        count_all::<H>(task, storage);
    }
}

/// Counts the entries if the log lacks room for `more`, at most one for each column.
#[inline(always)]
pub(crate) fn make_room<H: WaitHost>(task: H::Task, storage: &mut TaskStorage, more: u32) {
    if get(&mut storage.logged) % LOGGED as u32 + more > LOGGED as u32 {
        count_all::<H>(task, storage);
    }
}

/// Counts all entries in the task's histogram. A task without a histogram has waited so rarely that its log was always reported
/// before it was full. If there is no memory for a histogram, the waits count for the task's cgroup.
#[inline(never)]
fn count_all<H: WaitHost>(task: H::Task, storage: &mut TaskStorage) {
    let histogram = H::histogram(task);
    let place = if histogram.is_none() { H::exited(storage.cgroup_id) } else { None };
    H::count(storage, histogram, place);
}

/// Adds the entries of the log to the histogram, or to the figures of exited tasks, and begins the next lap.
///
/// A program that takes the counters of the histogram sets [`TaskStorage::lock`], and then waits until `taken` is not [`BUSY`]. This
/// function does the same in the other order. So at least one of both sees the other, and atomic additions are needed only then.
#[inline(always)]
pub fn count<H: Host>(
    storage: &mut TaskStorage,
    histogram: Option<&mut Histogram>,
    place: Option<&mut Exited>,
) {
    let end = get(&mut storage.logged);
    let next = (end.wrapping_sub(1) | (LOGGED as u32 - 1)).wrapping_add(1);
    // This is `next` if a reader has taken the whole lap.
    let from = exchange(&mut storage.taken, BUSY | u64::from(next)) as u32;
    set(&mut storage.logged, next);
    match histogram {
        Some(histogram) if end.wrapping_sub(from) == LOGGED as u32 && get(&mut storage.lock) == 0 => {
            // Usually no reader has taken any entry. Without an index, this takes half as many instructions.
            storage.log.iter_mut().for_each(|entry| add(histogram, get(entry)));
        }
        histogram => {
            let mut counting = Counting { log: &mut storage.log, histogram, place, from, end };
            H::repeat(LOGGED as u32, count_one, &mut counting);
            if let (None, Some(place)) = (counting.histogram, counting.place) {
                add_atomic(&mut place.complete, 1);
            }
        }
    }
    // x86 makes earlier writes visible first.
    set(&mut storage.taken, next.into());
}

struct Counting<'a> {
    log: &'a mut Log,
    histogram: Option<&'a mut Histogram>,
    place: Option<&'a mut Exited>,
    from: u32,
    end: u32,
}

/// Counts the next entry. Returns true if none is left.
#[inline(always)]
fn count_one(counting: &mut Counting<'_>) -> bool {
    let from = get(&mut counting.from);
    if from == get(&mut counting.end) {
        return true;
    }
    set(&mut counting.from, from.wrapping_add(1));
    let entry = get(wrapped(counting.log, from.into()));
    if let Some(histogram) = &mut counting.histogram {
        changes(entry, |at, n| add_with(histogram, at, n, add_atomic_half));
    } else if let Some(place) = &mut counting.place {
        add_entry_to_place(place, entry);
    }
    false
}

/// Takes the oldest entry that nobody has taken. Returns 0 if there is none, and [`AGAIN`] if another program takes it. After 0, and
/// while the caller holds the lock of the storage, the counters of the histogram may be taken by atomic exchanges.
#[inline(always)]
pub fn take(storage: &mut TaskStorage) -> u32 {
    let from = get(&mut storage.taken);
    if from & BUSY != 0 {
        return AGAIN;
    }
    let entry = get(wrapped(&mut storage.log, from));
    // On some CPUs, the position may be visible before the entry. The next reading takes this entry.
    if from as u32 == get(&mut storage.logged) || entry >> LAP != lap(from as u32) {
        return 0;
    }
    let next = (from as u32).wrapping_add(1);
    if compare_exchange(&mut storage.taken, from, next.into()) == from { entry } else { AGAIN }
}

/// Returned by [`take`]. No entry has this value.
pub const AGAIN: u32 = 1;

/// How often to call [`take`] to empty a log, or until the hook has counted the entries, which takes some 100 ns.
pub const TAKES: u32 = 2 * LOGGED as u32;

/// Returns the number of the counter that counts the wait, the number of the counter of the column, and what to add to it.
#[inline(always)]
const fn parts(entry: u32) -> (u32, u32, u32) {
    let column = entry >> COLUMN & ((1 << (SHARE - COLUMN)) - 1);
    (entry & ((1 << COLUMN) - 1), column, entry >> SHARE & ((1 << (LAP - SHARE)) - 1))
}

/// Calls `add` with the number of each counter that the entry changes, and the number to add.
#[inline(always)]
fn changes(entry: u32, mut add: impl FnMut(u32, u32)) {
    let (counter, column, share) = parts(entry);
    add(counter, 1);
    if share != 0 {
        add(column, share);
    }
}

/// Adds an entry to a histogram, which no other program uses. Without the check whether there is a share, the verifier follows fewer
/// code paths.
#[inline(always)]
pub fn add(histogram: &mut Histogram, entry: u32) {
    let (counter, column, share) = parts(entry);
    for (at, n) in [(counter, 1), (column, share)] {
        add_with(histogram, at, n, |counter, n| *counter = counter.wrapping_add(n));
    }
}

#[inline(always)]
fn add_with(histogram: &mut Histogram, at: u32, n: u32, add: impl Fn(&mut u32, u32)) {
    // The number is always in bounds, but the verifier requires the check.
    if let Some(counter) = histogram.counters.get_mut(opaque(at as usize)) {
        add(counter, n);
    }
}

/// Adds a number of waits or of shares to the figures of exited tasks. `at` is the number of the counter in a histogram.
#[inline(always)]
pub fn add_to_place(place: &mut Exited, at: u32, n: u32) {
    let (row, at) = (opaque(at as usize / COUNTERS_OF_ROW), at as usize % COUNTERS_OF_ROW);
    // This is never true, but the verifier requires the check.
    if row >= ROWS {
        return;
    }
    if at < BUCKETS_OF_ROW {
        add_atomic(&mut place.counts[row * BUCKETS_OF_ROW + at], n.into());
    } else if at < BUCKETS_OF_ROW + COLUMNS {
        add_atomic(&mut place.shares[cell_of(row, at - BUCKETS_OF_ROW)], n.into());
    }
}

/// Adds an entry to the figures of exited tasks.
#[inline(always)]
pub fn add_entry_to_place(place: &mut Exited, entry: u32) {
    changes(entry, |at, n| add_to_place(place, at, n));
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::{
        BUCKETS, CAUSES,
        cause::{CELLS, row_of},
        waits::{
            booking::{book, log_shares},
            tests::host::{Facts, Maps, Simulated},
        },
    };
    use proptest::prelude::*;
    use std::{boxed::Box, vec::Vec};

    /// Divides a wait in the plainest way: returns the share of each column, and the rest.
    fn divided(parts: &[u64; CAUSES]) -> [u64; COLUMNS + 1] {
        let wait_ns: u64 = parts.iter().sum();
        let mut shares = [0; COLUMNS + 1];
        let mut largest = (0, 0);
        for (cause, ns) in Cause::ALL.into_iter().zip(parts) {
            shares[column_of(cause)] += ns * u64::from(WHOLE) / wait_ns;
            if *ns > largest.0 {
                largest = (*ns, column_of(cause));
            }
        }
        shares[largest.1] += u64::from(WHOLE) - shares.iter().sum::<u64>();
        shares
    }

    fn any_wait() -> impl Strategy<Value = (usize, [u64; CAUSES])> {
        let part = prop_oneof![2 => Just(0u64), 1 => 1..1_000_000u64];
        (0..BUCKETS, proptest::array::uniform9(part))
            .prop_filter("a wait", |(_, parts)| parts.iter().any(|ns| *ns != 0))
    }

    proptest! {
        /// Any number of waits, between which a reader takes entries. Each wait is counted once: by the hook or by the reader. Also
        /// if positions wrap.
        #[test]
        fn each_wait_is_counted_once(
            waits in prop::collection::vec((any_wait(), any::<bool>(), prop_oneof![9 => Just(0), 1 => 0..2 * LOGGED]), 1..200),
            first in prop_oneof![Just(0u32), Just(u32::MAX / 16 * 16)],
        ) {
            let _maps = Maps::new(true);
            // SAFETY: the type contains only integers.
            let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
            (storage.logged, storage.taken) = (first, first.into());
            let task = Facts::default();
            let (mut reported, mut expected) = (Histogram::NONE, ([0u32; BUCKETS], [0u32; CELLS]));
            for ((bucket, parts), is_simple, reader) in waits {
                expected.0[bucket] += 1;
                if is_simple {
                    append(&mut storage, entry_of(bucket, Cause::Kernel));
                    expected.1[cell_of(row_of(bucket), 3)] += WHOLE;
                } else {
                    let work = Simulated::work(0).expect("working memory");
                    (work.walk.parts, work.wait.bucket, work.wait.ns) = (parts, bucket as u64, parts.iter().sum());
                    book(&mut storage, work);
                    log_shares::<Simulated>(task, &mut storage, work);
                    let shares = divided(&parts);
                    (0..COLUMNS).for_each(|column| expected.1[cell_of(row_of(bucket), column)] += shares[column] as u32);
                }
                count_if_full::<Simulated>(task, &mut storage);
                storage.lock = u64::from(reader % 2 != 0);
                for _ in 0..reader {
                    let entry = take(&mut storage);
                    if entry != 0 {
                        add(&mut reported, entry);
                    }
                }
            }
            prop_assert_eq!(storage.taken & BUSY, 0);
            (0..TAKES).map(|_| take(&mut storage)).filter(|entry| *entry != 0).for_each(|entry| add(&mut reported, entry));
            let counted = Maps::histogram(0);
            let mut place = Box::new(Exited::NONE);
            for histogram in [reported, counted] {
                let (counts, shares) = histogram.counts_and_shares();
                place.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(count));
                place.shares.iter_mut().zip(shares).for_each(|(sum, share)| *sum += u64::from(share));
            }
            prop_assert_eq!(place.counts.to_vec(), expected.0.map(u64::from).to_vec());
            prop_assert_eq!(place.shares.to_vec(), expected.1.map(u64::from).to_vec());
        }
    }

    #[test]
    fn the_first_entry_can_be_written_without_appending_it() {
        // SAFETY: the type contains only integers.
        let [mut ours, mut appended] =
            [(); 2].map(|()| unsafe { Box::<TaskStorage>::new_zeroed().assume_init() });
        let entry = entry_of(9, Cause::Unattributed);
        (ours.log[0], ours.logged) = (first(entry), 1);
        append(&mut appended, entry);
        assert_eq!((ours.log, ours.logged), (appended.log, appended.logged));
        assert_eq!((take(&mut ours), take(&mut ours)), (first(entry), 0));
    }

    /// Without a new number in `complete`, no reading would report these waits.
    #[test]
    fn without_a_histogram_the_waits_count_for_the_cgroup_and_are_reported() {
        // SAFETY: the type contains only integers.
        let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
        let mut place = Box::new(Exited::NONE);
        (0..LOGGED).for_each(|_| append(&mut storage, entry_of(9, Cause::Kernel)));
        count::<Simulated>(&mut storage, None, Some(&mut place));
        let whole = u64::from(WHOLE) * LOGGED as u64;
        assert_eq!((place.counts[9], place.shares[cell_of(1, 3)]), (LOGGED as u64, whole));
        assert!(!Exited::is_reported(place.complete, [0; 2]));
        assert_eq!(take(&mut storage), 0);
    }

    #[test]
    fn entries_count_the_same_for_a_task_and_for_its_cgroup() {
        let (mut histogram, mut place) = (Histogram::NONE, Box::new(Exited::NONE));
        for bucket in 0..BUCKETS {
            let entries: Vec<u32> = Cause::ALL.into_iter().map(|cause| entry_of(bucket, cause)).collect();
            entries.into_iter().for_each(|entry| {
                add(&mut histogram, entry);
                add_entry_to_place(&mut place, entry);
            });
        }
        let (counts, shares) = histogram.counts_and_shares();
        assert_eq!(counts, [CAUSES as u32; BUCKETS]);
        assert_eq!(counts.map(u64::from), place.counts);
        assert_eq!(shares.map(u64::from), place.shares);
    }
}
