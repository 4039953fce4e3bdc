//! The one thread that takes Samples, for all who look.

use std::{
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cgscope_layout::Loss;
use cgscope_model::access::Follower;
use tokio::sync::watch;

use crate::{
    ended::Ended,
    pace::{Due, Pace},
    shown::Reading,
};

/// What takes Samples: the collector, or in tests one that makes them up.
pub trait Collect: Send + 'static {
    /// Takes one.
    ///
    /// # Errors
    /// No other can be taken: why, in a sentence.
    fn collect(&mut self) -> Result<Reading, String>;
    /// From the next one on these processes, with what they start, are followed for a viewer. Without any: nothing is any longer.
    fn follow(&mut self, follower: Follower, pids: &[u32]);
}

/// A Sample that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What was read.
    pub reading: Arc<Reading>,
    /// What the Sample before had and this one does not have.
    pub ended: Arc<Ended>,
    /// When it was due, ns after the beginning.
    pub at_ns: u64,
    /// It was due at a point of the grid; if not, it was asked for at once.
    pub is_on_grid: bool,
    /// Which one it is, from 1.
    pub number: u64,
    /// When it was there.
    pub at: Instant,
    /// How long taking all of them took.
    pub took: Duration,
    /// Changes of whom to follow that were made before it.
    pub changes: u64,
}

/// The latest Sample: none yet, one, or why there are no more.
pub type Latest = Result<Option<Taken>, String>;

/// The running collection. Dropping it ends the thread.
#[derive(Debug)]
pub struct Collection {
    pace: Arc<Pace>,
    changes: mpsc::Sender<(Follower, Vec<u32>)>,
    sent: u64,
    latest: watch::Receiver<Latest>,
    thread: Option<JoinHandle<()>>,
}

impl Collection {
    /// Begins; the first Sample is taken at once.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(collector: impl Collect) -> io::Result<Self> {
        let pace = Arc::new(Pace::default());
        pace.now();
        let (changes, receive) = mpsc::channel();
        let (send, latest) = watch::channel(Ok(None));
        let thread = {
            let pace = pace.clone();
            let name = thread::Builder::new().name("collector".into());
            name.spawn(move || run(collector, &pace, &receive, &send))?
        };
        Ok(Self { pace, changes, sent: 0, latest, thread: Some(thread) })
    }

    /// When Samples are taken.
    pub fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// Where the latest Sample is seen.
    pub fn latest(&self) -> watch::Receiver<Latest> {
        self.latest.clone()
    }

    /// Follows these processes for a viewer, or nothing any longer, from the first Sample on that has at least the returned number
    /// of [`Taken::changes`].
    pub fn follow(&mut self, follower: Follower, pids: Vec<u32>) -> u64 {
        // If the thread has ended, `latest` says why.
        let _ = self.changes.send((follower, pids));
        self.sent += 1;
        self.sent
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        self.pace.end();
        if let Some(thread) = self.thread.take() {
            // It panicked: the message has been printed.
            let _ = thread.join();
        }
    }
}

