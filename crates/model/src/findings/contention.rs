//! Tasks behind other tasks: of other cgroups, or of their own.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use cgscope_layout::{Cause, ledger::KERNEL};

use super::{
    EXPLAINED_PERCENT, Finding, MOST, NEIGHBOUR_NS, NEIGHBOUR_PERCENT, OWN_NS, OWN_PERCENT, REALTIME_PERCENT,
    Rule,
    context::{Busy, Context},
    quota,
    words::{is_share, list, percent},
};
use crate::{
    Blame, REST_NAME, TaskInterval,
    selection::{is_at_or_below, path_and_ancestors},
    sum, units,
};

/// So many neighbours are named at most...
const NEIGHBOURS: usize = 3;
/// ... and, but for the worst, only with this share of the waiting, percent.
const NEIGHBOUR_NAMED_PERCENT: u64 = 10;

/// Who made tasks of another cgroup wait.
struct Neighbour {
    path: Option<Arc<str>>,
    /// Thread id and name, where single tasks are told apart.
    task: Option<(u32, Arc<str>)>,
    ns: u64,
}

impl Neighbour {
    fn said(&self, all_ns: u64) -> String {
        let path = self.path.as_deref().unwrap_or("a cgroup that is gone");
        let task = self.task.as_ref().map(|(tid, comm)| format!(" ({comm}, thread {tid})"));
        format!("{path}{} for {} of it", task.unwrap_or_default(), percent(self.ns, all_ns))
    }
}

/// At the lowest cgroups that have the waiting; those that may be told of.
pub(super) fn noisy_neighbours(context: &Context) -> Vec<Finding> {
    let mut told: Vec<(u64, usize)> = Vec::new();
    // What is told of each with all below it, ns.
    let mut told_ns = vec![0; context.nodes().len()];
    // Whatever is below comes before.
    for (node, cgroup) in context.nodes().rev() {
        let sums = context.with_below(node);
        let ns = sums.by_cause.get(Cause::OtherCgroup);
        let below_ns: u64 = told_ns[node];
        let is_noisy = ns >= NEIGHBOUR_NS && is_share(ns, sums.active_ns(), NEIGHBOUR_PERCENT);
        let host_again = cgroup.parent.is_none() && !told.is_empty();
        if is_noisy && !host_again && !is_share(below_ns, ns, EXPLAINED_PERCENT) {
            // What is told of an ancestor holds what was told below it: count each wait once.
            told_ns[node] = below_ns.max(ns);
            told.push((ns, node));
        }
        if let Some(parent) = cgroup.parent {
            let ns = told_ns[node];
            sum::add(&mut told_ns[parent], ns);
        }
    }
    told.sort_by_key(|(ns, node)| (Reverse(*ns), context.path(*node)));
    told.truncate(MOST);
    told.into_iter().map(|(_, node)| noisy_neighbour(context, node)).collect()
}

fn noisy_neighbour(context: &Context, node: usize) -> Finding {
    let path = context.path(node);
    let sums = context.with_below(node);
    let ns = sums.by_cause.get(Cause::OtherCgroup);
    let neighbours = neighbours_of(context, node);
    // Of a selection by name, the pairs hold more than the tasks that are left.
    let all_ns = sum::total(neighbours.iter().map(|neighbour| neighbour.ns)).max(ns);
    let named: Vec<_> = neighbours
        .iter()
        .enumerate()
        .take(NEIGHBOURS)
        .filter(|(i, neighbour)| *i == 0 || is_share(neighbour.ns, all_ns, NEIGHBOUR_NAMED_PERCENT))
        .map(|(_, neighbour)| neighbour.said(all_ns))
        .collect();
    let named = if named.is_empty() { named.join("") } else { format!(": {}", list(&named)) };
    // Nothing can be done about a sum of several.
    let worst = neighbours.iter().find(|neighbour| neighbour.path.as_deref() != Some(REST_NAME));
    Finding {
        rule: Rule::NoisyNeighbour,
        cgroup: Some(path.clone()),
        says: format!(
            "{path}: its tasks waited {} while other cgroups had the CPU, {} of the time they waited or ran{named}",
            units::duration(ns),
            percent(ns, sums.active_ns()),
        ),
        advice: neighbour_advice(context, node, worst),
        lost_ns: ns,
    }
}

