//! Rules about tasks that wait for other tasks, in other cgroups or in their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cgscope_ledger::{Cause, history::KERNEL};
use itertools::Itertools;

use crate::{
    Autogroup, PairReading, REST_NAME, TaskInterval, TaskReading,
    findings::{
        Context, Finding, MOST, POLLER, Rule, finding, host, idle_cpus, is_much, is_share, leaf, numa, part,
        poller,
    },
    pairs::Culprit,
    path::{is_at_or_below, path_and_ancestors},
    placement::parse_cpu_list,
    sum,
    table::interval::{Realtime, mostly_realtime},
    units::{self, count},
    words::{list, percent},
};

/// Minimum wait for other cgroups at which neighbours are noisy: percent of the tasks' waiting and running time, total time, and
/// percent of the interval. A service that mostly sleeps gains little if only its few waits end.
pub(super) const NEIGHBOUR_PERCENT: u64 = 10;
pub(super) const NEIGHBOUR_NS: u64 = 50_000_000;
pub(super) const NEIGHBOUR_OF_INTERVAL_PERCENT: u64 = 2;
/// A cgroup gets no finding if findings of its descendants explain at least this share of its waiting, percent.
pub(super) const EXPLAINED_PERCENT: u64 = 80;
/// Minimum wait for own tasks at which a cgroup is contended: percent of the tasks' waiting and running time, and total time.
pub(super) const OWN_PERCENT: u64 = 25;
pub(super) const OWN_NS: u64 = 10_000_000;
/// Short tasks, or another session, are the reason for a cgroup's waiting from this share on, percent.
pub(super) const MOSTLY_PERCENT: u64 = 50;
/// In intervals up to this length, ns, started tasks that have not ended count as short: longer ones contain most bursts whole.
pub(super) const STARTED_WITHIN_NS: u64 = 10_000_000_000;
/// Short tasks start at once if the cgroup waits for itself although it uses less than this share of its CPUs, percent.
pub(super) const BURST_PERCENT: u64 = 60;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let mut findings = noisy_neighbours(context);
    findings.extend(sessions(context));
    findings.extend(own_contention(context));
    findings
}

/// The tasks of one autogroup in the root cgroup.
#[derive(Default)]
struct Session<'a> {
    tasks: Vec<&'a TaskInterval>,
    busy: u64,
    /// The lowest nice value.
    nice: i32,
    /// Time that the tasks waited for their own cgroup, and time that they ran or waited, ns.
    own_ns: u64,
    active_ns: u64,
}

impl Session<'_> {
    /// Returns the most active process and its name.
    fn process(&self) -> (u32, &str) {
        let first =
            self.tasks.iter().max_by_key(|task| task.totals.on_cpu_ns.saturating_add(task.wait.total_ns));
        first.map_or((0, ""), |task| (task.reading.tgid, &task.reading.comm))
    }

    /// Returns the CPUs that its tasks may use; `None`: unknown.
    fn cpus(&self) -> Option<BTreeSet<u32>> {
        let masks = self.tasks.iter().map(|task| task.reading.placement.as_deref()?.cpus_allowed.as_deref());
        // Most tasks have the same mask.
        let masks: BTreeSet<&str> = masks.collect::<Option<_>>()?;
        let cpus: Vec<Vec<u32>> = masks.into_iter().map(parse_cpu_list).collect::<Option<_>>()?;
        Some(cpus.into_iter().flatten().collect())
    }

    /// Returns how long its tasks ran that were last on some CPUs, ns.
    fn ran_on_ns(&self, cpus: Option<&BTreeSet<u32>>) -> u64 {
        let there = self.tasks.iter().filter(|task| cpus.is_none_or(|cpus| cpus.contains(&task.reading.cpu)));
        sum::total(there.map(|task| task.totals.on_cpu_ns))
    }

    fn words(&self) -> String {
        let processes: BTreeSet<u32> = self.tasks.iter().map(|task| task.reading.tgid).collect();
        let (pid, name) = self.process();
        match processes.len() {
            1 => format!("process {pid} ({name})"),
            more => format!("{} ({name}, among them {pid})", count(more as u64, "process")),
        }
    }
}

