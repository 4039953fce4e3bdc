//! Who fills a node, and what holds them there.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use cgscope_layout::Cause;

use super::{context::Context, is_share};
use crate::{
    TaskInterval,
    nodes::{NodeGroup, amount, total},
    placement::parse_cpu_list,
    sum,
};

/// A process is named if it has this share of what goes on there, percent; else a cgroup that has it; else the process that
/// has the most.
const NAMED_PERCENT: u64 = 50;

/// Who has most of what goes on there.
pub(crate) enum Who {
    Process(u32),
    Cgroup(Arc<str>),
}

/// What holds threads to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    Mask,
    Cpuset { path: Arc<str>, cpus: Arc<str> },
    Nothing,
    Unknown,
}

/// A node that is full beside one that idles.
pub(crate) struct Skew<'a> {
    pub context: &'a Context<'a>,
    pub full: &'a NodeGroup,
    pub idle: &'a NodeGroup,
    pub who: Who,
    /// Its busy threads there, and how long each ran and waited there, ns.
    pub threads: Vec<(&'a TaskInterval, u64)>,
    pub ran_ns: u64,
    pub active_ns: u64,
    /// Of all tasks.
    pub all_ran_ns: u64,
    pub all_active_ns: u64,
    pub hold: Hold,
}

impl<'a> Skew<'a> {
    /// `None` where no task is known that was there.
    pub(super) fn new(context: &'a Context<'a>, full: &'a NodeGroup, idle: &'a NodeGroup) -> Option<Self> {
        let there = |task: &'a TaskInterval| {
            let (ran_ns, waited_ns) = activity(task, full.node);
            (ran_ns.max(waited_ns) != 0).then_some((task, ran_ns, ran_ns.saturating_add(waited_ns)))
        };
        let tasks: Vec<_> = context.interval.tasks.iter().filter_map(there).collect();
        // Nobody can move a kernel thread that is bound.
        let movable: Vec<_> = tasks.iter().filter(|(task, ..)| !task.is_bound()).copied().collect();
        let who = who(context, &movable)?;
        let is_one = |task: &TaskInterval| match &who {
            Who::Process(tgid) => task.reading.tgid == *tgid,
            Who::Cgroup(path) => context.interval.cgroup_path(task.reading.cgroup_id) == Some(path),
        };
        let sums = |which: &dyn Fn(&TaskInterval) -> bool| {
            let tasks = || tasks.iter().filter(|(task, ..)| which(task));
            (sum::total(tasks().map(|task| task.1)), sum::total(tasks().map(|task| task.2)))
        };
        let (ran_ns, active_ns) = sums(&is_one);
        let (mut all_ran_ns, mut all_active_ns) = sums(&|_| true);
        if context.interval.is_selection {
            // The others are known only to have kept the CPUs busy.
            all_ran_ns = all_ran_ns.max(full.busy_ns.unwrap_or(0));
            all_active_ns = all_active_ns.max(all_ran_ns.saturating_add(full.contended_ns()));
        }
        let is_movable = |task: &TaskInterval| !task.is_bound() && task.is_busy(context.interval.duration_ns);
        let threads = tasks.iter().filter(|(task, ..)| is_one(task) && is_movable(task));
        let threads: Vec<_> = threads.map(|(task, _, active_ns)| (*task, *active_ns)).collect();
        let hold = hold(&threads, &idle.cpus);
        Some(Self { context, full, idle, who, threads, ran_ns, active_ns, all_ran_ns, all_active_ns, hold })
    }

    /// The cgroup of those who have most of it.
    pub fn cgroup(&self) -> Option<&Arc<str>> {
        match &self.who {
            Who::Process(_) => {
                let (task, _) = self.threads.first()?;
                self.context.interval.cgroup_path(task.reading.cgroup_id)
            }
            Who::Cgroup(path) => Some(path),
        }
    }

    /// The affinity masks of its threads, each once, those of most of the activity first.
    pub fn masks(&self) -> Vec<&'a str> {
        let mut masks: BTreeMap<&str, u64> = BTreeMap::new();
        for (task, active_ns) in &self.threads {
            let placement = task.reading.placement.as_deref();
            let mask = placement.and_then(|placement| placement.cpus_allowed.as_deref());
            if let Some(mask) = mask.filter(|mask| !mask.is_empty()) {
                sum::add(masks.entry(mask).or_default(), *active_ns);
            }
        }
        let mut masks: Vec<(&str, u64)> = masks.into_iter().collect();
        masks.sort_by_key(|(_, ns)| Reverse(*ns));
        masks.into_iter().map(|(mask, _)| mask).collect()
    }
}

