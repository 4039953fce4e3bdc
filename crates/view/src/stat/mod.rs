//! Tables in the format of `pidstat -wu`, with `%wait` split by cause. Lines that are not part of a table begin with `#`.

use std::cmp::Reverse;

use Column::*;
use cgscope_model::{
    Cause, CgroupReading, Counter, CpuTimes, ExitedThreads, Finding, Interval, Mode, Names, TaskReading,
    Wait,
    class::{Class, Classes, Classified},
    counters::{COUNTERS, CounterColumn, Counts},
    sum,
    table::{exited::ENDED, interval::Process},
    units::{self, duration, number, per_second},
};
use itertools::Itertools;

use crate::data::{Data, Subject};
use crate::text::{self, NO_HISTOGRAM};
use crate::width::{left, width};
use crate::{app::About, columns::columns};

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
    format!("Linux {kernel} ({hostname})  {}  _{architecture}_  ({cpus} CPU)\n", units::date(unix_ns))
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
    let rows = all(data, asked).into_iter().map(|row| Row { is_average, ..row });
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

#[derive(Debug)]
pub struct Row<'a> {
    pub figures: Figures,
    pub data: &'a Data,
    /// The subject; `None` for all exited tasks.
    pub subject: Option<Subject<'a>>,
    /// Whether the row is a thread below the row of its process.
    pub is_below: bool,
    /// Whether the row covers all intervals. The last CPU and node are then meaningless.
    pub is_average: bool,
}

impl<'a> Row<'a> {
    /// Returns the task that provides names, ids and CPU: a thread, or the thread that a process is named after.
    pub fn task(&self) -> Option<&'a TaskReading> {
        Some(&self.subject?.task()?.reading)
    }

    pub fn name(&self) -> String {
        let mark = if self.is_below { "|__" } else { "" };
        match (self.task(), self.subject) {
            (Some(task), _) => format!("{mark}{}", task.comm),
            (None, Some(subject)) => subject.title(&self.data.interval.names),
            (None, None) => ENDED.into(),
        }
    }
}

/// Returns the rows to print, sorted by id or by path.
pub fn all<'a>(data: &'a Data, asked: &Asked) -> Vec<Row<'a>> {
    let processes = || data.processes().iter();
    let subjects: Vec<Subject<'_>> = match asked.rows {
        Rows::Cgroups => {
            let unknown = data.tree.unknown.as_ref().map(Subject::Unknown);
            data.tree.nodes().iter().map(Subject::Cgroup).chain(unknown).collect()
        }
        Rows::Processes => processes().filter_map(|process| data.of_process(process)).collect(),
        Rows::Threads => threads(data, data.interval.places()),
        Rows::ThreadsOfProcesses => {
            let threads = |process: &'a Process| threads(data, process.threads.iter().copied());
            processes()
                .flat_map(|process| data.of_process(process).into_iter().chain(threads(process)))
                .collect()
        }
    };
    let rows = subjects.into_iter().map(|subject| {
        let is_below = asked.rows == Rows::ThreadsOfProcesses && matches!(subject, Subject::Task(_));
        let figures = Figures::new(&subject, &data.interval);
        Row { figures, data, subject: Some(subject), is_below, is_average: false }
    });
    let active = rows.filter(|row| asked.all || row.figures.is_active());
    let ended = if asked.rows == Rows::Cgroups { None } else { ended(data, asked.rows) };
    active.chain(ended).collect()
}

fn threads(data: &Data, places: impl Iterator<Item = usize>) -> Vec<Subject<'_>> {
    let tasks = places.filter_map(|place| data.task_at(place)).sorted_by_key(|task| task.reading.tid);
    tasks.map(Subject::Task).collect()
}

/// Returns one row for all exited tasks, so that nothing is missing. It leaves out figures that the rows of processes have.
fn ended(data: &Data, rows: Rows) -> Option<Row<'_>> {
    let mut figures = Figures::new(&Subject::All(&data.interval.ended()), &data.interval);
    if rows != Rows::Threads
        && let Some(accounts) = &data.total.accounts
    {
        figures.subtract(accounts.exited_threads);
    }
    figures.is_active().then_some(Row { figures, data, subject: None, is_below: false, is_average: false })
}

