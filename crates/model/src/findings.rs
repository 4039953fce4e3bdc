//! Findings: the problems of an interval, with figures and advice. A pure function of the interval.
//!
//! This file names the rules. Their thresholds, conditions and texts are in the file of their kind. Except for `starved`, rules
//! count only completed waits, because the culprits of pending waits are unknown. A rule whose data is missing reports nothing.

mod contention;
mod host;
mod idle_cpus;
mod numa;
mod quota;
mod starved;
#[cfg(test)]
mod tests;
mod waits_for;

use std::collections::{BTreeMap, BTreeSet};
use std::{cmp::Reverse, sync::Arc};

use cgscope_ledger::Cause;
use serde::Serialize;

use crate::sum::{self, is_share};
pub use crate::table::{interval::REALTIME_PERCENT, tasks::BUSY_THREAD_PERCENT};
use crate::tree::{Node, Sums};
pub use crate::words::{QUOTA_FILE, set_burst, set_quota};
use crate::{
    Blame, CgroupReading, Group, Interval, Names, TaskInterval, Tree, cgroup_name::container_words,
    path::path_and_ancestors, units::duration, words::percent,
};
pub use quota::BELOW_LIMIT_PERCENT;

/// Maximum number of findings of an interval. The most costly findings are kept.
pub const MOST: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: Rule,
    /// Path of the affected cgroup, relative to the cgroup mount; `None`: all measured tasks.
    pub cgroup: Option<Arc<str>>,
    /// Short form: who, and what happens.
    #[serde(skip)]
    pub what: String,
    /// Short form: how much; empty if `what` says it.
    #[serde(skip)]
    pub amount: String,
    /// Short form of the advice: one action.
    #[serde(skip)]
    pub action: String,
    /// The problem, with figures: one sentence without a full stop.
    pub says: String,
    /// The action to take: one sentence without a full stop.
    pub advice: String,
    /// Waiting time that the problem causes, ns, summed over tasks. Two findings may count the same waiting time.
    pub lost_ns: u64,
    /// True if the affected cgroup used more CPU time than the neighbour for which it waited, or is meant to get only what others
    /// leave (`cpu.idle`). Limiting the neighbour would help little.
    #[serde(skip)]
    pub is_heavier: bool,
    /// Path of the neighbour that the advice is about.
    #[serde(skip)]
    pub culprit: Option<Arc<str>>,
}

impl Finding {
    /// Returns the short form in one line: who, what happens, and how much.
    pub fn headline(&self) -> String {
        if self.amount.is_empty() { self.what.clone() } else { format!("{}: {}", self.what, self.amount) }
    }
}

/// Facts about a host that rules need in addition to the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Number of online CPUs; `None`: unknown.
    pub cpus: Option<u32>,
    /// True if all tasks of the host were measured, not only a selection.
    pub whole: bool,
    /// Version of the kernel; `None`: unknown. See [`parse_version`](crate::doctor::parse_version).
    pub kernel: Option<(u32, u32, u32)>,
}

/// Returns at most [`MOST`] findings, the most costly first. First come chains of sleeps. A culprit's own
/// contention comes after its victims, and a host with too few CPUs after findings that explain half of its waiting. Last come heavier cgroups behind lighter ones, and unattributed
/// waiting, which makes other figures less certain.
pub fn findings(interval: &Interval, host: &Host) -> Vec<Finding> {
    findings_in(interval, &Tree::new(interval), host)
}

/// Same as [`findings`], for a caller that has the tree.
pub fn findings_in(interval: &Interval, tree: &Tree, host: &Host) -> Vec<Finding> {
    if interval.duration_ns == 0 {
        return Vec::new();
    }
    let context = Context::new(interval, tree, *host);
    let kinds = [
        quota::findings,
        contention::findings,
        starved::findings,
        idle_cpus::findings,
        host::findings,
        numa::findings,
        waits_for::findings,
    ];
    let mut findings: Vec<Finding> = kinds.iter().flat_map(|kind| kind(&context)).collect();
    drop_small(&context, &mut findings);
    drop_explained(&mut findings);
    let specific_ns = specific_ns(&context, &findings);
    let culprits = findings.iter().filter(|finding| !finding.is_heavier);
    let culprits: BTreeSet<Arc<str>> = culprits.filter_map(|finding| finding.culprit.clone()).collect();
    findings.sort_by(|a, b| order(a, specific_ns, &culprits).cmp(&order(b, specific_ns, &culprits)));
    // Many small findings must not hide that the host has too few CPUs.
    let host = findings.iter().position(|finding| finding.rule == Rule::CpuOversubscription);
    if let Some(at) = host.filter(|at| *at >= MOST) {
        findings.swap(at, MOST - 1);
    }
    findings.truncate(MOST);
    findings.iter_mut().for_each(|finding| name(finding, &interval.names));
    if let Some(scheduler) = interval.scheduler_instead_of_quotas() {
        findings.iter_mut().for_each(|finding| contention::advise(finding, scheduler));
    }
    findings
}

