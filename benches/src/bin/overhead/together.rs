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
    let ratios = (1..=rounds).map(|round| {
        let first = in_order([other, Subject::Cgscope], earlier, load, round, loops)?;
        if other != Subject::Before {
            return Ok(first.recip());
        }
        // The hook that is attached first runs first, and loads what the second then finds in the cache. The geometric mean over both orders
        // is free of that. The yardstick is always first.
        let second = in_order([Subject::Cgscope, other], earlier, load, round, loops)?;
        Ok((second / first).sqrt())
    });
    Ok(Ratio::of(ratios.collect::<Result<_>>()?))
}

/// How many times as long as the second of `order` the first takes.
fn in_order(
    order: [Subject; 2],
    earlier: Option<&Path>,
    load: Switching,
    round: usize,
    loops: u64,
) -> Result<f64> {
    // The place of the machine code alone changes the time by up to 8 %, so each round has another one.
    let _spacers = spacers(round)?;
    let running = order.iter().map(|subject| subject.start(earlier)).collect::<Result<Vec<_>>>()?;
    let _counts = counting::start()?;
    let read = || running.iter().map(|running| counting::read(&running.programs)).collect::<Result<Vec<_>>>();
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let before = read()?;
        load.run(loops / RUNS)?;
        let after = read()?;
        let counted = before.iter().zip(&after).map(|(before, after)| Counted::between(before, after));
        let counted: Vec<_> = counted.collect();
        if let Some(at) = counted.iter().position(|counted| counted.switches < LEAST_SWITCHES) {
            bail!("{} ran at only {} switches", order[at].name(), counted[at].switches);
        }
        ratios.push(counted[0].switch_ns / counted[1].switch_ns);
    }
    Ok(median(ratios.into_iter()))
}
