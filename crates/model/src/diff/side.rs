//! A recording, as it is read: Intervals go in one at a time, and what a comparison needs is kept.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use cgscope_layout::cause::CELLS;

use super::{
    Subject,
    blocks::{Blocks, MOST_BLOCKS, Measure, Rows, Sums},
    program,
    recorded::{Recorded, same_settings, settings},
};
use crate::{
    Blame, CgroupReading, Hist, Interval, Mode, Observed, TaskInterval, Totals, Wait,
    interval::ExitedInterval,
    nodes::{ByNode, remote_share, sum_by_node, total},
    selection::path_and_ancestors,
    sum,
};

/// One recording on its way in.
#[derive(Debug, Default)]
pub struct Side {
    blocks: Blocks,
    intervals: u64,
    subjects: HashMap<Subject, usize>,
    sums: Vec<Sums>,
    rows: Vec<Rows>,
    leaves: HashMap<u64, Leaf>,
    tasks: Vec<Task>,
    by_serial: HashMap<u64, u32>,
    /// The tasks of the interval before, in its order.
    order: Vec<(u64, u32)>,
    pairs: HashMap<(u64, u64), usize>,
    present: BTreeSet<Subject>,
    first_limits: BTreeMap<Arc<str>, CgroupReading>,
    changed_limits: BTreeSet<Arc<str>>,
    whole: Interval,
    shares: Shares,
}

/// The causes in the histogram of all waits; its counts are those of all blocks.
#[derive(Debug)]
struct Shares([u64; CELLS]);

impl Default for Shares {
    fn default() -> Self {
        Self([0; CELLS])
    }
}

impl Shares {
    fn add(&mut self, hist: &Hist) {
        hist.shares().for_each(|(cell, share)| sum::add(&mut self.0[cell], share));
    }
}

/// The tasks directly in a cgroup.
#[derive(Debug)]
struct Leaf {
    sums: Box<Sums>,
    /// The subjects of the cgroup and those above it, itself first; empty while its path is not known.
    above: Vec<usize>,
}

/// A task: what it did over the whole recording, without its histogram, and in the block that is being filled.
#[derive(Debug)]
struct Task {
    whole: TaskInterval,
    program: usize,
    /// `None` while it did nothing since the last block.
    block: Option<Box<Sums>>,
}

impl Side {
    /// Takes the Interval that follows the last one.
    pub fn add(&mut self, interval: Interval) {
        self.add_long(interval, 1);
    }

    /// Takes one that stands for so many of those that were recorded.
    pub fn add_long(&mut self, mut interval: Interval, intervals: u64) {
        if interval.duration_ns == 0 {
            return;
        }
        self.intervals += intervals;
        self.all();
        self.add_limits(&interval);
        self.add_pairs(&interval);
        self.add_host(&interval);
        self.add_remote(&interval);
        for exited in &mut interval.exited {
            self.add_exited(exited, &interval.cgroups);
        }
        let tasks = std::mem::take(&mut interval.tasks);
        self.add_tasks(tasks, &interval.cgroups);
        // Histograms by CPU are in no figure here, and dear to add.
        for wait in interval.cpus.iter_mut().filter_map(|cpu| cpu.wait.as_mut()) {
            wait.hist = Hist::default();
        }
        let duration_ns = interval.duration_ns;
        self.whole.append(interval);
        if self.blocks.count(duration_ns) {
            self.close_block();
        }
    }

    /// Their length together, ns.
    pub fn duration_ns(&self) -> u64 {
        self.whole.duration_ns
    }

    fn subject(&mut self, subject: Subject) -> usize {
        if let Some(at) = self.subjects.get(&subject) {
            return *at;
        }
        let at = self.sums.len();
        self.sums.push(Sums::default());
        self.rows.push(Rows::default());
        self.present.insert(subject.clone());
        self.subjects.insert(subject, at);
        at
    }

    fn all(&mut self) -> usize {
        self.subject(Subject::All)
    }

