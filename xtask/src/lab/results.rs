//! Parses and prints the results of the tests that ran in a machine.
use std::{collections::BTreeMap, fmt};

use crate::lab::kernels::Id;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The test failed while the host disturbed the machine, and passed in the second try.
    PassedAgain,
    Failed,
    /// The test should have run, and its outcome is unknown.
    Unfinished,
}

const PASSED: [Outcome; 2] = [Outcome::Passed, Outcome::PassedAgain];

pub(crate) struct KernelReport {
    pub(crate) kernel: Id,
    /// The kernel's own version string; empty if the kernel did not boot.
    pub(crate) release: String,
    pub(crate) outcomes: BTreeMap<String, Outcome>,
    /// For each test whose first try failed, the reason why the host may be to blame; `None` if the host is not to blame.
    pub(crate) blames: BTreeMap<String, Option<String>>,
    pub(crate) log: String,
    pub(crate) seconds: u64,
    /// The exit code of `cgscope doctor`, if it has ended.
    pub(crate) doctor: Option<i32>,
    /// The exit code of the last run of tests, if any ran.
    pub(crate) tests: Option<i32>,
    /// Why the machine was stopped. `None` if it ended by itself.
    pub(crate) stopped: Option<String>,
}

impl KernelReport {
    fn count(&self, outcomes: &[Outcome]) -> usize {
        self.outcomes.values().filter(|outcome| outcomes.contains(outcome)).count()
    }

    pub(crate) fn ending(&self) -> String {
        let (failed, unfinished) = (self.count(&[Outcome::Failed]), self.count(&[Outcome::Unfinished]));
        format!("{} passed, {failed} failed, {unfinished} did not end", self.count(&PASSED))
    }

    pub(crate) fn has_passed(&self) -> bool {
        let have_run = self.count(&PASSED) != 0;
        // The exit code is checked too, because a child process of a test may print a line that looks like an outcome.
        let has_ended =
            self.stopped.is_none() && self.doctor.is_some() && (!have_run || self.tests == Some(0));
        has_ended && !self.release.is_empty() && self.count(&[Outcome::Failed, Outcome::Unfinished]) == 0
    }

    /// If nothing disturbed the first try of a test, turns a pass in the second try into a failure.
    pub(crate) fn refuse_repeats(&mut self) {
        for (name, outcome) in &mut self.outcomes {
            if *outcome == Outcome::PassedAgain && self.blames.get(name).is_none_or(Option::is_none) {
                *outcome = Outcome::Failed;
            }
        }
    }
}

/// Returns the value in the first line `lab: WHAT VALUE`.
pub(crate) fn reported<'a>(log: &'a str, what: &str) -> Option<&'a str> {
    log.lines().find_map(|line| line.strip_prefix("lab: ")?.strip_prefix(what)?.strip_prefix(' '))
}

/// Parses the outcomes in the output of libtest. In a line, the output of a child process may precede the outcome.
pub(crate) fn outcomes(log: &str) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    let mut running = None;
    for line in log.lines().map(str::trim_end) {
        let mut rest = line;
        if let Some((name, then)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
            running = Some(name.to_owned());
            rest = then;
        }
        let has_passed = rest.ends_with("ok");
        if !has_passed && !rest.ends_with("FAILED") {
            continue;
        }
        if let Some(name) = running.take() {
            let outcome = match (has_passed, outcomes.contains_key(&name)) {
                (false, _) => Outcome::Failed,
                (true, false) => Outcome::Passed,
                (true, true) => Outcome::PassedAgain,
            };
            outcomes.insert(name, outcome);
        }
    }
    outcomes
}

