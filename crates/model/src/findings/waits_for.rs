//! The rule about tasks that sleep for tasks of another cgroup, which are kept from running.

use std::{cmp::Reverse, collections::BTreeMap};

use cgscope_ledger::{Cause, chains::Waker, history::KERNEL};
use itertools::Itertools;

use crate::{
    BlockedKind, ChainReading, ChainsBySleeper,
    blocked_kind::Class,
    findings::{Context, Finding, MOST, Rule, contention, finding, is_share, leaf, part},
    units::{cpus, duration},
    words::{percent, raise},
};

/// A sleep is reported if the waker waited for this share of the interval meanwhile, and of the time that the cgroup slept for
/// tasks, percent.
pub(super) const OF_INTERVAL_PERCENT: u64 = 10;
pub(super) const OF_SLEEP_PERCENT: u64 = 20;

/// Waits that a setting ends.
const CAUSES: [Cause; 3] = [Cause::Throttled, Cause::OtherCgroup, Cause::OwnCgroup];

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    let Some(rows) = &context.interval.chains else { return Vec::new() };
    let mut sleepers: BTreeMap<usize, Sleeper> = BTreeMap::new();
    let chains = ChainsBySleeper::new(rows);
    for (party, rows) in chains.sleepers() {
        let node = context.tree.find_id(context.interval, party.0);
        let Some(node) = node.filter(|node| context.tree.nodes()[*node].has_tasks) else { continue };
        let sleeper = sleepers.entry(node).or_default();
        let is_for = |row: &&&ChainReading| {
            row.waker == Waker::Task && row.waker_cgroup != row.sleeper && is_for_others(row.kind)
        };
        for row in rows.iter().filter(is_for) {
            sleeper.slept_ns += row.slept_ns as f64;
            *sleeper.for_ns.entry((row.waker_cgroup, row.kind)).or_default() += row.slept_ns as f64;
        }
        for (end, ns) in chains.ends(party).into_iter().filter(|(end, _)| is_for_others(end.kind)) {
            let waits = sleeper.waits.entry((end.waker.0, end.kind, end.is_estimate)).or_default();
            if let Some(cause) = end.cause.filter(|cause| CAUSES.contains(cause)) {
                *waits.entry(cause).or_default() += ns;
            }
        }
    }
    let found = sleepers.iter().filter_map(|(node, sleeper)| sleeps_for(context, *node, sleeper));
    found.sorted_by_key(|finding| Reverse(finding.lost_ns)).take(MOST).collect()
}

/// True if a task in such a sleep may wait for the work of another one. (A task in `poll` may.)
const fn is_for_others(kind: BlockedKind) -> bool {
    matches!(kind, BlockedKind::Poll | BlockedKind::Child) || !matches!(kind.class(), Class::Idle)
}

/// For whom a cgroup slept, ns.
#[derive(Default)]
struct Sleeper {
    slept_ns: f64,
    /// By the waker's cgroup.
    for_ns: BTreeMap<(u64, BlockedKind), f64>,
    /// What the last wakers of its chains waited for meanwhile, by cgroup; the flag: the chain has more than one waker.
    waits: BTreeMap<(u64, BlockedKind, bool), BTreeMap<Cause, f64>>,
}

