//! Sums one recording for a comparison, one Interval at a time. Container ids and thread numbers differ between runs, so subjects
//! get names that both recordings have.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    CpuLimits, DiffSubject,
    blocks::{BlockSums, Blocks, MOST_BLOCKS, Measure, SubjectBlocks},
};
use crate::{
    Blame, ExitedInterval, Hist, Interval, Mode, Observed, TaskInterval, TaskReading, Totals, Wait,
    cgroup_name::without_ids,
    hist::HistSum,
    nodes::remote_share,
    path::path_and_ancestors,
    placement::{ByNode, sum_by_node, total},
    table::interval::Appended,
};

/// A recording that is being read.
#[derive(Debug, Default)]
pub struct Side {
    blocks: Blocks,
    intervals: u64,
    /// The index of each subject in `tracked`.
    subjects: HashMap<DiffSubject, usize>,
    /// For each subject: the current block (`None`: no activity in it so far) and the completed blocks.
    tracked: Vec<(Option<Box<BlockSums>>, SubjectBlocks)>,
    /// The index in `tracked` of a thread's program, by thread name.
    programs: HashMap<Arc<str>, usize>,
    /// The index in `leaves` of a cgroup, by cgroup id.
    leaf_of: HashMap<u64, usize>,
    leaves: Vec<Leaf>,
    pairs: HashMap<(u64, u64), usize>,
    first_limits: BTreeMap<Arc<str>, CpuLimits>,
    changed_limits: BTreeSet<Arc<str>>,
    /// The recording, without histograms.
    whole: Appended,
    hist: HistSum,
    no_hist: Arc<Hist>,
}

/// The tasks directly in a cgroup.
#[derive(Debug, Default)]
struct Leaf {
    /// The current block.
    sums: Option<Box<BlockSums>>,
    /// The subjects of the cgroup and its ancestors, the cgroup first. Empty until the path of the cgroup is known.
    above: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Recorded {
    pub blocks: Blocks,
    /// All subjects that existed, including inactive ones.
    pub rows: BTreeMap<DiffSubject, SubjectBlocks>,
    /// The recording as one Interval. It has a single histogram: the sum of all.
    pub whole: Interval,
    pub intervals: u64,
    /// The limits at the end, by path; `None`: several cgroups with this path have different limits.
    pub limits: BTreeMap<Arc<str>, Option<CpuLimits>>,
    pub changed_limits: BTreeSet<Arc<str>>,
    /// For each renamed path: the name without ids that the comparison uses.
    pub names: BTreeMap<Arc<str>, Arc<str>>,
}

impl Side {
    /// Adds the next Interval.
    pub fn add(&mut self, interval: Interval) {
        self.add_long(interval, 1);
    }

    /// Adds an Interval that covers several `intervals` of the recording.
    pub fn add_long(&mut self, mut interval: Interval, intervals: u64) {
        if interval.duration_ns == 0 {
            return;
        }
        self.intervals += intervals;
        self.add_limits(&interval);
        self.add_pairs(&interval);
        self.add_host(&interval);
        self.add_remote(&interval);
        for exited in &mut interval.exited {
            self.add_exited(exited, &interval.cgroups);
        }
        for task in &mut interval.tasks {
            self.add_task(task, &interval.cgroups);
        }
        for idle in &interval.idle {
            self.place(idle, &interval.cgroups);
        }
        // No figure of `diff` needs the histograms by CPU, and adding them is expensive.
        for wait in interval.cpus.iter_mut().filter_map(|cpu| cpu.wait.as_mut()) {
            wait.hist = Hist::default();
        }
        let duration_ns = interval.duration_ns;
        self.whole.push(interval);
        if self.blocks.count(duration_ns) {
            self.close_block();
        }
    }

    fn subject(&mut self, subject: DiffSubject) -> usize {
        *self.subjects.entry(subject).or_insert_with(|| {
            self.tracked.push(Default::default());
            self.tracked.len() - 1
        })
    }

