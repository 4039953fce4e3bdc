//! Checks passwords one at a time, in separate tasks, and pauses after a wrong one. Wrong passwords are counted by address, so
//! that guessing is stopped early and does not slow down other clients. The users who may read are in a file of lines `NAME:HASH` with
//! bcrypt hashes, as `htpasswd -B` writes them.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::{hmac, rand::SystemRandom};
use tokio::{
    sync::Semaphore,
    task,
    time::{Instant, sleep},
};

use crate::{
    http::{Error, HttpRefusal, answer::read_file, beside, watch::network},
    lock,
};

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
        let address = network(address);
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
        if let Some(paid_at) = self.paid_at.get_mut(&network(address)) {
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

/// Maximum bcrypt cost. At this cost a check takes one or two seconds, and a scrape times out after ten.
const HIGHEST_COST: u32 = 15;

const AS_HTPASSWD: &str = "write lines as `htpasswd -nB NAME` prints them";

/// The users that were read from the file.
pub(super) struct PasswordFile {
    by_name: HashMap<String, Arc<User>>,
    /// A random key for each process, so that a tag reveals nothing about the password.
    key: hmac::Key,
    /// A hash with the highest cost in the file, used for unknown names: the response time must not reveal that a name is
    /// unknown.
    nobody: String,
}

struct User {
    hash: String,
    /// The tag of the password that bcrypt has verified. Bcrypt is slow by design, and a scrape comes every few seconds.
    verified: Mutex<Option<hmac::Tag>>,
}

/// The name and password in a request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) name: String,
    pub(super) password: Vec<u8>,
}

impl PasswordFile {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(path, &String::from_utf8_lossy(&read_file("users", path)?))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let mut by_name = HashMap::new();
        let mut dearest = (0, String::new());
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |(why, remedy): (String, _)| {
                Error::new(format!("line {} of {} {why}", at + 1, path.display()), remedy)
            };
            let (name, hash, cost) = user(line).map_err(wrong)?;
            if cost > dearest.0 {
                dearest = (cost, hash.into());
            }
            match by_name.entry(name.to_owned()) {
                Entry::Occupied(_) => {
                    let why = "repeats the name of an earlier line";
                    return Err(wrong((why.into(), "keep only one line for each name")));
                }
                Entry::Vacant(place) => {
                    place.insert(Arc::new(User { hash: hash.into(), verified: Mutex::new(None) }))
                }
            };
        }
        if by_name.is_empty() {
            return Err(Error::new(format!("{} lists no user", path.display()), AS_HTPASSWD));
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| {
            let what = "the kernel has no random numbers yet".into();
            Error::new(what, "restart the daemon in a minute")
        })?;
        Ok(Self { by_name, key, nobody: dearest.1 })
    }

    /// Keeps the verified passwords of an earlier read for users with the same hash, and those being verified. Otherwise users
    /// who were logged in would have to be verified again, and others could block this by sending guessed passwords.
    pub(super) fn keeping(mut self, before: &Self) -> Self {
        self.key = before.key.clone();
        for (name, user) in &mut self.by_name {
            if let Some(same) = before.by_name.get(name).filter(|before| before.hash == user.hash) {
                *user = same.clone();
            }
        }
        self
    }

    /// Whether this password was verified before. Takes microseconds, and equally long for a wrong password.
    pub(super) fn remember(&self, credentials: &Credentials) -> bool {
        let Some(user) = self.by_name.get(&credentials.name) else { return false };
        let Some(tag) = *lock(&user.verified) else { return false };
        hmac::verify(&self.key, &credentials.password, tag.as_ref()).is_ok()
    }

    /// Checks a password with bcrypt, and keeps its tag if it is right. This is slow: call it only on a thread without other
    /// work.
    pub(super) fn verify(&self, credentials: &Credentials) -> bool {
        let user = self.by_name.get(&credentials.name);
        let hash = user.map_or(&self.nobody, |user| &user.hash);
        let right = bcrypt::verify(&credentials.password, hash).unwrap_or(false);
        match user {
            Some(user) if right => {
                *lock(&user.verified) = Some(hmac::sign(&self.key, &credentials.password));
                true
            }
            _ => false,
        }
    }
}

/// Parses a line into name, hash and cost. The error says what is wrong, and what to do.
fn user(line: &str) -> Result<(&str, &str, u32), (String, &'static str)> {
    let wrong = |why: &str| (why.to_owned(), AS_HTPASSWD);
    let (name, hash) = line.split_once(':').ok_or_else(|| wrong("is not NAME:HASH"))?;
    if name.is_empty() || name.contains(char::is_control) {
        return Err(wrong("is not NAME:HASH"));
    }
    let cost = cost(hash).ok_or_else(|| wrong("has a hash that is not bcrypt's"))?;
    if cost > HIGHEST_COST {
        let why = format!(
            "has a bcrypt cost of {cost}: above {HIGHEST_COST}, a scrape times out before its password is checked"
        );
        return Err((why, "create the line again with `htpasswd -nB -C 10 NAME`"));
    }
    Ok((name, hash, cost))
}

