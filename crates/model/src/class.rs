//! Classes: what keeps a target from being faster, in one word and one sentence.
//!
//! The base of every share is the time of active threads, so that idle threads do not hide busy ones (see `Activity`).
//! `docs/figures.md` explains the rules. The functions at the end hold their text.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, sync::Arc};

use cgscope_ledger::{BlockedState, Cause};
use serde::Serialize;

pub use crate::blocked_kind::Class;
use crate::causes::{Behind, MORE_CPUS, Shown, TABLE};
use crate::findings::{BELOW_LIMIT_PERCENT, BUSY_THREAD_PERCENT, REALTIME_PERCENT, chains_of};
use crate::sum::{self, is_share};
use crate::words::{list, raise};
use crate::{
    BlockedKind, BlockedOn, BlockedTime, ByCause, ByState, CgroupReading, ExitedInterval, Interval,
    TaskInterval, Tree, units,
};

/// A target is idle if its active threads wait for work for at least this share of their time, percent.
pub const IDLE_PERCENT: u64 = 50;
/// A class is named alone if it takes at least this share of the needed time, percent. The needed time is all time except waiting
/// for work. Removing all other classes would then reduce the needed time by less than half.
pub const DOMINANT_PERCENT: u64 = 60;
/// Otherwise, each class with at least this share is named, percent. Removing a smaller class would save less than a fifth.
pub const MIXED_PERCENT: u64 = 20;
/// A target is quota-bound if it was throttled for at least this share of the time that it ran or wanted to run, percent. This
/// limit is lower than the limit for contention, because changing a setting costs less than hardware.
pub const QUOTA_PERCENT: u64 = 10;
/// A target is contended if it was queued or waking up for at least this share of the time that it ran or wanted to run, percent.
/// Some waiting is normal where CPUs are well used.
pub const CONTENDED_PERCENT: u64 = 20;
/// Shortest time to judge, ns. A shorter time has no class, unless the interval is longer. For comparison: a quota's period is
/// 100 ms by default, and a time slice takes some ms.
pub const TOO_SHORT_NS: u64 = 50_000_000;
/// More CPU does not help if throttling and run queues take less than this share of the time, percent.
pub const MORE_CPU_PERCENT: u64 = 10;
/// A thread is idle, and does not limit the target, if it ran or wanted to run for less of the busiest thread's time, percent.
pub const BESIDE_BUSIEST_PERCENT: u64 = 10;
/// The sentence names parts of the time from this share on, percent.
pub const NAMED_PERCENT: u64 = 5;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    pub path: Arc<str>,
    /// The quota in CPUs; `None`: unknown.
    pub cores: Option<f64>,
    /// True if the cgroup used [`BELOW_LIMIT_PERCENT`] of the quota. Then the target is quota-bound despite sleeping threads.
    pub used_up: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Classified {
    /// One class, or several classes for a mixed case, the largest first. Empty if too little is known.
    pub classes: Vec<Class>,
    /// One sentence without a full stop: the figures and the advice.
    pub says: String,
}

fn verdict(activity: &Activity, quota: Option<&Quota>) -> Classified {
    let needed_ns = activity.time_ns() - activity.blocked.for_work();
    if activity.duration_ns < TOO_SHORT_NS && needed_ns < TOO_SHORT_NS {
        return Classified { classes: Vec::new(), says: TOO_SHORT.into() };
    }
    let is_bound = quota.is_some_and(|quota| quota.used_up) && is_throttled(activity);
    let classes = if is_bound { vec![Class::QuotaBound] } else { classes(activity, needed_ns) };
    Classified { says: sentence(&classes, activity, quota), classes }
}

