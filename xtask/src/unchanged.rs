//! Skips a part of the tests if the part has passed on this machine and its inputs have not changed since.
use std::{collections::BTreeSet, fs, process::Command};

use crate::setup;
use crate::steps::{self, Failure};

/// The inputs of the tests on other kernels: the tests and loads, the code that depends on the kernel, and the virtual machines.
pub(crate) const OTHER_KERNELS: &str = "Cargo.lock crates/bpf-build crates/collect crates/lab/src \
    crates/lab/tests/root/bench.rs crates/lab/tests/root/ledger crates/lab/tests/root/ledger.rs \
    crates/lab/tests/root/load.rs crates/lab/tests/root/shared.rs crates/lab/tests/root/truth.rs crates/ledger ebpf \
    xtask/src/lab";

/// The inputs of the tests of the packages: the packaged files other than the binary, and the daemon, because the package
/// restricts what the daemon may do.
pub(crate) const PACKAGES: &str = "Cargo.lock crates/cgscope/src/packaging.rs crates/cgscope/src/serve crates/collect \
    crates/lab/tests/root/packages crates/lab/tests/root/packages.rs crates/serve deploy ebpf xtask/src/checks.rs \
    xtask/src/dist xtask/src/dist.rs xtask/tests/kubectl";

pub(crate) const EVERYTHING: &str = ".";

/// Runs a part of the tests, unless it can be skipped. Prints why the part runs, or that it is skipped. If the part passes, records
/// it. `paths` are the files and directories that decide whether the part passes.
pub(crate) fn unless_passed(
    part: &str,
    paths: &str,
    is_requested: bool,
    run: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    // This file records in which state the part has passed.
    let stamp = setup::cache("passed")?.join(part.replace(' ', "-"));
    let before = state(paths);
    let passed = fs::read_to_string(&stamp).ok();
    let why = is_requested.then(|| "it was requested".to_owned());
    let Some(why) = why.or_else(|| reason(before.as_deref(), passed.as_deref())) else {
        eprintln!(
            "test: {part}: skipped, because it passed on this machine and these have not changed since: {paths} (--all runs it)"
        );
        return Ok(());
    };
    eprintln!("test: {part}: not skipped, because {why}");
    if before.is_some() {
        // If the part fails now, an earlier pass in this state does not count any more.
        let _ = fs::remove_file(&stamp);
    }
    run()?;
    match before {
        // If files have changed during the run, it is unclear which state has passed.
        Some(before) if state(paths).as_ref() == Some(&before) => steps::write(&stamp, before),
        _ => Ok(()),
    }
}

/// Returns the state: the compiler, and the git object of each path. Returns `None` without git, or if a file differs from its
/// commit.
pub(crate) fn state(paths: &str) -> Option<String> {
    let paths: Vec<&str> = paths.split(' ').collect();
    let with_paths = |words: &[&str]| steps::git(&[words, &paths].concat());
    if !with_paths(&["status", "--porcelain", "--"])?.is_empty() {
        return None;
    }
    let compiler = steps::output(Command::new("rustc").arg("--version")).ok()?;
    let objects = with_paths(&["ls-tree", "HEAD", "--"])?;
    Some(format!("{}\tthe compiler\n{objects}", compiler.trim()))
}

/// Returns why a part must run. The arguments are its current state and the state in which it passed.
fn reason(now: Option<&str>, passed: Option<&str>) -> Option<String> {
    let Some(now) = now else { return Some("its files have changes that are not committed".to_owned()) };
    let Some(passed) = passed else { return Some("it has not passed on this machine".to_owned()) };
    let (now, passed): (BTreeSet<_>, BTreeSet<_>) = (now.lines().collect(), passed.lines().collect());
    let path = |line: &&'_ str| line.rsplit('\t').next().unwrap_or_default().to_owned();
    let changed: BTreeSet<String> = now.symmetric_difference(&passed).map(path).collect();
    let changed: Vec<String> = changed.into_iter().collect();
    (!changed.is_empty()).then(|| format!("these changed: {}", changed.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{OTHER_KERNELS, PACKAGES, reason};
    use crate::steps;

    const STATE: &str = "rustc 1.98\tthe compiler\n040000 tree 1a\tcrates/ledger\n040000 tree 2b\tebpf\n";

    #[test]
    fn a_part_is_skipped_only_if_it_passed_in_the_same_state() {
        assert_eq!(reason(Some(STATE), Some(STATE)), None);
        let why = |now, passed| reason(now, passed).expect("the part runs");
        assert!(why(None, Some(STATE)).contains("not committed"));
        assert!(why(Some(STATE), None).contains("not passed"));
        let other = STATE.replace("2b", "3c");
        assert_eq!(why(Some(STATE), Some(&other)), "these changed: ebpf");
        assert_eq!(why(Some(STATE), Some(&STATE.replace("1.98", "1.99"))), "these changed: the compiler");
    }

    #[test]
    fn an_added_and_a_removed_path_are_changes() {
        let fewer = STATE.lines().take(2).collect::<Vec<_>>().join("\n");
        for (now, passed) in [(STATE, fewer.as_str()), (&fewer, STATE)] {
            assert_eq!(reason(Some(now), Some(passed)).as_deref(), Some("these changed: ebpf"));
        }
        assert!(reason(Some(STATE), Some("")).is_some(), "an empty stamp");
    }

    /// A path with a typing error would never change.
    #[test]
    fn every_path_exists() {
        for paths in [OTHER_KERNELS, PACKAGES] {
            let paths: Vec<&str> = paths.split(' ').collect();
            let words = [&["ls-tree", "HEAD", "--"], &paths[..]].concat();
            let listed = steps::git(&words).expect("a git checkout");
            let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.split('\t').nth(1)).collect();
            assert_eq!(listed, paths.into_iter().collect());
        }
    }
}