fn run(
    mut collector: impl Collect,
    pace: &Pace,
    receive: &mpsc::Receiver<(Follower, Vec<u32>)>,
    send: &watch::Sender<Latest>,
) {
    let (mut last_ns, mut number, mut changes, mut late) = (0, 0, 0, 0);
    let mut took = Duration::ZERO;
    let (mut before, mut ended) = (Arc::<Reading>::default(), Arc::<Ended>::default());
    loop {
        // Also the first one is waited for: from then on it is known for how long it is being taken.
        let (at_ns, is_on_grid) = match pace.wait(last_ns) {
            Due::Never => return,
            Due::Now => (pace.since_ns(), false),
            Due::At { at_ns, late: more_late } => {
                last_ns = at_ns;
                late += more_late;
                (at_ns, true)
            }
        };
        for (follower, pids) in receive.try_iter() {
            changes += 1;
            collector.follow(follower, &pids);
        }
        let began = Instant::now();
        let mut reading = match collector.collect() {
            Ok(reading) => reading,
            Err(sentence) => {
                let _before = send.send_replace(Err(sentence));
                return;
            }
        };
        took += began.elapsed();
        number += 1;
        reading.sample.losses.add(Loss::IntervalLate, late);
        let reading = Arc::new(reading);
        ended = ended.then(number, &before, &reading);
        before = reading.clone();
        let taken = Taken {
            reading,
            ended: ended.clone(),
            at_ns,
            is_on_grid,
            number,
            at: Instant::now(),
            took,
            changes,
        };
        let _before = send.send_replace(Ok(Some(taken)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_model::Sample;

    /// Makes up Samples that are numbered, until there are no more.
    struct Made {
        left: u64,
        followed: u64,
    }

    impl Collect for Made {
        fn collect(&mut self) -> Result<Reading, String> {
            self.left = self.left.checked_sub(1).ok_or("the kernel is out of tasks")?;
            let sample = Sample { unix_ns: self.followed, ..Sample::default() };
            Ok(Reading { sample, access: Vec::new() })
        }
        fn follow(&mut self, _: Follower, pids: &[u32]) {
            self.followed += pids.len() as u64;
        }
    }

    async fn next(latest: &mut watch::Receiver<Latest>) -> Latest {
        latest.changed().await.expect("it runs");
        latest.borrow_and_update().clone()
    }

    #[tokio::test]
    async fn samples_come_at_the_pace_asked_for_and_at_once() {
        let collection = Collection::start(Made { left: 100, followed: 0 }).expect("a thread");
        let mut latest = collection.latest();
        let first = next(&mut latest).await.unwrap().expect("a Sample");
        assert_eq!((first.number, first.is_on_grid), (1, false));
        collection.pace().ask(20_000_000);
        let second = next(&mut latest).await.unwrap().expect("a Sample");
        assert!(second.is_on_grid && second.at_ns.is_multiple_of(20_000_000));
        collection.pace().ask_no_longer(20_000_000);
        collection.pace().now();
        loop {
            let taken = next(&mut latest).await.unwrap().expect("a Sample");
            if !taken.is_on_grid {
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_change_is_made_before_the_sample_that_says_so() {
        let mut collection = Collection::start(Made { left: 100, followed: 0 }).expect("a thread");
        let mut latest = collection.latest();
        let follower = Follower::all().next().expect("one");
        let number = collection.follow(follower, vec![1, 2]);
        loop {
            collection.pace().now();
            let taken = next(&mut latest).await.unwrap().expect("a Sample");
            assert_eq!(taken.reading.sample.unix_ns, if taken.changes >= number { 2 } else { 0 });
            if taken.changes >= number {
                break;
            }
        }
    }

    /// Never has one.
    struct Stuck(mpsc::Receiver<()>);

    impl Collect for Stuck {
        fn collect(&mut self) -> Result<Reading, String> {
            let _ = self.0.recv();
            Err("it is over".into())
        }
        fn follow(&mut self, _: Follower, _: &[u32]) {}
    }

    #[test]
    fn a_first_sample_that_never_comes_is_seen_to_be_taken() {
        let (end, ended) = mpsc::channel();
        let collection = Collection::start(Stuck(ended)).expect("a thread");
        // Goes before the collection, which waits for its thread.
        let end = end;
        let begun = Instant::now();
        while collection.pace().busy_for() < Some(Duration::from_millis(20)) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", collection.pace().busy_for());
            thread::sleep(Duration::from_millis(5));
        }
        drop(end);
    }

    #[tokio::test]
    async fn why_there_are_no_more_is_told() {
        let collection = Collection::start(Made { left: 1, followed: 0 }).expect("a thread");
        let mut latest = collection.latest();
        let _ = next(&mut latest).await;
        collection.pace().now();
        assert_eq!(next(&mut latest).await.unwrap_err(), "the kernel is out of tasks");
    }
}
