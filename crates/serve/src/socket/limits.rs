//! Limits for clients and users, and counters of clients.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use cgscope_model::follower::Follower;

use crate::protocol::{Refusal, Word};

/// One in this many connections is reserved for root.
const ONE_FOR_ROOT_IN: usize = 8;

/// What clients may do.
#[derive(Clone, Debug)]
pub struct ViewerLimits {
    /// Users who may connect, besides root and the daemon's own user.
    pub viewer_uids: Vec<u32>,
    /// Groups whose members may connect.
    pub viewer_gids: Vec<u32>,
    /// What these groups are called.
    pub viewers: String,
    /// The shortest interval, ns. All other intervals are multiples of it.
    pub shortest_interval_ns: u64,
    /// Maximum number of clients at a time.
    pub clients: usize,
    /// Maximum number of clients of one user at a time.
    pub clients_per_user: usize,
    /// Disconnect a client that reads nothing, or requests nothing after connecting, for this long.
    pub patience: Duration,
}

impl ViewerLimits {
    /// Returns the interval at which a client that requests this one gets samples: the next multiple of the shortest interval.
    pub(super) fn interval_ns(&self, asked_ns: u64) -> u64 {
        let shortest_ns = self.shortest_interval_ns.max(1);
        asked_ns.max(1).div_ceil(shortest_ns).saturating_mul(shortest_ns)
    }

    /// Returns the maximum number of clients, at a time, that are not root's.
    fn clients_of_users(&self) -> usize {
        self.clients - self.clients / ONE_FOR_ROOT_IN
    }

    /// Returns the sentence with which a client is refused who may not connect.
    pub(super) fn not_allowed(&self) -> String {
        let viewers = match self.viewers.as_str() {
            "" => " (`viewers` in the daemon's configuration can name a group)".into(),
            viewers => format!(", and members of {viewers} (`usermod -aG`, then log in again)"),
        };
        format!(
            "whoever may connect sees all processes of this host, so only these may: root{viewers}; `--mode coarse` measures your own \
             processes without the daemon"
        )
    }

    /// Returns the sentence with which a new client is refused.
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

impl Default for ViewerLimits {
    fn default() -> Self {
        Self {
            viewer_uids: Vec::new(),
            viewer_gids: Vec::new(),
            viewers: String::new(),
            shortest_interval_ns: 100_000_000,
            clients: 128,
            clients_per_user: 64,
            patience: Duration::from_secs(30),
        }
    }
}

/// Counters of clients, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Clients that are connected now.
    pub clients: AtomicU64,
    /// Requests that were accepted.
    pub requests: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Counters {
    /// Returns how many clients were refused or disconnected for this reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Ordering::Relaxed)
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// How many connections and requests a user may make at once after a pause.
const BURST: f64 = 100.0;
/// How many connections and requests a user may make per second.
const PER_SECOND: f64 = 50.0;
/// Above this many users, entries of users without connections are dropped.
const REMEMBERED: usize = 1_024;

/// The account whose limits a client counts towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountedFor {
    /// The user id.
    pub(super) account: u32,
    /// Whether it is root, or the daemon's own user.
    pub(super) is_root: bool,
}

/// Users who are connected, or were recently.
#[derive(Debug, Default)]
pub(super) struct UserLimits {
    users: HashMap<u32, User>,
    /// Number of connected clients.
    pub(super) clients: usize,
    /// Number of connected clients that are not root's.
    others: usize,
}

#[derive(Debug)]
struct User {
    clients: usize,
    left: f64,
    at: Instant,
}

impl User {
    fn take(&mut self, now: Instant) -> bool {
        let rested = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + rested * PER_SECOND).min(BURST);
        self.at = now;
        let has_one = self.left >= 1.0;
        self.left -= f64::from(has_one);
        has_one
    }
}

