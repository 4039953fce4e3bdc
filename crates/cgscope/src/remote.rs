//! The daemon as a source: what it shows us, as if we measured ourselves.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::TimeSplit;
use cgscope_model::{Sample, Selection};
use cgscope_serve::{
    client::{ConnectError, Connection, Event, SOCKET, Sender},
    protocol::{Refusal, Request},
};

use crate::{
    exit::{Error, Result},
    request::Target,
    sampler::Item,
};

/// The first wait before the daemon is tried again, and each one while nobody is there.
const AGAIN: Duration = Duration::from_millis(500);
/// The longest wait before a daemon is tried again that refuses, or fails soon.
const LONGEST: Duration = Duration::from_secs(30);
/// After so long with the daemon, waits begin at the first one again.
const STEADY: Duration = Duration::from_secs(60);
/// A daemon that is back may lock us out so many times.
const REFUSALS: u32 = 10;
/// A first interval that is shorter than this part of what was asked for is none where whole ones were asked for.
const WHOLE: f64 = 0.9;

/// The socket that is tried of itself; `None`: there is no daemon.
pub fn usual() -> Option<&'static Path> {
    Some(Path::new(SOCKET)).filter(|path| path.exists())
}

/// A connection to the daemon, before Samples are taken from it.
pub struct Daemon {
    path: PathBuf,
    connection: Connection,
    asked: Request,
    tids: Vec<u32>,
    /// Everything is shown, not only what is this user's.
    pub shows_all: bool,
    /// What the daemon has said meanwhile.
    pub said: Vec<String>,
    first: Option<Sample>,
    /// What the daemon does not tell: how time on a CPU splits, where that is asked for.
    split: Option<TimeSplit>,
    /// What is asked of it from another thread than the one that receives.
    pub remote: Remote,
}

impl Daemon {
    /// Connects, and waits for the first Sample. `with_split`: time on a CPU is told as user space and kernel.
    pub fn connect(
        path: &Path,
        selection: &Selection,
        interval: Duration,
        with_split: bool,
    ) -> std::result::Result<Self, ConnectError> {
        let asked = Request { pids: selection.pids.clone(), ..Request::every(nanos(interval)) };
        let connection = Connection::open(path, &asked)?;
        let sender = connection.sender().map_err(|error| ConnectError::Io(path.into(), error))?;
        let remote = Remote(Arc::new(Link {
            asking: Mutex::new(Asking { request: asked.clone(), sender: Some(sender) }),
            ends: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
        }));
        let tids = selection.tids.clone();
        let mut daemon = Self {
            path: path.into(),
            connection,
            asked,
            tids,
            shows_all: false,
            said: Vec::new(),
            first: None,
            // Without /proc there is none, and it is told as not known.
            split: with_split.then(TimeSplit::new).and_then(std::io::Result::ok),
            remote,
        };
        daemon.await_first()?;
        Ok(daemon)
    }

    fn await_first(&mut self) -> std::result::Result<(), ConnectError> {
        loop {
            match self.connection.receive() {
                Event::Sample(mut sample) => {
                    add_split(&mut self.split, &mut sample);
                    self.first = Some(*sample);
                    return Ok(());
                }
                Event::Answered { shows_all } => self.shows_all = shows_all,
                Event::Said(sentence) => self.said.push(sentence),
                Event::Refused(word) => return Err(ConnectError::Refused(word)),
                Event::End | Event::Gone => {
                    let gone = std::io::ErrorKind::UnexpectedEof.into();
                    return Err(ConnectError::Io(self.path.clone(), gone));
                }
            }
        }
    }

    /// What of it is looked at, in words; `target`: what was asked for.
    pub fn title(&self, target: &Target) -> String {
        let whole = target.selection.is_whole_host() && target.command.is_empty();
        let what = match (self.shows_all, whole) {
            (true, _) => target.words(),
            (false, true) => "your own tasks".into(),
            (false, false) => format!("{} (of your own tasks)", target.words()),
        };
        format!("{what}, through the daemon at {}", self.path.display())
    }
}

