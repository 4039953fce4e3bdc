//! The rows of the tables and their columns, for CSV and Parquet alike.

use std::collections::BTreeMap;

use cgscope_model::{
    Cause, CgroupName, Counter, Interval, Mode, Observed, TaskInterval, Wait, counters::OF_EXPORT,
    interval::ExitedInterval,
};

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
    of: Of,
}

enum Of {
    Row(for<'a> fn(&Row<'a>) -> Option<Cell<'a>>),
    Cause(Cause),
    Counter(Counter),
}

impl Column {
    fn new(name: &str, kind: Kind, of: for<'a> fn(&Row<'a>) -> Option<Cell<'a>>) -> Self {
        Self { name: name.to_owned(), kind, of: Of::Row(of) }
    }

    /// The cell of a row; `None`: not known, or not of a row like this.
    pub fn cell<'a>(&self, row: &Row<'a>) -> Option<Cell<'a>> {
        match self.of {
            Of::Row(of) => of(row),
            Of::Cause(cause) => number(row.wait().by_cause.known(cause, row.interval.mode)),
            Of::Counter(counter) => number(counter.of(&row.observed())),
        }
    }
}

/// A task over an interval, or all tasks of a cgroup that ended in it.
pub struct Row<'a> {
    about: &'a About,
    interval: &'a Interval,
    who: Who<'a>,
    path: Option<&'a str>,
    name: &'a CgroupName,
}

#[derive(Clone, Copy)]
enum Who<'a> {
    Task(&'a TaskInterval),
    Exited(&'a ExitedInterval),
}

impl<'a> Row<'a> {
    fn task(&self) -> Option<&'a TaskInterval> {
        match self.who {
            Who::Task(task) => Some(task),
            Who::Exited(_) => None,
        }
    }

    fn wait(&self) -> &'a Wait {
        match self.who {
            Who::Task(task) => &task.wait,
            Who::Exited(exited) => &exited.wait,
        }
    }

    fn observed(&self) -> Observed<'a> {
        match self.who {
            Who::Task(task) => Observed::task(task, self.interval.mode),
            Who::Exited(exited) => Observed::exited(exited, self.interval.mode),
        }
    }

    fn exact<'b>(&self, value: u64) -> Option<Cell<'b>> {
        number(self.interval.mode.exact(|| value))
    }

    fn quantile<'b>(&self, quantile: f64) -> Option<Cell<'b>> {
        number(self.wait().quantile_ns(quantile))
    }
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
    columns.extend(OF_EXPORT.iter().map(|counter| Column {
        name: counter.name().to_owned(),
        kind: Kind::Int64,
        of: Of::Counter(*counter),
    }));
    columns
}

fn identity() -> Vec<Column> {
    let of = Column::new;
    vec![
        of("host", Kind::Text, |row| text(row.about.hostname.as_str())),
        of("start", Kind::Moment, |row| number(row.interval.start_unix_ns)),
        of("start_unix_ns", Kind::Int64, |row| number(row.interval.start_unix_ns)),
        of("duration_ns", Kind::Int64, |row| number(row.interval.duration_ns)),
        of("mode", Kind::Text, |row| {
            text(match row.interval.mode {
                Mode::Bpf => "bpf",
                Mode::Coarse => "coarse",
            })
        }),
        of("tid", Kind::Int32, |row| small(row.task()?.reading.tid)),
        of("tgid", Kind::Int32, |row| small(row.task()?.reading.tgid)),
        of("comm", Kind::Text, |row| text(&*row.task()?.reading.comm)),
        of("serial", Kind::Id64, |row| number(row.task()?.reading.serial)),
        of("cgroup", Kind::Text, |row| text(row.path)),
        of("cgroup_id", Kind::Id64, |row| {
            let id = match row.who {
                Who::Task(task) => task.reading.cgroup_id,
                Who::Exited(exited) => exited.cgroup_id,
            };
            number((id != 0).then_some(id))
        }),
        of("unit", Kind::Text, |row| text(row.name.unit.as_deref())),
        of("container", Kind::Text, |row| text(row.name.container.as_deref())),
        of("pod_uid", Kind::Text, |row| text(row.name.pod_uid.as_deref())),
        of("cpu", Kind::Int32, |row| small(row.task()?.reading.cpu)),
        of("node", Kind::Int32, |row| small(row.task()?.reading.node.or(row.interval.one_node))),
        of("exited_tasks", Kind::Int64, |row| match row.who {
            Who::Task(_) => None,
            Who::Exited(exited) => number(exited.tasks),
        }),
    ]
}

fn waits() -> Vec<Column> {
    let of = Column::new;
    let mut columns = vec![
        of("waits", Kind::Int64, |row| number(row.wait().count)),
        of("wait_ns", Kind::Int64, |row| number(row.wait().total_ns)),
    ];
    columns.extend(Cause::ALL.map(|cause| Column {
        name: format!("wait_{}_ns", cause.name()),
        kind: Kind::Int64,
        of: Of::Cause(cause),
    }));
    columns.extend([
        of("wait_p50_ns", Kind::Int64, |row| row.quantile(0.5)),
        of("wait_p90_ns", Kind::Int64, |row| row.quantile(0.9)),
        of("wait_p99_ns", Kind::Int64, |row| row.quantile(0.99)),
        of("wait_p999_ns", Kind::Int64, |row| row.quantile(0.999)),
        of("wait_max_ns", Kind::Int64, |row| row.exact(row.wait().max_ns)),
        of("pending_ns", Kind::Int64, |row| number(row.task()?.reading.pending.map(|pending| pending.ns))),
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
    let tasks = interval.tasks.iter().map(|task| (task.reading.cgroup_id, Who::Task(task)));
    let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, Who::Exited(exited)));
    for (id, who) in tasks.chain(exited) {
        let path = interval.cgroup_path(id).map(|path| &**path);
        each(&Row { about, interval, who, path, name: names.get(&id).unwrap_or(&nameless) })?;
    }
    Ok(())
}
