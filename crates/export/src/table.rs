//! Defines the rows and columns of CSV and Parquet.

use std::collections::BTreeMap;

use cgscope_model::{
    Cause, CgroupName, ContainerReading, Interval, Mode, Observed, TaskInterval, Wait, counters::OF_EXPORT,
};

use crate::{About, Result};

/// Name and version of the table. As long as this name stays the same, no column gets another name or another meaning.
pub const SCHEMA: &str = "cgscope.tasks/1";

#[derive(Clone, Copy)]
pub enum TableType {
    Text,
    /// Kernel ids and other numbers with at most 31 bits.
    Int32,
    /// Counts and times in ns, with at most 63 bits.
    Int64,
    /// 64-bit ids.
    Id64,
    /// A point in time. The formats store it in UTC with microseconds. The cells have ns since 1970.
    Moment,
}

pub(crate) enum TableCell<'a> {
    Text(&'a str),
    /// A number. In a column of type [`TableType::Moment`], this is a time in ns since 1970.
    Number(u64),
}

pub struct TableColumn {
    /// The name, which includes the unit.
    pub name: String,
    pub holds: TableType,
    /// Computes the cell of a row; `None` if the value is unknown or does not apply to the row.
    pub(crate) cell: Box<CellOf>,
}

type CellOf = dyn for<'a> Fn(&TableRow<'a>) -> Option<TableCell<'a>>;

fn column(
    name: impl Into<String>,
    holds: TableType,
    cell: impl for<'a> Fn(&TableRow<'a>) -> Option<TableCell<'a>> + 'static,
) -> TableColumn {
    TableColumn { name: name.into(), holds, cell: Box::new(cell) }
}

/// A row of the table: a task in an interval, or all tasks of a cgroup that exited during an interval.
pub(crate) struct TableRow<'a> {
    about: &'a About,
    interval: &'a Interval,
    task: Option<&'a TaskInterval>,
    exited_tasks: Option<u64>,
    wait: &'a Wait,
    observed: Observed<'a>,
    cgroup_id: u64,
    path: Option<&'a str>,
    name: &'a CgroupName,
    /// Names of the container, as the container runtime reports them.
    named: Option<&'a ContainerReading>,
}

fn number<'a>(value: impl Into<Option<u64>>) -> Option<TableCell<'a>> {
    value.into().map(TableCell::Number)
}

fn text<'a>(value: impl Into<Option<&'a str>>) -> Option<TableCell<'a>> {
    value.into().map(TableCell::Text)
}

pub fn columns() -> Vec<TableColumn> {
    use TableType::{Id64, Int32, Int64, Moment, Text};
    let mut columns = vec![
        column("host", Text, |row| text(row.about.hostname.as_str())),
        column("start", Moment, |row| number(row.interval.start_unix_ns)),
        column("start_unix_ns", Int64, |row| number(row.interval.start_unix_ns)),
        column("duration_ns", Int64, |row| number(row.interval.duration_ns)),
        column("mode", Text, |row| text(if row.interval.mode == Mode::Bpf { "bpf" } else { "coarse" })),
        column("tid", Int32, |row| number(u64::from(row.task?.reading.tid))),
        column("tgid", Int32, |row| number(u64::from(row.task?.reading.tgid))),
        column("comm", Text, |row| text(&*row.task?.reading.comm)),
        column("serial", Id64, |row| number(row.task?.reading.serial)),
        column("cgroup", Text, |row| text(row.path)),
        column("cgroup_id", Id64, |row| number(Some(row.cgroup_id).filter(|id| *id != 0))),
        column("unit", Text, |row| text(row.name.unit.as_deref())),
        column("container", Text, |row| text(row.name.container.as_deref())),
        column("pod_uid", Text, |row| text(row.name.pod_uid.as_deref())),
        column("container_name", Text, |row| text(row.named?.container.as_deref())),
        column("pod", Text, |row| text(row.named?.pod.as_deref())),
        column("namespace", Text, |row| text(row.named?.namespace.as_deref())),
        column("cpu", Int32, |row| number(u64::from(row.task?.reading.cpu))),
        column("node", Int32, |row| number(row.task?.reading.node.or(row.interval.one_node).map(u64::from))),
        column("exited_tasks", Int64, |row| number(row.exited_tasks)),
        column("waits", Int64, |row| number(row.wait.count)),
        column("wait_ns", Int64, |row| number(row.wait.total_ns)),
    ];
    columns.extend(Cause::ALL.map(|cause| {
        column(format!("wait_{}_ns", cause.name()), Int64, move |row| {
            number(row.wait.by_cause.known(cause, row.interval.mode))
        })
    }));
    columns.extend([("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)].map(|(name, quantile)| {
        column(format!("wait_{name}_ns"), Int64, move |row| number(row.wait.quantile_ns(quantile)))
    }));
    columns.extend([
        column("wait_max_ns", Int64, |row| number(row.interval.mode.exact(|| row.wait.max_ns))),
        column("pending_ns", Int64, |row| number(row.task?.reading.pending_ns())),
    ]);
    columns.extend(
        OF_EXPORT
            .iter()
            .map(|counter| column(counter.name(), Int64, |row| number(counter.of(&row.observed)))),
    );
    columns
}

/// Calls `each` with every row of an interval: first with the rows of tasks, then with a row for the exited tasks of each cgroup.
pub(crate) fn for_each_row(
    interval: &Interval,
    about: &About,
    mut each: impl FnMut(&TableRow<'_>) -> Result<()>,
) -> Result<()> {
    let nameless = CgroupName::default();
    let names: BTreeMap<u64, CgroupName> =
        interval.cgroups.iter().map(|(id, path)| (*id, CgroupName::of(path))).collect();
    let row = |task, exited_tasks, cgroup_id: u64, wait, observed| {
        let path = interval.cgroup_path(cgroup_id).map(|path| &**path);
        let name = names.get(&cgroup_id).unwrap_or(&nameless);
        let named = path.and_then(|path| interval.names.container(path)).map(|(_, named)| named);
        TableRow { about, interval, task, exited_tasks, wait, observed, cgroup_id, path, name, named }
    };
    for task in &interval.tasks {
        let observed = Observed::task(task, interval.mode);
        each(&row(Some(task), None, task.reading.cgroup_id, &task.wait, observed))?;
    }
    for exited in &interval.exited {
        let observed = Observed::exited(exited, interval.mode);
        each(&row(None, Some(exited.tasks), exited.cgroup_id, &exited.wait, observed))?;
    }
    Ok(())
}