fn classes(activity: &Activity, needed_ns: u64) -> Vec<Class> {
    let all_ns = activity.time_ns();
    let blocked = [Class::IoBound, Class::LockBound, Class::Blocked];
    let mut named = vec![(activity.wanted_ns(), wanting(activity))];
    named.extend(blocked.map(|class| (activity.blocked_ns(class), vec![class])));
    named.retain(|(ns, _)| is_share(*ns, needed_ns, MIXED_PERCENT));
    named.sort_by_key(|(ns, _)| Reverse(*ns));
    if named.first().is_some_and(|(ns, _)| is_share(*ns, needed_ns, DOMINANT_PERCENT)) {
        named.truncate(1);
    }
    let mut classes: Vec<_> = named.into_iter().flat_map(|(_, classes)| classes).collect();
    // Unknown blocked time cannot change the class if one thread is on a CPU for this share of the time.
    if activity.is_partial() && !is_share(activity.busiest_ns, activity.duration_ns, DOMINANT_PERCENT) {
        classes.retain(|class| *class != Class::CpuBound);
    }
    if activity.threads == 0 || is_share(all_ns - needed_ns, all_ns, IDLE_PERCENT) {
        // An idle target also loses time while it waits for a CPU.
        classes.retain(|class| match class {
            Class::QuotaBound => is_share(activity.by_cause.get(Cause::Throttled), all_ns, MORE_CPU_PERCENT),
            Class::Contended => is_share(activity.in_line_ns(), all_ns, MORE_CPU_PERCENT),
            _ => false,
        });
        classes.insert(0, Class::Idle);
    }
    classes
}

fn is_throttled(activity: &Activity) -> bool {
    is_share(activity.by_cause.get(Cause::Throttled), activity.wanted_ns(), QUOTA_PERCENT)
}

/// Returns the classes for the time that the target ran or wanted to run.
fn wanting(activity: &Activity) -> Vec<Class> {
    let (throttled_ns, in_line_ns) = (activity.by_cause.get(Cause::Throttled), activity.in_line_ns());
    match (is_throttled(activity), is_share(in_line_ns, activity.wanted_ns(), CONTENDED_PERCENT)) {
        (false, false) => vec![Class::CpuBound],
        (true, false) => vec![Class::QuotaBound],
        (false, true) => vec![Class::Contended],
        (true, true) if in_line_ns > throttled_ns => vec![Class::Contended, Class::QuotaBound],
        (true, true) => vec![Class::QuotaBound, Class::Contended],
    }
}

#[derive(Clone, Debug)]
pub struct Classes<'a> {
    pub interval: &'a Interval,
    pub tree: &'a Tree,
    pub blocked: &'a BlockedOn,
    /// Ids of the cgroup `/`.
    roots: Vec<u64>,
    /// Sums of exited tasks, each with the node of their cgroup, ascending by node.
    exited: Vec<(usize, &'a ExitedInterval)>,
    /// For whom cgroups sleep: the path of each, and the words.
    sleeps: Vec<(Option<Arc<str>>, String)>,
}

impl<'a> Classes<'a> {
    /// Prepares the classes of `interval`. `tree` and `blocked` must belong to the same interval.
    pub fn new(interval: &'a Interval, tree: &'a Tree, blocked: &'a BlockedOn) -> Self {
        let roots = interval.cgroups.iter().filter(|(_, path)| &**path == "/").map(|(id, _)| *id);
        let placed = |exited: &'a ExitedInterval| Some((tree.find_id(interval, exited.cgroup_id)?, exited));
        let mut exited: Vec<_> = interval.exited.iter().filter_map(placed).collect();
        exited.sort_by_key(|(node, _)| *node);
        let sleeps =
            chains_of(interval, tree).into_iter().map(|finding| (finding.cgroup, finding.what)).collect();
        Self { interval, tree, blocked, roots: roots.collect(), exited, sleeps }
    }

    pub fn threads(&self, tasks: &[&TaskInterval]) -> Classified {
        let mut activity = Activity::of(tasks, self, false);
        let node = tasks.first().and_then(|task| self.tree.find_id(self.interval, task.reading.cgroup_id));
        activity.sleeps = node.and_then(|node| self.sleeps_of(node));
        verdict(&activity, self.quota_of(tasks, &activity).as_ref())
    }

