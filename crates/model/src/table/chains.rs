//! For whom tasks slept, and what the wakers did meanwhile.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use cgscope_ledger::{Cause, chains::Waker, history::KERNEL};

use crate::table::{Selected, Table, merge};
use crate::{BlockedKind, ByCause, Interval, Sample, causes, pairs::Culprit, sum};

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

/// Returns the rows of a sleeper. The rows must be sorted by key.
pub fn of(rows: &[ChainReading], sleeper: Party) -> &[ChainReading] {
    let from = rows.partition_point(|row| row.sleeper() < sleeper);
    let count = rows[from..].partition_point(|row| row.sleeper() == sleeper);
    &rows[from..from + count]
}

/// How far the sleep of a waker is followed to its own wakers.
pub const DEPTH: usize = 4;

/// The sleep of a waker is followed if it is at least one part of this many of all sleep of the first sleeper. Otherwise, the
/// number of links would grow with the fourth power of the number of cgroups.
const NEGLIGIBLE: f64 = 200.0;

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

    /// Returns the increase since an earlier reading of the same row.
    pub fn since(&self, mut before: Self) -> Self {
        let mut since = self.clone();
        let sums = since.sums().into_iter().zip(before.sums());
        sums.for_each(|(now, before)| *now = now.saturating_sub(*before));
        since.by_cause = self.by_cause.since(&before.by_cause).unwrap_or(self.by_cause);
        since
    }

    /// Returns how long the waker waited for a CPU meanwhile, ns.
    pub fn waited_ns(&self) -> u64 {
        self.by_cause.total()
    }

    /// Returns what the waker did during the sleeps, and for how long, ns. Omits what it did not do. Empty if it is no task.
    pub fn doings(&self) -> impl Iterator<Item = (Doing, u64)> {
        let waited = causes::ORDER.map(|cause| (Doing::Waited(cause), self.by_cause.get(cause)));
        let after = [(Doing::Slept, self.waker_slept_ns), (Doing::Unknown, self.unknown_ns)];
        let all = std::iter::once((Doing::Ran, self.ran_ns)).chain(waited).chain(after);
        all.filter(|(_, ns)| *ns != 0)
    }

    pub fn sleeper(&self) -> Party {
        (self.sleeper, self.sleeper_tid)
    }
}

/// What a waker did while another task slept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    Ran,
    Waited(Cause),
    Slept,
    Unknown,
}

impl Doing {
    /// Returns the name in machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Waited(cause) => cause.name(),
            Self::Slept => "slept",
            Self::Unknown => "unknown",
        }
    }
}

impl Interval {
    /// Returns the sleeper of a row in words.
    pub fn sleeper_words(&self, row: &ChainReading) -> String {
        let task = self.readings().find(|task| row.sleeper_tid != 0 && task.tid == row.sleeper_tid);
        self.party_words(row.sleeper(), task.map_or("", |task| &task.comm))
    }

    /// Returns the waker of a row in words.
    pub fn waker_words(&self, row: &ChainReading) -> String {
        match row.waker {
            Waker::Task => self.party_words((row.waker_cgroup, row.waker_tid), &row.comm),
            Waker::Disk => "disk".into(),
            Waker::Interrupt => "an interrupt (timer or device)".into(),
            Waker::SoftInterrupt => "a soft interrupt (network or timer)".into(),
            Waker::Unknown => "unknown".into(),
        }
    }

    fn party_words(&self, (cgroup, tid): Party, comm: &str) -> String {
        let (path, kernel) = (self.cgroup_path(cgroup).cloned(), cgroup == KERNEL);
        let task = (tid != 0).then(|| (tid, comm.into()));
        Culprit { path, kernel, task, ..Culprit::default() }.words(&self.names)
    }
}

/// Subtracts earlier rows. A row that vanished had not changed. If it comes again, it counts from 0.
pub fn between(a: &[ChainReading], b: &[ChainReading]) -> Vec<ChainReading> {
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
    pub cause: Option<Cause>,
    /// In what the first sleeper of the chain slept.
    pub kind: BlockedKind,
    /// True if the chain has more than two parties. Its time is then in proportion to the sleeps of the parties in between.
    pub is_estimate: bool,
}

/// The chains of an interval, by sleeper; of each, the longest sleep first.
#[derive(Debug)]
pub struct ChainsBySleeper<'a>(BTreeMap<Party, Vec<&'a ChainReading>>);

impl<'a> ChainsBySleeper<'a> {
    pub fn new(rows: &'a [ChainReading]) -> Self {
        let mut by_sleeper = BTreeMap::<Party, Vec<_>>::new();
        rows.iter().for_each(|row| by_sleeper.entry(row.sleeper()).or_default().push(row));
        // The sort is stable, so equal rows stay sorted by key.
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

    /// Returns how long the sleeper slept because of what the last waker of each chain did, ns. See [`Self::links`]. A sleep for a
    /// task of the same cgroup is omitted: that task has sleeps of its own.
    pub fn ends(&self, sleeper: Party) -> BTreeMap<End, f64> {
        let mut ends = BTreeMap::new();
        let is_for_others = |link: &Link| link.first.waker_cgroup != sleeper.0;
        for Link { row, part, first, depth } in self.links(sleeper).into_iter().filter(is_for_others) {
            for (doing, ns) in row.doings() {
                let cause = match doing {
                    Doing::Ran => None,
                    Doing::Waited(cause) => Some(cause),
                    Doing::Slept | Doing::Unknown => continue,
                };
                let waker = (row.waker_cgroup, row.waker_tid);
                let end = End { waker, cause, kind: first.kind, is_estimate: depth != 0 };
                *ends.entry(end).or_default() += ns as f64 * part;
            }
        }
        ends
    }

    /// Returns the wakers of a sleeper, the worst first, and after each waker those for which it slept itself, and so on. The
    /// sleep of a waker is divided among its own wakers in proportion to the time that it slept for each in the interval. No link
    /// leads back to a party of its chain. Below a two-hundredth of the sleeper's sleep, no waker is followed.
    pub fn links(&self, sleeper: Party) -> Vec<Link<'a>> {
        let mut links = Vec::new();
        let rows = self.of(sleeper);
        let least_ns = sum::total(rows.iter().map(|row| row.slept_ns)) as f64 / NEGLIGIBLE;
        for row in rows.iter().copied().filter(|row| row.slept_ns != 0) {
            let link = Link { row, part: 1.0, first: row, depth: 0 };
            self.follow(link, least_ns, &mut vec![sleeper], &mut links);
        }
        links
    }

