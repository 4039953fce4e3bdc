//! How often tests needed a second try on this machine, in a file in the user's cache. Without the file, nothing is known.
use std::{collections::BTreeMap, fs};

use super::Try;
use crate::setup;
use crate::steps::{self, Failure};

/// A test is judged by this number of its latest quiet runs. If it needed this many second tries in them, `--long` fails.
const JUDGED: usize = 10;
const TOO_MANY: usize = 3;
/// Number of tests to print.
const WORST: usize = 10;
/// Maximum number of lines: some 50 runs of all tests.
const LINES: usize = 20_000;

/// The lines of the file. Each line is about one test of a run: `machine`, `quiet` or `busy`, `1` or `2` tries, `test`.
pub(crate) struct History(String);

impl History {
    /// Reads the history, and adds a run. In a quiet run, no other program used the machine when the run started. If the file
    /// cannot be written, prints the reason, but does not fail.
    pub(crate) fn with_run(tries: &[Try], is_quiet: bool) -> Self {
        let file = setup::cache("tries.tsv");
        let before = file.as_ref().ok().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let quiet = if is_quiet { "quiet" } else { "busy" };
        let lines = tries.iter().map(|once| {
            let tries = if !once.has_passed && once.disturbance.blame().is_some() { 2 } else { 1 };
            format!("{}\t{quiet}\t{tries}\t{}\n", machine.trim(), once.test.name)
        });
        let history = Self(newest(&before, LINES) + &lines.collect::<String>());
        if let Err(why) = file.and_then(|file| steps::write(&file, &history.0)) {
            eprintln!("test: no history of second tries: {why}");
        }
        history
    }

    /// Returns the tests that needed second tries in their latest quiet runs: the name, how often, and in how many runs.
    fn worst(&self) -> Vec<(&str, usize, usize)> {
        let mut by_test: BTreeMap<(&str, &str), Vec<bool>> = BTreeMap::new();
        for line in self.0.lines() {
            if let [machine, "quiet", tries, test] = line.split('\t').collect::<Vec<_>>()[..] {
                by_test.entry((machine, test)).or_default().push(tries != "1");
            }
        }
        let judged = by_test.iter().map(|((_, test), again)| {
            let last = &again[again.len().saturating_sub(JUDGED)..];
            (*test, last.iter().filter(|again| **again).count(), last.len())
        });
        let mut worst: Vec<_> = judged.filter(|(_, again, _)| *again != 0).collect();
        worst.sort_by_key(|(_, again, _)| std::cmp::Reverse(*again));
        worst
    }

    /// Lists the tests that needed a second try most often.
    pub(crate) fn text(&self) -> String {
        let line = |(test, again, of)| {
            format!("test: needed a second try in {again} of its last {of} quiet runs: {test}\n")
        };
        self.worst().into_iter().take(WORST).map(line).collect()
    }

    /// Returns an error if a test needs a second try too often.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let worst = self.worst().into_iter().filter(|(_, again, _)| *again >= TOO_MANY);
        let worst: Vec<&str> = worst.map(|(test, ..)| test).collect();
        if worst.is_empty() {
            return Ok(());
        }
        Err(Failure::Step(format!(
            "these tests needed a second try in {TOO_MANY} of their last {JUDGED} quiet runs: {}; mend them, and run each \
             {JUDGED} times (`cargo xtask test --root -- NAME`)",
            worst.join(" ")
        )))
    }
}

fn newest(text: &str, count: usize) -> String {
    text.lines().skip(text.lines().count().saturating_sub(count)).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::{History, newest};

    fn history(test: &str, quiet: &str, tries: &[u32]) -> History {
        History(tries.iter().map(|tries| format!("m\t{quiet}\t{tries}\t{test}\n")).collect())
    }

    #[test]
    fn three_second_tries_in_the_last_ten_quiet_runs_are_too_many() {
        let quiet = |tries: &[u32]| history("a", "quiet", tries).check().is_ok();
        assert!(quiet(&[]) && quiet(&[2, 1, 2]));
        assert!(!quiet(&[2, 1, 2, 1, 1, 1, 1, 1, 1, 2]));
        // The eleventh run replaces the first run.
        assert!(quiet(&[2, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1]));
        assert!(history("a", "busy", &[2; 5]).check().is_ok(), "other programs disturbed these runs");
        let both = history("a", "quiet", &[1, 2, 1]).0 + &history("b", "quiet", &[2, 2, 1]).0;
        assert_eq!(History(both).worst(), [("b", 2, 3), ("a", 1, 3)]);
    }

    #[test]
    fn the_oldest_lines_are_dropped() {
        assert_eq!(newest("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(newest("", 2), "");
    }
}
