//! Tables in the format of `pidstat -wu`, with `%wait` split by cause. Lines that are not part of a table begin with `#`.

pub mod columns;
pub mod figures;
pub mod rows;
#[cfg(test)]
mod tests;

use std::fmt;

use cgscope_model::{Mode, TaskReading, units};

use crate::{
    data::Data,
    text::{self, NO_HISTOGRAM},
    width::{left, width},
};
use columns::Column;
use rows::Row;

/// Width of the time column, in cells.
const TIME: usize = 11;

/// What each line of a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Processes.
    Processes,
    /// Threads, each with the id of its process.
    Threads,
    /// Processes, each followed by its threads, as in `pidstat -t`.
    ThreadsOfProcesses,
    /// Cgroups and all below them, with their quotas.
    Cgroups,
}

/// What to print.
pub struct Asked<'a> {
    /// Kind of lines.
    pub rows: Rows,
    /// Also print lines without activity.
    pub all: bool,
    /// Also print the cgroup of each task.
    pub with_cgroup: bool,
    /// Returns the real user id of a task.
    pub uid: &'a dyn Fn(&TaskReading) -> Option<u32>,
}

impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, all, with_cgroup, .. } = self;
        write!(f, "Asked {{ rows: {rows:?}, all: {all}, with_cgroup: {with_cgroup}, .. }}")
    }
}

/// The host, as in `uname`.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Host name.
    pub hostname: String,
    /// Architecture, such as `x86_64`.
    pub architecture: String,
    /// Number of online CPUs.
    pub cpus: u32,
}

/// The first line, as in pidstat: the host and the date. Times are in UTC.
pub fn banner(machine: &Machine, unix_ns: u64) -> String {
    let Machine { kernel, hostname, architecture, cpus } = machine;
    let (year, month, day) = units::date(unix_ns);
    format!("Linux {kernel} ({hostname})  {year:04}-{month:02}-{day:02}  _{architecture}_  ({cpus} CPU)\n")
}

/// The table of an interval. The heading has the start time, and the lines have the end time.
pub fn interval(data: &Data, asked: &Asked<'_>) -> String {
    let interval = &data.interval;
    let end = interval.start_unix_ns.saturating_add(interval.duration_ns);
    format!("\n{}", table(data, asked, [&time(interval.start_unix_ns), &time(end)], false))
}

/// The table over all intervals, as pidstat prints it at the end.
pub fn average(data: &Data, asked: &Asked<'_>) -> String {
    format!("\n{}", table(data, asked, ["Average:"; 2], true))
}

/// The losses of an interval; `None` if there are none.
pub fn losses(data: &Data) -> Option<String> {
    let losses = &data.interval.losses;
    losses.shown().next().map(|_| format!("# {}\n", text::loss_line(losses)))
}

/// The remarks at the end of the output. `classes` explains what keeps each target from being faster.
pub fn end(data: &Data, classes: Vec<String>) -> String {
    let interval = &data.interval;
    let mut lines = classes;
    if interval.mode == Mode::Coarse {
        lines.push(NO_HISTOGRAM.into());
    }
    for finding in &data.findings {
        lines.extend([format!("finding: {}", finding.headline()), format!("  {}", finding.says)]);
    }
    lines.extend(text::pending_line(interval));
    lines.push(text::cost_line(&interval.cost, interval.duration_ns, interval.mode));
    lines.push(text::loss_line(&interval.losses));
    lines.iter().fold("\n".to_owned(), |text, line| text + &format!("# {line}\n"))
}

/// Formats a UTC time as `18:43:17Z`. It is one word, so that programs can count the words of a line.
fn time(unix_ns: u64) -> String {
    units::time_of_day(unix_ns).replace(" UTC", "Z")
}

fn table(data: &Data, asked: &Asked<'_>, [begin, end]: [&str; 2], is_average: bool) -> String {
    let columns = columns::of(asked);
    let rows = rows::all(data, asked).into_iter().map(|row| Row { is_average, ..row });
    let rows: Vec<Vec<String>> =
        rows.map(|row| columns.iter().map(|column| column.cell(&row, asked)).collect()).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| match columns[at].width() {
            // As wide as the longest cell, so that the next column is aligned. The last column needs no padding.
            0 if at + 1 < columns.len() => {
                let longest = rows.iter().map(|cells| width(&cells[at])).max().unwrap_or(0);
                longest.max(columns[at].title().len())
            }
            width => width,
        })
        .collect();
    let headings: Vec<String> = columns.iter().map(|column| column.title().to_owned()).collect();
    let lines = rows.iter().map(|cells| line(end, &columns, &widths, cells));
    line(begin, &columns, &widths, &headings) + &lines.collect::<String>()
}

fn line(time: &str, columns: &[Column], widths: &[usize], cells: &[String]) -> String {
    let mut out = format!("{time:<TIME$}");
    for ((column, cells), text) in columns.iter().zip(widths).zip(cells) {
        out += &match (column.width(), cells) {
            (0, 0) => format!("  {text}"),
            (0, cells) => format!("  {}", left(text, *cells)),
            // A figure that is too long for its cells still has a blank before it.
            (cells, _) => format!(" {text:>0$}", cells - 1),
        };
    }
    out + "\n"
}
