//! The columns of tables, for the screen, for text output and for sorting. Figures that pidstat also has keep pidstat's names.

use cgscope_model::counters::{CounterColumn, Counts, OF_TOP};
use cgscope_model::units::{duration, number, per_second, percent};
use cgscope_model::{Blame, Cause, CgroupReading, Counter, Mode, causes::Blames, sum};

use crate::width::{left, path, right};
use crate::{
    causes,
    data::{Data, Subject},
    text::micros,
};

/// Declares the columns of a table: one for each line, and one for each counter of the table.
macro_rules! columns {
    (
        $(#[$derive:meta])* pub enum Column $fields:tt { $($(#[$doc:meta])* $field:ident: $type:ty,)+ }
        Of($($part:ident: $part_type:ty),+) = $of_counter:expr;
        $($variant:ident = $($cell:expr),+;)+
    ) => {
        $(#[$derive])*
        pub enum Column {
            $($variant,)+
            /// A counter that has a column in the table of counters.
            Of($($part_type),+),
        }

        impl Column {
            const BESIDE_COUNTERS: &[Self] = &[$(Self::$variant,)+];

            #[allow(unused_variables)]
            const fn row(self) -> ($($type,)+) {
                match self {
                    $(Self::$variant => ($($cell,)+),)+
                    Self::Of($($part),+) => $of_counter,
                }
            }

            $(
                $(#[$doc])*
                #[allow(unused_variables)]
                pub const fn $field(self) -> $type {
                    let $fields = self.row();
                    $field
                }
            )+
        }
    };
}
pub(crate) use columns;

columns! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Column (title, key, width, fit, meaning) {
        /// Returns the heading, which is also the name in the settings file.
        title: &'static str,
        /// Returns the key that sorts by this column; a blank if there is none.
        key: char,
        /// Returns the width in cells, or the minimum width of a column that takes the remaining width.
        width: usize,
        /// Returns the function that fits text to a number of cells: words are cut at the end, paths at the beginning, and figures
        /// are right-aligned.
        fit: fn(&str, usize) -> String,
        meaning: &'static str,
    }
    Of(counter: Counter) = match counter.info().top {
        Some(CounterColumn { title, key, width, meaning }) => (title, key, width, right, meaning),
        None => ("", ' ', 0, right, ""),
    };
    Name = "cgroup", 'F', 18, path, "the cgroup, with all below it";
    Tid = "tid", ' ', 7, right, "thread id";
    Pid = "pid", 'I', 7, right, "process id";
    Command = "command", 'A', 15, left, "name of the thread; c shows the command line";
    Threads = "thr", 'H', 5, right, "threads";
    Cpu = "cpu", 'K', 4, right, "its current or last CPU";
    WaitTime = "wait/s", 'W', 7, right, "time per second that it waited for a CPU, in waits that ended in the interval, summed over threads; sorting also counts waits that have not ended";
    WaitShare = "%wait", ' ', 6, right, "waiting time as a share of the interval; above 100 if several threads wait";
    Why = "why", 'B', 10, left, "waiting time by cause; sorts by the time behind other cgroups";
    Throttled = "%throt", 'T', 6, right, "share of its time (running plus waiting) in which it was out of quota";
    P50 = "p50", ' ', 7, right, "half of its waits were at most this long";
    P99 = "p99", 'P', 7, right, "99% of its waits were at most this long";
    Max = "max", 'X', 7, right, "its longest wait";
    Pending = "now", 'Y', 7, right, "how long its longest current wait has lasted";
    OnCpu = "%CPU", 'C', 6, right, "time on a CPU as a share of the interval, summed over threads";
    Quota = "of quota", 'Q', 10, right, "used share of its quota, and the quota in CPUs; in brackets: the tightest quota of its ancestors, if it has no quota";
    Behind = "behind", ' ', 18, path, "the culprit that ran most while the row's tasks waited";
    BehindTime = "behind/s", 'Z', 8, right, "time per second that it waited while others ran, summed over threads; others are other cgroups, kernel threads and, if single tasks are recorded, tasks of its own cgroup";
    SleepTime = "sleep/s", ' ', 7, right, "time per second that its tasks slept until another task woke them, summed over threads; only with --chains";
    WokenBy = "woken by", ' ', 18, path, "the cgroup or task for which its tasks slept longest; only with --chains";
    Limit = "quota", 'L', 15, right, "its own quota: CPU time in each period";
    Burst = "burst", ' ', 6, right, "unused CPU time that it may save and use above its quota";
    LimitedBy = "limited by", ' ', 11, left, "the cgroup whose quota throttled it in the interval, or else the cgroup with the tightest quota that applies to it";
    Periods = "throttled", 'D', 10, right, "periods in which its quota ran out, of all elapsed periods";
    PsiSome = "%some", 'O', 6, right, "pressure (PSI): share of the interval in which at least one of its tasks waited for a CPU, from cpu.pressure";
    PsiFull = "%full", 'U', 6, right, "pressure (PSI): share of the interval in which its tasks waited and none of them ran";
    Contention = "%cont", 'J', 6, right, "contention: share of the interval in which at least one of its tasks waited for a CPU, without time at a limit";
    AtLimit = "%limit", ' ', 6, right, "share of the interval in which at least one of its tasks was at a limit, and none waited for a CPU; with %cont it is what the kernel calls %some";
    Weight = "weight", ' ', 6, right, "cpu.weight: its share relative to its siblings, 100 by default";
    NodeMoves = "node moves/s", ' ', 12, right, "moves per second to a CPU of another NUMA node";
    RanOn = "ran on", ' ', 22, left, "the NUMA nodes that it ran on, each with its share of the run time";
    Cgroup = "cgroup", 'E', 12, path, "path of its cgroup below the cgroup mount point";
}

use Column::*;

/// A value to sort rows by: figures sort as numbers, text sorts as text.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum SortKey {
    Number(f64),
    Text(String),
}

impl Column {
    pub fn all() -> impl Iterator<Item = Self> {
        let counters = |before| if before == Behind { OF_TOP } else { &[] }.iter().copied().map(Of);
        Self::BESIDE_COUNTERS.iter().flat_map(move |column| counters(*column).chain([*column]))
    }

    pub fn by_title(title: &str, among: &[Self]) -> Option<Self> {
        among.iter().copied().find(|column| column.title() == title)
    }

    pub const fn is_largest_first(self) -> bool {
        !matches!(self, Name | Tid | Pid | Command | Cpu | Cgroup | Behind | LimitedBy | RanOn | WokenBy)
    }

    /// Returns the text of a cell; `-` if there is no value.
    pub fn cell(self, subject: &Subject<'_>, data: &Data) -> String {
        self.known(subject, data).unwrap_or_else(|| "-".into())
    }

    fn known(self, subject: &Subject<'_>, data: &Data) -> Option<String> {
        let interval = &*data.interval;
        let length = interval.duration_ns;
        let (wait, limits, task) = (subject.wait(), subject.limits(interval), subject.task());
        let figure = || self.figure(subject, data);
        let title = || subject.title(&interval.names);
        let share = |ns| percent(ns, length).map(|share| format!("{share:.1}"));
        let a_second = |count| per_second(count, length).map(rate);
        let time_a_second = |ns| per_second(ns, length).map(|ns| duration(ns as u64));
        Some(match self {
            Name => title(),
            Command => task.map_or_else(title, |task| task.reading.comm.to_string()),
            Tid | Pid | Cpu | Threads | Weight => figure()?.to_string(),
            P50 | P99 | Pending => duration(figure()?),
            WaitTime => time_a_second(wait.total_ns)?,
            BehindTime | SleepTime => time_a_second(figure()?)?,
            WaitShare => share(wait.total_ns)?,
            OnCpu => share(figure()?)?,
            // Files are read a moment before or after the tasks, so their time can exceed the interval. Limit it to the interval.
            PsiSome | PsiFull | Contention | AtLimit => share(figure()?.min(length))?,
            NodeMoves => a_second(figure()?)?,
            Of(counter) => match counter.info().counts {
                Counts::Events => a_second(figure()?)?,
                Counts::Ns => share(figure()?)?,
            },
            Throttled => {
                let active_ns = subject.totals().on_cpu_ns.saturating_add(wait.total_ns);
                let share = percent(wait.by_cause.get(Cause::Throttled), active_ns)?;
                format!("{share:.1}")
            }
            Why => causes::bar(&causes::parts(&wait.by_cause), self.width()),
            Max => (interval.mode == Mode::Bpf && wait.count != 0).then(|| duration(wait.max_ns))?,
            Quota => quota(subject, data)?,
            Behind => subject.culprits(data).first()?.words(&interval.names),
            WokenBy => {
                let slept = subject.sleeps(interval).map(|row| (interval.waker_words(row), row.slept_ns));
                sum::tally(slept).into_iter().max_by_key(|(_, ns)| *ns)?.0
            }
            RanOn => ran_on(subject)?,
            Cgroup => interval.names.of(subject.cgroup(interval)?).into(),
            Limit => format!("{} of {}", micros(limits?.quota_us?), micros(limits?.period_us?)),
            Burst => micros(figure().filter(|burst_us| *burst_us != 0)?),
            LimitedBy => limited_by(subject, data)?,
            Periods => {
                let limits = limits.filter(|limits| limits.quota_us.is_some())?;
                format!("{} of {}", limits.nr_throttled?, limits.nr_periods?)
            }
        })
    }

    /// Returns the figure that a column shows and sorts by: a number, an id, or a time in ns or us. `None`: unknown, or a column
    /// that sorts by something else.
    fn figure(self, subject: &Subject<'_>, data: &Data) -> Option<u64> {
        let of = |counter: Counter| counter.of(&subject.observed(&data.interval));
        let task = || subject.task().map(|task| &task.reading);
        let limits = || subject.limits(&data.interval);
        match self {
            Tid => Some(task()?.tid.into()),
            Pid => Some(task()?.tgid.into()),
            Cpu => Some(task()?.cpu.into()),
            Threads => Some(subject.threads()),
            P50 => subject.wait().quantile_ns(0.5),
            P99 => subject.wait().quantile_ns(0.99),
            Pending => subject.pending_ns(),
            OnCpu => of(Counter::OnCpu),
            Of(counter) => of(counter),
            BehindTime => behind_ns(subject, data),
            SleepTime => Some(sum::total(subject.sleeps(&data.interval).map(|row| row.slept_ns))),
            NodeMoves => of(Counter::NodeMigrations),
            Burst => limits()?.burst_us,
            Periods => of(Counter::ThrottledPeriods),
            PsiSome => of(Counter::PressureSome),
            PsiFull => of(Counter::PressureFull),
            Contention => of(Counter::Contention),
            AtLimit => of(Counter::ThrottledPressure),
            Weight => limits()?.weight,
            _ => None,
        }
    }

    pub fn sort_key(self, subject: &Subject<'_>, data: &Data) -> SortKey {
        let wait = subject.wait();
        SortKey::Number(match self {
            // Include waits that have not ended, because a task that waits now matters, too.
            WaitTime | WaitShare => wait.total_ns as f64 + subject.waiting_ns() as f64,
            Throttled => wait.by_cause.get(Cause::Throttled) as f64,
            Why => wait.by_cause.blaming(Blames::OtherCgroups) as f64,
            Max => wait.max_ns as f64,
            // Unknown values sort below all known values.
            Quota => quota_share(subject, data).unwrap_or(-1.0),
            Limit => subject.limits(&data.interval).and_then(CgroupReading::quota_cores).unwrap_or(-1.0),
            Name | Command | Cgroup | Behind | LimitedBy | RanOn | WokenBy => {
                return SortKey::Text(self.cell(subject, data));
            }
            _ => self.figure(subject, data).map_or(-1.0, |figure| figure as f64),
        })
    }
}

/// Returns the used share of a cgroup's own quota, and the quota in CPUs: `99% 0.5`. The quota of an ancestor is `(0.5)`.
fn quota(subject: &Subject<'_>, data: &Data) -> Option<String> {
    let Subject::Cgroup(node) = subject else { return None };
    match quota_share(subject, data) {
        Some(share) => {
            let cores = subject.limits(&data.interval)?.quota_cores()?;
            Some(format!("{share:.0}% {}", number(cores)))
        }
        None => node.effective.as_ref().map(|limit| format!("({})", number(limit.cores))),
    }
}

fn quota_share(subject: &Subject<'_>, data: &Data) -> Option<f64> {
    let cores = subject.limits(&data.interval)?.quota_cores()?;
    let allowed_ns = cores * data.interval.duration_ns as f64;
    (allowed_ns > 0.0).then(|| 100.0 * data.used_ns(subject) as f64 / allowed_ns)
}

fn limited_by(subject: &Subject<'_>, data: &Data) -> Option<String> {
    let Subject::Cgroup(node) = subject else { return None };
    let limit = &data.tree.nodes()[node.limited_by?];
    Some(if limit.path == node.path {
        "itself".into()
    } else if limit.depth > node.depth {
        // This cgroup is not throttled, but tasks of its descendants are throttled.
        format!("below: {}", data.interval.names.leaf(&limit.path))
    } else {
        data.interval.names.leaf(&limit.path).into()
    })
}

/// Returns the time that tasks of a cgroup waited while others ran, ns. `None` in coarse mode and for other subjects.
fn behind_ns(subject: &Subject<'_>, data: &Data) -> Option<u64> {
    let interval = &*data.interval;
    let Subject::Cgroup(node) = subject else { return None };
    let pairs = data.tree.pairs_below(data.tree.find(&node.path)?).map(|at| &interval.pairs[at]);
    let ran = pairs.filter(|pair| pair.blame == Blame::Ran);
    interval.mode.exact(|| sum::total(ran.map(|pair| pair.ns)))
}

/// Returns the share of run time on each node: `node 0 75%, node 1 25%`.
pub fn node_shares(ran: &[(u32, u64)]) -> String {
    let total = sum::total(ran.iter().map(|(_, ns)| *ns));
    let said = ran.iter().filter_map(|(node, ns)| Some(format!("node {node} {:.0}%", percent(*ns, total)?)));
    said.collect::<Vec<_>>().join(", ")
}

fn ran_on(subject: &Subject<'_>) -> Option<String> {
    let Subject::Task(task) = subject else { return None };
    Some(node_shares(&task.ran_by_node())).filter(|said| !said.is_empty())
}

/// Formats events per second in at most six characters.
pub fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".into(),
        r if r < 9.95 => format!("{r:.1}"),
        r if r < 99_999.5 => format!("{r:.0}"),
        r => format!("{:.0}k", r / 1e3),
    }
}

