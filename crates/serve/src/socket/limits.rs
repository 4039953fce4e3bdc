//! The limits for clients and users.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use cgscope_model::follower::Follower;

use super::Peer;
use crate::{
    config::SocketConfig,
    protocol::{Refusal, Word},
    rates::Rates,
    streams::{Stream, Streams},
};

/// One of this many connections is reserved for root.
const ONE_FOR_ROOT_IN: usize = 8;
/// Maximum number of connections and requests that a user may make in quick succession, after a pause.
const BURST: u32 = 100;
/// Time after which a user may make one further connection or request.
const EVERY: Duration = Duration::from_millis(20);
/// Maximum number of users whose connections and requests are counted.
const REMEMBERED: usize = 1_024;
/// Maximum number of different intervals that a user other than root may have at the same time. The number is limited because
/// samples are encoded separately for each interval.
const INTERVALS_PER_USER: usize = 16;
/// Maximum memory of all streams that one user other than root has begun, bytes. A user may always have one stream.
pub(super) const USER_BYTES: usize = 64 << 20;
/// Maximum memory of the streams of all users except root, bytes.
pub(super) const USERS_BYTES: usize = 256 << 20;
/// Maximum number of viewers with `--pid` for a user other than root. BPF has a limited number of marks for such viewers.
const PER_USER: usize = 8;
/// Number of followers that are reserved for root.
const FOR_ROOT: usize = 8;

/// Returns whether a user is root or the daemon's own user.
pub(super) fn is_root(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

impl SocketConfig {
    /// Returns whether a client may see everything. Other clients may not connect.
    pub(super) fn may_see(&self, peer: &Peer) -> bool {
        is_root(peer.uid) || peer.gids.iter().any(|gid| self.viewer_gids.contains(gid))
    }

    /// Returns the interval for a client that requests `asked_ns`, rounded up to a multiple of the shortest interval.
    pub(super) fn interval_ns(&self, asked_ns: u64) -> u64 {
        let shortest_ns = self.shortest_interval.max(1);
        asked_ns.max(1).div_ceil(shortest_ns).saturating_mul(shortest_ns)
    }

    /// Returns how many clients of users other than root may be connected.
    fn clients_of_users(&self) -> usize {
        self.clients - self.clients / ONE_FOR_ROOT_IN
    }

    /// Returns the sentence for a client that has no permission to connect.
    pub(super) fn not_allowed(&self) -> String {
        let viewers = match self.groups_in_words(", ") {
            none if none.is_empty() => " (`viewers` in the daemon's configuration can name a group)".into(),
            viewers => format!(", and members of {viewers} (`usermod -aG`, then log in again)"),
        };
        format!(
            "whoever may connect sees all processes of this host, so only these may: root{viewers}; `--mode coarse` measures your own \
             processes without the daemon"
        )
    }

    /// Returns the sentence for a new client that the server refuses.
    pub(super) fn sentence(&self, refusal: Refusal) -> String {
        match refusal {
            Refusal::OtherUser => self.not_allowed(),
            Refusal::TooManyClients => format!(
                "the limit of viewers is reached ({} in total, {} of them for others than root, {} of each user): close a viewer, or \
                 raise `clients` or `clients_per_user` in the daemon's configuration",
                self.clients,
                self.clients_of_users(),
                self.clients_per_user
            ),
            _ => "you connect or send requests too fast: wait a second".into(),
        }
    }
}

/// The connected clients, and how often each user has connected and sent requests.
#[derive(Debug)]
pub(super) struct Clients {
    /// The user of each connected client.
    connected: Vec<u32>,
    pub(super) rates: Rates<u32>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { connected: Vec::new(), rates: Rates::new(BURST, EVERY, REMEMBERED) }
    }
}

impl Clients {
    /// Adds a client that belongs to this user. Returns an error if there are too many clients, or the user connects too often.
    pub(super) fn admit(&mut self, uid: u32, limits: &SocketConfig, now: Instant) -> Result<(), Refusal> {
        if !self.rates.take(uid, now) {
            return Err(Refusal::TooManyRequests);
        }
        let count = |which: &dyn Fn(u32) -> bool| self.connected.iter().filter(|uid| which(**uid)).count();
        if self.connected.len() >= limits.clients
            || !is_root(uid) && count(&|user| !is_root(user)) >= limits.clients_of_users()
            || count(&|user| user == uid) >= limits.clients_per_user
        {
            return Err(Refusal::TooManyClients);
        }
        self.connected.push(uid);
        Ok(())
    }

