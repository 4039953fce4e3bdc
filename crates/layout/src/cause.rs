//! Why a task waited: the causes among which every wait is split. The parts sum to the wait.

use crate::{bucket::BUCKETS, named};

named! {
    /// The cause of a part of a wait. The discriminant is its index in [`ByCause`].
    Cause {
        /// The task could not run because its cgroup or an ancestor was out of quota.
        Throttled = "throttled",
        /// The CPU ran other tasks of the same cgroup.
        OwnCgroup = "own_cgroup",
        /// The CPU ran tasks of other cgroups.
        OtherCgroup = "other_cgroup",
        /// The CPU ran kernel threads, or interrupts if the kernel accounts for them (CONFIG_IRQ_TIME_ACCOUNTING).
        Kernel = "kernel",
        /// Unknown, for example on another CPU before a migration, or longer ago than the history reaches.
        Unattributed = "unattributed",
        /// The CPU ran nobody: it left its idle state, received the interrupt to reschedule, or switched.
        Wakeup = "wakeup",
    }
}

/// Number of causes.
pub const CAUSES: usize = Cause::ALL.len();

/// ns by cause, in the order of [`Cause::ALL`].
pub type ByCause = [u64; CAUSES];

/// Rows of the histogram by cause: one per doubling, which is eight buckets.
pub const ROWS: usize = BUCKETS / 8;

/// The amount that a wait adds to its row, divided among its causes in proportion to their parts.
pub const WHOLE: u32 = 64;

/// Causes that have a cell of their own in a row: all but the last. [`Cause::Wakeup`] is the remainder of the row. So the
/// most common wait, of 0 ns, costs nothing.
pub const SHARED_CAUSES: usize = CAUSES - 1;

/// Number of cells of a histogram by cause.
pub const CELLS: usize = ROWS * SHARED_CAUSES;

// The number of a cell is stored in one byte.
const _: () = assert!(CELLS <= 256);

/// The histogram by cause, by [`cell_of`], in units of 1/[`WHOLE`] wait. The counters only rise, and wrap at 2^32.
pub type Shares = [u32; CELLS];

/// Number of causes that the first recordings know. Recordings store cell numbers, so these must not change: the cells of a later
/// cause follow all others.
const FIRST_CAUSES: usize = 5;

/// Returns the cell of a row and a cause below [`SHARED_CAUSES`].
#[inline(always)]
pub const fn cell_of(row: usize, cause: usize) -> usize {
    if cause < FIRST_CAUSES { row * FIRST_CAUSES + cause } else { cause * ROWS + row }
}

/// Returns the row and the cause of a cell.
pub const fn row_and_cause(cell: usize) -> (usize, usize) {
    if cell < ROWS * FIRST_CAUSES {
        (cell / FIRST_CAUSES, cell % FIRST_CAUSES)
    } else {
        (cell % ROWS, cell / ROWS)
    }
}

/// Returns the row of a bucket.
#[inline(always)]
pub const fn row_of(bucket: usize) -> usize {
    bucket / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_discriminant_is_the_place_in_all_and_wakeup_is_last() {
        for (i, cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(*cause as usize, i);
        }
        assert_eq!(Cause::Wakeup as usize, SHARED_CAUSES);
    }

    #[test]
    fn every_row_and_cause_has_a_cell_of_its_own() {
        // Includes causes that may be added later.
        let mut is_taken = [false; ROWS * (FIRST_CAUSES + 3)];
        for (row, cause) in (0..ROWS).flat_map(|row| (0..FIRST_CAUSES + 3).map(move |cause| (row, cause))) {
            let cell = cell_of(row, cause);
            assert_eq!(row_and_cause(cell), (row, cause));
            assert!(!core::mem::replace(&mut is_taken[cell], true), "{row} {cause}");
        }
        assert_eq!((cell_of(4, 2), cell_of(29, 4), cell_of(0, 5)), (22, 149, 150), "as in recordings");
    }
}