fn by_autogroup<'a>(context: &Context<'a>) -> BTreeMap<u64, Session<'a>> {
    let mut sessions = BTreeMap::<u64, Session>::new();
    let roots = context.nodes().filter(|(_, cgroup)| cgroup.parent.is_none());
    for task in roots.flat_map(|(node, _)| context.interval.tasks_at(context.tree.tasks_of(node))) {
        // Autogroups do not apply to real-time tasks.
        let placement = task.reading.placement.as_deref().filter(|_| task.realtime().is_none());
        let Some(Autogroup { number, nice }) = placement.and_then(|placement| placement.autogroup) else {
            continue;
        };
        let session = sessions.entry(number).or_default();
        session.nice = if session.tasks.is_empty() { nice } else { session.nice.min(nice) };
        session.tasks.push(task);
        session.busy += u64::from(task.is_busy(context.interval.duration_ns));
        sum::add(&mut session.own_ns, task.wait.by_cause.get(Cause::OwnCgroup));
        sum::add(&mut session.active_ns, task.totals.on_cpu_ns.saturating_add(task.wait.total_ns));
    }
    sessions
}

/// Reports the session in the root cgroup that waits most for another one. A session that has more busy threads than there are CPUs
/// waits for itself, unless the other one has a higher nice value: then its user expects to have the CPUs.
fn sessions(context: &Context) -> Option<Finding> {
    let sessions = by_autogroup(context);
    let cpus = u64::from(context.host.cpus?);
    let against = |number: &u64, session: &Session| {
        let is_victim_of = |other: &Session| {
            let is_smaller = session.busy <= cpus && session.busy < other.busy;
            other.nice > session.nice || other.nice == session.nice && is_smaller
        };
        let others = sessions.iter().filter(|(other, _)| *other != number).map(|(_, other)| other);
        let others = others.filter(|other| is_victim_of(other));
        let cpus = session.cpus();
        others.map(|other| (other, other.ran_on_ns(cpus.as_ref()))).max_by_key(|(_, ns)| *ns)
    };
    let victims = sessions.iter().filter(|(_, one)| is_much(one.own_ns, OWN_NS, one.active_ns, OWN_PERCENT));
    let victims = victims.sorted_by_key(|(_, victim)| Reverse(victim.own_ns)).take(MOST);
    let pairs = victims.filter_map(|(number, victim)| Some((victim, against(number, victim)?)));
    // Else the victim waited for its own tasks.
    let mut pairs = pairs.filter(|(victim, (_, ran_ns))| is_share(*ran_ns, victim.own_ns, MOSTLY_PERCENT));
    let (victim, (other, ran_ns)) = pairs.next()?;
    let ((pid, name), ns) = (other.process(), victim.own_ns);
    let says = format!(
        "{} waited {} behind other tasks of the root cgroup, of which {} of another session ran {}; sessions (autogroups) share the \
         CPUs equally, whatever nice values their tasks have ({} and {})",
        victim.words(),
        part(ns, victim.active_ns, "their run and wait time"),
        other.words(),
        units::duration(ran_ns),
        victim.nice,
        other.nice,
    );
    let advice = format!(
        "move all processes of the session of {name} to a cgroup with a low cpu.weight (in v1 cpu.shares), or lower the weight of \
         its session (echo 19 > /proc/{pid}/autogroup); renice has no effect between sessions"
    );
    let short = (
        format!("{} waits behind session {name}", victim.process().1),
        format!("{} ({:.0}% of its time)", context.rate(ns), units::percent(ns, victim.active_ns)?),
        format!("give {name} a cgroup with a low cpu.weight; renice has no effect"),
    );
    let root = context.nodes().find(|(_, cgroup)| cgroup.parent.is_none())?;
    Some(finding(Rule::Sessions, Some(&root.1.path), ns, short, says, advice))
}

