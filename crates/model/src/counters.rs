//! The counters of tasks and cgroups, in one table.
//!
//! JSON, CSV, Parquet, `top`, `stat`, the metrics and `diff` all take their counters from this table. To add a counter: add a
//! row, add its name to the lists of the outputs that show it, and read it.

use crate::{
    Accounts, Cause, CgroupReading, ExitedInterval, ExitedThreads, Group, Mode, TaskInterval, Totals, Wait,
};

/// A task, or several tasks together, over an interval: the input of all counters. `None`: not read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed<'a> {
    /// Where the readings come from.
    pub mode: Mode,
    /// The readings that can be summed.
    pub totals: Option<&'a Totals>,
    /// Completed waits.
    pub wait: Option<&'a Wait>,
    /// Where time went outside the waits.
    pub accounts: Option<&'a Accounts>,
    /// The task, if this is a single task.
    pub task: Option<&'a TaskInterval>,
    /// The limits of the cgroup.
    pub limits: Option<&'a CgroupReading>,
}

impl<'a> Observed<'a> {
    /// Observes one task, in whatever cgroups it was.
    pub fn task(task: &'a TaskInterval, mode: Mode) -> Self {
        let (totals, wait) = (Some(task.all_totals()), Some(task.all_waits()));
        Self { mode, totals, wait, accounts: task.all_accounts(), task: Some(task), limits: None }
    }

    /// Observes several tasks together.
    pub fn group(group: &'a Group, mode: Mode) -> Self {
        let (totals, wait) = (Some(&group.totals), Some(&group.wait));
        Self { mode, totals, wait, accounts: group.accounts.as_ref(), ..Self::default() }
    }

    /// Observes the exited tasks of a cgroup.
    pub fn exited(exited: &'a ExitedInterval, mode: Mode) -> Self {
        let (totals, wait) = (Some(&exited.totals), Some(&exited.wait));
        Self { mode, totals, wait, accounts: exited.accounts.as_ref(), ..Self::default() }
    }

    /// Observes only the limits of a cgroup.
    pub fn limits(limits: &'a CgroupReading) -> Self {
        Self { limits: Some(limits), ..Self::default() }
    }
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Occurrences: shown per second.
    Events,
    /// Nanoseconds: shown as a share of the interval, in metrics as seconds.
    Ns,
}

/// A column of `top`.
#[derive(Clone, Copy, Debug)]
pub struct TopColumn {
    /// Heading.
    pub title: &'static str,
    /// The key that sorts by this column; a blank: none.
    pub key: char,
    /// Width in terminal cells.
    pub width: usize,
    /// A sentence that explains the column.
    pub meaning: &'static str,
}

/// A column of `stat`.
#[derive(Clone, Copy, Debug)]
pub struct StatColumn {
    /// Heading: one word.
    pub title: &'static str,
    /// Width in terminal cells, including the blank before the column.
    pub width: usize,
    /// A sentence that explains the column.
    pub meaning: &'static str,
}

/// A family of metrics, with one series per cgroup.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name, without `_total`.
    pub name: &'static str,
    /// A sentence that explains the metric.
    pub help: &'static str,
}

/// How `diff` compares a counter.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The name in sentences.
    pub words: &'static str,
    /// The smallest change that is shown, per second.
    pub least: f64,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The key in JSON, and the column of CSV and Parquet.
    pub name: &'static str,
    /// The unit.
    pub counts: Counts,
    /// True if the coarse mode does not have this counter.
    pub exact_only: bool,
    /// True if lists of cgroups in `top` omit this counter.
    pub tasks_only: bool,
    /// True if only some tasks may have this counter; `diff` still compares it between exact recordings.
    pub is_partial: bool,
    /// Its column in `top`.
    pub top: Option<TopColumn>,
    /// Its column in `stat`.
    pub stat: Option<StatColumn>,
    /// The count of the exited threads of a process, if the kernel sums it up.
    pub exited_threads: Option<fn(&ExitedThreads) -> u64>,
    /// Its metric.
    pub metric: Option<Metric>,
    /// How `diff` compares it.
    pub diff: Option<Compared>,
    get: Get,
}

