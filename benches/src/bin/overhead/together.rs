//! Compares two hooks that are attached at the same time. Both hooks run at each switch, so a disturbance of the machine affects
//! both. From run to run, the ratio of their times differs by a hundredth, while the times themselves differ by a fifth.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    RUNS, Switching,
    subject::{Counted, Subject, count, read_counts, spacers},
    table::{Ratio, median},
};

/// Number of runs in a round with the yardstick. The runs are short, so that some of them find the machine undisturbed.
const SHORT_RUNS: u64 = 25;

/// Minimum number of switches for a useful run.
const LEAST_SWITCHES: u64 = 1_000;

/// Returns the cost of `cgscope hist 1` relative to `other`. `earlier` is the binary for [`Subject::Before`].
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
        // The hook that is attached first runs first, and the second hook finds in the cache what the first hook has loaded. The
        // geometric mean over both orders cancels this effect. The yardstick is always attached first.
        let second = in_order([Subject::Cgscope, other], earlier, load, round, loops)?;
        ratios.push((median(second.into_iter()) / median(first.into_iter())).sqrt());
    }
    Ok(Ratio::of(ratios))
}

/// Returns the time of the first hook in `order` divided by the time of the second hook, for each run.
fn in_order(
    order: [Subject; 2],
    earlier: Option<&Path>,
    load: Switching,
    round: usize,
    loops: u64,
) -> Result<Vec<f64>> {
    // The address of the machine code alone changes the time by up to 8 %, so each round uses another address.
    let _spacers = spacers(round)?;
    let running = order.iter().map(|subject| subject.start(earlier)).collect::<Result<Vec<_>>>()?;
    let _counts = count()?;
    let read = || running.iter().map(|running| read_counts(&running.programs)).collect::<Result<Vec<_>>>();
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

/// Tolerance for noise: the measured ratio may exceed the ratio in the file by this factor. The lowest decile of short runs is
/// compared. On a machine whose neighbours take its cache, the decile was 1.373 to 1.403, and the median 1.47 to 1.57.
const TOLERANCE: f64 = 1.05;

/// Name of the load. The figures of the pipe differ less from run to run than the figures of loads on all CPUs.
const PIPE: &str = "pipe";

/// Compares the hook with a yardstick, and fails if the hook costs more than `file` allows. The yardstick is a small program at
/// the same tracepoint. Times depend on the machine and on the hour; the ratio of the times depends on them much less.
pub fn check(file: &Path, rounds: usize, loops: u64) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let limits = parse(&text).with_context(|| format!("{} has a wrong line", file.display()))?;
    let ratio = measure(Subject::Yardstick, None, Switching::Pipe, rounds, loops)?;
    println!("{PIPE}: the hook takes as long as the yardstick, times {ratio}");
    let measured = [(PIPE, ratio.decile)];
    let missed = missed(&limits, &measured)?;
    if missed.is_empty() {
        return Ok(());
    }
    bail!("{}; make the hook cheaper: {} may only be lowered", missed.join("; "), file.display())
}

/// Parses lines `LOAD RATIO`. Lines that begin with `#` are comments.
fn parse(text: &str) -> Result<BTreeMap<&str, f64>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let (load, ratio) = line.split_once(' ').with_context(|| format!("`{line}` is not `LOAD RATIO`"))?;
        let ratio = ratio.trim().parse().with_context(|| format!("`{ratio}` is not a ratio"))?;
        Ok((load, ratio))
    });
    parsed.collect()
}

/// Returns a sentence for each load whose ratio is above its limit.
fn missed(limits: &BTreeMap<&str, f64>, measured: &[(&str, f64)]) -> Result<Vec<String>> {
    let mut missed = Vec::new();
    for (load, ratio) in measured {
        let limit = limits.get(load).with_context(|| format!("there is no limit for `{load}`"))?;
        if ratio.is_nan() || *ratio > limit * TOLERANCE {
            missed.push(format!("{load}: {ratio:.3} is more than {TOLERANCE} x {limit}"));
        }
    }
    Ok(missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_its_limit_is_named_and_a_load_without_a_limit_is_an_error() {
        let limits = parse("# why\n\npipe 1.5\nmessaging 2.0\n").expect("two limits");
        let of =
            |pipe, messaging| missed(&limits, &[("pipe", pipe), ("messaging", messaging)]).expect("limits");
        assert!(of(1.57, 2.09).is_empty());
        assert_eq!(of(1.58, 2.09), ["pipe: 1.580 is more than 1.05 x 1.5"]);
        assert_eq!(of(f64::NAN, 2.11).len(), 2);
        assert!(missed(&limits, &[("pipes", 1.0)]).is_err());
        assert!(parse("pipe").is_err() && parse("pipe x").is_err());
    }
}
