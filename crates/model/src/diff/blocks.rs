//! What is kept of a recording: for each subject its counters and its histogram, summed over blocks of time.
//!
//! Intervals that follow each other resemble each other, so they are not counted as observations of their own: blocks of
//! several are. Their number is bounded, so that an hour takes no more memory than a minute.

use cgscope_layout::{BUCKETS, CAUSES, Cause};

use crate::{Counter, Hist, Observed, Totals, counters::COUNTERS};

/// A recording has at most this many blocks: when it has, each two become one. More would tell little more (the spread of a
/// mean is known to 15 % from 24), and would take memory.
pub const MOST_BLOCKS: usize = 48;
/// Blocks are not made longer than leaves so many, where there are so many intervals.
const FEW_BLOCKS: usize = 8;

/// A counter of a block. The causes come first, in the order of [`Cause::ALL`]; those of [`Counter::compared`] come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Measure {
    /// Completed waits, ns.
    Wait = CAUSES as u8,
    /// Completed waits.
    Waits,
    OnCpu,
    /// Periods of the quota.
    Periods,
    /// Those in which it ran out.
    ThrottledPeriods,
    /// `throttled_ns` of the quota.
    Stood,
    /// Run time, weighted by the share of memory elsewhere.
    Remote,
    /// Run time of which that is a share.
    RemoteOf,
    /// Time that the CPUs of the host ran anything, and that they were online.
    Busy,
    Online,
    /// Time in the hook, and of the collector.
    Hook,
    Collector,
    /// Waited behind one culprit, ns.
    Behind,
    /// The longest wait. Not summed: of two the longer one counts.
    Longest,
}

/// Number of counters.
const MEASURES: usize = Measure::Longest as usize + 1 + COUNTERS;

/// The counter of a cause.
pub(super) const fn of_cause(cause: Cause) -> usize {
    cause as usize
}

/// The sum of a counter that was not known of some task. Sums end at this number, so that whatever is added it stays.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// The place of a counter of tasks.
pub(super) const fn of_counter(counter: Counter) -> usize {
    Measure::Longest as usize + 1 + counter as usize
}

/// The sums of the block that is being filled.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    measures: [u64; MEASURES],
    buckets: [u64; BUCKETS],
    is_touched: bool,
}

impl Default for Sums {
    fn default() -> Self {
        Self { measures: [0; MEASURES], buckets: [0; BUCKETS], is_touched: false }
    }
}

impl Sums {
    pub fn add(&mut self, measure: Measure, amount: u64) {
        let sum = &mut self.measures[measure as usize];
        *sum = sum.saturating_add(amount);
        self.is_touched = true;
    }