type Get = fn(&Observed<'_>) -> Option<u64>;

const fn events(name: &'static str, get: Get) -> Info {
    let (exact_only, tasks_only, is_partial) = (false, false, false);
    let (top, stat, exited_threads, metric, diff) = (None, None, None, None, None);
    Info {
        name,
        counts: Counts::Events,
        exact_only,
        tasks_only,
        is_partial,
        top,
        stat,
        exited_threads,
        metric,
        diff,
        get,
    }
}

const fn ns(name: &'static str, get: Get) -> Info {
    Info { counts: Counts::Ns, ..events(name, get) }
}

impl Info {
    const fn exact_only(self) -> Self {
        Self { exact_only: true, ..self }
    }

    const fn tasks_only(self) -> Self {
        Self { tasks_only: true, ..self }
    }

    const fn partial(self) -> Self {
        Self { is_partial: true, ..self }
    }

    const fn top(self, title: &'static str, key: char, width: usize, meaning: &'static str) -> Self {
        Self { top: Some(TopColumn { title, key, width, meaning }), ..self }
    }

    const fn stat(self, title: &'static str, width: usize, meaning: &'static str) -> Self {
        Self { stat: Some(StatColumn { title, width, meaning }), ..self }
    }

    const fn exited_threads(self, exited_threads: fn(&ExitedThreads) -> u64) -> Self {
        Self { exited_threads: Some(exited_threads), ..self }
    }

    const fn metric(self, name: &'static str, help: &'static str) -> Self {
        Self { metric: Some(Metric { name, help }), ..self }
    }

    const fn diff(self, words: &'static str, least: f64) -> Self {
        Self { diff: Some(Compared { words, least }), ..self }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $info:expr;)*) => {
        /// A counter: a plain number that can be summed over tasks and over time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        /// Number of counters.
        pub const COUNTERS: usize = TABLE.len();

        impl Counter {
            /// All counters.
            pub const ALL: [Self; COUNTERS] = [$(Self::$variant,)*];
        }

        static TABLE: [Info; [$(stringify!($variant),)*].len()] = [$($info,)*];
    };
}

