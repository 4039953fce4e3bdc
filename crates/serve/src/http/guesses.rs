//! Wrong passwords by address, so that guessing ends early and costs others nothing.

use std::{collections::HashMap, net::IpAddr};

use tokio::time::Instant;

use super::limits::{FREE_GUESSES, GUESS_EVERY, GUESSERS};

/// When each address will have paid for its wrong passwords.
#[derive(Default)]
pub(super) struct Guesses {
    paid_at: HashMap<IpAddr, Instant>,
}

impl Guesses {
    /// Books a password that is to be checked, as if it were wrong. False: too many were wrong, and it is not to be checked.
    pub(super) fn book(&mut self, address: IpAddr, now: Instant) -> bool {
        let address = one_site(address);
        let paid_at = self.paid_at.get(&address).copied().unwrap_or(now).max(now);
        if paid_at > now + GUESS_EVERY * (FREE_GUESSES - 1) {
            return false;
        }
        if !self.paid_at.contains_key(&address) {
            self.make_room(now);
        }
        self.paid_at.insert(address, paid_at + GUESS_EVERY);
        true
    }

    /// It was right after all.
    pub(super) fn give_back(&mut self, address: IpAddr) {
        if let Some(paid_at) = self.paid_at.get_mut(&one_site(address)) {
            *paid_at -= GUESS_EVERY;
        }
    }

    fn make_room(&mut self, now: Instant) {
        if self.paid_at.len() < GUESSERS {
            return;
        }
        self.paid_at.retain(|_, paid_at| *paid_at > now);
        if self.paid_at.len() >= GUESSERS
            && let Some(least) = self.paid_at.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address)
        {
            self.paid_at.remove(&least);
        }
    }
}

/// An address of IPv6 stands for its /64 network: its owner usually has all of it.
fn one_site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_a_few_guesses_and_then_one_at_a_time() {
        let (mut guesses, start) = (Guesses::default(), Instant::now());
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let in_a_row = (0..100).filter(|_| guesses.book(one, start)).count();
        assert_eq!(in_a_row, FREE_GUESSES as usize);
        assert!(guesses.book(other, start), "another address pays for itself");
        assert!(!guesses.book(one, start + GUESS_EVERY / 2));
        assert!(guesses.book(one, start + GUESS_EVERY) && !guesses.book(one, start + GUESS_EVERY));
        guesses.give_back(one);
        assert!(guesses.book(one, start + GUESS_EVERY), "a right password costs nothing");
    }

    #[test]
    fn the_addresses_of_a_network_of_ipv6_are_one() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let booked = (0..100).filter(|n| guesses.book(address(&format!("2001:db8::{n:x}")), now)).count();
        assert_eq!(booked, FREE_GUESSES as usize);
        assert!(guesses.book(address("2001:db8:0:1::1"), now));
    }

    #[test]
    fn many_addresses_are_not_remembered_without_bound() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        for n in 0..5 * GUESSERS as u32 {
            assert!(guesses.book(IpAddr::V4(n.into()), now));
        }
        assert_eq!(guesses.paid_at.len(), GUESSERS);
    }
}