    /// Adds what tasks did. The histogram is that of `totals.waits`.
    pub fn add_totals(&mut self, totals: &Totals, max_ns: u64, hist: &Hist) {
        self.is_touched = true;
        for (sum, ns) in self.measures.iter_mut().zip(totals.by_cause.0) {
            *sum = sum.saturating_add(ns);
        }
        for (measure, amount) in [
            (Measure::Wait, totals.wait_ns),
            (Measure::Waits, totals.waits),
            (Measure::OnCpu, totals.on_cpu_ns),
        ] {
            let sum = &mut self.measures[measure as usize];
            *sum = sum.saturating_add(amount);
        }
        let longest = &mut self.measures[Measure::Longest as usize];
        *longest = (*longest).max(max_ns);
        for (bucket, count) in hist.counts() {
            let sum = &mut self.buckets[bucket];
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds the counters that are compared. One that is not known makes the sum [`UNKNOWN`].
    pub fn add_counters(&mut self, observed: &Observed<'_>) {
        for counter in Counter::compared() {
            let sum = &mut self.measures[of_counter(counter)];
            let unknown = if counter.info().is_partial { 0 } else { UNKNOWN };
            *sum = sum.saturating_add(counter.of(observed).unwrap_or(unknown));
        }
    }

    /// Adds what others did.
    pub fn merge(&mut self, other: &Self) {
        if !other.is_touched {
            return;
        }
        self.is_touched = true;
        for (i, (sum, amount)) in self.measures.iter_mut().zip(other.measures).enumerate() {
            *sum =
                if i == Measure::Longest as usize { (*sum).max(amount) } else { sum.saturating_add(amount) };
        }
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(count);
        }
    }

    pub fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// As a row of this block; nothing if nothing was added. Empties the sums.
    pub fn take_row(&mut self, block: usize) -> Option<Row> {
        if !self.is_touched {
            return None;
        }
        let measures = self.measures.iter().enumerate().filter(|(_, amount)| **amount != 0);
        let row = Row {
            block: block as u16,
            measures: measures.map(|(measure, amount)| (measure as u8, *amount)).collect(),
            buckets: Buckets::of(&self.buckets),
        };
        *self = Self::default();
        Some(row)
    }

    fn add_row(&mut self, row: &Row) {
        self.is_touched = true;
        for &(measure, amount) in &row.measures {
            let sum = &mut self.measures[usize::from(measure)];
            let is_longest = usize::from(measure) == Measure::Longest as usize;
            *sum = if is_longest { (*sum).max(amount) } else { sum.saturating_add(amount) };
        }
        for (bucket, count) in row.buckets.iter() {
            let sum = &mut self.buckets[bucket];
            *sum = sum.saturating_add(count);
        }
    }

    /// One counter.
    pub fn get(&self, measure: Measure) -> u64 {
        self.measures[measure as usize]
    }

    /// One counter by its place.
    pub fn at(&self, measure: usize) -> u64 {
        self.measures[measure]
    }

    /// The histogram, without causes.
    pub fn hist(&self) -> Hist {
        Hist::from_counts(self.buckets.iter().copied(), [])
    }
}

/// A block of a subject: counters and buckets that are not 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    block: u16,
    measures: Box<[(u8, u64)]>,
    buckets: Buckets,
}

/// Buckets that are not 0, ascending, and what is in them. Apart, as they fill most of the memory and a pair would take nearly
/// twice as much.
#[derive(Clone, Debug, PartialEq)]
struct Buckets {
    places: Box<[u8]>,
    counts: Box<[u64]>,
}

impl Buckets {
    fn of(counts: &[u64; BUCKETS]) -> Self {
        let used = || counts.iter().enumerate().filter(|(_, count)| **count != 0);
        Self {
            places: used().map(|(bucket, _)| bucket as u8).collect(),
            counts: used().map(|(_, count)| *count).collect(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.places.iter().map(|bucket| usize::from(*bucket)).zip(self.counts.iter().copied())
    }
}

/// The blocks of a subject in which it did anything, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    pub fn push(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Each `factor` blocks become one; a rest that is too short goes to the last one before it.
    pub fn merge_blocks(&mut self, factor: usize, blocks: usize) {
        let merged = merged_count(blocks, factor);
        let block_of = |row: &Row| (usize::from(row.block) / factor).min(merged - 1);
        self.regroup(block_of);
    }

    /// What comes after this block goes to it.
    pub fn end_at(&mut self, last: usize) {
        self.regroup(|row| usize::from(row.block).min(last));
    }

    /// Adds the blocks of another subject.
    pub fn merge(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
        self.0.sort_by_key(|row| row.block);
        self.regroup(|row| usize::from(row.block));
    }

    fn regroup(&mut self, block_of: impl Fn(&Row) -> usize) {
        let old = std::mem::take(&mut self.0);
        let mut sums = Sums::default();
        for (i, row) in old.iter().enumerate() {
            let block = block_of(row);
            let is_last = old.get(i + 1).is_none_or(|next| block_of(next) != block);
            if is_last && !sums.is_touched {
                self.0.push(Row { block: block as u16, ..row.clone() });
                continue;
            }
            sums.add_row(row);
            if is_last {
                self.0.extend(sums.take_row(block));
            }
        }
    }

    /// All of it.
    pub fn sum(&self) -> Sums {
        let mut sums = Sums::default();
        self.0.iter().for_each(|row| sums.add_row(row));
        sums
    }

    /// A counter in each of so many blocks.
    pub fn series(&self, measure: usize, blocks: usize) -> Vec<f64> {
        let mut series = vec![0.0; blocks];
        for row in &self.0 {
            if let Ok(at) = row.measures.binary_search_by_key(&(measure as u8), |(measure, _)| *measure) {
                series[usize::from(row.block)] = row.measures[at].1 as f64;
            }
        }
        series
    }

    /// Waits above the middle of `bucket`, in each of so many blocks: those in it count half.
    pub fn above(&self, bucket: usize, blocks: usize) -> Vec<f64> {
        let mut series = vec![0.0; blocks];
        for row in &self.0 {
            let above = row.buckets.iter().map(|(at, count)| match at.cmp(&bucket) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => count as f64 / 2.0,
                std::cmp::Ordering::Greater => count as f64,
            });
            series[usize::from(row.block)] = above.sum();
        }
        series
    }

