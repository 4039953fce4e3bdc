//! The rows of the tables and their columns, for CSV and Parquet alike.

use std::collections::BTreeMap;

use cgscope_model::{Cause, CgroupName, Interval, Mode, Observed, TaskInterval, Wait, counters::OF_EXPORT};

use crate::About;

/// Name and version of the table: a column is never renamed and never changes its meaning under this name.
pub const SCHEMA: &str = "cgscope.tasks/1";

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text in UTF-8.
    Text,
    /// A number that fits into 31 bits: ids and numbers of the kernel.
    Int32,
    /// A count or ns: 63 bits.
    Int64,
    /// An id of 64 bits.
    Id64,
    /// A moment, from ns since 1970: in microseconds, UTC.
    Moment,
}

/// One cell that is not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Of a [`Kind::Text`].
    Text(&'a str),
    /// Of the other kinds; of a [`Kind::Moment`] ns since 1970.
    Number(u64),
}

/// A column.
pub struct Column {
    /// Its name, with the unit.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    of: Box<CellOf>,
}

type CellOf = dyn for<'a> Fn(&Row<'a>) -> Option<Cell<'a>>;

impl Column {
    /// The cell of a row; `None`: not known, or not of a row like this.
    pub fn cell<'a>(&self, row: &Row<'a>) -> Option<Cell<'a>> {
        (self.of)(row)
    }
}

fn column(
    name: impl Into<String>,
    kind: Kind,
    of: impl for<'a> Fn(&Row<'a>) -> Option<Cell<'a>> + 'static,
) -> Column {
    Column { name: name.into(), kind, of: Box::new(of) }
}

/// A task over an interval, or all tasks of a cgroup that ended in it.
pub struct Row<'a> {
    about: &'a About,
    interval: &'a Interval,
    task: Option<&'a TaskInterval>,
    exited_tasks: Option<u64>,
    wait: &'a Wait,
    observed: Observed<'a>,
    cgroup_id: u64,
    path: Option<&'a str>,
    name: &'a CgroupName,
}

fn number<'a>(value: impl Into<Option<u64>>) -> Option<Cell<'a>> {
    value.into().map(Cell::Number)
}

fn small<'a>(value: impl Into<Option<u32>>) -> Option<Cell<'a>> {
    number(value.into().map(u64::from))
}

fn text<'a>(value: impl Into<Option<&'a str>>) -> Option<Cell<'a>> {
    value.into().map(Cell::Text)
}

/// All columns, in order.
pub fn columns() -> Vec<Column> {
    let mut columns = identity();
    columns.extend(waits());
    columns.extend(
        OF_EXPORT
            .iter()
            .map(|counter| column(counter.name(), Kind::Int64, |row| number(counter.of(&row.observed)))),
    );
    columns
}

fn identity() -> Vec<Column> {
    vec![
        column("host", Kind::Text, |row| text(row.about.hostname.as_str())),
        column("start", Kind::Moment, |row| number(row.interval.start_unix_ns)),
        column("start_unix_ns", Kind::Int64, |row| number(row.interval.start_unix_ns)),
        column("duration_ns", Kind::Int64, |row| number(row.interval.duration_ns)),
        column("mode", Kind::Text, |row| {
            text(match row.interval.mode {
                Mode::Bpf => "bpf",
                Mode::Coarse => "coarse",
            })
        }),
        column("tid", Kind::Int32, |row| small(row.task?.reading.tid)),
        column("tgid", Kind::Int32, |row| small(row.task?.reading.tgid)),
        column("comm", Kind::Text, |row| text(&*row.task?.reading.comm)),
        column("serial", Kind::Id64, |row| number(row.task?.reading.serial)),
        column("cgroup", Kind::Text, |row| text(row.path)),
        column("cgroup_id", Kind::Id64, |row| number(Some(row.cgroup_id).filter(|id| *id != 0))),
        column("unit", Kind::Text, |row| text(row.name.unit.as_deref())),
        column("container", Kind::Text, |row| text(row.name.container.as_deref())),
        column("pod_uid", Kind::Text, |row| text(row.name.pod_uid.as_deref())),
        column("cpu", Kind::Int32, |row| small(row.task?.reading.cpu)),
        column("node", Kind::Int32, |row| small(row.task?.reading.node.or(row.interval.one_node))),
        column("exited_tasks", Kind::Int64, |row| number(row.exited_tasks)),
    ]
}

fn waits() -> Vec<Column> {
    let mut columns = vec![
        column("waits", Kind::Int64, |row| number(row.wait.count)),
        column("wait_ns", Kind::Int64, |row| number(row.wait.total_ns)),
    ];
    columns.extend(Cause::ALL.map(|cause| {
        column(format!("wait_{}_ns", cause.name()), Kind::Int64, move |row| {
            number(row.wait.by_cause.known(cause, row.interval.mode))
        })
    }));
    columns.extend([("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)].map(|(name, quantile)| {
        column(format!("wait_{name}_ns"), Kind::Int64, move |row| number(row.wait.quantile_ns(quantile)))
    }));
    columns.extend([
        column("wait_max_ns", Kind::Int64, |row| number(row.interval.mode.exact(|| row.wait.max_ns))),
        column("pending_ns", Kind::Int64, |row| number(row.task?.reading.pending.map(|pending| pending.ns))),
    ]);
    columns
}

/// Calls `each` with every row of an interval: tasks, then what ended by cgroup. Together they are all of it.
pub fn for_each_row<E>(
    interval: &Interval,
    about: &About,
    mut each: impl FnMut(&Row<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let nameless = CgroupName::default();
    let names: BTreeMap<u64, CgroupName> =
        interval.cgroups.iter().map(|(id, path)| (*id, CgroupName::of(path))).collect();
    let row = |id: u64, wait, observed| Row {
        about,
        interval,
        task: None,
        exited_tasks: None,
        wait,
        observed,
        cgroup_id: id,
        path: interval.cgroup_path(id).map(|path| &**path),
        name: names.get(&id).unwrap_or(&nameless),
    };
    for task in &interval.tasks {
        let observed = Observed::task(task, interval.mode);
        each(&Row { task: Some(task), ..row(task.reading.cgroup_id, &task.wait, observed) })?;
    }
    for exited in &interval.exited {
        let observed = Observed::exited(exited, interval.mode);
        each(&Row { exited_tasks: Some(exited.tasks), ..row(exited.cgroup_id, &exited.wait, observed) })?;
    }
    Ok(())
}
