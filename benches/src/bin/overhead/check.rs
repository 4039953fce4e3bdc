//! Compares the hook with a yardstick, a small program at the same tracepoint, and fails if the hook has become dearer. Times depend
//! on the machine and on the hour; their ratio does so much less.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{Switching, subject::Subject, together};

/// A ratio may be this much above the one in the file: what is left of noise. Compared is the lowest decile of short runs. On a machine whose
/// neighbours take its cache, it was 1.373 to 1.403 where the median was 1.47 to 1.57.
const TOLERANCE: f64 = 1.05;

/// The load: its figures differ less from run to run than those of loads on all CPUs.
const PIPE: &str = "pipe";

pub fn run(file: &Path, rounds: usize, loops: u64) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let limits = parse(&text).with_context(|| format!("{} has a wrong line", file.display()))?;
    let ratio = together::measure(Subject::Yardstick, None, Switching::Pipe, rounds, loops)?;
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