/// That what was asked for can be seen through a daemon.
pub fn check(target: &Target) -> Result<()> {
    let no = |what: &str| {
        Err(Error::could_not_run(format!(
            "{what} through the daemon: it counts for all who look; run cgscope with its own privileges for it (sudo)"
        )))
    };
    if target.stands_aside {
        return no("a command cannot be summed up");
    }
    if target.memory {
        return no("--memory is not read");
    }
    if target.by_cpu {
        return no("waits are not counted by CPU");
    }
    if !target.selection.tids.is_empty() && (!target.selection.pids.is_empty() || !target.command.is_empty())
    {
        return no("processes and single threads cannot be looked at together");
    }
    Ok(())
}

/// What is asked of the daemon while Samples come.
#[derive(Clone)]
pub struct Remote(Arc<Link>);

struct Link {
    asking: Mutex<Asking>,
    ends: AtomicBool,
    is_dropped: AtomicBool,
}

struct Asking {
    /// What is wanted, also of a daemon that comes back.
    request: Request,
    /// `None` while there is no daemon.
    sender: Option<Sender>,
}

impl Remote {
    fn asking(&self) -> MutexGuard<'_, Asking> {
        self.0.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, change: impl FnOnce(&mut Request)) {
        let mut asking = self.asking();
        let Asking { request, sender } = &mut *asking;
        change(request);
        if let Some(sender) = sender {
            // One that is gone is noticed where Samples come from.
            let _ = sender.ask(request);
        }
    }

    fn asked(&self) -> Request {
        self.asking().request.clone()
    }

    /// The daemon is gone.
    fn lose(&self) {
        self.asking().sender = None;
    }

    /// It is back, and has been asked for this; what is wanted may be something else by now.
    fn find(&self, mut sender: Sender, asked: &Request) {
        let mut asking = self.asking();
        if asking.request != *asked {
            let _ = sender.ask(&asking.request);
        }
        asking.sender = Some(sender);
    }

    /// Samples come so often from now on.
    pub fn set_interval(&self, interval: Duration) {
        self.ask(|request| request.interval_ns = nanos(interval));
    }

    /// One more Sample, now.
    pub fn finish(&self) {
        self.0.ends.store(true, Ordering::Release);
        self.ask(|request| request.last = true);
    }

    /// Nobody waits for Samples any more.
    pub fn hang_up(&self) {
        self.0.is_dropped.store(true, Ordering::Release);
        if let Some(sender) = &self.asking().sender {
            sender.hang_up();
        }
    }

    fn is_dropped(&self) -> bool {
        self.0.is_dropped.load(Ordering::Acquire)
    }

    fn ends(&self) -> bool {
        self.0.ends.load(Ordering::Acquire)
    }
}

