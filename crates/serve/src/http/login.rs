//! Checks passwords one at a time, in separate tasks, and pauses after a wrong one. Wrong passwords are counted by address, so
//! that guessing is stopped early and does not slow down other clients.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::header::{AUTHORIZATION, HeaderMap};
use tokio::{
    sync::Semaphore,
    task,
    time::{Instant, sleep},
};

use super::{
    HttpRefusal, beside,
    users::{Credentials, PasswordFile},
};
use crate::lock;

/// Maximum number of passwords that wait to be checked; one is checked at a time.
const WAITING_LOGINS: usize = 16;
/// The pause after a wrong password, as a multiple of the time that the check took. So guessing uses at most a fifth of one CPU.
const REST_AFTER_WRONG: u32 = 4;
/// Number of wrong passwords in a row that cause no delay for an address.
const FREE_GUESSES: u32 = 5;
/// How long an address must wait for every further wrong password.
const GUESS_EVERY: Duration = Duration::from_secs(2);
/// Maximum number of addresses whose wrong passwords are recorded.
const GUESSERS: usize = 1024;

pub(super) struct Login {
    /// Held while a password is checked, and during the pause after a wrong one.
    turn: Arc<Semaphore>,
    room: Arc<Semaphore>,
    guesses: Arc<Mutex<Guesses>>,
}

impl Login {
    pub(super) fn new() -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            room: Arc::new(Semaphore::new(WAITING_LOGINS)),
            guesses: Arc::default(),
        }
    }

    /// Checks whether the client at this address may read.
    pub(super) async fn check(
        &self,
        users: &Arc<PasswordFile>,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<(), HttpRefusal> {
        let Some(credentials) = credentials(headers) else { return Err(HttpRefusal::Unauthorized) };
        if users.remember(&credentials) {
            return Ok(());
        }
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            return Err(HttpRefusal::Guessing);
        };
        if !lock(&self.guesses).book(address, Instant::now()) {
            return Err(HttpRefusal::Guessing);
        }
        let (turn, guesses, users) = (self.turn.clone(), self.guesses.clone(), users.clone());
        // A separate task: a client cannot skip the pause by disconnecting, and a password found to be right is still recorded.
        let checked = task::spawn(async move {
            let right = verify(turn, users, credentials).await;
            drop(place);
            if right {
                lock(&guesses).give_back(address);
            }
            right
        });
        if checked.await.unwrap_or(false) { Ok(()) } else { Err(HttpRefusal::Unauthorized) }
    }
}

async fn verify(turn: Arc<Semaphore>, users: Arc<PasswordFile>, credentials: Credentials) -> bool {
    let Ok(turn) = turn.acquire_owned().await else { return false };
    if users.remember(&credentials) {
        return true;
    }
    let check = move || {
        let start = Instant::now();
        let right = users.verify(&credentials);
        (right, start.elapsed())
    };
    let (right, took) = beside(check).await.unwrap_or_default();
    if !right {
        task::spawn(async move {
            sleep(took * REST_AFTER_WRONG).await;
            drop(turn);
        });
    }
    right
}

/// Parses `Authorization: Basic ...` (RFC 7617).
fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut name = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = name.iter().position(|byte| *byte == b':')?;
    let password = name.split_off(colon + 1);
    name.pop();
    Some(Credentials { name: String::from_utf8(name).ok()?, password })
}

/// For each address, the time when all its wrong passwords have expired. Each adds [`GUESS_EVERY`] to that time.
#[derive(Default)]
struct Guesses {
    paid_at: HashMap<IpAddr, Instant>,
}

impl Guesses {
    /// Counts a password as wrong before it is checked. Returns false if too many were wrong: then it must not be checked.
    fn book(&mut self, address: IpAddr, now: Instant) -> bool {
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

    /// Removes one count, because the password was right.
    fn give_back(&mut self, address: IpAddr) {
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

/// An IPv6 address counts as its /64 network, because one owner usually has the whole network.
fn one_site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn parsed(value: &str) -> Option<(String, Vec<u8>)> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        credentials(&headers).map(|said| (said.name, said.password))
    }

    #[test]
    fn a_password_may_contain_any_character_and_a_name_any_but_a_colon() {
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        assert_eq!(parsed(&basic("a:b:c")), Some(("a".into(), b"b:c".to_vec())));
        assert_eq!(parsed(&basic("é:")), Some(("é".into(), Vec::new())));
        assert_eq!(parsed("bAsIc   YTpi "), Some(("a".into(), b"b".to_vec())));
    }

    #[test]
    fn other_headers_are_not_basic_authentication() {
        for value in
            ["", "Basic", "Basic ", "Basic YQ==", "Basic !", "Bearer YTpi", "Basic /zpi", "Basic YTpi YTpi"]
        {
            assert_eq!(parsed(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_header_causes_a_panic(said in proptest::collection::vec(any::<u8>(), 0..40), encoded: bool) {
            let rest = if encoded { BASE64_STANDARD.encode(&said).into_bytes() } else { said.clone() };
            if let Ok(value) = HeaderValue::from_bytes(&[b"Basic ", &rest[..]].concat()) {
                let found = credentials(&HeaderMap::from_iter([(AUTHORIZATION, value)]));
                let back = found.map(|found| [found.name.as_bytes(), b":", &found.password].concat());
                prop_assert!(!encoded || back.is_none_or(|back| back == said));
            }
        }
    }
}

#[cfg(test)]
mod tests_of_guesses {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_a_few_guesses_and_then_must_wait_for_each() {
        let (mut guesses, start) = (Guesses::default(), Instant::now());
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let in_a_row = (0..100).filter(|_| guesses.book(one, start)).count();
        assert_eq!(in_a_row, FREE_GUESSES as usize);
        assert!(guesses.book(other, start), "each address has its own count");
        assert!(!guesses.book(one, start + GUESS_EVERY / 2));
        assert!(guesses.book(one, start + GUESS_EVERY) && !guesses.book(one, start + GUESS_EVERY));
        guesses.give_back(one);
        assert!(guesses.book(one, start + GUESS_EVERY), "a right password is not counted");
    }

    #[test]
    fn addresses_of_an_ipv6_network_count_as_one() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let booked = (0..100).filter(|n| guesses.book(address(&format!("2001:db8::{n:x}")), now)).count();
        assert_eq!(booked, FREE_GUESSES as usize);
        assert!(guesses.book(address("2001:db8:0:1::1"), now));
    }

    #[test]
    fn the_number_of_recorded_addresses_is_limited() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        for n in 0..5 * GUESSERS as u32 {
            assert!(guesses.book(IpAddr::V4(n.into()), now));
        }
        assert_eq!(guesses.paid_at.len(), GUESSERS);
    }
}
