//! The grid of loads and quotas: each load is recorded under one quota, and then runs under the others.

use super::{Bounds, Kind, LOOP, Limit, Measured, REGULAR, Recorded, measure};

/// Seconds of each recording and of each run.
const SECONDS: u64 = 10;
/// How far a measured share of periods, or throttled seconds per second, may be outside of the bounds.
const TOLERANCE: f64 = 0.02;

/// A load, the quota under which it is recorded, and those that are simulated.
struct Case {
    kind: Kind,
    recorded: Limit,
    simulated: &'static [Limit],
}

const fn of(milli: u64) -> Limit {
    Limit::of(milli)
}

const CASES: [Case; 8] = [
    Case { kind: LOOP, recorded: of(500), simulated: &[of(300), of(700), of(900), of(1_100)] },
    Case {
        kind: Kind { name: "two busy loops", program: None, args: &["burn", "2", "60"] },
        recorded: of(1_000),
        simulated: &[of(600), of(1_400), of(1_800)],
    },
    Case { kind: REGULAR, recorded: of(250), simulated: &[of(180), of(220), of(280), of(320)] },
    Case {
        kind: Kind { name: "uneven", program: None, args: &["requests", "uneven", "40000", "110000", "60"] },
        recorded: of(400),
        simulated: &[of(330), of(370), of(450), of(600)],
    },
    Case {
        kind: Kind { name: "random", program: None, args: &["requests", "random", "5000", "15000", "60"] },
        recorded: of(450),
        simulated: &[of(380), of(420), of(500), of(600)],
    },
    Case {
        kind: Kind { name: "closed", program: None, args: &["requests", "closed", "8000", "10000", "60"] },
        recorded: of(300),
        simulated: &[of(200), of(250), of(350), of(450)],
    },
    Case {
        kind: Kind {
            name: "regular, burst",
            program: None,
            args: &["requests", "regular", "45000", "150000", "60"],
        },
        recorded: of(350),
        simulated: &[Limit { milli: 350, burst_ms: 10 }, Limit { milli: 350, burst_ms: 30 }],
    },
    Case {
        kind: Kind {
            name: "ffmpeg, 4 threads",
            program: Some("ffmpeg"),
            args: &[
                "-loglevel",
                "error",
                "-nostdin",
                "-f",
                "lavfi",
                "-i",
                "testsrc=size=1280x720:rate=30",
                "-t",
                "3600",
                "-c:v",
                "libx264",
                "-threads",
                "4",
                "-f",
                "null",
                "-",
            ],
        },
        recorded: of(800),
        simulated: &[of(500), of(1_200), of(1_600)],
    },
];

/// One line of the table.
struct Cell {
    name: &'static str,
    limits: [Limit; 2],
    measured: Measured,
    share: Bounds,
    throttled: Bounds,
}

impl Cell {
    fn is_right(&self) -> bool {
        self.share.contains(self.measured.share, TOLERANCE)
            && self.throttled.contains(self.measured.throttled, TOLERANCE)
    }

    fn row(&self) -> String {
        let [recorded, simulated] = self.limits.map(|limit| match limit.burst_ms {
            0 => format!("{:.2}", limit.milli as f64 / 1e3),
            burst_ms => format!("{:.2} + {burst_ms} ms", limit.milli as f64 / 1e3),
        });
        let Self { name, measured, share, throttled, .. } = self;
        let right = if self.is_right() { "yes" } else { "**no**" };
        format!(
            "| {name} | {recorded} | {simulated} | {:.1} % | {:.1} to {:.1} % | {:.3} s | {:.3} to {:.3} s | {right} |",
            measured.share * 100.0,
            share.0 * 100.0,
            share.1 * 100.0,
            measured.throttled,
            throttled.0,
            throttled.1,
        )
    }
}

#[test]
#[ignore = "alone: asserts shares of CPU time, and takes minutes"]
fn measured_figures_are_within_the_bounds_in_nearly_all_cells() {
    let (mut cells, mut refused, mut all) = (Vec::new(), Vec::new(), 0);
    for Case { kind, recorded: limit, simulated } in &CASES {
        let recorded = Recorded::new(kind, *limit, SECONDS);
        for simulated in *simulated {
            all += 1;
            let Some(row) = recorded.row(*simulated) else {
                refused.push(format!("{} at {:?}: {}", kind.name, simulated, recorded.ask(&[])));
                continue;
            };
            let per_s = Bounds::of(&row, "throttled_ns_per_s");
            cells.push(Cell {
                name: kind.name,
                limits: [*limit, *simulated],
                measured: measure(kind, *simulated, SECONDS),
                share: Bounds::of(&row, "throttled_share"),
                throttled: Bounds(per_s.0 / 1e9, per_s.1 / 1e9),
            });
        }
    }
    println!(
        "| load | recorded at | simulated | throttled periods | bounds | throttled per second | bounds | within |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    cells.iter().for_each(|cell| println!("{}", cell.row()));
    println!("{} of {all} cells refused: {refused:#?}", refused.len());
    let right = cells.iter().filter(|cell| cell.is_right()).count();
    assert!(right * 100 >= cells.len() * 95, "{right} of {} cells are within the bounds", cells.len());
    assert!(refused.len() * 100 <= all * 15, "{} of {all} cells were refused", refused.len());
}
