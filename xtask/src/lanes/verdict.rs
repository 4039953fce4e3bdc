//! Decides which tests get a second try, and whether a run is green.
//!
//! A test gets a second try only if something disturbed the first try. The second try needs a quiet machine. There is no third
//! try. A file in the user's cache says how often tests needed a second try on this machine. Without it, nothing is known.

use std::{collections::BTreeMap, fs, time::Duration};

use super::{disturbance::Disturbance, schedule::Test};
use crate::{
    setup,
    steps::{self, Failure},
};

/// Maximum time to wait for a quiet machine: for a single second try, and for all second tries together.
const FOR_ONE: Duration = Duration::from_secs(300);
const FOR_ALL: Duration = Duration::from_secs(600);

/// The first try of a test.
pub(crate) struct Try {
    pub(crate) test: Test,
    pub(crate) has_passed: bool,
    pub(crate) disturbance: Disturbance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    /// The test failed while something disturbed it, and the machine did not become quiet in time for a second try.
    Undecided,
}

/// Repeats those tests that may be repeated. `again` runs a test while no other test runs, and returns whether it passed. Returns
/// an error unless each test passed in one of its tries.
pub(crate) fn decide(
    tries: &[Try],
    again: impl FnMut(&Test) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let becomes_quiet = |patience: Duration| {
        eprintln!("test: waiting up to {} s for a quiet machine", patience.as_secs());
        super::disturbance::becomes_quiet(patience)
    };
    conclude(tries, &verdicts(tries, becomes_quiet, again)?)
}

