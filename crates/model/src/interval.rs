//! The changes between two Samples. The only place that subtracts readings.

mod appended;
mod cost;
mod exited_threads;
mod group;
mod idle;
mod process;
mod realtime;

use std::{collections::BTreeMap, sync::Arc};

use cgscope_layout::bucket::LAST_LOW_NS;

use crate::{
    Accounts, BeforeMove, ByCause, CgroupReading, ContainerReading, ExitedReading, Hist, Losses, Mode, Names,
    NodeReading, PairReading, ProcessMemory, Sample, SchedExt, Scheduling, StackReading, TaskReading, Totals,
    accounts, coarse, culprits,
    findings::BUSY_THREAD_PERCENT,
    limits,
    nodes::{self, CpuInterval, TaskPlacement},
    stacks, sum,
};
pub use appended::Appended;
pub use cost::CostInterval;
pub(crate) use group::processes;
pub use group::{Group, GroupSum};
pub use process::Process;
pub use realtime::REALTIME_PERCENT;
pub(crate) use realtime::{Realtime, mostly_realtime};

/// Everything that happened between two Samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Wall clock at the start, ns since 1970.
    pub start_unix_ns: u64,
    /// Length, ns.
    pub duration_ns: u64,
    /// Where the readings come from.
    pub mode: Mode,
    /// The BPF scheduler, if one was loaded at the start or at the end; `None`: unknown.
    pub sched_ext: Option<SchedExt>,
    /// Tasks that existed at the end and did something, ascending by serial.
    pub tasks: Vec<TaskInterval>,
    /// The other tasks that existed at the end, ascending by serial: no figure of them increased, and at the end they neither
    /// ran nor waited. The readings are those of the Sample. See [`Self::readings`].
    pub idle: Vec<Arc<TaskReading>>,
    /// Exited tasks by cgroup: the part that no earlier reading reported.
    pub exited: Vec<ExitedInterval>,
    /// Wait time by victim and culprit, ns, ascending by key. A wait counts in the interval where it ends.
    pub pairs: Vec<PairReading>,
    /// The limits of cgroups at the end, with the increase of their counters; ascending by id.
    pub limits: Vec<CgroupReading>,
    /// Paths of the cgroups, ascending by id.
    pub cgroups: Vec<(u64, Arc<str>)>,
    /// The names of these cgroups.
    pub names: Arc<Names>,
    /// CPUs that were online at the end, ascending by number.
    pub cpus: Vec<CpuInterval>,
    /// NUMA nodes at the end, ascending by number.
    pub nodes: Vec<NodeReading>,
    /// The node of all CPUs, if there is only one.
    pub one_node: Option<u32>,
    /// Where memory of processes lay at the end, ascending by process id.
    pub memory: Vec<ProcessMemory>,
    /// Where tasks were blocked, ascending by key.
    pub stacks: Vec<StackReading>,
    /// True if this is not the whole host: a selection left out tasks, in the kernel or by
    /// [`Selection::apply`](crate::Selection::apply).
    pub is_selection: bool,
    /// The selected cgroup, if any.
    pub selected_cgroup: Option<Arc<str>>,
    /// Losses in the interval.
    pub losses: Losses,
    /// The cost of cgscope itself in the interval.
    pub cost: CostInterval,
}

/// One task over an interval. If it moved to another cgroup, the figures are those since its latest move: they count for the cgroup where it
/// was last. Its own row shows all of it: [`Self::all_totals`] and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskInterval {
    /// The reading at the end.
    pub reading: TaskReading,
    /// The increase in the interval.
    pub totals: Totals,
    /// Where the time went outside the waits; `None`: not requested.
    pub accounts: Option<Arc<Accounts>>,
    /// The waits completed in the interval.
    pub wait: Wait,
    /// Where the task ran in the interval.
    pub placement: TaskPlacement,
    /// All that it did in the interval, if it moved to another cgroup. What it did before that is in [`Interval::exited`], too. `None`: it did
    /// not move, or an older recording does not say what it did before.
    pub whole: Option<Box<Figures>>,
}

/// What a task did in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// As in [`TaskInterval::totals`].
    pub totals: Totals,
    /// As in [`TaskInterval::accounts`].
    pub accounts: Option<Arc<Accounts>>,
    /// As in [`TaskInterval::wait`].
    pub wait: Wait,
}

impl Figures {
    fn add(&mut self, more: &Self) {
        self.totals.add(&more.totals);
        append_accounts(&mut self.accounts, more.accounts.clone());
        self.wait.add(&more.wait);
    }
}

