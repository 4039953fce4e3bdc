//! Where the time of the command's threads went, one part per line.

use std::{
    fmt::{Result, Write as _},
    sync::Arc,
};

use cgscope_model::{
    BlockedState, BlockedTime, Cause, WallTime,
    cgroup_name::UNNAMED,
    command_run::CommandRun,
    units::{duration, percent},
};

use super::{WIDTH, wrapped};
use crate::causes::{ORDER, culprits_line, shown};

/// Maximum number of quotas named in a line.
const QUOTAS: usize = 3;
/// Minimum share of a part, percent, for which the line names the cgroups that are to blame.
const REMARKED_PERCENT: f64 = 1.0;
/// Indentation of the second and further lines of a remark.
const INDENT: &str = "                                                   ";

/// The whole table.
pub fn table(out: &mut String, run: &CommandRun, time: &WallTime) -> Result {
    let whole = match time.blocked {
        Some(_) => "in which its threads existed, summed over the threads",
        None => "in which its threads ran or could run, summed over the threads",
    };
    writeln!(out, "\nWhere the {} went {whole}:", duration(time.total_ns()))?;
    let mut row = |what: &str, ns: Option<u64>, remark: Option<String>| line(out, time, what, ns, remark);
    row("on a CPU", Some(time.on_cpu_ns), None)?;
    for cause in ORDER {
        let ns = time.waited.known(cause, run.interval.mode);
        let matters =
            ns.and_then(|ns| percent(ns, time.total_ns())).is_some_and(|share| share >= REMARKED_PERCENT);
        row(shown(cause).state, ns, if matters { remark(cause, run) } else { None })?;
    }
    let Some(blocked) = time.blocked else { return row("blocked", None, Some("not known".into())) };
    for (state, ns) in blocked.iter() {
        // A command has no kernel threads, and its threads are rarely stopped, so those lines are shown only if they are not 0.
        if ns != 0
            || matches!(state, BlockedState::Sleeping | BlockedState::Iowait | BlockedState::Uninterruptible)
        {
            row(state_words(state), Some(ns), None)?;
        }
    }
    run.blocked_on.map_or(Ok(()), |kinds| blocked_on(out, time, &kinds))
}

/// The blocked time again, split by what the threads were blocked on.
fn blocked_on(out: &mut String, time: &WallTime, kinds: &BlockedTime) -> Result {
    let mut kinds: Vec<_> = kinds.iter().filter(|(_, ns)| *ns != 0).collect();
    if kinds.is_empty() {
        return Ok(());
    }
    kinds.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    writeln!(out, "the blocked time, by what the threads waited for:")?;
    for (kind, ns) in kinds {
        line(out, time, &format!("on {}", kind.name()), Some(ns), None)?;
    }
    Ok(())
}

fn line(out: &mut String, time: &WallTime, what: &str, ns: Option<u64>, remark: Option<String>) -> Result {
    let share = ns.and_then(|ns| percent(ns, time.total_ns()));
    let share = share.map_or("-".into(), |share| format!("{share:.1}%"));
    let line = format!("  {what:<30} {:>8} {share:>7}", ns.map_or("-".into(), duration));
    match remark {
        Some(remark) => writeln!(out, "{}", wrapped(&format!("{line}  {remark}"), WIDTH, INDENT)),
        None => writeln!(out, "{line}"),
    }
}

const fn state_words(state: BlockedState) -> &'static str {
    match state {
        BlockedState::Sleeping => "blocked, sleeping (S)",
        BlockedState::Iowait => "blocked, waiting for a device",
        BlockedState::Uninterruptible => "blocked, uninterruptible (D)",
        BlockedState::Idle => "idle",
        BlockedState::Stopped => "stopped",
    }
}

/// Explains a cause: whose quota, or which culprits.
fn remark(cause: Cause, run: &CommandRun) -> Option<String> {
    let names = &run.interval.names;
    match cause {
        Cause::Throttled => {
            let limits = run.interval.limits_of("/");
            let named = limits.iter().take(QUOTAS);
            let name = |path: &Option<Arc<str>>| {
                path.as_deref().map_or(UNNAMED.into(), |path| names.of(path).into_owned())
            };
            let named = named.map(|(path, ns)| format!("{} {}", name(path), duration(*ns)));
            let named: Vec<_> = named.collect();
            (!named.is_empty()).then(|| format!("quota of {}", named.join(", ")))
        }
        Cause::OwnCgroup if run.own_is_distinct => Some("behind its own threads".into()),
        Cause::OwnCgroup => {
            let places = cgscope_model::command_run::places(&run.interval);
            let mut named: Vec<_> = places.iter().take(QUOTAS).map(|path| names.of(path)).collect();
            if places.len() > QUOTAS {
                named.push("more".into());
            }
            (!named.is_empty()).then(|| format!("its own threads and other tasks in {}", named.join(", ")))
        }
        Cause::OtherCgroup => culprits_line(names, &others(run, false)),
        Cause::Kernel => culprits_line(names, &others(run, true)),
        _ => None,
    }
}

fn others(run: &CommandRun, kernel: bool) -> Vec<cgscope_model::pairs::Culprit> {
    let culprits = run.interval.culprits().into_iter();
    culprits.filter(|culprit| culprit.kernel == kernel).collect()
}
