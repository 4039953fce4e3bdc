//! The rows of the tables.

use std::cmp::Reverse;

use cgscope_model::{
    Group, Interval, TaskInterval, TaskReading, Tree,
    class::{Class, Classes, Classified},
    interval::Process,
    table::exited::ENDED,
    tree::Node,
};

use crate::{
    causes::UNNAMED,
    data::Data,
    stat::{Asked, Rows, figures::Figures},
};

/// A row of a table.
#[derive(Debug)]
pub struct Row<'a> {
    /// The figures of the row.
    pub figures: Figures,
    /// The interval of the figures.
    pub interval: &'a Interval,
    /// Whether the row covers all intervals. The last CPU and node then have no meaning.
    pub is_average: bool,
    /// The task that provides names, ids and CPU: a thread, or the thread that a process is named after.
    pub task: Option<&'a TaskReading>,
    /// The process, if the row is about one.
    pub process: Option<&'a Process>,
    /// Process id, if it is printed.
    pub tgid: Option<u32>,
    /// Thread id, if it is printed.
    pub tid: Option<u32>,
    /// The cgroup, if the row is about one.
    pub node: Option<(&'a Tree, &'a Node)>,
    /// Number of threads in a cgroup.
    pub threads: Option<u64>,
    /// Name of a task, or path of a cgroup.
    pub name: String,
}

impl Row<'_> {
    /// Path of the task's cgroup.
    pub fn cgroup(&self) -> Option<&str> {
        self.interval.cgroup_path(self.task?.cgroup_id).map(|path| &**path)
    }

    fn new(data: &Data, figures: Figures) -> Row<'_> {
        Row {
            figures,
            interval: &data.interval,
            is_average: false,
            task: None,
            process: None,
            tgid: None,
            tid: None,
            node: None,
            threads: None,
            name: String::new(),
        }
    }
}

/// The rows to print, sorted by id or by path.
pub fn all<'a>(data: &'a Data, asked: &Asked) -> Vec<Row<'a>> {
    let mut rows = match asked.rows {
        Rows::Cgroups => cgroups(data),
        Rows::Processes => data.processes().iter().map(|process| of_process(data, process)).collect(),
        Rows::Threads => threads(data),
        Rows::ThreadsOfProcesses => threads_of_processes(data),
    };
    rows.retain(|row| asked.all || row.figures.is_active());
    if asked.rows != Rows::Cgroups {
        rows.extend(ended(data, asked.rows));
    }
    rows
}

fn of_process<'a>(data: &'a Data, process: &'a Process) -> Row<'a> {
    let task = data.interval.reading(process.named_by);
    let row = Row::new(data, Figures::of_process(&process.group, data.interval.mode));
    let (tgid, process) = (Some(process.pid), Some(process));
    Row { task: Some(task), process, tgid, name: task.comm.to_string(), ..row }
}

fn of_thread<'a>(data: &'a Data, task: &'a TaskInterval) -> Row<'a> {
    let reading = &task.reading;
    let row = Row::new(data, Figures::of_task(task, data.interval.mode));
    let (tgid, tid) = (Some(reading.tgid), Some(reading.tid));
    Row { task: Some(reading), tgid, tid, name: reading.comm.to_string(), ..row }
}

/// Threads, sorted by thread id.
fn threads(data: &Data) -> Vec<Row<'_>> {
    let tasks = data.interval.places().filter_map(|place| data.task_at(place));
    let mut rows: Vec<Row<'_>> = tasks.map(|task| of_thread(data, task)).collect();
    rows.sort_by_key(|row| row.tid);
    rows
}

/// Each process, followed by its threads, as in pidstat.
fn threads_of_processes(data: &Data) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for process in data.processes() {
        rows.push(of_process(data, process));
        let mut threads: Vec<&TaskInterval> =
            process.threads.iter().filter_map(|place| data.task_at(*place)).collect();
        threads.sort_by_key(|task| task.reading.tid);
        rows.extend(threads.into_iter().map(|task| {
            let thread = of_thread(data, task);
            Row { tgid: None, name: format!("|__{}", thread.name), ..thread }
        }));
    }
    rows
}

fn cgroups(data: &Data) -> Vec<Row<'_>> {
    let mode = data.interval.mode;
    let of_group = |group: &Group| {
        let row = Row::new(data, Figures::of_group(group, mode));
        Row { threads: Some(group.threads), ..row }
    };
    let unknown = data.tree.unknown.iter().map(|group| Row { name: UNNAMED.into(), ..of_group(group) });
    let known = data.tree.nodes().iter().map(|node| {
        let row = of_group(&node.group);
        Row { node: Some((&data.tree, node)), name: data.interval.names.of(&node.path).into(), ..row }
    });
    known.chain(unknown).collect()
}

/// One row for all exited tasks, so that nothing is missing. It excludes what the rows of their processes already count.
fn ended(data: &Data, rows: Rows) -> Option<Row<'_>> {
    let interval = &*data.interval;
    let mut figures = Figures::of_group(&interval.ended(), interval.mode);
    if rows != Rows::Threads
        && let Some(accounts) = &data.total.accounts
    {
        figures.subtract(accounts.exited_threads);
    }
    figures.is_active().then(|| Row { name: ENDED.into(), ..Row::new(data, figures) })
}

/// Maximum number of targets that get a line. Targets that ran and waited most come first.
const NAMED: usize = 10;
/// Maximum number of targets to classify. Targets that ran and waited less have little to gain.
const LOOKED_AT: usize = 200;

/// A line for each target that did more than wait for work. Targets that ran and waited most come first.
pub fn lines(data: &Data, asked: &Asked<'_>, classes: &Classes<'_>) -> Vec<String> {
    let all = all(data, asked);
    let mut targets: Vec<&Row<'_>> =
        all.iter().filter(|row| row.tgid.or(row.tid).is_some() || row.node.is_some()).collect();
    targets.sort_by_key(|row| Reverse(row.figures.busy_ns()));
    let is_one = targets.len() == 1;
    let reported = targets
        .into_iter()
        .take(LOOKED_AT)
        .filter_map(|row| Some((row, verdict(row, data, asked.rows, classes)?)))
        .filter(|(_, verdict)| is_one || verdict.classes != [Class::Idle]);
    reported.take(NAMED).map(|(row, verdict)| format!("{}: {}", name(row), verdict.says)).collect()
}

fn verdict(row: &Row<'_>, data: &Data, rows: Rows, classes: &Classes<'_>) -> Option<Classified> {
    match rows {
        Rows::Cgroups => {
            let (_, node) = row.node?;
            let nodes = data.tree.nodes();
            Some(classes.cgroup(nodes.iter().position(|other| std::ptr::eq(other, node))?))
        }
        // Do not look up by pid or tid: within an average, several processes or threads may have had the same id.
        Rows::Processes | Rows::Threads | Rows::ThreadsOfProcesses => match row.process {
            Some(process) => {
                let threads = process.threads.iter().filter_map(|place| data.task_at(*place));
                Some(classes.threads(&threads.collect::<Vec<_>>()))
            }
            None => Some(classes.thread(data.task(row.task?.serial)?)),
        },
    }
}

fn name(row: &Row<'_>) -> String {
    match (row.tid, row.tgid) {
        (Some(tid), _) => format!("thread {tid} {}", row.name.trim_start_matches("|__")),
        (None, Some(tgid)) => format!("process {tgid} {}", row.name),
        (None, None) => row.name.clone(),
    }
}
