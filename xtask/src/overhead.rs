//! Measures the overhead of cgscope and of other tools: `cargo xtask overhead`.
use std::{ffi::OsStr, fs, path::PathBuf, process::Command};

use crate::lanes::{Disturbance, Lease, Reading, Test, Try, decide, timed};
use crate::steps::{self, AsRoot, Failure, git};
use crate::{binary, setup};

/// The file with the limit: the maximum ratio between the time of the hook and the time of the yardstick. It also has the commit
/// whose hook is compared with the current hook.
const LIMITS: &str = "benches/hook-cost.txt";

/// Numbers of rounds and loops of the check, which takes two minutes in total.
const OF_CHECK: [&str; 4] = ["--rounds", "9", "--loops", "150000"];

pub(crate) fn run(mut arguments: Vec<String>) -> Result<(), Failure> {
    let as_root = AsRoot::become_root("measuring the overhead", "run this as root")?;
    setup::ensure(&[setup::TEST_TOOLS])?;
    // The measurement runs the release binary and the loads of the lab, which must be in the directory of `overhead`.
    binary::build()?;
    let commit = git(&["describe", "--always", "--dirty"]).unwrap_or_else(|| "an unknown commit".to_owned());
    eprintln!("overhead: measures {commit}");
    if let Some(before) = arguments.iter().position(|word| word == "--before") {
        let earlier = arguments
            .get_mut(before + 1)
            .ok_or_else(|| Failure::Host("`--before` needs a commit".to_owned()))?;
        *earlier = earlier_binary(earlier)?.display().to_string();
    }
    let mut loads = steps::cargo(&["build", "--release", "--package", "cgscope-lab", "--bins"]);
    steps::succeed(&mut loads, "overhead: cannot build the loads")?;
    let failed = "overhead: the measurement failed, or missed a bound";
    steps::succeed(as_root.command(measurement()?).args(arguments), failed)
}

/// Fails if the hook takes longer for a switch than [`LIMITS`] allows, or if somebody has raised a limit. If something disturbed
/// the measurement, there is a second try, as for tests.
pub(crate) fn for_checks(as_root: &AsRoot) -> Result<(), Failure> {
    only_lowered()?;
    let overhead = measurement()?;
    // A shallow clone and an archive lack the earlier commit.
    let is_whole = git(&["rev-parse", "--is-shallow-repository"]).is_some_and(|is| is.trim() == "false");
    if !is_whole {
        eprintln!("overhead: no whole git history here, so the hook is compared only with the yardstick");
    }
    let earlier = value(&limits(), "commit ").filter(|_| is_whole).map(earlier_binary).transpose()?;
    // Returns whether the hook is as cheap as before, and the CPU time of the measurement, seconds.
    let measure = || {
        let mut command = as_root.command(&overhead);
        command.arg("--check").arg(steps::workspace().join(LIMITS)).args(OF_CHECK);
        command.args(earlier.iter().flat_map(|binary| [OsStr::new("--before"), binary.as_os_str()]));
        timed(&mut command).map(|(status, own_s)| (status.success(), own_s))
    };
    let test = Test { name: "the cost of the hook".to_owned(), lease: Lease::All };
    let before = Reading::take();
    let (has_passed, own_s) = measure()?;
    let disturbance = Disturbance::between(&before, &Reading::take(), None, own_s);
    decide(&[Try { test, has_passed, disturbance }], |_| Ok(measure()?.0))
}

/// Builds the program that measures, and returns its path.
fn measurement() -> Result<PathBuf, Failure> {
    let mut cargo =
        steps::cargo(&["build", "--release", "--package", "cgscope-benches", "--bin", "overhead"]);
    cargo.arg("--message-format=json-render-diagnostics");
    binary::named(&binary::executables(&mut cargo)?, "overhead")
}

/// Returns the binary of an earlier commit, which is built if necessary. It is not optimized: its BPF programs are the same.
fn earlier_binary(earlier: &str) -> Result<PathBuf, Failure> {
    let Some(commit) = git(&["rev-parse", "--verify", "--quiet", &format!("{earlier}^{{commit}}")]) else {
        return Err(Failure::Host(format!("`{earlier}` is not a commit")));
    };
    let target = steps::target_dir();
    let checkout = target.join("commits").join(&commit);
    let built = checkout.join("target/debug/cgscope");
    if built.is_file() {
        return Ok(built);
    }
    let place = checkout.display().to_string();
    fs::create_dir_all(&checkout).map_err(|why| steps::cannot("write", &checkout, &why))?;
    // `git archive` is used, because a worktree would have to be removed from the repository later.
    let unpack = format!("git archive {commit} | tar -x -C '{place}'");
    let mut unpack_here = Command::new("sh");
    unpack_here.current_dir(steps::workspace()).args(["-c", &unpack]);
    steps::succeed(&mut unpack_here, "overhead: cannot unpack the earlier commit")?;
    eprintln!("overhead: building {commit}");
    let mut cargo = steps::cargo(&["build", "--package", "cgscope"]);
    cargo.current_dir(&checkout).env("CARGO_TARGET_DIR", checkout.join("target"));
    steps::succeed(&mut cargo, "overhead: cannot build the earlier commit")?;
    Ok(built)
}

/// Fails if the limit is higher than it was in any earlier version of [`LIMITS`]. Without a git history, the check passes.
fn only_lowered() -> Result<(), Failure> {
    let now = limits();
    let commits = git(&["log", "--format=%H", "--", LIMITS]).unwrap_or_default();
    for commit in commits.lines() {
        let before = git(&["show", &format!("{commit}:{LIMITS}")]).unwrap_or_default();
        if limit(&before).is_some_and(|before| limit(&now).is_none_or(|now| now > before)) {
            return Err(Failure::Step(format!(
                "overhead: the limit in {LIMITS} may only be lowered, but it was lower in {commit}"
            )));
        }
    }
    Ok(())
}

fn limits() -> String {
    fs::read_to_string(steps::workspace().join(LIMITS)).unwrap_or_default()
}

/// Parses the limit for the load `pipe`.
fn limit(text: &str) -> Option<f64> {
    value(text, "pipe ")?.parse().ok()
}

/// Returns the rest of the line that begins with `name`.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::{limit, value};

    #[test]
    fn the_limit_and_the_commit_of_this_version_are_found() {
        let text = include_str!("../../benches/hook-cost.txt");
        assert!(limit(text).is_some() && value(text, "commit ").is_some());
        assert_eq!(limit("# pipe 2\npipe 1.5\n"), Some(1.5));
        assert_eq!(limit("pipes 1.5\n"), None);
    }
}
