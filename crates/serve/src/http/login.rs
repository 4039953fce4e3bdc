//! Checks passwords, one at a time, each in a separate task. After a wrong password there is a pause. Wrong passwords are counted
//! by address. So an address that guesses passwords is soon blocked, and does not slow down other clients. A file with lines
//! `NAME:HASH` lists the users who may read pages: bcrypt hashes, as `htpasswd -B` writes them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{collections::HashMap, net::IpAddr, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use bcrypt::HashParts;
use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::{hmac, rand::SystemRandom};
use tokio::sync::{Semaphore, oneshot};
use tokio::{task, time::sleep};

use crate::{
    http::{Error, HttpRefusal, answer::read_file, beside},
    lock,
    rates::Rates,
};

/// Maximum number of passwords in the queue, including the password that is being checked.
const WAITING_LOGINS: usize = 16;
/// Pause after a wrong password, as a multiple of its check. So guessing takes at most a fifth of one CPU.
const REST_AFTER_WRONG: u32 = 4;
/// Number of wrong passwords in a row after which an address must wait.
const FREE_GUESSES: u32 = 5;
/// Time that an address must wait for each further wrong password.
const GUESS_EVERY: Duration = Duration::from_secs(2);
/// Maximum number of addresses for which wrong passwords are counted.
const GUESSERS: usize = 1024;

pub(super) struct Login {
    /// This lock is held during a password check, and during the pause after a wrong password.
    turn: tokio::sync::Mutex<()>,
    room: Arc<Semaphore>,
    guesses: Mutex<Rates<IpAddr>>,
    /// A random key for this process. Because of the key, a tag reveals nothing about the password.
    key: hmac::Key,
    /// For each user whose password bcrypt has verified, a tag that is computed from the user's hash and password. They are kept
    /// because bcrypt is slow by design, and scrapers send a request every few seconds. A reload of the users file does not
    /// remove them. Otherwise, after a reload, an attacker who sends guesses could block verified users.
    verified: Mutex<HashMap<String, hmac::Tag>>,
}

impl Login {
    pub(super) fn new() -> Result<Arc<Self>, Error> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| {
            let what = "the kernel has no random numbers yet".into();
            Error::new(what, "restart the daemon in a minute")
        })?;
        Ok(Arc::new(Self {
            turn: tokio::sync::Mutex::default(),
            room: Arc::new(Semaphore::new(WAITING_LOGINS)),
            guesses: Mutex::new(Rates::new(FREE_GUESSES, GUESS_EVERY, GUESSERS)),
            key,
            verified: Mutex::default(),
        }))
    }

    pub(super) async fn check(
        self: &Arc<Self>,
        users: &Arc<PasswordFile>,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Result<(), HttpRefusal> {
        let Some(credentials) = credentials(headers) else { return Err(HttpRefusal::Unauthorized) };
        if self.has_verified(users, &credentials) {
            return Ok(());
        }
        let Ok(place) = self.room.clone().try_acquire_owned() else { return Err(HttpRefusal::Guessing) };
        // Counts the password as wrong before the check. If the password is right, the code below subtracts it again.
        if !lock(&self.guesses).take(client, Instant::now()) {
            return Err(HttpRefusal::Guessing);
        }
        let (login, users) = (self.clone(), users.clone());
        let (send, checked) = oneshot::channel();
        // A separate task continues if the client disconnects: nobody can skip the pause, and a right password is kept.
        task::spawn(async move {
            let _turn = login.turn.lock().await;
            let (right, took) = login.verify(users, credentials).await;
            drop(place);
            if right {
                lock(&login.guesses).give_back(&client);
            }
            let _ = send.send(right);
            if !right {
                sleep(took * REST_AFTER_WRONG).await;
            }
        });
        if checked.await.unwrap_or(false) { Ok(()) } else { Err(HttpRefusal::Unauthorized) }
    }

    /// Checks a password with bcrypt, unless it was verified before. Returns whether it is right, and how long the check took.
    async fn verify(self: &Arc<Self>, users: Arc<PasswordFile>, said: Credentials) -> (bool, Duration) {
        if self.has_verified(&users, &said) {
            return (true, Duration::ZERO);
        }
        let login = self.clone();
        let check = move || {
            let start = Instant::now();
            let right = users.verify(&said);
            if right {
                login.keep_verified(&users, &said);
            }
            (right, start.elapsed())
        };
        beside(check).await.unwrap_or_default()
    }

    /// Returns whether this password was verified before. This takes microseconds, for a right and a wrong password alike.
    fn has_verified(&self, users: &PasswordFile, said: &Credentials) -> bool {
        let Some(hash) = users.hashes.get(&said.name) else { return false };
        let Some(tag) = lock(&self.verified).get(&said.name).copied() else { return false };
        hmac::verify(&self.key, &[hash.as_bytes(), &said.password].concat(), tag.as_ref()).is_ok()
    }

    fn keep_verified(&self, users: &PasswordFile, said: &Credentials) {
        if let Some(hash) = users.hashes.get(&said.name) {
            let tag = hmac::sign(&self.key, &[hash.as_bytes(), &said.password].concat());
            lock(&self.verified).insert(said.name.clone(), tag);
        }
    }
}