counters! {
    /// Completed waits.
    Waits = events("waits", |of| Some(of.wait?.count))
        .top("waits/s", ' ', 7, "waits that ended, per second");
    /// Time on a CPU.
    OnCpu = ns("on_cpu_ns", |of| Some(of.totals?.on_cpu_ns))
        .metric("cgscope_cgroup_cpu_usage_seconds", "Time on a CPU, summed over tasks.");
    /// Time in user space, guests included.
    User = ns("user_ns", |of| Some(of.accounts?.cpu.user_ns));
    /// Time in the kernel.
    System = ns("system_ns", |of| Some(of.accounts?.cpu.system_ns));
    /// Time running a guest.
    Guest = ns("guest_ns", |of| Some(of.accounts?.cpu.guest_ns));
    /// [`Self::User`], for objects that already use the name `user_ns` for the kernel's own sum.
    CpuUser = ns("cpu_user_ns", |of| Some(of.accounts?.cpu.user_ns));
    /// [`Self::System`], for such objects.
    CpuSystem = ns("cpu_system_ns", |of| Some(of.accounts?.cpu.system_ns));
    /// [`Self::Guest`], for such objects.
    CpuGuest = ns("cpu_guest_ns", |of| Some(of.accounts?.cpu.guest_ns));
    /// Voluntary switches.
    Voluntary = events("voluntary", |of| Some(of.totals?.voluntary))
        .top("cswch/s", 'S', 7, "times per second that a task went to sleep")
        .stat("cswch/s", 10, "voluntary switches per second: a task went to sleep")
        .exited_threads(|exited_threads| exited_threads.voluntary)
        .metric(
            "cgscope_cgroup_voluntary_switches",
            "Times that a task left a CPU because it had to wait for something.",
        )
        .diff("voluntary switches", 100.0);
    /// Involuntary switches.
    Involuntary = events("involuntary", |of| Some(of.totals?.involuntary))
        .top("nvcswch/s", 'V', 9, "times per second that a task was taken off a CPU")
        .stat("nvcswch/s", 10, "involuntary switches per second: a task was taken off a CPU")
        .exited_threads(|exited_threads| exited_threads.involuntary)
        .metric(
            "cgscope_cgroup_involuntary_switches",
            "Times that a task was taken off a CPU although it could have continued.",
        )
        .diff("involuntary switches", 100.0);
    /// Moves between CPUs.
    ///
    /// A move costs some microseconds, more if the task's cache contents move with it. Below `least`, this is less than 0.1 %
    /// of a CPU. Waits after a move are part of the wait times.
    Migrations = events("migrations", |of| Some(of.totals?.migrations))
        .exact_only()
        .tasks_only()
        .top("migr/s", 'M', 6, "moves between CPUs, per second")
        .metric("cgscope_cgroup_migrations", "Moves of tasks between CPUs.")
        .diff("moves between CPUs", 20.0);
    /// Moves between NUMA nodes.
    NodeMigrations = events("node_migrations", |of| of.task?.placement.node_migrations)
        .partial()
        .diff("moves between nodes", 20.0);
    /// Completed waits that were partly spent out of quota.
    ThrottledWaits = events("throttled_waits", |of| {
        let totals = of.totals?;
        // Older recordings have only the time.
        let is_known = totals.throttled_waits != 0 || totals.by_cause.get(Cause::Throttled) == 0;
        is_known.then_some(totals.throttled_waits)
    })
        .exact_only()
        .top("twait/s", ' ', 7, "waits per second that were partly spent out of quota")
        .stat("twait/s", 9, "waits per second that were partly spent out of quota")
        .metric(
            "cgscope_cgroup_throttled_waits",
            "Completed waits that were partly spent out of quota.",
        )
        .diff("waits out of quota", 1.0);
    /// The kernel's own sum of waits.
    RunDelay = ns("run_delay_ns", |of| Some(of.totals?.run_delay_ns));
    /// Waits that the kernel does not count.
    Unstamped = events("unstamped", |of| Some(of.totals?.unstamped)).exact_only();
    /// Total time of these waits.
    UnstampedNs = ns("unstamped_ns", |of| Some(of.totals?.unstamped_ns)).exact_only();
    /// Periods of the quota.
    Periods = events("nr_periods", |of| of.limits?.nr_periods)
        .metric("cgscope_cgroup_periods", "Periods of the cgroup's own quota in which the cgroup had something to run.");
    /// Periods in which the quota ran out.
    ThrottledPeriods = events("nr_throttled", |of| of.limits?.nr_throttled)
        .metric("cgscope_cgroup_throttled_periods", "Periods in which the cgroup's own quota ran out.");
    /// Time out of quota, summed over CPUs.
    ThrottledNs = ns("throttled_ns", |of| of.limits?.throttled_ns)
        .metric("cgscope_cgroup_throttled_seconds", "Time that the cgroup's own quota kept it from running, summed over CPUs.");
    /// Periods in which the cgroup used saved-up time (burst).
    Bursts = events("nr_bursts", |of| of.limits?.nr_bursts);
    /// Saved-up time (burst) that the cgroup used.
    BurstNs = ns("burst_ns", |of| of.limits?.burst_ns);
    /// Time that a quota of the cgroup or of an ancestor kept tasks directly in the cgroup from running, summed over CPUs.
    LocalThrottledNs = ns("local_throttled_ns", |of| of.limits?.local_throttled_ns);
    /// Time on a CPU, from `cpu.stat`.
    CgroupUsage = ns("usage_ns", |of| of.limits?.usage_ns);
    /// Time in user space, from `cpu.stat`.
    CgroupUser = ns("user_ns", |of| of.limits?.user_ns);
    /// Time in the kernel, from `cpu.stat`.
    CgroupSystem = ns("system_ns", |of| of.limits?.system_ns);
    /// Time in which some task waited for a CPU.
    PressureSome = ns("pressure_some_ns", |of| of.limits?.pressure_some_ns);
    /// Time in which tasks waited and none ran.
    PressureFull = ns("pressure_full_ns", |of| of.limits?.pressure_full_ns);
    /// Time in which some task waited for a CPU, without time at a limit.
    Contention = ns("contention_ns", |of| of.limits?.contention_ns)
        .metric(
            "cgscope_cpu_contention_seconds",
            "Time in which at least one task of the cgroup waited for a CPU, without time at a limit.",
        );
    /// Time in which tasks were at a limit, and none waited for a CPU.
    ThrottledPressure = ns("throttled_pressure_ns", |of| of.limits?.throttled_pressure_ns)
        .metric(
            "cgscope_cpu_throttled_pressure_seconds",
            "Time in which at least one task of the cgroup was at a limit and none waited for a CPU.",
        );
    /// By how much the two may be off.
    PressureUncertain = ns("pressure_uncertain_ns", |of| of.limits?.pressure_uncertain_ns);
}