fn conclude(tries: &[Try], verdicts: &[(Verdict, String)]) -> Result<(), Failure> {
    let with = |wanted: Verdict| {
        let those = tries.iter().zip(verdicts).filter(|(_, (verdict, _))| *verdict == wanted);
        those.map(|(once, _)| once.test.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    for (once, (_, words)) in tries.iter().zip(verdicts).filter(|(_, (_, words))| !words.is_empty()) {
        eprintln!("test: {} {words}", once.test.name);
    }
    let (failed, undecided) = (with(Verdict::Failed), with(Verdict::Undecided));
    if !failed.is_empty() {
        return Err(Failure::Step(format!("failed: {failed}")));
    }
    if !undecided.is_empty() {
        return Err(Failure::Undecided(format!(
            "the machine did not become quiet, so these failed tests are undecided: {undecided}; run them again when no \
             other program uses the machine"
        )));
    }
    Ok(())
}

/// Returns a verdict and its reason for each test. A test that passed in its first try needs no reason.
fn verdicts(
    tries: &[Try],
    mut becomes_quiet: impl FnMut(Duration) -> (bool, Duration),
    mut again: impl FnMut(&Test) -> Result<bool, Failure>,
) -> Result<Vec<(Verdict, String)>, Failure> {
    let has_failed = tries.iter().any(|once| !once.has_passed && once.disturbance.blame().is_none());
    let mut left = FOR_ALL;
    let mut of = |once: &Try| {
        if once.has_passed {
            return Ok((Verdict::Passed, String::new()));
        }
        let Some(why) = once.disturbance.blame() else {
            return Ok((Verdict::Failed, "failed, and nothing disturbed it".to_owned()));
        };
        if has_failed {
            let words = format!("failed; it was disturbed ({why}), but the run has failed in any case");
            return Ok((Verdict::Failed, words));
        }
        let (is_quiet, waited) = becomes_quiet(FOR_ONE.min(left));
        left = left.saturating_sub(waited);
        if !is_quiet {
            return Ok((Verdict::Undecided, format!("failed and is undecided; it was disturbed: {why}")));
        }
        Ok(if again(&once.test)? {
            let words = format!("passed in its second try; the first failed, but it was disturbed: {why}");
            (Verdict::Passed, words)
        } else {
            let words = format!("failed twice; the first try was disturbed ({why}), the second was alone");
            (Verdict::Failed, words)
        })
    };
    tries.iter().map(&mut of).collect()
}

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
    use std::time::Duration;

    use super::{Disturbance, History, Test, Try, Verdict, conclude, newest, verdicts};
    use crate::lanes::schedule::Lease;

    const LEASES: [Lease; 3] = [Lease::Shared, Lease::One, Lease::All];
    const QUIET: Disturbance = Disturbance { cpus: 2, others: 0.1, steal: 0.0, queue: 0 };
    const BUSY: Disturbance = Disturbance { others: 1.5, ..QUIET };

    fn once(lease: Lease, has_passed: bool, disturbance: Disturbance) -> Try {
        let test = Test { name: format!("{lease:?}"), lease };
        Try { test, has_passed, disturbance }
    }

    /// A simulated machine that becomes quiet after some time. The second tries on this machine either all pass or all fail.
    struct Fake {
        quiet_after: Duration,
        passes: bool,
        waited: Vec<u64>,
        again: usize,
    }

    impl Fake {
        fn new(quiet_after: u64, passes: bool) -> Self {
            Self { quiet_after: Duration::from_secs(quiet_after), passes, waited: Vec::new(), again: 0 }
        }
    }

    /// Returns the verdicts and what is said about them, the exit code of a failure, and the number of second tries.
    fn ended(tries: &[Try], fake: &mut Fake) -> (Vec<Verdict>, String, Option<u8>, usize) {
        let becomes_quiet = |patience: Duration| {
            fake.waited.push(patience.as_secs());
            (fake.quiet_after <= patience, fake.quiet_after.min(patience))
        };
        let again = |_: &Test| {
            fake.again += 1;
            Ok(fake.passes)
        };
        let verdicts = verdicts(tries, becomes_quiet, again).expect("no failure of the machine");
        let code = conclude(tries, &verdicts).err().map(|failure| failure.exit_code());
        let (verdicts, words): (Vec<_>, Vec<_>) = verdicts.into_iter().unzip();
        (verdicts, words.join("\n"), code, fake.again)
    }

    #[test]
    fn a_test_that_always_fails_is_red_in_each_lane_on_a_busy_machine() {
        for lease in LEASES {
            let tries = [once(lease, false, BUSY)];
            // The machine becomes quiet, and the test fails again.
            let (ends, words, code, again) = ended(&tries, &mut Fake::new(60, false));
            assert_eq!((&ends[..], code, again), (&[Verdict::Failed][..], Some(1), 1));
            assert!(words.starts_with("failed twice"), "{words}");
            // The machine stays busy.
            let (ends, _, code, again) = ended(&tries, &mut Fake::new(1_000, false));
            assert_eq!((&ends[..], code, again), (&[Verdict::Undecided][..], Some(3), 0));
        }
    }

    #[test]
    fn an_undisturbed_failure_is_red_at_once_in_each_lane() {
        for lease in LEASES {
            let mut fake = Fake::new(0, true);
            let (ends, _, code, again) = ended(&[once(lease, false, QUIET)], &mut fake);
            assert_eq!((&ends[..], code, again), (&[Verdict::Failed][..], Some(1), 0));
            // The other test is not repeated, because the run has already failed.
            let (ends, words, code, again) =
                ended(&[once(lease, false, QUIET), once(lease, false, BUSY)], &mut fake);
            assert_eq!((&ends[..], code, again), (&[Verdict::Failed; 2][..], Some(1), 0));
            assert!(words.ends_with("but the run has failed in any case"), "{words}");
            assert!(fake.waited.is_empty());
        }
    }

    #[test]
    fn a_second_try_that_passes_is_green_and_says_why_there_was_one() {
        let tries = [once(Lease::All, false, BUSY), once(Lease::All, true, BUSY)];
        let (ends, words, code, again) = ended(&tries, &mut Fake::new(60, true));
        assert_eq!((&ends[..], code, again), (&[Verdict::Passed; 2][..], None, 1));
        assert!(words.starts_with("passed in its second try;") && words.ends_with("1.50 CPUs\n"), "{words}");
    }

    #[test]
    fn the_run_waits_five_minutes_for_one_test_and_ten_in_all() {
        let tries = [(); 4].map(|()| once(Lease::All, false, BUSY));
        let mut fake = Fake::new(1_000, true);
        assert_eq!(ended(&tries, &mut fake).2, Some(3));
        assert_eq!(fake.waited, [300, 300, 0, 0]);
        // A single undecided test makes the run undecided.
        let mut fake = Fake::new(250, true);
        let (ends, _, code, _) = ended(&tries, &mut fake);
        assert_eq!(ends[..3], [Verdict::Passed, Verdict::Passed, Verdict::Undecided]);
        assert_eq!((code, fake.waited), (Some(3), vec![300, 300, 100, 0]));
    }

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
