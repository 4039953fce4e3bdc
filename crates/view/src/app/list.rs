//! The kinds of lists with their columns, and the rows of a list with their order.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use cgscope_ledger::{chains::Waker, named};
use cgscope_model::{
    Blame, Interval, TaskReading,
    counters::{Counter, OF_TOP},
};
use itertools::Itertools;

use crate::{
    columns::{
        Column::{self, *},
        SortKey,
    },
    data::{Data, Key, Subject},
    states::{self, StateRow},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Leaf,
    Open,
    Closed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListRow {
    pub(crate) key: Key,
    /// The figures of a state, because the interval does not store states.
    pub(crate) state: Option<StateRow>,
    pub depth: usize,
    pub(crate) fold: Fold,
}

#[derive(Clone, Debug)]
pub struct Asked {
    pub kind: ListKind,
    pub sort: Column,
    pub reversed: bool,
    pub filter: String,
    /// Also rows without activity.
    pub idle: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) asked: &'a Asked,
    /// The scope of the list: everything, a cgroup or a process. Only rows within the scope are shown.
    pub(crate) scope: &'a Key,
    pub(crate) tree: bool,
    pub(crate) folded: &'a BTreeSet<Arc<str>>,
    pub(crate) command_line: &'a dyn Fn(u32) -> Option<Arc<str>>,
}

impl ListRow {
    fn leaf(key: Key) -> Self {
        Self { key, state: None, depth: 0, fold: Fold::Leaf }
    }
}