    /// Returns the class of a cgroup with its descendants, including exited tasks. `node` is the index of the cgroup in the tree.
    pub fn cgroup(&self, node: usize) -> Classified {
        let tasks: Vec<_> = self.interval.tasks_at(self.tree.tasks_below(node)).collect();
        let below = self.tree.below(node);
        let first = self.exited.partition_point(|(at, _)| *at < below.start);
        let end = self.exited.partition_point(|(at, _)| *at < below.end);
        let exited = self.exited[first..end].iter().map(|(_, exited)| *exited);
        let mut activity = Activity::of(&tasks, self, true);
        activity.add_exited(exited, &BlockedTime::default(), self);
        activity.sleeps = self.sleeps_of(node);
        verdict(&activity, self.quota_at(node, &tasks, &activity).as_ref())
    }

    pub fn total(&self) -> Classified {
        let tasks: Vec<_> = self.interval.tasks.iter().collect();
        let is_wide = !self.interval.is_selection || self.interval.selected_cgroup.is_some();
        let mut activity = Activity::of(&tasks, self, is_wide);
        // For exited tasks, only one total of stacks is known.
        activity.add_exited(&self.interval.exited, &self.blocked.exited.unwrap_or_default(), self);
        let quota = (!self.tree.nodes().is_empty()).then(|| self.quota_at(0, &tasks, &activity)).flatten();
        verdict(&activity, quota.as_ref())
    }

    /// Returns for whom the cgroup sleeps, who is kept from running.
    fn sleeps_of(&self, node: usize) -> Option<String> {
        let path = &self.tree.nodes()[node].path;
        self.sleeps.iter().find(|(of, _)| of.as_ref() == Some(path)).map(|(_, what)| format!("it {what}"))
    }

    fn quota_at(&self, node: usize, tasks: &[&TaskInterval], activity: &Activity) -> Option<Quota> {
        let node = &self.tree.nodes()[node];
        let is_recorded = node.throttled_by.iter().any(|(by, _)| by.is_some());
        let of_tasks = if is_recorded { None } else { self.quota_of(tasks, activity) };
        of_tasks.or_else(|| Some(self.quota(node.limited_by?, activity)))
    }

    /// Finds the thread that was throttled most, and returns the quota that throttled that thread longest.
    fn quota_of(&self, tasks: &[&TaskInterval], activity: &Activity) -> Option<Quota> {
        let most = tasks.iter().max_by_key(|task| task.wait.by_cause.get(Cause::Throttled))?;
        let node = self.tree.find_id(self.interval, most.reading.cgroup_id)?;
        Some(self.quota(self.tree.nodes()[node].limited_by?, activity))
    }

    fn quota(&self, node: usize, activity: &Activity) -> Quota {
        let limits = self.tree.limits(self.interval, node);
        let cores = limits.and_then(CgroupReading::quota_cores);
        // The measurement may miss a part of the cgroup's usage, or may begin before the cgroup's counters do.
        let used_ns = limits.and_then(|limits| limits.usage_ns).unwrap_or(0).max(activity.on_cpu_ns);
        let used_percent = used_ns as f64 * 100.0 / self.interval.duration_ns as f64;
        let used_up = cores.is_some_and(|cores| used_percent >= cores * BELOW_LIMIT_PERCENT as f64);
        Quota { path: self.tree.nodes()[node].path.clone(), cores, used_up }
    }
}

