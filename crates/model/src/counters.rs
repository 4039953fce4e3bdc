//! The counters of tasks and cgroups, in one table. JSON, CSV, Parquet, `top`, `stat`, the metrics and `diff` all use this table.
//! To add a counter, add a row and code that reads the counter, and add its name to the lists of the outputs that show it.

use crate::{
    Accounts, Cause, CgroupReading, ExitedInterval, ExitedThreads, Group, Mode, TaskInterval, Totals, Wait,
};

/// The input of all counters: a task, or several tasks together, over an interval. `None`: not read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed<'a> {
    pub mode: Mode,
    pub totals: Option<&'a Totals>,
    pub wait: Option<&'a Wait>,
    pub accounts: Option<&'a Accounts>,
    /// The task, if there is only one.
    pub task: Option<&'a TaskInterval>,
    pub limits: Option<&'a CgroupReading>,
}

impl<'a> Observed<'a> {
    /// Observes one task, with its time in all cgroups.
    pub fn task(task: &'a TaskInterval, mode: Mode) -> Self {
        let (totals, wait) = (Some(task.all_totals()), Some(task.all_waits()));
        Self { mode, totals, wait, accounts: task.all_accounts(), task: Some(task), limits: None }
    }

    pub fn group(group: &'a Group, mode: Mode) -> Self {
        let (totals, wait) = (Some(&group.totals), Some(&group.wait));
        Self { mode, totals, wait, accounts: group.accounts.as_ref(), ..Self::default() }
    }

    pub fn exited(exited: &'a ExitedInterval, mode: Mode) -> Self {
        let (totals, wait) = (Some(&exited.totals), Some(&exited.wait));
        Self { mode, totals, wait, accounts: exited.accounts.as_ref(), ..Self::default() }
    }

    pub fn limits(limits: &'a CgroupReading) -> Self {
        Self { limits: Some(limits), ..Self::default() }
    }
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Occurrences: shown per second.
    Events,
    /// Nanoseconds: shown as a share of the interval; in metrics, as seconds.
    Ns,
}

/// A column of `top` or `stat`.
#[derive(Clone, Copy, Debug)]
pub struct CounterColumn {
    pub title: &'static str,
    /// The key that sorts by this column; a blank: no key.
    pub key: char,
    /// Width in terminal cells; in `stat`, including the blank before the column.
    pub width: usize,
    pub meaning: &'static str,
}

/// A family of metrics, with one series per cgroup.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name, without `_total`.
    pub name: &'static str,
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The name in sentences.
    pub words: &'static str,
    /// Smallest change that is shown, per second.
    pub least: f64,
}

/// A row of the table: a counter and the outputs that show it.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Key in JSON, and column of CSV and Parquet.
    pub name: &'static str,
    pub counts: Counts,
    /// True if the coarse mode lacks this counter.
    pub exact_only: bool,
    /// True if lists of cgroups in `top` omit this counter.
    pub tasks_only: bool,
    pub top: Option<CounterColumn>,
    pub stat: Option<CounterColumn>,
    /// Reads the count of a process's exited threads, if the kernel sums it up.
    pub exited_threads: Option<fn(&ExitedThreads) -> u64>,
    pub metric: Option<Metric>,
    pub diff: Option<Compared>,
    get: Get,
}