/// Reports the lowest cgroups that have most of the waiting.
fn noisy_neighbours(context: &Context) -> Vec<Finding> {
    let mut noisy: Vec<(u64, usize)> = Vec::new();
    // For each cgroup with its descendants: the waiting time that findings explain, ns.
    let mut explained_ns = vec![0; context.nodes().len()];
    // Descendants come before their ancestors.
    for (node, cgroup) in context.nodes().rev() {
        let sums = context.with_below(node);
        let ns = sums.by_cause.get(Cause::OtherCgroup);
        let below_ns: u64 = explained_ns[node];
        let host_again = cgroup.parent.is_none() && !noisy.is_empty();
        if is_much(ns, NEIGHBOUR_NS, sums.active_ns(), NEIGHBOUR_PERCENT)
            && is_share(ns, context.interval.duration_ns, NEIGHBOUR_OF_INTERVAL_PERCENT)
            && !host_again
            && !is_share(below_ns, ns, EXPLAINED_PERCENT)
        {
            // The finding of an ancestor includes its descendants' waits, so `max` counts each wait once.
            explained_ns[node] = below_ns.max(ns);
            noisy.push((ns, node));
        }
        if let Some(parent) = cgroup.parent {
            let ns = explained_ns[node];
            sum::add(&mut explained_ns[parent], ns);
        }
    }
    worst(context, noisy).take(MOST).map(|(ns, node)| noisy_neighbour(context, node, ns)).collect()
}

fn worst(context: &Context, mut nodes: Vec<(u64, usize)>) -> impl Iterator<Item = (u64, usize)> {
    nodes.sort_by_key(|(ns, node)| (Reverse(*ns), context.path(*node)));
    nodes.into_iter()
}

/// Returns the culprits in other cgroups, without kernel threads and without each victim's own cgroup.
pub(super) fn neighbours_of(context: &Context, victim: usize) -> Vec<Culprit> {
    let is_neighbour = |pair: &PairReading| pair.culprit != KERNEL && pair.culprit != pair.victim;
    let pairs = context.tree.pairs_below(victim).filter(|pair| is_neighbour(&context.interval.pairs[*pair]));
    context.tree.culprits_among(context.interval, pairs)
}

/// Returns the policy and the most active task of a neighbour's real-time tasks, if these tasks had most of its run time.
fn realtime_neighbour<'a>(context: &Context<'a>, neighbour: &Culprit) -> Option<Realtime<'a>> {
    let interval = context.interval;
    let is_it = |task: &&TaskInterval| match (&neighbour.task, &neighbour.path) {
        (Some((tid, _)), _) => task.reading.tid == *tid,
        (None, path) => path.is_some() && interval.cgroup_path(task.reading.cgroup_id) == path.as_ref(),
    };
    mostly_realtime(interval.tasks.iter().filter(is_it).map(|task| (task, task.totals.on_cpu_ns)))
}

/// Like [`realtime_neighbour`], for the tasks of a cgroup that waited for other cgroups.
fn realtime_victim<'a>(context: &Context<'a>, node: usize) -> Option<Realtime<'a>> {
    let waited = context.interval.tasks_at(context.tree.tasks_below(node));
    mostly_realtime(waited.map(|task| (task, task.wait.by_cause.get(Cause::OtherCgroup))))
}

/// Returns the ancestors of `a` and `b` (or the cgroups themselves) directly below the lowest common ancestor. Weights apply only
/// among siblings. `None` if one cgroup is an ancestor of the other.
fn siblings<'p>(a: &'p str, b: &'p str) -> Option<(&'p str, &'p str)> {
    let ours = path_and_ancestors(a).take_while(|path| !is_at_or_below(b, path)).last()?;
    let theirs = path_and_ancestors(b).take_while(|path| !is_at_or_below(a, path)).last()?;
    Some((ours, theirs))
}