/// Times of threads, ns, summed over the threads. The parts sum to the threads' lifetime, as far as it is known. A thread is
/// active in two cases. First, it ran or waited for a CPU for [`BUSY_THREAD_PERCENT`] of the interval and for
/// [`BESIDE_BUSIEST_PERCENT`] of the busiest thread's time. Second, it was in uninterruptible sleep (I/O, kernel locks) for
/// [`BUSY_THREAD_PERCENT`] of the interval. Such sleep does not count if the thread waits for work (the parent of a vfork), or if
/// it is a kernel thread and the target is a cgroup or the host. If no thread is active, all threads count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    pub duration_ns: u64,
    /// Number of active threads and exited tasks. If it is 0, the sums below include all threads.
    pub threads: u64,
    pub on_cpu_ns: u64,
    pub by_cause: ByCause,
    /// The part of `own_cgroup` waits of tasks in `/`. On many hosts, `/` holds all tasks without a cgroup of their own.
    pub behind_root_ns: u64,
    /// The part of `other_cgroup` waits of real-time tasks.
    pub realtime_ns: u64,
    /// Blocked time by kind; for exited tasks, only known kinds.
    pub blocked: BlockedTime,
    /// Blocked time of exited tasks whose kind is unknown. Most of it may belong to idle threads.
    pub left_out_ns: u64,
    /// True if the blocked time of some threads is unknown, and therefore missing in `blocked`.
    pub has_unread: bool,
    /// Time that the busiest thread ran or waited for a CPU. Exited tasks count as one thread.
    pub busiest_ns: u64,
    /// For whom the target sleeps, who is kept from running, in words.
    pub sleeps: Option<String>,
}

impl Activity {
    /// Computes the activity. In a wide target, a cgroup or the host, uninterruptible sleep does not make kernel threads active.
    pub(crate) fn of(tasks: &[&TaskInterval], classes: &Classes, is_wide: bool) -> Self {
        let duration_ns = classes.interval.duration_ns;
        let tasks: Vec<_> = tasks.iter().map(|task| (task, Self::of_task(task, classes))).collect();
        let most_ns = tasks.iter().map(|(_, activity)| activity.busiest_ns).max().unwrap_or(0);
        let empty = Self { duration_ns, ..Self::default() };
        let (mut active, mut all) = (empty.clone(), empty);
        for (task, activity) in tasks {
            all.add(&activity);
            let keeps_pace = is_share(activity.busiest_ns, most_ns, BESIDE_BUSIEST_PERCENT);
            let is_kernel = is_wide && classes.blocked.is_kernel_thread(task.reading.serial);
            if task.is_busy(duration_ns) && keeps_pace || !is_kernel && is_stuck(task, classes) {
                active.add(&activity);
                active.threads += 1;
            }
        }
        if active.threads == 0 { all } else { active }
    }

