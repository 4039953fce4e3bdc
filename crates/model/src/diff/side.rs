//! Sums one recording over blocks of time, one Interval at a time. Consecutive Intervals are correlated, so the statistics use
//! blocks of several Intervals as observations. Container ids and thread numbers differ between runs, so subjects get names that
//! both recordings have.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use cgscope_ledger::Cause;
use regex::Regex;

use super::{CpuLimits, DiffSubject, FEWEST_BLOCKS};
use crate::{
    Blame, Counter, Group, GroupSum, Hist, Interval, Mode, Observed, Tree, cgroup_name::without_ids, sum,
};

/// Maximum number of blocks of a recording. At this number, blocks are merged in pairs, so an hour takes no more memory than a
/// minute. The remaining 24 blocks still determine the spread of a mean to within 15 %.
pub const MOST_BLOCKS: usize = 48;

/// A sum over a block. Times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cell {
    Wait,
    Cause(Cause),
    Counter(Counter),
    /// Time waited because of one culprit.
    Behind,
    /// Number of waits in this bucket of the histogram.
    Bucket(u8),
}

/// Marks a sum that includes an unknown counter. Sums saturate here, so the mark survives further additions.
pub(super) const UNKNOWN: u64 = u64::MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// The cells that are not zero, ascending.
    cells: Vec<(Cell, u64)>,
    pub longest_ns: u64,
}

impl Sums {
    fn add(&mut self, amounts: impl IntoIterator<Item = (Cell, u64)>) {
        self.cells.extend(amounts.into_iter().filter(|(_, amount)| *amount != 0));
        self.cells.sort_by_key(|(cell, _)| *cell);
        sum::merge(&mut self.cells, |(cell, _)| *cell, |(_, amount)| amount);
        self.cells.shrink_to_fit();
    }

    fn add_group(&mut self, group: &Group, mode: Mode) {
        let observed = Observed::group(group, mode);
        let compared = Counter::compared().map(|(counter, _)| counter);
        let counters = compared.chain([Counter::Waits, Counter::OnCpu]);
        let counters = counters.map(|counter| (Cell::Counter(counter), counter.of(&observed)));
        // The coarse mode counts every wait as unattributed, unless a quota explains it.
        let is_known = |cause| mode == Mode::Bpf || cause != Cause::Unattributed;
        let by_cause = &group.totals.by_cause;
        let causes = Cause::ALL
            .map(|cause| (Cell::Cause(cause), by_cause.known(cause, mode).filter(|_| is_known(cause))));
        let buckets =
            group.wait.hist.counts.iter().map(|(bucket, count)| (Cell::Bucket(bucket as u8), count));
        self.add(counters.chain(causes).map(|(cell, amount)| (cell, amount.unwrap_or(UNKNOWN))));
        self.add(buckets.chain([(Cell::Wait, group.totals.wait_ns)]));
        self.longest_ns = self.longest_ns.max(group.wait.max_ns);
    }

    fn merge(&mut self, other: &Self) {
        self.add(other.cells.iter().copied());
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    pub fn get(&self, cell: Cell) -> u64 {
        self.cells.binary_search_by_key(&cell, |(cell, _)| *cell).map_or(0, |at| self.cells[at].1)
    }

    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        let first = self.cells.partition_point(|(cell, _)| *cell < Cell::Bucket(0));
        self.cells[first..].iter().filter_map(|(cell, count)| match cell {
            Cell::Bucket(bucket) => Some((usize::from(*bucket), *count)),
            _ => None,
        })
    }

