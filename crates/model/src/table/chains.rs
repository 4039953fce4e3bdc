//! For whom tasks slept, and what the wakers did meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::{cmp::Reverse, sync::Arc};

use cgscope_ledger::chains::Waker;

use crate::table::{Selected, Table, merge};
use crate::{BlockedKind, ByCause, Interval, Sample, sum};

table! {
    /// The table: one row per sleeper, kind of sleep and waker.
    Chains: ChainReading, by ChainKey: |row| row.key(), "its sleepers and wakers are not in the order of their ids";

    fn between(a: &Sample, b: &Sample, into: &mut Interval) {
        into.chains = b.has_chains.then(|| between(&a.chains, &b.chains));
    }

    fn append(into: &mut Interval, next: &mut Interval) {
        let Some(rows) = &mut next.chains else { return };
        merge(into.chains.get_or_insert_default(), rows, ChainReading::key, ChainReading::append);
    }

    fn select(interval: &mut Interval, selected: &Selected<'_>) {
        if let Some(rows) = &mut interval.chains {
            *rows = reached(rows, |row| selected.has_cgroup(row.sleeper));
        }
    }
}

/// Returns the wanted rows, and the rows of those for whom their tasks slept, and so on.
pub fn reached(rows: &[ChainReading], is_wanted: impl Fn(&ChainReading) -> bool) -> Vec<ChainReading> {
    let mut kept: HashSet<ChainKey> =
        rows.iter().filter(|row| is_wanted(row)).map(ChainReading::key).collect();
    for _ in 1..DEPTH {
        let rows_of_kept = rows.iter().filter(|row| kept.contains(&row.key()) && row.waker == Waker::Task);
        let wakers: HashSet<u64> = rows_of_kept.map(|row| row.waker_cgroup).collect();
        let of_group = |row: &&ChainReading| row.sleeper_tid == 0 && wakers.contains(&row.sleeper);
        kept.extend(rows.iter().filter(of_group).map(ChainReading::key));
    }
    rows.iter().filter(|row| kept.contains(&row.key())).cloned().collect()
}

/// How far the sleep of a waker is followed to its own wakers.
pub const DEPTH: usize = 4;

/// The key of a row: sleeper, what it slept in, and waker.
pub type ChainKey = (u64, u32, BlockedKind, Waker, u64, u32);

/// Sleeps of the tasks of one cgroup, or of one task, that ended because of one waker: their sums so far. If the waker is a task,
/// the parts from `ran_ns` to `unknown_ns` sum to `slept_ns`; otherwise they are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainReading {
    /// Id of the cgroup whose tasks slept.
    pub sleeper: u64,
    /// Thread ids, if single tasks are distinguished; otherwise 0.
    pub sleeper_tid: u32,
    /// In what they slept.
    pub kind: BlockedKind,
    pub waker: Waker,
    /// Id of the waker's cgroup, or [`KERNEL`](cgscope_ledger::history::KERNEL); 0 if the waker is no task.
    pub waker_cgroup: u64,
    pub waker_tid: u32,
    /// Name of a waker; empty if the waker is no task.
    pub comm: Arc<str>,
    /// Number of sleeps that ended.
    pub count: u64,
    pub slept_ns: u64,
    /// During these sleeps, the waker ran, waited or slept itself, ns.
    pub ran_ns: u64,
    pub by_cause: ByCause,
    pub waker_slept_ns: u64,
    /// What the waker did is unknown, ns: it had too many pauses, or began later.
    pub unknown_ns: u64,
    /// The other parts contain this time, which was divided in proportion, ns.
    pub estimated_ns: u64,
}

impl ChainReading {
    pub fn key(&self) -> ChainKey {
        (self.sleeper, self.sleeper_tid, self.kind, self.waker, self.waker_cgroup, self.waker_tid)
    }

    fn sums(&mut self) -> [&mut u64; 6] {
        let Self { count, slept_ns, ran_ns, waker_slept_ns, unknown_ns, estimated_ns, .. } = self;
        [count, slept_ns, ran_ns, waker_slept_ns, unknown_ns, estimated_ns]
    }

    /// Adds a later row, or the row of other tasks.
    pub fn append(&mut self, mut next: Self) {
        self.sums().into_iter().zip(next.sums()).for_each(|(sum, more)| sum::add(sum, *more));
        self.by_cause.add(&next.by_cause);
    }

    fn since(&self, mut before: Self) -> Self {
        let mut since = self.clone();
        since
            .sums()
            .into_iter()
            .zip(before.sums())
            .for_each(|(now, before)| *now = now.saturating_sub(*before));
        since.by_cause = self.by_cause.since(&before.by_cause).unwrap_or(self.by_cause);
        since
    }