    fn sums(&mut self, subject: DiffSubject) -> &mut BlockSums {
        let at = self.subject(subject);
        self.tracked[at].0.get_or_insert_default()
    }

    fn leaf(&mut self, id: u64, names: &[(u64, Arc<str>)]) -> usize {
        let at = *self.leaf_of.entry(id).or_insert_with(|| {
            self.leaves.push(Leaf::default());
            self.leaves.len() - 1
        });
        if self.leaves[at].above.is_empty()
            && let Ok(named) = names.binary_search_by_key(&id, |(id, _)| *id)
        {
            let paths = path_and_ancestors(&names[named].1);
            self.leaves[at].above =
                paths.map(|path| self.subject(DiffSubject::Cgroup { path: path.into() })).collect();
        }
        at
    }

    /// Returns the indexes of a task's cgroup and program. Adds them if they are new.
    fn place(&mut self, task: &TaskReading, names: &[(u64, Arc<str>)]) -> (usize, usize) {
        let leaf = self.leaf(task.cgroup_id, names);
        let program = match self.programs.get(&task.comm) {
            Some(at) => *at,
            None => {
                let at = self.subject(DiffSubject::Program { comm: program(&task.comm).into() });
                self.programs.insert(task.comm.clone(), at);
                at
            }
        };
        (leaf, program)
    }

    fn add_task(&mut self, task: &mut TaskInterval, names: &[(u64, Arc<str>)]) {
        let (leaf, program) = self.place(&task.reading, names);
        task.reading.hist = self.no_hist.clone();
        if task.wait.count == 0 && task.totals == Totals::default() {
            return;
        }
        let hist = std::mem::take(&mut task.wait.hist);
        self.hist.add(&hist);
        // Stores all counters, as in the exact mode. Later code checks whether both recordings have a counter.
        let observed = Observed::task(task, Mode::Bpf);
        for sums in [&mut self.leaves[leaf].sums, &mut self.tracked[program].0] {
            sums.get_or_insert_default().add_tasks(&task.totals, task.wait.max_ns, &hist, &observed);
        }
    }

    fn add_exited(&mut self, exited: &mut ExitedInterval, names: &[(u64, Arc<str>)]) {
        let hist = std::mem::take(&mut exited.wait.hist);
        self.hist.add(&hist);
        let leaf = self.leaf(exited.cgroup_id, names);
        let observed = Observed::exited(exited, Mode::Bpf);
        let sums = self.leaves[leaf].sums.get_or_insert_default();
        sums.add_tasks(&exited.totals, exited.wait.max_ns, &hist, &observed);
    }

    fn close_block(&mut self) {
        let all = self.subject(DiffSubject::All);
        for leaf in &mut self.leaves {
            let Some(sums) = leaf.sums.take() else { continue };
            for at in leaf.above.iter().chain([&all]) {
                self.tracked[*at].0.get_or_insert_default().merge(&sums);
            }
        }
        let block = self.blocks.close();
        for (sums, rows) in &mut self.tracked {
            rows.0.extend(sums.take().map(|sums| sums.row(block)));
        }
        if self.blocks.lengths_ns.len() == MOST_BLOCKS {
            self.merge_blocks(2);
        }
    }

    fn merge_blocks(&mut self, factor: usize) {
        let blocks = self.blocks.lengths_ns.len();
        if factor > 1 && blocks > 1 {
            self.tracked.iter_mut().for_each(|(_, rows)| rows.merge_blocks(factor, blocks));
            self.blocks.merge(factor);
        }
    }

    fn add_limits(&mut self, interval: &Interval) {
        for reading in &interval.limits {
            let Some(path) = interval.cgroup_path(reading.id) else { continue };
            let limits = CpuLimits::from(reading);
            let first = self.first_limits.entry(path.clone()).or_insert_with(|| limits.clone());
            if *first != limits {
                self.changed_limits.insert(path.clone());
            }
            for (measure, amount) in [
                (Measure::Periods, reading.nr_periods),
                (Measure::ThrottledPeriods, reading.nr_throttled),
                (Measure::Stood, reading.throttled_ns),
            ] {
                let Some(amount) = amount else { continue };
                let leaf = self.leaf(reading.id, &interval.cgroups);
                if let Some(own) = self.leaves[leaf].above.first() {
                    self.tracked[*own].0.get_or_insert_default().add(measure, amount);
                }
            }
        }
    }

