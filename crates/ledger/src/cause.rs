//! The causes of waits. The ledger splits each wait into parts, one for each cause, which sum to the length of the wait.

use crate::{bucket::BUCKETS, named};

named! {
    /// The cause of one part of a wait. The discriminant is its index in [`ByCause`].
    Cause {
        /// The task could not run because its cgroup or an ancestor was out of quota.
        Throttled = "throttled",
        /// The CPU ran other tasks of the same cgroup.
        OwnCgroup = "own_cgroup",
        /// The CPU ran tasks of other cgroups.
        OtherCgroup = "other_cgroup",
        /// The CPU ran kernel threads.
        Kernel = "kernel",
        /// The cause is unknown, for example because a move to another CPU was not seen, or because the history of the CPU is too
        /// short.
        Unattributed = "unattributed",
        /// The task is a real-time or deadline task that had used up its runtime.
        RtThrottled = "rt_throttled",
        /// The CPU handled interrupts (counted only by kernels with CONFIG_IRQ_TIME_ACCOUNTING).
        Irq = "irq",
        /// The hypervisor used the CPU, as far as it reports such time (CONFIG_PARAVIRT_TIME_ACCOUNTING).
        Stolen = "stolen",
        /// The CPU ran no task: it left its idle state, handled the reschedule interrupt, or switched tasks.
        Wakeup = "wakeup",
    }
}

pub const CAUSES: usize = Cause::ALL.len();

/// Time by cause, ns, in the order of [`Cause::ALL`].
pub type ByCause = [u64; CAUSES];

/// Number of buckets in one row of the histogram by cause. A row covers one power of two.
pub const BUCKETS_OF_ROW: usize = 8;

/// Number of rows in the histogram by cause.
pub const ROWS: usize = BUCKETS / BUCKETS_OF_ROW;

const _: () = assert!(ROWS * BUCKETS_OF_ROW == BUCKETS);

/// The sum that one wait adds to its row of the histogram by cause. The sum is divided among the causes in proportion to their
/// parts of the wait.
pub const WHOLE: u32 = 64;

/// Number of columns of the histogram by cause. [`Cause::Wakeup`] has no column: its share is [`WHOLE`] less the other shares. So
/// the most common wait, of 0 ns, changes no column.
pub const COLUMNS: usize = 5;

/// The cause after which each column is named. The last entry is the cause that has no column.
pub const COLUMN_NAMES: [Cause; COLUMNS + 1] = [
    Cause::Throttled,
    Cause::OwnCgroup,
    Cause::OtherCgroup,
    Cause::Kernel,
    Cause::Unattributed,
    Cause::Wakeup,
];

/// Number of cells of a histogram by cause. A recording stores a cell's number in one byte.
pub const CELLS: usize = ROWS * COLUMNS;

/// A histogram by cause: each wait adds [`WHOLE`] units, divided among its causes. [`cell_of`] returns the index of a cell. The
/// counters never decrease, except that they wrap at 2^32.
pub type Shares = [u32; CELLS];

/// Returns the column of a cause, or [`COLUMNS`] for [`Cause::Wakeup`], which has no column. Rarer causes share a column, because
/// histograms take most of the 4 KiB that the kernel allows for a task's storage. [`ByCause`] keeps the sum of each cause
/// separately.
#[inline(always)]
pub const fn column_of(cause: Cause) -> usize {
    match cause {
        Cause::Throttled | Cause::RtThrottled => 0,
        Cause::OwnCgroup => 1,
        Cause::OtherCgroup => 2,
        Cause::Kernel | Cause::Irq | Cause::Stolen => 3,
        Cause::Unattributed => 4,
        Cause::Wakeup => COLUMNS,
    }
}

/// Returns the number of a cell, given its row and column. Recordings store these numbers.
#[inline(always)]
pub const fn cell_of(row: usize, column: usize) -> usize {
    row * COLUMNS + column
}

pub const fn row_and_column(cell: usize) -> (usize, usize) {
    (cell / COLUMNS, cell % COLUMNS)
}

#[inline(always)]
pub const fn row_of(bucket: usize) -> usize {
    bucket / BUCKETS_OF_ROW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_discriminant_is_the_place_in_all() {
        for (i, cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(*cause as usize, i);
        }
    }

    #[test]
    fn every_column_is_named_after_a_cause_of_its_own() {
        for (column, cause) in COLUMN_NAMES.into_iter().enumerate() {
            assert_eq!(column_of(cause), column);
        }
        // For a wait with only one cause, the hook uses the number of the cause as the number of the column.
        for cause in [Cause::OwnCgroup, Cause::OtherCgroup, Cause::Kernel] {
            assert_eq!(column_of(cause), cause as usize);
        }
        assert!(Cause::Wakeup as usize >= COLUMNS);
    }

    #[test]
    fn cells_have_the_numbers_of_recordings() {
        assert_eq!((cell_of(4, 2), cell_of(29, 4)), (22, 149));
        assert!((0..CELLS).all(|cell| cell_of(row_and_column(cell).0, row_and_column(cell).1) == cell));
    }
}