/// Parses the header `Authorization: Basic ...` (RFC 7617).
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

/// Maximum bcrypt cost. At this cost a check takes one or two seconds. A scrape times out after ten.
const HIGHEST_COST: u32 = 15;

const AS_HTPASSWD: &str = "write lines as `htpasswd -nB NAME` prints them";

pub(super) struct PasswordFile {
    /// The bcrypt hash of each user, by name.
    hashes: HashMap<String, String>,
    /// A hash with the highest cost in the file. It is checked for unknown names, so that the time reveals nothing.
    nobody: String,
}

#[derive(PartialEq, Eq)]
struct Credentials {
    name: String,
    password: Vec<u8>,
}

impl PasswordFile {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(path, &String::from_utf8_lossy(&read_file("users", path)?))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let mut hashes = HashMap::new();
        for (at, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str, remedy: &'static str| {
                Error::new(format!("line {} of {} {why}", at + 1, path.display()), remedy)
            };
            let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_control);
            let user = line.split_once(':').filter(|(name, _)| is_name(name));
            let (name, hash) = user.ok_or_else(|| wrong("is not NAME:HASH", AS_HTPASSWD))?;
            let cost = cost(hash).ok_or_else(|| wrong("has a hash that is not bcrypt's", AS_HTPASSWD))?;
            if cost > HIGHEST_COST {
                let why = format!(
                    "has a bcrypt cost of {cost}: above {HIGHEST_COST}, a scrape times out before its password is checked"
                );
                return Err(wrong(&why, "create the line again with `htpasswd -nB -C 10 NAME`"));
            }
            if hashes.insert(name.to_owned(), hash.to_owned()).is_some() {
                return Err(wrong("repeats the name of an earlier line", "keep only one line for each name"));
            }
        }
        match hashes.values().max_by_key(|hash| cost(hash)).cloned() {
            Some(nobody) => Ok(Self { hashes, nobody }),
            None => Err(Error::new(format!("{} lists no user", path.display()), AS_HTPASSWD)),
        }
    }

    /// Checks a password with bcrypt. The check is slow, so this function must be called on a separate thread.
    fn verify(&self, said: &Credentials) -> bool {
        let hash = self.hashes.get(&said.name);
        let right = bcrypt::verify(&said.password, hash.unwrap_or(&self.nobody)).unwrap_or(false);
        right && hash.is_some()
    }
}