    pub(super) fn leave(&mut self, uid: u32) {
        let at = self.connected.iter().position(|user| *user == uid);
        at.map(|at| self.connected.swap_remove(at));
    }
}

/// Returns an error if the user would have too many different intervals.
pub(super) fn check_interval(streams: &Streams, uid: u32, interval_ns: u64) -> Result<(), Word> {
    let own = || streams.intervals_of(uid);
    if is_root(uid) || own().any(|own| own == interval_ns) || own().count() < INTERVALS_PER_USER {
        return Ok(());
    }
    refused(format!(
        "your viewers already use {INTERVALS_PER_USER} different intervals, the limit for a user: use one of these intervals, or \
         close a viewer"
    ))
}

/// Returns a follower that is not in use. The error says why this user gets no follower, and what to do.
pub(super) fn free_follower(streams: &Streams, uid: u32) -> Result<Follower, Word> {
    let taken: BTreeMap<Follower, u32> = streams.followers().collect();
    let (may_use_all, own) = (is_root(uid), taken.values().filter(|of| **of == uid).count());
    if !may_use_all && own >= PER_USER {
        return refused(format!(
            "you have {PER_USER} viewers that follow processes, the limit for a user: close one, or view all processes"
        ));
    }
    let others = taken.values().filter(|of| !is_root(**of)).count();
    match Follower::all().find(|follower| !taken.contains_key(follower)) {
        Some(free) if may_use_all || others + FOR_ROOT < Follower::all().count() => Ok(free),
        _ => refused(format!(
            "the limit of viewers that follow processes is reached ({} in total, {FOR_ROOT} reserved for root): \
             try again later, or view all processes",
            Follower::all().count()
        )),
    }
}

/// While a memory limit is exceeded, ends the newest stream of the user whose streams use most. Each user keeps one stream.
pub(super) fn bound_memory(streams: &mut Streams, user_bytes: usize, users_bytes: usize) {
    loop {
        // For each user, the memory of the streams in bytes, and the streams in the order in which they were created.
        let mut users: BTreeMap<u32, (usize, BTreeMap<u64, &mut Stream>)> = BTreeMap::new();
        for stream in streams.going_on().filter(|stream| !is_root(stream.account)) {
            let (bytes, own) = users.entry(stream.account).or_default();
            *bytes += stream.bytes();
            own.insert(stream.made, stream);
        }
        let all: usize = users.values().map(|(bytes, _)| bytes).sum();
        let most = users.into_values().filter(|(_, own)| own.len() > 1).max_by_key(|(bytes, _)| *bytes);
        let Some((_, mut own)) = most.filter(|(bytes, _)| *bytes > user_bytes || all > users_bytes) else {
            return;
        };
        if let Some((_, newest)) = own.pop_last() {
            newest.end(Word::refused(
                Refusal::TooManyClients,
                format!(
                    "your viewers use too much of the daemon's memory (limits: {} MiB for a user, {} MiB for all users), so the \
                     newest viewer is closed: view fewer processes, or use fewer different intervals",
                    USER_BYTES >> 20,
                    USERS_BYTES >> 20
                ),
            ));
        }
    }
}

