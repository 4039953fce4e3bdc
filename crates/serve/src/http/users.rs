//! The file of users who may read: lines `NAME:HASH` with bcrypt hashes, as `htpasswd -B` writes them.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::Path,
    sync::{Arc, Mutex},
};

use ring::{hmac, rand::SystemRandom};

use super::Error;
use crate::http::answer::read_file;
use crate::lock;

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