    /// Returns the histogram without causes.
    pub fn hist(&self) -> Hist {
        Hist::from_cells(self.buckets().map(|(bucket, count)| (bucket as u32, count)), []).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    intervals: usize,
    pub duration_ns: u64,
    /// All subjects that existed, including inactive ones.
    pub sums: BTreeMap<DiffSubject, Sums>,
}

impl Block {
    fn new(interval: &Interval) -> Self {
        let mut block = Self { intervals: 1, duration_ns: interval.duration_ns, sums: BTreeMap::new() };
        let (mode, tree) = (interval.mode, Tree::new(interval));
        block.sums_of(DiffSubject::All).add_group(&tree.total(interval), mode);
        for (at, node) in tree.nodes().iter().enumerate() {
            let sums = block.sums_of(DiffSubject::Cgroup { path: node.path.clone() });
            sums.add_group(&node.group, mode);
            if let Some(limits) = tree.limits(interval, at) {
                let counters = [Counter::Periods, Counter::ThrottledPeriods, Counter::ThrottledNs];
                let observed = Observed::limits(limits);
                let count = |counter: Counter| counter.of(&observed).unwrap_or(0);
                sums.add(counters.map(|counter| (Cell::Counter(counter), count(counter))));
            }
        }
        let mut programs: BTreeMap<String, GroupSum> = BTreeMap::new();
        for task in &interval.tasks {
            programs.entry(program(&task.reading.comm)).or_default().add_task(task);
        }
        for (comm, mut tasks) in programs {
            block.sums_of(DiffSubject::Program { comm: comm.into() }).add_group(&tasks.take(0), mode);
        }
        for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran) {
            let culprit = interval.culprit(pair);
            let Some(victim) = interval.cgroup_path(pair.victim).cloned() else { continue };
            if culprit.kernel || culprit.path.is_some() {
                let culprit = culprit.path.filter(|_| !culprit.kernel);
                block.sums_of(DiffSubject::Behind { victim, culprit }).add([(Cell::Behind, pair.ns)]);
            }
        }
        block
    }

    pub fn sums_of(&mut self, subject: DiffSubject) -> &mut Sums {
        self.sums.entry(subject).or_default()
    }

    pub fn of(&self, subject: &DiffSubject) -> &Sums {
        static NONE: Sums = Sums { cells: Vec::new(), longest_ns: 0 };
        self.sums.get(subject).unwrap_or(&NONE)
    }

    pub fn merge(&mut self, other: &Self) {
        self.intervals += other.intervals;
        sum::add(&mut self.duration_ns, other.duration_ns);
        other.sums.iter().for_each(|(subject, sums)| self.sums_of(subject.clone()).merge(sums));
    }

    fn rename(&mut self, name: &impl Fn(Arc<str>) -> Arc<str>) {
        for (subject, sums) in std::mem::take(&mut self.sums) {
            let subject = match subject {
                DiffSubject::Cgroup { path } => DiffSubject::Cgroup { path: name(path) },
                DiffSubject::Behind { victim, culprit } => {
                    DiffSubject::Behind { victim: name(victim), culprit: culprit.map(name) }
                }
                other => other,
            };
            self.sums_of(subject).merge(&sums);
        }
    }
}

/// A recording that is being read.
#[derive(Debug, Default)]
pub struct Side {
    pub(super) blocks: Vec<Block>,
    pub(super) intervals: u64,
    pub(super) start_unix_ns: u64,
    pub(super) mode: Mode,
    /// The limits at the end, by path.
    pub(super) limits: BTreeMap<Arc<str>, CpuLimits>,
}

impl Side {
    /// Adds the next Interval, which covers this number of intervals of the recording.
    pub fn add(&mut self, interval: &Interval, intervals: u64) {
        if interval.duration_ns == 0 {
            return;
        }
        if self.blocks.is_empty() {
            (self.start_unix_ns, self.mode) = (interval.start_unix_ns, interval.mode);
        }
        self.intervals += intervals;
        for limits in &interval.limits {
            let Some(path) = interval.cgroup_path(limits.id) else { continue };
            self.limits.insert(path.clone(), limits.into());
        }
        self.blocks.push(Block::new(interval));
        if self.blocks.len() >= MOST_BLOCKS {
            self.merge_blocks(unmerged_length(self.added()));
        }
    }

    fn added(&self) -> usize {
        self.blocks.iter().map(|block| block.intervals).sum()
    }

    /// Merges blocks into blocks of `length` Intervals. The last block may be shorter.
    fn merge_blocks(&mut self, length: usize) {
        let mut merged: Vec<Block> = Vec::new();
        for block in std::mem::take(&mut self.blocks) {
            match merged.last_mut() {
                Some(last) if last.intervals < length => last.merge(&block),
                _ => merged.push(block),
            }
        }
        self.blocks = merged;
    }

