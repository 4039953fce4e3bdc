//! The socket for viewers: accepts connections of those who may see everything, and enforces limits.

mod connection;
mod limits;
mod peer;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use cgscope_model::follower::Follower;
use cgscope_record::{Header, Outgoing, WriteError};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, watch},
    task::JoinSet,
};

use crate::{
    collection::{Collection, Latest, Taken},
    protocol::{Refusal, Word},
    streams::{Cursor, StreamKind, StreamMemory, Streams},
};
use limits::{CountedFor, Followers, UserLimits};
pub use limits::{Counters, ViewerLimits};
pub use peer::{Peer, note_senders};

/// Minimum time between a sample outside the grid and any other sample, for the configured `shortest_interval`: the first is for a daemon that
/// allows less, the second for one that allows more.
const LEAST_GAP: Duration = Duration::from_millis(100);
const MOST_GAP: Duration = Duration::from_secs(1);
/// Maximum number of intervals at a time for a user other than root: samples are encoded for each interval.
const INTERVALS_PER_USER: usize = 16;
/// Maximum memory, bytes, of all streams that a user other than root began. One stream is always allowed.
const USER_BYTES: usize = 64 << 20;
/// Maximum memory, bytes, of the streams of all such users together.
const USERS_BYTES: usize = 256 << 20;

/// Time that clients have to read the last message when the daemon shuts down.
const END: Duration = Duration::from_millis(1_500);

/// State that all connections share.
struct Shared {
    collection: Collection,
    streams: Streams,
    limits: ViewerLimits,
    /// How often the limits have changed.
    limits_changed: u64,
    users: UserLimits,
    followers: Followers,
    /// The number of viewers of each account at each interval, without those that follow processes.
    intervals: BTreeMap<(u32, u64), usize>,
    opening: Arc<[u8]>,
    counters: Arc<Counters>,
    latest: Option<Taken>,
    /// An immediate sample is wanted as soon as the rate limit allows; `wanted` wakes the server.
    wants_one: bool,
    wanted: Rc<Notify>,
    /// Wakes all connections: streams have another sample, the limits changed, or the daemon shuts down.
    news: watch::Sender<()>,
    is_ending: bool,
}

/// Serves viewers on the socket.
pub struct Server {
    listener: UnixListener,
    shared: Rc<RefCell<Shared>>,
    latest: watch::Receiver<Latest>,
}

impl Server {
    /// Serves on a socket that is already bound. `header` describes the host.
    pub fn new(
        listener: UnixListener,
        collection: Collection,
        header: &Header,
        limits: ViewerLimits,
        counters: Arc<Counters>,
    ) -> Result<Self, WriteError> {
        // If this fails, the option is set on each client's socket instead, and a client that sends before that is refused.
        let _ = note_senders(&listener);
        let latest = collection.latest.clone();
        collection.pace.set_step(limits.shortest_interval_ns);
        let shared = Shared {
            collection,
            streams: Streams::default(),
            limits,
            limits_changed: 0,
            users: UserLimits::default(),
            followers: Followers::default(),
            intervals: BTreeMap::new(),
            opening: Outgoing::opening(header)?.into(),
            counters,
            latest: None,
            wants_one: false,
            wanted: Rc::default(),
            news: watch::channel(()).0,
            is_ending: false,
        };
        Ok(Self { listener, shared: Rc::new(RefCell::new(shared)), latest })
    }

    /// Returns a function that sets new limits, for new and connected clients.
    pub fn limits(&self) -> impl Fn(ViewerLimits) + use<> {
        let shared = self.shared.clone();
        move |limits| {
            let mut shared = shared.borrow_mut();
            shared.collection.pace.set_step(limits.shortest_interval_ns);
            shared.limits = limits;
            shared.limits_changed += 1;
            shared.news.send_replace(());
        }
    }