    /// Adds exited tasks. `stacks`: what the exited tasks were blocked on, as far as their stacks are known. Only the sums of
    /// exited tasks are known. So they count as active if one thread with these sums would be active.
    pub(crate) fn add_exited<'a>(
        &mut self,
        exited: impl IntoIterator<Item = &'a ExitedInterval>,
        stacks: &BlockedTime,
        classes: &Classes,
    ) {
        let (mut ended, mut tasks, mut by_state) = (Self::default(), 0, ByState::default());
        for exited in exited {
            let blocked = exited.accounts.and_then(|accounts| accounts.blocked);
            ended.add(&Self {
                has_unread: exited.tasks != 0 && blocked.is_none(),
                ..Self::new(exited.totals.on_cpu_ns, exited.wait.by_cause, exited.cgroup_id, classes)
            });
            sum::add(&mut tasks, exited.tasks);
            by_state.add(&blocked.unwrap_or_default());
        }
        ended.busiest_ns = ended.wanted_ns();
        let are_active = tasks != 0 && is_share(ended.busiest_ns, self.duration_ns, BUSY_THREAD_PERCENT);
        if self.threads == 0 && are_active {
            *self = Self { duration_ns: self.duration_ns, ..Self::default() };
        }
        if are_active || self.threads == 0 && tasks != 0 {
            (ended.blocked, ended.left_out_ns) = known(&by_state, stacks);
        }
        self.add(&ended);
        if self.threads != 0 || are_active {
            sum::add(&mut self.threads, tasks);
        }
    }

    /// True if some blocked time is unknown or left out.
    pub fn is_partial(&self) -> bool {
        let all_ns = self.time_ns().saturating_add(self.left_out_ns);
        self.has_unread || is_share(self.left_out_ns, all_ns, NAMED_PERCENT)
    }

    pub fn time_ns(&self) -> u64 {
        self.wanted_ns().saturating_add(self.blocked.total())
    }

    /// Returns the time on a CPU or waiting for one.
    pub fn wanted_ns(&self) -> u64 {
        self.on_cpu_ns.saturating_add(self.by_cause.total())
    }

    /// Returns the time on a run queue or waking up.
    pub fn in_line_ns(&self) -> u64 {
        self.by_cause.total().saturating_sub(self.by_cause.limited_ns())
    }

    /// Returns the time on a run queue, including unknown causes.
    pub fn queued_ns(&self) -> u64 {
        self.in_line_ns().saturating_sub(self.by_cause.get(Cause::Wakeup))
    }

    pub fn blocked_ns(&self, class: Class) -> u64 {
        let kinds = self.blocked.iter().filter(|(kind, _)| kind.class() == class);
        sum::total(kinds.map(|(_, ns)| ns))
    }

    fn of_task(task: &TaskInterval, classes: &Classes) -> Self {
        let mut by_cause = task.wait.by_cause;
        if let Some(pending) = &task.reading.pending {
            // A pending wait may have begun long before the interval.
            by_cause.add(&pending.by_cause.at_most(classes.interval.duration_ns));
        }
        let activity = Self::new(task.totals.on_cpu_ns, by_cause, task.reading.cgroup_id, classes);
        // The rest of the interval does not count as blocked: the task may have started or exited in the interval.
        let blocked = classes.blocked.thread(task.reading.serial);
        Self {
            blocked: blocked.copied().unwrap_or_default(),
            has_unread: blocked.is_none(),
            busiest_ns: activity.wanted_ns(),
            realtime_ns: task.realtime().map_or(0, |_| by_cause.get(Cause::OtherCgroup)),
            ..activity
        }
    }

    fn new(on_cpu_ns: u64, by_cause: ByCause, cgroup_id: u64, classes: &Classes) -> Self {
        let is_root = classes.roots.contains(&cgroup_id);
        let behind_root_ns = if is_root { by_cause.get(Cause::OwnCgroup) } else { 0 };
        Self { on_cpu_ns, by_cause, behind_root_ns, ..Self::default() }
    }

    /// Adds all times. The caller counts `threads`.
    fn add(&mut self, other: &Self) {
        sum::add(&mut self.on_cpu_ns, other.on_cpu_ns);
        self.by_cause.add(&other.by_cause);
        sum::add(&mut self.behind_root_ns, other.behind_root_ns);
        sum::add(&mut self.realtime_ns, other.realtime_ns);
        self.blocked.add(&other.blocked);
        sum::add(&mut self.left_out_ns, other.left_out_ns);
        self.has_unread |= other.has_unread;
        self.busiest_ns = self.busiest_ns.max(other.busiest_ns);
    }
}

/// Splits the blocked time of exited tasks into time by kind, where stacks or states show the kind, and unknown time.
fn known(by_state: &ByState, stacks: &BlockedTime) -> (BlockedTime, u64) {
    let mut known = *stacks;
    let nameless_ns = std::mem::take(&mut known.0[BlockedKind::Unknown as usize]);
    let mut rest_ns = by_state.total().saturating_sub(stacks.total());
    for (state, ns) in by_state.iter() {
        let Some(kind) = BlockedKind::of_state(state) else { continue };
        let more_ns = ns.saturating_sub(stacks.get(kind)).min(rest_ns);
        known.add_ns(kind, more_ns);
        rest_ns -= more_ns;
    }
    (known, rest_ns.saturating_add(nameless_ns))
}

