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

use crate::remote::{self, Daemon, Remote};

/// What comes from the sampler.
pub enum Item {
    /// A Sample.
    Sample {
        /// What was read.
        sample: Box<Sample>,
        /// No other follows.
        last: bool,
        /// It counts from another beginning than those before it.
        anew: bool,
    },
    /// Something is to be said.
    Said(String),
}

/// What a running sampler is told.
enum Control {
    /// A Sample every so often from now on.
    Interval(Duration),
}

/// The running sampler. Dropping it ends it and unloads the BPF side.
pub struct Sampler {
    samples: channel::Receiver<Result<Item, Failure>>,
    controls: Controls,
    thread: Option<thread::JoinHandle<()>>,
}

/// How it is told something.
enum Controls {
    /// Without it, the next Sample is the last one.
    Own(Option<mpsc::Sender<Control>>),
    /// The daemon has its own clock: when it is to end is watched here.
    Daemon(Remote, Option<Instant>),
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
        let (controls, receive) = mpsc::channel();
        let thread =
            thread::spawn(move || run(collector, first, Schedule::new(interval, duration), &receive, &send));
        Self { samples, controls: Controls::Own(Some(controls)), thread: Some(thread) }
    }

    /// The same from the daemon. `is_whole`: the first interval is as long as the others.
    pub fn of_daemon(daemon: Daemon, duration: Option<Duration>, is_whole: bool) -> Self {
        let (send, samples) = channel::channel(1);
        let remote = daemon.remote.clone();
        let thread = thread::spawn(move || {
            remote::run(daemon, is_whole, |item| {
                let failed = |sentence| Failure::new(sentence, "", "");
                send.blocking_send(item.map_err(failed)).is_ok()
            });
        });
        let end = duration.map(|duration| Instant::now() + duration);
        Self { samples, controls: Controls::Daemon(remote, end), thread: Some(thread) }
    }

    /// What comes next; `None` after the last Sample.
    pub async fn next(&mut self) -> Option<Result<Item, Failure>> {
        while let Controls::Daemon(_, Some(end)) = &self.controls {
            tokio::select! {
                biased;
                item = self.samples.recv() => return item,
                () = tokio::time::sleep_until((*end).into()) => self.finish(),
            }
        }
        self.samples.recv().await
    }

    /// The next Sample comes a whole new `interval` after the last one, or at once if that moment has passed; the others follow
    /// it at that pace. Of a daemon they come when it takes them for all who ask for this interval.
    pub fn set_interval(&self, interval: Duration) {
        match &self.controls {
            // A thread that has ended has sent its last Sample.
            Controls::Own(Some(controls)) => drop(controls.send(Control::Interval(interval))),
            Controls::Own(None) => {}
            Controls::Daemon(remote, _) => remote.set_interval(interval),
        }
    }

    /// Asks for one last Sample, now.
    pub fn finish(&mut self) {
        match &mut self.controls {
            Controls::Own(controls) => *controls = None,
            Controls::Daemon(remote, end) => {
                *end = None;
                remote.finish();
            }
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        match &mut self.controls {
            Controls::Own(controls) => *controls = None,
            Controls::Daemon(remote, _) => remote.hang_up(),
        }
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
    /// When the Sample before was due; `None` before the first one.
    before: Option<Instant>,
    end: Option<Instant>,
}

impl Schedule {
    fn new(interval: Duration, duration: Option<Duration>) -> Self {
        let now = Instant::now();
        Self { interval, due: now, before: None, end: duration.map(|duration| now + duration) }
    }

    /// From now on. What is due at once by the new pace is not late: nobody asked for it before.
    fn set_interval(&mut self, interval: Duration, now: Instant) {
        self.interval = interval;
        if let Some(before) = self.before {
            self.aim(before + interval);
            self.due = self.due.max(now);
        }
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

    /// On to the next Sample.
    fn step(&mut self) {
        self.before = Some(self.due);
        self.aim(self.due + self.interval);
    }

    /// The next Sample is due then. A rest too short to be an interval of its own goes with the last one.
    fn aim(&mut self, due: Instant) {
        self.due = match self.end {
            Some(end) if due + self.interval / 10 > end => end,
            _ => due,
        };
    }

    /// Waits until a Sample is due, heeding what comes meanwhile. Returns whether it is the last one, and how many came late.
    fn wait(&mut self, controls: &mpsc::Receiver<Control>) -> (bool, u64) {
        let mut late = 0;
        loop {
            // Before anything is called late: what was asked for may have waited for a reader that did not keep up.
            for Control::Interval(interval) in controls.try_iter() {
                self.set_interval(interval, Instant::now());
            }
            let now = Instant::now();
            late += u64::from(self.catch_up(now));
            match controls.recv_timeout(self.due.saturating_duration_since(now)) {
                Ok(Control::Interval(interval)) => self.set_interval(interval, Instant::now()),
                Err(RecvTimeoutError::Timeout) => return (self.is_last(), late),
                Err(RecvTimeoutError::Disconnected) => return (true, late),
            }
        }
    }
}

fn run(
    mut collector: Collector,
    first: Option<Sample>,
    mut schedule: Schedule,
    controls: &mpsc::Receiver<Control>,
    send: &channel::Sender<Result<Item, Failure>>,
) {
    if let Some(sample) = first {
        if send
            .blocking_send(Ok(Item::Sample { sample: Box::new(sample), last: false, anew: false }))
            .is_err()
        {
            return;
        }
        schedule.step();
    }
    let mut late = 0;
    loop {
        let (last, more_late) = schedule.wait(controls);
        late += more_late;
        if last {
            settle();
        }
        let item = collector.sample().map(|mut sample| {
            sample.losses.add(Loss::IntervalLate, late);
            Item::Sample { sample: Box::new(sample), last, anew: false }
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

    /// A schedule whose first Sample was taken as it was due, and when that was.
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
    fn a_new_interval_begins_with_the_last_sample() {
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
        assert_eq!(due_ms(&schedule, start), 40_100, "the steps go on from there");
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
    fn a_wait_under_way_is_cut_short_by_a_new_interval() {
        let (mut schedule, start) = under_way(3_600_000, None);
        let (send, controls) = mpsc::channel();
        let teller = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            send.send(Control::Interval(Duration::from_millis(60))).unwrap();
            send
        });
        assert_eq!(schedule.wait(&controls), (false, 0));
        let waited = start.elapsed();
        assert!((60..10_000).contains(&waited.as_millis()), "{waited:?}");
        drop(teller.join().unwrap());
        assert_eq!(schedule.wait(&controls), (true, 0), "nobody holds the other end: one last Sample, now");
    }

    #[test]
    fn what_was_asked_for_while_nobody_listened_is_heeded_before_anything_is_called_late() {
        let (mut schedule, start) = under_way(1, None);
        let (send, controls) = mpsc::channel();
        thread::sleep(Duration::from_millis(10));
        send.send(Control::Interval(Duration::from_millis(50))).unwrap();
        assert_eq!(schedule.wait(&controls), (false, 0));
        assert!(start.elapsed() >= Duration::from_millis(50));
    }
}
