//! Real-time tasks: weights and quotas do not apply to them.

use super::TaskInterval;
use crate::{findings::is_share, sum};

/// Weights and quotas do not help if real-time tasks have this share of the tasks' activity, percent.
pub const REALTIME_PERCENT: u64 = 50;

/// A real-time policy, and the task that has it.
pub(crate) type Realtime<'a> = (&'static str, &'a TaskInterval);

/// Returns the real-time task with most activity, if real-time tasks have most of the activity. `tasks`: each with its activity,
/// ns.
pub(crate) fn mostly_realtime<'a>(
    tasks: impl Iterator<Item = (&'a TaskInterval, u64)> + Clone,
) -> Option<Realtime<'a>> {
    let all_ns = sum::total(tasks.clone().map(|(_, ns)| ns));
    let realtime = tasks.filter_map(|(task, ns)| Some((task.realtime()?, task, ns)));
    let realtime_ns = sum::total(realtime.clone().map(|(.., ns)| ns));
    let (policy, task, _) = realtime.reduce(|most, next| if next.2 > most.2 { next } else { most })?;
    is_share(realtime_ns, all_ns, REALTIME_PERCENT).then_some((policy, task))
}
