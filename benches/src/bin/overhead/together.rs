//! Compares two hooks that are attached at the same time. Both hooks run at each switch, so a disturbance of the machine affects
//! both. From run to run, the ratio of their times differs by a hundredth, while the times themselves differ by a fifth.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    RUNS, Switching,
    subject::{Counted, HIST, YARDSTICK, attach, count, read_counts, spacers},
    table::median,
};

/// Number of runs in a round with the yardstick. The runs are short, so that some of them find the machine undisturbed.
const SHORT_RUNS: u64 = 25;

/// Minimum number of switches for a useful run.
const LEAST_SWITCHES: u64 = 1_000;

/// The ratios of all rounds or runs.
struct Ratios {
    /// The lowest decile. Other users of the cache raise the ratio to the yardstick, because the larger hook needs more of the cache.
    decile: f64,
    median: f64,
    words: String,
}

/// Measures the time of `cgscope hist 1` at a switch relative to `other`, on the pipe.
fn measure(other: &str, rounds: usize, loops: u64) -> Result<Ratios> {
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let first = in_order([other, HIST], round, loops)?;
        if other == YARDSTICK {
            ratios.extend(first.into_iter().map(f64::recip));
            continue;
        }
        // The hook that is attached first runs first, and the second hook finds in the cache what the first hook has loaded. The
        // geometric mean over both orders cancels this effect. The yardstick is always attached first.
        let second = in_order([HIST, other], round, loops)?;
        ratios.push((median(second.into_iter()) / median(first.into_iter())).sqrt());
    }
    ratios.sort_by(f64::total_cmp);
    let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
    let (least, decile, most) = (at(0), at(ratios.len() / 10), at(ratios.len().saturating_sub(1)));
    let (median, rounds) = (median(ratios.iter().copied()), ratios.len());
    let words = format!("{median:.3} x ({least:.3} to {most:.3} in {rounds}; lowest decile {decile:.3})");
    Ok(Ratios { decile, median, words })
}

/// Returns the time of the first hook in `order` divided by the time of the second hook, for each run.
fn in_order(order: [&str; 2], round: usize, loops: u64) -> Result<Vec<f64>> {
    // The address of the machine code alone changes the time by up to 8 %, so each round uses another address.
    let _spacers = spacers(round)?;
    let running = order.into_iter().map(attach).collect::<Result<Vec<_>>>()?;
    let _counts = count()?;
    let read = || running.iter().map(|running| read_counts(&running.programs)).collect::<Result<Vec<_>>>();
    let runs = if order.contains(&YARDSTICK) { SHORT_RUNS } else { RUNS };
    let mut ratios = Vec::new();
    for _ in 0..runs {
        let before = read()?;
        Switching::Pipe.run(loops / runs)?;
        let after = read()?;
        let counted =
            before.iter().zip(&after).map(|(before, after)| Counted::between(before, after).switches);
        let counted: Vec<_> = counted.collect();
        if let Some(at) = counted.iter().position(|switches| switches.count < LEAST_SWITCHES) {
            bail!("{} ran at only {} switches", order[at], counted[at].count);
        }
        ratios.push(counted[0].each_ns() / counted[1].each_ns());
    }
    Ok(ratios)
}

/// How many times as long as the hook of an earlier build the hook may take in a check. Two measurements of the same builds differ by
/// 2 %.
const MOST: f64 = 1.06;

/// Compares the hook with the hook of an earlier build. If `is_check`, fails if the hook costs more than [`MOST`] allows.
pub fn compare(before: &str, rounds: usize, loops: u64, is_check: bool) -> Result<()> {
    let Ratios { median, words, .. } = measure(&format!("{before} hist 1"), rounds, loops)?;
    println!("cgscope hist 1 and its earlier build, attached together: {words} at a switch");
    if is_check && (median.is_nan() || median > MOST) {
        bail!("{median:.3} is more than {MOST}; make the hook cheaper");
    }
    Ok(())
}

/// Tolerance: the measured ratio may exceed the ratio in the file by this factor. The lowest decile of short runs is compared. It
/// depends on the machine: the same build had 1.15 to 1.17 on one machine and 1.48 to 1.56 on another of the same kind. So this check
/// finds only large differences. [`compare`] finds those of a few per cent.
const TOLERANCE: f64 = 1.28;

/// Compares the hook with a yardstick, and fails if the hook costs more than the line `pipe RATIO` of `file` allows. The
/// yardstick is a small program at the same tracepoint. Times depend on the machine and on the hour; the ratio of the times
/// depends on them less. The figures of the pipe differ less from run to run than the figures of loads on all CPUs.
pub fn check(file: &Path, rounds: usize, loops: u64) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let limit = text.lines().find_map(|line| line.strip_prefix("pipe ")?.trim().parse::<f64>().ok());
    let limit = limit.with_context(|| format!("{} has no line `pipe RATIO`", file.display()))?;
    let Ratios { decile, words, .. } = measure(YARDSTICK, rounds, loops)?;
    println!("pipe: the hook takes as long as the yardstick, times {words}");
    if decile.is_nan() || decile > limit * TOLERANCE {
        let file = file.display();
        bail!(
            "{decile:.3} is more than {TOLERANCE} x {limit}; make the hook cheaper: {file} may only be lowered"
        );
    }
    Ok(())
}