/// Returns only the findings about chains of sleeps.
pub(crate) fn chains_of(interval: &Interval, tree: &Tree) -> Vec<Finding> {
    if interval.chains.is_none() || interval.duration_ns == 0 {
        return Vec::new();
    }
    waits_for::findings(&Context::new(interval, tree, Host::default()))
}

/// Rules that say who waits for a CPU because of whom or what.
const SPECIFIC: [Rule; 5] =
    [Rule::NoisyNeighbour, Rule::Sessions, Rule::OwnContention, Rule::JobBursts, Rule::IdleCpus];
/// Rules about a quota that ran out.
const QUOTA: [Rule; 3] = [Rule::ThreadsOverQuota, Rule::ThrottledBelowLimit, Rule::Throttled];
/// The finding about the host comes after specific ones that explain this share of the waiting, percent.
const SPECIFIC_PERCENT: u64 = 50;
/// A finding that explains less of a cgroup's waiting, percent, is not shown beside one that explains more.
const EXPLAINS_PERCENT: u64 = 10;

/// `specific_ns`: the waiting that specific findings explain, ns. `culprits`: the cgroups behind which others wait.
fn order<'f>(
    finding: &'f Finding,
    specific_ns: u64,
    culprits: &BTreeSet<Arc<str>>,
) -> (u8, Reverse<u64>, Option<&'f str>, Rule) {
    let Finding { rule, cgroup, lost_ns, is_heavier, .. } = finding;
    let is_explained = || is_share(specific_ns, *lost_ns, SPECIFIC_PERCENT);
    let is_culprit = || cgroup.as_ref().is_some_and(|path| culprits.contains(path));
    let last = match rule {
        // Somebody asked for whom tasks sleep. The cgroup at the end of the chain has findings, too.
        Rule::WaitsFor => 0,
        Rule::Unattributed => 5,
        _ if *is_heavier => 4,
        Rule::CpuOversubscription if is_explained() => 3,
        // Its victims come first: they suffer from others, not from what they do themselves.
        Rule::OwnContention | Rule::JobBursts if is_culprit() => 2,
        _ => 1,
    };
    (last, Reverse(*lost_ns), cgroup.as_deref(), *rule)
}

/// Returns the waiting that specific findings explain, ns; 0 if all of them are about heavier cgroups, which come last.
fn specific_ns(context: &Context, findings: &[Finding]) -> u64 {
    if findings.iter().all(|finding| finding.is_heavier || !SPECIFIC.contains(&finding.rule)) {
        return 0;
    }
    let noisy = findings.iter().filter(|finding| finding.rule == Rule::NoisyNeighbour);
    let noisy: BTreeSet<&str> = noisy.filter_map(|finding| finding.cgroup.as_deref()).collect();
    let explained_ns = |finding: &Finding| match (finding.rule, finding.cgroup.as_deref()?) {
        // The waits of a cgroup behind others include those of its descendants.
        (Rule::NoisyNeighbour, path) if path_and_ancestors(path).skip(1).any(|path| noisy.contains(path)) => {
            None
        }
        // The other session's own waiting is as much a matter of who shares the CPUs with whom.
        (Rule::Sessions, _) => {
            let own_ns = context.tree.nodes().first()?.own.by_cause.get(Cause::OwnCgroup);
            Some(if is_share(finding.lost_ns, own_ns, EXPLAINS_PERCENT) { own_ns } else { finding.lost_ns })
        }
        (rule, _) => SPECIFIC.contains(&rule).then_some(finding.lost_ns),
    };
    sum::total(findings.iter().filter_map(explained_ns))
}