/// How long a task ran on a node and waited for it, the throttled left out, ns. Waits of a task are with the nodes that it ran
/// on, in proportion.
fn activity(task: &TaskInterval, node: u32) -> (u64, u64) {
    let waited_ns = task.wait.total_ns.saturating_sub(task.wait.by_cause.get(Cause::Throttled));
    let ran = task.ran_by_node();
    let all_ns = total(&ran);
    let ran_ns = amount(&ran, node);
    if all_ns == 0 {
        return (0, if task.reading.node == Some(node) { waited_ns } else { 0 });
    }
    (ran_ns, (u128::from(waited_ns) * u128::from(ran_ns) / u128::from(all_ns)) as u64)
}

fn who(context: &Context, tasks: &[(&TaskInterval, u64, u64)]) -> Option<Who> {
    let mut processes: BTreeMap<u32, u64> = BTreeMap::new();
    let mut cgroups: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
    let mut all_ns = 0u64;
    for (task, _, active_ns) in tasks {
        sum::add(&mut all_ns, *active_ns);
        sum::add(processes.entry(task.reading.tgid).or_default(), *active_ns);
        if let Some(path) =
            context.interval.cgroup_path(task.reading.cgroup_id).filter(|path| &***path != "/")
        {
            sum::add(cgroups.entry(path).or_default(), *active_ns);
        }
    }
    let (tgid, ns) = processes.into_iter().max_by_key(|(_, ns)| *ns)?;
    let cgroup = cgroups.into_iter().max_by_key(|(_, ns)| *ns);
    match cgroup.filter(|(_, ns)| is_share(*ns, all_ns, NAMED_PERCENT)) {
        Some((path, _)) if !is_share(ns, all_ns, NAMED_PERCENT) => Some(Who::Cgroup(path.clone())),
        _ => Some(Who::Process(tgid)),
    }
}

/// What holds most of them.
fn hold(threads: &[(&TaskInterval, u64)], idle_cpus: &[u32]) -> Hold {
    let mut holds: BTreeMap<Hold, u64> = BTreeMap::new();
    for (task, active_ns) in threads {
        sum::add(holds.entry(hold_of(task, idle_cpus)).or_default(), *active_ns);
    }
    holds.into_iter().max_by_key(|(_, ns)| *ns).map_or(Hold::Unknown, |(hold, _)| hold)
}

fn hold_of(task: &TaskInterval, idle_cpus: &[u32]) -> Hold {
    let placement = task.reading.placement.as_deref();
    let leaves_out = |cpus: &str| Some(!parse_cpu_list(cpus)?.iter().any(|cpu| idle_cpus.contains(cpu)));
    match placement.and_then(|placement| leaves_out(placement.cpus_allowed.as_deref()?)) {
        None => Hold::Unknown,
        Some(false) => Hold::Nothing,
        Some(true) => {
            let cpuset = placement.and_then(|placement| placement.cpuset.as_deref());
            match cpuset.filter(|cpuset| leaves_out(&cpuset.cpus) == Some(true)) {
                Some(cpuset) => Hold::Cpuset { path: cpuset.path.clone(), cpus: cpuset.cpus.clone() },
                None => Hold::Mask,
            }
        }
    }
}
