//! Checks passwords beside the loop that answers, one at a time, and rests after a wrong one.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::header::{AUTHORIZATION, HeaderMap};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task,
    time::{Instant, sleep},
};

use super::{
    HttpRefusal,
    guesses::Guesses,
    limits::{REST_AFTER_WRONG, WAITING_LOGINS},
    users::{Credentials, PasswordFile},
};
use crate::lock;

/// The door.
pub(super) struct Login {
    /// Held while a password is checked, and for the rest after a wrong one.
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

    /// Whether the client at this address may read, by what the request says of it.
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
        // A task of its own: a client that goes away must not spare itself the rest, and a right password found is worth keeping.
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
    let (right, took) = task::spawn_blocking(check).await.unwrap_or_default();
    if !right {
        task::spawn(rest(turn, took));
    }
    right
}

async fn rest(turn: OwnedSemaphorePermit, took: Duration) {
    sleep(took * REST_AFTER_WRONG).await;
    drop(turn);
}

/// From `Authorization: Basic ...` (RFC 7617).
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
    fn a_password_may_hold_anything_and_a_name_everything_but_a_colon() {
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        assert_eq!(parsed(&basic("a:b:c")), Some(("a".into(), b"b:c".to_vec())));
        assert_eq!(parsed(&basic("é:")), Some(("é".into(), Vec::new())));
        assert_eq!(parsed("bAsIc   YTpi "), Some(("a".into(), b"b".to_vec())));
    }

    #[test]
    fn what_is_no_basic_authentication_is_none() {
        for value in
            ["", "Basic", "Basic ", "Basic YQ==", "Basic !", "Bearer YTpi", "Basic /zpi", "Basic YTpi YTpi"]
        {
            assert_eq!(parsed(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(said in proptest::collection::vec(any::<u8>(), 0..40), encoded: bool) {
            let rest = if encoded { BASE64_STANDARD.encode(&said).into_bytes() } else { said.clone() };
            if let Ok(value) = HeaderValue::from_bytes(&[b"Basic ", &rest[..]].concat()) {
                let found = credentials(&HeaderMap::from_iter([(AUTHORIZATION, value)]));
                let back = found.map(|found| [found.name.as_bytes(), b":", &found.password].concat());
                prop_assert!(!encoded || back.is_none_or(|back| back == said));
            }
        }
    }
}
