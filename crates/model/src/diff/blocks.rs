//! The counters and the histogram of each subject, summed over blocks of time. Consecutive Intervals are correlated, so the
//! statistics use blocks of several Intervals as observations. The number of blocks is limited, so an hour takes no more memory
//! than a minute.

use cgscope_ledger::{BUCKETS, CAUSES, Cause};

use crate::{Counter, Hist, Observed, Totals, counters::COUNTERS, sum};

/// Maximum number of blocks of a recording. At this number, blocks are merged in pairs. The remaining 24 blocks still determine
/// the spread of a mean to within 15 %.
pub const MOST_BLOCKS: usize = 48;
/// Minimum number of blocks, if a recording has at least this many intervals. The minimum limits the length of blocks.
const FEW_BLOCKS: usize = 8;

/// A counter of a block. Cells hold the causes first, in the order of [`Cause::ALL`], and the counters of [`Counter`] last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Measure {
    /// Time of completed waits, ns.
    Wait = CAUSES as u8,
    /// Number of completed waits.
    Waits,
    OnCpu,
    Periods,
    ThrottledPeriods,
    /// `throttled_ns` of the quota.
    Stood,
    /// Run time, weighted by the share of memory on other nodes.
    Remote,
    /// The divisor of `Remote`: all run time for which that share is known.
    RemoteOf,
    /// Busy time of the host's CPUs, ns.
    Busy,
    Online,
    Hook,
    Collector,
    /// Time waited because of one culprit, ns.
    Behind,
    /// The longest wait: a maximum, not a sum.
    Longest,
}

const LONGEST: usize = Measure::Longest as usize;
const MEASURES: usize = LONGEST + 1 + COUNTERS;
const CELLS: usize = MEASURES + BUCKETS;

pub(super) const fn of_cause(cause: Cause) -> usize {
    cause as usize
}

pub(super) const fn of_counter(counter: Counter) -> usize {
    LONGEST + 1 + counter as usize
}

/// Marks a sum that includes an unknown counter. Sums saturate here, so the mark survives further additions.
pub(super) const UNKNOWN: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(super) struct BlockSums([u64; CELLS]);

impl Default for BlockSums {
    fn default() -> Self {
        Self([0; CELLS])
    }
}

impl BlockSums {
    pub fn add(&mut self, measure: Measure, amount: u64) {
        self.add_to(measure as usize, amount);
    }

    fn add_to(&mut self, cell: usize, amount: u64) {
        let sum = &mut self.0[cell];
        *sum = if cell == LONGEST { amount.max(*sum) } else { sum.saturating_add(amount) };
    }

    /// Adds the figures of tasks. `hist` holds their waits. An unknown counter makes the sum [`UNKNOWN`], unless it is partial.
    pub fn add_tasks(&mut self, totals: &Totals, max_ns: u64, hist: &Hist, observed: &Observed<'_>) {
        totals.by_cause.iter().for_each(|(cause, ns)| self.add_to(of_cause(cause), ns));
        self.add(Measure::Wait, totals.wait_ns);
        self.add(Measure::Waits, totals.waits);
        self.add(Measure::OnCpu, totals.on_cpu_ns);
        self.add(Measure::Longest, max_ns);
        hist.counts().for_each(|(bucket, count)| self.add_to(MEASURES + bucket, count));
        for counter in Counter::compared() {
            let unknown = if counter.info().is_partial { 0 } else { UNKNOWN };
            self.add_to(of_counter(counter), counter.of(observed).unwrap_or(unknown));
        }
    }

    pub fn merge(&mut self, other: &Self) {
        let longest = self.0[LONGEST].max(other.0[LONGEST]);
        self.0.iter_mut().zip(other.0).for_each(|(sum, amount)| sum::add(sum, amount));
        self.0[LONGEST] = longest;
    }

    /// Returns the sums as a row for the block with this number.
    pub fn row(&self, block: usize) -> BlockCells {
        let used = || self.0.iter().enumerate().filter(|(_, amount)| **amount != 0);
        BlockCells {
            block: block as u16,
            cells: used().map(|(cell, _)| cell as u16).collect(),
            amounts: used().map(|(_, amount)| *amount).collect(),
        }
    }

    fn add_row(&mut self, row: &BlockCells) {
        row.iter().for_each(|(cell, amount)| self.add_to(cell, amount));
    }
}

/// The non-zero cells of one or several blocks of a subject, ascending, with their amounts. Pairs would take nearly twice the
/// memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BlockCells {
    block: u16,
    cells: Box<[u16]>,
    amounts: Box<[u64]>,
}

impl BlockCells {
    pub fn get(&self, measure: Measure) -> u64 {
        self.at(measure as usize)
    }

    pub fn at(&self, cell: usize) -> u64 {
        self.cells.binary_search(&(cell as u16)).map_or(0, |at| self.amounts[at])
    }

    /// Returns the histogram without causes.
    pub fn hist(&self) -> Hist {
        Hist::from_counts((MEASURES..CELLS).map(|cell| self.at(cell)), [])
    }

    fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.cells.iter().map(|cell| usize::from(*cell)).zip(self.amounts.iter().copied())
    }

    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        self.iter().filter_map(|(cell, count)| Some((cell.checked_sub(MEASURES)?, count)))
    }
}

/// The blocks in which a subject was active, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct SubjectBlocks(pub Vec<BlockCells>);

impl SubjectBlocks {
    /// Merges each `factor` blocks into one. A remainder of less than half of `factor` joins the block before.
    pub fn merge_blocks(&mut self, factor: usize, blocks: usize) {
        let merged = merged_count(blocks, factor);
        self.regroup(|block| (block / factor).min(merged - 1));
    }

    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
        self.0.sort_by_key(|row| row.block);
        self.regroup(|block| block);
    }

    /// Renumbers the blocks, and merges blocks that get the same number. `number` must keep the order.
    pub fn regroup(&mut self, number: impl Fn(usize) -> usize) {
        for row in &mut self.0 {
            row.block = number(usize::from(row.block)) as u16;
        }
        let mut regrouped = Vec::with_capacity(self.0.len());
        for rows in self.0.chunk_by(|a, b| a.block == b.block) {
            if let [row] = rows {
                regrouped.push(row.clone());
                continue;
            }
            let mut sums = BlockSums::default();
            rows.iter().for_each(|row| sums.add_row(row));
            regrouped.push(sums.row(rows[0].block.into()));
        }
        self.0 = regrouped;
    }

    /// Returns the sum over all blocks, numbered as block 0.
    pub fn sum(&self) -> BlockCells {
        let mut sums = BlockSums::default();
        self.0.iter().for_each(|row| sums.add_row(row));
        sums.row(0)
    }

    fn series_of(&self, blocks: usize, figure: impl Fn(&BlockCells) -> f64) -> Vec<f64> {
        let mut series = vec![0.0; blocks];
        self.0.iter().for_each(|row| series[usize::from(row.block)] = figure(row));
        series
    }

    pub fn series(&self, cell: usize, blocks: usize) -> Vec<f64> {
        self.series_of(blocks, |row| row.at(cell) as f64)
    }

    /// Returns the number of waits above the middle of `bucket`, for each block. Half of the waits in `bucket` count.
    pub fn above(&self, bucket: usize, blocks: usize) -> Vec<f64> {
        self.series_of(blocks, |row| {
            let above = row.buckets().filter(|(at, _)| *at >= bucket);
            above.map(|(at, count)| if at == bucket { count as f64 / 2.0 } else { count as f64 }).sum()
        })
    }

    pub fn waits(&self, blocks: usize) -> Vec<f64> {
        self.series_of(blocks, |row| row.buckets().map(|(_, count)| count as f64).sum())
    }

    pub fn buckets(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = (usize, u64)>)> {
        self.0.iter().map(|row| (usize::from(row.block), row.buckets()))
    }
}

/// Returns the number of blocks after merging each `factor` blocks into one, as in [`SubjectBlocks::merge_blocks`].
fn merged_count(blocks: usize, factor: usize) -> usize {
    let rest = blocks % factor;
    (blocks / factor + usize::from(rest * 2 >= factor && rest != 0)).max(1)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// Lengths of the full blocks, ns.
    pub lengths_ns: Vec<u64>,
    /// Number of intervals in a full block.
    pub intervals_each: usize,
    intervals: usize,
    filling_ns: u64,
    /// Number of intervals in the current, incomplete block.
    pub filled: usize,
}

impl Blocks {
    /// Counts an interval; returns true if the block is now full.
    pub fn count(&mut self, duration_ns: u64) -> bool {
        self.intervals_each = self.intervals_each.max(1);
        self.intervals += 1;
        sum::add(&mut self.filling_ns, duration_ns);
        self.filled += 1;
        self.filled == self.intervals_each
    }

    /// Joins the last block with the block before if it is less than half as long; returns true if it did.
    pub fn join_short_end(&mut self) -> bool {
        let [.., before, last] = self.lengths_ns.as_mut_slice() else { return false };
        let is_short = *last < *before / 2;
        if is_short {
            sum::add(before, *last);
            self.lengths_ns.pop();
        }
        is_short
    }

    /// Ends the current block, and returns its number.
    pub fn close(&mut self) -> usize {
        self.lengths_ns.push(std::mem::take(&mut self.filling_ns));
        self.filled = 0;
        self.lengths_ns.len() - 1
    }

    pub fn merge(&mut self, factor: usize) {
        let count = merged_count(self.lengths_ns.len(), factor);
        let mut merged = vec![0; count];
        for (i, ns) in self.lengths_ns.iter().enumerate() {
            sum::add(&mut merged[(i / factor).min(count - 1)], *ns);
        }
        self.lengths_ns = merged;
        self.intervals_each *= factor;
    }

    /// Returns how many blocks to merge into one at the end of the recording.
    ///
    /// The number of intervals in a block should be about the cube root of all intervals. This block length is best for series
    /// with a short memory. At least [`FEW_BLOCKS`] blocks must remain.
    pub fn final_factor(&self) -> usize {
        let wanted = ((self.intervals as f64).cbrt() as usize).min(self.intervals / FEW_BLOCKS);
        (wanted / self.intervals_each.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests;
