//! A feed that receives samples from the daemon.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::{Options, TimeSplit};
use cgscope_model::{Sample, Selection};
use cgscope_record::Message;
use cgscope_serve::{
    client::{ConnectError, Connection, Sender},
    lock,
    protocol::{Refusal, Request, Word},
};

use crate::{
    cli::Target,
    exit::{Error, Result},
    feed::{Demand, End, Event, Events, ns},
};

/// After a connection of at least this length, the wait before the next attempt is [`AGAIN`].
const STEADY: Duration = Duration::from_secs(60);
/// The first wait before an attempt to connect, and each wait while no daemon listens.
const AGAIN: Duration = Duration::from_millis(500);
/// Maximum wait between two attempts, after refusals or early failures.
const LONGEST: Duration = Duration::from_secs(30);
/// Maximum number of attempts that fail because we have no permission for the socket of a restarted daemon.
const REFUSALS: u32 = 10;

pub struct Daemon {
    connection: Connection,
    split: Option<TimeSplit>,
    remote: Remote,
    pub shows_all: bool,
    said: Vec<String>,
    following: Following,
    then: Then,
    backoff: Duration,
    since: Instant,
}

fn receive(connection: &mut Connection, split: &mut Option<TimeSplit>) -> Option<Message<Word>> {
    let mut message = connection.receive();
    if let (Some(split), Some(Message::Sample(sample))) = (split, &mut message) {
        split.add(sample);
    }
    message
}

impl Daemon {
    /// Connects, and waits for the first sample. With `is_whole`, drops a first interval that is too short.
    pub fn connect(
        path: &Path,
        options: &Options,
        interval_ns: u64,
        is_whole: bool,
    ) -> Result<Self, ConnectError> {
        let asked = Request { pids: options.selection.pids.clone(), ..Request::every(interval_ns) };
        let (mut connection, sender) = Connection::open(path, &asked)?;
        let mut split = options.accounts.is_some().then(TimeSplit::new).and_then(io::Result::ok);
        let (mut shows_all, mut said) = (false, Vec::new());
        let first = loop {
            match receive(&mut connection, &mut split) {
                Some(Message::Sample(sample)) => break sample,
                Some(Message::Word(word)) => match (word.refused, word.shows_all) {
                    (Some(_), _) => return Err(ConnectError::Refused(word)),
                    (None, Some(all)) => shows_all = all,
                    (None, None) => said.push(word.sentence),
                },
                Some(Message::End(_)) | None => {
                    return Err(ConnectError::Io(path.into(), io::ErrorKind::UnexpectedEof.into()));
                }
            }
        };
        said.retain(|sentence| !sentence.is_empty());
        let remote = Remote::new(asked, Some(sender));
        let whole_ns = is_whole.then_some(interval_ns);
        let following = Following::new(path, &options.selection.tids, first, whole_ns);
        let (then, backoff, since) = (Then::Receive, AGAIN, Instant::now());
        Ok(Self { connection, split, remote, shows_all, said, following, then, backoff, since })
    }

    pub fn start(mut self, duration: Option<Duration>) -> Events {
        let remote = self.remote.clone();
        let end = duration.map(|duration| Instant::now() + duration);
        Events::start(move || self.next(), move |demand| remote.demand(demand), end)
    }

    pub fn limits(&self, selection: &Selection) -> Vec<String> {
        let is_part = !selection.follows_all() || !self.shows_all;
        let ended = "the daemon reports tasks that ended between two samples only by cgroup; to see short tasks, use a short interval";
        is_part.then(|| ended.to_owned()).into_iter().chain(self.said.clone()).collect()
    }

    pub fn title(&self, target: &Target) -> String {
        let whole = target.options.selection.is_whole_host() && target.command.is_empty();
        let what = match (self.shows_all, whole) {
            (true, _) => target.words(),
            (false, true) => "your own tasks".into(),
            (false, false) => format!("{} (of your own tasks)", target.words()),
        };
        format!("{what}, through the daemon at {}", self.following.socket.display())
    }

    fn next(&mut self) -> Option<Result<Event>> {
        loop {
            let (event, then) = match self.then {
                Then::Stop => return None,
                Then::Receive => self.receive(),
                Then::Reconnect => self.reconnect(),
            };
            self.then = then;
            if event.is_some() {
                return event;
            }
        }
    }

    fn receive(&mut self) -> Step {
        if let Some(event) = self.following.release(self.remote.wanted()) {
            return (Some(Ok(event)), Then::Receive);
        }
        let message = receive(&mut self.connection, &mut self.split);
        self.following.on(message, self.remote.wanted())
    }

