//! The history of intervals, for histograms of the last minute and since the start, for the heatmap and for sparklines.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use cgscope_ledger::{BUCKETS, cause::CELLS};
use cgscope_model::{
    ByCause, Cause, Finding, Hist, Interval, PressureAverages, TaskReading, Wait,
    findings::Rule,
    path::{is_at_or_below, path_and_ancestors},
    sum,
};
use itertools::Itertools;

use crate::data::{Data, Key, busy_percent};

/// Maximum number of intervals in the history. The widest heatmap has this many columns.
const MOST_FRAMES: usize = 300;
/// Maximum memory for the waits of single tasks, bytes. If tasks wait often, fewer intervals keep the waits of single tasks.
const MOST_BYTES: usize = 8 << 20;

#[derive(Clone, Debug, Default)]
pub struct History {
    /// The intervals, oldest first.
    pub(crate) frames: VecDeque<Frame>,
    pushed: u64,
    bytes: usize,
    /// All waits of all tasks since the start.
    total: Wait,
    /// Waits of exited tasks since the start, by cgroup path. The waits of a removed cgroup move to the nearest ancestor.
    ended: BTreeMap<Arc<str>, Wait>,
    /// Time since the start, ns.
    length_ns: u64,
    /// Start of each current finding, ns since 1970, by rule and cgroup: the start of its first consecutive interval.
    findings_since: BTreeMap<(Rule, Option<Arc<str>>), u64>,
    pub(crate) averages: PressureAverages,
}

impl History {
    /// Adds an interval. `before` is the previous interval.
    pub fn push(&mut self, data: &Data, before: Option<&Data>) {
        let mut frame = Frame::with_total(&data.interval, data.total.wait.clone());
        frame.findings = data.findings.len();
        self.total.add(&frame.all.wait);
        self.length_ns = self.length_ns.saturating_add(frame.all.duration_ns);
        self.merge_exited(data, before);
        self.averages.push(&data.interval);
        self.append(frame);
        let before = std::mem::take(&mut self.findings_since);
        for finding in &data.findings {
            let key = (finding.rule, finding.cgroup.clone());
            let since_ns = before.get(&key).copied().unwrap_or(data.interval.start_unix_ns);
            self.findings_since.insert(key, since_ns);
        }
    }

    /// Returns how long a finding has lasted at the end of an interval, ns.
    pub fn age_ns(&self, finding: &Finding, interval: &Interval) -> u64 {
        let since_ns = self.findings_since.get(&(finding.rule, finding.cgroup.clone()));
        let end_ns = interval.start_unix_ns.saturating_add(interval.duration_ns);
        since_ns.map_or(0, |since_ns| end_ns.saturating_sub(*since_ns))
    }

    /// Inserts intervals before the first interval. The last inserted interval must be adjacent to it.
    pub fn push_before(&mut self, frames: Vec<Frame>) {
        let now = std::mem::take(&mut self.frames);
        self.bytes = 0;
        frames.into_iter().chain(now).for_each(|frame| self.append(frame));
    }

    pub(crate) fn append(&mut self, mut frame: Frame) {
        self.bytes += frame.bytes;
        frame.all.number = self.pushed;
        self.frames.push_back(frame);
        self.pushed += 1;
        if self.frames.len() > MOST_FRAMES
            && let Some(oldest) = self.frames.pop_front()
        {
            self.bytes -= oldest.bytes;
        }
        // The latest interval always keeps the waits of its tasks.
        for frame in self.frames.iter_mut().rev().skip(1).rev() {
            if self.bytes <= MOST_BYTES {
                break;
            }
            self.bytes -= std::mem::take(&mut frame.bytes);
            frame.entries = None;
        }
    }

    /// Adds the waits of exited tasks to their cgroup, or to the nearest ancestor that still exists.
    fn merge_exited(&mut self, data: &Data, before: Option<&Data>) {
        let interval = &data.interval;
        for task in before.iter().flat_map(|before| interval.removed_since(&before.interval)) {
            let mut sum = Sum::new();
            sum.add_reading(task);
            self.add_ended(data, task.cgroup_id, &sum.into_wait());
        }
        interval.exited.iter().for_each(|exited| self.add_ended(data, exited.cgroup_id, &exited.wait));
        let exited: Vec<Arc<str>> =
            self.ended.keys().filter(|path| data.tree.find(path).is_none()).cloned().collect();
        for path in exited {
            let Some(wait) = self.ended.remove(&path) else { continue };
            let above = path_and_ancestors(&path).find(|at| data.tree.find(at).is_some());
            self.ended.entry(above.unwrap_or("/").into()).or_default().add(&wait);
        }
    }

