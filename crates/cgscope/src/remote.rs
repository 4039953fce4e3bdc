//! The daemon as a source: what it shows us, as if we measured ourselves.

mod backoff;

use std::{
    collections::HashSet,
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

use self::backoff::{AGAIN, Backoff, spread};
use crate::{
    exit::{Error, Result},
    request::Target,
    sampler::Item,
};

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
            event @ (Event::Refused(_) | Event::Gone) => {
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
                give(Ok(Item::Said(why_lost(event, &path))));
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

/// Why no more comes for a while, for people.
fn why_lost(event: Event, path: &Path) -> String {
    match event {
        Event::Refused(word) if word.refused == Some(Refusal::Failed) => word.sentence,
        _ => format!("the daemon at {} has gone; it is looked for until it is back", path.display()),
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
mod tests;