    fn reconnect(&mut self) -> Step {
        lock(&self.remote.0).sender = None;
        if self.since.elapsed() >= STEADY {
            self.backoff = AGAIN;
        }
        match reconnect(&self.following.socket, &self.remote, &mut self.backoff) {
            Ok(Some(connection)) => {
                (self.connection, self.since) = (connection, Instant::now());
                self.following.on_reconnection()
            }
            Ok(None) => (None, Then::Stop),
            Err(error) => failed(error),
        }
    }
}

pub fn check(target: &Target) -> Result<()> {
    let Options { selection: Selection { pids, tids, .. }, memory, by_cpu, .. } = &target.options;
    let are_mixed = !tids.is_empty() && (!pids.is_empty() || !target.command.is_empty());
    let refused = [
        (target.stands_aside, "a command cannot be summarized"),
        (*memory, "--memory is not read"),
        (*by_cpu, "waits are not counted by CPU"),
        (are_mixed, "processes and single threads cannot be selected together"),
    ];
    let refused = refused.iter().find(|(is_wanted, _)| *is_wanted);
    refused.map_or(Ok(()), |(_, what)| {
        Err(Error::could_not_run(format!(
            "{what} through the daemon, which shares one measurement among all users; run cgscope with privileges (sudo)"
        )))
    })
}

/// Doubles the wait before the next attempt, so that many clients do not overload the daemon. Returns the wait for this one.
fn back_off(wait: &mut Duration) -> Duration {
    let now = *wait;
    *wait = (now * 2).min(LONGEST);
    spread(now)
}

/// Varies the wait at random by up to a quarter, so that clients that lost the daemon together do not return together.
fn spread(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(());
    wait.mul_f64(0.75 + 0.5 * (random as f64 / u64::MAX as f64))
}

/// Returns whether a further attempt may succeed. It cannot after a version mismatch, or if a requested process has exited.
fn may_pass(error: &ConnectError, refusals: u32) -> bool {
    match error {
        ConnectError::NobodyThere(..) | ConnectError::Io(..) => true,
        // A starting daemon creates its socket before it gives the socket to its group.
        ConnectError::NotAllowed(_) => refusals < REFUSALS,
        ConnectError::Refused(word) => {
            passes(word.refused)
                || matches!(word.refused, Some(Refusal::TooManyClients | Refusal::TooManyRequests))
        }
        ConnectError::NoDaemon(..) => false,
    }
}

/// Waits. Returns false once no more samples are requested.
fn wait_unless_over(wait: Duration, remote: &Remote) -> bool {
    let end = Instant::now() + wait;
    while remote.wanted() == Wanted::Samples {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(AGAIN));
    }
    false
}

fn reconnect(
    path: &Path,
    remote: &Remote,
    backoff: &mut Duration,
) -> Result<Option<Connection>, ConnectError> {
    let mut refusals = 0;
    let mut wait = back_off(backoff);
    loop {
        if !wait_unless_over(wait, remote) {
            return Ok(None);
        }
        let asked = lock(&remote.0).request.clone();
        let opened = Connection::open(path, &asked).map(|(connection, sender)| {
            remote.find(sender, &asked);
            connection
        });
        match opened {
            Err(error) if may_pass(&error, refusals) => {
                refusals += u32::from(matches!(error, ConnectError::NotAllowed(_)));
                wait = match error {
                    ConnectError::NobodyThere(..) | ConnectError::NotAllowed(_) => spread(AGAIN),
                    _ => back_off(backoff),
                };
            }
            opened => return opened.map(Some),
        }
    }
}

#[derive(Clone)]
pub struct Remote(Arc<Mutex<Asking>>);

struct Asking {
    request: Request,
    sender: Option<Sender>,
    wanted: Wanted,
}

impl Remote {
    pub fn new(request: Request, sender: Option<Sender>) -> Self {
        Self(Arc::new(Mutex::new(Asking { request, sender, wanted: Wanted::Samples })))
    }

    pub fn wanted(&self) -> Wanted {
        lock(&self.0).wanted
    }

    pub fn demand(&self, demand: Demand) {
        let mut asking = lock(&self.0);
        let Asking { request, sender, wanted } = &mut *asking;
        match demand {
            Demand::Interval(interval) => request.interval_ns = ns(interval),
            Demand::Last => (request.last, *wanted) = (true, Wanted::Last),
            Demand::Stop => *wanted = Wanted::Nothing,
        }
        match sender {
            Some(sender) if *wanted == Wanted::Nothing => sender.hang_up(),
            // Ignore an error: the receiving thread notices that the daemon is lost.
            Some(sender) => drop(sender.ask(request)),
            None => {}
        }
    }

