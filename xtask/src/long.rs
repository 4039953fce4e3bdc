//! Runs the tests that take minutes. They are divided into parts. A part that has already passed with the same files does not
//! run again.

use std::time::Instant;

use clap::ValueEnum;

use crate::{
    binary,
    checks::TestRun,
    dist, fuzz, lab,
    lanes::{self, History, LONG, Lanes, SOAK},
    mutants, setup,
    steps::{self, AsRoot, Failure, cargo},
    unchanged::{self, EVERYTHING},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Generated recordings, clients and daemons
    Fuzz,
    /// A million random schedules of the ledger and of the pressure
    Schedules,
    /// Changes of the arithmetic that a test must notice
    Mutants,
    /// Tests as root that take minutes
    Tests,
    /// Half an hour of churn, and system calls that fail
    Soak,
    /// Tests on other kernels
    Lab,
}

impl Part {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn needs_root(self) -> bool {
        matches!(self, Self::Tests | Self::Soak)
    }

    /// Returns the lists of Debian packages that the part needs in addition to the build tools.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Fuzz => &[setup::FOR_FUZZ],
            Self::Schedules | Self::Mutants => &[],
            Self::Tests => &[setup::TEST_TOOLS, setup::LAB_TOOLS, setup::FOR_DEPLOY],
            Self::Soak | Self::Lab => &[setup::TEST_TOOLS, setup::LAB_TOOLS],
        }
    }

    fn run(self, tests: &TestRun) -> Result<(), Failure> {
        let run = || match self {
            Self::Fuzz => fuzz::run(&fuzz::Request::default()),
            Self::Schedules => {
                let mut schedules = cargo(&["test", "--release", "-p", "cgscope-ledger", "--lib", "ledger"]);
                steps::step("test: random schedules", schedules.env("CGSCOPE_SCHEDULES", "1000000"))
            }
            Self::Mutants => mutants::run(),
            Self::Tests | Self::Soak => each_test(self, tests),
            Self::Lab => lab::run(&lab::Request::for_checks(true)),
        };
        // Results of tests as root are recorded one by one.
        if self.needs_root() {
            run()
        } else {
            unchanged::unless_passed(&self.name(), EVERYTHING, tests.all, run)
        }
    }
}

/// Runs the chosen parts, or all.
pub(crate) fn run(tests: &TestRun) -> Result<(), Failure> {
    let parts = if tests.parts.is_empty() { Part::value_variants() } else { &tests.parts[..] };
    // Becomes root and installs everything at the start, because otherwise a failure would come only after minutes of tests.
    if parts.iter().any(|part| part.needs_root()) {
        become_root()?;
    }
    setup::ensure(&parts.iter().flat_map(|part| part.packages()).copied().collect::<Vec<_>>())?;
    let (mut summary, mut failed) = (String::new(), Vec::new());
    for part in parts {
        let (name, since) = (part.name(), Instant::now());
        let result = part.run(tests);
        let how = result.as_ref().map_or_else(ToString::to_string, |_| "passed".to_owned());
        summary += &format!("test: {name}: {how} (seconds: {})\n", since.elapsed().as_secs());
        failed.extend(result.err().map(|failure| (name, failure)));
    }
    eprint!("{summary}");
    failures("test: these parts failed; see their messages above", &failed)
}

fn become_root() -> Result<AsRoot, Failure> {
    let otherwise = "run this as root, or choose other parts: `cargo xtask test --long fuzz schedules lab`";
    AsRoot::become_root("a part of the tests", otherwise)
}

/// Returns an error that names the failed parts or tests. The error is undecided if all of these failures are undecided.
fn failures(what: &str, failed: &[(impl AsRef<str>, Failure)]) -> Result<(), Failure> {
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_ref()).collect();
    let words = format!("{what}: {}", names.join(" "));
    match failed {
        [] => Ok(()),
        failed if failed.iter().all(|(_, failure)| matches!(failure, Failure::Undecided(_))) => {
            Err(Failure::Undecided(words))
        }
        _ => Err(Failure::Step(words)),
    }
}

/// Runs each test of a part separately, so that each test's result is recorded.
fn each_test(part: Part, tests: &TestRun) -> Result<(), Failure> {
    // The tests expect the packages next to the binary.
    dist::make(&binary::build()?)?;
    let as_root = become_root()?;
    let lanes = Lanes::prepare(&as_root, true, part == Part::Tests)?;
    let (module, filters) = (if part == Part::Tests { LONG } else { SOAK }, &tests.arguments);
    let is_chosen =
        |name: &String| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let mut chosen = lab::names_of_tests(&lanes.binaries)?;
    chosen.retain(|name| name.contains(module) && is_chosen(name));
    if chosen.is_empty() {
        let filters = filters.join("` or `");
        return Err(Failure::Host(format!("no test that takes minutes has `{filters}` in its name")));
    }
    let mut failed = Vec::new();
    for name in &chosen {
        let words = [name.as_str(), "--exact", lanes::SHOW].map(str::to_owned);
        let what = format!("{} {name}", part.name());
        let result = unchanged::unless_passed(&what, EVERYTHING, tests.all, || lanes.run(&words));
        failed.extend(result.err().map(|failure| (name.as_str(), failure)));
    }
    let judged = History::with_run(&[], true).check();
    failed.extend(judged.err().map(|failure| ("(second tries)", failure)));
    failures(&format!("{} of {} failed", failed.len(), chosen.len()), &failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_undecided_only_if_none_is_decided() {
        let (failed, undecided) = (|| Failure::Step("a".to_owned()), || Failure::Undecided("b".to_owned()));
        let code =
            |failed: &[(&str, Failure)]| failures("these", failed).map_err(|failure| failure.exit_code());
        assert_eq!(code(&[]), Ok(()));
        assert_eq!(code(&[("x", undecided()), ("y", undecided())]), Err(3));
        assert_eq!(code(&[("x", undecided()), ("y", failed())]), Err(1));
    }

    #[test]
    fn every_part_is_in_the_documents() {
        let document = include_str!("../../docs/testing.md");
        for part in Part::value_variants() {
            assert!(document.contains(&format!("| `{}` | ", part.name())), "{part:?}");
        }
    }
}
