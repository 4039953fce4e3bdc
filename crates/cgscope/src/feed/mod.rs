//! Sources of samples: our own collector, or the daemon. Each has its own thread, so that a key press never waits for a reading.

mod daemon;
mod local;

use std::{
    path::Path,
    process::ExitStatus,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use cgscope_collect::{Collector, FailureKind, Options};
use cgscope_model::{Mode, Sample, Selection, follower::Follower};
use cgscope_serve::{client::SOCKET, shown::Shower};
use tokio::{sync::mpsc, time::sleep_until};

use crate::{
    child::Output,
    cli::{ModeChoice, Target},
    containers,
    exit::{Error, Result, spawn},
    feed::daemon::Daemon,
    mode::{self, Coarse},
};

#[derive(Debug)]
pub enum Event {
    Sample {
        sample: Box<Sample>,
        /// The daemon was restarted, so this sample must not be compared with earlier ones.
        anew: bool,
        /// Why this sample is the last one; `None` if others follow.
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

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub interval: Duration,
    pub duration: Option<Duration>,
    pub count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    Interval(Duration),
    Last,
    Stop,
}

/// A feed on its own thread. Dropping this value ends the thread and unloads the BPF programs.
pub struct Events {
    events: mpsc::Receiver<Result<Event>>,
    demand: Box<dyn FnMut(Demand)>,
    /// When to request the last sample; `None` if the feed ends by itself.
    end: Option<Instant>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    fn start(
        mut next: impl FnMut() -> Option<Result<Event>> + Send + 'static,
        demand: impl FnMut(Demand) + 'static,
        end: Option<Instant>,
    ) -> Self {
        // A channel of one message: if the reader is slow, samples are late (which is counted) instead of filling memory.
        let (send, events) = mpsc::channel(1);
        let refused = send.clone();
        let thread = spawn(move || {
            while let Some(event) = next() {
                if send.blocking_send(event).is_err() {
                    return;
                }
            }
        });
        let thread = thread.map_err(|error| refused.try_send(Err(error))).ok();
        Self { events, demand: Box::new(demand), end, thread }
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

    /// Sets the time from the last sample to the next, which is due at once if that time is over. A daemon chooses its own times.
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

pub enum Source {
    /// Our own collector, and the part of its samples that is shown, if it follows more tasks than the target has.
    Own(Box<Collector>, Option<Shower>),
    Daemon(Box<Daemon>),
}

impl Source {
    /// Starts to measure. The mode `auto` uses the daemon or the coarse mode only if the host refuses exact measurement.
    pub fn open(options: &Options, target: &Target, interval: Duration) -> Result<(Self, Option<Coarse>)> {
        let is_whole = target.output != Output::Nowhere;
        let connect = |path: &Path| {
            daemon::check(target)?;
            let daemon = Daemon::connect(path, options, ns(interval), is_whole);
            daemon.map(Box::new).map_err(Error::could_not_run)
        };
        if let Some(path) = &target.measure.connect {
            return Ok((Self::Daemon(connect(path)?), None));
        }
        let runtimes = containers::runtimes(&target.measure.runtime)?;
        let own = |mut collector: Collector| {
            // Those for whom the target sleeps are measured, too.
            let pids = &options.selection.pids;
            let follower = Follower::all().next().filter(|_| options.chains && !pids.is_empty());
            follower.iter().for_each(|follower| collector.changes.follow(*follower, pids));
            Self::Own(Box::new(collector), follower.map(Shower::new))
        };
        let mut refused = None;
        let exact = || {
            Collector::start(options, Mode::Bpf).map(own).or_else(|failure| {
                let may_help = target.measure.mode == ModeChoice::Auto
                    && failure.kind == FailureKind::Host
                    && !target.stands_aside;
                let usual = Some(Path::new(SOCKET)).filter(|path| may_help && path.exists());
                let Some(path) = usual else { return Err(failure) };
                connect(path).map(Self::Daemon).map_err(|error| {
                    refused = Some(error.sentence);
                    failure
                })
            })
        };
        let (mut source, mut coarse) = mode::choose(target.measure.mode, exact, || {
            Collector::start(options, Mode::Coarse).map(|collector| Self::Own(Box::new(collector), None))
        })?;
        if let Self::Own(collector, _) = &mut source {
            collector.name_containers = Some(containers::lookup(runtimes, drop));
        }
        if let (Some(coarse), Some(refused)) = (&mut coarse, refused) {
            coarse.sentence = coarse.sentence.take().map(|sentence| format!("{sentence}; {refused}"));
        }
        Ok((source, coarse))
    }

    pub fn start(self, first: Option<Sample>, pace: Pace) -> Events {
        match self {
            Self::Own(collector, shower) => local::start(*collector, shower, first, pace),
            Self::Daemon(daemon) => daemon.start(pace.duration),
        }
    }

    pub fn limits(&self, selection: &Selection) -> Vec<String> {
        match self {
            Self::Own(collector, _) => collector.refused().to_vec(),
            Self::Daemon(daemon) => daemon.limits(selection),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;

    fn start(end: Option<Duration>) -> Events {
        let (send, receive) = std_mpsc::channel();
        let demand = move |demand| {
            let _ = send.send(demand);
        };
        let next = move || {
            let end = match receive.recv().ok()? {
                Demand::Interval(_) => None,
                Demand::Last => Some(End::Finished),
                Demand::Stop => return None,
            };
            Some(Ok(Event::Sample { sample: Box::default(), anew: false, end }))
        };
        Events::start(next, demand, end.map(|end| Instant::now() + end))
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
