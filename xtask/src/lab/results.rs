//! Parses the results of the tests that ran in a machine, and prints them as a table.
use std::collections::{BTreeMap, BTreeSet};

use crate::lab::kernels::Series;

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

#[derive(Debug)]
pub(crate) struct KernelReport {
    pub(crate) series: Series,
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
        format!(
            "{} passed, {} failed, {} did not end",
            self.count(&PASSED),
            self.count(&[Outcome::Failed]),
            self.count(&[Outcome::Unfinished])
        )
    }

    pub(crate) fn has_passed(&self) -> bool {
        let have_run = self.count(&PASSED) != 0;
        // The exit code is checked too, because a child process of a test may print a line that looks like an outcome.
        let has_ended =
            self.stopped.is_none() && self.doctor.is_some() && (!have_run || self.tests == Some(0));
        has_ended && !self.release.is_empty() && self.count(&[Outcome::Failed, Outcome::Unfinished]) == 0
    }

    /// Returns the output of the failed tests. libtest prints it between two lists of failures.
    pub(crate) fn said_of_failures(&self) -> String {
        let parts = self.log.split("\nfailures:\n").skip(1).step_by(2);
        parts.map(str::trim).collect::<Vec<_>>().join("\n\n")
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

/// If nothing disturbed the first try of a test, turns a pass in the second try into a failure.
pub(crate) fn refuse_repeats(
    outcomes: &mut BTreeMap<String, Outcome>,
    blames: &BTreeMap<String, Option<String>>,
) {
    for (name, outcome) in outcomes.iter_mut().filter(|(_, outcome)| **outcome == Outcome::PassedAgain) {
        if blames.get(name).is_none_or(Option::is_none) {
            *outcome = Outcome::Failed;
        }
    }
}

/// Returns a Markdown table with the number of passed tests, by module and kernel.
pub(crate) fn table(reports: &[KernelReport]) -> String {
    let names = reports.iter().flat_map(|report| report.outcomes.keys());
    let modules: BTreeSet<&str> = names.map(|name| module(name)).collect();
    let mut rows = vec![row("tests", reports.iter().map(title))];
    rows.push(row("---", reports.iter().map(|_| "---".to_owned())));
    for name in modules {
        rows.push(row(&format!("`{name}`"), reports.iter().map(|report| cell(report, name))));
    }
    let doctor = |report: &KernelReport| report.doctor.map(|code| format!("exit {code}"));
    let doctors = reports.iter().map(|report| doctor(report).unwrap_or_else(|| "did not end".to_owned()));
    rows.push(row("`cgscope doctor`", doctors));
    rows.push(row("seconds", reports.iter().map(|report| report.seconds.to_string())));
    rows.concat()
}

fn row(first: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!(" {cell} |")).collect();
    format!("| {first} |{cells}\n")
}

fn title(report: &KernelReport) -> String {
    // In `6.12.107+deb13-cloud-amd64`, the part after the version names the distribution.
    let release = report.release.split(['+', '-']).next().unwrap_or_default();
    match report.series.name() {
        _ if release.is_empty() => report.series.to_string(),
        Some(name) => format!("{name} ({release})"),
        None => release.to_owned(),
    }
}

fn module(test: &str) -> &str {
    test.split_once("::").map_or(test, |(module, _)| module)
}

fn cell(report: &KernelReport, name: &str) -> String {
    let of_module: Vec<Outcome> =
        report.outcomes.iter().filter(|(test, _)| module(test) == name).map(|(_, outcome)| *outcome).collect();
    let count = |wanted: &[Outcome]| of_module.iter().filter(|outcome| wanted.contains(outcome)).count();
    let (failed, open) = (count(&[Outcome::Failed]), count(&[Outcome::Unfinished]));
    if of_module.is_empty() {
        return "-".to_owned();
    }
    let mut cell = format!("{} of {}", count(&PASSED), of_module.len());
    if open > 0 {
        cell += &format!(", {open} unfinished");
    }
    if failed > 0 { format!("**{cell}**") } else { cell }
}

/// Returns the names of tests that failed, did not run, or passed only in the second try.
pub(crate) fn notes(reports: &[KernelReport]) -> String {
    let mut lines = String::new();
    for (outcome, what) in [
        (Outcome::Failed, "failed"),
        (Outcome::Unfinished, "did not end"),
        (Outcome::PassedAgain, "failed at first and passed when repeated"),
    ] {
        for report in reports {
            for (name, _) in report.outcomes.iter().filter(|(_, other)| **other == outcome) {
                let blame = report.blames.get(name).map(|blame| blame.as_deref());
                let why = blame.map(|why| format!(" (first try: {})", why.unwrap_or("nothing disturbed it")));
                lines += &format!("* {} {what}: `{name}`{}\n", title(report), why.unwrap_or_default());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{KernelReport, Outcome, notes, outcomes, refuse_repeats, reported, table};
    use crate::lab::kernels::Series;

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
            series: Series(6, 12),
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
        refuse_repeats(&mut report.outcomes, &report.blames);
        assert_eq!(report.outcomes.get("truth::b"), Some(&Outcome::PassedAgain));
        assert!(report.has_passed());
        let mut reports = [report];
        assert!(table(&reports).contains("| `truth` | 2 of 2 |"));
        assert!(
            notes(&reports).contains(
                "6.12.107 failed at first and passed when repeated: `truth::b` (first try: the host)"
            )
        );
        refuse_repeats(&mut reports[0].outcomes, &[("truth::b".to_owned(), None)].into());
        assert!(!reports[0].has_passed());
        let mut again = LOG.to_owned();
        again += "test truth::b ... FAILED\n";
        assert_eq!(outcomes(&again).get("truth::b"), Some(&Outcome::Failed));
    }

    #[test]
    fn the_table_counts_by_module_and_the_notes_name_missing_tests() {
        let report = [report()];
        let table = table(&report);
        assert!(table.starts_with("| tests | 6.12.107 |\n| --- | --- |\n"), "{table}");
        assert!(table.contains("| `truth` | **1 of 2** |"), "{table}");
        assert!(table.contains("| `ledger` | 1 of 2, 1 unfinished |"), "{table}");
        let notes = notes(&report);
        assert!(notes.contains("6.12.107 failed: `truth::b`"), "{notes}");
        assert!(notes.contains("6.12.107 did not end: `ledger::d`"), "{notes}");
        assert!(!report[0].has_passed());
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
