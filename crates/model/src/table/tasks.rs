//! Tasks: their readings, and their figures over an interval.

mod exited_threads;
mod idle;

use std::{collections::BTreeSet, sync::Arc};

use serde::{Serialize, Serializer};

use crate::table::{Selected, Table, cpus::only_node, exited::add_exited, merge};
use crate::{
    Accounts, ByCause, ExitedThreads, Hist, Interval, Placement, Sample, Wait, accounts,
    placement::TaskPlacement, sum,
};

table! {
    /// The table: one row per followed task.
    Tasks: Arc<TaskReading>, by u64: |row| row.serial, "its tasks are not in the order of their serials";

    fn between(a: &Sample, b: &Sample, into: &mut Interval) {
        into.one_node = only_node(&b.cpus).filter(|node| only_node(&a.cpus) == Some(*node));
        (into.tasks, into.idle) = idle::split(&a.tasks, &b.tasks, a.mono_ns, into.one_node);
        exited_threads::settle(&mut into.tasks, a, b);
    }

    fn append(into: &mut Interval, next: &mut Interval) {
        into.wake(&next.tasks);
        next.wake(&into.tasks);
        // A task that still exists gets its later reading below. An exited task does not wait and has no state.
        for reading in into.tasks.iter_mut().map(|task| &mut task.reading) {
            (reading.pending, reading.on_cpu, reading.state) = (None, false, None);
        }
        merge(&mut into.tasks, &mut next.tasks, |task| task.reading.serial, TaskInterval::append);
        into.append_idle(std::mem::take(&mut next.idle));
        into.join_moved(true);
        into.one_node = next.one_node;
    }

    fn select(interval: &mut Interval, selected: &Selected<'_>) {
        if selected.cgroups.is_some() || selected.filter.is_by_task() {
            interval.tasks.retain(|task| selected.has_task(&task.reading));
            interval.idle.retain(|task| selected.has_task(task));
        }
        // The work of exited threads is known only by process, not by thread.
        let is_by_thread = selected.filter.is_by_task() || !selected.filter.selection.tids.is_empty();
        let accounts = interval.tasks.iter_mut().filter_map(|task| task.accounts.as_mut());
        for accounts in accounts.filter(|_| is_by_thread) {
            if accounts.exited_threads != ExitedThreads::default() {
                Arc::make_mut(accounts).exited_threads = ExitedThreads::default();
            }
        }
    }
}

/// A thread is busy from this share of the interval on, running or waiting, percent. Idle threads do not compete for a quota.
pub const BUSY_THREAD_PERCENT: u64 = 1;

/// The reading of one task. The order of fields keeps all data that is read of each idle task in each interval in one cache line.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskReading {
    /// Unique id of the task; unlike a tid, it is never reused.
    pub serial: u64,
    /// The cgroup's id; 0: unknown.
    pub cgroup_id: u64,
    /// Accounts of the time outside the waits; `None`: not requested. Not recorded.
    pub accounts: Option<Arc<Accounts>>,
    pub tid: u32,
    pub tgid: u32,
    /// The CPU that the task is on, or its last CPU.
    pub cpu: u32,
    pub on_cpu: bool,
    /// The current state: running if the task is on a CPU or waits for one, whatever state the kernel stores. `None`: unknown, as
    /// in older recordings. In the coarse mode, this is the state when the task last ran or was first seen. So a task that was
    /// woken but has not run since then is still shown as sleeping.
    pub state: Option<TaskState>,
    /// The task's scheduling policy; `None`: the task was never busy, or the policy was not read.
    pub scheduling: Option<Scheduling>,
    /// Set while the task waits for a CPU. Few tasks wait, so other tasks need no space for it.
    pub pending: Option<Arc<Pending>>,
    pub comm: Arc<str>,
    /// Start time, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Time at which the task was first read in its cgroup, ns of CLOCK_MONOTONIC. `None`: it started there, or was there before
    /// cgscope started. Each move to another cgroup gives it a new `serial`. Earlier readings stay with the old cgroup.
    pub moved_ns: Option<u64>,
    /// The followed work before that move; `None`: the task did not move, or an older version wrote the recording.
    pub before_move: Option<Arc<BeforeMove>>,
    /// The NUMA node of `cpu`, if the host reports it.
    pub node: Option<u32>,
    /// The nodes and CPUs that the task used and may use; `None`: not read.
    pub placement: Option<Arc<Placement>>,
    /// Longest completed wait so far, ns.
    pub max_ns: u64,
    pub totals: Totals,
    /// Completed waits so far. Shared with the previous Sample if no wait was added.
    pub hist: Arc<Hist>,
}

