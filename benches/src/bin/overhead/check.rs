//! Compares the hook with a yardstick, a small program at the same tracepoint, and fails if the hook has become dearer. Times depend
//! on the machine and on the hour; their ratio does so much less.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    Switching,
    counting::{self, Counted},
    subject::{Subject, spacers},
    table::median,
};

/// A ratio may be this much above the one in the file: what is left of noise in the median of some rounds.
const TOLERANCE: f64 = 1.05;

/// The load runs this many times in a round, and the median counts.
const RUNS: u64 = 5;
/// Fewer switches in a run are too few to measure.
const LEAST_SWITCHES: u64 = 1_000;

/// The load: its figures differ less from run to run than those of loads on all CPUs.
const PIPE: &str = "pipe";

pub fn run(file: &Path, rounds: usize, loops: u64) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let limits = parse(&text).with_context(|| format!("{} has a wrong line", file.display()))?;
    let ratios: Vec<f64> = (1..=rounds).map(|round| ratio(round, loops)).collect::<Result<_>>()?;
    let (least, most) =
        ratios.iter().fold((f64::MAX, 0f64), |(least, most), r| (least.min(*r), most.max(*r)));
    let ratio = median(ratios.iter().copied());
    println!(
        "{PIPE}: the hook takes {ratio:.3} x as long as the yardstick ({least:.3} to {most:.3} in {rounds} rounds)"
    );
    let measured = [(PIPE, ratio)];
    let missed = missed(&limits, &measured)?;
    if missed.is_empty() {
        return Ok(());
    }
    bail!("{}; make the hook cheaper: {} may only be lowered", missed.join("; "), file.display())
}

/// The time of the hook at a switch relative to that of the yardstick, in one round. Both run at each switch, so that whatever disturbs
/// the machine affects both.
fn ratio(round: usize, loops: u64) -> Result<f64> {
    // The place of the machine code alone changes the time by up to 8 %, so each round has another one.
    let _spacers = spacers(round)?;
    let subjects = [Subject::Cgscope, Subject::Yardstick];
    let running = subjects.into_iter().map(|subject| subject.start(None)).collect::<Result<Vec<_>>>()?;
    let _counts = counting::start()?;
    let read = || running.iter().map(|running| counting::read(&running.programs)).collect::<Result<Vec<_>>>();
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let before = read()?;
        Switching::Pipe.run(loops / RUNS)?;
        let after = read()?;
        let counted = before.iter().zip(&after).map(|(before, after)| Counted::between(before, after));
        let counted: Vec<_> = counted.collect();
        if let Some(at) = counted.iter().position(|counted| counted.switches < LEAST_SWITCHES) {
            bail!("{} ran at only {} switches", subjects[at].name(), counted[at].switches);
        }
        ratios.push(counted[0].switch_ns / counted[1].switch_ns);
    }
    Ok(median(ratios.into_iter()))
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

/// The loads whose ratio is above its limit, in words.
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
