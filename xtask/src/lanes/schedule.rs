//! Decides which tests run at the same time, and on which CPUs.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{panic::resume_unwind, thread};

use rustix::thread::CpuSet;

use crate::steps::Failure;

/// Number of tests that share all CPUs at the same time. Several tests can share the CPUs, because most tests wait most of the
/// time.
const SHARED: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The test uses all CPUs and shares them with other tests.
    Shared,
    /// The test has one CPU for itself. Tests on other CPUs run at the same time.
    One,
    /// The test uses all CPUs. No other test runs at the same time.
    All,
}

impl Lease {
    /// Parses `mark`, which is the text in `#[ignore = "..."]`.
    pub(crate) fn of(mark: Option<&str>) -> Self {
        match mark.map(|mark| mark.split(':').next().unwrap_or_default()) {
            None => Self::Shared,
            Some("one CPU") => Self::One,
            Some(_) => Self::All,
        }
    }

    /// Returns the value of CGSCOPE_TEST_CPU, an environment variable that the tests read.
    pub(crate) fn variable(self, cpu: Option<u32>) -> String {
        match self {
            Self::Shared => "shared".to_owned(),
            Self::One => cpu.map(|cpu| cpu.to_string()).unwrap_or_default(),
            Self::All => "all".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) lease: Lease,
}

/// Calls `one` with each test. If the test has only one CPU, passes that CPU too.
pub(crate) fn run<T: Send>(
    tests: &[Test],
    one: impl Fn(&Test, Option<u32>) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let mut results = Vec::new();
    for lease in [Lease::Shared, Lease::One, Lease::All] {
        let lane: Vec<&Test> = tests.iter().filter(|test| test.lease == lease).collect();
        let places = match lease {
            Lease::Shared => vec![None; SHARED],
            Lease::One => cpus().into_iter().map(Some).collect(),
            Lease::All => vec![None],
        };
        results.extend(in_parallel(&lane, places, |test, cpu| one(test, cpu))?);
    }
    Ok(results)
}

/// Calls `work` with each item and a free place, and returns the results. There is one thread for each place. If a call fails,
/// its thread ends.
pub(crate) fn in_parallel<T: Sync, P: Copy + Send, R: Send>(
    items: &[T],
    places: Vec<P>,
    work: impl Fn(&T, P) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let at_place = |place: P| -> Result<Vec<R>, Failure> {
        let mine = std::iter::from_fn(|| items.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.map(|item| work(item, place)).collect()
    };
    let at_place = &at_place;
    thread::scope(|scope| {
        let workers: Vec<_> = places.into_iter().map(|place| scope.spawn(move || at_place(place))).collect();
        let ended =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let results: Vec<Vec<R>> = ended.collect::<Result<_, _>>()?;
        Ok(results.into_iter().flatten().collect())
    })
}

/// Returns the CPUs that this process may use.
pub(crate) fn cpus() -> Vec<u32> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::{Lease, Test, cpus, run};

    #[test]
    fn the_mark_of_a_test_is_its_lease() {
        assert_eq!(Lease::of(None), Lease::Shared);
        assert_eq!(Lease::of(Some("one CPU: asserts shares")), Lease::One);
        for mark in ["all CPUs: asserts times", "alone: five loops", "ten minutes"] {
            assert_eq!(Lease::of(Some(mark)), Lease::All, "{mark}");
        }
    }

    #[test]
    fn as_many_tests_run_side_by_side_as_their_leases_allow() {
        for (lease, most) in [(Lease::Shared, 4), (Lease::One, cpus().len()), (Lease::All, 1)] {
            let tests: Vec<_> = (0..8).map(|number| Test { name: number.to_string(), lease }).collect();
            let (running, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let results = run(&tests, |test, cpu| {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
                running.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(cpu.is_some(), lease == Lease::One);
                Ok(test.name.clone())
            });
            assert_eq!(results.expect("no failure").len(), 8);
            assert!((1..=most).contains(&peak.into_inner()), "{lease:?}");
        }
    }
}