impl Question<'_> {
    pub(crate) fn rows(&self, data: &Data) -> Vec<ListRow> {
        match self.asked.kind {
            ListKind::Cgroups | ListKind::Limits if self.tree => self.tree(data),
            ListKind::States => self.by_state(data),
            _ => self.subjects(data).iter().map(|subject| ListRow::leaf(subject.key())).collect(),
        }
    }

    /// Returns the subjects without a tree, sorted by the column. Equal subjects are sorted by key, so that their order is stable.
    pub(crate) fn subjects<'d>(&self, data: &'d Data) -> Vec<Subject<'d>> {
        let subjects: Vec<Subject<'d>> = match self.asked.kind {
            ListKind::Cgroups | ListKind::Limits | ListKind::Victims => self.cgroups(data),
            ListKind::Processes => {
                // The threads of a process may be in different cgroups.
                let tasks = data.places_in(self.scope);
                let pids: BTreeSet<u32> = tasks.map(|at| data.interval.reading(at).tgid).collect();
                let processes = data.processes().iter().filter(|process| pids.contains(&process.pid));
                processes.filter_map(|process| data.of_process(process)).collect()
            }
            // The rows of this list are states of threads, not subjects.
            ListKind::States => Vec::new(),
            ListKind::Sleepers => self.sleepers(data),
            ListKind::Threads | ListKind::Placed => {
                let busy = data.interval.tasks.len();
                let tasks = data.places_in(self.scope).filter(|place| self.asked.idle || *place < busy);
                tasks.filter_map(|place| data.task_at(place)).map(Subject::Task).collect()
            }
        };
        let filter = self.asked.filter.to_lowercase();
        let matching = subjects.into_iter().filter(|subject| self.matches(subject, data, &filter));
        let keys = |subject: &Subject<'_>| (self.asked.sort.sort_key(subject, data), subject.key());
        let mut keyed: Vec<_> = matching.map(|subject| (keys(&subject), subject)).collect();
        let order = self.order();
        keyed.sort_by(|((a, x), _), ((b, y), _)| order(a, b).then_with(|| x.cmp(y)));
        keyed.into_iter().map(|(_, subject)| subject).collect()
    }

    fn cgroups<'d>(&self, data: &'d Data) -> Vec<Subject<'d>> {
        let (scope, nodes) = (self.scope_node(data), data.tree.nodes());
        let below = scope.map_or(0..nodes.len(), |node| data.tree.below(node));
        if self.asked.kind == ListKind::Victims {
            // Show only cgroups whose own tasks waited behind others. Their ancestors would repeat the same figures.
            let ran = data.interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran);
            let victims = ran.filter_map(|pair| data.tree.find_id(&data.interval, pair.victim));
            let victims: BTreeSet<usize> = victims.filter(|node| below.contains(node)).collect();
            return victims.into_iter().map(|node| Subject::Cgroup(&nodes[node])).collect();
        }
        let unknown = data.tree.unknown.as_ref().filter(|_| scope.is_none()).map(Subject::Unknown);
        nodes[below].iter().map(Subject::Cgroup).chain(unknown).collect()
    }

    /// Returns the sleepers for which another task woke them: tasks if tasks are distinguished, otherwise cgroups.
    fn sleepers<'d>(&self, data: &'d Data) -> Vec<Subject<'d>> {
        let rows = || data.interval.chains.iter().flatten().filter(|row| row.waker == Waker::Task);
        let tids: BTreeSet<u32> = rows().map(|row| row.sleeper_tid).filter(|tid| *tid != 0).collect();
        if !tids.is_empty() {
            let places = data.places_in(self.scope);
            let places = places.filter(|at| tids.contains(&data.interval.reading(*at).tid));
            return places.filter_map(|at| data.task_at(at)).map(Subject::Task).collect();
        }
        let nodes: BTreeSet<usize> =
            rows().filter_map(|row| data.tree.find_id(&data.interval, row.sleeper)).collect();
        let below = self.scope_node(data).map(|node| data.tree.below(node));
        let nodes = nodes.into_iter().filter(|node| below.as_ref().is_none_or(|below| below.contains(node)));
        nodes.map(|node| Subject::Cgroup(&data.tree.nodes()[node])).collect()
    }

    fn scope_node(&self, data: &Data) -> Option<usize> {
        match self.scope {
            Key::Cgroup(path) => data.tree.find(path),
            _ => None,
        }
    }

    fn order(&self) -> impl Fn(&SortKey, &SortKey) -> Ordering {
        let is_largest_first = self.asked.sort.is_largest_first() != self.asked.reversed;
        move |a, b| {
            let order = a.partial_cmp(b).unwrap_or(Ordering::Equal);
            if is_largest_first { order.reverse() } else { order }
        }
    }

    fn matches(&self, subject: &Subject<'_>, data: &Data, filter: &str) -> bool {
        if filter.is_empty() {
            return true;
        }
        let has = |text: &str| text.to_lowercase().contains(filter);
        let names = &data.interval.names;
        if subject.cgroup(&data.interval).is_some_and(|path| has(path) || has(&names.of(path))) {
            return true;
        }
        let is_task = |task: &TaskReading| {
            let ids = [task.tid, task.tgid];
            has(&task.comm)
                || ids.iter().any(|id| id.to_string() == filter)
                || (self.command_line)(task.tgid).is_some_and(|line| has(&line))
        };
        match (subject, subject.task()) {
            (_, Some(task)) => is_task(&task.reading),
            // The filter also finds a cgroup by the tasks directly in it.
            (Subject::Cgroup(node), None) => {
                let Interval { tasks, idle, .. } = &*data.interval;
                data.tree.find(&node.path).is_some_and(|at| {
                    data.tree.tasks_of(at).iter().any(|at| is_task(&tasks[*at].reading))
                        || data.tree.idle_of(at).iter().any(|at| is_task(&idle[*at]))
                })
            }
            _ => has(&subject.title(names)),
        }
    }

    fn tree(&self, data: &Data) -> Vec<ListRow> {
        let nodes = data.tree.nodes();
        let key = |node| self.asked.sort.sort_key(&Subject::Cgroup(node), data);
        let keys: Vec<SortKey> = nodes.iter().map(key).collect();
        let order = self.order();
        // Sort in reverse order, because the loop below pops from the end.
        let sorted = |siblings: Vec<usize>| {
            siblings.into_iter().sorted_by(|a, b| {
                order(&keys[*b], &keys[*a]).then_with(|| nodes[*b].path.cmp(&nodes[*a].path))
            })
        };
        let roots = match self.scope_node(data) {
            Some(node) => vec![node],
            None => (0..nodes.len()).filter(|at| nodes[*at].parent.is_none()).collect(),
        };
        let mut next: Vec<(usize, usize)> = sorted(roots).map(|at| (at, 0)).collect();
        let mut rows = Vec::with_capacity(nodes.len() + 1);
        while let Some((at, depth)) = next.pop() {
            let node = &nodes[at];
            let fold = match (node.children.is_empty(), self.folded.contains(&node.path)) {
                (true, _) => Fold::Leaf,
                (false, true) => Fold::Closed,
                (false, false) => Fold::Open,
            };
            rows.push(ListRow { depth, fold, ..ListRow::leaf(Key::Cgroup(node.path.clone())) });
            if fold == Fold::Open {
                next.extend(sorted(node.children.clone()).map(|child| (child, depth + 1)));
            }
        }
        let unknown = data.tree.unknown.as_ref().filter(|_| *self.scope == Key::All);
        rows.extend(unknown.map(|_| ListRow::leaf(Key::Unknown)));
        rows
    }

    fn by_state(&self, data: &Data) -> Vec<ListRow> {
        let tasks = data.places_in(self.scope).filter_map(|at| data.task_at(at));
        let filter = self.asked.filter.to_lowercase();
        let mut states = states::rows(&data.interval, tasks);
        states.retain(|row| row.name.to_lowercase().contains(&filter) || row.state.words().contains(&filter));
        if self.asked.reversed {
            states.reverse();
        }
        let row = |row: StateRow| {
            let leaf = ListRow::leaf(Key::State(row.name.clone(), row.state));
            ListRow { state: Some(row), ..leaf }
        };
        states.into_iter().map(row).collect()
    }
}

