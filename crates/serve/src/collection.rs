//! The thread that takes samples for all viewers, and the list of rows that ended between two samples.

use std::{
    io, iter,
    sync::{Arc, OnceLock, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cgscope_ledger::Loss;
use cgscope_model::{Sample, follower::Follower, skipped};
use tokio::sync::watch;

use crate::{
    pace::{Due, Pace},
    shown::Reading,
};

/// A source of samples. It is implemented by the collector, and by fakes in tests.
pub trait Collect: Send + 'static {
    /// Takes a sample. The error is a sentence that says why no more samples are possible.
    fn collect(&mut self) -> Result<Reading, String>;
    /// Sets the processes to follow for a viewer, from the next sample on. Child processes that these processes start later are
    /// followed too. If the list is empty, the viewer follows no process.
    fn follow(&mut self, follower: Follower, pids: &[u32]);
    /// Prepares the next sample. This function is called after viewers have received the current sample.
    fn read_ahead(&mut self) {}
}

/// A sample, and information on when and how it was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    pub reading: Arc<Reading>,
    /// The rows that ended after the previous sample.
    pub ended: Arc<Ended>,
    /// When the sample was due, ns since the start of the [`Pace`].
    pub at_ns: u64,
    /// Whether the sample was due at a grid point (see [`Pace`]). Otherwise a viewer requested an immediate sample.
    pub is_on_grid: bool,
    /// Number of the sample, counted from 1.
    pub number: u64,
    /// When the collector began to take the sample. A process that started after this time may be missing from the sample.
    pub began: Instant,
    /// When the sample was complete.
    pub at: Instant,
    /// Total time that the collector needed for all samples so far.
    pub took: Duration,
    /// Number of calls of [`Collection::follow`] that took effect up to this sample.
    pub changes: u64,
}

impl AsRef<Sample> for Taken {
    fn as_ref(&self) -> &Sample {
        &self.reading.sample
    }
}

/// The latest sample; `None` before the first sample. The error says why no more samples are taken.
pub type Latest = Result<Option<Taken>, String>;

/// The thread that takes samples. Dropping this value ends the thread.
#[derive(Debug)]
pub struct Collection {
    pub pace: Arc<Pace>,
    pub latest: watch::Receiver<Latest>,
    changes: mpsc::Sender<(Follower, Vec<u32>)>,
    sent: u64,
    thread: Option<JoinHandle<()>>,
}

impl Collection {
    /// Starts the thread. It takes the first sample at once.
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

    /// Sets the processes to follow for a viewer. If the list is empty, the viewer follows none. Returns a number. The change has
    /// taken effect in each sample whose [`Taken::changes`] is at least this number.
    pub fn follow(&mut self, follower: Follower, pids: Vec<u32>) -> u64 {
        // An error is ignored here: if the thread has ended, `latest` contains the reason.
        let _ = self.changes.send((follower, pids));
        self.sent += 1;
        self.sent
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        self.pace.end();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked. The panic has already printed its message.
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
        // The first sample also goes through `Pace::wait`, so that `Pace::busy_for` covers it.
        let Some(Due { at_ns, missed }) = pace.wait(last_ns) else { return };
        let is_on_grid = missed.is_some();
        if let Some(missed) = missed {
            (last_ns, late) = (at_ns, late + missed);
        }
        for (follower, pids) in receive.try_iter() {
            changes += 1;
            collector.follow(follower, &pids);
        }
        let began = Instant::now();
        let mut reading = match collector.collect() {
            Ok(reading) => reading,
            Err(sentence) => return drop(send.send_replace(Err(sentence))),
        };
        took += began.elapsed();
        number += 1;
        reading.sample.losses.add(Loss::IntervalLate, late);
        let reading = Arc::new(reading);
        ended = ended.then(number, &before, &reading);
        let freed_later = std::mem::replace(&mut before, reading.clone());
        let (ended, at) = (ended.clone(), Instant::now());
        let taken = Taken { reading, ended, at_ns, is_on_grid, number, began, at, took, changes };
        let latest_before = send.send_replace(Ok(Some(taken)));
        // Dropping these values takes milliseconds on a large host, so it happens after viewers have the new sample.
        drop((latest_before, freed_later));
        collector.read_ahead();
    }
}

