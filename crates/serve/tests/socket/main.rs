//! Tests of the socket for viewers, with generated samples.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cgscope_model::follower::Follower;
use cgscope_record::{Header, Message};
use cgscope_serve::{
    client::{ConnectError, Connection},
    collection::{Collect, Collection},
    counters::Counters,
    protocol::{Refusal, Request},
    shown::Reading,
    socket::{Server, SocketConfig},
};
use tokio::{net::UnixListener, sync::oneshot, task::LocalSet};

/// Generates samples of a host with this number of tasks.
struct Made {
    tasks: u32,
    round: Arc<AtomicU64>,
    left: u64,
}

impl Collect for Made {
    fn collect(&mut self) -> Result<Reading, String> {
        self.left = self.left.checked_sub(1).ok_or("the kernel is out of tasks")?;
        let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
        let sample = cgscope_made_up::host(self.tasks, 5, round);
        Ok(Reading { sample, followed: Vec::new() })
    }
    fn follow(&mut self, _: Follower, _: &[u32]) {}
}

/// A server on a separate thread. The server ends when this value is dropped.
struct Daemon {
    path: PathBuf,
    _folder: tempfile::TempDir,
    counters: Arc<Counters<Refusal>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<Result<(), String>>>,
}

impl Daemon {
    fn start(made: Made, limits: SocketConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let (stop, stopped) = oneshot::channel();
        let counters = Arc::new(Counters::default());
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let counted = counters.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let listener = UnixListener::from_std(listener).unwrap();
                let collection = Collection::start(made).unwrap();
                let server =
                    Server::new(Some(listener), collection, &Header::default(), limits, counted).unwrap();
                server.serve(async move { drop(stopped.await) }).await
            })
        });
        Self { path, _folder: folder, counters, stop: Some(stop), thread: Some(thread) }
    }

    fn end(&mut self) -> Result<(), String> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn made(tasks: u32) -> Made {
    Made { tasks, round: Arc::default(), left: u64::MAX }
}

fn every(ms: u64) -> Request {
    Request::every(ms * 1_000_000)
}

/// Time after which a test fails because it hangs. This is not a performance requirement: an unoptimised daemon sends 200 KiB of
/// samples in 2 s, but needs more than a minute while a compiler runs.
const HANGS: Duration = Duration::from_secs(300);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANGS, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn two_viewers_with_one_interval_share_samples_and_can_change_it_separately() {
    let daemon = Daemon::start(made(50), SocketConfig { shortest_interval: 1, ..SocketConfig::default() });
    let mut viewers = [(); 2].map(|()| Connection::open(&daemon.path, &every(50)).unwrap());
    let next = |(viewer, _): &mut (Connection, _)| loop {
        match viewer.receive() {
            Some(Message::Sample(sample)) => return sample.mono_ns,
            Some(Message::Word(word)) if word.shows_all == Some(true) => {}
            other => panic!("{other:?}"),
        }
    };
    let seen = viewers.each_mut().map(|viewer| (0..8).map(|_| next(viewer)).collect::<Vec<_>>());
    assert!(seen[0].iter().filter(|stamp| seen[1].contains(stamp)).count() >= 6, "{seen:?}");
    viewers[0].1.ask(&every(20)).unwrap();
    for viewer in &mut viewers {
        assert!(next(viewer) > 0);
    }
    assert_eq!(daemon.counters.refused(Refusal::TooSlow), 0);
}

#[test]
fn many_similar_intervals_do_not_cause_more_samples() {
    let made = made(20);
    let rounds = made.round.clone();
    let daemon = Daemon::start(made, SocketConfig::default());
    let asked = |n: u64| Request::every(100_000_000 + n * 997_001);
    let viewers: Vec<_> = (0..40).map(|n| Connection::open(&daemon.path, &asked(n)).unwrap()).collect();
    thread::sleep(Duration::from_millis(500));
    let (begun, before) = (Instant::now(), rounds.load(Ordering::Relaxed));
    thread::sleep(Duration::from_secs(2));
    let taken = u128::from(rounds.load(Ordering::Relaxed) - before);
    let elapsed = begun.elapsed();
    assert!(taken <= elapsed.as_millis() / 100 + 2, "{taken} samples in {elapsed:?}, 100 ms or more apart");
    drop(viewers);
}

#[test]
fn a_viewer_is_notified_only_if_its_interval_is_longer_than_requested() {
    let daemon = Daemon::start(made(5), SocketConfig::default());
    let said = |ms| {
        let (mut viewer, _sender) = Connection::open(&daemon.path, &every(ms)).unwrap();
        loop {
            match viewer.receive() {
                Some(Message::Word(word)) if word.refused.is_none() && !word.sentence.is_empty() => {
                    return word.sentence;
                }
                Some(Message::Sample(_)) => return String::new(),
                _ => {}
            }
        }
    };
    assert!(said(20).starts_with("the interval is 100 ms, the shortest "), "{}", said(20));
    assert!(
        said(250).starts_with("the interval is 300 ms: the daemon's configuration allows only"),
        "{}",
        said(250)
    );
    assert_eq!((said(100), said(300)), (String::new(), String::new()));
}

