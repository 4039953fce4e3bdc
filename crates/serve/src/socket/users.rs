//! How much each user may ask for.

use std::{collections::HashMap, time::Instant};

use super::ViewerLimits;
use crate::protocol::Refusal;

/// Connections, and requests, that a user may make at once after a while of rest...
const BURST: f64 = 100.0;
/// ... and in every second.
const PER_SECOND: f64 = 50.0;
/// Above this many users, those without connections are dropped.
const REMEMBERED: usize = 1_024;

/// The user whose limits a client counts towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedFor {
    /// The user id, or its owner's: see `accounts.rs`.
    pub account: u32,
    /// It may see everything.
    pub is_admin: bool,
}

/// Those who are connected, and those who were a moment ago.
#[derive(Debug, Default)]
pub struct UserLimits {
    users: HashMap<u32, User>,
    /// Clients that are connected.
    pub clients: usize,
    /// Those that may not see everything.
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
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }
}

impl UserLimits {
    /// One more client of a user.
    ///
    /// # Errors
    /// There are too many, or they come too fast.
    pub fn admit(&mut self, seat: CountedFor, limits: &ViewerLimits, now: Instant) -> Result<(), Refusal> {
        if self.users.len() >= REMEMBERED {
            self.users.retain(|_, user| user.clients > 0);
        }
        let is_full =
            self.clients >= limits.clients || (!seat.is_admin && self.others >= limits.clients_of_others());
        let user = self.users.entry(seat.account).or_insert(User { clients: 0, left: BURST, at: now });
        if !user.take(now) {
            return Err(Refusal::TooManyRequests);
        }
        if is_full || user.clients >= limits.clients_per_user {
            return Err(Refusal::TooManyClients);
        }
        user.clients += 1;
        self.clients += 1;
        self.others += usize::from(!seat.is_admin);
        Ok(())
    }

    /// One less.
    pub fn leave(&mut self, seat: CountedFor) {
        if let Some(user) = self.users.get_mut(&seat.account) {
            user.clients -= 1;
            self.clients -= 1;
            self.others -= usize::from(!seat.is_admin);
        }
    }

    /// One more request of a client that is connected; false: too fast.
    pub fn request(&mut self, account: u32, now: Instant) -> bool {
        self.users.get_mut(&account).is_some_and(|user| user.take(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> ViewerLimits {
        ViewerLimits { clients: 5, clients_per_user: 3, ..ViewerLimits::default() }
    }

    fn user(account: u32) -> CountedFor {
        CountedFor { account, is_admin: false }
    }

    #[test]
    fn each_user_has_so_many_clients_and_all_together_so_many() {
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
    fn some_connections_are_kept_for_who_may_see_everything_also_after_the_limits_changed() {
        let (mut users, now) = (UserLimits::default(), Instant::now());
        let many = ViewerLimits { clients: 32, clients_per_user: 32, ..ViewerLimits::default() };
        let admitted = (0..100).filter(|n| users.admit(user(n % 7), &many, now).is_ok()).count();
        assert_eq!(admitted, 28, "an eighth is kept");
        let admin = CountedFor { account: 0, is_admin: true };
        let fewer = ViewerLimits { clients: 30, ..many.clone() };
        assert_eq!(users.admit(admin, &fewer, now), Ok(()));
        assert_eq!(users.admit(admin, &fewer, now), Ok(()));
        assert_eq!(users.admit(admin, &fewer, now), Err(Refusal::TooManyClients));
        users.leave(admin);
        assert_eq!(users.admit(user(1), &fewer, now), Err(Refusal::TooManyClients), "it is an admin's");
        (0..2).for_each(|_| users.leave(user(1)));
        assert_eq!(users.admit(user(1), &fewer, now), Ok(()), "26 of the 27 that users have now");
        assert_eq!(users.admit(user(1), &fewer, now), Err(Refusal::TooManyClients));
        assert_eq!(users.admit(user(1), &many, now), Ok(()));
    }

    #[test]
    fn who_comes_too_fast_waits_and_nobody_else_does() {
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
    fn those_who_left_are_forgotten() {
        let (mut users, now) = (UserLimits::default(), Instant::now());
        for account in 0..5_000 {
            users.admit(user(account), &limits(), now).unwrap();
            users.leave(user(account));
        }
        assert!(users.users.len() <= REMEMBERED, "{}", users.users.len());
    }
}
