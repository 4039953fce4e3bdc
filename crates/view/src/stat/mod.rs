//! Tables in the format of `pidstat -wu`, with `%wait` split by cause. Lines that are not part of a table begin with `#`.

pub mod rows;

use cgscope_model::{
    CgroupReading, Counter, Finding, Mode, TaskReading,
    counters::{CounterColumn, Counts},
    units::{self, duration, number, per_second},
};

use crate::text::{self, NO_HISTOGRAM};
use crate::width::{left, width};
use crate::{app::About, columns::columns, data::Data, subject::Subject};
use Column::*;
use rows::{Row, percent};

/// Width of the time column, in cells.
const TIME: usize = 11;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    Processes,
    /// Threads, each with the id of its process.
    Threads,
    /// Processes, each followed by its threads, as in `pidstat -t`.
    ThreadsOfProcesses,
    /// Cgroups with their quotas. Each line includes the descendants of the cgroup.
    Cgroups,
}

pub struct Asked<'a> {
    pub rows: Rows,
    /// Also print lines without activity.
    pub all: bool,
    pub with_cgroup: bool,
    pub uid: &'a dyn Fn(&TaskReading) -> Option<u32>,
}

/// Returns the first line, as in pidstat: the host and the date. Times are in UTC.
pub fn banner(about: &About, architecture: &str, cpus: u32, unix_ns: u64) -> String {
    let About { kernel, hostname, .. } = about;
    let (year, month, day) = units::date(unix_ns);
    format!("Linux {kernel} ({hostname})  {year:04}-{month:02}-{day:02}  _{architecture}_  ({cpus} CPU)\n")
}

/// Returns the table of an interval. The heading has the start time, and the lines have the end time.
pub fn interval(data: &Data, asked: &Asked<'_>) -> String {
    let interval = &data.interval;
    let end = interval.start_unix_ns.saturating_add(interval.duration_ns);
    format!("\n{}", table(data, asked, [&time(interval.start_unix_ns), &time(end)], false))
}

pub fn average(data: &Data, asked: &Asked<'_>) -> String {
    format!("\n{}", table(data, asked, ["Average:"; 2], true))
}

pub fn losses(data: &Data) -> Option<String> {
    let losses = &data.interval.losses;
    losses.shown().next().map(|_| format!("# {}\n", text::loss_line(losses)))
}

/// Returns the remarks at the end of the output. `classes` says for each target what keeps it from being faster.
pub fn end(data: &Data, classes: Vec<String>) -> String {
    let interval = &data.interval;
    let mut lines = classes;
    lines.extend((interval.mode == Mode::Coarse).then(|| NO_HISTOGRAM.to_owned()));
    let words = |one: &Finding| [format!("finding: {}", one.headline()), format!("  {}", one.says)];
    lines.extend(data.findings.iter().flat_map(words));
    lines.extend(text::pending_line(interval));
    lines.extend(text::closing_lines(interval));
    lines.iter().fold("\n".to_owned(), |text, line| text + &format!("# {line}\n"))
}

/// Formats a UTC time as `18:43:17Z`. The time is one word, so that programs can count the words of a line.
fn time(unix_ns: u64) -> String {
    units::time_of_day(unix_ns).replace(" UTC", "Z")
}