    /// Returns how long the waker waited for a CPU meanwhile, ns.
    pub fn waited_ns(&self) -> u64 {
        self.by_cause.total()
    }
}

/// Subtracts earlier rows. A row that vanished had not changed. If it comes again, it counts from 0.
fn between(a: &[ChainReading], b: &[ChainReading]) -> Vec<ChainReading> {
    let mut earlier = sum::earlier(a, ChainReading::key);
    let since = b.iter().map(|now| match earlier(now.key()) {
        Some(before) if before.count <= now.count => now.since(before.clone()),
        _ => now.clone(),
    });
    since.filter(|row| row.count != 0).collect()
}

/// Someone who sleeps or wakes: a cgroup, or one of its tasks (else 0).
pub type Party = (u64, u32);

/// Where a chain ends: what the last waker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The waker, and what it waited for; `None`: it ran.
    pub waker: Party,
    pub cause: Option<cgscope_ledger::Cause>,
    /// In what the first sleeper of the chain slept.
    pub kind: BlockedKind,
    /// True if the chain has more than two parties. Its time is then in proportion to the sleeps of the parties in between.
    pub is_estimate: bool,
}

/// Maximum number of wakers that are followed from one that slept, those for which it slept longest.
const WIDTH: usize = 8;

/// The chains of an interval, by sleeper; of each, the longest sleep first.
#[derive(Debug)]
pub struct ChainsBySleeper<'a>(BTreeMap<Party, Vec<&'a ChainReading>>);

impl<'a> ChainsBySleeper<'a> {
    pub fn new(rows: &'a [ChainReading]) -> Self {
        let mut by_sleeper = BTreeMap::<Party, Vec<_>>::new();
        rows.iter().for_each(|row| by_sleeper.entry((row.sleeper, row.sleeper_tid)).or_default().push(row));
        by_sleeper.values_mut().for_each(|rows| rows.sort_by_key(|row| Reverse(row.slept_ns)));
        Self(by_sleeper)
    }