    /// Serves until `stop`, or until no sample can be taken: the error says why in a sentence. Needs a
    /// [`LocalSet`](tokio::task::LocalSet).
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
                () = until(may_be_taken) => {
                    let mut shared = self.shared.borrow_mut();
                    shared.wants_one = false;
                    shared.collection.pace.now();
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, _)) => self.admit(socket, &mut clients),
                    // No file descriptor is available: keep serving the connected clients.
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
        // A client that has not read the last word in this time misses it.
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
        // On an error, the client has already closed the connection.
        let Ok(peer) = Peer::of(&socket) else { return };
        let limits = shared.limits.clone();
        let seat = CountedFor { account: peer.uid, is_root: is_root(peer.uid) };
        let admitted = shared.users.admit(seat, &limits, Instant::now());
        let admitted = admitted.and_then(|()| {
            let is_allowed = shared.may_see(&peer);
            is_allowed.then_some(()).ok_or(Refusal::OtherUser).inspect_err(|_| shared.users.leave(seat))
        });
        match admitted {
            Ok(()) => {
                shared.count_clients();
                let client = connection::Connection::new(socket, peer, seat, self.shared.clone());
                clients.spawn_local(client.run(shared.news.subscribe()));
            }
            Err(refusal) => {
                shared.counters.refuse(refusal);
                if let Ok(word) = Outgoing::refusal(&Word::refused(refusal, limits.sentence(refusal))) {
                    // The message fits into the socket's buffer, unless the client does not read.
                    let _ = socket.try_write(&word);
                }
            }
        }
    }
}