    fn add_ended(&mut self, data: &Data, cgroup: u64, wait: &Wait) {
        if let Some(path) = data.interval.cgroup_path(cgroup).filter(|_| wait.count != 0) {
            self.ended.entry(path.clone()).or_default().add(wait);
        }
    }

    /// Clears the history. Call this if the next interval does not follow the last one.
    pub fn clear(&mut self) {
        // Numbers stay unique, so that old data is not mistaken for new.
        *self = Self { pushed: self.pushed, ..Self::default() };
    }

    /// Returns the waits of a subject in each interval of the history, oldest first. `known` is the earlier result for the same
    /// subject. The intervals in `known` are not computed again, and stay valid after the waits of single tasks are dropped.
    pub fn past(&self, key: &Key, mut known: Vec<Past>) -> Vec<Past> {
        let first = self.frames.front().map_or(u64::MAX, |frame| frame.all.number);
        known.retain(|one| one.number >= first);
        let next = known.last().map_or(first, |last| last.number + 1);
        for frame in self.frames.iter().filter(|frame| frame.all.number >= next) {
            match frame.wait(key) {
                Some(wait) => known.push(Past { wait, ..frame.all.clone() }),
                // The waits of this interval were dropped. Clear the result, so that its intervals are adjacent.
                None => known.clear(),
            }
        }
        known
    }

    /// Returns the waits of a subject since the start, and the length of that time, ns. The readings of a task hold sums since
    /// its measurement began, so the latest readings and the waits of exited tasks are enough.
    pub fn since_start(&self, key: &Key, data: &Data) -> (Wait, u64) {
        let mut sum = Sum::new();
        let interval = &data.interval;
        match key {
            Key::All => sum.add(&self.total),
            Key::Unknown | Key::State(..) => {}
            key => data.places_in(key).for_each(|place| sum.add_reading(interval.reading(place))),
        }
        if let Key::Cgroup(root) = key {
            let below = self.ended.iter().filter(|(path, _)| is_at_or_below(path, root));
            below.for_each(|(_, wait)| sum.add(wait));
        }
        (sum.into_wait(), self.length_ns)
    }
}

const MINUTE_NS: u64 = 60_000_000_000;

#[derive(Clone, Debug)]
pub struct Past {
    /// Unique number of the interval, ascending.
    pub(crate) number: u64,
    /// End of the interval, wall clock, ns since 1970.
    pub end_unix_ns: u64,
    pub duration_ns: u64,
    pub wait: Wait,
}

impl Past {
    pub fn waiting(&self) -> f64 {
        self.wait.total_ns as f64 / self.duration_ns.max(1) as f64
    }

    pub fn throttled(&self) -> f64 {
        self.wait.by_cause.get(Cause::Throttled) as f64 / self.duration_ns.max(1) as f64
    }
}

/// Returns the sum of all waits, and the length of all intervals, ns.
pub fn all(past: &[Past]) -> (Wait, u64) {
    let mut sum = Sum::new();
    past.iter().for_each(|one| sum.add(&one.wait));
    (sum.into_wait(), sum::total(past.iter().map(|one| one.duration_ns)))
}

/// Returns the waits of the last minute, or of the available part of it. Also returns the length of the covered time, ns.
pub fn last_minute(past: &[Past]) -> (Wait, u64) {
    let mut length_ns = 0u64;
    let within = past.iter().rev().take_while(|one| {
        sum::add(&mut length_ns, one.duration_ns);
        length_ns <= MINUTE_NS
    });
    // The latest interval counts even if it is longer.
    all(&past[past.len().saturating_sub(within.count().max(1))..])
}

/// A sum of waits that many waits can be added to quickly.
pub(crate) struct Sum {
    wait: Wait,
    cells: [u64; BUCKETS + CELLS],
}

impl Sum {
    pub(crate) fn new() -> Self {
        Self { wait: Wait::default(), cells: [0; BUCKETS + CELLS] }
    }

    pub(crate) fn add_figures(&mut self, count: u64, total_ns: u64, max_ns: u64, by_cause: &ByCause) {
        let wait = &mut self.wait;
        sum::add(&mut wait.count, count);
        sum::add(&mut wait.total_ns, total_ns);
        wait.max_ns = wait.max_ns.max(max_ns);
        wait.by_cause.add(by_cause);
    }