/// Hands on what comes until the end, or until nobody takes it any more. `is_whole`: the first interval is not to be a short one.
pub fn run(daemon: Daemon, is_whole: bool, mut give: impl FnMut(std::result::Result<Item, String>) -> bool) {
    let Daemon { path, mut connection, first, tids, asked, remote, mut split, .. } = daemon;
    let tids: HashSet<u32> = tids.into_iter().collect();
    let shortest_ns = if is_whole { (asked.interval_ns as f64 * WHOLE) as u64 } else { 0 };
    // Held back until it is known whether it is the last one, or too near to the next.
    let mut held: Option<Sample> = first;
    let (mut is_first, mut anew) = (true, false);
    let (mut backoff, mut since) = (Backoff::new(), Instant::now());
    loop {
        let mut pass = |sample: Sample, last: bool, anew: &mut bool| {
            let sample = Box::new(chosen(sample, &tids));
            give(Ok(Item::Sample { sample, last, anew: std::mem::take(anew) }))
        };
        // Waiting for what comes next would keep back what is there.
        let is_kept = remote.ends() || (is_first && shortest_ns > 0);
        if !is_kept
            && let Some(sample) = held.take()
            && !pass(sample, false, &mut anew)
        {
            return;
        }
        match connection.receive() {
            Event::Sample(mut sample) => {
                add_split(&mut split, &mut sample);
                if let Some(before) = held.take() {
                    let is_short = is_first && sample.mono_ns.saturating_sub(before.mono_ns) < shortest_ns;
                    if !is_short && !pass(before, false, &mut anew) {
                        return;
                    }
                }
                is_first = false;
                held = Some(*sample);
            }
            Event::End => {
                if let Some(sample) = held.take() {
                    pass(sample, true, &mut anew);
                }
                return;
            }
            Event::Said(sentence) => {
                give(Ok(Item::Said(sentence)));
            }
            Event::Answered { .. } => {}
            Event::Refused(word) if !passes(word.refused) => {
                give(Err(format!("the daemon sends no more: {}", word.sentence)));
                return;
            }
            Event::Refused(_) | Event::Gone => {
                if remote.is_dropped() {
                    return;
                }
                if remote.ends() {
                    give(Err("the daemon has gone before the last Sample came".into()));
                    return;
                }
                remote.lose();
                if since.elapsed() >= STEADY {
                    backoff = Backoff::new();
                }
                give(Ok(Item::Said(format!(
                    "the daemon at {} has gone; it is looked for until it is back",
                    path.display()
                ))));
                connection = match reconnect(&path, &remote, &mut backoff) {
                    Ok(Some(back)) => back,
                    Ok(None) => return,
                    Err(error) => {
                        give(Err(error.to_string()));
                        return;
                    }
                };
                (held, is_first, anew) = (None, true, true);
                since = Instant::now();
                give(Ok(Item::Said("the daemon is back: figures begin anew".into())));
            }
        }
    }
}

/// It may serve again.
fn passes(refused: Option<Refusal>) -> bool {
    matches!(refused, Some(Refusal::Ending | Refusal::TooSlow | Refusal::Failed))
}

/// A daemon that is back may serve if it is tried again. Not so one of another version, or one that was asked for a process that is
/// gone.
fn may_pass(error: &ConnectError, refusals: u32) -> bool {
    match error {
        ConnectError::NobodyThere(..) | ConnectError::Io(..) => true,
        // Also for the moment between making a socket and giving it to its group.
        ConnectError::NotAllowed(_) => refusals < REFUSALS,
        ConnectError::Refused(word) => {
            passes(word.refused)
                || matches!(word.refused, Some(Refusal::TooManyClients | Refusal::TooManyRequests))
        }
        ConnectError::NoDaemon(..) => false,
    }
}

/// How long to wait before the daemon is tried again: twice as long after each time that it refused or failed, so that many viewers
/// do not keep a daemon in trouble busy.
#[derive(Debug)]
struct Backoff(Duration);

impl Backoff {
    fn new() -> Self {
        Self(AGAIN)
    }

    /// The next wait; the one after it is longer.
    fn grow(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST);
        spread(wait)
    }
}

/// Up to a quarter more or less: viewers that lost the daemon together come back one by one.
fn spread(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(());
    wait.mul_f64(0.75 + 0.5 * (random as f64 / u64::MAX as f64))
}

/// Waits, unless nobody waits for the daemon any more: false.
fn wait_unless_over(wait: Duration, remote: &Remote) -> bool {
    let end = Instant::now() + wait;
    loop {
        if remote.is_dropped() || remote.ends() {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(AGAIN));
    }
}

/// The daemon that is back; `None` where nobody waits for it any more.
fn reconnect(
    path: &Path,
    remote: &Remote,
    backoff: &mut Backoff,
) -> std::result::Result<Option<Connection>, ConnectError> {
    let mut refusals = 0;
    let mut wait = backoff.grow();
    loop {
        if !wait_unless_over(wait, remote) {
            return Ok(None);
        }
        let asked = remote.asked();
        let opened = Connection::open(path, &asked).and_then(|connection| {
            let sender = connection.sender().map_err(|error| ConnectError::Io(path.into(), error))?;
            remote.find(sender, &asked);
            Ok(connection)
        });
        match opened {
            Err(error) if may_pass(&error, refusals) => {
                refusals += u32::from(matches!(error, ConnectError::NotAllowed(_)));
                wait = match error {
                    ConnectError::NobodyThere(..) | ConnectError::NotAllowed(_) => spread(AGAIN),
                    _ => backoff.grow(),
                };
            }
            opened => return opened.map(Some),
        }
    }
}

