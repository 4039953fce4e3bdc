//! The socket for viewers: accepts connections from users who may see everything, and enforces the limits.

mod connection;
mod limits;
mod peer;

use std::time::{Duration, Instant};
use std::{cell::RefCell, collections::HashSet, rc::Rc, sync::Arc};

use cgscope_model::follower::Follower;
use cgscope_record::{Header, Outgoing, WriteError};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, watch},
    task::JoinSet,
    time::sleep_until,
};

pub use crate::config::SocketConfig;
use crate::{
    collection::{Collection, Latest, Taken},
    counters::Counters,
    protocol::{Refusal, Word},
    streams::{Cursor, StreamKind, Streams},
};
use limits::{Clients, USER_BYTES, USERS_BYTES, bound_memory, check_interval, free_follower};
pub use peer::{Peer, note_senders};

/// Bounds for `shortest_interval`, when it is used as the minimum time between the previous sample and an immediate sample.
const LEAST_GAP: Duration = Duration::from_millis(100);
const MOST_GAP: Duration = Duration::from_secs(1);

/// Time that clients have to read the last message when the daemon shuts down.
const END: Duration = Duration::from_millis(1_500);

/// The state that all connections share.
struct Shared {
    collection: Collection,
    streams: Streams,
    limits: SocketConfig,
    clients: Clients,
    opening: Arc<[u8]>,
    counters: Arc<Counters<Refusal>>,
    latest: Option<Taken>,
    /// Whether an immediate sample is requested. It is taken as soon as the rate limit allows. `wanted` wakes the server.
    wants_one: bool,
    wanted: Rc<Notify>,
    /// Wakes all connections if streams have a new sample, the limits changed, or the daemon shuts down.
    news: watch::Sender<()>,
    is_ending: bool,
}

pub struct Server {
    listener: Option<UnixListener>,
    shared: Rc<RefCell<Shared>>,
    latest: watch::Receiver<Latest>,
}

impl Server {
    /// Creates a server for a bound socket. Without one, [`Self::serve`] only waits until no more samples are taken.
    pub fn new(
        listener: Option<UnixListener>,
        collection: Collection,
        header: &Header,
        limits: SocketConfig,
        counters: Arc<Counters<Refusal>>,
    ) -> Result<Self, WriteError> {
        // If this fails, `Peer::of` sets the option for each client; a client that sends data before that is refused.
        let _ = listener.as_ref().map(note_senders);
        let latest = collection.latest.clone();
        let shared = Shared {
            collection,
            streams: Streams::default(),
            limits: SocketConfig::default(),
            clients: Clients::default(),
            opening: Outgoing::opening(header)?.into(),
            counters,
            latest: None,
            wants_one: false,
            wanted: Rc::default(),
            news: watch::channel(()).0,
            is_ending: false,
        };
        let server = Self { listener, shared: Rc::new(RefCell::new(shared)), latest };
        server.limits()(limits);
        Ok(server)
    }

    /// Returns a function that sets new limits, which also apply to connected clients.
    pub fn limits(&self) -> impl Fn(SocketConfig) + use<> {
        let (shared, has_socket) = (self.shared.clone(), self.listener.is_some());
        move |limits| {
            let mut shared = shared.borrow_mut();
            if has_socket {
                shared.collection.pace.set_step(limits.shortest_interval);
            }
            shared.limits = limits;
            shared.news.send_replace(());
        }
    }

