//! Sources of samples: our own collector or the daemon. Each has its own thread, so that a key press never waits for a reading.

mod daemon;
mod local;
mod source;

use std::{
    process::ExitStatus,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cgscope_model::Sample;
use tokio::{sync::mpsc, time::sleep_until};

use crate::exit::{Error, Result};

pub use source::Source;

#[derive(Debug)]
pub enum Event {
    Sample {
        sample: Box<Sample>,
        /// The sample must not be compared with earlier ones, because the daemon was restarted.
        anew: bool,
        /// Why this sample is the last; `None` if others follow.
        end: Option<End>,
    },
    Message(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    Interrupted,
    CommandEnded(ExitStatus),
    TargetExited,
}

pub trait Feed: Send + 'static {
    fn next(&mut self) -> Option<Result<Event>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    Interval(Duration),
    Last,
    Stop,
}

/// A feed on its own thread. Dropping it ends the thread and unloads the BPF programs.
pub struct Events {
    events: mpsc::Receiver<Result<Event>>,
    demand: Box<dyn FnMut(Demand)>,
    /// The time at which to request the last sample; `None` if the feed ends by itself.
    end: Option<Instant>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    fn start(mut feed: impl Feed, demand: impl FnMut(Demand) + 'static, end: Option<Instant>) -> Self {
        // A channel of one message: a slow reader makes the next sample late, which is counted, and samples never pile up.
        let (send, events) = mpsc::channel(1);
        let thread = thread::spawn(move || {
            while let Some(event) = feed.next() {
                if send.blocking_send(event).is_err() {
                    return;
                }
            }
        });
        Self { events, demand: Box::new(demand), end, thread: Some(thread) }
    }

    pub async fn next(&mut self) -> Result<Event> {
        loop {
            let end = self.end.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                event = self.events.recv() => {
                    return event.unwrap_or_else(|| Err(Error::incomplete("the thread that takes samples has ended")));
                }
                () = sleep_until(end.into()), if self.end.is_some() => self.finish(),
            }
        }
    }

    /// Sets the interval, counted from the last sample; at once if that has passed. The daemon chooses its own times.
    pub fn set_interval(&mut self, interval: Duration) {
        (self.demand)(Demand::Interval(interval));
    }

    pub fn finish(&mut self) {
        self.end = None;
        (self.demand)(Demand::Last);
    }
}

pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for Events {
    fn drop(&mut self) {
        (self.demand)(Demand::Stop);
        self.events.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;

    /// Emits one sample for each requested interval.
    struct OnDemand(std_mpsc::Receiver<Demand>);

    impl Feed for OnDemand {
        fn next(&mut self) -> Option<Result<Event>> {
            let end = match self.0.recv().ok()? {
                Demand::Interval(_) => None,
                Demand::Last => Some(End::Finished),
                Demand::Stop => return None,
            };
            Some(Ok(Event::Sample { sample: Box::default(), anew: false, end }))
        }
    }

    fn start(end: Option<Duration>) -> Events {
        let (send, receive) = std_mpsc::channel();
        let demand = move |demand| {
            let _ = send.send(demand);
        };
        Events::start(OnDemand(receive), demand, end.map(|end| Instant::now() + end))
    }

    #[tokio::test]
    async fn the_last_sample_is_requested_when_the_time_is_over() {
        let mut events = start(Some(Duration::from_millis(30)));
        events.set_interval(Duration::from_secs(1));
        assert!(matches!(events.next().await, Ok(Event::Sample { end: None, .. })));
        assert!(matches!(events.next().await, Ok(Event::Sample { end: Some(End::Finished), .. })));
    }

    #[tokio::test]
    async fn a_drop_ends_the_thread_and_an_ended_feed_is_an_error() {
        drop(start(None));
        let mut events = start(None);
        (events.demand)(Demand::Stop);
        assert_eq!(events.next().await.unwrap_err().to_string(), "the thread that takes samples has ended");
    }
}