impl TaskReading {
    /// Returns the time from which the readings count from 0, ns of CLOCK_MONOTONIC.
    pub fn counts_from_ns(&self) -> u64 {
        self.moved_ns.unwrap_or(self.start_ns)
    }

    /// Returns the length of the pending wait so far, ns; `None`: the task does not wait.
    pub fn pending_ns(&self) -> Option<u64> {
        self.pending.as_ref().map(|pending| pending.ns)
    }
}

/// A task's work before its latest move to another cgroup. It counts for the earlier cgroups, and in the task's own row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeMove {
    pub totals: Totals,
    /// Accounts of the time outside the waits; `None`: not requested. Not recorded.
    pub accounts: Option<Arc<Accounts>>,
    pub hist: Arc<Hist>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// The kernel's policy number (`sched_getscheduler`): 1 is SCHED_FIFO.
    pub policy: u8,
    /// True for a kernel thread that is bound to some CPUs and whose affinity cannot be changed (PF_NO_SETAFFINITY).
    pub is_bound: bool,
}

impl Scheduling {
    /// Returns the name of the policy if it is a real-time policy. `cpu.weight` and `cpu.max` do not apply to real-time tasks.
    pub fn realtime(self) -> Option<&'static str> {
        match self.policy {
            1 => Some("SCHED_FIFO"),
            2 => Some("SCHED_RR"),
            6 => Some("SCHED_DEADLINE"),
            _ => None,
        }
    }
}

/// A wait that has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    pub ns: u64,
    /// The part that the kernel has already added to its own sum: the wait on another CPU before a migration.
    pub booked_ns: u64,
    /// The wait so far by cause. The parts sum to `ns`.
    pub by_cause: ByCause,
}

/// One task over an interval. If the task moved to another cgroup, the figures count from its latest move, for its last cgroup.
/// The task's own row shows all its work: see [`Self::all_totals`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskInterval {
    /// The reading at the end.
    pub reading: TaskReading,
    /// The increase over the interval.
    pub totals: Totals,
    pub accounts: Option<Arc<Accounts>>,
    /// Waits completed in the interval.
    pub wait: Wait,
    pub placement: TaskPlacement,
    /// All work in the interval, if the task moved to another cgroup. [`Interval::exited`] also contains the work before the
    /// move. `None`: the task did not move, or an older recording lacks its work before the move.
    pub whole: Option<Box<Figures>>,
}

