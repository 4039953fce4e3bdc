//! Tests how the least quota is found.

use cgscope_made_up::demand::Limited;

use super::*;
use crate::{answer::Target, history::History};

/// Calls `test` for cgroups with different loads over this time, with the limit in force of each cgroup.
fn each_of(seconds: usize, test: impl Fn(&Simulator<'_>)) {
    let mut history = History::default();
    Limited::new(11).take(seconds).for_each(|sample| history.add(&sample));
    for id in history.cgroups.keys().filter(|id| **id < 1_011) {
        let target = Target { path: String::new(), family: vec![(*id, None)], at: 0 };
        let demand = history.busiest(&target).expect("demand");
        let limit = demand.limits()[0].expect("a limit");
        test(&Simulator::new(&demand, &Question::PLAIN, limit, false));
    }
}

#[test]
fn a_row_between_two_quotas_of_the_grid_that_contradicts_them_does_not_mislead_the_search() {
    each_of(20, |simulator| {
        let Some(least) = simulator.least(&[]) else { return };
        let free = simulator.row(simulator.limit(simulator.demand.cpus())).expect("cells").figures;
        for quota_ns in simulator.grid().iter().take_while(|quota_ns| **quota_ns < least.limit.quota_ns) {
            let row = Row { limit: simulator.with_quota(quota_ns - 1), figures: free };
            assert_eq!(simulator.least(&[row]).map(|row| row.limit), Some(least.limit), "{quota_ns}");
        }
    });
}

#[test]
fn the_least_quota_meets_the_target_and_the_one_below_does_not() {
    each_of(120, |simulator| {
        let rows = simulator.quotas().into_iter().filter_map(|cpus| simulator.row(simulator.limit(cpus)));
        let least = simulator.least(&rows.collect::<Vec<_>>()).expect("a quota");
        let share = |quota_ns: u64| {
            simulator.row(simulator.with_quota(quota_ns)).expect("cells").figures.throttled_share.high
        };
        let grid = simulator.grid();
        let at = grid.iter().position(|quota_ns| *quota_ns == least.limit.quota_ns).expect("in the grid");
        assert!(share(grid[at]) <= 0.01, "{least:?}");
        assert!(at == 0 || share(grid[at - 1]) > 0.01, "{least:?}");
    });
}

#[test]
fn a_few_phases_of_a_long_time_have_the_bounds_of_all() {
    each_of(150, |simulator| {
        assert!(simulator.demand.span_ns > LONG_NS);
        for times in [0.8, 1.0, 1.5] {
            let limit = simulator.limit(simulator.limit.cpus() * times);
            let few = simulator.row(limit).expect("cells").figures.throttled_share;
            let all = simulator.outcomes(limit, &simulator.loops, PHASES);
            let all = Figures::of(&all).expect("cells").throttled_share;
            let difference = (few.low - all.low).abs().max((few.high - all.high).abs());
            assert!(difference <= SMALL, "{limit:?}: {few:?}, not {all:?}");
        }
    });
}

/// The kernel refuses quotas below 1 ms.
#[test]
fn a_quota_that_is_too_short_has_no_row() {
    each_of(20, |simulator| {
        let short = Limit { quota_ns: Limit::LEAST_NS / 2, ..simulator.limit };
        let rows = [short, simulator.limit].map(|limit| simulator.row(limit).is_some());
        assert_eq!(rows, [false, true]);
    });
}

#[test]
fn results_are_in_the_order_of_the_jobs() {
    for jobs in [0, 1, 1_000u64] {
        let jobs: Vec<u64> = (0..jobs).collect();
        let squares: Vec<u64> = jobs.iter().map(|job| job * job).collect();
        assert_eq!(parallel(&jobs, |job| job * job), squares);
    }
}