/// Returns the columns that fit a width, each with its own width. Columns that do not fit are omitted in the order of
/// `least_needed`. The first column of `flexible` that fits takes the remaining width.
pub fn that_fit([columns, least_needed, flexible]: [&[Column]; 3], cells: usize) -> Vec<(Column, usize)> {
    let needs = |columns: &[Column]| columns.iter().map(|column| column.width() + 1).sum::<usize>();
    let mut kept = columns.to_vec();
    for unneeded in least_needed {
        if needs(&kept) > cells + 1 {
            kept.retain(|column| column != unneeded);
        }
    }
    let left = (cells + 1).saturating_sub(needs(&kept));
    let flexible = flexible.iter().find(|column| kept.contains(column)).copied();
    let widen = |column: Column| column.width() + if Some(column) == flexible { left } else { 0 };
    kept.into_iter().map(|column| (column, widen(column))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fit_their_column() {
        assert_eq!([0.0, 0.5, 12.3, 99_999.0, 1_234_567.0].map(rate), ["0", "0.5", "12", "99999", "1235k"]);
    }

    #[test]
    fn a_key_sorts_by_one_column_only() {
        let mut keys: Vec<char> = Column::all().map(Column::key).filter(|key| *key != ' ').collect();
        assert!(keys.iter().all(char::is_ascii_uppercase));
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn the_least_needed_columns_are_left_out_first() {
        let columns = [Name, WaitTime, P50, P99];
        let at = |cells| that_fit([&columns, &[P50, P99], &[Name]], cells);
        assert_eq!(at(60).iter().map(|(_, cells)| cells + 1).sum::<usize>(), 61);
        assert_eq!(at(36).iter().map(|(column, _)| *column).collect::<Vec<_>>(), [Name, WaitTime, P99]);
        assert_eq!(at(10).len(), 2, "these two columns are cut instead of left out");
    }
}