#[test]
fn a_client_that_reads_nothing_is_disconnected_and_delays_nobody() {
    let limits =
        SocketConfig { shortest_interval: 1, patience: Duration::from_secs(1), ..SocketConfig::default() };
    let daemon = Daemon::start(made(3_000), limits);
    let mut slow = UnixStream::connect(&daemon.path).unwrap();
    slow.write_all(&every(100).line()).unwrap();
    let (mut good, _sender) = Connection::open(&daemon.path, &every(100)).unwrap();
    let begun = Instant::now();
    while daemon.counters.refused(Refusal::TooSlow) == 0 {
        let event = good.receive();
        let is_served = match &event {
            // If the machine is slow, the viewer may lose samples.
            Some(Message::Word(word)) => word.refused.is_none(),
            event => matches!(event, Some(Message::Sample(_))),
        };
        assert!(is_served, "{event:?}");
        assert!(begun.elapsed() < HANGS, "the slow one is still there");
    }
    // The same time limit applies to a client that sends nothing.
    let mut silent = UnixStream::connect(&daemon.path).unwrap();
    let mut answer = String::new();
    silent.set_read_timeout(Some(HANGS)).unwrap();
    let mut bytes = Vec::new();
    silent.read_to_end(&mut bytes).unwrap();
    answer.push_str(&String::from_utf8_lossy(&bytes));
    assert!(answer.contains("\"refused\":\"too_slow\""), "{answer}");
}

#[test]
fn a_client_that_sends_requests_but_reads_nothing_is_soon_disconnected() {
    let daemon = Daemon::start(made(2_000), SocketConfig { shortest_interval: 1, ..SocketConfig::default() });
    let mut greedy = UnixStream::connect(&daemon.path).unwrap();
    greedy.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    for n in 0..100_000u64 {
        if greedy.write_all(&Request::every(1_000_000 + n).line()).is_err() {
            break;
        }
    }
    let away =
        || daemon.counters.refused(Refusal::TooManyRequests) + daemon.counters.refused(Refusal::TooSlow);
    wait_until("it is sent away", || away() == 1);
    wait_until("it has left", || daemon.counters.clients() == 0);
}

#[test]
fn viewers_get_the_reason_when_the_daemon_ends_or_fails() {
    let mut daemon = Daemon::start(made(10), SocketConfig::default());
    let (mut viewer, _sender) = Connection::open(&daemon.path, &every(1_000)).unwrap();
    assert_eq!(daemon.end(), Ok(()));
    let word = loop {
        match viewer.receive() {
            Some(Message::Word(word)) if word.refused.is_some() => break word,
            None => panic!("without a word"),
            _ => {}
        }
    };
    assert_eq!(word.refused, Some(Refusal::Ending));
    let exited = Connection::open(&daemon.path, &every(1_000)).unwrap_err();
    assert!(matches!(exited, ConnectError::NobodyThere(..)), "{exited}");

    let mut daemon = Daemon::start(
        Made { left: 3, ..made(10) },
        SocketConfig { shortest_interval: 1, ..SocketConfig::default() },
    );
    let (mut viewer, _sender) = Connection::open(&daemon.path, &every(20)).unwrap();
    while viewer
        .receive()
        .is_some_and(|message| !matches!(message, Message::Word(word) if word.refused.is_some()))
    {}
    assert_eq!(daemon.thread.take().unwrap().join().unwrap().unwrap_err(), "the kernel is out of tasks");
}

#[test]
fn the_shutdown_does_not_wait_for_clients_that_do_not_read() {
    let mut daemon = Daemon::start(made(10_000), SocketConfig::default());
    let (mut good, _sender) = Connection::open(&daemon.path, &every(60_000)).unwrap();
    let mut deaf = UnixStream::connect(&daemon.path).unwrap();
    deaf.write_all(&every(60_000).line()).unwrap();
    while !matches!(good.receive(), Some(Message::Sample(_))) {}
    // The daemon has sent a part of a frame, and the rest does not fit into the socket's buffer.
    deaf.read_exact(&mut [0; 100_000]).unwrap();
    let begun = Instant::now();
    assert_eq!(daemon.end(), Ok(()));
    assert!(begun.elapsed() < Duration::from_secs(3), "it took {:?}", begun.elapsed());
    while !matches!(good.receive(), Some(Message::Word(word)) if word.refused == Some(Refusal::Ending)) {}
}