impl UserLimits {
    /// Adds a client of a user. Returns an error if there are too many clients, or they connect too fast.
    pub(super) fn admit(
        &mut self,
        seat: CountedFor,
        limits: &ViewerLimits,
        now: Instant,
    ) -> Result<(), Refusal> {
        if self.users.len() >= REMEMBERED {
            self.users.retain(|_, user| user.clients > 0);
        }
        let is_full =
            self.clients >= limits.clients || (!seat.is_root && self.others >= limits.clients_of_users());
        let user = self.users.entry(seat.account).or_insert(User { clients: 0, left: BURST, at: now });
        if !user.take(now) {
            return Err(Refusal::TooManyRequests);
        }
        if is_full || user.clients >= limits.clients_per_user {
            return Err(Refusal::TooManyClients);
        }
        user.clients += 1;
        self.clients += 1;
        self.others += usize::from(!seat.is_root);
        Ok(())
    }

    pub(super) fn leave(&mut self, seat: CountedFor) {
        if let Some(user) = self.users.get_mut(&seat.account) {
            user.clients -= 1;
            self.clients -= 1;
            self.others -= usize::from(!seat.is_root);
        }
    }

    /// Counts a request of a connected client. Returns false if requests arrive too fast.
    pub(super) fn request(&mut self, account: u32, now: Instant) -> bool {
        self.users.get_mut(&account).is_some_and(|user| user.take(now))
    }
}

/// Maximum number of viewers with `--pid` for one user other than root.
const PER_USER: usize = 8;
/// Number of followers reserved for root.
const FOR_ROOT: usize = 8;

/// The viewers that follow processes, each with its account. The BPF side has a limited number of marks, so each user gets only a
/// few.
#[derive(Debug, Default)]
pub(super) struct Followers(BTreeMap<Follower, CountedFor>);

impl Followers {
    /// Takes a free follower. An error says why none is available to this user, and what to do.
    pub(super) fn take(&mut self, seat: CountedFor) -> Result<Follower, Word> {
        let others = self.0.values().filter(|seat| !seat.is_root);
        let own = others.clone().filter(|other| other.account == seat.account).count();
        let free = Follower::all().find(|follower| !self.0.contains_key(follower));
        let refused = |sentence: String| Err(Word::refused(Refusal::TooManyClients, sentence));
        if !seat.is_root && own >= PER_USER {
            return refused(format!(
                "you have {PER_USER} viewers that follow processes, the limit for a user: close one, or view all processes"
            ));
        }
        match free {
            Some(follower) if seat.is_root || others.count() + FOR_ROOT < Follower::all().count() => {
                self.0.insert(follower, seat);
                Ok(follower)
            }
            _ => refused(format!(
                "the limit of viewers that follow processes is reached ({} in total, {FOR_ROOT} reserved for root): \
                 try again later, or view all processes",
                Follower::all().count()
            )),
        }
    }

    pub(super) fn give_back(&mut self, follower: Follower) {
        self.0.remove(&follower);
    }