/// Drops findings that explain little of a cgroup's waiting, where another one explains more.
fn drop_small(context: &Context, findings: &mut Vec<Finding>) {
    let mut most_ns = BTreeMap::new();
    for Finding { cgroup, lost_ns, .. } in findings.iter().filter(|finding| finding.rule.is_about_waits()) {
        let most_ns = most_ns.entry(cgroup.clone()).or_insert(0);
        *most_ns = (*lost_ns).max(*most_ns);
    }
    findings.retain(|Finding { rule, cgroup, lost_ns, .. }| {
        let Some(path) = cgroup.as_ref().filter(|_| rule.is_about_waits()) else { return true };
        let Some(node) = context.tree.find(path) else { return true };
        let [own_ns, all_ns] =
            [context.tree.nodes()[node].own, context.with_below(node)].map(|sums| sums.waited_ns());
        let waited_ns = if rule.is_about_own_tasks() { own_ns } else { all_ns };
        let is_large = |ns, of_ns| is_share(ns, of_ns, EXPLAINS_PERCENT);
        // The throttled time may be unknown where the periods are not.
        *lost_ns == 0 || is_large(*lost_ns, waited_ns) || !is_large(most_ns[cgroup], all_ns)
    });
}

/// Drops a cgroup's own contention that another finding explains: a quota at or above it, or another session in the root.
fn drop_explained(findings: &mut Vec<Finding>) {
    let limits = findings.iter().filter(|finding| QUOTA.contains(&finding.rule));
    let limits: BTreeSet<Arc<str>> = limits.filter_map(|finding| finding.cgroup.clone()).collect();
    let sessions = findings.iter().find(|finding| finding.rule == Rule::Sessions);
    let sessions_ns = sessions.map_or(0, |finding| finding.lost_ns);
    findings.retain(|Finding { rule, cgroup, lost_ns, .. }| {
        let path = cgroup.as_deref().filter(|_| matches!(rule, Rule::OwnContention | Rule::JobBursts));
        path.is_none_or(|path| {
            let is_of_sessions =
                path == "/" && is_share(sessions_ns, *lost_ns, contention::EXPLAINED_PERCENT);
            !is_of_sessions && !path_and_ancestors(path).any(|path| limits.contains(path))
        })
    });
}

fn is_much(ns: u64, least_ns: u64, whole_ns: u64, percent: u64) -> bool {
    ns >= least_ns && is_share(ns, whole_ns, percent)
}

/// The busy threads among some tasks, except kernel threads that are bound to a CPU: a user cannot move those threads.
#[derive(Debug, Default)]
pub(crate) struct BusyThreads {
    pub threads: u64,
    pub processes: BTreeSet<u32>,
    /// The current or last CPU of each thread.
    pub cpus: BTreeSet<u32>,
    /// Time that the threads waited for their own cgroup, ns.
    pub own_ns: u64,
}

/// An interval with its derived sums. A cgroup is a node of the tree.
pub(crate) struct Context<'a> {
    pub interval: &'a Interval,
    pub tree: &'a Tree,
    pub host: Host,
    /// Sums over all tasks, including tasks whose cgroup path is unknown.
    pub total: Sums,
    pub held: Vec<Held>,
}

impl<'a> Context<'a> {
    pub fn new(interval: &'a Interval, tree: &'a Tree, host: Host) -> Self {
        let mut context = Self { interval, tree, host, total: Sums::default(), held: held(interval, tree) };
        context.groups().for_each(|group| context.total.add(&Sums::new(&group.totals, &group.wait)));
        context
    }

    /// Returns groups that together contain each task once.
    pub fn groups(&self) -> impl Iterator<Item = &'a Group> + use<'a> {
        self.tree.nodes().first().map(|root| &root.group).into_iter().chain(&self.tree.unknown)
    }

    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (usize, &'a Node)> + ExactSizeIterator {
        self.tree.nodes().iter().enumerate()
    }

