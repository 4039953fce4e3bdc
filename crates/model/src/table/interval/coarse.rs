//! Causes without BPF: `cpu.stat` reports how much of the summed waits is due to a quota. `throttled_usec` of a cgroup (v1:
//! `throttled_time`) is the time in which its quota kept its run queue on a CPU from running. The time counts once per CPU,
//! however many tasks waited there. So it is a lower bound of the time that tasks lost. The file does not report the loss of each
//! task, so each task gets a share in proportion to its wait.

use std::{cmp::Reverse, collections::BTreeMap};

use cgscope_ledger::Cause;

use crate::{Blame, ByCause, Interval, PairReading, path::is_at_or_below, sum};

/// Attributes the time that quotas took to the waits in `interval`, inner cgroups first. The rest stays unattributed. The parts
/// of a wait still sum to the wait. The parts due to a quota sum to at most the time in its `cpu.stat`.
pub(crate) fn attribute(interval: &mut Interval) {
    let quotas = quotas(interval);
    if quotas.is_empty() {
        return;
    }
    let mut by_cgroup: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, task) in interval.tasks.iter().enumerate().filter(|(_, task)| task.wait.total_ns != 0) {
        by_cgroup.entry(task.reading.cgroup_id).or_default().push(index);
    }
    let mut parts: Vec<((u64, u64), u64)> = Vec::new();
    for (quota, throttled_ns) in quotas {
        let Some(root) = interval.cgroup_path(quota).cloned() else { continue };
        let is_below = |id: u64| interval.cgroup_path(id).is_some_and(|path| is_at_or_below(path, &root));
        let tasks = by_cgroup.iter().filter(|(id, _)| is_below(**id)).flat_map(|(_, tasks)| tasks);
        let tasks: Vec<usize> = tasks.copied().collect();
        let open: Vec<u64> =
            tasks.iter().map(|task| interval.tasks[*task].wait.by_cause.get(Cause::Unattributed)).collect();
        for (task, ns) in tasks.into_iter().zip(shares(throttled_ns, &open)) {
            let task = &mut interval.tasks[task];
            throttle(&mut task.wait.by_cause, ns);
            throttle(&mut task.totals.by_cause, ns);
            parts.push(((task.reading.cgroup_id, quota), ns));
        }
    }
    let parts = sum::tally(parts.into_iter().filter(|(_, ns)| *ns != 0));
    let blame = Blame::Limited;
    let pair = |((victim, culprit), ns)| PairReading { victim, culprit, blame, tid: 0, comm: "".into(), ns };
    interval.pairs = parts.into_iter().map(pair).collect();
}

/// Returns the cgroups whose own quota took time, with that time, ns; the innermost first.
fn quotas(interval: &Interval) -> Vec<(u64, u64)> {
    let took = interval.limits.iter().filter_map(|limits| {
        let ns = limits.throttled_ns.filter(|ns| *ns != 0)?;
        Some((interval.cgroup_path(limits.id)?.matches('/').count(), limits.id, ns))
    });
    let mut took: Vec<_> = took.collect();
    took.sort_unstable_by_key(|(depth, id, _)| (Reverse(*depth), *id));
    took.into_iter().map(|(_, id, ns)| (id, ns)).collect()
}

fn throttle(by_cause: &mut ByCause, ns: u64) {
    by_cause.0[Cause::Unattributed as usize] -= ns;
    sum::add(&mut by_cause.0[Cause::Throttled as usize], ns);
}

