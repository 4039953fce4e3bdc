//! Decides when samples are taken. Each requested interval has a grid of times, so viewers with the same interval share samples.
//! All times on a grid are multiples of a common step, which is the shortest allowed interval. So samples at grid points are at
//! least one step apart, no matter which intervals viewers request.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::lock;

/// The intervals that viewers and scrapers request. The value is shared with the thread that takes samples.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// The common step of all grids, ns; 0 counts as 1.
    step: u64,
    /// Number of requests for each interval; the key is in ns.
    intervals: BTreeMap<u64, u32>,
    /// Whether a viewer has requested an immediate sample.
    now: bool,
    /// When the current sample was begun; `None` between samples.
    busy_since: Option<Instant>,
    over: bool,
}

/// A sample that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The time of the grid point, or of a viewer's request for an immediate sample, ns since the start.
    pub at_ns: u64,
    /// Number of grid points that were missed before this grid point; `None` for an immediate sample.
    pub missed: Option<u64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { began: Instant::now(), asked: Mutex::default(), changed: Condvar::new() }
    }
}

impl Pace {
    /// Adds a request for samples at this interval.
    pub fn ask(&self, interval_ns: u64) {
        self.change(|asked| *asked.intervals.entry(interval_ns.max(1)).or_default() += 1);
    }

    /// Withdraws one request for this interval.
    pub fn ask_no_longer(&self, interval_ns: u64) {
        self.change(|asked| {
            if let Some(count) = asked.intervals.get_mut(&interval_ns.max(1)) {
                *count -= 1;
            }
            asked.intervals.retain(|_, count| *count > 0);
        });
    }

    /// Sets the common step of all grids, ns.
    pub fn set_step(&self, step_ns: u64) {
        self.change(|asked| asked.step = step_ns);
    }

    /// Requests an immediate sample.
    pub fn now(&self) {
        self.change(|asked| asked.now = true);
    }

    /// Ends [`Self::wait`]. No more samples are taken.
    pub fn end(&self) {
        self.change(|asked| asked.over = true);
    }

    fn change(&self, change: impl FnOnce(&mut Asked)) {
        change(&mut lock(&self.asked));
        self.changed.notify_one();
    }

    /// Returns since how long the current sample has been in progress. Returns `None` between samples.
    pub fn busy_for(&self) -> Option<Duration> {
        lock(&self.asked).busy_since.map(|since| since.elapsed())
    }

    /// Waits until a sample is due, and marks it as in progress; `None`: no more are needed. `last_ns`: previous grid point.
    pub fn wait(&self, last_ns: u64) -> Option<Due> {
        let mut asked = lock(&self.asked);
        asked.busy_since = None;
        let due = loop {
            if asked.over {
                return None;
            }
            let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if std::mem::take(&mut asked.now) {
                break Due { at_ns: now_ns, missed: None };
            }
            // Without any interval, this waits for a change.
            let next_ns = asked.next_ns(last_ns).unwrap_or(u64::MAX);
            if next_ns <= now_ns {
                let (at_ns, missed) = asked.latest(next_ns, now_ns);
                break Due { at_ns, missed: Some(missed) };
            }
            let wait = Duration::from_nanos(next_ns - now_ns);
            asked = self.changed.wait_timeout(asked, wait).unwrap_or_else(PoisonError::into_inner).0;
        };
        asked.busy_since = Some(Instant::now());
        Some(due)
    }
}

impl Asked {
    /// Returns the first grid point after `last_ns`.
    fn next_ns(&self, last_ns: u64) -> Option<u64> {
        let next = |interval: &u64| self.rounded((last_ns / interval + 1).saturating_mul(*interval));
        self.intervals.keys().map(next).min()
    }

    /// Rounds a time up to a multiple of the common step.
    fn rounded(&self, ns: u64) -> u64 {
        ns.div_ceil(self.step.max(1)).saturating_mul(self.step.max(1))
    }