    pub fn path(&self, node: usize) -> &'a Arc<str> {
        &self.tree.nodes()[node].path
    }

    pub fn limits(&self, node: usize) -> Option<&'a CgroupReading> {
        self.tree.limits(self.interval, node)
    }

    /// Returns the sums of a cgroup with its descendants.
    pub fn with_below(&self, node: usize) -> Sums {
        let Group { totals, wait, .. } = &self.tree.nodes()[node].group;
        Sums::new(totals, wait)
    }

    /// Formats time per second: `494ms/s`.
    pub fn rate(&self, ns: u64) -> String {
        let per_second = u128::from(ns) * 1_000_000_000 / u128::from(self.interval.duration_ns.max(1));
        format!("{}/s", duration(u64::try_from(per_second).unwrap_or(u64::MAX)))
    }

    pub fn busy(&self, tasks: &[usize]) -> BusyThreads {
        let mut busy = BusyThreads::default();
        let tasks = self.interval.tasks_at(tasks);
        for task in tasks.filter(|task| task.is_busy(self.interval.duration_ns) && !task.is_bound()) {
            busy.threads += 1;
            busy.processes.insert(task.reading.tgid);
            busy.cpus.insert(task.reading.cpu);
            sum::add(&mut busy.own_ns, task.wait.by_cause.get(Cause::OwnCgroup));
        }
        busy
    }
}

/// Finds the thread that polls an io_uring in the kernel (`io_sq_thread`, Linux 5.1; with this name since 5.12). It belongs to the
/// process, and never sleeps while it polls.
fn poller<'a>(
    context: &Context,
    tasks: impl IntoIterator<Item = &'a TaskInterval>,
) -> Option<&'a TaskInterval> {
    let is_poller = |task: &&TaskInterval| {
        let TaskInterval { reading, totals, wait, .. } = task;
        let active_ns = totals.on_cpu_ns.saturating_add(wait.total_ns);
        reading.comm.starts_with("iou-sqp-")
            && is_share(active_ns, context.interval.duration_ns, POLLS_PERCENT)
    };
    tasks.into_iter().filter(is_poller).max_by_key(|task| task.totals.on_cpu_ns)
}

/// A poller polls if it runs or waits for this share of the interval, percent.
const POLLS_PERCENT: u64 = 50;
/// What to do about a poller on the CPU of other threads.
const POLLER: &str = "give the poller a CPU of its own (sq_thread_cpu), make it sleep earlier (sq_thread_idle), or do without \
                      IORING_SETUP_SQPOLL";

/// Time that the quota of a cgroup throttled tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub ns: u64,
    /// The part for which the recording does not say which quota had run out, ns.
    pub unnamed_ns: u64,
}

/// Computes the time that each node's quota throttled tasks. If the recording does not name the quota, the tightest quota counts,
/// as in [`Node::limited_by`].
fn held(interval: &Interval, tree: &Tree) -> Vec<Held> {
    // By id, because a cgroup that was removed and created again has two ids.
    let living = interval.tasks.iter().map(|task| (task.reading.cgroup_id, &task.wait));
    let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, &exited.wait));
    let waits = living.chain(exited).map(|(id, wait)| (id, wait.by_cause.get(Cause::Throttled)));
    let throttled_ns = sum::tally(waits.filter(|(_, ns)| *ns != 0));
    let mut limits: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Limited) {
        limits.entry(pair.victim).or_default().push((pair.ns, pair.culprit));
    }
    let mut held = vec![Held::default(); tree.nodes().len()];
    let mut hold = |node: Option<usize>, ns: u64, unnamed_ns: u64| {
        if let Some(node) = node {
            sum::add(&mut held[node].ns, ns);
            sum::add(&mut held[node].unnamed_ns, unnamed_ns);
        }
    };
    for (id, mut rest_ns) in throttled_ns {
        let mut limits = limits.remove(&id).unwrap_or_default();
        let is_recorded = !limits.is_empty();
        limits.sort_unstable_by(|a, b| b.cmp(a));
        for (ns, limit) in limits {
            // The pairs cover all tasks of the cgroup. A selection by name may contain only some of these tasks.
            let ns = ns.min(rest_ns);
            rest_ns -= ns;
            hold(tree.find_id(interval, limit), ns, 0);
        }
        let effective = tree.find_id(interval, id).and_then(|node| tree.nodes()[node].effective);
        hold(effective.map(|limit| limit.node), rest_ns, if is_recorded { rest_ns } else { 0 });
    }
    held
}

