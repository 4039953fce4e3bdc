//! Who fills a node, and what holds them there.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_layout::Cause;

use super::{
    context::Context,
    words::{is_share, list, percent},
};
use crate::{
    TaskInterval,
    nodes::{NodeGroup, amount, total},
    placement::{cpu_list, parse_cpu_list},
    sum, units,
};

/// A process is named if it has this share of what goes on there, percent; else a cgroup that has it; else the process that
/// has the most.
const NAMED_PERCENT: u64 = 50;
/// So many different masks are told.
const MASKS: usize = 4;
/// Memory is told of as a reason if this share of it lies there, percent.
const MEMORY_PERCENT: u64 = 80;

/// Who has most of what goes on there.
enum Who {
    Process(u32),
    Cgroup(Arc<str>),
}

/// What holds threads to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Mask,
    Cpuset { path: Arc<str>, cpus: Arc<str> },
    Nothing,
    Unknown,
}

pub(super) struct Skew<'a> {
    context: &'a Context<'a>,
    full: &'a NodeGroup,
    idle: &'a NodeGroup,
    who: Who,
    /// Its busy threads there, and how long each ran and waited there, ns.
    threads: Vec<(&'a TaskInterval, u64)>,
    ran_ns: u64,
    active_ns: u64,
    /// Of all tasks.
    all_ran_ns: u64,
    all_active_ns: u64,
    hold: Hold,
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
        let sums = |tasks: &mut dyn Iterator<Item = &(&TaskInterval, u64, u64)>| {
            tasks.fold((0u64, 0u64), |sums, (_, ran, active)| {
                (sums.0.saturating_add(*ran), sums.1.saturating_add(*active))
            })
        };
        let (ran_ns, active_ns) = sums(&mut tasks.iter().filter(|(task, ..)| is_one(task)));
        let (mut all_ran_ns, mut all_active_ns) = sums(&mut tasks.iter());
        if context.interval.is_selection {
            // Of the others it is known only that they kept the CPUs busy.
            all_ran_ns = all_ran_ns.max(full.busy_ns.unwrap_or(0));
            all_active_ns = all_active_ns.max(all_ran_ns.saturating_add(full.contended_ns()));
        }
        let threads: Vec<_> = tasks
            .iter()
            .filter(|(task, ..)| {
                is_one(task) && !task.is_bound() && task.is_busy(context.interval.duration_ns)
            })
            .map(|(task, _, active)| (*task, *active))
            .collect();
        let hold = hold(&threads, &idle.cpus);
        Some(Self { context, full, idle, who, threads, ran_ns, active_ns, all_ran_ns, all_active_ns, hold })
    }

    /// The cgroup of those who have most of it.
    pub(super) fn cgroup(&self) -> Option<&Arc<str>> {
        match &self.who {
            Who::Process(_) => {
                let (task, _) = self.threads.first()?;
                self.context.interval.cgroup_path(task.reading.cgroup_id)
            }
            Who::Cgroup(path) => Some(path),
        }
    }

    pub(super) fn who_and_why(&self) -> String {
        let interval = self.context.interval;
        let who = match &self.who {
            Who::Process(tgid) => {
                let cgroup = self.cgroup().map(|path| format!(" of {path}")).unwrap_or_default();
                format!("process {tgid} ({}){cgroup}", interval.process_name(*tgid))
            }
            Who::Cgroup(path) => path.to_string(),
        };
        format!(
            "{who} has {} of the run time and {} of the running and waiting there, with {}; {}",
            percent(self.ran_ns, self.all_ran_ns),
            percent(self.active_ns, self.all_active_ns),
            units::count(self.threads.len() as u64, "busy thread"),
            self.why(),
        )
    }

    fn why(&self) -> String {
        match &self.hold {
            Hold::Mask => {
                let masks = masks(&self.threads);
                let said = if masks.len() == 1 { ("mask", "leaves") } else { ("masks", "leave") };
                format!(
                    "the affinity {} {} of the threads {} out node {}",
                    said.0,
                    list(&masks),
                    said.1,
                    self.idle.node
                )
            }
            Hold::Cpuset { path, cpus } => {
                format!("the cpuset of {path} (cpuset.cpus {cpus}) leaves out node {}", self.idle.node)
            }
            Hold::Nothing => {
                format!(
                    "no affinity mask and no cpuset holds them there{}",
                    self.memory().unwrap_or_default()
                )
            }
            Hold::Unknown => "whether an affinity mask or a cpuset holds them there is not known".into(),
        }
    }

    /// What memory has to do with it, where it is known.
    fn memory(&self) -> Option<String> {
        let Who::Process(tgid) = self.who else { return None };
        let memory = self.context.interval.memory.iter().find(|memory| memory.tgid == tgid)?;
        let all = total(&memory.by_node);
        let there = amount(&memory.by_node, self.full.node);
        let policy = memory.policies.first().filter(|(policy, _)| &**policy != "default");
        let policy = policy.map(|(policy, _)| format!(" (memory policy {policy})")).unwrap_or_default();
        is_share(there, all, MEMORY_PERCENT)
            .then(|| format!(", but {} of its memory lies there{policy}", percent(there, all)))
    }

    pub(super) fn advice(&self) -> String {
        let (idle, cpus) = (self.idle.node, cpu_list(&self.idle.cpus));
        let pid =
            self.threads.first().map_or_else(|| "PID".into(), |(task, _)| task.reading.tgid.to_string());
        match &self.hold {
            Hold::Mask => format!(
                "let the threads use node {idle}, too (taskset -acp {} {pid}), or start as many as node {} has CPUs ({})",
                self.both(),
                self.full.node,
                self.full.cpus.len(),
            ),
            Hold::Cpuset { path, .. } => {
                format!("let {path} use CPUs of node {idle}, too (cpuset.cpus {})", self.both())
            }
            Hold::Nothing => format!(
                "look at where its memory lies (--memory; numastat -p {pid}), at kernel.numa_balancing, and at whether CPUs \
                 {cpus} are isolated (/sys/devices/system/cpu/isolated)"
            ),
            Hold::Unknown => {
                format!("look at its affinity (taskset -acp {pid}) and its cpuset (/proc/{pid}/cpuset)")
            }
        }
    }

    fn both(&self) -> String {
        let mut cpus: Vec<u32> = self.full.cpus.iter().chain(&self.idle.cpus).copied().collect();
        cpus.sort_unstable();
        cpu_list(&cpus)
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

/// The masks of most of them, each once.
fn masks(threads: &[(&TaskInterval, u64)]) -> Vec<String> {
    let mut masks: BTreeMap<&str, u64> = BTreeMap::new();
    for (task, active_ns) in threads {
        let mask = task.reading.placement.as_deref().and_then(|placement| placement.cpus_allowed.as_deref());
        sum::add(masks.entry(mask.unwrap_or_default()).or_default(), *active_ns);
    }
    masks.remove("");
    let mut masks: Vec<(&str, u64)> = masks.into_iter().collect();
    masks.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    masks.into_iter().take(MASKS).map(|(mask, _)| mask.to_owned()).collect()
}