    /// Returns the latest grid point that has passed, and how many points of the shortest interval were missed before that point.
    /// A point counts as missed if the sample is late by at least half an interval.
    fn latest(&self, next_ns: u64, now_ns: u64) -> (u64, u64) {
        let Some(shortest) = self.intervals.keys().next() else { return (next_ns, 0) };
        let shortest = self.rounded(*shortest);
        let missed = (now_ns - next_ns + shortest / 2) / shortest;
        if missed == 0 { (next_ns, 0) } else { ((now_ns / shortest * shortest).max(next_ns), missed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    const MS: u64 = 1_000_000;

    fn asked(intervals: &[u64]) -> Asked {
        let intervals = intervals.iter().map(|ms| (ms * MS, 1)).collect();
        Asked { intervals, ..Asked::default() }
    }

    #[test]
    fn a_point_on_two_grids_gives_one_sample() {
        let asked = asked(&[1_000, 2_000, 500]);
        let mut last_ns = 0;
        let mut points = Vec::new();
        for _ in 0..5 {
            last_ns = asked.next_ns(last_ns).unwrap();
            points.push(last_ns / MS);
        }
        assert_eq!(points, [500, 1_000, 1_500, 2_000, 2_500]);
        assert_eq!(super::Asked::default().next_ns(7), None);
    }

    #[test]
    fn a_late_sample_uses_the_latest_point_and_counts_missed_points() {
        let asked = asked(&[100, 1_000]);
        assert_eq!(asked.latest(100 * MS, 101 * MS), (100 * MS, 0));
        assert_eq!(asked.latest(100 * MS, 149 * MS), (100 * MS, 0), "less than half an interval late");
        assert_eq!(asked.latest(100 * MS, 160 * MS), (100 * MS, 1));
        assert_eq!(asked.latest(100 * MS, 420 * MS), (400 * MS, 3));
    }

    #[test]
    fn points_are_never_closer_than_the_step_for_any_intervals() {
        let intervals = (0..64).map(|n| (100_000_000 + n * 997_001, 1)).chain([(250 * MS, 1)]).collect();
        let asked = Asked { step: 100 * MS, intervals, ..Asked::default() };
        let mut last_ns = 0;
        while last_ns < 60_000 * MS {
            let next_ns = asked.next_ns(last_ns).unwrap();
            assert!(next_ns >= last_ns + 100 * MS && next_ns.is_multiple_of(100 * MS), "{last_ns} {next_ns}");
            last_ns = next_ns;
        }
        let late = asked.latest(100 * MS, 420 * MS);
        assert_eq!(late, (400 * MS, 3));
    }

    #[test]
    fn an_interval_that_is_no_multiple_of_the_step_is_kept_on_average() {
        let asked = Asked { step: 100 * MS, ..asked(&[250]) };
        let points = std::iter::successors(Some(0), |last_ns| asked.next_ns(*last_ns));
        let points: Vec<_> = points.map(|ns| ns / MS).take(5).collect();
        assert_eq!(points, [0, 300, 500, 800, 1_000]);
        assert_eq!(asked.latest(1_000 * MS, 1_160 * MS), (1_000 * MS, 1), "never an earlier point");
    }

    #[test]
    fn a_wait_ends_at_a_grid_point_on_request_and_at_the_end() {
        let pace = Arc::new(Pace::default());
        pace.ask(30 * MS);
        let due = pace.wait(0).unwrap();
        assert!(due.missed.is_some() && due.at_ns.is_multiple_of(30 * MS));
        pace.ask_no_longer(30 * MS);
        let sender = {
            let pace = pace.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                pace.now();
            })
        };
        assert_eq!(pace.wait(0).unwrap().missed, None, "no interval is requested");
        sender.join().unwrap();
        pace.end();
        assert_eq!(pace.wait(0), None);
    }

    #[test]
    fn a_sample_is_in_progress_until_the_next_wait() {
        let pace = Arc::new(Pace::default());
        assert_eq!(pace.busy_for(), None);
        pace.now();
        assert_eq!(pace.wait(0).unwrap().missed, None);
        thread::sleep(Duration::from_millis(5));
        assert!(pace.busy_for() >= Some(Duration::from_millis(5)));
        let waits = {
            let pace = pace.clone();
            thread::spawn(move || pace.wait(0))
        };
        while pace.busy_for().is_some() {
            thread::yield_now();
        }
        pace.end();
        assert_eq!(waits.join().unwrap(), None);
        assert_eq!(pace.busy_for(), None);
    }

    #[test]
    fn an_interval_stays_until_all_requests_for_it_are_withdrawn() {
        let pace = Pace::default();
        pace.ask(5);
        pace.ask(5);
        pace.ask_no_longer(5);
        assert_eq!(lock(&pace.asked).next_ns(0), Some(5));
        pace.ask_no_longer(5);
        assert_eq!(lock(&pace.asked).next_ns(0), None);
        pace.ask_no_longer(5);
    }
}