impl TaskInterval {
    /// True if the task ran or waited for at least [`BUSY_THREAD_PERCENT`] percent of the interval. Other threads are idle,
    /// as in any program, and do not count.
    pub fn is_busy(&self, duration_ns: u64) -> bool {
        // A wait that is not over may have begun long before the interval.
        let pending_ns = self.reading.pending_ns().unwrap_or(0).min(duration_ns);
        let (totals, wait) = (self.all_totals(), self.all_waits());
        let active_ns = totals.on_cpu_ns.saturating_add(wait.total_ns).saturating_add(pending_ns);
        u128::from(active_ns) * 100 >= u128::from(duration_ns) * u128::from(BUSY_THREAD_PERCENT)
    }

    /// True if the task was in another cgroup before, and a recording by an older version does not say what it did there.
    pub fn lacks_former_cgroup(&self) -> bool {
        self.reading.moved_ns.is_some() && self.reading.before_move.is_none() && self.whole.is_none()
    }

    /// True if the task ran, waited or switched in the interval, or ran or waited at its end.
    pub fn did_something(&self) -> bool {
        let (reading, nothing) = (&self.reading, (Totals::default(), Wait::default()));
        let is_active = reading.pending.is_some() || reading.on_cpu;
        is_active || *self.all_totals() != nothing.0 || *self.all_waits() != nothing.1
    }

    /// The name of the policy, if it is a real-time one.
    pub(crate) fn realtime(&self) -> Option<&'static str> {
        self.reading.scheduling.and_then(Scheduling::realtime)
    }

    /// True for a kernel thread whose affinity no user can change.
    pub(crate) fn is_bound(&self) -> bool {
        self.reading.scheduling.is_some_and(|scheduling| scheduling.is_bound)
    }

    /// [`Self::totals`] in whatever cgroups.
    pub fn all_totals(&self) -> &Totals {
        self.whole.as_ref().map_or(&self.totals, |whole| &whole.totals)
    }

    /// [`Self::accounts`] in whatever cgroups.
    pub fn all_accounts(&self) -> Option<&Accounts> {
        self.whole.as_ref().map_or(self.accounts.as_deref(), |whole| whole.accounts.as_deref())
    }

    /// [`Self::wait`] in whatever cgroups.
    pub fn all_waits(&self) -> &Wait {
        self.whole.as_ref().map_or(&self.wait, |whole| &whole.wait)
    }

    fn figures(&self) -> Figures {
        Figures { totals: self.totals, accounts: self.accounts.clone(), wait: self.wait.clone() }
    }

    /// Adds what the task did before, in another cgroup.
    fn add_before(&mut self, figures: &Figures) {
        let mut whole = self.whole.take().unwrap_or_else(|| Box::new(self.figures()));
        whole.add(figures);
        self.whole = Some(whole);
    }

    pub(crate) fn append(&mut self, next: Self) {
        if let Some(whole) = &mut self.whole {
            whole.add(&next.figures());
        }
        self.reading = next.reading;
        self.placement.append(next.placement);
        self.totals.add(&next.totals);
        append_accounts(&mut self.accounts, next.accounts);
        self.wait.add(&next.wait);
    }

    /// Finds out what the task did before it moved. `earlier`: its reading at the start, in another cgroup; `None`: it started in the
    /// interval.
    fn find_before_move(&mut self, earlier: Option<&TaskReading>) {
        let Some(moved) = self.reading.before_move.clone() else { return };
        let mut before = BeforeMove::default();
        if let Some(earlier) = earlier {
            before.add(earlier.before_move.as_deref());
            before.add(Some(&BeforeMove::of(earlier)));
        }
        let since = || Some((moved.totals.since(&before.totals)?, moved.hist.since(&before.hist)?));
        let Some((totals, hist)) = since() else { return };
        // The longest wait is known only for the cgroup.
        let wait = Wait::new(&totals, hist, 0, u64::MAX);
        let accounts = moved.accounts.as_ref().map(|moved| match &before.accounts {
            Some(before) => Arc::new(moved.since(before)),
            None => moved.clone(),
        });
        self.add_before(&Figures { totals, accounts, wait });
    }
}

impl BeforeMove {
    /// What the task did since its latest move.
    fn of(reading: &TaskReading) -> Self {
        Self { totals: reading.totals, accounts: reading.accounts.clone(), hist: reading.hist.clone() }
    }

    fn add(&mut self, more: Option<&Self>) {
        let Some(more) = more else { return };
        self.totals.add(&more.totals);
        append_accounts(&mut self.accounts, more.accounts.clone());
        Arc::make_mut(&mut self.hist).add(&more.hist);
    }
}

/// The name that is shown for exited tasks if only their cgroup is known.
pub const ENDED: &str = "(tasks that ended between two Samples)";

/// The exited tasks of a cgroup over an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ExitedInterval {
    /// The cgroup's id; 0: unknown.
    pub cgroup_id: u64,
    /// Tasks that exited.
    pub tasks: u64,
    /// The readings that were not reported before these tasks exited.
    pub totals: Totals,
    /// The sums of their accounts; `None`: not requested.
    pub accounts: Option<Accounts>,
    /// The waits in these readings.
    pub wait: Wait,
}