/// Judges each cgroup by its own tasks. On an oversubscribed host, `cpu_oversubscription` replaces the finding for `/`.
fn own_contention(context: &Context) -> Vec<Finding> {
    let oversubscribed = host::cpu_oversubscription(context).is_some();
    let crowded = context.nodes().filter_map(|(node, cgroup)| {
        let ns = cgroup.own.by_cause.get(Cause::OwnCgroup);
        let is_crowded = is_much(ns, OWN_NS, cgroup.own.active_ns(), OWN_PERCENT)
            && !(oversubscribed && cgroup.parent.is_none());
        is_crowded.then_some((ns, node))
    });
    let mut crowded: Vec<_> = crowded.collect();
    if let Some((_, full_node)) = (!crowded.is_empty()).then(|| numa::node_skew(context)).flatten() {
        crowded.retain(|(ns, node)| !is_on(context, *node, full_node, *ns));
    }
    let kept = if crowded.is_empty() { Vec::new() } else { idle_cpus::kept(context) };
    let is_kept =
        |node, ns| kept.iter().any(|kept| kept.node == node && is_share(kept.own_ns, ns, EXPLAINED_PERCENT));
    crowded.retain(|(ns, node)| !is_kept(*node, *ns));
    let short = if crowded.is_empty() { BTreeMap::new() } else { short(context) };
    worst(context, crowded).filter_map(|(ns, node)| crowd(context, node, ns, &short)).take(MOST).collect()
}

/// True if most of the waiting was on a full node beside an idle node. `node_skew` reports that case.
fn is_on(context: &Context, node: usize, full_node: u32, own_ns: u64) -> bool {
    let tasks = context.interval.tasks_at(context.tree.tasks_of(node));
    let there = tasks.filter(|task| task.reading.node == Some(full_node));
    let there_ns = sum::total(there.map(|task| task.wait.by_cause.get(Cause::OwnCgroup)));
    is_share(there_ns, own_ns, EXPLAINED_PERCENT)
}

/// Reports more busy threads than CPUs, or fewer threads that are badly spread. `None` in two cases. First, other threads had
/// most of the waiting: many short threads may have outnumbered the CPUs. Second, each busy thread was last on a CPU of its own.
fn crowd(context: &Context, node: usize, ns: u64, short: &BTreeMap<usize, Short>) -> Option<Finding> {
    let own_cpus = context.limits(node).and_then(|limits| limits.cpus);
    let busy = context.busy(context.tree.tasks_of(node));
    let host_cpus = context.host.cpus.map(|cpus| cpus.saturating_sub(isolated_from(context, node)).max(1));
    let most = u64::from(own_cpus.into_iter().chain(host_cpus).min()?);
    let (cpus, threads) = (count(most, "CPU"), count(busy.threads, "busy thread"));
    if let Some(burst) = short.get(&node).and_then(|short| job_burst(context, node, ns, most, *short)) {
        return Some(burst);
    }
    let (why, action, advice) = if busy.threads > most {
        (
            format!("{} were busy, but the cgroup may use only {cpus}", count(busy.threads, "thread")),
            "start fewer threads, or let it use more CPUs (cpuset.cpus)",
            format!(
                "start at most {} (the number of CPUs that the cgroup may use), or allow more CPUs (cpuset.cpus)",
                count(most, "thread"),
            ),
        )
    } else if is_share(busy.own_ns, ns, EXPLAINED_PERCENT) && (busy.cpus.len() as u64) < busy.threads {
        let pid = busy.processes.first().copied().unwrap_or_default();
        (
            format!(
                "the cgroup may use {cpus}, but its {threads} were last seen on only {}",
                count(busy.cpus.len() as u64, "CPU"),
            ),
            "check whether an affinity mask pins its threads (taskset -acp)",
            format!(
                "check whether an affinity mask (taskset -acp {pid}) or a cpuset (/proc/{pid}/cpuset) pins these threads"
            ),
        )
    } else {
        return None;
    };
    let active_ns = context.tree.nodes()[node].own.active_ns();
    let mut says =
        format!("its tasks waited {} for each other: {why}", part(ns, active_ns, "their run and wait time"));
    let ran = who_ran(context, node, NEIGHBOURS);
    if !ran.is_empty() {
        says += &format!("; {}", list(&ran));
    }
    let (mut action, mut advice) = (action, advice);
    if let Some(poller) = poller(context, context.interval.tasks_at(context.tree.tasks_of(node))) {
        let TaskReading { comm, tid, cpu, .. } = &poller.reading;
        says += &format!("; {comm} (thread {tid}) polls an io_uring on CPU {cpu}");
        (action, advice) = ("give the io_uring poller a CPU of its own", format!("{POLLER}; or {advice}"));
    }
    let amount = format!("{} on {cpus}, {}", count(busy.threads, "thread"), context.rate(ns));
    let short = ("waits for its own threads", amount, action);
    Some(finding(Rule::OwnContention, Some(context.path(node)), ns, short, says, advice))
}

