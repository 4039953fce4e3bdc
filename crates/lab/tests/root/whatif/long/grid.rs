//! The grid of loads and limits. The test records each load under one limit, and then measures the load under other limits.

use super::{
    super::{Recorded, measure},
    LONGER_S, NOT_SIMULATED_S, RECORDED_S,
    cell::{Answered, Cell, judge, print_head, text},
    jobs,
    loads::{CASES, CONVOYS, Case},
    nested,
};

fn cells(case: &'static Case) -> impl Iterator<Item = Cell> {
    let Case { kind, recorded: limit, simulated, is_random } = case;
    let recorded_s = if *is_random { LONGER_S } else { RECORDED_S };
    let measured_s = recorded_s - NOT_SIMULATED_S;
    let recorded = Recorded::new(kind, *limit, recorded_s);
    simulated.iter().map(move |simulated| {
        Cell::new(kind.name, [*limit, *simulated].map(text), &recorded.ask_for(*simulated), |row| {
            Some(Answered::new(row, measure(kind, *simulated, measured_s)))
        })
    })
}

#[test]
#[ignore = "all CPUs: asserts the share of throttled periods"]
fn measured_figures_are_within_the_bounds_in_nearly_all_cells() {
    print_head();
    let mut all: Vec<Cell> = CASES.iter().flat_map(cells).collect();
    all.extend(nested::cells());
    all.extend(jobs::cells());
    all.extend(cells(&CONVOYS).map(Cell::doubtful));
    judge(&all);
}