/// Maximum number of targets with a line. Targets that ran and waited most come first.
const NAMED: usize = 10;
/// Maximum number of targets to classify. Other targets ran and waited less, so they have little to gain.
const LOOKED_AT: usize = 200;

/// Returns a line for each target that did more than wait for work. Targets that ran and waited most come first.
pub fn lines(data: &Data, asked: &Asked<'_>, classes: &Classes<'_>) -> Vec<String> {
    let active = all(data, asked);
    // A stopped process is not active, but its line says why.
    let rows = if active.is_empty() { all(data, &Asked { all: true, ..*asked }) } else { active };
    let known = rows.into_iter().filter_map(|row| Some((row.figures.busy_ns(), row.subject?)));
    let known = known.filter(|(_, subject)| !matches!(subject, Subject::Unknown(_)));
    let targets = known.sorted_by_key(|(busy_ns, _)| Reverse(*busy_ns));
    let is_one = targets.len() == 1;
    let reported = targets.take(LOOKED_AT).filter_map(|(_, subject)| {
        let verdict = verdict(subject, data, classes)?;
        let is_said = is_one || verdict.classes != [Class::Idle];
        is_said.then(|| format!("{}: {}", name(subject, &data.interval.names), verdict.says))
    });
    reported.take(NAMED).collect()
}

fn verdict(subject: Subject<'_>, data: &Data, classes: &Classes<'_>) -> Option<Classified> {
    Some(match subject {
        Subject::Cgroup(node) => classes.cgroup(data.tree.find(&node.path)?),
        // Do not look up by pid or tid: within an average, several processes or threads can have had the same id.
        Subject::Process(process, _) => {
            let threads = process.threads.iter().filter_map(|place| data.task_at(*place));
            classes.threads(&threads.collect::<Vec<_>>())
        }
        Subject::Task(task) => classes.threads(&[task]),
        Subject::All(_) | Subject::Unknown(_) => return None,
    })
}

fn name(subject: Subject<'_>, names: &Names) -> String {
    match subject {
        Subject::Task(task) => format!("thread {} {}", task.reading.tid, task.reading.comm),
        Subject::Process(process, task) => format!("process {} {}", process.pid, task.reading.comm),
        subject => subject.title(names),
    }
}

/// Hundredths of a percent. As in pidstat, percentages are printed with two decimal places.
pub type Hundredths = u64;

/// The figures of a row in an interval. `None` marks a figure that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    pub wait: Split,
    counters: [Option<u64>; COUNTERS],
    pub p99_ns: Option<u64>,
    pub is_waiting: bool,
}

/// Completed waits in three parts, ns: `throttled_ns + queue_ns + wake_ns = total_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Length of the waits. The kernel adds this time to `run_delay`.
    pub total_ns: u64,
    /// Time in which the cgroup or an ancestor was out of quota.
    pub throttled_ns: u64,
    /// Time in which other tasks ran: tasks of the same cgroup, of other cgroups, or of the kernel. Includes unknown causes.
    pub queue_ns: u64,
    /// Time in which no task ran: idle exit, rescheduling interrupt, switch. `None` in coarse mode, because `queue_ns` has it.
    pub wake_ns: Option<u64>,
}

impl Split {
    pub fn new(wait: &Wait, mode: Mode) -> Self {
        let total_ns = wait.total_ns;
        let throttled_ns = wait.by_cause.get(Cause::Throttled).min(total_ns);
        let wake_ns = wait.by_cause.known(Cause::Wakeup, mode).map(|ns| ns.min(total_ns - throttled_ns));
        let queue_ns = total_ns - throttled_ns - wake_ns.unwrap_or(0);
        Self { total_ns, throttled_ns, queue_ns, wake_ns }
    }