impl ExitedInterval {
    fn append(&mut self, next: Self) {
        sum::add(&mut self.tasks, next.tasks);
        self.totals.add(&next.totals);
        accounts::add_known(&mut self.accounts, next.accounts.as_ref());
        self.wait.add(&next.wait);
    }
}

fn append_accounts(sum: &mut Option<Arc<Accounts>>, next: Option<Arc<Accounts>>) {
    match (sum.as_mut(), next) {
        (Some(sum), Some(next)) => Arc::make_mut(sum).add(&next),
        (None, next) => *sum = next,
        (Some(_), None) => {}
    }
}

/// Completed waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Number of waits.
    pub count: u64,
    /// Sum of the waits, ns.
    pub total_ns: u64,
    /// The longest wait, ns: exact if it is the longest in the task's life, else the upper end of its bucket.
    pub max_ns: u64,
    /// Sum of the waits by cause.
    pub by_cause: ByCause,
    /// Distribution of the waits.
    pub hist: Hist,
}

impl Wait {
    pub(crate) fn new(totals: &Totals, hist: Hist, max_before_ns: u64, max_now_ns: u64) -> Self {
        let max_ns = match hist.highest_ns() {
            None => 0,
            // An exited task's longest wait may be from before the interval. It counts only if this histogram has waits of
            // that length.
            Some(highest) if max_now_ns > max_before_ns && max_now_ns <= highest.max(LAST_LOW_NS) => {
                max_now_ns
            }
            Some(highest) => highest.min(max_now_ns),
        };
        Self { count: totals.waits, total_ns: totals.wait_ns, max_ns, by_cause: totals.by_cause, hist }
    }

    /// Adds the waits of another task.
    pub fn add(&mut self, other: &Self) {
        self.add_figures(other);
        self.hist.add(&other.hist);
    }

    /// Adds everything except the distribution.
    fn add_figures(&mut self, other: &Self) {
        sum::add(&mut self.count, other.count);
        sum::add(&mut self.total_ns, other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.by_cause.add(&other.by_cause);
    }

    /// See [`Hist::quantile_ns`].
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        self.hist.quantile_ns(quantile, self.max_ns)
    }

    /// See [`Hist::quantile_low_ns`].
    pub fn quantile_low_ns(&self, quantile: f64) -> Option<u64> {
        self.hist.quantile_low_ns(quantile)
    }
}

impl Interval {
    /// The changes between `a` and `b`, the very next Sample. For a later `b`, [`Skipped`](crate::Skipped) has the missing
    /// rows.
    ///
    /// A task that is only in `b` counts from its start if it started after `a`, and from its move if it moved to another
    /// cgroup after `a`. Otherwise the task has no reading for this interval and is left out. A task with a counter that
    /// decreased is left out, too.
    pub fn between(a: &Sample, b: &Sample) -> Self {
        let one_node = nodes::only_node(&b.cpus).filter(|node| nodes::only_node(&a.cpus) == Some(*node));
        let (mut tasks, idle) = idle::split(&a.tasks, &b.tasks, a.mono_ns, one_node);
        exited_threads::settle(&mut tasks, a, b);
        let mut interval = Self {
            start_unix_ns: a.unix_ns,
            duration_ns: b.mono_ns.saturating_sub(a.mono_ns),
            mode: b.mode,
            sched_ext: SchedExt::between(a.sched_ext.as_ref(), b.sched_ext.as_ref()),
            tasks,
            idle,
            exited: exited_between(&a.exited, &b.exited),
            pairs: culprits::between(&a.pairs, &b.pairs),
            limits: limits::between(&a.limits, &b.limits, a.mono_ns),
            cgroups: later(&a.cgroups, &b.cgroups, |(id, _)| *id),
            cpus: nodes::between(&a.cpus, &b.cpus),
            nodes: b.nodes.clone(),
            one_node,
            memory: b.memory.clone(),
            stacks: stacks::between(&a.stacks, &b.stacks),
            losses: b.losses.since(&a.losses),
            cost: CostInterval::between(&a.cost, &b.cost),
            ..Self::default()
        };
        interval.set_names(&a.containers, &b.containers);
        if interval.mode == Mode::Coarse {
            coarse::attribute(&mut interval);
        }
        interval
    }

    /// Names the cgroups by what the container runtime reported at the start and at the end.
    pub(crate) fn set_names(&mut self, a: &[ContainerReading], b: &[ContainerReading]) {
        self.names = Arc::new(Names::new(&self.cgroups, &later(a, b, |named| named.cgroup_id)));
    }