const WAITS: Column = Of(Counter::Waits);
const CSWCH: Column = Of(Counter::Voluntary);
const NVCSWCH: Column = Of(Counter::Involuntary);
const MIGR: Column = Of(Counter::Migrations);

named! {
    /// A kind of list, named after its rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ListKind (name, sorted_by, flexible, beside_counters, named_least_needed) {
        /// The name in the settings file.
        name: &'static str,
        sorted_by: Column,
        /// Columns that can take the remaining width. The first visible column of these takes it.
        flexible: &'static [Column],
        /// All columns, except the counters that lists of cgroups, processes and threads share.
        beside_counters: &'static [Column],
        /// Columns to omit when the screen is too narrow, in this order. Counters that are not listed here are omitted first.
        named_least_needed: &'static [Column],
    }

    Cgroups = "cgroups", WaitTime, &[Name],
        &[Name, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu, Quota, Threads, Behind],
        &[WAITS, WaitShare, CSWCH, Threads, Behind, P50, Pending, Max, OnCpu, NVCSWCH, P99, Throttled, Quota];
    Limits = "limits", Throttled, &[Name],
        &[
            Name, OnCpu, Quota, Limit, Burst, Periods, Throttled, LimitedBy, Contention, AtLimit, PsiSome, PsiFull, Weight,
            Threads,
        ],
        &[Threads, Weight, Limit, OnCpu, PsiFull, PsiSome, Burst, Throttled, LimitedBy, AtLimit, Contention];
    /// Cgroups that waited behind others.
    Victims = "victims", BehindTime, &[Name],
        &[Name, BehindTime, WaitTime, Why, P99, Max],
        &[Max, P99, WaitTime, Why];
    Processes = "processes", WaitTime, &[Cgroup, Command],
        &[Pid, Command, Threads, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu, Cgroup],
        LEAST_OF_TASKS;
    Threads = "threads", WaitTime, &[Cgroup, Command],
        &[Tid, Pid, Command, Cpu, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu, Cgroup],
        LEAST_OF_TASKS;
    /// Threads and where they ran.
    Placed = "placed", OnCpu, &[Cgroup, RanOn],
        &[Tid, Command, Cpu, OnCpu, WaitTime, Why, P99, NodeMoves, MIGR, RanOn, Cgroup],
        &[Cgroup, MIGR, P99, Cpu, Why];
    /// Threads by name and state.
    States = "states", WaitTime, &[Name], &[], &[];
    /// Cgroups or tasks that slept until another task woke them.
    Sleepers = "sleepers", SleepTime, &[Name],
        &[Name, SleepTime, WokenBy, WaitTime, Why, OnCpu],
        &[Why, OnCpu, WaitTime];
}

const LEAST_OF_TASKS: &[Column] =
    &[MIGR, WAITS, WaitShare, P50, Pid, CSWCH, Cgroup, Pending, Cpu, Threads, Max, NVCSWCH, Throttled, OnCpu];

impl ListKind {
    pub fn columns(self) -> &'static [Column] {
        static COLUMNS: LazyLock<[Vec<Column>; ListKind::ALL.len()]> =
            LazyLock::new(|| ListKind::ALL.map(ListKind::all_columns));
        &COLUMNS[self as usize]
    }

    fn all_columns(self) -> Vec<Column> {
        let after = match self {
            Self::Cgroups => Quota,
            Self::Processes | Self::Threads => OnCpu,
            _ => return self.beside_counters().to_vec(),
        };
        let has = |counter: &&Counter| self != Self::Cgroups || !counter.info().tasks_only;
        let counters = |at| OF_TOP.iter().filter(has).filter(move |_| at == after).copied().map(Of);
        let columns = self.beside_counters().iter().copied();
        columns.flat_map(|column| std::iter::once(column).chain(counters(column))).collect()
    }

    pub(crate) fn least_needed(self) -> Vec<Column> {
        let named = self.named_least_needed();
        let counters = self.columns().iter().filter(|column| matches!(column, Of(_)));
        counters.filter(|column| !named.contains(column)).chain(named).copied().collect()
    }
}
