//! Tests which simulations of a long history are skipped, and how the least quota is found.

use crate::Bounds;
use cgscope_made_up::demand::Limited;

use super::*;

static QUESTION: Question = Question::PLAIN;

/// Returns 11 minutes of cgroups with different loads. Each cgroup is a target.
fn recorded() -> (History, Vec<Target>) {
    let mut history = History::default();
    Limited::new(11).take(660).for_each(|sample| history.add(&sample));
    let target = |id: &u64| Target { path: String::new(), family: vec![(*id, None)], at: 0 };
    let targets = history.cgroups.keys().filter(|id| **id < 1_011).map(target).collect();
    (history, targets)
}

/// Returns the rows of the table, and how often the whole history was simulated for them.
fn rows(simulator: &Simulator<'_>) -> (Vec<Row>, usize) {
    let limits: Vec<Limit> = simulator.quotas().into_iter().map(|cpus| simulator.limit(cpus)).collect();
    let before = simulator.simulated.load(Relaxed);
    let figures = simulator.bounds(&limits);
    let rows = limits.into_iter().zip(figures);
    let rows = rows.map(|(limit, figures)| Row { limit, figures: figures.expect("cells") });
    (rows.collect(), simulator.simulated.load(Relaxed) - before)
}

/// Returns the larger difference between the two low bounds or the two high bounds.
fn off(a: Bounds<f64>, b: Bounds<f64>) -> f64 {
    (a.low - b.low).abs().max((a.high - b.high).abs())
}

#[test]
fn a_few_cells_of_a_long_history_have_the_bounds_of_all() {
    let (history, targets) = recorded();
    let (mut few, mut all, mut points) = (0, 0, [0.0f64; 3]);
    for target in &targets {
        let limit = history.cgroups[&target.family[0].0].limit().expect("a limit");
        let mut simulator = Simulator::new(&history, target, &QUESTION, limit, false).expect("a simulation");
        let (quick, simulated) = rows(&simulator);
        few += simulated;
        simulator.parts.clear();
        let (whole, simulated) = rows(&simulator);
        all += simulated;
        for (quick, whole) in quick.iter().zip(&whole) {
            let (a, b) = (&quick.figures, &whole.figures);
            let unused = |figures: &Figures| figures.unused_share.expect("a limit");
            let off = [
                off(a.throttled_share, b.throttled_share),
                off(a.throttled_ns_per_s, b.throttled_ns_per_s) / 1e9,
                off(unused(a), unused(b)),
            ];
            assert!(off.iter().all(|off| *off <= 0.01), "{target:?} {limit:?}: {a:?}, of all cells {b:?}");
            points.iter_mut().zip(off).for_each(|(most, off)| *most = most.max(off));
        }
    }
    println!("{few} simulations instead of {all}; off by at most {points:?}");
    assert!(few * 4 <= all, "{few} simulations instead of {all}");
}

#[test]
fn a_row_between_two_quotas_of_the_grid_that_contradicts_them_does_not_mislead_the_search() {
    let mut history = History::default();
    Limited::new(11).take(20).for_each(|sample| history.add(&sample));
    for id in history.cgroups.keys().filter(|id| **id < 1_011) {
        let target = Target { path: String::new(), family: vec![(*id, None)], at: 0 };
        let limit = history.cgroups[id].limit().expect("a limit");
        let simulator = Simulator::new(&history, &target, &QUESTION, limit, false).expect("a simulation");
        let Some(least) = simulator.least(&[]) else { continue };
        let grid = simulator.grid();
        let free = simulator.figures(simulator.limit(simulator.cpus)).expect("cells");
        for quota_ns in grid.iter().take_while(|quota_ns| **quota_ns < least.limit.quota_ns) {
            let row = Row { limit: simulator.with_quota(quota_ns - 1), figures: free };
            assert_eq!(simulator.least(&[row]).map(|row| row.limit), Some(least.limit), "{id}: {quota_ns}");
        }
    }
}

#[test]
fn the_least_quota_takes_few_simulations() {
    let (history, targets) = recorded();
    for target in &targets {
        let limit = history.cgroups[&target.family[0].0].limit().expect("a limit");
        let simulator = Simulator::new(&history, target, &QUESTION, limit, false).expect("a simulation");
        let (known, before) = rows(&simulator);
        let least = simulator.least(&known).expect("a quota");
        let share = |quota_ns: u64| {
            let figures = simulator.bounds(&[Limit { quota_ns, ..limit }]).pop().flatten();
            figures.expect("cells").throttled_share.high
        };
        let simulated = simulator.simulated.load(Relaxed) - before;
        assert!(simulated <= 60, "{target:?}: {simulated}");
        let grid = simulator.grid();
        let at = grid.iter().position(|quota_ns| *quota_ns == least.limit.quota_ns).expect("in the grid");
        assert!(share(grid[at]) <= 0.01, "{target:?} {least:?}");
        assert!(at == 0 || share(grid[at - 1]) > 0.01, "{target:?} {least:?}");
    }
}

/// The kernel refuses quotas below 1 ms.
#[test]
fn a_quota_that_is_too_short_has_no_row() {
    let (history, targets) = recorded();
    let limit = history.cgroups[&targets[0].family[0].0].limit().expect("a limit");
    let simulator = Simulator::new(&history, &targets[0], &QUESTION, limit, false).expect("a simulation");
    let short = Limit { quota_ns: Limit::LEAST_NS / 2, ..limit };
    assert_eq!(
        simulator.bounds(&[short, limit]).iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, true]
    );
}
