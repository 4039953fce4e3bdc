//! The fuzz target of the reader of recordings: libFuzzer with coverage, on the compiler that everything else uses.
use std::fs;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::steps::{self, Steps, cargo_path};

/// Where the target is; its corpus is beside it.
const FUZZ: &str = "crates/record/fuzz";
/// Inputs of a run that nobody gave a number for: some twenty seconds.
const RUNS: &str = "100000";
/// What libFuzzer needs to see which code an input reaches. `cargo fuzz` sets the same, and a sanitizer that needs a nightly: the
/// code under test has no `unsafe`.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds it and runs it: `[RUNS] [-- FLAGS OF LIBFUZZER]`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut steps = Steps::new("fuzz");
    for_checks(&mut steps, arguments)?;
    steps.summary();
    Ok(())
}

pub(crate) fn for_checks(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    let (runs, flags) = match arguments {
        [] => (RUNS, &[][..]),
        [dashes, flags @ ..] if dashes == "--" => (RUNS, flags),
        [runs] => (runs.as_str(), &[][..]),
        [runs, dashes, flags @ ..] if dashes == "--" => (runs.as_str(), flags),
        _ => return Err(Failure::Usage("`fuzz` takes a number of runs, and flags behind `--`".to_owned())),
    };
    if runs.parse::<u64>().is_err() {
        return Err(Failure::Usage(format!("`fuzz` takes a number of runs, and `{runs}` is none")));
    }
    // The targets that cgscope is built on are named so.
    let (built, host) = (target_dir(), format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let mut build = std::process::Command::new(cargo_path());
    build.current_dir(steps::workspace().join(FUZZ)).env("RUSTFLAGS", COVERAGE);
    // With a target named, what runs at build time is built without coverage.
    build.args(["build", "--release", "--locked", "--target", &host, "--target-dir"]).arg(&built);
    steps.step("the fuzz target", &mut build)?;

    // What it finds new is beside the results, not in the corpus that everybody has.
    let found = built.join("corpus");
    fs::create_dir_all(&found)
        .map_err(|why| Failure::Host(format!("{} cannot be made ({why})", found.display())))?;
    let mut fuzz = std::process::Command::new(built.join(&host).join("release/reader"));
    fuzz.current_dir(&built).arg(&found).arg(steps::workspace().join(FUZZ).join("corpus"));
    fuzz.args([
        &format!("-runs={runs}"),
        "-max_len=8192",
        "-timeout=60",
        "-rss_limit_mb=1024",
        "-verbosity=0",
    ]);
    steps.step(&format!("{runs} recordings made up"), fuzz.args(["-print_final_stats=1"]).args(flags))
}

fn target_dir() -> PathBuf {
    steps::users_target_dir().unwrap_or_else(|| steps::workspace().join("target")).join("fuzz")
}