/// Prints a line about the kernel, and a line for each test that failed, did not run, or passed only in the second try.
impl fmt::Display for KernelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, release, seconds, doctor, .. } = self;
        let doctor = doctor.map_or_else(|| "did not end".to_owned(), |code| format!("exit {code}"));
        let ending = self.ending();
        writeln!(f, "{kernel} ({release}): {ending}; `cgscope doctor`: {doctor}; seconds: {seconds}")?;
        for (outcome, what) in [
            (Outcome::Failed, "failed"),
            (Outcome::Unfinished, "did not end"),
            (Outcome::PassedAgain, "failed at first and passed when repeated"),
        ] {
            for (name, _) in self.outcomes.iter().filter(|(_, other)| **other == outcome) {
                let blame = self.blames.get(name).map(|blame| blame.as_deref());
                let why = blame.map(|why| format!(" (first try: {})", why.unwrap_or("nothing disturbed it")));
                writeln!(f, "* {kernel} {what}: `{name}`{}", why.unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelReport, Outcome, outcomes, reported};
    use crate::lab::Arch;
    use crate::lab::kernels::{Id, Series};

    const LOG: &str = "\
lab: kernel 6.12.107+deb13-cloud-amd64
lab: doctor 0

running 3 tests
test truth::a ... ok
test truth::b ... a child wrote this
FAILED
test ledger::c ... ok
test ledger::d ... ";

    fn report() -> KernelReport {
        let mut outcomes = outcomes(LOG);
        outcomes.insert("ledger::d".to_owned(), Outcome::Unfinished);
        let release = reported(LOG, "kernel").expect("the release").to_owned();
        KernelReport {
            kernel: Id::all(&[Series(6, 12)], Arch::X86).pop_first().expect("one kernel"),
            release,
            outcomes,
            blames: [("truth::b".to_owned(), Some("the host".to_owned()))].into(),
            log: LOG.to_owned(),
            seconds: 9,
            doctor: Some(0),
            tests: Some(0),
            stopped: None,
        }
    }

    #[test]
    fn outcomes_are_parsed_from_the_output_of_libtest() {
        let outcomes = outcomes(LOG);
        assert_eq!(outcomes.get("truth::a"), Some(&Outcome::Passed));
        assert_eq!(outcomes.get("truth::b"), Some(&Outcome::Failed));
        assert_eq!(outcomes.get("ledger::d"), None);
    }

    #[test]
    fn a_test_that_passes_when_repeated_counts_as_passed_if_the_first_try_was_disturbed() {
        let mut report = report();
        report.log += "lab: again\ntest truth::b ... ok\n";
        report.outcomes.extend(outcomes(&report.log));
        report.outcomes.remove("ledger::d");
        report.refuse_repeats();
        assert_eq!(report.outcomes.get("truth::b"), Some(&Outcome::PassedAgain));
        assert!(report.has_passed());
        let text = report.to_string();
        assert!(text.contains("): 3 passed, 0 failed, 0 did not end; `cgscope doctor`: exit 0"), "{text}");
        assert!(
            text.contains("6.12 failed at first and passed when repeated: `truth::b` (first try: the host)")
        );
        report.blames = [("truth::b".to_owned(), None)].into();
        report.refuse_repeats();
        assert!(!report.has_passed());
        let mut again = LOG.to_owned();
        again += "test truth::b ... FAILED\n";
        assert_eq!(outcomes(&again).get("truth::b"), Some(&Outcome::Failed));
    }

    #[test]
    fn tests_that_failed_or_did_not_end_are_named() {
        let text = report().to_string();
        let first =
            "6.12 (6.12.107+deb13-cloud-amd64): 2 passed, 1 failed, 1 did not end; `cgscope doctor`: exit 0";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("* 6.12 failed: `truth::b` (first try: the host)\n"), "{text}");
        assert!(text.contains("* 6.12 did not end: `ledger::d`\n"), "{text}");
        assert!(!report().has_passed());
    }

    #[test]
    fn a_machine_that_did_not_boot_has_not_passed() {
        let mut report = report();
        report.outcomes.clear();
        assert!(report.has_passed());
        report.release.clear();
        assert!(!report.has_passed());
    }
}
