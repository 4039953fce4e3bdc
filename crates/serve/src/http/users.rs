//! Who may read: lines `NAME:HASH` with bcrypt's hashes, as `htpasswd -B` writes them.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use ring::{hmac, rand::SystemRandom};

use super::{Fault, UserFault, lock};

/// The highest cost taken: checking a password takes one or two seconds then, and a scrape waits for ten.
const HIGHEST_COST: u32 = 15;

/// The users of one reading of the file.
pub(super) struct Users {
    by_name: HashMap<String, Arc<User>>,
    /// Of this process alone, so that a tag tells nothing to who sees it.
    key: hmac::Key,
    /// A hash as dear as the dearest, for names that are not there: that a name is unknown must not show in the time.
    nobody: String,
}

struct User {
    hash: String,
    /// The tag of the password that bcrypt has found right. bcrypt is slow by design, and a scrape comes every few seconds.
    verified: Mutex<Option<hmac::Tag>>,
}

/// What a client says of itself.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) name: String,
    pub(super) password: Vec<u8>,
}

impl Users {
    /// From the file.
    pub(super) fn read(path: &Path) -> Result<Self, Fault> {
        let text = fs::read(path).map_err(|error| Fault::File { key: "users", path: path.into(), error })?;
        Self::parse(path, &String::from_utf8_lossy(&text))
    }

    /// Empty lines and those that begin with `#` are left out.
    fn parse(path: &Path, text: &str) -> Result<Self, Fault> {
        let mut by_name = HashMap::new();
        let mut dearest = (0, String::new());
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = |why| Fault::User { path: path.into(), line: at + 1, why };
            let (name, hash, cost) = user(line).map_err(fault)?;
            if cost > dearest.0 {
                dearest = (cost, hash.into());
            }
            match by_name.entry(name.to_owned()) {
                Entry::Occupied(_) => return Err(fault(UserFault::Twice)),
                Entry::Vacant(place) => {
                    place.insert(Arc::new(User { hash: hash.into(), verified: Mutex::new(None) }))
                }
            };
        }
        if by_name.is_empty() {
            return Err(Fault::NoUsers(path.into()));
        }
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| Fault::NoRandom)?;
        Ok(Self { by_name, key, nobody: dearest.1 })
    }

    /// With what those of an earlier reading remember, and what they are about to find, of users whose hash is still the same: nobody
    /// who was in has to be checked again, which others could keep from happening by guessing.
    pub(super) fn keeping(mut self, before: &Self) -> Self {
        self.key = before.key.clone();
        for (name, user) in &mut self.by_name {
            if let Some(same) = before.by_name.get(name).filter(|before| before.hash == user.hash) {
                *user = same.clone();
            }
        }
        self
    }

    /// Whether this password was found right before. Takes microseconds, and as long for a wrong one.
    pub(super) fn remember(&self, credentials: &Credentials) -> bool {
        let Some(user) = self.by_name.get(&credentials.name) else { return false };
        let Some(tag) = *lock(&user.verified) else { return false };
        hmac::verify(&self.key, &credentials.password, tag.as_ref()).is_ok()
    }

    /// Whether this password is right, and remembers it if so. Takes as long as bcrypt does: not for a thread that has other work.
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

/// A line's name, hash and cost.
fn user(line: &str) -> Result<(&str, &str, u32), UserFault> {
    let (name, hash) = line.split_once(':').ok_or(UserFault::Form)?;
    if name.is_empty() || name.contains(char::is_control) {
        return Err(UserFault::Form);
    }
    let cost = cost(hash).ok_or(UserFault::Hash)?;
    if cost > HIGHEST_COST {
        return Err(UserFault::Cost { cost, most: HIGHEST_COST });
    }
    Ok((name, hash, cost))
}

/// The cost in a hash of bcrypt: `$2y$10$` and 53 characters of its alphabet.
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

    fn parse(text: &str) -> Result<Users, Fault> {
        Users::parse(Path::new("users"), text)
    }

    fn says(name: &str, password: &str) -> Credentials {
        Credentials { name: name.into(), password: password.into() }
    }

    fn line(name: &str, password: &str) -> String {
        format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
    }

    #[test]
    fn a_right_password_is_remembered_and_a_wrong_one_is_not() {
        let users = parse(&format!("# who\n\n{}{}", line("a", "one"), line("b", "two"))).unwrap();
        assert!(!users.remember(&says("a", "one")), "nothing was checked yet");
        assert!(!users.verify(&says("a", "two")) && !users.remember(&says("a", "two")));
        assert!(users.verify(&says("a", "one")) && users.remember(&says("a", "one")));
        assert!(!users.remember(&says("b", "one")) && !users.remember(&says("a", "onE")));
        assert!(!users.verify(&says("c", "one")) && !users.verify(&says("", "")));
        assert!(users.remember(&says("a", "one")), "a wrong one elsewhere forgot the right one");
    }

    #[test]
    fn a_later_reading_remembers_those_whose_hash_is_the_same_and_no_others() {
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
        assert!(renewed.remember(&says("c", "three")), "it was being checked while the file was read");
        let without = parse(&c).unwrap().keeping(&renewed);
        assert!(!without.remember(&says("a", "one")) && !without.verify(&says("a", "one")));
    }

    #[test]
    fn the_hash_of_a_name_that_is_not_there_lets_nobody_in() {
        let users = parse(&line("a", "one")).unwrap();
        assert!(
            !users.verify(&says("b", "one")),
            "the hash that unknown names are checked against is that of a"
        );
    }

    #[test]
    fn a_hash_of_htpasswd_is_taken() {
        // As `htpasswd -nbB -C 5 prometheus secret` of Apache 2.4 printed it.
        let users = parse("prometheus:$2y$05$lLuTxFE7iYFzL8rEtGucWO8vRpMYD8VBC7IWogqswUzsfRhwYzk4O").unwrap();
        assert!(users.verify(&says("prometheus", "secret")) && !users.verify(&says("prometheus", "Secret")));
    }

    #[test]
    fn bad_lines_are_told_by_number() {
        let digest = "A".repeat(53);
        for (text, line, why) in [
            ("a".to_owned(), 1, UserFault::Form),
            (format!("\n:$2y$10${digest}"), 2, UserFault::Form),
            ("# x\na:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=".into(), 2, UserFault::Hash),
            ("a:$apr1$x$y".into(), 1, UserFault::Hash),
            (format!("a:$2y$10${digest}A"), 1, UserFault::Hash),
            (format!("a:$2y$1é${digest}"), 1, UserFault::Hash),
            (format!("a:$2y$03${digest}"), 1, UserFault::Hash),
            (format!("a:$2y$20${digest}"), 1, UserFault::Cost { cost: 20, most: HIGHEST_COST }),
            (format!("a:$2y$10${digest}\na:$2b$10${digest}"), 2, UserFault::Twice),
        ] {
            match parse(&text) {
                Err(Fault::User { line: at, why: fault, .. }) => {
                    assert_eq!((at, fault), (line, why), "{text}")
                }
                other => panic!("{text}: {:?}", other.err()),
            }
        }
        assert!(matches!(parse("\n# nobody\n"), Err(Fault::NoUsers(_))));
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(text in "([a:#é \n]|\\$2[aby]\\$[0-9é]{2}\\$|[./A-Za-z]{53}|.){0,12}") {
            let _ = parse(&text);
        }
    }
}
