//! Counts a cgroup's waits by length and cause. The counts are integers that only rise.
//!
//! A wait can have several causes. An [`Interval`](cgscope_model::Interval) has the share of each cause, in 64ths of a wait, for
//! each row of buckets. A row covers a factor of two in length. A histogram has integer counters, so we assign each wait to one
//! cause. In each row, we assign to a cause as many waits as the sum of its shares. Rounding errors are corrected with later
//! waits. The sum over all causes is exact.

use cgscope_ledger::{
    BUCKETS, CAUSES, Cause,
    cause::{COLUMN_NAMES, COLUMNS, ROWS, WHOLE, row_and_column, row_of},
};
use cgscope_model::{Wait, sum};

use crate::protobuf::CLASSIC;

/// The waits that are assigned to one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitSeries {
    /// Counts by bucket of [`cgscope_ledger::bucket`].
    pub counts: [u64; BUCKETS],
    /// Exact sum of the parts of all waits that have this cause, ns. Not the sum of the lengths of the waits in `counts`.
    pub ns: u64,
    /// Whether waits are assigned to this cause. If false, `counts` stays 0, and the waits are assigned to other causes.
    pub has_counts: bool,
}

impl WaitSeries {
    /// Iterates over the cumulative counts of the classic buckets with a finite edge; empty if no waits have this cause.
    pub fn classic(&self) -> impl Iterator<Item = u64> + '_ {
        let rows = if self.has_counts { CLASSIC } else { 0 };
        self.counts.chunks(8).take(rows).scan(0, |sum, row| {
            row.iter().for_each(|count| sum::add(sum, *count));
            Some(*sum)
        })
    }

    pub fn count(&self) -> u64 {
        sum::total(self.counts)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// Series in the order of [`Cause::ALL`]; `None` for a cause without waits.
    by_cause: [Option<Box<WaitSeries>>; CAUSES],
    /// The share of each row and column for which we have not assigned waits yet, in 64ths of a wait ([`WHOLE`] is a whole wait).
    /// The share of the remainder is not stored, because it is the negative sum of the other shares.
    owed: Box<Owed>,
}

type Owed = [[i32; COLUMNS]; ROWS];

/// A share for each column, and at the end the share of the remainder, in 64ths of a wait.
type Parts = [i128; COLUMNS + 1];

/// Maximum of an unassigned share. This is far above correct values, and limits the later effects of a wrong reading.
const MOST_OWED: i128 = 1 << 24;

impl Waits {
    /// Iterates over the causes that any wait has had.
    pub fn series(&self) -> impl Iterator<Item = (Cause, &WaitSeries)> {
        let all = Cause::ALL.into_iter().zip(&self.by_cause);
        all.filter_map(|(cause, series)| Some((cause, series.as_deref()?)))
    }

    pub fn add(&mut self, wait: &Wait) {
        for (cause, ns) in wait.by_cause.iter().filter(|(_, ns)| *ns != 0) {
            sum::add(&mut self.series_of(cause).ns, ns);
        }
        let mut shares = [[0u64; COLUMNS]; ROWS];
        for (cell, share) in wait.hist.shares.iter() {
            let (row, column) = row_and_column(cell);
            shares[row][column] = share;
        }
        let counts: Vec<(usize, u64)> = wait.hist.counts.iter().collect();
        let mut rows = counts.chunk_by(|a, b| row_of(a.0) == row_of(b.0)).peekable();
        for (row, shares) in shares.iter().enumerate() {
            let counts = rows.next_if(|counts| row_of(counts[0].0) == row).unwrap_or_default();
            // A sample may contain the shares of a wait, but not its count. Keep these shares for the next interval.
            if !counts.is_empty() || *shares != [0; COLUMNS] {
                self.add_row(row, counts, shares);
            }
        }
    }

    fn add_row(&mut self, row: usize, counts: &[(usize, u64)], shares: &[u64; COLUMNS]) {
        let mut left: i128 = counts.iter().map(|(_, count)| i128::from(*count)).sum();
        let mut owed: Parts = [0; COLUMNS + 1];
        for (owed, (before, share)) in owed.iter_mut().zip(self.owed[row].iter().zip(shares)) {
            *owed = i128::from(*before) + i128::from(*share);
        }
        owed[COLUMNS] = left * i128::from(WHOLE) - owed.iter().sum::<i128>();
        for (bucket, count) in counts {
            let given = hand_out(&owed, *count, left);
            for (column, given) in given.into_iter().enumerate().filter(|(_, given)| *given != 0) {
                sum::add(&mut self.series_of(COLUMN_NAMES[column]).counts[*bucket], given);
                owed[column] -= i128::from(given) * i128::from(WHOLE);
            }
            left -= i128::from(*count);
        }
        for (after, owed) in self.owed[row].iter_mut().zip(owed) {
            *after = owed.clamp(-MOST_OWED, MOST_OWED) as i32;
        }
    }

    fn series_of(&mut self, cause: Cause) -> &mut WaitSeries {
        let has_counts = COLUMN_NAMES.contains(&cause);
        let empty = || Box::new(WaitSeries { counts: [0; BUCKETS], ns: 0, has_counts });
        self.by_cause[cause as usize].get_or_insert_with(empty)
    }
}

/// Divides `count` waits among the causes in proportion to the unassigned shares, by the largest remainder method. `left` is the
/// number of waits of the row that are still to be divided, including these.
fn hand_out(owed: &Parts, count: u64, left: i128) -> [u64; COLUMNS + 1] {
    let whole = left.max(1).saturating_mul(WHOLE.into());
    // Saturate, because the values of a wrong reading can exceed the range. Correct values are far below the limit.
    let parts = owed.map(|owed| owed.saturating_mul(count.into()));
    let mut given: Parts = parts.map(|part| (part.max(0) / whole).min(count.into()));
    let mut rests: Parts =
        std::array::from_fn(|at| parts[at].saturating_sub(given[at].saturating_mul(whole)));
    loop {
        let missing = i128::from(count) - given.iter().sum::<i128>();
        // Each step corrects the sum by one wait. Only after a wrong reading, a step is larger.
        let step = (missing.abs() / (COLUMNS as i128 + 1)).max(1);
        let at_rest = |at: &usize| rests[*at];
        let (at, step) = match missing {
            0 => return given.map(|given| given as u64),
            1.. => ((0..=COLUMNS).rev().max_by_key(at_rest).unwrap_or(COLUMNS), step),
            _ => {
                let with_any = (0..=COLUMNS).filter(|at| given[*at] != 0);
                let at = with_any.min_by_key(at_rest).unwrap_or(COLUMNS);
                (at, -step.min(given[at]))
            }
        };
        given[at] += step;
        rests[at] = rests[at].saturating_sub(step.saturating_mul(whole));
    }
}

#[cfg(test)]
mod tests;