/// Parses the cost in a bcrypt hash: `$2y$10$` and 53 characters of bcrypt's alphabet.
fn cost(hash: &str) -> Option<u32> {
    let rest = ["$2y$", "$2b$", "$2a$"].iter().find_map(|version| hash.strip_prefix(version))?;
    let (cost, digest) = rest.split_once('$')?;
    let letters = digest.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'/'));
    let cost = (cost.len() == 2).then(|| cost.parse::<u32>().ok()).flatten()?;
    (digest.len() == 53 && letters && (4..=31).contains(&cost)).then_some(cost)
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

#[cfg(test)]
mod users_tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<PasswordFile, Error> {
        PasswordFile::parse(Path::new("users"), text)
    }

    fn says(name: &str, password: &str) -> Credentials {
        Credentials { name: name.into(), password: password.into() }
    }

    fn line(name: &str, password: &str) -> String {
        format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
    }

    #[test]
    fn a_right_password_is_kept_and_a_wrong_one_is_not() {
        let users = parse(&format!("# who\n\n{}{}", line("a", "one"), line("b", "two"))).unwrap();
        assert!(!users.remember(&says("a", "one")), "nothing was checked yet");
        assert!(!users.verify(&says("a", "two")) && !users.remember(&says("a", "two")));
        assert!(users.verify(&says("a", "one")) && users.remember(&says("a", "one")));
        assert!(!users.remember(&says("b", "one")) && !users.remember(&says("a", "onE")));
        assert!(!users.verify(&says("c", "one")) && !users.verify(&says("", "")));
        assert!(users.remember(&says("a", "one")), "wrong passwords do not remove the right one");
    }

    #[test]
    fn a_reload_keeps_verified_passwords_whose_hash_is_unchanged() {
        let (a, b, c) = (line("a", "one"), line("b", "two"), line("c", "three"));
        let first = parse(&[&*a, &*b, &*c].concat()).unwrap();
        for (name, password) in [("a", "one"), ("b", "two")] {
            assert!(first.verify(&says(name, password)));
        }
        let renewed = parse(&[&*a, &*line("b", "two"), &*c, &*line("d", "one")].concat()).unwrap();
        let renewed = renewed.keeping(&first);
        assert!(renewed.remember(&says("a", "one")) && !renewed.remember(&says("a", "two")));
        assert!(!renewed.remember(&says("b", "two")), "another hash is another password");
        assert!(!renewed.remember(&says("d", "one")) && renewed.verify(&says("d", "one")));
        assert!(first.verify(&says("c", "three")));
        assert!(renewed.remember(&says("c", "three")), "a check during the reload is kept");
        let without = parse(&c).unwrap().keeping(&renewed);
        assert!(!without.remember(&says("a", "one")) && !without.verify(&says("a", "one")));
    }

    #[test]
    fn an_unknown_name_is_refused_with_any_password() {
        let users = parse(&line("a", "one")).unwrap();
        assert!(!users.verify(&says("b", "one")), "an unknown name is checked against the hash of `a`");
    }

    #[test]
    fn a_hash_from_htpasswd_is_accepted() {
        // Printed by `htpasswd -nbB -C 5 prometheus secret` of Apache 2.4.
        let users = parse("prometheus:$2y$05$lLuTxFE7iYFzL8rEtGucWO8vRpMYD8VBC7IWogqswUzsfRhwYzk4O").unwrap();
        assert!(users.verify(&says("prometheus", "secret")) && !users.verify(&says("prometheus", "Secret")));
    }

    #[test]
    fn an_error_names_the_number_of_the_bad_line() {
        let digest = "A".repeat(53);
        let (form, hash) = ("is not NAME:HASH", "has a hash that is not bcrypt's");
        for (text, line, why) in [
            ("a".to_owned(), 1, form),
            (format!("\n:$2y$10${digest}"), 2, form),
            ("# x\na:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=".into(), 2, hash),
            ("a:$apr1$x$y".into(), 1, hash),
            (format!("a:$2y$10${digest}A"), 1, hash),
            (format!("a:$2y$1é${digest}"), 1, hash),
            (format!("a:$2y$03${digest}"), 1, hash),
            (format!("a:$2y$20${digest}"), 1, "has a bcrypt cost of 20: above 15, a scrape"),
            (format!("a:$2y$10${digest}\na:$2b$10${digest}"), 2, "repeats the name of an earlier line"),
        ] {
            let error = parse(&text).err().expect(&text).to_string();
            assert!(error.starts_with(&format!("line {line} of users {why}")), "{text}: {error}");
        }
        let error = parse("\n# nobody\n").err().expect("nobody").to_string();
        assert!(error.starts_with("users lists no user, so the HTTP server does not run; "), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_causes_a_panic(text in "([a:#é \n]|\\$2[aby]\\$[0-9é]{2}\\$|[./A-Za-z]{53}|.){0,12}") {
            let _ = parse(&text);
        }
    }
}
