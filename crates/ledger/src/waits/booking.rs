//! Adds the parts of a wait to the sums by cause (ns), and to the log or the histogram of a CPU (shares).

use crate::{
    ByCause, Cause,
    cause::{COLUMNS, WHOLE, cell_of, column_of, row_of},
    verifier::{get, opaque, set},
    waits::{WaitHost, log, split::Work},
    wire::{CpuHistogram, TaskStorage},
};

/// Adds a wait that has a single cause. Its column has the same number as the cause; [`Cause::Wakeup`] has no column, and `share`
/// is 0. The cause is passed as a number, because the verifier would follow each variant of `Cause` as a separate code path.
#[inline(always)]
pub(crate) fn book_simple<H: WaitHost>(
    storage: &mut TaskStorage,
    cpu: u32,
    bucket: u64,
    (cause, share): (u64, u64),
    ns: u64,
) {
    add(&mut storage.by_cause, cause, ns);
    log::append(storage, log::entry(bucket, cause & 7, share));
    if H::counts_by_cpu() {
        book_simple_by_cpu::<H>(cpu, bucket, cause, ns);
    }
}

/// This function is not inlined, so that the hook stays small on hosts that do not count by CPU.
#[inline(never)]
fn book_simple_by_cpu<H: WaitHost>(cpu: u32, bucket: u64, cause: u64, ns: u64) {
    let Some(counters) = H::cpu_counters(cpu) else { return };
    add(&mut counters.by_cause, cause, ns);
    if cause < COLUMNS as u64 {
        share(&mut counters.histogram, bucket, cause as usize, WHOLE.into());
    }
}

/// Counts a wait for the CPU on which it ends. This function is not inlined, so that the hook stays small on hosts that do not
/// count by CPU.
#[inline(never)]
pub(crate) fn count_by_cpu<H: WaitHost>(cpu: u32, bucket: u64, ns: u64) {
    let Some(counters) = H::cpu_counters(cpu) else { return };
    if let Some(count) = counters.histogram.counts.get_mut(opaque(bucket as usize)) {
        *count = count.wrapping_add(1);
    }
    if ns > counters.max_ns {
        counters.max_ns = ns;
    }
}

#[inline(always)]
fn add(by_cause: &mut ByCause, cause: u64, ns: u64) {
    // The index is always in bounds, but the verifier requires the check.
    if let Some(sum) = by_cause.get_mut(opaque(cause as usize)) {
        *sum += ns;
    }
}

#[inline(always)]
fn share(histogram: &mut CpuHistogram, bucket: u64, column: usize, share: u64) {
    // The index is always in bounds, but the verifier requires the check.
    if let Some(cell) = histogram.shares.get_mut(opaque(cell_of(row_of(bucket as usize), column))) {
        *cell = cell.wrapping_add(share as u32);
    }
}

/// Intermediate values while a wait is divided into shares.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// The shares of the columns, and last of the waits without a column.
    by_column: [u64; COLUMNS + 1],
    /// Length of the largest part so far, ns, and its column.
    largest_ns: u64,
    largest: u64,
}

impl Shares {
    /// Divides a wait of `wait_ns`. Shares are rounded down; the column of the largest part receives what is missing.
    #[inline(always)]
    fn divide(&mut self, wait_ns: u64, parts: &ByCause) {
        self.by_column.iter_mut().for_each(|share| set(share, 0));
        set(&mut self.largest_ns, 0);
        for (cause, ns) in Cause::ALL.into_iter().zip(parts) {
            // A wait is shorter than 2^58 ns and longer than 0.
            let share = (*ns * u64::from(WHOLE)).checked_div(wait_ns).unwrap_or(0);
            let column = column_of(cause);
            let sum = get(&mut self.by_column[column]);
            set(&mut self.by_column[column], sum + share);
            if *ns > get(&mut self.largest_ns) {
                set(&mut self.largest_ns, *ns);
                set(&mut self.largest, column as u64);
            }
        }
        let given = self.by_column.iter_mut().map(get).sum();
        let largest = opaque(get(&mut self.largest) as usize);
        if let Some(share) = self.by_column.get_mut(largest) {
            *share += u64::from(WHOLE).wrapping_sub(given);
        }
    }
}

/// Adds the parts of the wait in `work` to the sums, and divides the wait into shares.
#[inline(never)]
pub(crate) fn book(storage: &mut TaskStorage, work: &mut Work) {
    work.shares.divide(get(&mut work.wait.ns), &work.walk.parts);
    for (sum, ns) in storage.by_cause.iter_mut().zip(&work.walk.parts) {
        *sum += *ns;
    }
}

/// Appends the entries of the wait in `work`, which is already divided, to the log. The first entry also counts the wait.
#[inline(never)]
pub(crate) fn log_shares<H: WaitHost>(task: H::Task, storage: &mut TaskStorage, work: &mut Work) {
    let shares = &mut work.shares.by_column[..COLUMNS];
    log::make_room::<H>(task, storage, shares.iter_mut().map(|share| u32::from(get(share) != 0)).sum());
    let bucket = get(&mut work.wait.bucket);
    let mut counter = log::counter(bucket);
    for (column, share) in shares.iter_mut().enumerate() {
        let share = get(share);
        if share != 0 {
            log::append(storage, log::bits(counter, bucket, column as u64, share));
            counter = log::NO_COUNTER;
        }
    }
    if counter != log::NO_COUNTER {
        log::append(storage, log::bits(counter, bucket, 0, 0));
    }
}

/// Adds the parts of the wait in `work`, which is already divided, for its CPU.
#[inline(never)]
pub(crate) fn book_by_cpu<H: WaitHost>(work: &mut Work) {
    let bucket = get(&mut work.wait.bucket);
    let Some(counters) = H::cpu_counters(get(&mut work.wait.cpu)) else { return };
    for (sum, ns) in counters.by_cause.iter_mut().zip(&work.walk.parts) {
        *sum += *ns;
    }
    for (column, part) in work.shares.by_column[..COLUMNS].iter_mut().enumerate() {
        share(&mut counters.histogram, bucket, column, get(part));
    }
}