fn table(data: &Data, asked: &Asked<'_>, [begin, end]: [&str; 2], is_average: bool) -> String {
    let columns = columns_of(asked);
    let headings = columns.iter().map(|column| column.title().to_owned()).collect();
    let rows = rows::all(data, asked).into_iter().map(|row| Row { is_average, ..row });
    let rows = rows.map(|row| columns.iter().map(|column| column.cell(&row, asked)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    let width_of = |(at, column): (usize, &Column)| match column.width() {
        // The column is as wide as its longest cell, so that the next column is aligned. The last column needs no padding.
        0 if at + 1 < columns.len() => lines.iter().map(|cells| width(&cells[at])).max().unwrap_or(0),
        width => width,
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(width_of).collect();
    let times = std::iter::once(begin).chain(std::iter::repeat(end));
    times.zip(&lines).map(|(time, cells)| line(time, &columns, &widths, cells)).collect()
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

columns! {
    #[derive(Clone, Copy, Debug)]
    pub enum Column (title, width, meaning) {
        /// Returns the heading, one word.
        title: &'static str,
        /// Returns the width in cells, including the blank before the column. 0 means left-aligned text of any length.
        width: usize,
        meaning: &'static str,
    }
    Of(counter: Counter, column: &'static CounterColumn) = (column.title, column.width, column.meaning);
    Uid = "UID", 6, "the real user id of the task, read at most every 10 s; `-` if the task exited before it was read";
    Pid = "PID", 9, "process id";
    Tgid = "TGID", 9, "process id";
    Tid = "TID", 9, "thread id; with `-t`, it is `-` in the line of a process, and the lines of its threads follow";
    User = "%usr", 8, "time in user space (user time) without time in guests, as in `/proc/PID/stat`";
    System = "%system", 8, "time in the kernel (system time), as in `/proc/PID/stat`";
    Guest = "%guest", 8, "time in which it ran a virtual machine";
    Wait = "%wait", 8, "time that it was runnable but on no CPU, in waits that ended in the interval; the kernel adds the same time to `run_delay`";
    Throttled = "%throt", 8, "the part of `%wait` in which its cgroup or an ancestor was out of quota";
    Queue = "%queue", 8, "the part of `%wait` behind tasks of its own cgroup, of other cgroups or of the kernel, and with an unknown cause; `--json` has each cause separately";
    Wake = "%wake", 8, "the part of `%wait` in which no task ran: idle exit, the interrupt to reschedule, the switch; `-` in the coarse mode, which counts it in `%queue`";
    OnCpu = "%CPU", 8, "time on a CPU, as the scheduler counts it";
    Cpu = "CPU", 5, "its current or last CPU; for a process, the CPU of its main thread; `-` in the average";
    P99 = "p99", 8, "99% of its waits were at most this long; `-` if no wait ended, and in the coarse mode, which does not measure single waits";
    Node = "node", 5, "the NUMA node of that CPU";
    Quota = "quota", 8, "the quota in CPUs; in brackets: the tightest quota of its ancestors, if it has no quota; `-` if no quota applies";
    Periods = "%THROT", 8, "percentage of elapsed periods in which its own quota ran out (`nr_throttled` / `nr_periods` of `cpu.stat`)";
    ThrottledTime = "throttled", 10, "increase of `throttled_usec` in `cpu.stat`; each throttled CPU counts once, however many tasks wait there";
    Threads = "thr", 6, "threads at the end of the interval";
    LimitedBy = "limited-by", 0, "the cgroup whose quota throttled its tasks longest: `itself`, or the path of an ancestor or descendant. If no quota ran out: the cgroup with the tightest quota that applies";
    Cgroup = "cgroup", 0, "the path of a cgroup. With `--by cgroup`: the cgroup of the line, which includes all cgroups below it. With `--with-cgroup`: the cgroup of the task, with blanks printed as `\\x20`";
    Command = "Command", 0, "name of the thread, or of the main thread";
}

/// Returns the columns of a table, in order. The column whose text can have blanks is last.
fn columns_of(asked: &Asked) -> Vec<Column> {
    const FIGURES: [Column; 8] = [User, System, Guest, Wait, Throttled, Queue, Wake, OnCpu];
    let (ids, limits): (&[Column], &[Column]) = match asked.rows {
        Rows::Processes => (&[Uid, Pid], &[]),
        Rows::Threads | Rows::ThreadsOfProcesses => (&[Uid, Tgid, Tid], &[]),
        Rows::Cgroups => (&[], &[Quota, Periods, ThrottledTime, Threads, LimitedBy, Cgroup]),
    };
    let of_tasks = asked.rows != Rows::Cgroups;
    let mut columns = [ids, &FIGURES].concat();
    columns.extend(of_tasks.then_some(Cpu));
    columns.extend(counters().chain([P99]));
    columns.extend(of_tasks.then_some(Node));
    columns.extend((of_tasks && asked.with_cgroup).then_some(Cgroup));
    columns.extend(limits);
    columns.extend(of_tasks.then_some(Command));
    columns
}

fn counters() -> impl Iterator<Item = Column> {
    Counter::of_stat().map(|(counter, column)| Of(counter, column))
}

impl Column {
    pub fn all() -> impl Iterator<Item = Self> {
        let before = |column| counters().filter(move |_| matches!(column, P99));
        Self::BESIDE_COUNTERS.iter().flat_map(move |column| before(*column).chain([*column]))
    }

    /// Returns the text of a cell; `-` if the value is unknown or does not exist.
    pub fn cell(self, row: &Row<'_>, asked: &Asked) -> String {
        self.known(row, asked).unwrap_or_else(|| "-".into())
    }

    fn known(self, row: &Row<'_>, asked: &Asked) -> Option<String> {
        let interval = &*row.data.interval;
        let (figures, length) = (&row.figures, interval.duration_ns);
        let share = |ns: Option<u64>| percent(ns?, length).map(hundredths);
        let a_second = |count| per_second(count, length).map(|rate| format!("{rate:.2}"));
        let split = || figures.wait.percent(length);
        let node = if let Some(Subject::Cgroup(node)) = row.subject { Some(node) } else { None };
        let limits = row.subject.and_then(|subject| subject.limits(interval));
        let of_quota = || limits.filter(|limits| limits.quota_us.is_some());
        match self {
            Uid => (asked.uid)(row.task()?).map(|uid| uid.to_string()),
            Pid | Tgid => row.task().filter(|_| !row.is_below).map(|task| task.tgid.to_string()),
            Tid => match row.subject? {
                Subject::Task(task) => Some(task.reading.tid.to_string()),
                _ => None,
            },
            User => share(figures.user_ns()),
            System => share(figures.counter(Counter::System)),
            Guest => share(figures.counter(Counter::Guest)),
            OnCpu => share(Some(figures.on_cpu_ns())),
            Wait => split().map(|[all, ..]| hundredths(all)),
            Throttled => split().map(|[_, throttled, ..]| hundredths(throttled)),
            Queue => split().map(|[_, _, queue, _]| hundredths(queue)),
            Wake => figures.wait.wake_ns.and(split()).map(|[.., wake]| hundredths(wake)),
            Cpu => row.task().filter(|_| !row.is_average).map(|task| task.cpu.to_string()),
            Column::Node => {
                let node = row.task()?.node.or(interval.one_node).filter(|_| !row.is_average);
                node.map(|node| node.to_string())
            }
            Of(counter, _) => match counter.info().counts {
                Counts::Events => figures.counter(counter).and_then(a_second),
                Counts::Ns => share(figures.counter(counter)),
            },
            P99 => figures.p99_ns.map(duration),
            Threads => Some(row.subject?.threads().to_string()),
            Command => Some(row.name()),
            // The last column can have blanks.
            Cgroup if asked.rows == Rows::Cgroups => Some(row.name()),
            Cgroup => row.subject?.cgroup(interval).map(|path| one_word(path)),
            Quota => Some(match limits.and_then(CgroupReading::quota_cores) {
                Some(cores) => number(cores),
                None => format!("({})", number(node?.effective?.cores)),
            }),
            Periods => percent(of_quota()?.nr_throttled?, of_quota()?.nr_periods?).map(hundredths),
            ThrottledTime => of_quota()?.throttled_ns.map(duration),
            LimitedBy => {
                let limit = &row.data.tree.nodes()[node?.limited_by?].path;
                Some(if *limit == node?.path { "itself".into() } else { one_word(&interval.names.of(limit)) })
            }
        }
    }
}

fn hundredths(percent: u64) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

/// Escapes blanks, because blanks separate columns.
fn one_word(path: &str) -> String {
    path.replace(' ', "\\x20")
}

#[cfg(test)]
mod tests;