/// A task's work in an interval; see [`TaskInterval`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub totals: Totals,
    pub accounts: Option<Arc<Accounts>>,
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
    /// True if the task ran or waited for at least [`BUSY_THREAD_PERCENT`] percent of the interval. Any program has idle threads,
    /// which do not count.
    pub fn is_busy(&self, duration_ns: u64) -> bool {
        // A pending wait may have begun long before the interval.
        let pending_ns = self.reading.pending_ns().unwrap_or(0).min(duration_ns);
        let (totals, wait) = (self.all_totals(), self.all_waits());
        let active_ns = totals.on_cpu_ns.saturating_add(wait.total_ns).saturating_add(pending_ns);
        u128::from(active_ns) * 100 >= u128::from(duration_ns) * u128::from(BUSY_THREAD_PERCENT)
    }

    /// True if the task was in another cgroup before, and an older recording lacks its work there.
    pub fn lacks_former_cgroup(&self) -> bool {
        self.reading.moved_ns.is_some() && self.reading.before_move.is_none() && self.whole.is_none()
    }

    /// True if the task ran, waited or switched in the interval, or ran or waited at its end.
    pub fn did_something(&self) -> bool {
        let (reading, nothing) = (&self.reading, (Totals::default(), Wait::default()));
        let is_active = reading.pending.is_some() || reading.on_cpu;
        is_active || *self.all_totals() != nothing.0 || *self.all_waits() != nothing.1
    }

    pub(crate) fn realtime(&self) -> Option<&'static str> {
        self.reading.scheduling.and_then(Scheduling::realtime)
    }

    /// True for a kernel thread whose affinity no user can change.
    pub(crate) fn is_bound(&self) -> bool {
        self.reading.scheduling.is_some_and(|scheduling| scheduling.is_bound)
    }

    /// Returns [`Self::totals`], but over all cgroups of the task.
    pub fn all_totals(&self) -> &Totals {
        self.whole.as_ref().map_or(&self.totals, |whole| &whole.totals)
    }

    /// Returns [`Self::accounts`], but over all cgroups of the task.
    pub fn all_accounts(&self) -> Option<&Accounts> {
        self.whole.as_ref().map_or(self.accounts.as_deref(), |whole| whole.accounts.as_deref())
    }

    /// Returns [`Self::wait`], but over all cgroups of the task.
    pub fn all_waits(&self) -> &Wait {
        self.whole.as_ref().map_or(&self.wait, |whole| &whole.wait)
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures { totals: self.totals, accounts: self.accounts.clone(), wait: self.wait.clone() }
    }

    fn add_before(&mut self, figures: &Figures) {
        let mut whole = self.whole.take().unwrap_or_else(|| Box::new(self.figures()));
        whole.add(figures);
        self.whole = Some(whole);
    }

    fn append(&mut self, next: Self) {
        if let Some(whole) = &mut self.whole {
            whole.add(&next.figures());
        }
        self.reading = next.reading;
        self.placement.append(next.placement);
        self.totals.add(&next.totals);
        append_accounts(&mut self.accounts, next.accounts);
        self.wait.add(&next.wait);
    }

    /// Adds the task's work before its move. `earlier`: its reading at the start, elsewhere; `None`: started in the interval.
    fn find_before_move(&mut self, earlier: Option<&TaskReading>) {
        let Some(moved) = self.reading.before_move.clone() else { return };
        let mut before = BeforeMove::default();
        if let Some(earlier) = earlier {
            before = earlier.before_move.as_deref().cloned().unwrap_or_default();
            before.totals.add(&earlier.totals);
            append_accounts(&mut before.accounts, earlier.accounts.clone());
            Arc::make_mut(&mut before.hist).add(&earlier.hist);
        }
        let since = || Some((moved.totals.since(&before.totals)?, moved.hist.since(&before.hist)?));
        let Some((totals, hist)) = since() else { return };
        // The longest wait is known only for the last cgroup.
        let wait = Wait::new(&totals, hist, 0, u64::MAX);
        let accounts = accounts::since(moved.accounts.as_ref(), before.accounts.as_ref());
        self.add_before(&Figures { totals, accounts, wait });
    }
}

pub(crate) fn append_accounts(sum: &mut Option<Arc<Accounts>>, next: Option<Arc<Accounts>>) {
    sum::add_known(sum, next, |sum, next| Arc::make_mut(sum).add(&next));
}

fn task_between(
    before: Option<&TaskReading>,
    now: &TaskReading,
    since_ns: u64,
    one_node: Option<u32>,
) -> Option<TaskInterval> {
    let (totals, hist) = came(before, now, since_ns)?;
    let wait = Wait::new(&totals, hist, before.map_or(0, |before| before.max_ns), now.max_ns);
    let placement = match one_node {
        Some(node) => TaskPlacement::on(node, totals.on_cpu_ns),
        None => {
            TaskPlacement::between(before.map(|before| before.placement.as_deref()), now.placement.as_deref())
        }
    };
    let accounts = accounts::since(now.accounts.as_ref(), before.and_then(|before| before.accounts.as_ref()));
    Some(TaskInterval { reading: now.clone(), totals, accounts, wait, placement, whole: None })
}

