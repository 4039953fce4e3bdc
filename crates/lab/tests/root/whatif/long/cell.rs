//! The cells of the grid. A cell compares, for one load under one simulated limit, the answer of `whatif` with a measurement.

use serde_json::Value;

use super::{
    super::{Bounds, Limit, Measured},
    median, print,
};

/// Tolerance of the bounds for the share of throttled periods, and for the throttled seconds per second.
const TOLERANCE: f64 = 0.02;
/// Tolerance of the bounds for a run time: seconds, or a share of the run time, whichever is larger.
const RUN_TOLERANCE: [f64; 2] = [0.2, 0.02];
/// Wanted distance between lower and upper bound, as a share of the measured value.
const WIDTH: f64 = 0.25;

pub(super) struct Answered {
    /// Whether the answer contains a throttled time. An answer without a throttled time can still contain a run time.
    is_known: bool,
    share: Bounds,
    throttled: Bounds,
    measured: Measured,
    /// The bounds of a job's run time, and the measured run time, s.
    run_s: Option<(Bounds, f64)>,
}

impl Answered {
    pub(super) fn new(row: &Value, measured: Measured) -> Self {
        let per_s = Bounds::of(row, "throttled_ns_per_s");
        Self {
            is_known: row["is_known"] == true,
            share: Bounds::of(row, "throttled_share"),
            throttled: Bounds(per_s.0 / 1e9, per_s.1 / 1e9),
            measured,
            run_s: None,
        }
    }

    pub(super) fn with_run(self, bounds: Bounds, measured_s: f64) -> Self {
        Self { run_s: Some((bounds, measured_s)), ..self }
    }

    fn is_right(&self) -> bool {
        let Self { is_known, share, throttled, measured, run_s } = self;
        let [seconds, part] = RUN_TOLERANCE;
        let is_within =
            share.contains(measured.share, TOLERANCE) && throttled.contains(measured.throttled, TOLERANCE);
        (is_within || !is_known)
            && run_s.is_none_or(|(bounds, run_s)| bounds.contains(run_s, seconds.max(part * run_s)))
    }

    fn columns(&self) -> String {
        let Self { is_known, share, throttled, measured, run_s } = self;
        let percent = |share: f64| share * 100.0;
        let run = run_s.map_or("- | -".to_owned(), |(bounds, run_s)| {
            format!("{run_s:.1} s | {:.1} to {:.1} s", bounds.0, bounds.1)
        });
        let mut bounds = [
            format!("{:.1} to {:.1} %", percent(share.0), percent(share.1)),
            format!("{:.3} to {:.3} s", throttled.0, throttled.1),
        ];
        if !is_known {
            bounds = ["unknown", "unknown"].map(str::to_owned);
        }
        let [share, throttled] = bounds;
        format!(
            "{:.1} % | {share} | {:.3} s | {throttled} | {run}",
            percent(measured.share),
            measured.throttled
        )
    }
}

pub(super) struct Cell {
    name: String,
    /// Cautions in the answer: sentences about figures that might be wrong.
    cautions: Vec<String>,
    /// Whether a wrong figure is accepted if the answer has cautions.
    is_doubtful: bool,
    answered: Result<Answered, String>,
}

impl Cell {
    /// Creates and prints a cell. `limits` has the recorded and the simulated limit. `answered` returns the figures for a row of
    /// the answer, or `None` if the row has no figures.
    pub(super) fn new(
        name: &str,
        limits: [String; 2],
        answer: &Value,
        answered: impl FnOnce(&Value) -> Option<Answered>,
    ) -> Self {
        let list = |of: &Value| of["cautions"].as_array().cloned().unwrap_or_default();
        let row = answer["rows"].as_array().and_then(|rows| rows.first());
        let cautions = [list(answer), row.map(list).unwrap_or_default()].concat();
        let reason = answer["refused"].as_str().unwrap_or("no figure");
        let cell = Self {
            name: name.to_owned(),
            cautions: cautions.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect(),
            is_doubtful: false,
            answered: row.and_then(answered).ok_or_else(|| reason.to_owned()),
        };
        let [recorded, simulated] = limits;
        let within = match (cell.is_answered(), cell.is_right()) {
            (false, _) => "-",
            (true, true) => "yes",
            (true, false) => "**no**",
        };
        let columns = match &cell.answered {
            Ok(answered) => format!("{} | {within}", answered.columns()),
            Err(reason) => format!("- | - | - | - | - | - | refused: {reason}"),
        };
        let mark = if cell.cautions.is_empty() { "" } else { ", caution" };
        print(&format!("| {name} | {recorded} | {simulated} | {columns}{mark} |"));
        cell
    }

