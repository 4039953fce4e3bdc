//! The columns of a table of tasks, each defined once: for the screen, for text, and for sorting.

use cgscope_model::{
    Cause, Interval, Mode, TaskInterval,
    units::{duration, per_second, percent},
};

use crate::causes;

/// Characters of the bar of causes.
const WHY_WIDTH: u16 = 8;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Thread id.
    Tid,
    /// Process id.
    Pid,
    /// Name.
    Comm,
    /// CPU.
    Cpu,
    /// Share of the time spent waiting.
    WaitShare,
    /// Share of the time waiting for quota.
    Throttled,
    /// The wait by cause, as a bar.
    Why,
    /// Waits a second.
    Waits,
    /// Median.
    P50,
    /// 99th percentile.
    P99,
    /// Longest.
    Max,
    /// Waiting now.
    Pending,
    /// Share of the time on a CPU.
    OnCpu,
    /// Voluntary switches a second.
    Voluntary,
    /// Involuntary switches a second.
    Involuntary,
    /// Moves between CPUs a second.
    Migrations,
    /// Path of the cgroup.
    Cgroup,
}

use Column::*;

impl Column {
    /// All, in the order of the table.
    pub const ALL: [Self; 17] = [
        Tid,
        Pid,
        Comm,
        Cpu,
        WaitShare,
        Throttled,
        Why,
        Waits,
        P50,
        P99,
        Max,
        Pending,
        OnCpu,
        Voluntary,
        Involuntary,
        Migrations,
        Cgroup,
    ];

    /// Heading.
    pub const fn title(self) -> &'static str {
        match self {
            Tid => "TID",
            Pid => "PID",
            Comm => "COMM",
            Cpu => "CPU",
            WaitShare => "WAIT%",
            Throttled => "THROT%",
            Why => "WHY",
            Waits => "WAITS/s",
            P50 => "p50",
            P99 => "p99",
            Max => "MAX",
            Pending => "PENDING",
            OnCpu => "ON-CPU%",
            Voluntary => "VOL/s",
            Involuntary => "INVOL/s",
            Migrations => "MIGR/s",
            Cgroup => "CGROUP",
        }
    }

    /// What it means, in a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Tid => "thread id",
            Pid => "process id",
            Comm => "name of the thread",
            Cpu => "CPU it is on, or was on last",
            WaitShare => "share of the interval that it waited for a CPU, in waits that ended in it",
            Throttled => "share of the interval that it was out of quota, in waits that ended in it",
            Why => {
                "those waits by cause: T throttled, o behind own cgroup, # behind other cgroups, k behind the kernel, \
                 . wakeup, ? unattributed"
            }
            Waits => "waits that ended, a second",
            P50 => "half of its waits were at most this long",
            P99 => "99 of 100 of its waits were at most this long",
            Max => "its longest wait",
            Pending => "it is waiting now, for so long",
            OnCpu => "share of the interval that it was on a CPU",
            Voluntary => "times a second that it went to sleep",
            Involuntary => "times a second that it was taken off a CPU",
            Migrations => "moves between CPUs, a second",
            Cgroup => "path of its cgroup, as under the mount",
        }
    }

    /// Characters; the last column takes what is left.
    pub const fn width(self) -> u16 {
        match self {
            Tid | Pid => 7,
            Comm => 15,
            Cpu => 4,
            WaitShare | Throttled => 6,
            Why => WHY_WIDTH,
            Waits | Involuntary | OnCpu | Pending => 8,
            P50 | P99 | Max | Voluntary | Migrations => 7,
            Cgroup => 12,
        }
    }

    /// Text is left-aligned, figures right.
    pub const fn is_text(self) -> bool {
        matches!(self, Comm | Why | Cgroup)
    }

    /// The cell; `-` for what there is not.
    pub fn cell(self, task: &TaskInterval, interval: &Interval) -> String {
        let reading = &task.reading;
        let length = interval.duration_ns;
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let share = |ns| or_none(percent(ns, length).map(|p| format!("{p:.1}")));
        let is_exact = interval.mode == Mode::Bpf;
        let rate = |count| or_none(per_second(count, length).map(rate));
        match self {
            Tid => reading.tid.to_string(),
            Pid => reading.tgid.to_string(),
            Comm => reading.comm.to_string(),
            Cpu => reading.cpu.to_string(),
            WaitShare => share(task.wait.total_ns),
            Throttled => share(task.wait.by_cause.get(Cause::Throttled)),
            Why => causes::bar(&causes::parts(&task.wait.by_cause), WHY_WIDTH.into()),
            Waits => rate(task.wait.count),
            P50 => or_none(task.wait.quantile_ns(0.5).map(duration)),
            P99 => or_none(task.wait.quantile_ns(0.99).map(duration)),
            Max => or_none((is_exact && task.wait.count != 0).then(|| duration(task.wait.max_ns))),
            Pending => or_none(reading.pending.map(|pending| duration(pending.ns))),
            OnCpu => share(task.totals.on_cpu_ns),
            Voluntary => rate(task.totals.voluntary),
            Involuntary => rate(task.totals.involuntary),
            Migrations => or_none(is_exact.then(|| rate(task.totals.migrations))),
            Cgroup => or_none(interval.cgroup_path(reading.cgroup_id).map(ToString::to_string)),
        }
    }

    /// What rows are sorted by: figures as figures, text as text.
    fn key(self, task: &TaskInterval, interval: &Interval) -> (u64, String) {
        let reading = &task.reading;
        let number = match self {
            Tid => u64::from(reading.tid),
            Pid => u64::from(reading.tgid),
            Cpu => u64::from(reading.cpu),
            // What waits now is part of the answer, although its wait is not over.
            WaitShare => task.wait.total_ns + reading.pending.map_or(0, |pending| pending.ns),
            Throttled => task.wait.by_cause.get(Cause::Throttled),
            Why => task.wait.by_cause.get(Cause::OtherCgroup),
            Waits => task.wait.count,
            P50 => task.wait.quantile_ns(0.5).unwrap_or(0),
            P99 => task.wait.quantile_ns(0.99).unwrap_or(0),
            Max => task.wait.max_ns,
            Pending => reading.pending.map_or(0, |pending| pending.ns),
            OnCpu => task.totals.on_cpu_ns,
            Voluntary => task.totals.voluntary,
            Involuntary => task.totals.involuntary,
            Migrations => task.totals.migrations,
            Comm | Cgroup => return (0, self.cell(task, interval)),
        };
        (number, String::new())
    }

    /// True if the largest comes first unless asked otherwise.
    pub const fn falls(self) -> bool {
        !matches!(self, Tid | Pid | Comm | Cpu | Cgroup)
    }
}