/// The rows of the previous sample that are not in this sample, and a link to the next, for viewers that skip samples.
#[derive(Debug, Default)]
pub struct Ended {
    /// Number of the sample in which these rows are missing ([`Taken::number`]).
    pub number: u64,
    /// The rows as in the previous sample, and the followers of the tasks among them.
    pub reading: Reading,
    next: OnceLock<Arc<Self>>,
}

impl Ended {
    /// Appends the rows that ended between two samples.
    pub fn then(&self, number: u64, before: &Reading, now: &Reading) -> Arc<Self> {
        let cut_short = |reading: &Reading| reading.sample.losses.get(Loss::ReadingCutShort);
        // If the reading was cut short, a missing task may still exist.
        let sample = match cut_short(now) == cut_short(before) {
            true => skipped::ended(&before.sample, &now.sample),
            false => Sample::default(),
        };
        let followed = sample.tasks.iter().filter_map(|task| before.followers_of(task.serial)).collect();
        let next = Arc::new(Self { number, reading: Reading { sample, followed }, next: OnceLock::new() });
        self.next.get_or_init(|| next).clone()
    }

    /// Iterates over the later entries, up to and including the sample with this number.
    pub fn until(&self, number: u64) -> impl Iterator<Item = &Self> {
        let first = self.next.get();
        let all = iter::successors(first, |ended| ended.next.get()).map(Arc::as_ref);
        all.take_while(move |ended| ended.number <= number)
    }
}

/// Drops the list in a loop. With recursion, a long list would overflow the stack.
impl Drop for Ended {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut ended) = next.and_then(Arc::into_inner) {
            next = ended.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_model::Sample;

    /// Returns `left` samples, with ascending numbers.
    struct Made {
        left: u64,
        followed: u64,
    }