    fn leaf(&mut self, id: u64, names: &[(u64, Arc<str>)]) -> &mut Leaf {
        if self.leaves.get(&id).is_none_or(|leaf| leaf.above.is_empty()) {
            let path = names.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| names[at].1.clone());
            let above = path.iter().flat_map(|path| path_and_ancestors(path));
            let above: Vec<usize> = above.map(|path| self.subject(Subject::Cgroup(path.into()))).collect();
            let leaf = self.leaves.entry(id);
            leaf.or_insert_with(|| Leaf { sums: Box::default(), above: Vec::new() }).above = above;
        }
        self.leaves.get_mut(&id).expect("it was just put there")
    }

    fn add_tasks(&mut self, tasks: Vec<TaskInterval>, names: &[(u64, Arc<str>)]) {
        let mut before = std::mem::take(&mut self.order).into_iter().peekable();
        let mut order = Vec::with_capacity(tasks.len());
        for task in tasks {
            let serial = task.reading.serial;
            while before.next_if(|(earlier, _)| *earlier < serial).is_some() {}
            let known = before.next_if(|(earlier, _)| *earlier == serial).map(|(_, at)| at);
            let at = match known.or_else(|| self.by_serial.get(&serial).copied()) {
                Some(at) => {
                    self.add_task(at as usize, task, names);
                    at
                }
                None => self.new_task(task, names),
            };
            order.push((serial, at));
        }
        self.order = order;
    }

    fn new_task(&mut self, mut task: TaskInterval, names: &[(u64, Arc<str>)]) -> u32 {
        let at = self.tasks.len() as u32;
        self.by_serial.insert(task.reading.serial, at);
        self.leaf(task.reading.cgroup_id, names);
        let program = self.subject(Subject::Program(program::name(&task.reading.comm).into()));
        let mut block: Option<Box<Sums>> = None;
        if did_anything(&task) {
            self.take_hist(&mut task, block.insert(Box::default()));
        }
        self.tasks.push(Task { whole: task, program, block });
        at
    }

    fn add_task(&mut self, at: usize, mut task: TaskInterval, names: &[(u64, Arc<str>)]) {
        let known = &self.tasks[at];
        if !did_anything(&task) {
            // Who does nothing is not told of but for waiting.
            self.tasks[at].whole.reading.pending = task.reading.pending;
            return;
        }
        let has_moved = known.whole.reading.cgroup_id != task.reading.cgroup_id;
        let is_renamed = known.whole.reading.comm != task.reading.comm;
        if has_moved || is_renamed {
            self.settle(at);
            self.leaf(task.reading.cgroup_id, names);
            self.tasks[at].program = self.subject(Subject::Program(program::name(&task.reading.comm).into()));
        }
        let mut block = self.tasks[at].block.take().unwrap_or_default();
        self.take_hist(&mut task, &mut block);
        let known = &mut self.tasks[at];
        known.block = Some(block);
        known.whole.append(task);
    }

    /// Adds it to the sums of its block; its histogram goes there alone.
    fn take_hist(&mut self, task: &mut TaskInterval, block: &mut Sums) {
        let hist = std::mem::take(&mut task.wait.hist);
        self.shares.add(&hist);
        block.add_totals(&task.totals, task.wait.max_ns, &hist);
        // Whether both modes know a counter is judged where it is compared.
        block.add_counters(&Observed::task(task, Mode::Bpf));
    }

    fn add_exited(&mut self, exited: &mut ExitedInterval, names: &[(u64, Arc<str>)]) {
        let hist = std::mem::take(&mut exited.wait.hist);
        self.shares.add(&hist);
        let sums = &mut self.leaf(exited.cgroup_id, names).sums;
        sums.add_totals(&exited.totals, exited.wait.max_ns, &hist);
        sums.add_counters(&Observed::exited(exited, Mode::Bpf));
    }

    /// What a task did since the last block goes to its cgroup and its program.
    fn settle(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        let Some(block) = task.block.take() else { return };
        self.sums[task.program].merge(&block);
        if let Some(leaf) = self.leaves.get_mut(&task.whole.reading.cgroup_id) {
            leaf.sums.merge(&block);
        }
    }

    fn close_block(&mut self) {
        (0..self.tasks.len()).for_each(|at| self.settle(at));
        let all = self.all();
        for leaf in self.leaves.values_mut().filter(|leaf| leaf.sums.is_touched()) {
            self.sums[all].merge(&leaf.sums);
            leaf.above.iter().for_each(|above| self.sums[*above].merge(&leaf.sums));
            *leaf.sums = Sums::default();
        }
        let block = self.blocks.close();
        for (sums, rows) in self.sums.iter_mut().zip(&mut self.rows) {
            if let Some(row) = sums.take_row(block) {
                rows.push(row);
            }
        }
        if self.blocks.lengths_ns.len() == MOST_BLOCKS {
            self.merge_blocks(2);
        }
    }

    fn merge_blocks(&mut self, factor: usize) {
        let blocks = self.blocks.lengths_ns.len();
        if factor > 1 && blocks > 1 {
            self.rows.iter_mut().for_each(|rows| rows.merge_blocks(factor, blocks));
            self.blocks.merge(factor);
        }
    }

    fn add_limits(&mut self, interval: &Interval) {
        for limits in &interval.limits {
            let Some(path) = interval.cgroup_path(limits.id) else { continue };
            let first = self.first_limits.get(path);
            if first.is_some_and(|first| !same_settings(first, limits)) {
                self.changed_limits.insert(path.clone());
            } else if first.is_none() {
                self.first_limits.insert(path.clone(), settings(limits));
            }
            let counters = [
                (Measure::Periods, limits.nr_periods),
                (Measure::ThrottledPeriods, limits.nr_throttled),
                (Measure::Stood, limits.throttled_ns),
            ];
            if counters.iter().all(|(_, amount)| amount.is_none()) {
                continue;
            }
            let Some(own) = self.leaf(limits.id, &interval.cgroups).above.first().copied() else { continue };
            for (measure, amount) in counters {
                if let Some(amount) = amount {
                    self.sums[own].add(measure, amount);
                }
            }
        }
    }

    fn add_pairs(&mut self, interval: &Interval) {
        for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran) {
            let key = (pair.victim, pair.culprit);
            let at = match self.pairs.get(&key) {
                Some(at) => *at,
                None => {
                    let culprit = interval.culprit(pair);
                    let Some(victim) = interval.cgroup_path(pair.victim).cloned() else { continue };
                    let culprit = match (culprit.path, culprit.kernel) {
                        (_, true) => None,
                        (Some(path), false) => Some(path),
                        // A name may still come.
                        (None, false) => continue,
                    };
                    let at = self.subject(Subject::Behind { victim, culprit });
                    self.pairs.insert(key, at);
                    at
                }
            };
            self.sums[at].add(Measure::Behind, pair.ns);
        }
    }

    fn add_host(&mut self, interval: &Interval) {
        let all = self.all();
        for (busy_ns, idle_ns) in interval.cpus.iter().filter_map(|cpu| cpu.busy_ns.zip(cpu.idle_ns)) {
            self.sums[all].add(Measure::Busy, busy_ns);
            self.sums[all].add(Measure::Online, busy_ns.saturating_add(idle_ns));
        }
        let own = self.subject(Subject::Own);
        let cost = &interval.cost;
        for (measure, ns) in [(Measure::Hook, cost.hook_ns), (Measure::Collector, cost.cpu_ns)] {
            if let Some(ns) = ns {
                self.sums[own].add(measure, ns);
            }
        }
    }

    fn add_remote(&mut self, interval: &Interval) {
        if interval.limits.iter().any(|limits| !limits.memory_by_node.is_empty()) {
            let ran = interval.ran_by_cgroup();
            for limits in interval.limits.iter().filter(|limits| !limits.memory_by_node.is_empty()) {
                let Some(path) = interval.cgroup_path(limits.id) else { continue };
                if let Some(ran) = ran.get(path) {
                    let subject = self.subject(Subject::Cgroup(path.clone()));
                    self.add_share(subject, &limits.memory_by_node, ran);
                }
            }
        }
        if !interval.memory.is_empty() {
            let memory = sum_by_node(interval.memory.iter().flat_map(|memory| &memory.by_node));
            let ran = interval.ran_by_node(|task| {
                interval.memory.binary_search_by_key(&task.tgid, |memory| memory.tgid).is_ok()
            });
            let all = self.all();
            self.add_share(all, &memory, &ran);
        }
    }

    fn add_share(&mut self, subject: usize, memory: &[(u32, u64)], ran: &ByNode) {
        let ran_ns = total(ran);
        if let Some(share) = remote_share(memory, ran) {
            self.sums[subject].add(Measure::Remote, (share * ran_ns as f64) as u64);
            self.sums[subject].add(Measure::RemoteOf, ran_ns);
        }
    }

    /// All that was read.
    pub(super) fn finish(mut self) -> Recorded {
        if self.blocks.is_filling() {
            self.close_block();
            if self.blocks.join_short_end() {
                let last = self.blocks.lengths_ns.len() - 1;
                self.rows.iter_mut().for_each(|rows| rows.end_at(last));
            }
        }
        self.merge_blocks(self.blocks.final_factor());
        let mut whole = self.whole;
        whole.tasks = self.tasks.into_iter().map(|task| task.whole).collect();
        whole.tasks.sort_by_key(|task| task.reading.serial);
        let counts = self.subjects.get(&Subject::All).map(|all| self.rows[*all].sum().hist());
        add_histogram(&mut whole, &counts.unwrap_or_default(), &self.shares);
        for (_, path) in &whole.cgroups {
            self.present.insert(Subject::Cgroup(path.clone()));
        }
        let limits = whole.limits.iter();
        let limits =
            limits.filter_map(|limits| Some((whole.cgroup_path(limits.id)?.clone(), Some(limits.clone()))));
        let mut rows = self.rows;
        Recorded {
            blocks: self.blocks,
            rows: self
                .subjects
                .into_iter()
                .map(|(subject, at)| (subject, std::mem::take(&mut rows[at])))
                .collect(),
            present: self.present,
            limits: limits.collect(),
            whole,
            intervals: self.intervals,
            changed_limits: self.changed_limits,
            names: BTreeMap::new(),
        }
    }
}

/// True if any figure of it rose.
fn did_anything(task: &TaskInterval) -> bool {
    task.wait.count != 0 || task.totals != Totals::default()
}

/// Findings look at the histogram of all tasks together: it is with an entry of its own.
fn add_histogram(whole: &mut Interval, counts: &Hist, shares: &Shares) {
    if !matches!(whole.mode, Mode::Bpf) {
        return;
    }
    let hist = counts.with_shares(shares.0);
    let wait = Wait { hist, ..Wait::default() };
    whole.exited.push(ExitedInterval {
        cgroup_id: u64::MAX,
        tasks: 0,
        totals: Totals::default(),
        accounts: None,
        wait,
    });
}
