//! Decides which tests get a second try, and whether a run is green.
//!
//! A test gets a second try only if something disturbed the first try. The second try needs a quiet machine. There is no third
//! try.
use std::time::Duration;

use super::disturbance::Disturbance;
use super::schedule::Test;
use crate::steps::Failure;

/// Maximum time to wait for a quiet machine: for a single second try, and for all second tries together.
const FOR_ONE: Duration = Duration::from_secs(300);
const FOR_ALL: Duration = Duration::from_secs(600);

/// The first try of a test.
#[derive(Debug)]
pub(crate) struct Try {
    pub(crate) test: Test,
    pub(crate) has_passed: bool,
    pub(crate) seconds: f64,
    pub(crate) disturbance: Disturbance,
}

/// How a test ended. The strings are the reasons for which the first failure may not be the fault of cgscope.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Passed,
    PassedAgain(String),
    /// The test failed, and nothing disturbed it.
    Failed,
    FailedAgain(String),
    /// The machine did not become quiet in time, so there was no second try.
    Undecided(String),
    /// The run has already failed because of another test, so there was no second try.
    NotRepeated(String),
}

impl End {
    /// Returns what to print about a test, except for a test that passed in the first try.
    fn says(&self) -> Option<String> {
        Some(match self {
            Self::Passed => return None,
            Self::PassedAgain(why) => {
                format!("passed in its second try; the first failed, but it was disturbed: {why}")
            }
            Self::Failed => "failed, and nothing disturbed it".to_owned(),
            Self::FailedAgain(why) => {
                format!("failed twice; the first try was disturbed ({why}), the second was alone")
            }
            Self::Undecided(why) => format!("failed and is undecided; it was disturbed: {why}"),
            Self::NotRepeated(why) => {
                format!("failed; it was disturbed ({why}), but the run has failed in any case")
            }
        })
    }
}

/// The machine on which the second tries run.
pub(crate) trait Machine {
    /// Waits until the machine is quiet, but no longer than `patience`. Returns whether it is quiet, and how long the wait took.
    fn becomes_quiet(&mut self, patience: Duration) -> (bool, Duration) {
        eprintln!("test: waiting up to {} s for a quiet machine", patience.as_secs());
        super::disturbance::becomes_quiet(patience)
    }

    /// Runs a test while no other test runs. Returns whether it passed.
    fn again(&mut self, test: &Test) -> Result<bool, Failure>;
}

/// Repeats those tests that may be repeated. Returns an error unless each test passed in one of its tries.
pub(crate) fn decide(tries: &[Try], machine: &mut impl Machine) -> Result<(), Failure> {
    verdict(tries, &ends(tries, machine)?)
}

fn ends(tries: &[Try], machine: &mut impl Machine) -> Result<Vec<End>, Failure> {
    let has_failed = tries.iter().any(|once| !once.has_passed && once.disturbance.blame().is_none());
    let mut left = FOR_ALL;
    let mut end = |once: &Try| {
        if once.has_passed {
            return Ok(End::Passed);
        }
        let Some(why) = once.disturbance.blame() else { return Ok(End::Failed) };
        if has_failed {
            return Ok(End::NotRepeated(why));
        }
        let (is_quiet, waited) = machine.becomes_quiet(FOR_ONE.min(left));
        left = left.saturating_sub(waited);
        if !is_quiet {
            return Ok(End::Undecided(why));
        }
        Ok(if machine.again(&once.test)? { End::PassedAgain(why) } else { End::FailedAgain(why) })
    };
    tries.iter().map(&mut end).collect()
}