/// The worst first. [`Interval::culprits_of`](crate::Interval::culprits_of) also has what is no neighbour: kernel
/// threads and, where single tasks are told apart, tasks of the same cgroup.
fn neighbours_of(context: &Context, victim: usize) -> Vec<Neighbour> {
    let interval = context.interval;
    let mut pairs: Vec<usize> = context.tree.pairs_below(victim).collect();
    // A task may have been renamed: it goes by the name of its first pair.
    pairs.sort_unstable();
    let pairs = pairs.into_iter().map(|pair| &interval.pairs[pair]);
    let mut sums: BTreeMap<(u64, u32), (u64, &Arc<str>)> = BTreeMap::new();
    for pair in pairs.filter(|pair| pair.blame == Blame::Ran) {
        if pair.culprit != KERNEL && pair.culprit != pair.victim {
            let (ns, _) = sums.entry((pair.culprit, pair.tid)).or_insert((0, &pair.comm));
            sum::add(ns, pair.ns);
        }
    }
    let mut neighbours: Vec<_> = sums
        .into_iter()
        .map(|((id, tid), (ns, comm))| Neighbour {
            path: interval.cgroup_path(id).cloned(),
            task: (tid != 0).then(|| (tid, comm.clone())),
            ns,
        })
        .collect();
    neighbours.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.path.cmp(&b.path)));
    neighbours
}

fn neighbour_advice(context: &Context, node: usize, worst: Option<&Neighbour>) -> String {
    let victim = &**context.path(node);
    if let Some(advice) = realtime_advice(context, node, worst) {
        return advice;
    }
    let Some(neighbour) = worst.and_then(|worst| worst.path.as_deref()) else {
        return "give it a higher cpu.weight (in v1 cpu.shares), its neighbours a quota, or each a cpuset"
            .into();
    };
    let Some((ours, theirs)) = siblings(victim, neighbour) else {
        return format!(
            "move those tasks of {neighbour} to a cgroup of their own, with a quota (cpu.max), a lower cpu.weight or \
             another cpuset"
        );
    };
    let limits = |path: &str| context.limits(context.tree.find(path)?);
    let with_weight = |path: &str| match limits(path).and_then(|limits| limits.weight) {
        Some(weight) => format!("{path} (now {weight})"),
        None => path.into(),
    };
    format!(
        "give {} a higher cpu.weight (in v1 cpu.shares) or {} a lower one, {neighbour} a quota (cpu.max), or each a \
         cpuset of its own",
        with_weight(ours),
        with_weight(theirs),
    )
}

/// Where the neighbour or those who waited are real-time tasks for the most part: the files of the cpu controller hold for others.
fn realtime_advice(context: &Context, node: usize, worst: Option<&Neighbour>) -> Option<String> {
    const NOT: &str = "to which cpu.weight and cpu.max do not apply";
    let tasks = &context.interval.tasks;
    if let Some(worst) = worst
        && let Some((policy, task)) =
            most_are_realtime(tasks.iter().filter(|task| is_of(context, task, worst)), |task| {
                task.totals.on_cpu_ns
            })
    {
        let tid = task.reading.tid;
        return Some(format!(
            "those tasks are real-time tasks ({policy}), {NOT}: give them an ordinary policy (chrt -o -p 0 {tid}), or each \
             of both a cpuset of its own"
        ));
    }
    let waited = context.tree.tasks_below(node).iter().map(|at| &tasks[*at]);
    let (policy, _) = most_are_realtime(waited, |task| task.wait.by_cause.get(Cause::OtherCgroup))?;
    Some(format!(
        "its own tasks are real-time tasks ({policy}), {NOT}: give them a higher priority (chrt -p), or each of both a cpuset \
         of its own"
    ))
}

/// Whether a task is the neighbour, or in its cgroup where single tasks are not told apart.
fn is_of(context: &Context, task: &TaskInterval, neighbour: &Neighbour) -> bool {
    match &neighbour.task {
        Some((tid, _)) => task.reading.tid == *tid,
        None => {
            neighbour.path.is_some()
                && context.interval.cgroup_path(task.reading.cgroup_id) == neighbour.path.as_ref()
        }
    }
}