    /// Serves viewers until `stop`, or until no more samples can be taken: then the error says why. Needs a `LocalSet`.
    pub async fn serve(mut self, stop: impl Future<Output = ()>) -> Result<(), String> {
        let mut stop = std::pin::pin!(stop);
        let mut clients = JoinSet::new();
        let wanted = self.shared.borrow().wanted.clone();
        let ending = loop {
            let may_be_taken = self.shared.borrow().may_be_taken();
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                changed = self.latest.changed() => {
                    if let Err(sentence) = self.show(changed.is_ok()) {
                        break Err(sentence);
                    }
                }
                () = wanted.notified() => {}
                () = sleep_until(may_be_taken.unwrap_or_else(Instant::now).into()), if may_be_taken.is_some() => {
                    let mut shared = self.shared.borrow_mut();
                    shared.wants_one = false;
                    shared.collection.pace.now();
                }
                Some(accepted) = async { Some(self.listener.as_ref()?.accept().await) } => match accepted {
                    Ok((socket, _)) => self.admit(socket, &mut clients),
                    // The process has no free file descriptor. The clients that are connected are still served.
                    Err(_) => tokio::time::sleep(LEAST_GAP).await,
                },
                Some(_) = clients.join_next(), if !clients.is_empty() => {}
            }
        };
        {
            let mut shared = self.shared.borrow_mut();
            shared.is_ending = true;
            shared.news.send_replace(());
        }
        let all_closed = async { while clients.join_next().await.is_some() {} };
        // If a client does not read the last message in this time, it misses the message.
        let _ = tokio::time::timeout(END, all_closed).await;
        clients.shutdown().await;
        ending
    }

    fn show(&mut self, is_running: bool) -> Result<(), String> {
        let latest = self.latest.borrow_and_update().clone()?;
        if !is_running {
            return Err("the thread that takes samples has ended".into());
        }
        let Some(taken) = latest else { return Ok(()) };
        self.shared.borrow_mut().show(taken);
        Ok(())
    }

    fn admit(&self, socket: UnixStream, clients: &mut JoinSet<()>) {
        let mut shared = self.shared.borrow_mut();
        // An error here means that the client has already closed the connection.
        let Ok(peer) = Peer::of(&socket) else { return };
        let (limits, uid) = (shared.limits.clone(), peer.uid);
        let admitted = shared.clients.admit(uid, &limits, Instant::now());
        let admitted = admitted.and_then(|()| {
            let is_allowed = limits.may_see(&peer);
            is_allowed.then_some(()).ok_or(Refusal::OtherUser).inspect_err(|_| shared.clients.leave(uid))
        });
        match admitted {
            Ok(()) => {
                let client = connection::Connection::new(socket, peer, self.shared.clone());
                clients.spawn_local(client.run(shared.news.subscribe(), shared.counters.client()));
            }
            Err(refusal) => {
                shared.counters.refuse(refusal);
                if let Ok(word) = Outgoing::refusal(&Word::refused(refusal, limits.sentence(refusal))) {
                    // This function must not wait. The message fits, because the socket's buffer is empty.
                    let _ = socket.try_write(&word);
                }
            }
        }
    }
}

impl Shared {
    fn show(&mut self, taken: Taken) {
        self.streams.skip(&taken);
        self.streams.show(&taken);
        bound_memory(&mut self.streams, USER_BYTES, USERS_BYTES);
        self.latest = Some(taken);
        self.news.send_replace(());
    }

    fn want_one(&mut self) {
        self.wants_one = true;
        self.wanted.notify_one();
    }

    /// Returns when an immediate sample may be taken. Returns `None` if no immediate sample is requested.
    fn may_be_taken(&self) -> Option<Instant> {
        let now = Instant::now();
        let gap = Duration::from_nanos(self.limits.shortest_interval).clamp(LEAST_GAP, MOST_GAP);
        self.wants_one.then(|| self.latest.as_ref().map_or(now, |latest| now.max(latest.at + gap)))
    }

    /// Adds a viewer of these processes. If `pids` is empty, the viewer sees everything.
    fn join(&mut self, uid: u32, pids: &[u32], interval_ns: u64) -> Result<Cursor, Word> {
        if pids.is_empty() {
            check_interval(&self.streams, uid, interval_ns)?;
            return self.begin(uid, StreamKind { follower: None, interval_ns }, 0);
        }
        let tasks = self.latest.iter().flat_map(|latest| &latest.reading.sample.tasks);
        let known: HashSet<u32> = tasks.map(|task| task.tgid).collect();
        if let Some(pid) = pids.iter().find(|pid| !known.contains(pid)) {
            return Err(Word::refused(Refusal::NoSuchProcess, format!("process {pid} does not exist")));
        }
        let follower = free_follower(&self.streams, uid)?;
        let since_changes = self.collection.follow(follower, pids.to_vec());
        let begun = self.begin(uid, StreamKind { follower: Some(follower), interval_ns }, since_changes);
        begun.inspect_err(|_| self.unfollow(follower))
    }

    fn change_interval(&mut self, uid: u32, cursor: &Cursor, interval_ns: u64) -> Result<Cursor, Word> {
        let since_changes = self.streams.of(cursor).since_changes;
        let changed = self.begin(uid, StreamKind { interval_ns, ..cursor.kind }, since_changes)?;
        self.leave(uid, cursor);
        Ok(changed)
    }

    fn begin(&mut self, uid: u32, kind: StreamKind, since_changes: u64) -> Result<Cursor, Word> {
        let cursor = self.streams.join(kind, uid, since_changes).map_err(|error| {
            Word::refused(Refusal::Failed, format!("the daemon cannot start to send samples ({error})"))
        })?;
        self.collection.pace.ask(kind.interval_ns);
        if self.streams.of(&cursor).is_new() {
            self.want_one();
        }
        Ok(cursor)
    }

    /// Removes a reader from its stream. If its follower has no other stream, the processes are no longer followed.
    fn leave(&mut self, uid: u32, cursor: &Cursor) {
        self.streams.leave(cursor, uid);
        self.collection.pace.ask_no_longer(cursor.kind.interval_ns);
        if let Some(follower) = cursor.kind.follower
            && self.streams.followers().all(|(other, _)| other != follower)
        {
            self.unfollow(follower);
        }
    }

    fn unfollow(&mut self, follower: Follower) {
        self.collection.follow(follower, Vec::new());
    }
}

#[cfg(test)]
mod tests;