/// Returns the number of isolated CPUs that the cgroup's own tasks may not use.
fn isolated_from(context: &Context, node: usize) -> u32 {
    let isolated = context.interval.cpus.iter().filter(|cpu| cpu.is_isolated);
    let mut isolated: BTreeSet<u32> = isolated.map(|cpu| cpu.cpu).collect();
    let tasks = context.interval.tasks_at(context.tree.tasks_of(node)).filter(|_| !isolated.is_empty());
    let masks = tasks.filter_map(|task| task.reading.placement.as_deref()?.cpus_allowed.as_deref());
    let masks: BTreeSet<&str> = masks.collect();
    let allowed: BTreeSet<u32> = masks.into_iter().filter_map(parse_cpu_list).flatten().collect();
    // Without any mask, none is known to be kept from it.
    isolated.retain(|cpu| !allowed.is_empty() && !allowed.contains(cpu));
    isolated.len() as u32
}

/// Returns who of the cgroup's own tasks had the CPUs, the longest time first, at most `most`: the threads for which its tasks
/// waited, if threads are distinguished, else the processes that ran.
fn who_ran(context: &Context, node: usize, most: usize) -> Vec<String> {
    let (interval, path) = (context.interval, context.path(node));
    let is_own = |pair: &usize| {
        let PairReading { victim, culprit, .. } = interval.pairs[*pair];
        victim == culprit && interval.cgroup_path(victim) == Some(path)
    };
    let threads = context.tree.culprits_among(interval, context.tree.pairs_below(node).filter(is_own));
    let behind = |thread: &Culprit| {
        let (tid, comm) = thread.task.as_ref()?;
        Some(format!("{} behind thread {tid} ({comm})", units::duration(thread.ns)))
    };
    let threads: Vec<String> = threads.iter().filter_map(behind).take(most).collect();
    if !threads.is_empty() {
        return threads;
    }
    // Kernel threads are in the root, but have no autogroup; `by_cause` counts them separately.
    let is_of_user =
        |task: &&TaskInterval| task.reading.placement.as_deref().is_some_and(|at| at.autogroup.is_some());
    let tasks =
        interval.tasks_at(context.tree.tasks_of(node)).filter(|task| &**path != "/" || is_of_user(task));
    let ran = sum::tally(tasks.map(|task| (task.reading.tgid, task.totals.on_cpu_ns)));
    let ran = ran.into_iter().filter(|(_, ns)| *ns != 0).sorted_by_key(|(_, ns)| Reverse(*ns));
    let words = |(pid, ns)| format!("{} ran for {}", numa::process_words(interval, pid), units::duration(ns));
    ran.take(most).map(words).collect()
}

/// The tasks of a cgroup that started or ended in the interval.
#[derive(Clone, Copy, Default)]
struct Short {
    tasks: u64,
    /// Time that they waited for their own cgroup, ns.
    own_ns: u64,
}

fn short(context: &Context) -> BTreeMap<usize, Short> {
    let interval = context.interval;
    let is_short = interval.duration_ns <= STARTED_WITHIN_NS;
    let has_started = |task: &&TaskInterval| {
        is_short && task.reading.state.is_some() && task.reading.start_ns > interval.start_mono_ns
    };
    let started =
        interval.tasks.iter().filter(has_started).map(|task| (task.reading.cgroup_id, 1, &task.wait));
    let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, exited.tasks, &exited.wait));
    let mut by_node = BTreeMap::<usize, Short>::new();
    for (id, tasks, wait) in started.chain(exited) {
        if let Some(node) = context.tree.find_id(interval, id) {
            let short = by_node.entry(node).or_default();
            sum::add(&mut short.tasks, tasks);
            sum::add(&mut short.own_ns, wait.by_cause.get(Cause::OwnCgroup));
        }
    }
    by_node
}