    #[cfg(test)]
    pub(super) fn has(&self, follower: Follower) -> bool {
        self.0.contains_key(&follower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ViewerLimits {
        ViewerLimits { clients: 5, clients_per_user: 3, ..ViewerLimits::default() }
    }

    fn user(account: u32) -> CountedFor {
        CountedFor { account, is_root: false }
    }

    #[test]
    fn clients_are_limited_for_each_user_and_in_total() {
        let (mut users, now) = (UserLimits::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(users.admit(user(1), &limits(), now), Ok(()));
        }
        assert_eq!(users.admit(user(1), &limits(), now), Err(Refusal::TooManyClients));
        for _ in 0..2 {
            assert_eq!(users.admit(user(2), &limits(), now), Ok(()));
        }
        assert_eq!(users.admit(user(3), &limits(), now), Err(Refusal::TooManyClients));
        users.leave(user(1));
        assert_eq!(users.admit(user(3), &limits(), now), Ok(()));
        assert_eq!(users.clients, 5);
    }

    #[test]
    fn some_connections_stay_reserved_for_root_after_the_limits_change() {
        let (mut users, now) = (UserLimits::default(), Instant::now());
        let many = ViewerLimits { clients: 32, clients_per_user: 32, ..ViewerLimits::default() };
        let admitted = (0..100).filter(|n| users.admit(user(n % 7), &many, now).is_ok()).count();
        assert_eq!(admitted, 28, "an eighth is reserved");
        let root = CountedFor { account: 0, is_root: true };
        let fewer = ViewerLimits { clients: 30, ..many.clone() };
        assert_eq!(users.admit(root, &fewer, now), Ok(()));
        assert_eq!(users.admit(root, &fewer, now), Ok(()));
        assert_eq!(users.admit(root, &fewer, now), Err(Refusal::TooManyClients));
        users.leave(root);
        assert_eq!(users.admit(user(1), &fewer, now), Err(Refusal::TooManyClients), "reserved");
        (0..2).for_each(|_| users.leave(user(1)));
        assert_eq!(users.admit(user(1), &fewer, now), Ok(()), "26 of the 27 that users have now");
        assert_eq!(users.admit(user(1), &fewer, now), Err(Refusal::TooManyClients));
        assert_eq!(users.admit(user(1), &many, now), Ok(()));
    }

    #[test]
    fn only_a_user_who_connects_too_fast_must_wait() {
        let (mut users, now) = (UserLimits::default(), Instant::now());
        users.admit(user(1), &limits(), now).unwrap();
        let taken = (0..1_000).filter(|_| users.request(1, now)).count();
        assert_eq!(taken, BURST as usize - 1);
        assert_eq!(users.admit(user(1), &limits(), now), Err(Refusal::TooManyRequests));
        assert_eq!(users.admit(user(2), &limits(), now), Ok(()));
        let later = now + Duration::from_millis(100);
        let taken = (0..1_000).filter(|_| users.request(1, later)).count();
        assert_eq!(taken, (PER_SECOND / 10.0) as usize);
    }

    #[test]
    fn entries_of_users_without_connections_are_dropped() {
        let (mut users, now) = (UserLimits::default(), Instant::now());
        for account in 0..5_000 {
            users.admit(user(account), &limits(), now).unwrap();
            users.leave(user(account));
        }
        assert!(users.users.len() <= REMEMBERED, "{}", users.users.len());
    }
}

#[cfg(test)]
mod tests_of_followers {
    use super::*;

    fn user(account: u32) -> CountedFor {
        CountedFor { account, is_root: false }
    }

    const ROOT: CountedFor = CountedFor { account: 0, is_root: true };

    #[test]
    fn followers_of_a_user_are_limited_and_others_still_get_one() {
        let mut followers = Followers::default();
        let first = followers.take(user(1)).unwrap();
        (1..PER_USER).for_each(|_| assert!(followers.take(user(1)).is_ok()));
        let word = followers.take(user(1)).unwrap_err();
        assert_eq!(word.refused, Some(Refusal::TooManyClients));
        assert!(word.sentence.contains("you have 8 viewers"), "{}", word.sentence);
        assert!(followers.take(user(2)).is_ok() && followers.take(ROOT).is_ok());
        followers.give_back(first);
        assert_eq!(followers.take(user(1)), Ok(first));
    }

    #[test]
    fn some_followers_are_reserved_for_root() {
        let mut followers = Followers::default();
        let taken = (0..100).filter(|account| followers.take(user(*account)).is_ok()).count();
        let all = Follower::all().count();
        assert_eq!(taken, all - FOR_ROOT);
        let of_root = (0..100).filter(|_| followers.take(ROOT).is_ok()).count();
        assert_eq!(of_root, FOR_ROOT);
        assert!(followers.take(user(0)).unwrap_err().sentence.contains("limit of viewers that follow"));
    }
}