    pub(crate) fn add(&mut self, wait: &Wait) {
        self.add_figures(wait.count, wait.total_ns, wait.max_ns, &wait.by_cause);
        cells(&wait.hist).for_each(|(cell, count)| sum::add(&mut self.cells[cell], count));
    }

    /// Adds the waits of a task since its measurement began.
    pub(crate) fn add_reading(&mut self, task: &TaskReading) {
        let totals = &task.totals;
        self.add_figures(totals.waits, totals.wait_ns, task.max_ns, &totals.by_cause);
        cells(&task.hist).for_each(|(cell, count)| sum::add(&mut self.cells[cell], count));
    }

    pub(crate) fn into_wait(self) -> Wait {
        let (counts, shares) = self.cells.split_at(BUCKETS);
        Wait { hist: Hist::from_counts(counts.iter().copied(), shares.iter().copied()), ..self.wait }
    }
}

/// Returns the counts of a histogram with their cells, then its shares. The cells of shares follow the cells of counts.
fn cells(hist: &Hist) -> impl Iterator<Item = (usize, u64)> {
    hist.counts.iter().chain(hist.shares.iter().map(|(cell, share)| (BUCKETS + cell, share)))
}

/// The waits of one task in one interval, or of all exited tasks of one cgroup.
#[derive(Clone, Debug)]
struct Entry {
    /// Serial number of the task; 0 for exited tasks.
    serial: u64,
    pid: u32,
    /// End of this entry's range in [`Entries::cells`]. The range begins where the previous one ends.
    end: u32,
    cgroup: u64,
    count: u64,
    total_ns: u64,
    max_ns: u64,
    by_cause: ByCause,
}

/// Entries whose histograms are stored in a shared vector. Thousands of small vectors would need more memory than their contents.
#[derive(Clone, Debug)]
struct Entries {
    entries: Vec<Entry>,
    cells: Vec<(u16, u32)>,
}

impl Entries {
    fn new(interval: &Interval) -> Self {
        let tasks =
            || interval.tasks.iter().map(|task| (Some(&task.reading), task.reading.cgroup_id, &task.wait));
        let exited = || interval.exited.iter().map(|exited| (None, exited.cgroup_id, &exited.wait));
        // A task without waits gets no entry.
        let kept = || tasks().chain(exited()).filter(|(.., wait)| wait.count != 0 || wait.total_ns != 0);
        let mut all = Self {
            entries: Vec::with_capacity(kept().count()),
            cells: Vec::with_capacity(kept().map(|(.., wait)| cells(&wait.hist).count()).sum()),
        };
        let cell = |(cell, count): (usize, u64)| (cell as u16, u32::try_from(count).unwrap_or(u32::MAX));
        for (task, cgroup, wait) in kept() {
            all.cells.extend(cells(&wait.hist).map(cell));
            all.entries.push(Entry {
                serial: task.map_or(0, |task| task.serial),
                pid: task.map_or(0, |task| task.tgid),
                end: all.cells.len() as u32,
                cgroup,
                count: wait.count,
                total_ns: wait.total_ns,
                max_ns: wait.max_ns,
                by_cause: wait.by_cause,
            });
        }
        all
    }

    fn bytes(&self) -> usize {
        size_of::<Entry>() * self.entries.len() + size_of::<(u16, u32)>() * self.cells.len()
    }

    fn sum(&self, is_wanted: impl Fn(&Entry) -> bool) -> Wait {
        let mut sum = Sum::new();
        let mut from = 0;
        for entry in &self.entries {
            let end = entry.end as usize;
            if is_wanted(entry) {
                sum.add_figures(entry.count, entry.total_ns, entry.max_ns, &entry.by_cause);
                for (cell, count) in &self.cells[from..end] {
                    sum.cells[usize::from(*cell)] += u64::from(*count);
                }
            }
            from = end;
        }
        sum.into_wait()
    }
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub all: Past,
    pub busy_percent: Option<f64>,
    /// Number of findings; 0 for intervals that were loaded later.
    pub findings: usize,
    /// The waits of single tasks; `None` after they were dropped.
    entries: Option<Entries>,
    /// Paths of the tasks' cgroups, ascending by id.
    cgroups: Vec<(u64, Arc<str>)>,
    bytes: usize,
}

impl Frame {
    pub fn new(interval: &Interval) -> Self {
        Self::with_total(interval, interval.total().wait)
    }