    /// Sets the sender after a reconnection. Sends the request again if it has changed since `asked` was sent.
    pub fn find(&self, mut sender: Sender, asked: &Request) {
        let mut asking = lock(&self.0);
        if asking.request != *asked {
            let _ = sender.ask(&asking.request);
        }
        asking.sender = Some(sender);
    }
}

/// If a caller wants complete intervals, drops a first interval that is shorter than this fraction of the requested one.
const WHOLE: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Samples,
    Last,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Receive,
    Reconnect,
    Stop,
}

pub type Step = (Option<Result<Event>>, Then);

pub fn failed(sentence: impl std::fmt::Display) -> Step {
    (Some(Err(Error::incomplete(sentence))), Then::Stop)
}

/// Decides how to react to each message of the daemon. Uses no sockets and never waits.
pub struct Following {
    socket: PathBuf,
    /// The threads to show; empty: all threads.
    tids: HashSet<u32>,
    /// Minimum length of the first interval, ns; 0 after the first interval.
    shortest_ns: u64,
    /// The latest sample, until we know whether it is the last sample, or too close to the next one.
    held: Option<Box<Sample>>,
    anew: bool,
}

impl Following {
    pub fn new(socket: &Path, tids: &[u32], first: Box<Sample>, whole_ns: Option<u64>) -> Self {
        let (socket, tids) = (socket.into(), tids.iter().copied().collect());
        let shortest_ns = whole_ns.map_or(0, |ns| (ns as f64 * WHOLE) as u64);
        Self { socket, tids, shortest_ns, held: Some(first), anew: false }
    }

    pub fn release(&mut self, wanted: Wanted) -> Option<Event> {
        let is_kept = wanted == Wanted::Last || self.shortest_ns > 0;
        if is_kept { None } else { self.give(None) }
    }

    /// Handles a message. `None` means that the daemon closed the connection.
    pub fn on(&mut self, message: Option<Message<Word>>, wanted: Wanted) -> Step {
        match message {
            Some(Message::Sample(sample)) => (self.on_sample(sample).map(Ok), Then::Receive),
            Some(Message::End(_)) => (self.give(Some(End::Finished)).map(Ok), Then::Stop),
            Some(Message::Word(word)) if word.refused.is_none() => (said(word).map(Ok), Then::Receive),
            Some(Message::Word(word)) if !passes(word.refused) => {
                failed(format!("the daemon sends no more samples: {}", word.sentence))
            }
            Some(Message::Word(word)) => self.on_loss(Some(word), wanted),
            None => self.on_loss(None, wanted),
        }
    }

    /// Restarts all figures, because the counters of a restarted daemon are not comparable with the earlier ones.
    pub fn on_reconnection(&mut self) -> Step {
        (self.held, self.shortest_ns, self.anew) = (None, 0, true);
        (Some(Ok(Event::Message("the daemon is back: all figures start from 0".into()))), Then::Receive)
    }

    fn on_sample(&mut self, sample: Box<Sample>) -> Option<Event> {
        let shortest_ns = std::mem::take(&mut self.shortest_ns);
        self.held.take_if(|held| sample.mono_ns.saturating_sub(held.mono_ns) < shortest_ns);
        let before = self.give(None);
        self.held = Some(sample);
        before
    }

    fn on_loss(&self, word: Option<Word>, wanted: Wanted) -> Step {
        match wanted {
            Wanted::Nothing => (None, Then::Stop),
            Wanted::Last => failed("the daemon ended before it sent the last sample"),
            Wanted::Samples => {
                let failure = word.filter(|word| word.refused == Some(Refusal::Failed));
                let socket = self.socket.display();
                let ended = || format!("the daemon at {socket} has ended; cgscope tries to reconnect");
                let sentence = failure.map_or_else(ended, |word| word.sentence);
                (Some(Ok(Event::Message(sentence))), Then::Reconnect)
            }
        }
    }

    /// Emits the held sample. If threads are chosen, omits other threads, exited tasks and culprits (unknown for each thread).
    fn give(&mut self, end: Option<End>) -> Option<Event> {
        let mut sample = self.held.take()?;
        if !self.tids.is_empty() {
            sample.tasks.retain(|task| self.tids.contains(&task.tid));
            (sample.exited, sample.pairs) = (Vec::new(), Vec::new());
        }
        Some(Event::Sample { sample, anew: std::mem::take(&mut self.anew), end })
    }
}

fn said(word: Word) -> Option<Event> {
    let is_for_people = word.shows_all.is_none() && !word.sentence.is_empty();
    is_for_people.then_some(Event::Message(word.sentence))
}

/// Returns whether a daemon that refused for this reason may accept a later request.
pub fn passes(refused: Option<Refusal>) -> bool {
    matches!(refused, Some(Refusal::Ending | Refusal::TooSlow | Refusal::Failed))
}

#[cfg(test)]
mod tests;
