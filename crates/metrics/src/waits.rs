//! A cgroup's waits by length and cause, as integer counts that only rise.
//!
//! A wait can have several causes. An [`Interval`](cgscope_model::Interval) has the share of each cause, in 64ths of a wait, for
//! each doubling of length. But a histogram's counters are integers, so each wait is assigned to one cause. In every doubling,
//! each cause gets as many waits as its shares add up to. Later waits make up for rounding. The sum over all causes is exact.

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
    /// The exact sum of this cause's parts of all waits, ns. It is not the total length of the waits counted here.
    pub ns: u64,
    /// False: the waits are counted under another cause.
    pub has_counts: bool,
}

impl WaitSeries {
    /// The cumulative counts of the classic buckets with a finite edge; none if the waits are counted under another cause.
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
    /// In the order of [`Cause::ALL`]; `None` if the cause has no wait yet.
    by_cause: [Option<Box<WaitSeries>>; CAUSES],
    /// For each row and each column: the share not yet assigned, in units of 1/[`WHOLE`] wait. The remainder has the negative sum, so
    /// that all add up to 0.
    owed: Box<Owed>,
}

type Owed = [[i32; COLUMNS]; ROWS];

/// By column; the last is the remainder.
type Parts = [i128; COLUMNS + 1];

/// Limit of an unassigned share, far above any correct value. A broken reading contradicts itself, and must not have lasting
/// effects.
const MOST_OWED: i128 = 1 << 24;

impl Waits {
    /// Iterates over the causes that had a part in a wait.
    pub fn series(&self) -> impl Iterator<Item = (Cause, &WaitSeries)> {
        let all = Cause::ALL.into_iter().zip(&self.by_cause);
        all.filter_map(|(cause, series)| Some((cause, series.as_deref()?)))
    }

    pub fn add(&mut self, wait: &Wait) {
        for (cause, ns) in wait.by_cause.iter().filter(|(_, ns)| *ns != 0) {
            sum::add(&mut self.series_of(cause).ns, ns);
        }
        let mut shares = [[0u64; COLUMNS]; ROWS];
        for (cell, share) in wait.hist.shares() {
            let (row, column) = row_and_column(cell);
            shares[row][column] = share;
        }
        let counts: Vec<(usize, u64)> = wait.hist.counts().collect();
        let mut rows = counts.chunk_by(|a, b| row_of(a.0) == row_of(b.0)).peekable();
        for (row, shares) in shares.iter().enumerate() {
            let counts = rows.next_if(|counts| row_of(counts[0].0) == row).unwrap_or_default();
            // If a sample is read while the kernel records a wait, the sample can have the share without the count. The share
            // is then kept.
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

/// Divides `count` of a row's `left` waits in proportion to the unassigned shares, by largest remainder.
fn hand_out(owed: &Parts, count: u64, left: i128) -> [u64; COLUMNS + 1] {
    let whole = left.max(1).saturating_mul(WHOLE.into());
    // Saturates, because a broken reading can exceed the range. Correct values are far below it.
    let parts = owed.map(|owed| owed.saturating_mul(count.into()));
    let mut given = parts.map(|part| (part.max(0) / whole).min(count.into()) as u64);
    let mut rests: Parts =
        std::array::from_fn(|at| parts[at].saturating_sub(i128::from(given[at]).saturating_mul(whole)));
    loop {
        let sum: i128 = given.iter().map(|given| i128::from(*given)).sum();
        let missing = i128::from(count) - sum;
        // One at a time, except for a broken reading.
        let step = (missing.unsigned_abs() / (COLUMNS as u128 + 1)).clamp(1, u64::MAX.into()) as u64;
        let at_rest = |at: &usize| rests[*at];
        let (at, step) = match missing {
            0 => return given,
            1.. => ((0..=COLUMNS).rev().max_by_key(at_rest).unwrap_or(COLUMNS), step),
            _ => {
                let with_any = (0..=COLUMNS).filter(|at| given[*at] != 0);
                let at = with_any.min_by_key(at_rest).unwrap_or(COLUMNS);
                (at, step.min(given[at]))
            }
        };
        let moved = i128::from(step).saturating_mul(whole);
        if missing > 0 {
            given[at] += step;
            rests[at] = rests[at].saturating_sub(moved);
        } else {
            given[at] -= step;
            rests[at] = rests[at].saturating_add(moved);
        }
    }
}

#[cfg(test)]
mod tests;