fn is_root(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn too_much_memory() -> Word {
    Word::refused(
        Refusal::TooManyClients,
        format!(
            "your viewers use too much of the daemon's memory (limits: {} MiB for a user, {} MiB for all users), so the newest \
             viewer is closed: view fewer processes, or use fewer different intervals",
            USER_BYTES >> 20,
            USERS_BYTES >> 20
        ),
    )
}

impl Shared {
    fn count_clients(&self) {
        self.counters.clients.store(self.users.clients as u64, Ordering::Relaxed);
    }

    /// Returns whether a client may see everything. Others may not connect.
    fn may_see(&self, peer: &Peer) -> bool {
        is_root(peer.uid)
            || self.limits.viewer_uids.contains(&peer.uid)
            || peer.gids.iter().any(|gid| self.limits.viewer_gids.contains(gid))
    }

    fn show(&mut self, taken: Taken) {
        self.streams.skip(&taken);
        self.streams.show(&taken);
        self.bound_memory(USER_BYTES, USERS_BYTES);
        self.latest = Some(taken);
        self.news.send_replace(());
    }

    /// Ends streams of users who take too much memory with more than one stream: the newest first.
    fn bound_memory(&mut self, user_bytes: usize, users_bytes: usize) {
        let mut of_users: BTreeMap<u32, Vec<StreamMemory>> = BTreeMap::new();
        for held in self.streams.held().filter(|held| !is_root(held.account)) {
            of_users.entry(held.account).or_default().push(held);
        }
        let bytes = |streams: &Vec<StreamMemory>| streams.iter().map(|held| held.bytes).sum::<usize>();
        loop {
            let all: usize = of_users.values().map(bytes).sum();
            let most = of_users.values_mut().filter(|streams| streams.len() > 1).max_by_key(|of| bytes(of));
            let Some(most) = most.filter(|of| bytes(of) > user_bytes || all > users_bytes) else { return };
            let newest = (0..most.len()).max_by_key(|at| most[*at].made).unwrap_or_default();
            self.streams.end(&most.swap_remove(newest).kind, too_much_memory());
        }
    }

    fn want_one(&mut self) {
        self.wants_one = true;
        self.wanted.notify_one();
    }

    /// Returns when a wanted sample may be taken.
    fn may_be_taken(&self) -> Option<Instant> {
        let now = Instant::now();
        let gap = Duration::from_nanos(self.limits.shortest_interval_ns).clamp(LEAST_GAP, MOST_GAP);
        self.wants_one.then(|| self.latest.as_ref().map_or(now, |latest| now.max(latest.at + gap)))
    }

    fn join(&mut self, seat: CountedFor, kind: StreamKind, since_changes: u64) -> Result<Cursor, Word> {
        let of_account = || self.intervals.range((seat.account, 0)..=(seat.account, u64::MAX));
        if kind.follower.is_none()
            && !seat.is_root
            && !self.intervals.contains_key(&(seat.account, kind.interval_ns))
            && of_account().count() >= INTERVALS_PER_USER
        {
            return Err(Word::refused(
                Refusal::TooManyClients,
                format!(
                    "your viewers already use {INTERVALS_PER_USER} different intervals, the limit for a user: use one of \
                     these intervals, or close a viewer"
                ),
            ));
        }
        self.begin(seat, kind, since_changes).inspect_err(|_| self.give_back(kind.follower))
    }

    /// Moves a reader to another interval.
    fn change_interval(
        &mut self,
        seat: CountedFor,
        cursor: &Cursor,
        interval_ns: u64,
    ) -> Result<Cursor, Word> {
        let since_changes = self.streams.since_changes(cursor);
        let changed = self.begin(seat, StreamKind { interval_ns, ..cursor.kind }, since_changes)?;
        self.stop(seat, cursor);
        Ok(changed)
    }

    fn begin(&mut self, seat: CountedFor, kind: StreamKind, since_changes: u64) -> Result<Cursor, Word> {
        let cursor = self.streams.join(kind, seat.account, since_changes).map_err(|error| {
            Word::refused(Refusal::Failed, format!("the daemon cannot start to send samples ({error})"))
        })?;
        if kind.follower.is_none() {
            *self.intervals.entry((seat.account, kind.interval_ns)).or_default() += 1;
        }
        self.collection.pace.ask(kind.interval_ns);
        if self.streams.is_new(&cursor) {
            self.want_one();
        }
        Ok(cursor)
    }

    fn leave(&mut self, seat: CountedFor, cursor: &Cursor) {
        self.stop(seat, cursor);
        self.give_back(cursor.kind.follower);
    }

    fn stop(&mut self, seat: CountedFor, cursor: &Cursor) {
        self.streams.leave(cursor);
        self.collection.pace.ask_no_longer(cursor.kind.interval_ns);
        let place = (seat.account, cursor.kind.interval_ns);
        if cursor.kind.follower.is_none()
            && let Some(count) = self.intervals.get_mut(&place)
        {
            *count -= 1;
            if *count == 0 {
                self.intervals.remove(&place);
            }
        }
    }

    fn give_back(&mut self, follower: Option<Follower>) {
        if let Some(follower) = follower {
            self.collection.follow(follower, Vec::new());
            self.followers.give_back(follower);
        }
    }

    /// Follows processes. Returns the follower, and the [`Taken::changes`] from which its view is complete.
    fn follow(&mut self, seat: CountedFor, pids: &[u32]) -> Result<(Follower, u64), Word> {
        let tasks = self.latest.iter().flat_map(|latest| &latest.reading.sample.tasks);
        let known: HashSet<u32> = tasks.map(|task| task.tgid).collect();
        if let Some(pid) = pids.iter().find(|pid| !known.contains(pid)) {
            return Err(Word::refused(Refusal::NoSuchProcess, format!("process {pid} does not exist")));
        }
        let follower = self.followers.take(seat)?;
        let changes = self.collection.follow(follower, pids.to_vec());
        self.want_one();
        Ok((follower, changes))
    }

    /// Returns whether the latest sample was begun after this time.
    fn has_begun_after(&self, at: Instant) -> bool {
        self.latest.as_ref().is_some_and(|latest| latest.began > at)
    }

    /// Returns the number of the latest sample, or 0 if there is none.
    fn number(&self) -> u64 {
        self.latest.as_ref().map_or(0, |latest| latest.number)
    }
}

#[cfg(test)]
mod tests;