    pub fn sleepers(&self) -> impl Iterator<Item = (Party, &[&'a ChainReading])> {
        self.0.iter().map(|(party, rows)| (*party, &rows[..]))
    }

    pub fn of(&self, sleeper: Party) -> &[&'a ChainReading] {
        // A waker that is not distinguished from the others of its cgroup.
        self.0.get(&sleeper).or_else(|| self.0.get(&(sleeper.0, 0))).map_or(&[], Vec::as_slice)
    }

    /// Returns how long the sleeper slept because of what the last waker of each chain did, ns. Follows the sleep of each waker to
    /// its own wakers, in proportion to the time that it slept for each in the interval, but never back to a party of the chain.
    pub fn ends(&self, sleeper: Party) -> BTreeMap<End, f64> {
        let mut ends = BTreeMap::new();
        for row in self.of(sleeper).iter().filter(|row| row.waker == Waker::Task) {
            self.follow(row, 1.0, &mut vec![sleeper], row.kind, &mut ends);
        }
        ends
    }

    fn follow(
        &self,
        row: &ChainReading,
        part: f64,
        path: &mut Vec<Party>,
        kind: BlockedKind,
        ends: &mut BTreeMap<End, f64>,
    ) {
        let waker = (row.waker_cgroup, row.waker_tid);
        let mut end = |cause, ns: u64| {
            if ns != 0 {
                let end = End { waker, cause, kind, is_estimate: path.len() > 1 };
                *ends.entry(end).or_default() += ns as f64 * part;
            }
        };
        end(None, row.ran_ns);
        row.by_cause.iter().for_each(|(cause, ns)| end(Some(cause), ns));
        if path.len() == DEPTH || row.waker_slept_ns == 0 {
            return;
        }
        // A waker that waits for a task of its own cgroup may appear again.
        let is_new = |next: &&&ChainReading| {
            let next = (next.waker_cgroup, next.waker_tid);
            next == waker || !path.contains(&next)
        };
        let rows: Vec<_> = self.of(waker).iter().filter(is_new).collect();
        let all_ns = sum::total(rows.iter().map(|row| row.slept_ns)).max(1);
        path.push(waker);
        for next in rows.iter().filter(|row| row.waker == Waker::Task).take(WIDTH) {
            self.follow(next, part * row.waker_slept_ns as f64 / all_ns as f64, path, kind, ends);
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use cgscope_ledger::Cause;

    use super::*;

    fn row(
        sleeper: u64,
        waker_cgroup: u64,
        ran_ns: u64,
        throttled_ns: u64,
        waker_slept_ns: u64,
    ) -> ChainReading {
        let mut by_cause = ByCause::default();
        by_cause.0[Cause::Throttled as usize] = throttled_ns;
        ChainReading {
            sleeper,
            sleeper_tid: 0,
            kind: BlockedKind::Network,
            waker: Waker::Task,
            waker_cgroup,
            waker_tid: 0,
            comm: "".into(),
            count: 1,
            slept_ns: ran_ns + throttled_ns + waker_slept_ns,
            ran_ns,
            by_cause,
            waker_slept_ns,
            unknown_ns: 0,
            estimated_ns: 0,
        }
    }

    #[test]
    fn rows_count_their_increase_and_vanish_without_a_trace() {
        let later = ChainReading { count: 3, ran_ns: 50, slept_ns: 60, ..row(1, 2, 0, 10, 0) };
        let a = [row(1, 2, 20, 10, 0), row(1, 3, 7, 0, 0), row(5, 6, 100, 0, 0)];
        // The second one is the same. The third one vanished.
        let came = between(&a, &[later.clone(), row(1, 3, 7, 0, 0)]);
        assert_eq!(came, [ChainReading { count: 2, ran_ns: 30, slept_ns: 30, ..row(1, 2, 0, 0, 0) }]);
        assert_eq!(between(&came, &[row(5, 6, 4, 0, 0)]), [row(5, 6, 4, 0, 0)]);
        // It was removed and came again.
        let before = [ChainReading { count: 9, ..row(5, 6, 100, 0, 0) }];
        assert_eq!(between(&before, &[row(5, 6, 4, 0, 0)]), [row(5, 6, 4, 0, 0)]);
    }

    #[test]
    fn chains_that_were_not_counted_are_not_empty() {
        let samples = |has_chains| {
            let sample = |mono_ns, count| Sample {
                mono_ns,
                has_chains,
                chains: vec![ChainReading { count, ..row(1, 2, 5 * count, 0, 0) }],
                ..Sample::default()
            };
            Interval::between(&sample(1, 1), &sample(2, 2))
        };
        assert_eq!(samples(false).chains, None);
        let mut interval = samples(true);
        assert_eq!(interval.chains.as_ref().map(Vec::len), Some(1));
        interval.append(samples(true));
        assert_eq!(interval.chains.as_ref().map(|rows| (rows.len(), rows[0].count)), Some((1, 2)));
        let mut without = samples(false);
        without.append(samples(true));
        assert_eq!(without.chains.map(|rows| rows.len()), Some(1));
    }

    fn ends(rows: &[ChainReading], sleeper: u64) -> Vec<(u64, Option<Cause>, bool, u64)> {
        let ends = ChainsBySleeper::new(rows).ends((sleeper, 0));
        ends.into_iter()
            .map(|(end, ns)| (end.waker.0, end.cause, end.is_estimate, ns.round() as u64))
            .collect()
    }

    #[test]
    fn the_sleep_of_a_waker_is_followed_to_its_own_wakers() {
        let throttled = Some(Cause::Throttled);
        // 1 sleeps for 2, which slept for 3 (three quarters) and 4, and for 1 when it had nothing to do.
        let rows = [row(1, 2, 10, 20, 400), row(2, 3, 0, 300, 0), row(2, 4, 100, 0, 0), row(2, 1, 900, 0, 0)];
        assert_eq!(
            ends(&rows, 1),
            [
                (2, None, false, 10),
                (2, throttled, false, 20),
                (3, throttled, true, 300),
                (4, None, true, 100)
            ]
        );
        // A thread of 2 waited for another one, which was throttled.
        let rows = [row(1, 2, 10, 0, 400), row(2, 2, 100, 300, 0)];
        assert_eq!(ends(&rows, 1), [(2, None, false, 10), (2, None, true, 100), (2, throttled, true, 300)]);
        // A circle.
        let rows = [row(1, 2, 1, 0, 100), row(2, 3, 1, 0, 100), row(3, 1, 1, 0, 100), row(3, 2, 1, 0, 100)];
        assert_eq!(ends(&rows, 1).iter().map(|end| end.0).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_chain_is_followed_to_its_depth_and_no_further() {
        let rows: Vec<_> = (1..9).map(|id| row(id, id + 1, 1, 0, 1_000)).collect();
        assert_eq!(ends(&rows, 1).iter().map(|end| end.0).collect::<Vec<_>>(), [2, 3, 4, 5]);
        // All tasks of one cgroup wait for each other.
        assert_eq!(ends(&[row(1, 1, 1, 2, 1_000)], 1).len(), 4);
    }
}