/// Returns the increase of a task since the earlier reading, or since `since_ns` if there is no earlier reading.
pub(crate) fn came(before: Option<&TaskReading>, now: &TaskReading, since_ns: u64) -> Option<(Totals, Hist)> {
    let Some(before) = before else {
        return (now.counts_from_ns() >= since_ns).then(|| (now.totals, (*now.hist).clone()));
    };
    let is_same = Arc::ptr_eq(&before.hist, &now.hist);
    let hist = if is_same { Hist::default() } else { now.hist.since(&before.hist)? };
    Some((now.totals.since(&before.totals)?, hist))
}

/// Returns a function that finds a task in another Sample. `tasks` and the passed tasks must ascend by serial. A reading that
/// both Samples share is found without access to its memory.
pub(crate) fn same_task<'a>(
    tasks: &'a [Arc<TaskReading>],
) -> impl FnMut(&Arc<TaskReading>) -> Option<&'a Arc<TaskReading>> {
    let mut rest = tasks.iter().peekable();
    move |wanted| {
        rest.next_if(|task| Arc::ptr_eq(task, wanted)).or_else(|| {
            while rest.next_if(|task| task.serial < wanted.serial).is_some() {}
            rest.next_if(|task| task.serial == wanted.serial)
        })
    }
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Cumulative figures of one task, or their differences, or sums over many tasks. Times in ns.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// Time of completed waits by cause, ns. The parts sum to `wait_ns`.
            pub by_cause: ByCause,
        }

        impl Totals {
            /// Returns the increase since `before`; `None` if a counter decreased, which means that there is no reading.
            pub fn since(&self, before: &Self) -> Option<Self> {
                Some(Self {
                    $($name: self.$name.checked_sub(before.$name)?,)*
                    by_cause: self.by_cause.since(&before.by_cause)?,
                })
            }

            pub fn add(&mut self, other: &Self) {
                $(crate::sum::add(&mut self.$name, other.$name);)*
                self.by_cause.add(&other.by_cause);
            }
        }
    };
}