type Get = fn(&Observed<'_>) -> Option<u64>;

const fn events(name: &'static str, get: Get) -> Info {
    Info {
        name,
        counts: Counts::Events,
        exact_only: false,
        tasks_only: false,
        top: None,
        stat: None,
        exited_threads: None,
        metric: None,
        diff: None,
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

    const fn top(self, title: &'static str, key: char, width: usize, meaning: &'static str) -> Self {
        Self { top: Some(CounterColumn { title, key, width, meaning }), ..self }
    }

    const fn stat(self, title: &'static str, width: usize, meaning: &'static str) -> Self {
        Self { stat: Some(CounterColumn { title, key: ' ', width, meaning }), ..self }
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
        /// A counter: a number that can be summed over tasks and over time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        pub const COUNTERS: usize = TABLE.len();

        impl Counter {
            pub const ALL: [Self; COUNTERS] = [$(Self::$variant,)*];
        }

        static TABLE: [Info; [$(stringify!($variant),)*].len()] = [$($info,)*];
    };
}

counters! {
    Waits = events("waits", |of| Some(of.wait?.count)).top("waits/s", ' ', 7, "waits that ended, per second");
    OnCpu = ns("on_cpu_ns", |of| Some(of.totals?.on_cpu_ns))
        .exited_threads(|threads| threads.on_cpu_ns)
        .metric("cgscope_cgroup_cpu_usage_seconds", "Time on a CPU, summed over tasks.");
    /// Time in user space, guests included.
    User = ns("user_ns", |of| Some(of.accounts?.cpu.user_ns)).exited_threads(|threads| threads.user_ns);
    System = ns("system_ns", |of| Some(of.accounts?.cpu.system_ns)).exited_threads(|threads| threads.system_ns);
    Guest = ns("guest_ns", |of| Some(of.accounts?.cpu.guest_ns)).exited_threads(|threads| threads.guest_ns);
    /// Like [`Self::User`] and the next two, for objects in which `user_ns` is the kernel's own sum.
    CpuUser = ns("cpu_user_ns", |of| Some(of.accounts?.cpu.user_ns));
    CpuSystem = ns("cpu_system_ns", |of| Some(of.accounts?.cpu.system_ns));
    CpuGuest = ns("cpu_guest_ns", |of| Some(of.accounts?.cpu.guest_ns));
    Voluntary = events("voluntary", |of| Some(of.totals?.voluntary))
        .top("cswch/s", 'S', 7, "times per second that a task went to sleep")
        .stat("cswch/s", 10, "voluntary switches per second: a task went to sleep")
        .exited_threads(|threads| threads.voluntary)
        .metric("cgscope_cgroup_voluntary_switches", "Times that a task left a CPU because it had to wait for something.")
        .diff("voluntary switches", 100.0);
    Involuntary = events("involuntary", |of| Some(of.totals?.involuntary))
        .top("nvcswch/s", 'V', 9, "times per second that a task was taken off a CPU")
        .stat("nvcswch/s", 10, "involuntary switches per second: a task was taken off a CPU")
        .exited_threads(|threads| threads.involuntary)
        .metric("cgscope_cgroup_involuntary_switches", "Times that a task was taken off a CPU although it could have continued.")
        .diff("involuntary switches", 100.0);
    /// Moves between CPUs. A move costs some microseconds, more if the task's cache contents move with it. Below `least`, moves
    /// cost less than 0.1 % of a CPU. Waits after a move are part of the wait times.
    Migrations = events("migrations", |of| Some(of.totals?.migrations)).exact_only().tasks_only()
        .top("migr/s", 'M', 6, "moves between CPUs, per second")
        .metric("cgscope_cgroup_migrations", "Moves of tasks between CPUs.")
        .diff("moves between CPUs", 20.0);
    NodeMigrations = events("node_migrations", |of| of.task?.placement.node_migrations);
    ThrottledWaits = events("throttled_waits", |of| {
        let totals = of.totals?;
        // Older recordings hold only the time.
        let is_known = totals.throttled_waits != 0 || totals.by_cause.get(Cause::Throttled) == 0;
        is_known.then_some(totals.throttled_waits)
    })
        .exact_only()
        .top("twait/s", ' ', 7, "waits per second that were partly spent out of quota")
        .stat("twait/s", 9, "waits per second that were partly spent out of quota")
        .metric("cgscope_cgroup_throttled_waits", "Completed waits that were partly spent out of quota.")
        .diff("waits out of quota", 1.0);
    /// The kernel's own sum of waits.
    RunDelay = ns("run_delay_ns", |of| Some(of.totals?.run_delay_ns));
    /// Waits that the kernel's sum omits.
    Unstamped = events("unstamped", |of| Some(of.totals?.unstamped)).exact_only();
    UnstampedNs = ns("unstamped_ns", |of| Some(of.totals?.unstamped_ns)).exact_only();
    Periods = events("nr_periods", |of| of.limits?.nr_periods)
        .metric("cgscope_cgroup_periods", "Periods of the cgroup's own quota in which the cgroup had something to run.");
    ThrottledPeriods = events("nr_throttled", |of| of.limits?.nr_throttled)
        .metric("cgscope_cgroup_throttled_periods", "Periods in which the cgroup's own quota ran out.");
    ThrottledNs = ns("throttled_ns", |of| of.limits?.throttled_ns)
        .metric("cgscope_cgroup_throttled_seconds", "Time that the cgroup's own quota kept it from running, summed over CPUs.");
    Bursts = events("nr_bursts", |of| of.limits?.nr_bursts);
    BurstNs = ns("burst_ns", |of| of.limits?.burst_ns);
    LocalThrottledNs = ns("local_throttled_ns", |of| of.limits?.local_throttled_ns);
    /// Time on a CPU, from `cpu.stat`.
    CgroupUsage = ns("usage_ns", |of| of.limits?.usage_ns);
    CgroupUser = ns("user_ns", |of| of.limits?.user_ns);
    CgroupSystem = ns("system_ns", |of| of.limits?.system_ns);
    PressureSome = ns("pressure_some_ns", |of| of.limits?.pressure_some_ns);
    PressureFull = ns("pressure_full_ns", |of| of.limits?.pressure_full_ns);
    Contention = ns("contention_ns", |of| of.limits?.contention_ns)
        .metric("cgscope_cpu_contention_seconds",
            "Time in which at least one task of the cgroup waited for a CPU, without time at a limit.");
    ThrottledPressure = ns("throttled_pressure_ns", |of| of.limits?.throttled_pressure_ns)
        .metric("cgscope_cpu_throttled_pressure_seconds",
            "Time in which at least one task of the cgroup was at a limit and none waited for a CPU.");
    PressureUncertain = ns("pressure_uncertain_ns", |of| of.limits?.pressure_uncertain_ns);
}

macro_rules! lists {
    ($($(#[$doc:meta])* $list:ident: $($counter:ident)+;)*) => {
        $($(#[$doc])* pub const $list: &[Counter] = &[$(Counter::$counter),+];)*
    };
}

lists! {
    /// Counters of a task object, before `blocked`.
    OF_TASK_TIME: OnCpu User System Guest;
    /// Counters of a task object, before `ran_by_node`.
    OF_TASK: Voluntary Involuntary Migrations NodeMigrations ThrottledWaits;
    /// Counters of a task object, before `unstamped`.
    OF_TASK_BY_KERNEL: RunDelay;
    /// Counters of cgroup and interval objects, before `blocked`.
    OF_CPU_TIMES: CpuUser CpuSystem CpuGuest;
    /// Counters of a cgroup object: sums over its tasks.
    OF_CGROUP: Voluntary Involuntary RunDelay ThrottledWaits;
    /// Counters of a cgroup object: values from its files.
    OF_LIMITS: Periods ThrottledPeriods ThrottledNs Bursts BurstNs LocalThrottledNs CgroupUser CgroupSystem
        PressureSome PressureFull Contention ThrottledPressure PressureUncertain;
    /// Counters of the object of a quota that applied to a command.
    OF_QUOTA: CgroupUsage CgroupUser CgroupSystem Periods ThrottledPeriods ThrottledNs;
    /// Counters of an interval object: sums over all tasks.
    OF_TOTAL: ThrottledWaits;
    /// The last columns of CSV and Parquet. Append new columns at the end.
    OF_EXPORT: OnCpu Voluntary Involuntary Migrations NodeMigrations RunDelay Unstamped UnstampedNs
        ThrottledWaits;
    OF_TOP: Waits Involuntary Voluntary Migrations ThrottledWaits;
    /// The metrics before the quota metrics.
    OF_METRICS_FIRST: OnCpu Contention ThrottledPressure ThrottledNs ThrottledPeriods Periods;
    /// The metrics after the quota metrics.
    OF_METRICS: Voluntary Involuntary Migrations ThrottledWaits;
}

impl Counter {
    pub const fn info(self) -> &'static Info {
        &TABLE[self as usize]
    }

    /// Returns the key in JSON, which is also the column of CSV and Parquet.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    pub fn of(self, observed: &Observed<'_>) -> Option<u64> {
        let Info { exact_only, get, .. } = self.info();
        if *exact_only && observed.mode == Mode::Coarse { None } else { get(observed) }
    }

    pub fn of_stat() -> impl Iterator<Item = (Self, &'static CounterColumn)> {
        Self::ALL.into_iter().filter_map(|counter| Some((counter, counter.info().stat.as_ref()?)))
    }

    pub fn compared() -> impl Iterator<Item = (Self, &'static Compared)> {
        Self::ALL.into_iter().filter_map(|counter| Some((counter, counter.info().diff.as_ref()?)))
    }
}

#[cfg(test)]
mod tests;
