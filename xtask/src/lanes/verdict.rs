//! Decides which tests get a second try, and whether a run is green.
//!
//! A test gets a second try only if something disturbed the first try. The second try needs a quiet machine. There is no third
//! try.
use std::time::Duration;

use super::{disturbance::Disturbance, schedule::Test};
use crate::steps::Failure;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Disturbance, Test, Try, Verdict, conclude, verdicts};
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
}