use Counter::*;

/// In the object of a task, before `blocked`.
pub const OF_TASK_TIME: &[Counter] = &[OnCpu, User, System, Guest];
/// In the object of a task, before `ran_by_node`.
pub const OF_TASK: &[Counter] = &[Voluntary, Involuntary, Migrations, NodeMigrations, ThrottledWaits];
/// In the object of a task, before `unstamped`.
pub const OF_TASK_BY_KERNEL: &[Counter] = &[RunDelay];
/// In the objects of a cgroup and of an interval, before `blocked`.
pub const OF_CPU_TIMES: &[Counter] = &[CpuUser, CpuSystem, CpuGuest];
/// In the object of a cgroup: sums over its tasks.
pub const OF_CGROUP: &[Counter] = &[Voluntary, Involuntary, RunDelay, ThrottledWaits];
/// In the object of a cgroup: counters from its files.
pub const OF_LIMITS: &[Counter] = &[
    Periods,
    ThrottledPeriods,
    ThrottledNs,
    Bursts,
    BurstNs,
    LocalThrottledNs,
    CgroupUser,
    CgroupSystem,
    PressureSome,
    PressureFull,
    Contention,
    ThrottledPressure,
    PressureUncertain,
];
/// In the object of a quota that applied to a command.
pub const OF_QUOTA: &[Counter] =
    &[CgroupUsage, CgroupUser, CgroupSystem, Periods, ThrottledPeriods, ThrottledNs];
/// In the object of an interval: sums over all tasks.
pub const OF_TOTAL: &[Counter] = &[ThrottledWaits];
/// The last columns of CSV and Parquet. New ones go to the end.
pub const OF_EXPORT: &[Counter] = &[
    OnCpu,
    Voluntary,
    Involuntary,
    Migrations,
    NodeMigrations,
    RunDelay,
    Unstamped,
    UnstampedNs,
    ThrottledWaits,
];
/// The columns of `top`.
pub const OF_TOP: &[Counter] = &[Waits, Involuntary, Voluntary, Migrations, ThrottledWaits];
/// The metrics before those of the quota.
pub const OF_METRICS_FIRST: &[Counter] =
    &[OnCpu, Contention, ThrottledPressure, ThrottledNs, ThrottledPeriods, Periods];
/// The metrics after those of the quota.
pub const OF_METRICS: &[Counter] = &[Voluntary, Involuntary, Migrations, ThrottledWaits];

impl Counter {
    /// The row of the table.
    pub const fn info(self) -> &'static Info {
        &TABLE[self as usize]
    }

    /// The key in JSON, and the column of CSV and Parquet.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The value; `None`: unknown.
    pub fn of(self, observed: &Observed<'_>) -> Option<u64> {
        let Info { exact_only, get, .. } = self.info();
        if *exact_only && observed.mode == Mode::Coarse { None } else { get(observed) }
    }

    /// The counters that `stat` shows.
    pub fn of_stat() -> impl Iterator<Item = (Self, &'static StatColumn)> {
        Self::ALL.into_iter().filter_map(|counter| Some((counter, counter.info().stat.as_ref()?)))
    }

    /// The counters that `diff` compares.
    pub fn compared() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|counter| counter.info().diff.is_some())
    }
}

#[cfg(test)]
mod tests;