/// Events a second in at most five characters.
fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".into(),
        r if r < 9.95 => format!("{r:.1}"),
        r if r < 99_999.5 => format!("{r:.0}"),
        r => format!("{:.0}k", r / 1e3),
    }
}

/// The tasks in the order of a column; equal ones by serial, so that rows do not jump.
pub fn sorted(interval: &Interval, by: Column, reversed: bool) -> Vec<&TaskInterval> {
    let mut rows: Vec<_> = interval.tasks.iter().map(|task| (by.key(task, interval), task)).collect();
    let falls = by.falls() != reversed;
    rows.sort_by(|(a, x), (b, y)| {
        let order = if falls { b.cmp(a) } else { a.cmp(b) };
        order.then(x.reading.serial.cmp(&y.reading.serial))
    });
    rows.into_iter().map(|(_, task)| task).collect()
}

/// A cell fitted to a width: text cut at its end, a path at its beginning.
pub fn fit(column: Column, text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length > width {
        return match column {
            Cgroup => {
                "…".chars().chain(text.chars().skip(length - width.saturating_sub(1))).take(width).collect()
            }
            _ => text.chars().take(width).collect(),
        };
    }
    if column.is_text() { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_end_and_a_name_its_beginning() {
        assert_eq!(fit(Cgroup, "/kubepods/pod1/container", 10), "…container");
        assert_eq!(fit(Comm, "averylongname", 6), "averyl");
        assert_eq!(fit(Max, "12ms", 7), "   12ms");
        assert_eq!(fit(Cgroup, "/a", 0), "");
    }

    #[test]
    fn rates_stay_within_their_column() {
        assert_eq!([0.0, 0.5, 12.3, 99_999.0, 1_234_567.0].map(rate), ["0", "0.5", "12", "99999", "1235k"]);
    }
}
