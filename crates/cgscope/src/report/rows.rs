//! The rows of the tables in text and page: cgroups, processes, threads, and pairs of victim and culprit.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use cgscope_model::{Blame, Group, Interval, Totals, Wait, sum, table::exited::ENDED};

use crate::causes::UNNAMED;

/// The name of a cgroup whose path is unknown.
pub const REMOVED: &str = "(removed before it was read)";

/// The totals of a cgroup, a process or a thread over the recording.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The name of a cgroup, a process or a thread.
    pub name: String,
    /// The path of a cgroup.
    pub path: Option<Arc<str>>,
    /// The process id of a process, or the thread id of a thread.
    pub id: Option<u32>,
    /// The process id of a thread.
    pub process: Option<u32>,
    /// The name of the cgroup of a process or thread.
    pub cgroup: Option<String>,
    /// Completed waits.
    pub wait: Wait,
    pub totals: Totals,
}

impl Row {
    fn of_group(name: String, group: Group) -> Self {
        Self { name, wait: group.wait, totals: group.totals, ..Self::default() }
    }
}

/// Sorts by waiting, the longest first. Drops rows that neither waited nor ran.
fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.filter(|row| row.wait.count != 0 || row.totals.on_cpu_ns != 0).collect();
    rows.sort_by(|a, b| {
        let key = |row: &Row| Reverse((row.wait.total_ns, row.totals.on_cpu_ns));
        key(a).cmp(&key(b)).then_with(|| (&a.name, a.id).cmp(&(&b.name, b.id)))
    });
    rows
}

/// Cgroups, each including its descendants.
pub fn cgroups(whole: &Interval) -> Vec<Row> {
    sorted(whole.by_cgroup().into_iter().map(|(path, group)| Row {
        path: path.clone(),
        ..Row::of_group(path.map_or(REMOVED.into(), |path| whole.names.of(&path).into()), group)
    }))
}

/// Processes, and one row with the sum of exited tasks.
pub fn processes(whole: &Interval) -> Vec<Row> {
    let rows = whole.processes().into_iter().map(|process| {
        let task = whole.reading(process.named_by);
        let cgroup = whole.cgroup_path(task.cgroup_id).map(|path| whole.names.of(path).into());
        Row { id: Some(process.pid), cgroup, ..Row::of_group(task.comm.to_string(), process.group) }
    });
    sorted(rows.chain([ended(whole)]))
}

/// Threads, and one row with the sum of exited tasks.
pub fn threads(whole: &Interval) -> Vec<Row> {
    let rows = whole.tasks.iter().map(|task| Row {
        name: task.reading.comm.to_string(),
        id: Some(task.reading.tid),
        process: Some(task.reading.tgid),
        cgroup: whole.cgroup_path(task.reading.cgroup_id).map(|path| whole.names.of(path).into()),
        wait: task.all_waits().clone(),
        totals: *task.all_totals(),
        ..Row::default()
    });
    sorted(rows.chain([ended(whole)]))
}

fn ended(whole: &Interval) -> Row {
    Row::of_group(ENDED.into(), whole.ended())
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Pair {
    /// The cgroup of the tasks that waited.
    pub victim: String,
    pub culprit: String,
    /// The victim's waiting behind this culprit, ns summed over tasks.
    pub ns: u64,
    /// The victim's waiting behind all culprits, ns.
    pub of_ns: u64,
}

/// Pairs of victim and culprit, the longest waiting first.
pub fn pairs(whole: &Interval) -> Vec<Pair> {
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut waited: BTreeMap<String, u64> = BTreeMap::new();
    let name = |id| whole.cgroup_path(id).map_or(UNNAMED.into(), |path| whole.names.of(path).into());
    for pair in whole.pairs.iter().filter(|pair| pair.blame == Blame::Ran) {
        let victim: String = name(pair.victim);
        sum::add(waited.entry(victim.clone()).or_default(), pair.ns);
        sum::add(sums.entry((victim, whole.culprit(pair).words(&whole.names))).or_default(), pair.ns);
    }
    let pairs = sums.into_iter().map(|((victim, culprit), ns)| {
        let of_ns = waited.get(&victim).copied().unwrap_or(0);
        Pair { victim, culprit, ns, of_ns }
    });
    let mut pairs: Vec<Pair> = pairs.collect();
    // The sort is stable, so equal pairs stay sorted by name.
    pairs.sort_by_key(|pair| Reverse(pair.ns));
    pairs
}
