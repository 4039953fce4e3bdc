//! Compares two hooks that are attached at the same time. Both run at each switch, so that whatever disturbs the machine affects both:
//! the ratio of their times differs by a hundredth from run to run where their times differ by a fifth.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{
    RUNS, Switching,
    counting::{self, Counted},
    subject::{Subject, spacers},
    table::{Ratio, median},
};

/// Runs in a round beside the yardstick: short ones, so that some of them find the machine undisturbed.
const SHORT_RUNS: u64 = 25;

/// Fewer switches in a run are too few to measure.
const LEAST_SWITCHES: u64 = 1_000;

/// Measures `cgscope hist 1` beside `other`. `earlier` is the binary for [`Subject::Before`].
pub fn measure(
    other: Subject,
    earlier: Option<&Path>,
    load: Switching,
    rounds: usize,
    loops: u64,
) -> Result<Ratio> {
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let first = in_order([other, Subject::Cgscope], earlier, load, round, loops)?;
        if other != Subject::Before {
            ratios.extend(first.into_iter().map(f64::recip));
            continue;
        }
        // The hook that is attached first runs first, and loads what the second then finds in the cache. The geometric mean over both orders
        // is free of that. The yardstick is always first.
        let second = in_order([Subject::Cgscope, other], earlier, load, round, loops)?;
        ratios.push((median(second.into_iter()) / median(first.into_iter())).sqrt());
    }
    Ok(Ratio::of(ratios))
}

/// How many times as long as the second of `order` the first takes, in each run.
fn in_order(
    order: [Subject; 2],
    earlier: Option<&Path>,
    load: Switching,
    round: usize,
    loops: u64,
) -> Result<Vec<f64>> {
    // The place of the machine code alone changes the time by up to 8 %, so each round has another one.
    let _spacers = spacers(round)?;
    let running = order.iter().map(|subject| subject.start(earlier)).collect::<Result<Vec<_>>>()?;
    let _counts = counting::start()?;
    let read = || running.iter().map(|running| counting::read(&running.programs)).collect::<Result<Vec<_>>>();
    let runs = if order.contains(&Subject::Yardstick) { SHORT_RUNS } else { RUNS };
    let mut ratios = Vec::new();
    for _ in 0..runs {
        let before = read()?;
        load.run(loops / runs)?;
        let after = read()?;
        let counted = before.iter().zip(&after).map(|(before, after)| Counted::between(before, after));
        let counted: Vec<_> = counted.collect();
        if let Some(at) = counted.iter().position(|counted| counted.switches < LEAST_SWITCHES) {
            bail!("{} ran at only {} switches", order[at].name(), counted[at].switches);
        }
        ratios.push(counted[0].switch_ns / counted[1].switch_ns);
    }
    Ok(ratios)
}
