//! Tasks behind other tasks: of other cgroups, or of their own.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use cgscope_layout::{Cause, ledger::KERNEL};

use super::{
    EXPLAINED_PERCENT, Finding, NEIGHBOUR_NS, NEIGHBOUR_PERCENT, OWN_NS, OWN_PERCENT, Rule,
    context::{Busy, Context, Sums},
    quota,
    words::{is_share, list, percent},
};
use crate::{
    Blame,
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

/// At the lowest cgroups that have the waiting.
pub(super) fn noisy_neighbours(context: &Context) -> Vec<Finding> {
    let mut paths: Vec<(&Arc<str>, &Sums)> = context.with_below.iter().collect();
    // Whatever is below comes before.
    paths.sort_by_key(|(path, _)| (Reverse(path_and_ancestors(path).count()), *path));
    let mut told: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
    for (path, sums) in paths {
        let ns = sums.by_cause.get(Cause::OtherCgroup);
        if ns < NEIGHBOUR_NS || !is_share(ns, sums.active_ns(), NEIGHBOUR_PERCENT) {
            continue;
        }
        let below = told.iter().filter(|(at, _)| is_at_or_below(at, path));
        let below_ns = sum::total(below.map(|(_, ns)| *ns));
        let host_again = &**path == "/" && !told.is_empty();
        if host_again || is_share(below_ns, ns, EXPLAINED_PERCENT) {
            continue;
        }
        // What is told of an ancestor holds what was told below it: count each wait once.
        told.insert(path, ns - below_ns.min(ns));
    }
    told.keys().map(|path| noisy_neighbour(context, path)).collect()
}

fn noisy_neighbour(context: &Context, path: &Arc<str>) -> Finding {
    let sums = context.with_below.get(path).copied().unwrap_or_default();
    let ns = sums.by_cause.get(Cause::OtherCgroup);
    let neighbours = neighbours_of(context, path);
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
    Finding {
        rule: Rule::NoisyNeighbour,
        cgroup: Some(path.clone()),
        says: format!(
            "{path}: its tasks waited {} while other cgroups had the CPU, {} of the time they waited or ran{named}",
            units::duration(ns),
            percent(ns, sums.active_ns()),
        ),
        advice: neighbour_advice(context, path, neighbours.first().and_then(|worst| worst.path.as_deref())),
        lost_ns: ns,
    }
}

/// The worst first. [`Interval::culprits_of`](crate::Interval::culprits_of) also has what is no neighbour: kernel
/// threads and, where single tasks are told apart, tasks of the same cgroup.
fn neighbours_of(context: &Context, victim: &str) -> Vec<Neighbour> {
    let interval = context.interval;
    let is_victim = |id| interval.cgroup_path(id).is_some_and(|path| is_at_or_below(path, victim));
    let mut sums: BTreeMap<(u64, u32), (u64, &Arc<str>)> = BTreeMap::new();
    for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran && is_victim(pair.victim)) {
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

fn neighbour_advice(context: &Context, victim: &str, neighbour: Option<&str>) -> String {
    let Some(neighbour) = neighbour else {
        return "give it a higher cpu.weight (in v1 cpu.shares), its neighbours a quota, or each a cpuset"
            .into();
    };
    let Some((ours, theirs)) = siblings(victim, neighbour) else {
        return format!(
            "move those tasks of {neighbour} to a cgroup of their own, with a quota (cpu.max), a lower cpu.weight or \
             another cpuset"
        );
    };
    let with_weight = |path: &str| match context.limits(path).and_then(|limits| limits.weight) {
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

/// The two cgroups below the last common ancestor: weights count among siblings only. `None` if one is the other's
/// ancestor.
fn siblings<'p>(a: &'p str, b: &'p str) -> Option<(&'p str, &'p str)> {
    let ours = path_and_ancestors(a).take_while(|path| !is_at_or_below(b, path)).last()?;
    let theirs = path_and_ancestors(b).take_while(|path| !is_at_or_below(a, path)).last()?;
    Some((ours, theirs))
}

/// By the cgroup that the tasks are directly in: what is their own there is not so in an ancestor. That the root's tasks
/// wait for each other is no news where there are too many on the whole host.
pub(super) fn own_contention(context: &Context, oversubscribed: bool) -> Vec<Finding> {
    let crowded = context.direct.iter().filter(|(path, sums)| {
        let ns = sums.by_cause.get(Cause::OwnCgroup);
        ns >= OWN_NS
            && is_share(ns, sums.active_ns(), OWN_PERCENT)
            && !(oversubscribed && &***path == "/")
            && !quota::is_throttled(context, path)
    });
    crowded.filter_map(|(path, sums)| own_contention_of(context, path, sums)).collect()
}

fn own_contention_of(context: &Context, path: &Arc<str>, sums: &Sums) -> Option<Finding> {
    let own_cpus = context.limits(path).and_then(|limits| limits.cpus);
    // Whichever is known, and the fewer of both.
    let cpus = own_cpus.into_iter().chain(context.host.cpus).min()?;
    let ns = sums.by_cause.get(Cause::OwnCgroup);
    let busy = context.busy(|at| at == &**path);
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