    /// Ends the recording. Returns the sum of all blocks.
    pub(super) fn finish(&mut self) -> Block {
        let length = block_length(self.added());
        self.merge_blocks(length);
        if let [.., before, last] = self.blocks.as_mut_slice()
            && last.intervals * 2 < length
        {
            before.merge(last);
            self.blocks.pop();
        }
        let mut whole = Block::default();
        self.blocks.iter().for_each(|block| whole.merge(block));
        whole
    }

    fn cgroups(&self) -> BTreeSet<Arc<str>> {
        let subjects = self.blocks.iter().flat_map(|block| block.sums.keys());
        let path = |subject: &DiffSubject| match subject {
            DiffSubject::Cgroup { path } => Some(path.clone()),
            _ => None,
        };
        subjects.filter_map(path).collect()
    }

    fn rename(&mut self, name: &impl Fn(Arc<str>) -> Arc<str>) {
        self.blocks.iter_mut().for_each(|block| block.rename(name));
        let mut different = BTreeSet::new();
        for (path, limits) in std::mem::take(&mut self.limits) {
            let path = name(path);
            if self.limits.insert(path.clone(), limits.clone()).is_some_and(|other| other != limits) {
                different.insert(path);
            }
        }
        self.limits.retain(|path, _| !different.contains(path));
    }
}

/// Returns the number of Intervals in a block while the recording is read, after this number of Intervals.
fn unmerged_length(intervals: usize) -> usize {
    (intervals / MOST_BLOCKS + 1).next_power_of_two()
}

/// Returns the number of Intervals in a block of a recording with this number of Intervals. About the cube root, which is best
/// for series with a short memory. But [`FEWEST_BLOCKS`] blocks must remain.
pub(super) fn block_length(intervals: usize) -> usize {
    let length = unmerged_length(intervals);
    let wanted = ((intervals as f64).cbrt() as usize).min(intervals / FEWEST_BLOCKS);
    length * (wanted / length).max(1)
}

/// Gives cgroups that differ only in ids the same name, if they exist on one side alone, and the other side has a cgroup that
/// gets this name. Cgroups of a side that get the same name are merged. Only limits that are equal are kept.
pub(super) fn align(sides: &mut [Side; 2]) {
    let paths = sides.each_ref().map(Side::cgroups);
    let names = [0, 1].map(|side| {
        let alone = paths[side].difference(&paths[1 - side]).cloned();
        let names = alone.map(|path| (path.clone(), Arc::from(without_ids(&path))));
        names.filter(|(path, name)| path != name).collect::<BTreeMap<_, _>>()
    });
    for (i, side) in sides.iter_mut().enumerate() {
        let others: BTreeSet<&Arc<str>> = names[1 - i].values().collect();
        let name = |path: &Arc<str>| names[i].get(path).filter(|name| others.contains(name)).cloned();
        side.rename(&|path| name(&path).unwrap_or(path));
    }
}

/// Returns the program of a thread name: `#` replaces each number after a separator. `worker-12` becomes `worker-#`; `python3`
/// and `nginx` stay. All kernel workers become `kworker`.
fn program(comm: &str) -> String {
    static NUMBER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"([^\p{Alphabetic}\p{N}])[0-9]+").expect("a valid pattern"));
    if comm.starts_with("kworker/") { "kworker".into() } else { NUMBER.replace_all(comm, "$1#").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads_are_removed_and_versions_stay() {
        for (comm, expected) in [
            ("python3", "python3"),
            ("worker-12", "worker-#"),
            ("kworker/0:1-events", "kworker"),
            ("kworker/u8:2", "kworker"),
            ("ksoftirqd/11", "ksoftirqd/#"),
            ("http-nio-8080-e", "http-nio-#-e"),
            ("CPU 3/KVM", "CPU #/KVM"),
            ("", ""),
            ("é-1", "é-#"),
        ] {
            assert_eq!(program(comm), expected);
        }
    }
}