    /// Marks the cell as doubtful: the test accepts wrong figures if the answer has cautions.
    pub(super) fn doubtful(self) -> Self {
        Self { is_doubtful: true, ..self }
    }

    fn is_answered(&self) -> bool {
        self.answered.as_ref().is_ok_and(|answered| answered.is_known || answered.run_s.is_some())
    }

    fn is_right(&self) -> bool {
        self.is_answered() && self.answered.as_ref().is_ok_and(Answered::is_right)
    }

    /// Returns true if the figures are wrong but accepted, because the answer has cautions.
    fn is_excused(&self) -> bool {
        self.is_answered() && !self.is_right() && self.is_doubtful && !self.cautions.is_empty()
    }
}

pub(super) fn print_head() {
    print(
        "\n| load | recorded at | simulated | throttled periods | bounds | throttled per second | bounds | run time | bounds | within |",
    );
    print("|---|---|---|---|---|---|---|---|---|---|");
}

pub(super) fn text(limit: Limit) -> String {
    let mut text = format!("{:.2}", limit.milli as f64 / 1e3);
    if limit.burst_ms != 0 {
        text += &format!(" + {} ms", limit.burst_ms);
    }
    if limit.period_ms != 100 {
        text += &format!(" of {} ms", limit.period_ms);
    }
    text
}

pub(super) fn judge(cells: &[Cell]) {
    let count = |is: &dyn Fn(&Cell) -> bool| cells.iter().filter(|cell| is(cell)).count();
    let is_known = |cell: &Cell| cell.answered.as_ref().is_ok_and(|answered| answered.is_known);
    // Do not expect an answer for a lock convoy. `whatif` can refuse to answer, or give a wrong answer with a caution.
    let expected = count(&|cell| !cell.is_doubtful);
    let refused = count(&|cell| !cell.is_doubtful && !is_known(cell));
    let (right, excused) = (count(&Cell::is_right), count(&Cell::is_excused));
    let answered = count(&Cell::is_answered) - excused;
    print(&format!(
        "\n{right} of {answered} answered cells are within the bounds; {excused} are wrong with a caution; {refused} of {expected} are \
         refused or unknown, besides the lock convoy.",
    ));
    for cell in cells.iter().filter(|cell| !cell.cautions.is_empty()) {
        print(&format!("* {}: {}", cell.name, cell.cautions.join(" ")));
    }
    print_width(cells);
    assert!(right * 100 >= answered * 95, "{right} of {answered} answered cells are within the bounds");
    assert!(refused * 100 <= expected * 15, "{refused} of {expected} cells are refused");
    let wrong =
        count(&|cell| cell.is_doubtful && cell.is_answered() && !cell.is_right() && !cell.is_excused());
    assert_eq!(wrong, 0, "cells of the lock convoy are wrong, and the answer has no caution");
}

/// Prints two medians over the answered cells that are not doubtful: the width of the bounds, and the ratio of this width to the
/// wanted width.
fn print_width(cells: &[Cell]) {
    let answered: Vec<&Answered> = cells
        .iter()
        .filter(|cell| !cell.is_doubtful)
        .filter_map(|cell| cell.answered.as_ref().ok())
        .collect();
    let known = || answered.iter().filter(|cell| cell.is_known);
    let shares = || known().map(|cell| (cell.share, cell.measured.share));
    let throttled = || known().map(|cell| (cell.throttled, cell.measured.throttled));
    let runs = || answered.iter().filter_map(|cell| cell.run_s);
    let parts = |of: &mut dyn Iterator<Item = (Bounds, f64)>| {
        median(of.map(|(bounds, value)| bounds.width() / (WIDTH * value).max(TOLERANCE)))
    };
    let widths = |of: &mut dyn Iterator<Item = (Bounds, f64)>| median(of.map(|(bounds, _)| bounds.width()));
    print(
        "\n| width of the bounds, median | of all answered cells but the lock convoy's | part of the goal (25 % of the measured value, or 0.02) |",
    );
    print("|---|---|---|");
    print(&format!(
        "| throttled periods | {:.1} points | {:.2} |\n| throttled per second | {:.3} s | {:.2} |\n| run time | {:.1} s | {:.2} |",
        widths(&mut shares()) * 100.0,
        parts(&mut shares()),
        widths(&mut throttled()),
        parts(&mut throttled()),
        widths(&mut runs()),
        parts(&mut runs()),
    ));
}
