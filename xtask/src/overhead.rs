//! Measures the overhead of cgscope and of other tools: `cargo xtask overhead`.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lanes::{Disturbance, FOR_ONE, Reading, becomes_quiet, supervise};
use crate::steps::{self, AsRoot, Failure, git};
use crate::{binary, setup};

/// The file of limits: for each load, the maximum ratio between the time of the hook and the time of the yardstick.
const LIMITS: &str = "benches/hook-cost.txt";

/// Numbers of rounds and loops of the check, which takes half a minute in total.
const OF_CHECK: [&str; 4] = ["--rounds", "9", "--loops", "150000"];

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let as_root = AsRoot::become_root("measuring the overhead", "run this as root")?;
    setup::ensure(&setup::TEST_TOOLS)?;
    // `cgscope overhead` runs the release binary and the loads of the lab, which must be in the directory of `overhead`.
    binary::build()?;
    let mut arguments = arguments.to_vec();
    if let Some(before) = arguments.iter().position(|word| word == "--before") {
        let earlier = arguments
            .get_mut(before + 1)
            .ok_or_else(|| Failure::Usage("`--before` needs a commit or a binary".to_owned()))?;
        let built = earlier_binary(earlier)?;
        eprintln!("overhead: compares {} with {earlier}", here());
        *earlier = built.display().to_string();
    } else {
        eprintln!("overhead: measures {}", here());
    }
    let mut loads = steps::cargo(&["build", "--release", "--package", "cgscope-lab", "--bins"]);
    passed("cannot build the loads", &mut loads)?;
    passed("the measurement failed, or missed a bound", &mut measurement(&as_root, &arguments))
}

/// Fails if the hook takes longer for a switch than [`LIMITS`] allows, or if somebody has raised a limit. If something disturbed
/// the measurement, there is a second try, as for tests.
pub(crate) fn for_checks(as_root: &AsRoot) -> Result<(), Failure> {
    only_lowered()?;
    let limits = steps::workspace().join(LIMITS).display().to_string();
    let arguments: Vec<_> =
        [&["--check", &limits][..], &OF_CHECK].concat().into_iter().map(str::to_owned).collect();
    let mut build =
        steps::cargo(&["build", "--release", "--package", "cgscope-benches", "--bin", "overhead"]);
    passed("cannot build the measurement", &mut build)?;
    let once = || {
        let before = Reading::take();
        let mut command = measurement(as_root, &arguments);
        let child = command.spawn().map_err(|why| steps::did_not_start(&command, &why))?;
        let (status, own_s) = supervise::wait(child)
            .map_err(|why| Failure::Step(format!("overhead: cannot wait for its end ({why})")))?;
        Ok((status.success(), Disturbance::between(&before, &Reading::take(), None, own_s).blame()))
    };
    let dearer = |why: &str| {
        Failure::Step(format!("overhead: the hook is dearer than before{why}; see the messages above"))
    };
    let (has_passed, disturbed) = once()?;
    let Some(why) = disturbed.filter(|_| !has_passed) else {
        return if has_passed { Ok(()) } else { Err(dearer("")) };
    };
    if !becomes_quiet(FOR_ONE).0 {
        return Err(Failure::Undecided(format!(
            "the cost of the hook is undecided: {why}, and the machine did not become quiet"
        )));
    }
    if !once()?.0 {
        return Err(dearer(", measured twice"));
    }
    eprintln!("overhead: passed in the second try; the first was disturbed: {why}");
    Ok(())
}

fn measurement(as_root: &AsRoot, arguments: &[String]) -> Command {
    let mut cargo = steps::cargo(&["run", "--release", "--package", "cgscope-benches", "--bin", "overhead"]);
    cargo.args(as_root.for_cargo()).arg("--").args(arguments);
    cargo
}

fn passed(otherwise: &str, command: &mut Command) -> Result<(), Failure> {
    steps::succeed(command, |status| format!("overhead: {otherwise} ({status}); see the messages above"))
}

fn here() -> String {
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "an unknown commit".to_owned());
    let has_changes = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
    if has_changes { format!("{commit} with uncommitted changes") } else { commit }
}

/// Returns the binary of an earlier commit, which is built if necessary. If the argument is a path, returns the path unchanged.
fn earlier_binary(earlier: &str) -> Result<PathBuf, Failure> {
    if Path::new(earlier).is_file() {
        return Ok(PathBuf::from(earlier));
    }
    let Some(commit) = git(&["rev-parse", "--verify", "--quiet", &format!("{earlier}^{{commit}}")]) else {
        return Err(Failure::Usage(format!("`{earlier}` is neither a commit nor a binary")));
    };
    let target = steps::target_dir();
    let checkout = target.join("commits").join(&commit);
    let built = checkout.join("target/release/cgscope");
    if built.is_file() {
        return Ok(built);
    }
    let place = checkout.display().to_string();
    fs::create_dir_all(&checkout).map_err(|why| steps::cannot("write", &checkout, &why))?;
    // `git archive` is used, because a worktree would have to be removed from the repository later.
    let unpack = format!("git archive {commit} | tar -x -C '{place}'");
    passed(
        "cannot unpack the earlier commit",
        Command::new("sh").current_dir(steps::workspace()).args(["-c", &unpack]),
    )?;
    eprintln!("overhead: building {commit}");
    let mut cargo = steps::cargo(&["build", "--release", "--package", "cgscope"]);
    cargo.current_dir(&checkout).env("CARGO_TARGET_DIR", checkout.join("target"));
    passed("cannot build the earlier commit", &mut cargo)?;
    Ok(built)
}

/// Fails if a limit is higher than it was in any earlier version of [`LIMITS`]. Without a git history, the check passes.
fn only_lowered() -> Result<(), Failure> {
    let now = fs::read_to_string(steps::workspace().join(LIMITS))
        .map_err(|why| Failure::Host(format!("cannot read {LIMITS}: {why}")))?;
    let commits = git(&["log", "--format=%H", "--", LIMITS]).unwrap_or_default();
    for commit in commits.lines() {
        let before = git(&["show", &format!("{commit}:{LIMITS}")]).unwrap_or_default();
        if let Some(line) = raised(&before, &now) {
            return Err(Failure::Step(format!(
                "overhead: {LIMITS} may only be lowered, but `{line}` is above its value in {commit}"
            )));
        }
    }
    Ok(())
}

/// Returns the first line of `now` whose limit is higher than in `before`.
fn raised<'a>(before: &str, now: &'a str) -> Option<&'a str> {
    let limit = |line: &str| {
        let (load, limit) = line.split_once(' ')?;
        Some((load.to_owned(), limit.trim().parse::<f64>().ok()?))
    };
    let is_raised = |line: &&str| {
        let Some((load, now)) = limit(line) else { return false };
        before.lines().filter_map(limit).any(|(other, before)| other == load && now > before)
    };
    now.lines().find(is_raised)
}

#[cfg(test)]
mod tests {
    use super::raised;

    #[test]
    fn a_limit_may_fall_and_a_load_may_be_added_but_no_limit_may_rise() {
        let before = "# what it is\npipe 1.5\nmessaging 2\n";
        assert_eq!(raised(before, "# what it is\npipe 1.4\nmessaging 2\nother 3\n"), None);
        assert_eq!(raised(before, "pipe 1.5\nmessaging 2.01\n"), Some("messaging 2.01"));
    }
}