    fn add_pairs(&mut self, interval: &Interval) {
        for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran) {
            let key = (pair.victim, pair.culprit);
            if !self.pairs.contains_key(&key) {
                let culprit = interval.culprit(pair);
                // A later Interval may contain the path.
                let Some(victim) = interval.cgroup_path(pair.victim).cloned() else { continue };
                if culprit.path.is_none() && !culprit.kernel {
                    continue;
                }
                let culprit = culprit.path.filter(|_| !culprit.kernel);
                let at = self.subject(DiffSubject::Behind { victim, culprit });
                self.pairs.insert(key, at);
            }
            let sums = self.tracked[self.pairs[&key]].0.get_or_insert_default();
            sums.add(Measure::Behind, pair.ns);
        }
    }

    fn add_host(&mut self, interval: &Interval) {
        let all = self.sums(DiffSubject::All);
        for (busy_ns, idle_ns) in interval.cpus.iter().filter_map(|cpu| cpu.busy_ns.zip(cpu.idle_ns)) {
            all.add(Measure::Busy, busy_ns);
            all.add(Measure::Online, busy_ns.saturating_add(idle_ns));
        }
        let own = self.sums(DiffSubject::Own);
        let cost = &interval.cost;
        for (measure, ns) in [(Measure::Hook, cost.hook_ns), (Measure::Collector, cost.cpu_ns)] {
            if let Some(ns) = ns {
                own.add(measure, ns);
            }
        }
    }

    fn add_remote(&mut self, interval: &Interval) {
        if interval.limits.iter().any(|limits| !limits.memory_by_node.is_empty()) {
            let ran = interval.ran_by_cgroup();
            for limits in interval.limits.iter().filter(|limits| !limits.memory_by_node.is_empty()) {
                let Some(path) = interval.cgroup_path(limits.id) else { continue };
                if let Some(ran) = ran.get(path) {
                    self.add_share(DiffSubject::Cgroup { path: path.clone() }, &limits.memory_by_node, ran);
                }
            }
        }
        if !interval.memory.is_empty() {
            let memory = sum_by_node(interval.memory.iter().flat_map(|memory| &memory.by_node));
            let ran = interval.ran_by_node(|task| {
                interval.memory.binary_search_by_key(&task.tgid, |memory| memory.tgid).is_ok()
            });
            self.add_share(DiffSubject::All, &memory, &ran);
        }
    }

    fn add_share(&mut self, subject: DiffSubject, memory: &[(u32, u64)], ran: &ByNode) {
        let (at, ran_ns) = (self.subject(subject), total(ran));
        if let Some(share) = remote_share(memory, ran) {
            let sums = self.tracked[at].0.get_or_insert_default();
            sums.add(Measure::Remote, (share * ran_ns as f64) as u64);
            sums.add(Measure::RemoteOf, ran_ns);
        }
    }

