//! A feed that takes samples with our own collector at a steady interval.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::Collector;
use cgscope_ledger::Loss;
use cgscope_model::Sample;
use cgscope_serve::shown::{Reading, Shower};
use rustix::thread::{MembarrierCommand, membarrier};

use super::{Demand, End, Event, Events, Pace};
use crate::exit::{Error, Result};

struct Local {
    collector: Collector,
    /// The part of the samples that is shown, if the collector follows more tasks than the target has.
    shower: Option<Shower>,
    first: Option<Sample>,
    schedule: Schedule,
    /// Receives changed intervals. After the sender is dropped, the next sample is the last one.
    intervals: mpsc::Receiver<Duration>,
    late: u64,
    is_over: bool,
}

/// Takes the first sample at once (unless it is `first`), further samples each interval, and the last one at the end.
pub fn start(collector: Collector, shower: Option<Shower>, first: Option<Sample>, pace: Pace) -> Events {
    let (send, intervals) = mpsc::channel();
    let mut send = Some(send);
    let demand = move |demand| match demand {
        Demand::Interval(interval) => drop(send.as_ref().map(|send| send.send(interval))),
        Demand::Last | Demand::Stop => send = None,
    };
    let schedule = Schedule::new(pace.interval, pace.duration);
    let mut local = Local { collector, shower, first, schedule, intervals, late: 0, is_over: false };
    Events::start(move || local.next(), demand, None)
}

impl Local {
    fn next(&mut self) -> Option<Result<Event>> {
        if self.is_over {
            return None;
        }
        let sample = self.first.take().map_or_else(|| self.take(), Ok);
        self.schedule.step();
        let sample = sample.inspect_err(|_| self.is_over = true);
        let end = self.is_over.then_some(End::Finished);
        Some(sample.map(|sample| Event::Sample { sample: Box::new(sample), anew: false, end }))
    }

    fn take(&mut self) -> Result<Sample> {
        let (is_last, late) = self.schedule.wait(&self.intervals);
        self.late += late;
        self.is_over = is_last;
        if is_last {
            settle();
        }
        let mut sample = self.collector.sample().map_err(Error::incomplete)?;
        if let Some(shower) = &mut self.shower {
            sample = shower.show(&Reading { sample, followed: self.collector.followed() });
        }
        sample.losses.add(Loss::IntervalLate, self.late);
        Ok(sample)
    }
}

/// Waits until all exited tasks are counted. The kernel frees an exited task only after an RCU grace period.
fn settle() {
    for _ in 0..2 {
        // Waits for a grace period. If the kernel refuses it, only the sleep remains.
        let _ = membarrier(MembarrierCommand::Global);
        // The kernel frees tasks in callbacks that run shortly after the grace period.
        thread::sleep(Duration::from_millis(10));
    }
}

/// When samples are due. A sample is also due at the end, so that the end never comes before the last sample.
struct Schedule {
    interval: Duration,
    due: Instant,
    before: Option<Instant>,
    end: Option<Instant>,
}

impl Schedule {
    fn new(interval: Duration, duration: Option<Duration>) -> Self {
        let now = Instant::now();
        Self { interval, due: now, before: None, end: duration.map(|duration| now + duration) }
    }

    /// Changes the interval. If a sample becomes due at once, it does not count as late, because nobody requested it earlier.
    fn set_interval(&mut self, interval: Duration, now: Instant) {
        self.interval = interval;
        if let Some(before) = self.before {
            self.aim(before + interval);
            self.due = self.due.max(now);
        }
    }

    fn catch_up(&mut self, now: Instant) -> bool {
        let late = now > self.due + self.interval / 2;
        if late {
            self.due = now;
        }
        late
    }

    fn is_last(&self) -> bool {
        self.end.is_some_and(|end| self.due >= end)
    }

    fn step(&mut self) {
        self.before = Some(self.due);
        self.aim(self.due + self.interval);
    }

    /// Sets the next due time. If less than a tenth of an interval would remain, the last interval includes that remainder.
    fn aim(&mut self, due: Instant) {
        self.due = match self.end {
            Some(end) if due + self.interval / 10 > end => end,
            _ => due,
        };
    }