/// As soon as it has come.
fn add_split(split: &mut Option<TimeSplit>, sample: &mut Sample) {
    if let Some(split) = split {
        split.add(sample);
    }
}

/// Without the threads that were not chosen; of exited ones, and of who made whom wait, nothing is known by thread.
fn chosen(mut sample: Sample, tids: &HashSet<u32>) -> Sample {
    if !tids.is_empty() {
        sample.tasks.retain(|task| tids.contains(&task.tid));
        (sample.exited, sample.pairs) = (Vec::new(), Vec::new());
    }
    sample
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{io, io::Write, os::unix::net::UnixListener};

    use cgscope_record::{Outgoing, ReadError};
    use cgscope_serve::protocol::Word;

    use super::*;

    #[test]
    fn a_daemon_that_is_back_is_tried_again_unless_it_will_never_serve() {
        let path = || PathBuf::from("/run/it");
        let refused = |refusal| ConnectError::Refused(Word::refused(refusal, "no"));
        let passing = [
            ConnectError::NobodyThere(path(), io::ErrorKind::NotFound.into()),
            ConnectError::Io(path(), io::ErrorKind::ConnectionReset.into()),
            ConnectError::NotAllowed(path()),
            refused(Refusal::Ending),
            refused(Refusal::TooManyClients),
        ];
        assert!(passing.iter().all(|error| may_pass(error, 0)));
        let lasting = [
            ConnectError::NoDaemon(path(), ReadError::Version { found: 99, wrote: None }),
            refused(Refusal::NoSuchProcess),
            refused(Refusal::BadRequest),
        ];
        assert!(!lasting.iter().any(|error| may_pass(error, 0)));
        assert!(!may_pass(&ConnectError::NotAllowed(path()), REFUSALS), "it stays locked");
    }

    #[test]
    fn a_daemon_that_refuses_is_tried_again_after_longer_and_longer_waits() {
        let path = std::env::temp_dir().join(format!("cgscope-backoff-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let asking = Asking { request: Request::every(1), sender: None };
        let link = Link {
            asking: Mutex::new(asking),
            ends: AtomicBool::default(),
            is_dropped: AtomicBool::default(),
        };
        let remote = Remote(Arc::new(link));
        let viewer = {
            let (path, remote) = (path.clone(), remote.clone());
            thread::spawn(move || reconnect(&path, &remote, &mut Backoff::new()).map(|back| back.is_some()))
        };
        let word = Outgoing::refusal(&Word::refused(Refusal::Failed, "no")).expect("a word");
        let (begun, mut tries) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(4) {
            if let Ok((mut client, _)) = listener.accept() {
                tries += 1;
                client.write_all(&word).expect("it reads");
            }
            thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(&path).expect("a file of ours");
        assert!((1..=4).contains(&tries), "{tries} times in 4 s");
        remote.0.ends.store(true, Ordering::Release);
        let ended = Instant::now();
        assert!(matches!(viewer.join().expect("no panic"), Ok(false)));
        assert!(ended.elapsed() < Duration::from_secs(2), "it waits for nobody");
    }

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..10).map(|_| backoff.grow()).collect();
        let middle = (0..10).map(|n| (AGAIN * 2u32.pow(n)).min(LONGEST));
        for (wait, middle) in waits.iter().zip(middle) {
            assert!((middle.mul_f64(0.75)..=middle.mul_f64(1.25)).contains(wait), "{wait:?} of {middle:?}");
        }
        assert!((0..20).map(|_| spread(AGAIN)).collect::<HashSet<_>>().len() > 10);
    }
}