/// Reports many short tasks at once: they had most of the waiting, in a cgroup that used little of its CPUs.
fn job_burst(context: &Context, node: usize, ns: u64, cpus: u64, short: Short) -> Option<Finding> {
    let Short { tasks, own_ns: short_ns } = short;
    let (own, duration_ns) = (context.tree.nodes()[node].own, context.interval.duration_ns);
    // What others had on its CPUs is no sign of bursts.
    let others_ns = own.by_cause.get(Cause::OtherCgroup).saturating_add(own.by_cause.get(Cause::Kernel));
    let wanted_ns = own.on_cpu_ns.saturating_add(others_ns);
    let is_steady = is_share(wanted_ns, duration_ns.saturating_mul(cpus), BURST_PERCENT);
    if tasks <= cpus || is_steady || !is_share(short_ns, ns, MOSTLY_PERCENT) {
        return None;
    }
    let used = units::number(own.on_cpu_ns as f64 / duration_ns as f64);
    let says = format!(
        "its tasks waited {} for each other, most of it in {} that started or ended meanwhile, although the cgroup used {used} of {} on \
         average: they start at once",
        part(ns, own.active_ns(), "their run and wait time"),
        count(tasks, "task"),
        count(cpus, "CPU"),
    );
    let advice = "start its jobs at different times (RandomizedDelaySec= of a systemd timer, a random delay), or run fewer at once \
                  (xargs -P); unless an affinity mask keeps them on few CPUs (taskset -cp PID)";
    let amount = format!("{}, waiting {}", count(tasks, "task"), context.rate(ns));
    let short = ("starts short tasks at once", amount, "start its jobs at different times, or fewer at once");
    Some(finding(Rule::JobBursts, Some(context.path(node)), ns, short, says, advice))
}

/// Maximum number of named neighbours. All but the first need at least this share of the waiting, percent.
const NEIGHBOURS: usize = 3;
const NEIGHBOUR_NAMED_PERCENT: u64 = 10;

fn noisy_neighbour(context: &Context, node: usize, ns: u64) -> Finding {
    let (sums, names) = (context.with_below(node), &context.interval.names);
    let neighbours = neighbours_of(context, node);
    // The pairs cover all tasks of the cgroup. A selection by name may contain only some of these tasks.
    let all_ns = sum::total(neighbours.iter().map(|neighbour| neighbour.ns)).max(ns);
    let is_named = |(at, neighbour): &(usize, &Culprit)| {
        *at == 0 || is_share(neighbour.ns, all_ns, NEIGHBOUR_NAMED_PERCENT)
    };
    let named = neighbours.iter().take(NEIGHBOURS).enumerate().filter(is_named).map(|(_, neighbour)| {
        let path = neighbour.path.as_deref().map_or("a removed cgroup".into(), |path| names.of(path));
        let task = neighbour.task.as_ref().map(|(tid, comm)| format!(" ({comm}, thread {tid})"));
        // The name of the root says nothing about who ran.
        let root =
            neighbour.path.as_deref().filter(|path| *path == "/").and_then(|path| context.tree.find(path));
        let in_root = || root.and_then(|root| Some(format!(" ({})", who_ran(context, root, 1).pop()?)));
        format!(
            "{} behind {path}{}",
            percent(neighbour.ns, all_ns),
            task.or_else(in_root).unwrap_or_default()
        )
    });
    let named: Vec<_> = named.collect();
    let named = if named.is_empty() { String::new() } else { format!(": {}", list(&named)) };
    // The advice names one cgroup, so it skips the sum of several cgroups.
    let worst = neighbours.iter().find(|neighbour| neighbour.path.as_deref() != Some(REST_NAME));
    let says = format!(
        "its tasks waited {} behind other cgroups{named}{}",
        part(ns, sums.active_ns(), "their run and wait time"),
        worst.map_or_else(String::new, |worst| beyond(context, worst)),
    );
    let first = neighbours.first();
    let who = first.and_then(|first| first.path.as_deref());
    let who = who.map_or("other cgroups".into(), |path| leaf(names, path));
    // The first neighbour's part of the selected tasks' waiting.
    let first_ns =
        first.map_or(ns, |first| (u128::from(ns) * u128::from(first.ns) / u128::from(all_ns.max(1))) as u64);
    let share = units::percent(first_ns, sums.waited_ns()).unwrap_or_default();
    let amount = format!("{} ({share:.0}% of its waiting)", context.rate(first_ns));
    let is_heavier =
        worst.is_some_and(|worst| gets_rest(context, node, worst) || is_heavier(context, node, worst));
    let (action, advice) = actions(context, node, worst, is_heavier);
    let short = (format!("waits behind {who}"), amount, action);
    let finding = finding(Rule::NoisyNeighbour, Some(context.path(node)), ns, short, says, advice);
    Finding { is_heavier, culprit: worst.and_then(|worst| worst.path.clone()), ..finding }
}

