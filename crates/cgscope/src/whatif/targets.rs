//! The cgroups to simulate.

use std::cmp::Reverse;

use cgscope_model::{
    CgroupReading, Interval,
    selection::{SelectionFilter, is_at_or_below},
};

use super::answer::Target;

/// Maximum number of cgroups to simulate if none is selected: those that were throttled longest.
const MOST: usize = 5;

/// The cgroups to simulate, those that were throttled longest first, and how many more there are. Fails with the reason if there is
/// none.
pub fn targets(whole: &Interval, filter: &SelectionFilter) -> Result<(Vec<Target>, usize), &'static str> {
    let limited = limited(whole);
    let ran_out =
        |reading: &CgroupReading| filter.is_by_cgroup() || reading.nr_throttled.is_some_and(|n| n != 0);
    let mut chosen: Vec<_> =
        selected(whole, &limited, filter).filter(|(_, reading)| ran_out(reading)).collect();
    if chosen.is_empty() {
        return Err(without_quota(whole, filter).unwrap_or(
            "no quota ran out; select a cgroup (--cgroup, --unit, --pod, --container) to see what a lower one would have done",
        ));
    }
    chosen.sort_by_key(|(path, reading)| (Reverse(reading.throttled_ns), *path));
    let left = chosen.len().saturating_sub(MOST);
    Ok((chosen.into_iter().take(MOST).map(|(path, _)| target(path, &limited)).collect(), left))
}

/// Why no selected cgroup can be simulated; `None` if one had a quota.
pub fn without_quota(whole: &Interval, filter: &SelectionFilter) -> Option<&'static str> {
    let limited = limited(whole);
    if limited.is_empty() {
        return Some("no cgroup had a quota");
    }
    let is_there = selected(whole, &limited, filter).next().is_some();
    (!is_there).then_some("the selected cgroups had no quota of their own")
}

fn selected<'l>(
    whole: &Interval,
    limited: &[(&'l str, &'l CgroupReading)],
    filter: &SelectionFilter,
) -> impl Iterator<Item = (&'l str, &'l CgroupReading)> {
    limited.iter().copied().filter(|(path, _)| filter.wants_cgroup(path, &whole.names))
}

/// The cgroups that had a quota, with their counters.
pub fn limited(whole: &Interval) -> Vec<(&str, &CgroupReading)> {
    let with_quota = whole.limits.iter().filter(|reading| reading.quota_us.is_some());
    with_quota.filter_map(|reading| Some((&**whole.cgroup_path(reading.id)?, reading))).collect()
}

/// A cgroup, with all others that share a quota with it.
pub fn target(path: &str, limited: &[(&str, &CgroupReading)]) -> Target {
    let root = above(path, limited).min_by_key(|path| path.len()).unwrap_or(path);
    let mut members: Vec<_> = limited.iter().filter(|(path, _)| is_at_or_below(path, root)).collect();
    members.sort_by_key(|(path, _)| (path.len(), *path));
    let place = |wanted: &str| members.iter().position(|(path, _)| *path == wanted);
    let parent = |path: &str| above(path, limited).max_by_key(|path| path.len()).and_then(place);
    Target {
        path: path.to_owned(),
        family: members.iter().map(|(path, reading)| (reading.id, parent(path))).collect(),
        at: place(path).unwrap_or(0),
    }
}

/// The cgroups with a quota above one.
fn above<'l>(path: &'l str, limited: &'l [(&str, &CgroupReading)]) -> impl Iterator<Item = &'l str> {
    let paths = limited.iter().map(|(path, _)| *path);
    paths.filter(move |other| *other != path && is_at_or_below(path, other))
}
