//! Sentences about the effect of quotas on a cgroup.

use cgscope_model::CgroupReading;

use crate::draw::prelude::*;

/// Maximum number of quotas named in a sentence.
const NAMED: usize = 3;
/// Width of a path within a sentence, in cells.
const NAME: usize = 40;

/// Periods in which the quota ran out, all periods, and the share in percent.
pub fn ran_out(limits: &CgroupReading) -> Option<(u64, u64, f64)> {
    let (out, all) = limits.nr_throttled.zip(limits.nr_periods)?;
    Some((out, all, percent(out, all).unwrap_or(0.0)))
}

/// Names the quota that limits the cgroup: `held back: the quota of /kubepods (2 CPUs) ran out in 85.7% of 70 periods`.
pub fn verdict(data: &Data, node: &Node) -> String {
    let nodes = data.tree.nodes();
    let Some(limit) = node.limited_by.map(|at| &nodes[at]) else {
        return if node.throttled_by.is_empty() {
            "no quota applies: neither this cgroup nor an ancestor has a quota".into()
        } else {
            format!("held back by the quota of {UNNAMED}")
        };
    };
    let limits = limit.limits.map(|at| &data.interval.limits[at]);
    let cores = limits.and_then(CgroupReading::quota_cores);
    let cores = cores.map_or_else(String::new, |cores| format!(" ({})", units::cpus(cores)));
    let quota = if limit.path == node.path {
        "its own quota".into()
    } else {
        format!("the quota of {}", cut_start(&data.interval.names.of(&limit.path), NAME))
    };
    let periods = limits
        .and_then(ran_out)
        .map(|(_, all, share)| format!("ran out in {share:.1}% of {}", units::count(all, "period")));
    let which = periods.as_ref().map_or_else(String::new, |periods| format!(", which {periods}"));
    if node.throttled_by.is_empty() {
        format!("not held back; tightest limit: {quota}{cores}{which}")
    } else if limit.depth > node.depth {
        format!("tasks in cgroups below are held back, most by {quota}{cores}{which}")
    } else {
        periods.map_or_else(
            || format!("held back by {quota}{cores}"),
            |periods| format!("held back: {quota}{cores} {periods}"),
        )
    }
}

/// The quotas that the tasks waited for, and the throttled time of `cpu.stat`, which is a different figure.
pub fn throttled(data: &Data, node: &Node) -> Option<String> {
    let nodes = data.tree.nodes();
    let mut said = Vec::new();
    let name = |at: Option<usize>| {
        cut_start(&at.map_or(UNNAMED.into(), |at| data.interval.names.of(&nodes[at].path)), NAME)
    };
    let by = &node.throttled_by;
    let total = by.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
    if let [(at, ns)] = by.as_slice() {
        said.push(format!("tasks {} by the quota of {}", duration(*ns), name(*at)));
    } else if !by.is_empty() {
        let parts = by.iter().take(NAMED).map(|(at, ns)| {
            format!("{} {} ({:.0}%)", name(*at), duration(*ns), percent(*ns, total).unwrap_or(0.0))
        });
        let more = by.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(", {more} more") };
        let parts = parts.collect::<Vec<_>>().join(", ");
        said.push(format!("tasks {} by the quotas of {parts}{more}", duration(total)));
    }
    let limits = node.limits.map(|at| &data.interval.limits[at]);
    if let Some(ns) = limits.and_then(|limits| limits.throttled_ns).filter(|ns| *ns != 0) {
        let trap =
            if ns > data.interval.duration_ns { ", which is more than the time that passed" } else { "" };
        said.push(format!("cpu.stat {}, summed over CPUs{trap}", duration(ns)));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;

    use cgscope_model::{Blame, Interval, PairReading, findings::Host};

    use super::*;

    fn limits(id: u64, quota_us: Option<u64>, throttled: u64) -> CgroupReading {
        CgroupReading {
            id,
            quota_us,
            period_us: Some(100_000),
            nr_periods: Some(70),
            nr_throttled: Some(throttled),
            throttled_ns: Some(throttled * 50_000_000),
            weight: Some(100),
            ..CgroupReading::default()
        }
    }

    pub fn data(pairs: Vec<PairReading>) -> Data {
        let interval = Interval {
            duration_ns: 1_000_000_000,
            cgroups: vec![(1, "/".into()), (2, "/kubepods".into()), (3, "/kubepods/pod".into())],
            limits: vec![limits(2, Some(200_000), 60), limits(3, Some(400_000), 0)],
            pairs,
            ..Interval::default()
        };
        Data::new(Arc::new(interval), &Host::default())
    }

    pub fn node(data: &Data) -> &Node {
        &data.tree.nodes()[data.tree.find("/kubepods/pod").unwrap()]
    }

    pub fn limited(culprit: u64, ns: u64) -> PairReading {
        PairReading { victim: 3, culprit, blame: Blame::Limited, tid: 0, comm: "".into(), ns }
    }

    #[test]
    fn the_limiting_quota_is_named_with_its_figures() {
        let held = data(vec![limited(2, 3_000_000_000)]);
        assert_eq!(
            verdict(&held, node(&held)),
            "held back: the quota of /kubepods (2 CPUs) ran out in 85.7% of 70 periods"
        );
        let free = data(Vec::new());
        assert_eq!(
            verdict(&free, node(&free)),
            "not held back; tightest limit: the quota of /kubepods (2 CPUs), which ran out in 85.7% of 70 periods"
        );
        let root = &free.tree.nodes()[0];
        assert_eq!(verdict(&free, root), "no quota applies: neither this cgroup nor an ancestor has a quota");
    }

    #[test]
    fn time_of_tasks_and_time_of_cpus_are_separate() {
        let held = data(vec![limited(2, 1_500_000_000), limited(9, 500_000_000)]);
        let two = format!("tasks 2.00s by the quotas of /kubepods 1.50s (75%), {UNNAMED} 500ms (25%)");
        assert_eq!(throttled(&held, node(&held)), Some(two));
        let one = data(vec![limited(2, 1_500_000_000)]);
        let above = &one.tree.nodes()[one.tree.find("/kubepods").unwrap()];
        assert_eq!(
            throttled(&one, above).as_deref(),
            Some(
                "tasks 1.50s by the quota of /kubepods; cpu.stat 3.00s, summed over CPUs, which is more than the time \
                 that passed"
            )
        );
        let free = data(Vec::new());
        assert_eq!(throttled(&free, node(&free)), None);
    }
}