fn refused<T>(sentence: String) -> Result<T, Word> {
    Err(Word::refused(Refusal::TooManyClients, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{Cursor, StreamKind};

    const USER: u32 = 61_000;

    fn limits() -> SocketConfig {
        SocketConfig { clients: 5, clients_per_user: 3, ..SocketConfig::default() }
    }

    #[test]
    fn clients_are_limited_for_each_user_and_in_total() {
        let (mut users, now) = (Clients::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(users.admit(USER + 1, &limits(), now), Ok(()));
        }
        assert_eq!(users.admit(USER + 1, &limits(), now), Err(Refusal::TooManyClients));
        for _ in 0..2 {
            assert_eq!(users.admit(USER + 2, &limits(), now), Ok(()));
        }
        assert_eq!(users.admit(USER + 3, &limits(), now), Err(Refusal::TooManyClients));
        users.leave(USER + 1);
        assert_eq!(users.admit(USER + 3, &limits(), now), Ok(()));
        assert_eq!(users.connected.len(), 5);
    }

    #[test]
    fn some_connections_stay_reserved_for_root_after_the_limits_change() {
        let (mut users, now) = (Clients::default(), Instant::now());
        let many = SocketConfig { clients: 32, clients_per_user: 32, ..SocketConfig::default() };
        let admitted = (0..100).filter(|n| users.admit(USER + n % 7, &many, now).is_ok()).count();
        assert_eq!(admitted, 28, "an eighth is reserved");
        let root = 0;
        let fewer = SocketConfig { clients: 30, ..many.clone() };
        assert_eq!(users.admit(root, &fewer, now), Ok(()));
        assert_eq!(users.admit(root, &fewer, now), Ok(()));
        assert_eq!(users.admit(root, &fewer, now), Err(Refusal::TooManyClients));
        users.leave(root);
        assert_eq!(users.admit(USER + 1, &fewer, now), Err(Refusal::TooManyClients), "reserved");
        (0..2).for_each(|_| users.leave(USER + 1));
        assert_eq!(users.admit(USER + 1, &fewer, now), Ok(()), "26 of the 27 that users have now");
        assert_eq!(users.admit(USER + 1, &fewer, now), Err(Refusal::TooManyClients));
        assert_eq!(users.admit(USER + 1, &many, now), Ok(()));
    }

    #[test]
    fn only_a_user_who_connects_too_fast_must_wait() {
        let (mut users, now) = (Clients::default(), Instant::now());
        users.admit(USER + 1, &limits(), now).unwrap();
        let taken = (0..1_000).filter(|_| users.rates.take(USER + 1, now)).count();
        assert_eq!(taken, BURST as usize - 1);
        assert_eq!(users.admit(USER + 1, &limits(), now), Err(Refusal::TooManyRequests));
        assert_eq!(users.admit(USER + 2, &limits(), now), Ok(()));
        let later = now + Duration::from_millis(100);
        let taken = (0..1_000).filter(|_| users.rates.take(USER + 1, later)).count();
        assert_eq!(taken, 5);
    }

    #[test]
    fn entries_of_users_without_connections_are_dropped() {
        let (mut users, now) = (Clients::default(), Instant::now());
        for account in 0..5_000 {
            users.admit(USER + account, &limits(), now).unwrap();
            users.leave(USER + account);
        }
        assert!(users.connected.is_empty());
    }

    fn follow(streams: &mut Streams, uid: u32) -> Result<Cursor, Word> {
        let kind = StreamKind { follower: Some(free_follower(streams, uid)?), interval_ns: 1 };
        Ok(streams.join(kind, uid, 0).unwrap())
    }

    #[test]
    fn followers_of_a_user_are_limited_and_others_still_get_one() {
        let mut streams = Streams::default();
        let first = follow(&mut streams, USER).unwrap();
        (1..PER_USER).for_each(|_| assert!(follow(&mut streams, USER).is_ok()));
        let word = follow(&mut streams, USER).unwrap_err();
        assert_eq!(word.refused, Some(Refusal::TooManyClients));
        assert!(word.sentence.contains("you have 8 viewers"), "{}", word.sentence);
        assert!(follow(&mut streams, USER + 1).is_ok() && follow(&mut streams, 0).is_ok());
        streams.leave(&first, USER);
        assert_eq!(follow(&mut streams, USER).map(|again| again.kind), Ok(first.kind));
    }

    #[test]
    fn some_followers_are_reserved_for_root() {
        let mut streams = Streams::default();
        let taken = (0..100).filter(|n| follow(&mut streams, USER + n).is_ok()).count();
        let all = Follower::all().count();
        assert_eq!(taken, all - FOR_ROOT);
        let of_root = (0..100).filter(|_| follow(&mut streams, 0).is_ok()).count();
        assert_eq!(of_root, FOR_ROOT);
        assert!(follow(&mut streams, USER).unwrap_err().sentence.contains("limit of viewers that follow"));
    }
}