/// Returns the cost of a bcrypt hash; `None` if the hash is not valid. `$2x$` marks hashes of a faulty implementation.
fn cost(hash: &str) -> Option<u32> {
    let cost = hash.parse::<HashParts>().ok()?.get_cost();
    (!hash.starts_with("$2x$") && (4..=31).contains(&cost)).then_some(cost)
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
mod users_tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::watch::network;

    fn parse(text: &str) -> Result<PasswordFile, Error> {
        PasswordFile::parse(Path::new("users"), text)
    }

    fn says(name: &str, password: &str) -> Credentials {
        Credentials { name: name.into(), password: password.into() }
    }

    fn line(name: &str, password: &str) -> String {
        format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
    }

    /// Checks a password in the same way as for a request.
    fn check(login: &Login, users: &PasswordFile, said: &Credentials) -> bool {
        let right = users.verify(said);
        right.then(|| login.keep_verified(users, said));
        right
    }

    #[test]
    fn a_right_password_is_kept_and_a_wrong_one_is_not() {
        let users = parse(&format!("# who\n\n{}{}", line("a", "one"), line("b", "two"))).unwrap();
        let login = Login::new().unwrap();
        let (has, check) = (
            |name, said| login.has_verified(&users, &says(name, said)),
            |name, said| check(&login, &users, &says(name, said)),
        );
        assert!(!has("a", "one"), "nothing was checked yet");
        assert!(!check("a", "two") && !has("a", "two"));
        assert!(check("a", "one") && has("a", "one"));
        assert!(!has("b", "one") && !has("a", "onE"));
        assert!(!check("c", "one") && !check("", ""));
        assert!(has("a", "one"), "wrong passwords do not remove the right one");
    }

    #[test]
    fn a_reload_keeps_verified_passwords_whose_hash_is_unchanged() {
        let (a, b, c) = (line("a", "one"), line("b", "two"), line("c", "three"));
        let first = parse(&[&*a, &*b, &*c].concat()).unwrap();
        let login = Login::new().unwrap();
        for (name, password) in [("a", "one"), ("b", "two")] {
            assert!(check(&login, &first, &says(name, password)));
        }
        let renewed = parse(&[&*a, &*line("b", "two"), &*c, &*line("d", "one")].concat()).unwrap();
        let has = |users, name, password| login.has_verified(users, &says(name, password));
        assert!(has(&renewed, "a", "one") && !has(&renewed, "a", "two"));
        assert!(!has(&renewed, "b", "two"), "another hash is another password");
        assert!(!has(&renewed, "d", "one") && check(&login, &renewed, &says("d", "one")));
        assert!(check(&login, &first, &says("c", "three")));
        assert!(has(&renewed, "c", "three"), "a check during the reload is kept");
        let without = parse(&c).unwrap();
        assert!(!has(&without, "a", "one") && !check(&login, &without, &says("a", "one")));
    }

    #[tokio::test]
    async fn addresses_of_an_ipv6_network_count_as_one() {
        let (login, users) = (Login::new().unwrap(), Arc::new(parse(&line("a", "one")).unwrap()));
        let wrong = HeaderMap::from_iter([(AUTHORIZATION, "Basic YTpi".parse().unwrap())]);
        let mut refused = Vec::new();
        for n in 0..=FREE_GUESSES {
            let client = network(format!("2001:db8::{n:x}").parse().unwrap());
            refused.extend(login.check(&users, &wrong, client).await.err());
        }
        assert_eq!(refused.pop(), Some(HttpRefusal::Guessing));
        assert_eq!(refused, [HttpRefusal::Unauthorized; FREE_GUESSES as usize]);
        let other = login.check(&users, &wrong, network("2001:db8:0:1::1".parse().unwrap())).await;
        assert_eq!(other, Err(HttpRefusal::Unauthorized));
    }

    #[test]
    fn an_unknown_name_is_refused_with_any_password() {
        let users = parse(&line("a", "one")).unwrap();
        assert!(!users.verify(&says("b", "one")), "an unknown name is checked against the hash of `a`");
    }

    #[test]
    fn a_hash_from_htpasswd_is_accepted() {
        // This is the output of `htpasswd -nbB -C 5 prometheus secret` of Apache 2.4.
        let users = parse("prometheus:$2y$05$lLuTxFE7iYFzL8rEtGucWO8vRpMYD8VBC7IWogqswUzsfRhwYzk4O").unwrap();
        assert!(users.verify(&says("prometheus", "secret")) && !users.verify(&says("prometheus", "Secret")));
    }

    #[test]
    fn an_error_names_the_number_of_the_bad_line() {
        let digest = ".".repeat(53);
        let (form, hash) = ("is not NAME:HASH", "has a hash that is not bcrypt's");
        for (text, line, why) in [
            ("a".to_owned(), 1, form),
            (format!("\n:$2y$10${digest}"), 2, form),
            ("# x\na:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=".into(), 2, hash),
            ("a:$apr1$x$y".into(), 1, hash),
            (format!("a:$2y$10${digest}."), 1, hash),
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