    pub(super) fn finish(mut self) -> Recorded {
        if self.blocks.filled != 0 {
            self.close_block();
            if self.blocks.join_short_end() {
                let last = self.blocks.lengths_ns.len() - 1;
                self.tracked.iter_mut().for_each(|(_, rows)| rows.regroup(|block| block.min(last)));
            }
        }
        self.merge_blocks(self.blocks.final_factor());
        let mut tracked = self.tracked;
        let subjects = self.subjects.into_iter();
        let mut rows: BTreeMap<DiffSubject, SubjectBlocks> =
            subjects.map(|(subject, at)| (subject, std::mem::take(&mut tracked[at].1))).collect();
        let mut whole = self.whole.into_interval();
        for (_, path) in &whole.cgroups {
            rows.entry(DiffSubject::Cgroup { path: path.clone() }).or_default();
        }
        let limits = whole.limits.iter().filter_map(|limits| {
            Some((whole.cgroup_path(limits.id)?.clone(), Some(CpuLimits::from(limits))))
        });
        let limits = limits.collect();
        if whole.mode == Mode::Bpf {
            // Findings read the histogram of all tasks together from this extra entry.
            let wait = Wait { hist: self.hist.take(), ..Wait::default() };
            let (totals, accounts) = (Totals::default(), None);
            whole.exited.push(ExitedInterval { cgroup_id: u64::MAX, tasks: 0, totals, accounts, wait });
        }
        Recorded {
            blocks: self.blocks,
            rows,
            limits,
            whole,
            intervals: self.intervals,
            changed_limits: self.changed_limits,
            names: BTreeMap::new(),
        }
    }
}

/// Gives cgroups that differ only in ids the same name. A cgroup is renamed only if it exists on one side alone, and the other
/// side has a cgroup that gets the same name. Cgroups of one side that get the same name are merged. Their limits are kept if
/// they are equal.
pub(super) fn align(before: &mut Recorded, after: &mut Recorded) {
    let (mut names, mut others) = (names(before, after), names(after, before));
    let [forms, other_forms] =
        [&names, &others].map(|names| names.values().cloned().collect::<BTreeSet<Arc<str>>>());
    names.retain(|_, form| other_forms.contains(form));
    others.retain(|_, form| forms.contains(form));
    for (side, names) in [(before, names), (after, others)] {
        if !names.is_empty() {
            rename(side, names);
        }
    }
}

/// Maps each path of `one` that has ids and that `other` lacks to the path without ids.
fn names(one: &Recorded, other: &Recorded) -> BTreeMap<Arc<str>, Arc<str>> {
    let alone = one.rows.keys().filter(|subject| !other.rows.contains_key(subject));
    let paths = alone
        .filter_map(|subject| if let DiffSubject::Cgroup { path } = subject { Some(path) } else { None });
    paths.map(|path| (path.clone(), without_ids(path).into())).filter(|(path, form)| path != form).collect()
}

fn rename(side: &mut Recorded, names: BTreeMap<Arc<str>, Arc<str>>) {
    let name = |path: Arc<str>| names.get(&path).cloned().unwrap_or(path);
    let mut renamed: BTreeMap<DiffSubject, SubjectBlocks> = BTreeMap::new();
    for (subject, rows) in std::mem::take(&mut side.rows) {
        let subject = match subject {
            DiffSubject::Cgroup { path } => DiffSubject::Cgroup { path: name(path) },
            DiffSubject::Behind { victim, culprit } => {
                DiffSubject::Behind { victim: name(victim), culprit: culprit.map(name) }
            }
            other => other,
        };
        renamed.entry(subject).or_default().merge(rows);
    }
    side.rows = renamed;
    let mut limits = BTreeMap::new();
    for (path, one) in std::mem::take(&mut side.limits) {
        let all = limits.entry(name(path)).or_insert_with(|| one.clone());
        if *all != one {
            *all = None;
        }
    }
    side.limits = limits;
    side.changed_limits = std::mem::take(&mut side.changed_limits).into_iter().map(name).collect();
    side.names = names;
}

/// Returns the program of a thread name: `#` replaces each number after a separator. `worker-12` becomes `worker-#`; `python3`
/// and `nginx` stay. All kernel workers become `kworker`.
pub(super) fn program(comm: &str) -> String {
    if comm.starts_with("kworker/") {
        return "kworker".into();
    }
    let mut out = String::with_capacity(comm.len());
    let mut letters = comm.chars().peekable();
    while let Some(letter) = letters.next() {
        out.push(letter);
        let is_separator = !letter.is_alphanumeric();
        if is_separator && letters.next_if(char::is_ascii_digit).is_some() {
            while letters.next_if(char::is_ascii_digit).is_some() {}
            out.push('#');
        }
    }
    out
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