/// Returns a clause on how much of the waiting exceeds the neighbour's weight.
fn beyond(context: &Context, neighbour: &Culprit) -> String {
    let Some((path, beyond_ns)) = neighbour.path.as_deref().zip(neighbour.beyond_ns) else {
        return String::new();
    };
    let path = context.interval.names.of(path);
    match neighbour.is_beyond() {
        // The advice explains that no weight applies.
        _ if realtime_neighbour(context, neighbour).is_some() => String::new(),
        Some(true) => {
            format!("; {} of the time behind {path} is beyond its weight", percent(beyond_ns, neighbour.ns))
        }
        _ => format!("; the time behind {path} is within its weight"),
    }
}

/// True if the victim used more CPU time than the neighbour, and the neighbour is an ordinary cgroup within its weight.
fn is_heavier(context: &Context, victim: usize, neighbour: &Culprit) -> bool {
    let Some(path) = neighbour.path.as_deref() else { return false };
    let ran_ns = |node| context.with_below(node).on_cpu_ns;
    siblings(context.path(victim), path).is_some()
        && neighbour.is_beyond() != Some(true)
        && realtime_neighbour(context, neighbour).is_none()
        && realtime_victim(context, victim).is_none()
        && context.tree.find(path).is_some_and(|neighbour| ran_ns(victim) > ran_ns(neighbour))
}

/// True if the victim gets only what others leave (`cpu.idle`) where it competes with the neighbour.
fn gets_rest(context: &Context, victim: usize, neighbour: &Culprit) -> bool {
    let path = neighbour.path.as_deref().and_then(|path| Some(siblings(context.path(victim), path)?.0));
    let limits = path.and_then(|path| context.limits(context.tree.find(path)?));
    limits.is_some_and(|limits| limits.idle == Some(1))
}

