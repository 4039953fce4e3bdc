//! The columns of the tables: headings, cells and explanations.

use std::sync::Arc;

use cgscope_model::{
    CgroupReading, Counter, Tree,
    counters::{Counts, StatColumn},
    tree::Node,
    units::{duration, number, per_second},
};

use super::{Asked, Rows, figures::percent, rows::Row};

macro_rules! columns {
    ($($variant:ident = $title:literal, $width:literal, $meaning:literal;)*) => {
        /// A column.
        #[derive(Clone, Copy, Debug)]
        pub enum Column {
            $(#[doc = $meaning] $variant,)*
            /// A counter, and its column from the table of counters.
            Of(Counter, &'static StatColumn),
        }

        impl Column {
            const BESIDE_COUNTERS: &[Self] = &[$(Self::$variant,)*];

            /// The heading, one word.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* Self::Of(_, column) => column.title }
            }

            /// Width in cells, including the blank before it. 0 means left-aligned text of any length.
            pub const fn width(self) -> usize {
                match self { $(Self::$variant => $width,)* Self::Of(_, column) => column.width }
            }

            /// Explains the column in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* Self::Of(_, column) => column.meaning }
            }
        }
    };
}

columns! {
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

use Column::*;

/// The columns of a table, in order. The column whose text may have blanks is last.
pub fn of(asked: &Asked) -> Vec<Column> {
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
    /// All columns.
    pub fn all() -> impl Iterator<Item = Self> {
        let before = |column| counters().filter(move |_| matches!(column, P99));
        Self::BESIDE_COUNTERS.iter().flat_map(move |column| before(*column).chain([*column]))
    }

    /// The text of a cell; `-` if the value is unknown or does not exist.
    pub fn cell(self, row: &Row<'_>, asked: &Asked) -> String {
        self.known(row, asked).unwrap_or_else(|| "-".into())
    }

    fn known(self, row: &Row<'_>, asked: &Asked) -> Option<String> {
        let (figures, length) = (&row.figures, row.interval.duration_ns);
        let share = |ns: Option<u64>| percent(ns?, length).map(hundredths);
        let a_second = |count| per_second(count, length).map(|rate| format!("{rate:.2}"));
        let split = || figures.wait.percent(length);
        match self {
            Uid => (asked.uid)(row.task?).map(|uid| uid.to_string()),
            Pid | Tgid => row.tgid.map(|id| id.to_string()),
            Tid => row.tid.map(|id| id.to_string()),
            User => share(figures.user_ns),
            System => share(figures.system_ns),
            Guest => share(figures.guest_ns),
            OnCpu => share(Some(figures.on_cpu_ns)),
            Wait => split().map(|[all, ..]| hundredths(all)),
            Throttled => split().map(|[_, throttled, ..]| hundredths(throttled)),
            Queue => split().map(|[_, _, queue, _]| hundredths(queue)),
            Wake => figures.wait.wake_ns.and(split()).map(|[.., wake]| hundredths(wake)),
            Cpu => row.task.filter(|_| !row.is_average).map(|task| task.cpu.to_string()),
            Column::Node => {
                let node = row.task?.node.or(row.interval.one_node).filter(|_| !row.is_average);
                node.map(|node| node.to_string())
            }
            Of(counter, _) => match counter.info().counts {
                Counts::Events => figures.counter(counter).and_then(a_second),
                Counts::Ns => share(figures.counter(counter)),
            },
            P99 => figures.p99_ns.map(duration),
            Threads => row.threads.map(|threads| threads.to_string()),
            Command => Some(row.name.clone()),
            // The last column may have blanks.
            Cgroup if asked.rows == Rows::Cgroups => Some(row.name.clone()),
            Cgroup => row.cgroup().map(one_word),
            Quota | Periods | ThrottledTime | LimitedBy => {
                let (tree, node) = row.node?;
                self.of_limits(row, tree, node)
            }
        }
    }

    fn of_limits(self, row: &Row<'_>, tree: &Tree, node: &Node) -> Option<String> {
        let limits = node.limits.map(|at| &row.interval.limits[at]);
        match self {
            Quota => match limits.and_then(CgroupReading::quota_cores) {
                Some(cores) => Some(number(cores)),
                None => node.effective.map(|limit| format!("({})", number(limit.cores))),
            },
            Periods => {
                let limits = limits.filter(|limits| limits.quota_us.is_some())?;
                percent(limits.nr_throttled?, limits.nr_periods?).map(hundredths)
            }
            ThrottledTime => limits.filter(|limits| limits.quota_us.is_some())?.throttled_ns.map(duration),
            LimitedBy => {
                let limit: &Arc<str> = &tree.nodes()[node.limited_by?].path;
                Some(if *limit == node.path {
                    "itself".into()
                } else {
                    one_word(&row.interval.names.of(limit))
                })
            }
            _ => None,
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
