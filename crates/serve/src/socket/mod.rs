//! The socket for viewers: accepts connections, enforces limits, and decides what each viewer may see.

mod accounts;
mod connection;
mod limits;
mod owners;
mod peer;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use cgscope_record::{Header, Outgoing, WriteError};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, watch},
    task::JoinSet,
};

use crate::{
    collection::{Collection, Latest, Taken},
    protocol::{Refusal, Word},
    shown::{View, seen},
    streams::{Cursor, StreamKind, StreamMemory, Streams},
};
use accounts::Accounts;
use limits::{CountedFor, Followers, UserLimits};
pub use limits::{Counters, ViewerLimits};
use owners::{Directory, Owners};
pub use peer::{Peer, note_senders};

/// Minimum time between a sample outside the grid and any other sample.
const LEAST_GAP: Duration = Duration::from_millis(100);
/// Maximum number of intervals at a time for a user who may not see everything: each interval is filtered and encoded separately.
const INTERVALS_PER_USER: usize = 16;
/// Maximum memory, bytes, of all streams of a user who may not see everything. One stream is always allowed.
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
    accounts: Accounts,
    users: UserLimits,
    followers: Followers,
    opening: Arc<[u8]>,
    mount: Option<PathBuf>,
    owners: Owners,
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
    /// Serves on a socket that is already bound. `header` describes the host; `mount` is the mount point of the cgroups in
    /// samples.
    pub fn new(
        listener: UnixListener,
        collection: Collection,
        header: &Header,
        mount: Option<PathBuf>,
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
            accounts: Accounts::default(),
            users: UserLimits::default(),
            followers: Followers::default(),
            opening: Outgoing::opening(header)?.into(),
            mount,
            owners: Owners::default(),
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
        let seat = shared.seat(&peer);
        match shared.users.admit(seat, &limits, Instant::now()) {
            Ok(()) => {
                shared.count_clients();
                let client = connection::Connection::new(socket, peer, seat, self.shared.clone());
                clients.spawn_local(client.run(shared.news.subscribe()));
            }
            Err(refusal) => {
                shared.counters.refuse(refusal);
                if let Ok(word) = Outgoing::refusal(&Word::refused(refusal, limits.too_many(refusal))) {
                    // The message fits into the socket's buffer, unless the client does not read.
                    let _ = socket.try_write(&word);
                }
            }
        }
    }
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

    /// Returns the user whose processes a client is shown; `None` means that the client is shown everything.
    fn user(&self, peer: &Peer) -> Option<u32> {
        let is_admin = peer.uid == 0
            || peer.uid == rustix::process::geteuid().as_raw()
            || self.limits.admin_uids.contains(&peer.uid)
            || peer.gids.iter().any(|gid| self.limits.admin_gids.contains(gid));
        (!is_admin).then_some(peer.uid)
    }

    /// Returns the account whose limits a new client counts towards.
    fn seat(&mut self, peer: &Peer) -> CountedFor {
        self.accounts.refresh();
        CountedFor { account: self.accounts.of(peer.uid), is_admin: self.user(peer).is_none() }
    }

    fn show(&mut self, taken: Taken) {
        let Self { streams, owners, mount, .. } = self;
        // What ended was in the sample before, so the owners recorded for that sample's cgroups apply.
        streams.skip(&taken, |path, user| owners.is_owned(path, user));
        if let Some(mount) = mount
            && streams.show_users()
        {
            owners.look(&taken.reading.sample, Instant::now(), |path| Directory::of(mount, path));
        }
        streams.show(&taken, |path, user| owners.is_owned(path, user));
        self.bound_memory(USER_BYTES, USERS_BYTES);
        self.latest = Some(taken);
        self.news.send_replace(());
    }

    /// Ends streams of users who take too much memory with more than one stream: the newest first.
    fn bound_memory(&mut self, user_bytes: usize, users_bytes: usize) {
        let mut of_users: BTreeMap<u32, Vec<StreamMemory>> = BTreeMap::new();
        for held in self.streams.held() {
            if let Some(user) = held.kind.view.user {
                of_users.entry(self.accounts.of(user)).or_default().push(held);
            }
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
        self.wants_one.then(|| self.latest.as_ref().map_or(now, |latest| now.max(latest.at + LEAST_GAP)))
    }

    fn join(&mut self, kind: StreamKind, since_changes: u64) -> Result<Cursor, Word> {
        if let (Some(user), None) = (kind.view.user, kind.view.follower)
            && !self.streams.streams.contains_key(&kind)
            && self.streams.of_users(|other| self.accounts.of(other) == self.accounts.of(user))
                >= INTERVALS_PER_USER
        {
            return Err(Word::refused(
                Refusal::TooManyClients,
                format!(
                    "your viewers already use {INTERVALS_PER_USER} different intervals, the limit for a user: use one of \
                     these intervals, or close a viewer"
                ),
            ));
        }
        self.begin(kind, since_changes).inspect_err(|_| self.give_back(kind.view))
    }

    /// Moves a reader to another interval.
    fn change_interval(&mut self, cursor: &Cursor, interval_ns: u64) -> Result<Cursor, Word> {
        let since_changes = self.streams.since_changes(cursor);
        let changed = self.begin(StreamKind { interval_ns, ..cursor.kind }, since_changes)?;
        self.stop(cursor);
        Ok(changed)
    }

    fn begin(&mut self, kind: StreamKind, since_changes: u64) -> Result<Cursor, Word> {
        let cursor = self.streams.join(kind, since_changes).map_err(|error| {
            Word::refused(Refusal::Failed, format!("the daemon cannot start to send samples ({error})"))
        })?;
        self.collection.pace.ask(kind.interval_ns);
        if self.streams.is_new(&cursor) {
            self.want_one();
        }
        Ok(cursor)
    }

    fn leave(&mut self, cursor: &Cursor) {
        self.stop(cursor);
        self.give_back(cursor.kind.view);
    }

    fn stop(&mut self, cursor: &Cursor) {
        self.streams.leave(cursor);
        self.collection.pace.ask_no_longer(cursor.kind.interval_ns);
    }

    fn give_back(&mut self, view: View) {
        if let Some(follower) = view.follower {
            self.collection.follow(follower, Vec::new());
            self.followers.give_back(follower);
        }
    }

    /// Follows processes that the view shows. Returns the view of them, and the [`Taken::changes`] from which it is complete.
    fn follow(&mut self, view: View, seat: CountedFor, pids: &[u32]) -> Result<(View, u64), Word> {
        let seen = self.latest.as_ref().map(|latest| seen(&latest.reading, &view)).unwrap_or_default();
        if let Some(pid) = pids.iter().find(|pid| !seen.contains(pid)) {
            return Err(Word::refused(
                Refusal::NoSuchProcess,
                format!("process {pid} does not exist, or you may not see it"),
            ));
        }
        let follower = self.followers.take(seat)?;
        let changes = self.collection.follow(follower, pids.to_vec());
        self.want_one();
        Ok((View { follower: Some(follower), ..view }, changes))
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