/// Returns the short and the long form of the advice against the neighbour `worst`.
pub(super) fn actions(
    context: &Context,
    node: usize,
    worst: Option<&Culprit>,
    is_heavier: bool,
) -> (String, String) {
    // The files of the cpu controller do not apply to real-time tasks.
    const NOT: &str = "to which cpu.weight and cpu.max do not apply";
    let leaf = |path: &str| leaf(&context.interval.names, path);
    let name = |path: &str| context.interval.names.of(path).into_owned();
    let path = worst.and_then(|worst| worst.path.as_deref());
    if let Some((policy, task)) = worst.and_then(|worst| realtime_neighbour(context, worst)) {
        let (who, tid) = (path.map_or("that cgroup".into(), leaf), task.reading.tid);
        return (
            format!("give real-time tasks of {who} an ordinary policy (chrt -o), or another cpuset"),
            format!(
                "the neighbour's tasks are real-time tasks ({policy}), {NOT}: give them an ordinary policy \
                 (chrt -o -p 0 {tid}), or give each of the two cgroups its own cpuset"
            ),
        );
    }
    if let Some((policy, _)) = realtime_victim(context, node) {
        return (
            "give its real-time tasks a higher priority (chrt -p), or another cpuset".into(),
            format!(
                "the waiting tasks are real-time tasks ({policy}), {NOT}: give them a higher priority (chrt -p), or give each \
                 of the two cgroups its own cpuset"
            ),
        );
    }
    let Some(path) = path else {
        return (
            "raise its cpu.weight, or give its neighbours a quota (cpu.max)".into(),
            "give the cgroup a higher cpu.weight (in v1 cpu.shares); or give its neighbours a quota (cpu.max); or give each its \
             own cpuset"
                .into(),
        );
    };
    // Weights apply only among siblings, and the root has no quota.
    let Some((ours, theirs)) = siblings(context.path(node), path) else {
        return (
            format!("move tasks of {} to a cgroup with a quota (cpu.max)", leaf(path)),
            format!(
                "move the tasks in {} itself (not those in cgroups below it) to a cgroup of their own; give that cgroup a \
                 quota (cpu.max), a lower cpu.weight or another cpuset",
                name(path)
            ),
        );
    };
    let limits = |path: &str| context.limits(context.tree.find(path)?);
    let is_idle = worst.is_some_and(|worst| gets_rest(context, node, worst));
    let is_beyond = worst.and_then(Culprit::is_beyond).filter(|_| !is_idle);
    let action = match is_beyond {
        _ if is_idle => {
            let matters = leaf(context.path(node));
            format!("none, unless {matters} matters more: then set cpu.idle of {} to 0", leaf(ours))
        }
        _ if is_heavier => {
            format!("none, unless {} matters more: then raise its cpu.weight", leaf(context.path(node)))
        }
        Some(false) => format!("raise its cpu.weight ({} is within its weight), or move it", leaf(path)),
        _ => format!("give {} a quota (cpu.max) or a lower cpu.weight", leaf(path)),
    };
    let with_weight = |path: &str| match limits(path).and_then(|limits| limits.weight) {
        Some(weight) => format!("{} (now {weight})", name(path)),
        None => name(path),
    };
    let (ours, theirs, neighbour) = (with_weight(ours), with_weight(theirs), name(path));
    let give = if is_idle {
        format!("set cpu.idle of {ours} to 0 (with 1, it gets what others leave), and give it")
    } else {
        format!("give {ours}")
    };
    let is_refused = context.limits(node).is_some_and(|limits| limits.rt_runtime_us == Some(0));
    let refused = if is_refused {
        "; the kernel refuses its tasks real-time policies, because its cpu.rt_runtime_us is 0"
    } else {
        ""
    };
    let advice = match is_beyond {
        Some(true) => format!(
            "limit {neighbour}: give it a quota (cpu.max), or give {theirs} a lower cpu.weight (in v1 cpu.shares); or give each its \
             own cpuset"
        ),
        Some(false) => format!(
            "{give} a higher cpu.weight (in v1 cpu.shares, in Kubernetes the CPU request; {theirs} uses what its own gives it); \
             or give each its own cpuset, or move one of them to another host{refused}"
        ),
        None => format!(
            "{give} a higher cpu.weight (in v1 cpu.shares), or give {theirs} a lower one; or give {neighbour} a quota \
             (cpu.max); or give each its own cpuset{refused}"
        ),
    };
    (action, advice)
}

/// Replaces advice that relies on `cpu.weight` and `cpu.max`: the BPF scheduler may ignore them.
pub(super) fn advise(finding: &mut Finding, scheduler: &str) {
    match finding.rule {
        Rule::NoisyNeighbour => {
            finding.action = format!("see the options of the BPF scheduler {scheduler}");
            finding.advice = format!(
                "see the options of the BPF scheduler {scheduler}, which may ignore cpu.weight and cpu.max; or give the \
                 cgroups separate CPUs (cpuset.cpus)"
            );
        }
        Rule::CpuOversubscription => {
            finding.advice = format!(
                "run fewer tasks at once on this host, or add CPUs; until then, the BPF scheduler {scheduler} decides who \
                 waits, and it may ignore cpu.weight and cpu.max"
            );
        }
        _ => {}
    }
}
