//! The fuzz targets: libFuzzer with coverage, on the compiler that everything else uses.
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::steps::{self, Steps, cargo_path};

/// Where the targets are.
const FUZZ: &str = "fuzz";
/// One of them. Its corpus is in a directory of its name.
#[derive(Debug)]
struct Target {
    name: &'static str,
    /// What its inputs are.
    inputs: &'static str,
    /// In a run that nobody gave a number for: some twenty seconds, and ten.
    runs: &'static str,
    longest: u32,
}

static TARGETS: [Target; 2] = [
    Target { name: "reader", inputs: "recordings", runs: "100000", longest: 8_192 },
    Target { name: "protocol", inputs: "clients and daemons", runs: "50000", longest: 4_096 },
];

/// What libFuzzer needs to see which code an input reaches. `cargo fuzz` sets the same, and a sanitizer that needs a nightly: the
/// code under test has no `unsafe`.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds them and runs them: `[TARGET] [RUNS] [-- FLAGS OF LIBFUZZER]`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut steps = Steps::new("fuzz");
    for_checks(&mut steps, arguments)?;
    steps.summary();
    Ok(())
}

pub(crate) fn for_checks(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    let asked = Asked::parse(arguments)?;
    // The targets that cgscope is built on are named so.
    let (built, host) = (target_dir(), format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let mut build = std::process::Command::new(cargo_path());
    build.current_dir(steps::workspace().join(FUZZ)).env("RUSTFLAGS", COVERAGE);
    // With a target named, what runs at build time is built without coverage.
    build.args(["build", "--release", "--locked", "--target", &host, "--target-dir"]).arg(&built);
    steps.step("the fuzz targets", &mut build)?;
    for target in asked.targets {
        let runs = asked.runs.unwrap_or(target.runs);
        let mut fuzz = std::process::Command::new(built.join(&host).join("release").join(target.name));
        fuzz.current_dir(&built).args(corpora(&built, target)?).args([
            &format!("-runs={runs}"),
            &format!("-max_len={}", target.longest),
            "-timeout=60",
            "-rss_limit_mb=1024",
            "-verbosity=0",
            "-print_final_stats=1",
        ]);
        let step = format!("{runs} {} made up", target.inputs);
        steps.step(&step, fuzz.args(asked.flags))?;
    }
    Ok(())
}

/// What is to be run.
#[derive(Debug)]
struct Asked<'a> {
    targets: &'static [Target],
    runs: Option<&'a str>,
    flags: &'a [String],
}

impl<'a> Asked<'a> {
    fn parse(arguments: &'a [String]) -> Result<Self, Failure> {
        let dashes = arguments.iter().position(|word| word == "--");
        let (words, flags) = match dashes {
            Some(at) => (&arguments[..at], &arguments[at + 1..]),
            None => (arguments, &[][..]),
        };
        let named = words.first().and_then(|word| TARGETS.iter().position(|target| target.name == word));
        let (targets, words) = match named {
            Some(at) => (&TARGETS[at..=at], &words[1..]),
            None => (&TARGETS[..], words),
        };
        let runs = match words {
            [] => None,
            [runs] if runs.parse::<u64>().is_ok() => Some(runs.as_str()),
            [other] => {
                let names = TARGETS.each_ref().map(|target| target.name).join("` or `");
                return Err(Failure::Usage(format!(
                    "`fuzz` takes `{names}`, and a number of runs; `{other}` is neither"
                )));
            }
            _ => {
                return Err(Failure::Usage(
                    "`fuzz` takes a target, a number of runs, and flags behind `--`".to_owned(),
                ));
            }
        };
        Ok(Self { targets, runs, flags })
    }
}

/// What it finds new is beside the results, not in the corpus that everybody has.
fn corpora(built: &Path, target: &Target) -> Result<[PathBuf; 2], Failure> {
    let found = built.join("corpus").join(target.name);
    fs::create_dir_all(&found)
        .map_err(|why| Failure::Host(format!("{} cannot be made ({why})", found.display())))?;
    Ok([found, steps::workspace().join(FUZZ).join("corpus").join(target.name)])
}

fn target_dir() -> PathBuf {
    steps::users_target_dir().unwrap_or_else(|| steps::workspace().join("target")).join("fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<(Vec<&'static str>, Option<u64>, usize), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let asked = Asked::parse(&words).map_err(|failure| failure.to_string())?;
        let targets = asked.targets.iter().map(|target| target.name).collect();
        Ok((targets, asked.runs.and_then(|runs| runs.parse().ok()), asked.flags.len()))
    }

    #[test]
    fn a_target_a_number_and_flags_may_be_left_out() {
        let both = || vec!["reader", "protocol"];
        assert_eq!(asked(""), Ok((both(), None, 0)));
        assert_eq!(asked("7 -- -seed=1 -jobs=2"), Ok((both(), Some(7), 2)));
        assert_eq!(asked("protocol"), Ok((vec!["protocol"], None, 0)));
        assert_eq!(asked("reader 7"), Ok((vec!["reader"], Some(7), 0)));
        assert!(asked("writer").unwrap_err().contains("`writer` is neither"));
        assert!(asked("reader 7 8").is_err());
    }
}