fn verdict(tries: &[Try], ends: &[End]) -> Result<(), Failure> {
    let (mut failed, mut undecided) = (Vec::new(), Vec::new());
    for (Try { test, .. }, end) in tries.iter().zip(ends) {
        if let Some(words) = end.says() {
            eprintln!("test: {} {words}", test.name);
        }
        match end {
            End::Passed | End::PassedAgain(_) => {}
            End::Failed | End::FailedAgain(_) | End::NotRepeated(_) => failed.push(test.name.as_str()),
            End::Undecided(_) => undecided.push(test.name.as_str()),
        }
    }
    if !failed.is_empty() {
        return Err(Failure::Step(format!("failed: {}", failed.join(" "))));
    }
    if !undecided.is_empty() {
        return Err(Failure::Undecided(format!(
            "the machine did not become quiet, so these failed tests are undecided: {}; run them again when no other program \
             uses the machine",
            undecided.join(" ")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Disturbance, End, Failure, Machine, Test, Try, ends, verdict};
    use crate::lanes::schedule::Lease;

    const LEASES: [Lease; 3] = [Lease::Shared, Lease::One, Lease::All];
    const QUIET: Disturbance = Disturbance { cpus: 2, others: 0.1, steal: 0.0, queue: 0 };
    const BUSY: Disturbance = Disturbance { others: 1.5, ..QUIET };

    fn once(lease: Lease, has_passed: bool, disturbance: Disturbance) -> Try {
        let test = Test { name: format!("{lease:?}"), lease };
        Try { test, has_passed, seconds: 2.0, disturbance }
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

    impl Machine for Fake {
        fn becomes_quiet(&mut self, patience: Duration) -> (bool, Duration) {
            self.waited.push(patience.as_secs());
            (self.quiet_after <= patience, self.quiet_after.min(patience))
        }

        fn again(&mut self, _: &Test) -> Result<bool, Failure> {
            self.again += 1;
            Ok(self.passes)
        }
    }

    fn ended(tries: &[Try], fake: &mut Fake) -> (Vec<End>, Option<u8>) {
        let ends = ends(tries, fake).expect("no failure of the machine");
        let code = verdict(tries, &ends).err().map(|failure| failure.exit_code());
        (ends, code)
    }

    #[test]
    fn a_test_that_always_fails_is_red_in_each_lane_on_a_busy_machine() {
        for lease in LEASES {
            let tries = [once(lease, false, BUSY)];
            // The machine becomes quiet, and the test fails again.
            let mut fake = Fake::new(60, false);
            let (ends, code) = ended(&tries, &mut fake);
            assert!(matches!(ends[..], [End::FailedAgain(_)]), "{ends:?}");
            assert_eq!((code, fake.again), (Some(1), 1));
            // The machine stays busy.
            let mut fake = Fake::new(1_000, false);
            let (ends, code) = ended(&tries, &mut fake);
            assert!(matches!(ends[..], [End::Undecided(_)]), "{ends:?}");
            assert_eq!((code, fake.again), (Some(3), 0));
        }
    }

    #[test]
    fn an_undisturbed_failure_is_red_at_once_in_each_lane() {
        for lease in LEASES {
            let mut fake = Fake::new(0, true);
            let (ends, code) = ended(&[once(lease, false, QUIET)], &mut fake);
            assert_eq!((&ends[..], code, fake.again), (&[End::Failed][..], Some(1), 0));
            assert!(fake.waited.is_empty());
            // The other test is not repeated, because the run has already failed.
            let (ends, code) = ended(&[once(lease, false, QUIET), once(lease, false, BUSY)], &mut fake);
            assert!(matches!(ends[..], [End::Failed, End::NotRepeated(_)]), "{ends:?}");
            assert_eq!((code, fake.again), (Some(1), 0));
        }
    }

    #[test]
    fn a_second_try_that_passes_is_green_and_says_why_there_was_one() {
        let mut fake = Fake::new(60, true);
        let (ends, code) = ended(&[once(Lease::All, false, BUSY), once(Lease::All, true, BUSY)], &mut fake);
        assert_eq!((code, fake.again), (None, 1));
        assert_eq!(ends[1], End::Passed);
        let line = ends[0].says().expect("words");
        assert!(line.starts_with("passed in its second try;") && line.contains("1.50 CPUs"), "{line}");
    }

    #[test]
    fn the_run_waits_five_minutes_for_one_test_and_ten_in_all() {
        let tries = [(); 4].map(|()| once(Lease::All, false, BUSY));
        let mut fake = Fake::new(1_000, true);
        assert_eq!(ended(&tries, &mut fake).1, Some(3));
        assert_eq!(fake.waited, [300, 300, 0, 0]);
        // A single undecided test makes the run undecided.
        let mut fake = Fake::new(250, true);
        let (ends, code) = ended(&tries, &mut fake);
        assert!(matches!(ends[..], [End::PassedAgain(_), End::PassedAgain(_), End::Undecided(_), _]));
        assert_eq!((code, fake.waited), (Some(3), vec![300, 300, 100, 0]));
    }
}