    impl Collect for Made {
        fn collect(&mut self) -> Result<Reading, String> {
            self.left = self.left.checked_sub(1).ok_or("the kernel is out of tasks")?;
            let sample = Sample { unix_ns: self.followed, ..Sample::default() };
            Ok(Reading { sample, followed: Vec::new() })
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
    async fn samples_are_taken_at_the_requested_interval_and_immediately() {
        let collection = Collection::start(Made { left: 100, followed: 0 }).expect("a thread");
        let mut latest = collection.latest.clone();
        let first = next(&mut latest).await.unwrap().expect("a sample");
        assert_eq!((first.number, first.is_on_grid), (1, false));
        collection.pace.ask(20_000_000);
        let second = next(&mut latest).await.unwrap().expect("a sample");
        assert!(second.is_on_grid && second.at_ns.is_multiple_of(20_000_000));
        collection.pace.ask_no_longer(20_000_000);
        collection.pace.now();
        loop {
            let taken = next(&mut latest).await.unwrap().expect("a sample");
            if !taken.is_on_grid {
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_change_takes_effect_before_the_sample_that_counts_it() {
        let mut collection = Collection::start(Made { left: 100, followed: 0 }).expect("a thread");
        let mut latest = collection.latest.clone();
        let follower = Follower::all().next().expect("one");
        let number = collection.follow(follower, vec![1, 2]);
        loop {
            collection.pace.now();
            let taken = next(&mut latest).await.unwrap().expect("a sample");
            assert_eq!(taken.reading.sample.unix_ns, if taken.changes >= number { 2 } else { 0 });
            if taken.changes >= number {
                break;
            }
        }
    }

    /// Never finishes its first sample.
    struct Stuck(mpsc::Receiver<()>);

    impl Collect for Stuck {
        fn collect(&mut self) -> Result<Reading, String> {
            let _ = self.0.recv();
            Err("it is over".into())
        }
        fn follow(&mut self, _: Follower, _: &[u32]) {}
    }

    #[test]
    fn a_first_sample_that_hangs_counts_as_in_progress() {
        let (end, ended) = mpsc::channel();
        let collection = Collection::start(Stuck(ended)).expect("a thread");
        // This value is dropped before the collection, because dropping the collection waits for its thread.
        let end = end;
        let begun = Instant::now();
        while collection.pace.busy_for() < Some(Duration::from_millis(20)) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", collection.pace.busy_for());
            thread::sleep(Duration::from_millis(5));
        }
        drop(end);
    }

    /// Prepares the next sample until the sending end is dropped.
    struct Ahead(mpsc::Receiver<()>);

    impl Collect for Ahead {
        fn collect(&mut self) -> Result<Reading, String> {
            Ok(Reading::default())
        }
        fn follow(&mut self, _: Follower, _: &[u32]) {}
        fn read_ahead(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[tokio::test]
    async fn a_sample_does_not_wait_for_work_ahead_of_the_next_one() {
        let (end, ended) = mpsc::channel();
        let collection = Collection::start(Ahead(ended)).expect("a thread");
        // This value is dropped before the collection, because dropping the collection waits for its thread.
        let _end = end;
        let first = next(&mut collection.latest.clone()).await.unwrap().expect("a sample");
        assert_eq!(first.number, 1);
    }

    #[tokio::test]
    async fn the_reason_why_samples_end_is_reported() {
        let collection = Collection::start(Made { left: 1, followed: 0 }).expect("a thread");
        let mut latest = collection.latest.clone();
        let _ = next(&mut latest).await;
        collection.pace.now();
        assert_eq!(next(&mut latest).await.unwrap_err(), "the kernel is out of tasks");
    }
}

#[cfg(test)]
mod tests_of_ended {
    use super::*;
    use cgscope_model::{Losses, TaskReading};

    fn reading(serials: &[u64], losses: &Losses) -> Reading {
        let task = |serial: &u64| Arc::new(TaskReading { serial: *serial, ..TaskReading::default() });
        let tasks = serials.iter().map(task).collect();
        Reading {
            sample: Sample { tasks, losses: losses.clone(), ..Sample::default() },
            followed: Vec::new(),
        }
    }

    #[test]
    fn a_viewer_that_skips_samples_gets_what_ended_in_each() {
        let none = Losses::default();
        let readings = [&[1, 2, 3][..], &[2, 3], &[3, 4], &[4]].map(|serials| reading(serials, &none));
        let first = Arc::<Ended>::default();
        let mut last = first.clone();
        for (number, pair) in (1..).zip(readings.windows(2)) {
            last = last.then(number, &pair[0], &pair[1]);
        }
        let of =
            |ended: &Ended| ended.reading.sample.tasks.iter().map(|task| task.serial).collect::<Vec<_>>();
        assert_eq!(first.until(3).map(of).collect::<Vec<_>>(), [[1], [2], [3]]);
        assert_eq!(first.until(2).count(), 2);
        assert_eq!(last.until(9).count(), 0);
    }

    #[test]
    fn a_task_that_could_not_be_read_has_not_ended() {
        let mut lossy = Losses::default();
        lossy.add(Loss::ReadingCutShort, 1);
        let cut = Ended::default().then(1, &reading(&[1, 2], &Losses::default()), &reading(&[1], &lossy));
        assert!(cut.reading.sample.tasks.is_empty());
        let after = cut.then(2, &reading(&[1], &lossy), &reading(&[2], &lossy));
        assert_eq!(after.reading.sample.tasks[0].serial, 1);
    }

    #[test]
    fn an_unread_list_of_a_million_can_be_dropped() {
        let (first, nothing) = (Arc::<Ended>::default(), Reading::default());
        let mut last = first.clone();
        for number in 1..1_000_000 {
            last = last.then(number, &nothing, &nothing);
        }
        drop(first);
    }
}