/// True if the thread was in uninterruptible sleep for long enough, without waiting for work.
fn is_stuck(task: &TaskInterval, classes: &Classes) -> bool {
    let serial = task.reading.serial;
    let blocked = task.accounts.as_deref().and_then(|accounts| accounts.blocked).unwrap_or_default();
    let ns = blocked.get(BlockedState::Iowait).saturating_add(blocked.get(BlockedState::Uninterruptible));
    let stuck_ns = ns.saturating_sub(classes.blocked.stuck_for_work_ns(serial));
    is_share(stuck_ns, classes.interval.duration_ns, BUSY_THREAD_PERCENT)
}

/// Maximum number of named parts besides the time on a CPU.
const MOST: usize = 4;

pub(crate) const TOO_SHORT: &str = "too short to judge";

pub(crate) fn sentence(classes: &[Class], activity: &Activity, quota: Option<&Quota>) -> String {
    let names: Vec<String> = classes.iter().map(|class| class.name().into()).collect();
    if classes == [Class::Idle] && activity.threads == 0 && activity.is_partial() {
        return format!(
            "idle: no thread ran or waited for a CPU for at least {BUSY_THREAD_PERCENT} % of the time"
        );
    }
    let parts = parts(classes, activity, quota);
    let name = match &names[..] {
        [] if activity.time_ns() == 0 => return "did not run, wait or sleep".into(),
        [] => return format!("{} (what it was blocked on is not known)", listed(&parts, activity)),
        [name] => name.clone(),
        [idle, lost @ ..] if classes[0] == Class::Idle => format!("{idle}, and {} when it runs", list(lost)),
        _ => format!("mixed, {}", list(&names)),
    };
    let advice =
        advice(classes, activity, quota, &parts).map_or_else(String::new, |advice| format!(": {advice}"));
    format!("{name}: {}{advice}", listed(&parts, activity))
}

/// Returns the parts of the time: first the parts that support `classes`, then the other parts; each group by size.
fn parts(classes: &[Class], activity: &Activity, quota: Option<&Quota>) -> Vec<Spent> {
    let throttled_ns = activity.by_cause.get(Cause::Throttled);
    let (queued_ns, wakeup_ns) = (activity.queued_ns(), activity.by_cause.get(Cause::Wakeup));
    let mut parts = blocked_parts(activity);
    let is_waking = (wakeup_ns > queued_ns).then_some(Class::Contended);
    parts.extend([
        Spent::new(Some(Class::QuotaBound), throttled_ns, "throttled", quota_words(quota)),
        Spent::new(Some(Class::Contended), queued_ns, "queued for a CPU", behind_words(activity)),
        Spent::new(is_waking, wakeup_ns, "waking up", ""),
    ]);
    let other_limits = TABLE.iter().filter(|row| row.is_limit && row.cause != Cause::Throttled);
    parts.extend(other_limits.map(|row| Spent::new(None, activity.by_cause.get(row.cause), row.words, "")));
    let is_main = |part: &Spent| part.about.is_some_and(|class| classes.contains(&class));
    parts.sort_by_key(|part| (!is_main(part), Reverse(part.ns)));
    parts.retain(|part| {
        let is_waiting = matches!(part.about, Some(Class::QuotaBound | Class::Contended));
        is_share(part.ns, activity.time_ns(), NAMED_PERCENT) || is_waiting && is_main(part) && part.ns != 0
    });
    parts.truncate(MOST);
    let on_cpu = Spent::new(None, activity.on_cpu_ns, "on a CPU", "");
    let is_before = |part: &&Spent| is_main(part) || part.ns > on_cpu.ns;
    let at = if classes == [Class::CpuBound] { 0 } else { parts.iter().take_while(is_before).count() };
    parts.insert(at, on_cpu);
    parts
}