    /// Returns the total and its three parts, as shares of the time. `None` if no time passed. The printed parts sum to the
    /// printed total: rounding down leaves a remainder, which goes to the parts that lost most.
    pub fn percent(&self, duration_ns: u64) -> Option<[Hundredths; 4]> {
        let whole = percent(self.total_ns, duration_ns)?;
        let exact = [self.throttled_ns, self.queue_ns, self.wake_ns.unwrap_or(0)]
            .map(|ns| u128::from(ns) * 10_000)
            .map(|scaled| (scaled / u128::from(duration_ns), scaled % u128::from(duration_ns)));
        let mut parts = exact.map(|(down, _)| u64::try_from(down).unwrap_or(u64::MAX));
        let left = whole.saturating_sub(sum::total(parts));
        let mut most = [0, 1, 2];
        most.sort_by_key(|at| Reverse(exact[*at].1));
        most.into_iter().take(left as usize).for_each(|at| parts[at] += 1);
        let [throttled, queue, wake] = parts;
        Some([whole, throttled, queue, wake])
    }
}

/// Returns a share of the time, rounded; `None` if no time passed. The share exceeds 100 % if several threads ran.
pub fn percent(ns: u64, duration_ns: u64) -> Option<Hundredths> {
    let duration = u128::from(duration_ns);
    let rounded = (u128::from(ns) * 10_000 + duration / 2).checked_div(duration)?;
    Some(u64::try_from(rounded).unwrap_or(u64::MAX))
}

impl Figures {
    /// Returns the figures of a subject. Those of a process include exited threads without their waits, which are known only per
    /// cgroup.
    pub fn new(subject: &Subject<'_>, interval: &Interval) -> Self {
        let (wait, observed) = (subject.wait(), subject.observed(interval));
        let mut figures = Self {
            wait: Split::new(wait, interval.mode),
            counters: Counter::ALL.map(|counter| counter.of(&observed)),
            p99_ns: wait.quantile_ns(0.99),
            is_waiting: subject.pending_ns().is_some(),
        };
        if let (Subject::Process(..), Some(accounts)) = (subject, observed.accounts) {
            figures.change(accounts.exited_threads, u64::saturating_add);
        }
        figures
    }

    pub fn counter(&self, counter: Counter) -> Option<u64> {
        self.counters[counter as usize]
    }

    /// Returns the time in user space without time in guests, ns.
    pub fn user_ns(&self) -> Option<u64> {
        Some(self.counter(Counter::User)?.saturating_sub(self.counter(Counter::Guest)?))
    }

    /// Returns the time on a CPU, as counted by the scheduler, ns.
    pub fn on_cpu_ns(&self) -> u64 {
        self.counter(Counter::OnCpu).unwrap_or(0)
    }

    /// Returns the time that the row ran or waited for a CPU, ns.
    pub fn busy_ns(&self) -> u64 {
        self.on_cpu_ns().saturating_add(self.wait.total_ns)
    }

    /// Whether the row ran, waited or switched, or waits now.
    pub fn is_active(&self) -> bool {
        let mut counters = Counter::of_stat().filter_map(|(counter, _)| self.counter(counter));
        self.busy_ns() != 0 || self.is_waiting || counters.any(|count| count != 0)
    }

    /// Subtracts the figures of exited threads that the rows of processes already have.
    fn subtract(&mut self, exited: ExitedThreads) {
        self.change(exited, u64::saturating_sub);
        let modes = [Counter::User, Counter::System, Counter::Guest];
        if let [Some(user_ns), Some(system_ns), Some(guest_ns)] = modes.map(|mode| self.counter(mode)) {
            let cpu = CpuTimes { user_ns, system_ns, guest_ns }.scaled_to(self.on_cpu_ns());
            for (mode, ns) in modes.into_iter().zip([cpu.user_ns, cpu.system_ns, cpu.guest_ns]) {
                self.counters[mode as usize] = Some(ns);
            }
        }
    }

    fn change(&mut self, exited: ExitedThreads, change: impl Fn(u64, u64) -> u64) {
        for (counter, known) in Counter::ALL.into_iter().zip(&mut self.counters) {
            if let (Some(known), Some(of_exited)) = (known, counter.info().exited_threads) {
                *known = change(*known, of_exited(&exited));
            }
        }
    }
}

#[cfg(test)]
mod tests;