    /// The BPF scheduler, if it schedules all normal tasks. The kernel then enforces no quota (`cpu.max`) and no weight.
    pub fn scheduler_instead_of_quotas(&self) -> Option<&Arc<str>> {
        SchedExt::instead_of_quotas(self.sched_ext.as_ref())
    }

    /// The path of a cgroup, relative to the mount; `None` if the cgroup was removed before the path could be read.
    pub fn cgroup_path(&self, id: u64) -> Option<&Arc<str>> {
        self.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok().map(|i| &self.cgroups[i].1)
    }

    /// The task that names each process, by process id: the main thread, or any other thread if the main thread has exited.
    pub fn naming_tasks(&self) -> BTreeMap<u32, &TaskReading> {
        let mut names: BTreeMap<u32, &TaskReading> = BTreeMap::new();
        for task in self.readings() {
            let name = names.entry(task.tgid).or_insert(task);
            if task.tid == task.tgid {
                *name = task;
            }
        }
        names
    }

    /// The name of one process; empty if none of its threads is known.
    pub fn process_name(&self, pid: u32) -> &str {
        let threads = || self.readings().filter(|task| task.tgid == pid);
        threads().find(|task| task.tid == pid).or_else(|| threads().next()).map_or("", |task| &task.comm)
    }
}

fn task_between(
    before: Option<&TaskReading>,
    now: &TaskReading,
    since_ns: u64,
    one_node: Option<u32>,
) -> Option<TaskInterval> {
    let (totals, hist) = came(before.map(|before| (&before.totals, &before.hist)), now, since_ns)?;
    let wait = Wait::new(&totals, hist, before.map_or(0, |before| before.max_ns), now.max_ns);
    let placement = match one_node {
        Some(node) => TaskPlacement::on(node, totals.on_cpu_ns),
        None => {
            let before = before.map(|before| before.placement.as_deref());
            TaskPlacement::between(before, now.placement.as_deref())
        }
    };
    let accounts =
        now.accounts.as_ref().map(|now| match before.and_then(|before| before.accounts.as_ref()) {
            Some(before) => Arc::new(now.since(before)),
            None => now.clone(),
        });
    Some(TaskInterval { reading: now.clone(), totals, accounts, wait, placement, whole: None })
}

/// The increase of a task since the earlier reading, or since `since_ns` if there is no earlier reading.
pub(crate) fn came(
    before: Option<(&Totals, &Arc<Hist>)>,
    now: &TaskReading,
    since_ns: u64,
) -> Option<(Totals, Hist)> {
    match before {
        Some((totals, hist)) => {
            let hist = if Arc::ptr_eq(hist, &now.hist) { Hist::default() } else { now.hist.since(hist)? };
            Some((now.totals.since(totals)?, hist))
        }
        None => (now.counts_from_ns() >= since_ns).then(|| (now.totals, (*now.hist).clone())),
    }
}

pub(crate) fn exited_between(a: &[ExitedReading], b: &[ExitedReading]) -> Vec<ExitedInterval> {
    let mut earlier = sum::earlier(a, |exited| exited.cgroup_id);
    b.iter()
        .filter_map(|now| {
            let before = earlier(now.cgroup_id);
            let (totals, tasks, hist, max_before_ns) = match before {
                Some(before) => (
                    now.totals.since(&before.totals)?,
                    now.tasks.checked_sub(before.tasks)?,
                    now.hist.since(&before.hist)?,
                    before.max_ns,
                ),
                None => (now.totals, now.tasks, (*now.hist).clone(), 0),
            };
            let wait = Wait::new(&totals, hist, max_before_ns, now.max_ns);
            // The exit of a task may be read in parts; a late part reports no exited task.
            let nothing = tasks == 0 && totals == Totals::default() && wait.hist.is_empty();
            let accounts = now.accounts.as_deref().map(|now| {
                let before = before.and_then(|before| before.accounts.as_deref());
                let between = now.since(before.unwrap_or(&Accounts::default()));
                // The sum was scaled over all exited tasks so far: the increase is split again in proportion to its ticks.
                Accounts { cpu: between.cpu.scaled_to(totals.on_cpu_ns), ..between }
            });
            (!nothing).then_some(ExitedInterval { cgroup_id: now.cgroup_id, tasks, totals, accounts, wait })
        })
        .collect()
}

/// Merges the rows of two Samples, which ascend by `key`: a cgroup removed in the interval is only in `a`; the later row wins.
pub(crate) fn later<T: Clone>(a: &[T], b: &[T], key: impl Fn(&T) -> u64) -> Vec<T> {
    let mut rows = Vec::with_capacity(b.len());
    let mut earlier = a.iter().peekable();
    for now in b {
        rows.extend(std::iter::from_fn(|| earlier.next_if(|before| key(before) < key(now))).cloned());
        earlier.next_if(|before| key(before) == key(now));
        rows.push(now.clone());
    }
    rows.extend(earlier.cloned());
    rows
}
