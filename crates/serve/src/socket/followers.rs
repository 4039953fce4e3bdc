//! Viewers that follow processes. The kernel's marks are limited in number, so each user may have a few of them.

use std::collections::BTreeMap;

use cgscope_model::access::Follower;

use super::users::CountedFor;
use crate::protocol::{Refusal, Word};

/// Viewers with `--pid` of one user who may not see everything.
pub(super) const PER_USER: usize = 8;
/// As many are kept for those who may see everything.
const FOR_ADMINS: usize = 8;

/// Those that are in use, and for whom each counts.
#[derive(Debug, Default)]
pub(super) struct Followers(BTreeMap<Follower, CountedFor>);

impl Followers {
    /// Takes one.
    ///
    /// # Errors
    /// There is none for this user: why, and what to do.
    pub(super) fn take(&mut self, seat: CountedFor) -> Result<Follower, Word> {
        let others = self.0.values().filter(|seat| !seat.is_admin);
        let own = others.clone().filter(|other| other.account == seat.account).count();
        let free = Follower::all().find(|follower| !self.0.contains_key(follower));
        let refused = |sentence: String| Err(Word::refused(Refusal::TooManyClients, sentence));
        if !seat.is_admin && own >= PER_USER {
            return refused(format!(
                "you have {PER_USER} viewers that follow processes, as many as a user may: end one, or look at all processes"
            ));
        }
        match free {
            Some(follower) if seat.is_admin || others.count() + FOR_ADMINS < Follower::all().count() => {
                self.0.insert(follower, seat);
                Ok(follower)
            }
            _ => refused(format!(
                "as many viewers follow processes as the daemon can serve ({} in all, {FOR_ADMINS} of them for those who may see \
                 everything): try again later, or look at all processes",
                Follower::all().count()
            )),
        }
    }

    /// It is free again.
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

    fn user(account: u32) -> CountedFor {
        CountedFor { account, is_admin: false }
    }

    const ADMIN: CountedFor = CountedFor { account: 0, is_admin: true };

    #[test]
    fn a_user_follows_so_many_and_others_and_admins_still_can() {
        let mut followers = Followers::default();
        let first = followers.take(user(1)).unwrap();
        (1..PER_USER).for_each(|_| assert!(followers.take(user(1)).is_ok()));
        let word = followers.take(user(1)).unwrap_err();
        assert_eq!(word.refused, Some(Refusal::TooManyClients));
        assert!(word.sentence.contains("you have 8 viewers"), "{}", word.sentence);
        assert!(followers.take(user(2)).is_ok() && followers.take(ADMIN).is_ok());
        followers.give_back(first);
        assert_eq!(followers.take(user(1)), Ok(first));
    }

    #[test]
    fn all_users_together_leave_some_to_admins() {
        let mut followers = Followers::default();
        let taken = (0..100).filter(|account| followers.take(user(*account)).is_ok()).count();
        let all = Follower::all().count();
        assert_eq!(taken, all - FOR_ADMINS);
        let admins = (0..100).filter(|_| followers.take(ADMIN).is_ok()).count();
        assert_eq!(admins, FOR_ADMINS);
        assert!(followers.take(user(0)).unwrap_err().sentence.contains("as many viewers follow processes"));
    }
}
