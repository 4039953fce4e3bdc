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
    /// The first Sample comes at once, the others every `interval`.
    pub fn start(collector: Collector, interval: Duration) -> Self {
        // A reader that does not keep up makes the next Sample late, which is counted; it never makes them pile up.
        let (send, samples) = channel::channel(1);
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || run(collector, interval, &stopped, &send));
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

fn run(
    mut collector: Collector,
    interval: Duration,
    stopped: &mpsc::Receiver<()>,
    send: &channel::Sender<Result<Item, Failure>>,
) {
    let mut due = Instant::now();
    let mut late = 0;
    loop {
        let now = Instant::now();
        if now > due + interval / 2 {
            late += 1;
            due = now;
        }
        let last = match stopped.recv_timeout(due.saturating_duration_since(now)) {
            Err(RecvTimeoutError::Timeout) => false,
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
        due += interval;
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
