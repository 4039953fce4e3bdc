//! Adds the parts of a wait to the sums by cause (ns) and to the histogram by cause (shares).

use crate::{
    ByCause, Cause,
    cause::{COLUMNS, WHOLE, cell_of, column_of, row_of},
    verifier::{get, opaque, set},
    waits::{WaitHost, split::Work},
    wire::{Histogram, TaskStorage},
};

/// Adds a wait that has a single cause. Its column has the same number as the cause; [`Cause::Wakeup`] has no column. The cause
/// is passed as a number, because the verifier would follow each variant of `Cause` as a separate code path.
#[inline(always)]
pub(crate) fn book_simple<H: WaitHost>(
    storage: &mut TaskStorage,
    cpu: u32,
    bucket: u64,
    cause: u64,
    ns: u64,
) {
    add(&mut storage.by_cause, cause, ns);
    count(&mut storage.histogram, bucket, cause, u64::from(WHOLE));
    if H::counts_by_cpu() {
        book_simple_by_cpu::<H>(cpu, bucket, cause, ns);
    }
}

/// This function is not inlined, so that the hook stays small on hosts that do not count by CPU.
#[inline(never)]
fn book_simple_by_cpu<H: WaitHost>(cpu: u32, bucket: u64, cause: u64, ns: u64) {
    let Some(counters) = H::cpu_counters(cpu) else { return };
    add(&mut counters.by_cause, cause, ns);
    count(&mut counters.histogram, bucket, cause, u64::from(WHOLE));
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
fn count(histogram: &mut Histogram, bucket: u64, column: u64, share: u64) {
    if column >= COLUMNS as u64 {
        return;
    }
    // The index is always in bounds, but the verifier requires the check.
    let cell = opaque(cell_of(row_of(bucket as usize), column as usize));
    if let Some(cell) = histogram.shares.get_mut(cell) {
        *cell = cell.wrapping_add(share as u32);
    }
}

/// Intermediate values while a wait is divided into shares.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Length of the largest part so far, ns, and its column.
    largest_ns: u64,
    largest: u64,
    given: u64,
}

impl Shares {
    #[inline(always)]
    fn give(&mut self, column: u64, ns: u64, share: u64) {
        let given = get(&mut self.given);
        set(&mut self.given, given + share);
        if ns > get(&mut self.largest_ns) {
            set(&mut self.largest_ns, ns);
            set(&mut self.largest, column);
        }
    }
}

/// Adds the parts of the wait in `work` to the sums and to the histogram. Shares are rounded down; the column of the largest part
/// receives what is missing.
#[inline(never)]
pub(crate) fn book(by_cause: &mut ByCause, histogram: &mut Histogram, work: &mut Work) {
    let (bucket, wait_ns) = (get(&mut work.wait.bucket), get(&mut work.wait.ns));
    set(&mut work.shares.largest_ns, 0);
    set(&mut work.shares.given, 0);
    for (cause, (sum, part)) in Cause::ALL.into_iter().zip(by_cause.iter_mut().zip(&work.walk.parts)) {
        let ns = *part;
        if ns != 0 {
            *sum += ns;
            // A wait is shorter than 2^58 ns and longer than 0.
            let share = (ns * u64::from(WHOLE)).checked_div(wait_ns).unwrap_or(0);
            let column = column_of(cause) as u64;
            work.shares.give(column, ns, share);
            count(histogram, bucket, column, share);
        }
    }
    let rest = u64::from(WHOLE).wrapping_sub(get(&mut work.shares.given));
    count(histogram, bucket, get(&mut work.shares.largest), rest);
}
