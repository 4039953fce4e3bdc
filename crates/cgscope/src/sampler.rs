//! Samples at a steady pace, on a thread of their own, so that a key press never waits for a reading.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::{Collector, Failure};
use cgscope_layout::Loss;
use cgscope_model::Sample;
use tokio::sync::mpsc as channel;

/// A Sample, and whether it is the last one.
pub struct Item {
    /// What was read.
    pub sample: Sample,
    /// No other follows.
    pub last: bool,
}

/// The running sampler. Dropping it ends it and unloads the BPF side.
pub struct Sampler {
    samples: channel::Receiver<Result<Item, Failure>>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sampler {
    /// The first Sample comes at once, unless it was taken already, the others every `interval`, the last one after `duration`
    /// if there is one.
    pub fn start(
        collector: Collector,
        first: Option<Sample>,
        interval: Duration,
        duration: Option<Duration>,
    ) -> Self {
        // A reader that does not keep up makes the next Sample late, which is counted; it never makes them pile up.
        let (send, samples) = channel::channel(1);
        let (stop, stopped) = mpsc::channel();
        let thread =
            thread::spawn(move || run(collector, first, Schedule::new(interval, duration), &stopped, &send));
        Self { samples, stop: Some(stop), thread: Some(thread) }
    }

    /// The next Sample; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<Item, Failure>> {
        self.samples.recv().await
    }

    /// Asks for one last Sample, now.
    pub fn finish(&mut self) {
        self.stop = None;
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop = None;
        self.samples.close();
        if let Some(thread) = self.thread.take() {
            // It panicked: the message has been printed.
            let _ = thread.join();
        }
    }
}

/// When Samples are due. The end is one of its times, so that the last tick and the end never race.
struct Schedule {
    interval: Duration,
    due: Instant,
    end: Option<Instant>,
}

impl Schedule {
    fn new(interval: Duration, duration: Option<Duration>) -> Self {
        let now = Instant::now();
        Self { interval, due: now, end: duration.map(|duration| now + duration) }
    }

    /// True where a Sample is so late that the steps start anew from now.
    fn catch_up(&mut self, now: Instant) -> bool {
        let late = now > self.due + self.interval / 2;
        if late {
            self.due = now;
        }
        late
    }

    /// The Sample that is due ends the run.
    fn is_last(&self) -> bool {
        self.end.is_some_and(|end| self.due >= end)
    }

    /// On to the next Sample. A rest too short to be an interval of its own goes with the last one.
    fn step(&mut self) {
        self.due += self.interval;
        if let Some(end) = self.end
            && self.due + self.interval / 10 > end
        {
            self.due = end;
        }
    }
}

fn run(
    mut collector: Collector,
    first: Option<Sample>,
    mut schedule: Schedule,
    stopped: &mpsc::Receiver<()>,
    send: &channel::Sender<Result<Item, Failure>>,
) {
    if let Some(sample) = first {
        if send.blocking_send(Ok(Item { sample, last: false })).is_err() {
            return;
        }
        schedule.step();
    }
    let mut late = 0;
    loop {
        let now = Instant::now();
        late += u64::from(schedule.catch_up(now));
        let last = match stopped.recv_timeout(schedule.due.saturating_duration_since(now)) {
            Err(RecvTimeoutError::Timeout) => schedule.is_last(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
        };
        if last {
            settle();
        }
        let item = collector.sample().map(|mut sample| {
            sample.losses.add(Loss::IntervalLate, late);
            Item { sample, last }
        });
        let failed = item.is_err();
        if send.blocking_send(item).is_err() || last || failed {
            return;
        }
        schedule.step();
    }
}

/// Waits until tasks that have exited are counted as such: the kernel frees them after an RCU grace period.
fn settle() {
    for _ in 0..2 {
        // SAFETY: no pointers. MEMBARRIER_CMD_GLOBAL waits for a grace period; where it is refused the pause must do.
        unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) };
        // The callbacks that free tasks run some time after it.
        thread::sleep(Duration::from_millis(10));
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
    fn a_run_ends_with_the_tick_that_is_due_then() {
        assert_eq!(ticks(1000, 3000), [0, 1000, 2000, 3000]);
        assert_eq!(ticks(1000, 2500), [0, 1000, 2000, 2500], "half an interval is one of its own");
        assert_eq!(ticks(1000, 2050), [0, 1000, 2050], "a rest is not");
        assert_eq!(ticks(5000, 2000), [0, 2000]);
    }

    #[test]
    fn a_late_sample_starts_the_steps_anew_and_keeps_the_end() {
        let mut schedule = Schedule::new(Duration::from_secs(1), Some(Duration::from_secs(3)));
        let start = schedule.due;
        assert!(!schedule.catch_up(start + Duration::from_millis(400)));
        assert!(schedule.catch_up(start + Duration::from_millis(2600)));
        assert!(!schedule.is_last());
        schedule.step();
        assert!(schedule.is_last());
        assert_eq!(schedule.due, start + Duration::from_secs(3));
    }
}