fn most<K: Ord>(parts: impl Iterator<Item = (K, u64)>) -> Option<(K, u64)> {
    sum::tally(parts).into_iter().max_by_key(|(_, ns)| *ns)
}

cgscope_ledger::named! {
    /// A rule for findings. The order of the rules sorts findings of the same cost and cgroup.
    Rule {
        /// Before `Throttled`: with a higher quota, too many threads would still wait for each other.
        ThreadsOverQuota = "threads_over_quota",
        /// A quota ran out, although the cgroup used less than the quota on average.
        ThrottledBelowLimit = "throttled_below_limit",
        Throttled = "throttled",
        /// Tasks of other cgroups occupied the CPU.
        NoisyNeighbour = "noisy_neighbour",
        /// Tasks of another session had the CPU, within the root cgroup.
        Sessions = "sessions",
        CpuOversubscription = "cpu_oversubscription",
        OwnContention = "own_contention",
        /// Many short tasks of one cgroup start at once.
        JobBursts = "job_bursts",
        Starved = "starved",
        /// Tasks wait for busy CPUs while other CPUs are idle.
        IdleCpus = "idle_cpus",
        WakeupLatency = "wakeup_latency",
        /// Real-time or deadline tasks used up their runtime.
        RealTimeLimit = "real_time_limit",
        /// Interrupts occupied the CPUs.
        Interrupts = "interrupts",
        StolenTime = "stolen_time",
        NodeSkew = "node_skew",
        /// Threads run on other nodes than the node of their memory.
        RemoteMemory = "remote_memory",
        NodeBouncing = "node_bouncing",
        Unattributed = "unattributed",
        /// Tasks sleep for tasks of another cgroup, which are kept from running.
        WaitsFor = "waits_for",
    }
}
by_name!(Rule);

impl Rule {
    /// True if [`Finding::lost_ns`] is a part of the waits of the cgroup without its descendants.
    const fn is_about_own_tasks(self) -> bool {
        matches!(self, Self::OwnContention | Self::JobBursts | Self::IdleCpus | Self::RealTimeLimit)
    }

    /// True if [`Finding::lost_ns`] is a part of the completed waits of the cgroup.
    fn is_about_waits(self) -> bool {
        self.is_about_own_tasks() || QUOTA.contains(&self) || self == Self::NoisyNeighbour
    }
}

/// Creates a finding about a cgroup, or about all measured tasks. `short`: what happens, how much, and one action.
fn finding(
    rule: Rule,
    cgroup: Option<&Arc<str>>,
    lost_ns: u64,
    short: (impl Into<String>, impl Into<String>, impl Into<String>),
    says: String,
    advice: impl Into<String>,
) -> Finding {
    let (what, amount, action) = (short.0.into(), short.1.into(), short.2.into());
    let (cgroup, advice) = (cgroup.cloned(), advice.into());
    Finding { rule, cgroup, what, amount, action, says, advice, lost_ns, is_heavier: false, culprit: None }
}

pub(crate) fn name(finding: &mut Finding, names: &Names) {
    // The sentence already names the cgroup.
    let is_named = matches!(finding.rule, Rule::NodeSkew | Rule::Sessions);
    if let Some(path) = finding.cgroup.as_ref().filter(|_| !is_named) {
        finding.what = format!("{} {}", leaf(names, path), finding.what);
        finding.says = format!("{}: {}", names.of(path), finding.says);
    }
}

/// Returns the short name of a cgroup: its container, pod or unit, or else the last part of its path.
fn leaf(names: &Names, path: &str) -> String {
    match names.of(path) {
        _ if path == "/" => "the root cgroup".into(),
        name if *name == *path => container_words(path).unwrap_or_else(|| names.leaf(path).into()),
        name => name.into(),
    }
}

/// Formats a time with its share of a longer time: `1.20s (12.3% of all waiting)`.
fn part(ns: u64, whole_ns: u64, whole: &str) -> String {
    format!("{} ({} of {whole})", duration(ns), percent(ns, whole_ns))
}

fn micros(us: u64) -> String {
    duration(us.saturating_mul(1_000))
}