/// Reports the waker that waited longest.
fn sleeps_for(context: &Context, node: usize, sleeper: &Sleeper) -> Option<Finding> {
    let own = |id| context.tree.find_id(context.interval, id) == Some(node);
    let others = sleeper.waits.iter().filter(|((id, ..), _)| *id != KERNEL && !own(*id));
    let waited = others.map(|(waker, causes)| (waker, causes, causes.values().sum::<f64>() as u64));
    // What is exact comes before what is an estimate, unless it is much less.
    let weight = |is_estimate: bool, ns: u64| if is_estimate { ns / 2 } else { ns };
    let most = waited.max_by_key(|((.., is_estimate), _, ns)| weight(*is_estimate, *ns));
    let (&(id, kind, is_estimate), causes, waited_ns) = most?;
    let all_ns = sleeper.slept_ns as u64;
    if !is_share(waited_ns, context.interval.duration_ns, OF_INTERVAL_PERCENT)
        || !is_share(waited_ns, all_ns, OF_SLEEP_PERCENT)
    {
        return None;
    }
    let waker = context.tree.find_id(context.interval, id)?;
    let path = context.path(waker);
    let slept_ns = if is_estimate { all_ns } else { *sleeper.for_ns.get(&(id, kind))? as u64 };
    let (cause, cause_ns) =
        causes.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(cause, ns)| (*cause, *ns as u64))?;
    let Held { how, short_how, action, advice } = held(context, node, waker, cause)?;
    let whom = |name: &str| match kind {
        BlockedKind::FileLock => format!("a file lock of {name}"),
        _ => name.into(),
    };
    let (name, full) = (whom(&leaf(&context.interval.names, path)), whom(&context.interval.names.of(path)));
    let about = if is_estimate { "about " } else { "" };
    let (did, rate) =
        (if cause == Cause::Throttled { "was throttled for" } else { "waited" }, context.rate(cause_ns));
    let via = if is_estimate { "others, and they for " } else { "" };
    let what = format!(
        "sleeps {} for {via}{name}, which {did} {about}{rate} of that {short_how}",
        context.rate(slept_ns)
    );
    let says = format!(
        "its tasks slept {} for {via}{full}, which {did} {about}{} of that ({}) {how}",
        part(slept_ns, all_ns, "their sleep for other tasks"),
        duration(cause_ns),
        percent(cause_ns, slept_ns),
    );
    let finding =
        finding(Rule::WaitsFor, Some(context.path(node)), waited_ns, (what, "", action), says, advice);
    Some(Finding { culprit: Some(path.clone()), ..finding })
}

/// How a waker was kept from running, in full and in short, and what to do.
struct Held {
    how: String,
    short_how: String,
    action: String,
    advice: String,
}

/// Returns `None` if the waker waited behind the sleeper itself, which then lacks nothing.
fn held(context: &Context, sleeper: usize, waker: usize, cause: Cause) -> Option<Held> {
    let path = context.path(waker);
    let names = &context.interval.names;
    let name = leaf(names, path);
    Some(match cause {
        Cause::Throttled => {
            let limit = context.interval.limits_of(path).into_iter().find_map(|(path, _)| path);
            let limit = limit.as_ref().unwrap_or(path);
            let cores = context.tree.find(limit).and_then(|node| context.limits(node)?.quota_cores());
            let of = cores.map_or_else(String::new, |cores| format!(" of {}", cpus(cores)));
            let (full, short, (_, how)) = (names.of(limit), leaf(names, limit), raise(limit, cores));
            let by = |name: &str| match limit == path {
                true => format!("by its limit{of}"),
                false => format!("by the limit of {name}{of}"),
            };
            Held {
                how: by(&full),
                short_how: by(&short),
                action: format!("raise the limit of {short}"),
                advice: format!("raise the limit of {full}{how}"),
            }
        }
        Cause::OtherCgroup => {
            let neighbours = contention::neighbours_of(context, waker);
            let worst = neighbours.first();
            let behind = worst.and_then(|worst| worst.path.as_deref());
            if behind == Some(context.path(sleeper)) {
                return None;
            }
            let limits = context.limits(waker);
            let is_idle = limits.is_some_and(|limits| limits.idle == Some(1));
            let weight = match limits.and_then(|limits| limits.weight) {
                _ if is_idle => " (its cpu.idle is 1)".into(),
                Some(weight) => format!(" (its weight is {weight})"),
                None => String::new(),
            };
            let (mut action, advice) = contention::actions(context, waker, worst, false);
            if is_idle {
                action = format!("set cpu.idle of {name} to 0, or take no lock in idle tasks");
            }
            let (full, short) = behind.map(|path| (names.of(path), leaf(names, path))).unzip();
            let who = |name: Option<&str>| format!("behind {}{weight}", name.unwrap_or("other cgroups"));
            Held {
                how: who(full.as_deref()),
                short_how: who(short.as_deref()),
                action,
                advice: format!("{advice}; or let no other tasks depend on those of {}", names.of(path)),
            }
        }
        _ => Held {
            how: "for other tasks of its own cgroup".into(),
            short_how: "for its own cgroup".into(),
            action: format!("run fewer threads in {name}, or give it more CPUs"),
            advice: format!("run fewer threads at once in {}, or let it use more CPUs", names.of(path)),
        },
    })
}