    fn with_total(interval: &Interval, total: Wait) -> Self {
        let entries = Entries::new(interval);
        let ids = entries.entries.iter().map(|entry| entry.cgroup).sorted_unstable().dedup();
        let cgroups = ids.filter_map(|id| Some((id, interval.cgroup_path(id)?.clone())));
        let end_unix_ns = interval.start_unix_ns.saturating_add(interval.duration_ns);
        Self {
            all: Past { number: 0, end_unix_ns, duration_ns: interval.duration_ns, wait: total },
            findings: 0,
            busy_percent: busy_percent(interval),
            cgroups: cgroups.collect(),
            bytes: entries.bytes(),
            entries: Some(entries),
        }
    }

    /// Returns the waits of a subject; `None` if they were dropped.
    fn wait(&self, key: &Key) -> Option<Wait> {
        if *key == Key::All {
            return Some(self.all.wait.clone());
        }
        let entries = self.entries.as_ref()?;
        let ids = |is_in: &dyn Fn(&str) -> bool| -> BTreeSet<u64> {
            self.cgroups.iter().filter(|(_, path)| is_in(path)).map(|(id, _)| *id).collect()
        };
        Some(match key {
            Key::Cgroup(root) => {
                let below = ids(&|path| is_at_or_below(path, root));
                entries.sum(|entry| below.contains(&entry.cgroup))
            }
            Key::Unknown => {
                let known = ids(&|_| true);
                entries.sum(|entry| !known.contains(&entry.cgroup))
            }
            Key::Process(pid) => entries.sum(|entry| entry.serial != 0 && entry.pid == *pid),
            Key::Task(serial) => entries.sum(|entry| entry.serial == *serial),
            Key::All | Key::State(..) => Wait::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use cgscope_model::findings::Host;

    use super::*;

    fn data(tasks: u32, round: u64) -> Data {
        let sample = |round| cgscope_made_up::host(tasks, 20, round);
        Data::new(Arc::new(Interval::between(&sample(round), &sample(round + 1))), &Host::default())
    }

    fn waits(past: &[Past]) -> Vec<(u64, &Wait)> {
        past.iter().map(|one| (one.end_unix_ns, &one.wait)).collect()
    }

    #[test]
    fn the_kept_sums_of_a_subject_equal_new_sums() {
        let mut history = History::default();
        let mut known: BTreeMap<Key, Vec<Past>> = BTreeMap::new();
        for round in 0..4 {
            let data = data(200, round);
            history.push(&data, None);
            let cgroup = data.tree.nodes().iter().find(|node| node.depth == 1).unwrap().path.clone();
            for key in [Key::All, Key::Cgroup(cgroup), Key::Process(data.interval.tasks[99].reading.tgid)] {
                let before = known.remove(&key).unwrap_or_default();
                let past = history.past(&key, before);
                assert_eq!(waits(&past), waits(&history.past(&key, Vec::new())));
                let subject = data.subject(&key).unwrap();
                let (length, last) = (past.len(), past.last().unwrap());
                assert_eq!((length as u64, &last.wait), (round + 1, subject.wait()), "{key:?}");
                assert!(last.waiting() > 0.0);
                known.insert(key, past);
            }
        }
        history.clear();
        history.push(&data(200, 9), None);
        let past = history.past(&Key::All, known.remove(&Key::All).unwrap());
        assert_eq!(past.len(), 1, "intervals before a jump are dropped");
    }

    #[test]
    fn the_watched_subject_keeps_waits_that_others_lose() {
        let mut history = History::default();
        let (watched, other) = (Key::Cgroup("/kubepods.slice".into()), Key::Cgroup("/system.slice".into()));
        let mut past = Vec::new();
        for round in 0..9 {
            history.push(&data(6_000, round), None);
            past = history.past(&watched, past);
        }
        assert!(history.bytes <= MOST_BYTES, "{}", history.bytes);
        assert_eq!(past.len(), 9);
        let other = history.past(&other, Vec::new()).len();
        assert!((1..9).contains(&other), "{other}");
    }

    #[test]
    fn the_last_minute_is_longer_only_if_one_interval_is() {
        let past = |lengths_s: &[u64]| {
            let one = |(number, s): (usize, &u64)| Past {
                number: number as u64,
                end_unix_ns: 0,
                duration_ns: s * 1_000_000_000,
                wait: Wait { count: 1, ..Wait::default() },
            };
            let (wait, length_ns) = last_minute(&lengths_s.iter().enumerate().map(one).collect::<Vec<_>>());
            (wait.count, length_ns / 1_000_000_000)
        };
        assert_eq!(past(&[1; 90]), (60, 60));
        assert_eq!(past(&[50, 40, 15]), (2, 55));
        assert_eq!((past(&[300]), past(&[])), ((1, 300), (0, 0)));
    }
}