/// The real-time policy and the task that have most of it, if tasks of such policies have most of all.
fn most_are_realtime<'a>(
    tasks: impl Iterator<Item = &'a TaskInterval>,
    ns: impl Fn(&TaskInterval) -> u64,
) -> Option<(&'static str, &'a TaskInterval)> {
    let (mut all_ns, mut realtime_ns, mut most) = (0, 0, None::<(u64, &'static str, &TaskInterval)>);
    for task in tasks {
        let ns = ns(task);
        sum::add(&mut all_ns, ns);
        let Some(policy) = task.realtime() else { continue };
        sum::add(&mut realtime_ns, ns);
        if most.is_none_or(|(most_ns, ..)| ns > most_ns) {
            most = Some((ns, policy, task));
        }
    }
    let (_, policy, task) = most?;
    is_share(realtime_ns, all_ns, REALTIME_PERCENT).then_some((policy, task))
}

/// The two cgroups below the last common ancestor: weights count among siblings only. `None` if one is the other's
/// ancestor.
fn siblings<'p>(a: &'p str, b: &'p str) -> Option<(&'p str, &'p str)> {
    let ours = path_and_ancestors(a).take_while(|path| !is_at_or_below(b, path)).last()?;
    let theirs = path_and_ancestors(b).take_while(|path| !is_at_or_below(a, path)).last()?;
    Some((ours, theirs))
}

/// By the cgroup that the tasks are directly in: what is their own there is not so in an ancestor. That the root's tasks
/// wait for each other is no news where there are too many on the whole host.
pub(super) fn own_contention(
    context: &Context,
    oversubscribed: bool,
    full_node: Option<u32>,
) -> Vec<Finding> {
    let mut crowded: Vec<(u64, usize)> = Vec::new();
    for (node, cgroup) in context.nodes() {
        let ns = cgroup.own.by_cause.get(Cause::OwnCgroup);
        if ns >= OWN_NS
            && is_share(ns, cgroup.own.active_ns(), OWN_PERCENT)
            && !(oversubscribed && cgroup.parent.is_none())
            && !quota::is_throttled(context, node)
            && !is_on(context, node, full_node, ns)
        {
            crowded.push((ns, node));
        }
    }
    crowded.sort_by_key(|(ns, node)| (Reverse(*ns), context.path(*node)));
    crowded.into_iter().filter_map(|(ns, node)| own_contention_of(context, node, ns)).take(MOST).collect()
}

/// True if most of it was waited on a node that is full while another idles: that is told of instead.
fn is_on(context: &Context, node: usize, full_node: Option<u32>, own_ns: u64) -> bool {
    let Some(full_node) = full_node else { return false };
    let tasks = context.tree.tasks_of(node).iter().map(|at| &context.interval.tasks[*at]);
    let there = tasks.filter(|task| task.reading.node == Some(full_node));
    let ns = there.fold(0u64, |sum, task| sum.saturating_add(task.wait.by_cause.get(Cause::OwnCgroup)));
    is_share(ns, own_ns, EXPLAINED_PERCENT)
}

fn own_contention_of(context: &Context, node: usize, ns: u64) -> Option<Finding> {
    let path = context.path(node);
    let own_cpus = context.limits(node).and_then(|limits| limits.cpus);
    // Whichever is known, and the fewer of both.
    let cpus = own_cpus.into_iter().chain(context.host.cpus).min()?;
    let sums = context.tree.nodes()[node].own;
    let busy = context.busy(context.tree.tasks_of(node));
    let (why, advice) =
        if busy.threads > u64::from(cpus) { too_many(&busy, cpus) } else { badly_spread(&busy, cpus, ns)? };
    let share = percent(ns, sums.active_ns());
    Some(Finding {
        rule: Rule::OwnContention,
        cgroup: Some(path.clone()),
        says: format!(
            "{path}: its tasks waited {} for each other, {share} of the time they waited or ran: {why}",
            units::duration(ns)
        ),
        advice,
        lost_ns: ns,
    })
}

fn too_many(busy: &Busy, cpus: u32) -> (String, String) {
    let cpus_said = units::count(cpus.into(), "CPU");
    (
        format!("{} were busy, and it may use {cpus_said}", units::count(busy.threads, "thread")),
        format!(
            "start no more threads than it may use CPUs ({cpus}), or let it use more of them (cpuset.cpus)"
        ),
    )
}

/// `None` where the waiting is not that of the busy threads: many short ones may well have been more than the CPUs; or
/// where each was last seen on a CPU of its own.
fn badly_spread(busy: &Busy, cpus: u32, own_ns: u64) -> Option<(String, String)> {
    let crowded = busy.cpus.len() as u64;
    if !is_share(busy.own_ns, own_ns, EXPLAINED_PERCENT) || crowded >= busy.threads {
        return None;
    }
    let pid = busy.processes.first()?;
    Some((
        format!(
            "it may use {}, more than its {} need, but these were last seen on {crowded}",
            units::count(cpus.into(), "CPU"),
            units::count(busy.threads, "busy thread"),
        ),
        format!("look whether an affinity pins them (taskset -acp {pid}), or a cpuset below this one"),
    ))
}