    /// Waits until a sample is due. A new interval takes effect at once. Returns whether the sample is the last one (also after
    /// the sender is dropped), and how many samples were late.
    fn wait(&mut self, intervals: &mpsc::Receiver<Duration>) -> (bool, u64) {
        let mut late = 0;
        loop {
            // A new interval may have arrived during a slow reading.
            intervals.try_iter().for_each(|interval| self.set_interval(interval, Instant::now()));
            let now = Instant::now();
            late += u64::from(self.catch_up(now));
            match intervals.recv_timeout(self.due.saturating_duration_since(now)) {
                Ok(interval) => self.set_interval(interval, Instant::now()),
                Err(RecvTimeoutError::Timeout) => return (self.is_last(), late),
                Err(RecvTimeoutError::Disconnected) => return (true, late),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(interval_ms: u64, duration_ms: u64) -> Vec<u128> {
        let mut schedule =
            Schedule::new(Duration::from_millis(interval_ms), Some(Duration::from_millis(duration_ms)));
        let start = schedule.due;
        let mut ticks = vec![0];
        while !schedule.is_last() {
            schedule.step();
            ticks.push((schedule.due - start).as_millis());
        }
        ticks
    }

    #[test]
    fn a_run_ends_with_a_sample_at_its_end() {
        assert_eq!(ticks(1000, 3000), [0, 1000, 2000, 3000]);
        assert_eq!(ticks(1000, 2500), [0, 1000, 2000, 2500], "half an interval is an interval");
        assert_eq!(ticks(1000, 2050), [0, 1000, 2050], "a twentieth is added to the last interval");
        assert_eq!(ticks(5000, 2000), [0, 2000]);
    }

    #[test]
    fn after_a_late_sample_the_interval_counts_from_it_and_the_end_stays() {
        let mut schedule = Schedule::new(Duration::from_secs(1), Some(Duration::from_secs(3)));
        let start = schedule.due;
        assert!(!schedule.catch_up(start + Duration::from_millis(400)));
        assert!(schedule.catch_up(start + Duration::from_millis(2600)));
        assert!(!schedule.is_last());
        schedule.step();
        assert!(schedule.is_last());
        assert_eq!(schedule.due, start + Duration::from_secs(3));
    }

    /// Returns a schedule whose first sample was taken in time, and the time of that sample.
    fn under_way(interval_ms: u64, duration_ms: Option<u64>) -> (Schedule, Instant) {
        let duration = duration_ms.map(Duration::from_millis);
        let mut schedule = Schedule::new(Duration::from_millis(interval_ms), duration);
        let start = schedule.due;
        schedule.step();
        (schedule, start)
    }

    fn due_ms(schedule: &Schedule, start: Instant) -> u128 {
        (schedule.due - start).as_millis()
    }

    #[test]
    fn a_new_interval_counts_from_the_last_sample() {
        let (mut schedule, start) = under_way(1_000, None);
        let at = start + Duration::from_millis(300);
        schedule.set_interval(Duration::from_secs(5), at);
        assert_eq!(due_ms(&schedule, start), 5_000);
        schedule.set_interval(Duration::from_millis(500), at);
        assert_eq!(due_ms(&schedule, start), 500);
        schedule.step();
        assert_eq!(due_ms(&schedule, start), 1_000);
    }

    #[test]
    fn a_new_interval_that_has_passed_is_due_at_once_and_not_late() {
        let (mut schedule, start) = under_way(60_000, None);
        let at = start + Duration::from_secs(40);
        schedule.set_interval(Duration::from_millis(100), at);
        assert_eq!(schedule.due, at);
        assert!(!schedule.catch_up(at + Duration::from_millis(20)));
        schedule.step();
        assert_eq!(due_ms(&schedule, start), 40_100, "the next samples follow at the new interval");
    }

    #[test]
    fn a_new_interval_keeps_the_end() {
        let (mut schedule, start) = under_way(1_000, Some(10_000));
        schedule.set_interval(Duration::from_millis(9_500), start);
        assert_eq!(due_ms(&schedule, start), 10_000, "the rest is too short to be an interval");
        assert!(schedule.is_last());
        schedule.set_interval(Duration::from_secs(4), start);
        assert!(!schedule.is_last());
        schedule.step();
        schedule.step();
        assert_eq!((due_ms(&schedule, start), schedule.is_last()), (10_000, true));
    }

    #[test]
    fn before_the_first_sample_only_the_pace_changes() {
        let mut schedule = Schedule::new(Duration::from_secs(1), None);
        let start = schedule.due;
        schedule.set_interval(Duration::from_secs(3), start);
        assert_eq!(schedule.due, start);
        schedule.step();
        assert_eq!(due_ms(&schedule, start), 3_000);
    }

    #[test]
    fn a_new_interval_ends_a_running_wait_early() {
        let (mut schedule, start) = under_way(3_600_000, None);
        let (send, controls) = mpsc::channel();
        let sender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            send.send(Duration::from_millis(60)).unwrap();
            send
        });
        assert_eq!(schedule.wait(&controls), (false, 0));
        let waited = start.elapsed();
        assert!((60..10_000).contains(&waited.as_millis()), "{waited:?}");
        drop(sender.join().unwrap());
        assert_eq!(schedule.wait(&controls), (true, 0), "the sender is dropped: one last sample, now");
    }

    #[test]
    fn a_queued_interval_takes_effect_before_samples_count_as_late() {
        let (mut schedule, start) = under_way(1, None);
        let (send, controls) = mpsc::channel();
        thread::sleep(Duration::from_millis(10));
        send.send(Duration::from_millis(50)).unwrap();
        assert_eq!(schedule.wait(&controls), (false, 0));
        assert!(start.elapsed() >= Duration::from_millis(50));
    }
}