/// Divides `ns` in proportion to `open`. No share exceeds its open time. The shares sum to `ns`, or to all open time if less.
fn shares(ns: u64, open: &[u64]) -> Vec<u64> {
    sum::shares(ns.min(sum::total(open.iter().copied())), open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CgroupReading, Mode, Sample, TaskReading, Totals, Tree};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn task(tid: u32, cgroup_id: u64, wait_ns: u64) -> TaskReading {
        TaskReading {
            serial: tid.into(),
            tid,
            tgid: tid,
            comm: "t".into(),
            start_ns: 5,
            cgroup_id,
            totals: Totals {
                waits: 3,
                wait_ns,
                run_delay_ns: wait_ns,
                by_cause: ByCause::only(Cause::Unattributed, wait_ns),
                ..Totals::default()
            },
            ..TaskReading::default()
        }
    }

    /// Cgroups 1 `/`, 2 `/a`, 3 `/a/b`, 4 `/c`, each with the time that its quota took.
    fn interval(tasks: Vec<TaskReading>, throttled: [u64; 4]) -> Interval {
        let paths = ["/", "/a", "/a/b", "/c"];
        let limits = |ns: [u64; 4]| {
            (1..).zip(ns).map(|(id, ns)| CgroupReading { id, throttled_ns: Some(ns), ..Default::default() })
        };
        let before = Sample { mode: Mode::Coarse, limits: limits([7; 4]).collect(), ..Sample::default() };
        let after = Sample {
            mono_ns: 1_000,
            tasks: tasks.into_iter().map(Arc::new).collect(),
            limits: limits(throttled.map(|ns| ns + 7)).collect(),
            cgroups: (1..).zip(paths.map(Into::into)).collect(),
            ..before.clone()
        };
        Interval::between(&before, &after)
    }

    fn throttled(interval: &Interval) -> Vec<u64> {
        interval.tasks.iter().map(|task| task.wait.by_cause.get(Cause::Throttled)).collect()
    }

    #[test]
    fn the_time_of_a_quota_is_divided_in_proportion_among_all_below_it() {
        let tasks = vec![task(1, 2, 300), task(2, 3, 100), task(3, 4, 500)];
        let interval = interval(tasks, [0, 200, 0, 0]);
        assert_eq!(throttled(&interval), [150, 50, 0]);
        assert_eq!(interval.limits_of("/"), [(Some("/a".into()), 200)]);
        let tree = Tree::new(&interval);
        let limit = tree.nodes()[tree.find("/a/b").unwrap()].limited_by;
        assert_eq!(limit, tree.find("/a"));
    }

    #[test]
    fn the_inner_quota_comes_first_and_nobody_is_throttled_for_longer_than_it_waited() {
        let tasks = vec![task(1, 2, 300), task(2, 3, 100)];
        let interval = interval(tasks, [0, 30, 80, 0]);
        // The inner quota takes 80. The outer quota takes 30, in proportion to the remaining 300 and 20.
        assert_eq!(throttled(&interval), [28, 82]);
        let more = super::tests::interval(vec![task(2, 3, 100)], [0, 0, 5_000, 0]);
        assert_eq!(throttled(&more), [100], "several CPUs were out of quota, or the wait is not over");
    }

    #[test]
    fn a_host_without_quotas_has_no_cause() {
        let interval = interval(vec![task(1, 2, 300)], [0; 4]);
        assert_eq!(interval.tasks[0].wait.by_cause, ByCause::only(Cause::Unattributed, 300));
        assert!(interval.pairs.is_empty());
    }

    #[test]
    fn absurd_figures_cause_no_panic() {
        let open = [u64::MAX; 9];
        assert!(shares(u64::MAX, &open).into_iter().zip(open).all(|(share, open)| share <= open));
        assert!(shares(5, &[]).is_empty());
        assert_eq!(shares(5, &[0, 0]), [0, 0]);
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_wait_and_no_quota_takes_more_than_its_time(
            waits in prop::collection::vec((1u64..5, 0u64..u64::MAX / 16), 0..12),
            took in prop::array::uniform4(0u64..u64::MAX / 4),
        ) {
            let tasks = (1..).zip(&waits).map(|(tid, (id, ns))| task(tid, *id, *ns)).collect();
            let interval = interval(tasks, took);
            for task in &interval.tasks {
                prop_assert_eq!(task.wait.by_cause.total(), task.wait.total_ns);
                prop_assert_eq!(task.totals.by_cause, task.wait.by_cause);
            }
            let mut all = 0;
            for (id, took) in (1..).zip(took) {
                let of_quota: u64 =
                    interval.pairs.iter().filter(|pair| pair.culprit == id).map(|pair| pair.ns).sum();
                prop_assert!(of_quota <= took);
                all += of_quota;
            }
            prop_assert_eq!(all, throttled(&interval).iter().sum::<u64>());
            prop_assert!(interval.pairs.is_sorted_by(|a, b| a.key() < b.key()));
            // The quota of the root applies to all tasks, so its time is divided until no wait is left.
            let waited: u64 = waits.iter().map(|(_, ns)| ns).sum();
            prop_assert!(all >= took[0].min(waited));
        }

        #[test]
        fn shares_are_in_proportion(ns in 0u64..1_000_000, open in prop::collection::vec(0u64..1_000_000, 1..20)) {
            let total: u64 = open.iter().sum();
            for (share, open) in shares(ns, &open).into_iter().zip(&open) {
                prop_assert!(share <= *open);
                let exact = ns.min(total) as f64 * *open as f64 / total.max(1) as f64;
                prop_assert!((share as f64 - exact).abs() <= 1.0);
            }
        }
    }
}