    fn follow(&self, link: Link<'a>, least_ns: f64, path: &mut Vec<Party>, links: &mut Vec<Link<'a>>) {
        let Link { row, part, depth, .. } = link;
        links.push(link);
        // A damaged recording may have larger parts.
        let slept_ns = row.waker_slept_ns.min(row.slept_ns) as f64 * part;
        if row.waker != Waker::Task || path.len() == DEPTH || slept_ns == 0.0 || slept_ns < least_ns {
            return;
        }
        let waker = (row.waker_cgroup, row.waker_tid);
        // A waker that waits for a task of its own cgroup may appear again.
        let is_new = |next: &&&ChainReading| {
            let next = (next.waker_cgroup, next.waker_tid);
            next == waker || !path.contains(&next)
        };
        let rows: Vec<_> = self.of(waker).iter().filter(is_new).collect();
        let part = slept_ns / sum::total(rows.iter().map(|row| row.slept_ns)).max(1) as f64;
        path.push(waker);
        for next in rows {
            // Those that follow have less.
            if next.slept_ns as f64 * part < least_ns {
                break;
            }
            self.follow(Link { row: next, part, depth: depth + 1, ..link }, least_ns, path, links);
        }
        path.pop();
    }
}

/// A sleeper and its waker in a chain of sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    pub row: &'a ChainReading,
    /// The part of the row that delayed the first sleeper of the chain, 0 to 1.
    pub part: f64,
    /// The row of the first sleeper of the chain.
    pub first: &'a ChainReading,
    /// Number of wakers between the first sleeper and this one. The time is an estimate if it is not 0.
    pub depth: usize,
}

impl Link<'_> {
    /// Returns how long the first sleeper slept because of this waker, ns.
    pub fn slept_ns(&self) -> u64 {
        (self.row.slept_ns as f64 * self.part) as u64
    }
}

#[cfg(test)]
mod tests {
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
    fn links_are_in_the_order_of_the_chain_and_their_times_add_up() {
        let disk = ChainReading { waker: Waker::Disk, waker_cgroup: 0, slept_ns: 300, ..row(2, 0, 0, 0, 0) };
        // The disk is not in the same order as the wakers' ids.
        let rows = [row(1, 2, 10, 20, 400), row(1, 5, 900, 0, 0), disk, row(2, 3, 0, 100, 0)];
        let links = ChainsBySleeper::new(&rows).links((1, 0));
        let shown: Vec<_> =
            links.iter().map(|link| (link.depth, link.row.waker_cgroup, link.slept_ns())).collect();
        assert_eq!(shown, [(0, 5, 900), (0, 2, 430), (1, 0, 300), (1, 3, 100)]);
    }

    #[test]
    fn what_a_waker_did_adds_up_to_the_sleep() {
        let row = ChainReading { unknown_ns: 4, slept_ns: 10, ..row(1, 2, 1, 2, 3) };
        let did: Vec<_> = row.doings().map(|(doing, ns)| (doing.name(), ns)).collect();
        assert_eq!(did, [("ran", 1), ("throttled", 2), ("slept", 3), ("unknown", 4)]);
        let interval = Interval { cgroups: vec![(2, "/db".into())], ..Interval::default() };
        let words = |row: &ChainReading| interval.waker_words(row);
        assert_eq!(words(&row), "/db");
        assert_eq!(words(&ChainReading { waker_tid: 7, comm: "sh".into(), ..row.clone() }), "sh [7] of /db");
        assert_eq!(words(&ChainReading { waker_cgroup: KERNEL, ..row.clone() }), "kernel threads");
        assert_eq!(words(&ChainReading { waker: Waker::Disk, ..row }), "disk");
    }

    #[test]
    fn a_chain_is_followed_to_its_depth_and_no_further() {
        let rows: Vec<_> = (1..9).map(|id| row(id, id + 1, 1, 0, 1_000)).collect();
        assert_eq!(ends(&rows, 1).iter().map(|end| end.0).collect::<Vec<_>>(), [2, 3, 4, 5]);
        // Everybody waits for everybody.
        let pairs = (1..=60).flat_map(|from| (1..=60).map(move |to| row(from, to, 1, 0, 1_000)));
        let links = ChainsBySleeper::new(&pairs.collect::<Vec<_>>()).links((1, 0)).len();
        assert!(links < 10_000, "{links}");
        // All tasks of one cgroup wait for each other.
        let rows = [row(1, 1, 1, 2, 1_000)];
        assert_eq!(ChainsBySleeper::new(&rows).links((1, 0)).len(), DEPTH);
        assert!(ends(&rows, 1).is_empty());
    }
}