    /// Waits in the histogram, in each of so many blocks.
    pub fn waits(&self, blocks: usize) -> Vec<f64> {
        let mut series = vec![0.0; blocks];
        for row in &self.0 {
            series[usize::from(row.block)] = row.buckets.iter().map(|(_, count)| count as f64).sum();
        }
        series
    }

    /// The buckets of each block.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = (usize, u64)>)> {
        self.0.iter().map(|row| (usize::from(row.block), row.buckets.iter()))
    }
}

/// How many blocks are left of so many when each `factor` become one: a rest of less than half goes to the one before.
fn merged_count(blocks: usize, factor: usize) -> usize {
    let rest = blocks % factor;
    (blocks / factor + usize::from(rest * 2 >= factor && rest != 0)).max(1)
}

/// The blocks of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// Length of each that is full, ns.
    pub lengths_ns: Vec<u64>,
    /// Intervals in a full one.
    pub intervals_each: usize,
    intervals: usize,
    filling_ns: u64,
    filled: usize,
}

impl Blocks {
    /// Counts an interval; true if it fills the block.
    pub fn count(&mut self, duration_ns: u64) -> bool {
        self.intervals_each = self.intervals_each.max(1);
        self.intervals += 1;
        self.filling_ns = self.filling_ns.saturating_add(duration_ns);
        self.filled += 1;
        self.filled == self.intervals_each
    }

    /// Adds the last block to the one before it if it is not half as long: true if it was.
    pub fn join_short_end(&mut self) -> bool {
        let [.., before, last] = self.lengths_ns.as_slice() else { return false };
        let is_short = *last < *before / 2;
        if is_short && let (Some(last), Some(before)) = (self.lengths_ns.pop(), self.lengths_ns.last_mut()) {
            *before = before.saturating_add(last);
        }
        is_short
    }

    /// Ends the block that is being filled, and says its number.
    pub fn close(&mut self) -> usize {
        self.lengths_ns.push(std::mem::take(&mut self.filling_ns));
        self.filled = 0;
        self.lengths_ns.len() - 1
    }

    /// True while a block has something in it and is not full.
    pub fn is_filling(&self) -> bool {
        self.filled != 0
    }

    /// Each `factor` become one.
    pub fn merge(&mut self, factor: usize) {
        let count = merged_count(self.lengths_ns.len(), factor);
        let mut merged = vec![0; count];
        for (i, ns) in self.lengths_ns.iter().enumerate() {
            let sum: &mut u64 = &mut merged[(i / factor).min(count - 1)];
            *sum = sum.saturating_add(*ns);
        }
        self.lengths_ns = merged;
        self.intervals_each *= factor;
    }

    /// How many blocks to make one in the end. A block is about the cube root of the number of intervals long, which is the
    /// order that loses least for series with a short memory, and leaves [`FEW_BLOCKS`].
    pub fn final_factor(&self) -> usize {
        let wanted = ((self.intervals as f64).cbrt() as usize).min(self.intervals / FEW_BLOCKS);
        (wanted / self.intervals_each.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests;