macro_rules! of_wire {
    ($(#[$waits:meta])* waits, $(#[$wait_ns:meta])* wait_ns, $($(#[$doc:meta])* $name:ident,)*) => {
        impl Totals {
            /// Returns the kernel's totals and the number and sum of the waits. The hook adds to the histogram and to the causes one
            /// after the other, so a reading may contain only some of these additions.
            pub fn of(wire: &cgscope_ledger::wire::Totals, hist: &Hist) -> Self {
                let by_cause = ByCause(wire.by_cause);
                Self { waits: hist.count(), wait_ns: by_cause.total(), $($name: wire.$name,)* by_cause }
            }
        }
    };
}

cgscope_ledger::totals!(totals);
cgscope_ledger::totals!(of_wire);

impl Interval {
    /// Adds the tasks to a longer interval that was built by appending intervals without tasks. This needs only the first and
    /// last reading of each task. `before` and `now` are the tasks of the first and last Sample, ascending by serial. `late` are
    /// the first readings of tasks that were not read from their start on. `exited` are the last readings of tasks that were in a
    /// Sample in between but not in the last Sample. The sums equal those of appended intervals. `max_ns` may be more exact, and
    /// a task counts in its last cgroup.
    pub fn with_tasks(
        mut self,
        since_ns: u64,
        mut before: Vec<Arc<TaskReading>>,
        late: Vec<Arc<TaskReading>>,
        now: &[Arc<TaskReading>],
        mut exited: Vec<Arc<TaskReading>>,
    ) -> Self {
        for task in exited.iter_mut().map(Arc::make_mut) {
            (task.pending, task.on_cpu, task.state) = (None, false, None);
        }
        // A task that disappeared and returned is in `now`. If a task disappeared twice, its last reading counts.
        let mut last: Vec<_> = now.iter().chain(exited.iter().rev()).collect();
        last.sort_by_key(|task| task.serial);
        last.dedup_by_key(|task| task.serial);
        // If a task existed at the start or appeared twice, its first reading counts.
        before.extend(late);
        before.sort_by_key(|task| task.serial);
        before.dedup_by_key(|task| task.serial);
        (self.tasks, self.idle) = idle::split(&before, last, since_ns, self.one_node);
        // The later row counts from the first reading, so it already includes the figures of the earlier row.
        self.join_moved(false);
        self
    }

    /// Joins the rows of each task that moved to another cgroup. The work before the move stays with the earlier cgroup. `adds`:
    /// the later row does not include the figures of the earlier rows.
    pub(super) fn join_moved(&mut self, adds: bool) {
        let moved = || self.tasks.iter().map(|task| &task.reading).filter(|task| task.moved_ns.is_some());
        let idle = moved().filter_map(|task| idle::before_it_moved(&self.idle, task)).map(|idle| idle.serial);
        let idle: BTreeSet<u64> = idle.collect();
        if !idle.is_empty() {
            self.idle.retain(|task| !idle.contains(&task.serial));
        }
        // Each move adds one to the serial, so the rows of one task are neighbours.
        let is_moved = |pair: &[TaskInterval]| idle::has_moved(&pair[0].reading, &pair[1].reading);
        if !self.tasks.windows(2).any(is_moved) {
            return;
        }
        let mut joined: Vec<TaskInterval> = Vec::with_capacity(self.tasks.len());
        for mut task in std::mem::take(&mut self.tasks) {
            if let Some(before) = joined.pop_if(|before| idle::has_moved(&before.reading, &task.reading)) {
                let figures = before.figures();
                if adds {
                    task.add_before(before.whole.as_deref().unwrap_or(&figures));
                }
                add_exited(&mut self.exited, before.reading.cgroup_id, figures);
            }
            joined.push(task);
        }
        self.tasks = joined;
    }
}

cgscope_ledger::named! {
    /// State of a task. The crates that read the kernel's state bits map them to these states.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum TaskState (letter, name) {
        /// Letter in `/proc/PID/stat`, which ps and psn print.
        letter: char,
        /// Name in `/proc/PID/status`.
        name: &'static str,
    }

    /// R: on a CPU, or runnable and waiting for one.
    Running = 'R', "running";
    /// S: sleeps until an event or a signal.
    Sleeping = 'S', "sleeping";
    /// D: sleeps and ignores signals, mostly for I/O or a lock. Counts towards the load average.
    DiskSleep = 'D', "disk sleep";
    /// I: an idle kernel thread. Sleeps as in D, but does not count towards the load average.
    Idle = 'I', "idle";
    /// T: stopped by a signal.
    Stopped = 'T', "stopped";
    /// t: stopped by its tracer.
    Traced = 't', "tracing stop";
    /// P: a kernel thread that must not run, for example that of an offline CPU.
    Parked = 'P', "parked";
    /// Z: has exited, but the parent has not waited for the exit yet.
    Zombie = 'Z', "zombie";
    /// X: has exited, and no process will wait for the exit.
    Dead = 'X', "dead";
}

impl TaskState {
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.letter() == letter)
    }
}

impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_char(self.letter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// With its two reference counts, the C library takes 304 bytes for it. Eight bytes more, and it takes 320.
    #[test]
    fn a_reading_takes_280_bytes() {
        assert_eq!(size_of::<TaskReading>(), 280);
    }

    #[test]
    fn every_state_has_a_letter_and_a_name_of_its_own() {
        let letters: String = TaskState::ALL.iter().map(|state| state.letter()).collect();
        assert_eq!(letters, "RSDITtPZX");
        for state in TaskState::ALL.iter().copied() {
            assert_eq!(TaskState::from_letter(state.letter()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.letter().to_string());
        }
        let names: BTreeSet<&str> = TaskState::ALL.iter().map(|state| state.name()).collect();
        assert_eq!(names.len(), TaskState::ALL.len());
        assert_eq!(TaskState::from_letter('r'), None);
    }
}