fn listed(parts: &[Spent], activity: &Activity) -> String {
    let of_the_time = match (activity.is_partial(), activity.blocked.total()) {
        (false, _) => " of the time",
        (true, 0) => " of the time that it ran or wanted to run",
        (true, _) => " of the time that is known",
    };
    let parts = parts.iter().enumerate().map(|(at, Spent { ns, is, more, .. })| {
        let of_the_time = if at == 0 { of_the_time } else { "" };
        format!("{is} {}{of_the_time}{more}", share(*ns, activity.time_ns()))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// A part of the time, with the text before and after its figure.
struct Spent {
    about: Option<Class>,
    ns: u64,
    is: String,
    more: String,
}

impl Spent {
    fn new(about: Option<Class>, ns: u64, is: impl Into<String>, more: impl Into<String>) -> Self {
        Self { about, ns, is: is.into(), more: more.into() }
    }
}

fn blocked_parts(activity: &Activity) -> Vec<Spent> {
    let (mut kinds, needed): (Vec<_>, Vec<_>) =
        activity.blocked.iter().partition(|(kind, _)| kind.is_for_work());
    let blocked = |(kind, ns): (BlockedKind, u64)| {
        let (is, more) = match kind {
            BlockedKind::Unknown => ("blocked".into(), " (the reason is not known)"),
            BlockedKind::Other => ("blocked on something else".into(), ""),
            BlockedKind::Lock => ("blocked on a futex".into(), " (a lock, or a pool that waits for work)"),
            _ => (format!("blocked on {}", kind.name()), ""),
        };
        Spent::new(Some(kind.class()), ns, is, more)
    };
    let mut parts: Vec<_> = needed.into_iter().map(blocked).collect();
    let poll_ns = activity.blocked.get(BlockedKind::Poll);
    let for_work_ns = activity.blocked.for_work() - poll_ns;
    kinds.retain(|(kind, ns)| *kind != BlockedKind::Poll && is_share(*ns, for_work_ns, NAMED_PERCENT));
    kinds.sort_by_key(|(_, ns)| Reverse(*ns));
    let names: Vec<&str> = kinds.iter().map(|(kind, _)| kind.name()).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    parts.push(Spent::new(Some(Class::Idle), for_work_ns, "waiting for work", names));
    parts.push(Spent::new(Some(Class::Idle), poll_ns, "waiting in poll", " (for work or for answers)"));
    parts
}

fn quota_words(quota: Option<&Quota>) -> String {
    quota.map_or_else(String::new, |Quota { path, cores, .. }| {
        let cores = cores.map_or_else(String::new, |cores| format!(" ({})", units::cpus(cores)));
        format!(" by {path}{cores}")
    })
}

/// Returns who ran while the target was queued, for how long (ns), and what helps against each.
fn behind(activity: &Activity) -> Vec<(&'static str, u64, &'static str)> {
    let mut behind = Vec::new();
    for Shown { cause, behind: had_cpu, .. } in &TABLE {
        let Some(Behind { who, helps, .. }) = *had_cpu else { continue };
        let ns = activity.by_cause.get(*cause);
        match cause {
            Cause::OwnCgroup => {
                let fewer = if activity.threads > 1 { "more CPUs or fewer threads help" } else { helps };
                behind.push((who, ns.saturating_sub(activity.behind_root_ns), fewer));
                behind.push(("other tasks in / or its own threads", activity.behind_root_ns, helps));
            }
            Cause::OtherCgroup if is_share(activity.realtime_ns, ns, REALTIME_PERCENT) => behind.push((
                who,
                ns,
                "raise its priority (chrt), add CPUs, pin it to other CPUs, or move the neighbours away; cpu.weight does not \
                 apply to real-time tasks",
            )),
            _ => behind.push((who, ns, helps)),
        }
    }
    behind
}

fn behind_words(activity: &Activity) -> String {
    let all_ns = activity.time_ns();
    let behind = behind(activity).into_iter().filter(|(_, ns, _)| is_share(*ns, all_ns, NAMED_PERCENT));
    let behind: Vec<_> = behind.map(|(who, ns, _)| format!("{who} {}", share(ns, all_ns))).collect();
    if behind.is_empty() { String::new() } else { format!(" (behind {})", list(&behind)) }
}

/// Returns the advice; `None` if the parts omit the figure that the advice is about.
fn advice(classes: &[Class], activity: &Activity, quota: Option<&Quota>, parts: &[Spent]) -> Option<String> {
    let is_named = |class| parts.iter().any(|part| part.about == Some(class));
    match classes {
        [Class::Idle] => activity.sleeps.clone().or_else(|| held_back(activity).map(Into::into)),
        [Class::CpuBound] => None,
        [Class::QuotaBound, ..] | [Class::Idle, Class::QuotaBound, ..] => {
            is_named(Class::QuotaBound).then(|| quota_advice(activity, quota))
        }
        [Class::Contended, ..] | [Class::Idle, Class::Contended, ..] => {
            let most = behind(activity).into_iter().max_by_key(|(_, ns, _)| *ns);
            let advice = most.filter(|(_, ns, _)| *ns != 0).map_or(MORE_CPUS, |(.., advice)| advice);
            // More CPUs do not make an idle CPU wake up faster.
            let is_queued =
                is_named(Class::Contended) && activity.queued_ns() >= activity.by_cause.get(Cause::Wakeup);
            is_queued.then(|| advice.into())
        }
        _ if classes.contains(&Class::CpuBound) || activity.has_unread => None,
        _ if activity.sleeps.is_some() => activity.sleeps.clone(),
        _ => Some(match (activity.by_cause.total(), activity.time_ns()) {
            (saved_ns, all_ns) if is_share(saved_ns, all_ns, MORE_CPU_PERCENT) => {
                format!("more CPU saves at most {}", share(saved_ns, all_ns))
            }
            // Whoever answers, or holds the lock, may wait for a CPU. Nobody computes for a disk or for memory.
            _ if [BlockedKind::Disk, BlockedKind::Memory]
                .map(|kind| activity.blocked.get(kind))
                .iter()
                .sum::<u64>()
                < (activity.blocked.total() - activity.blocked.for_work()) / 2 =>
            {
                "it does not lack CPU, but those for whom it waits may".into()
            }
            _ => "more CPU will not help".into(),
        }),
    }
}

/// Returns what to do if most of the time of an idle target is not its own choice.
fn held_back(activity: &Activity) -> Option<&'static str> {
    let is_most = |kind| activity.blocked.get(kind) > activity.time_ns() / 2;
    let advice = [
        (BlockedKind::Stopped, "a signal (kill -CONT PID) or a debugger stopped it"),
        (BlockedKind::Frozen, "its cgroup is frozen (cgroup.freeze, in v1 freezer.state)"),
    ];
    advice.into_iter().find(|(kind, _)| is_most(*kind)).map(|(_, advice)| advice)
}

fn quota_advice(activity: &Activity, quota: Option<&Quota>) -> String {
    let cores = quota.and_then(|quota| quota.cores).map_or(1.0, f64::ceil);
    let fewer = if activity.threads as f64 > cores { " or use fewer threads" } else { "" };
    let (_, how) = quota.map_or_else(|| raise("", None), |quota| raise(&quota.path, quota.cores));
    format!("raise the limit{how}{fewer}")
}

/// Formats a share: `65 %`, or `<1 %` if it rounds to 0.
fn share(ns: u64, all_ns: u64) -> String {
    let percent = units::percent(ns, all_ns).unwrap_or_default();
    if ns != 0 && percent < 0.5 { "<1 %".into() } else { format!("{percent:.0} %") }
}
