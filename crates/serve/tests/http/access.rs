//! Tests who may read pages if users are configured.

use std::{fs, path::Path, time::Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use cgscope_serve::http::{HttpConfig, HttpRefusal};

use crate::support::{LONG, Server, anywhere, at, bind, get, say};

/// The bcrypt cost at which a check takes about 10 ms.
const COST: u32 = 8;

/// The bcrypt cost at which a check takes less than 1 ms.
const CHEAP: u32 = 4;

/// The bcrypt cost at which a check takes as long as a few hundred requests.
const DEAR: u32 = 11;

fn basic(name: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("{name}:{password}")))
}

fn write_users(path: &Path, cost: u32, users: &[(&str, &str)]) {
    let line = |(name, password): &(&str, &str)| {
        format!("{name}:{}\n", bcrypt::hash(password, cost).unwrap().replace("$2b$", "$2y$"))
    };
    fs::write(path, users.iter().map(line).collect::<String>()).unwrap();
}

fn guarded(path: &Path) -> HttpConfig {
    HttpConfig { users: Some(path.into()), ..anywhere() }
}

#[tokio::test]
async fn metrics_need_a_name_and_its_password_and_health_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    write_users(&path, COST, &[("prometheus", "pässword:x"), ("other", "two")]);
    let server = Server::start(&guarded(&path), 0);
    let mut wrong = 0;
    for headers in [
        String::new(),
        basic("prometheus", "two"),
        basic("nobody", "two"),
        "Authorization: Bearer x\r\n".into(),
        "Authorization: Basic \u{7f}\r\n".into(),
    ] {
        for path in ["/metrics", "/x"] {
            let answer = server.get(path, &headers).await;
            wrong += 1;
            if answer.status == 400 {
                // A malformed header is refused before the password is checked.
                wrong -= 1;
                continue;
            }
            assert_eq!(answer.status, 401, "{headers}");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Basic "));
            assert!(!answer.text().contains("/metrics"));
        }
    }
    server.wait_until("all counted", |server| server.refused(HttpRefusal::Unauthorized) == wrong).await;
    assert_eq!(server.get("/metrics", &basic("prometheus", "pässword:x")).await.status, 200);
    assert_eq!(server.get("/metrics", &basic("other", "two")).await.status, 200);
    assert_eq!(server.get("/-/healthy", "").await.status, 200);
}

#[tokio::test]
async fn a_verified_password_is_not_checked_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    write_users(&path, DEAR, &[("a", "one")]);
    let server = Server::start(&guarded(&path), 0);
    let mut stream = server.connect().await;
    let request = get("/metrics", &basic("a", "one"));
    let start = Instant::now();
    assert_eq!(say(&mut stream, &request).await.status, 200);
    let first = start.elapsed();
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(say(&mut stream, &request).await.status, 200);
    }
    assert!(start.elapsed() < first, "ten took {:?}, the first one {first:?}", start.elapsed());
}

#[tokio::test]
async fn guessing_is_stopped_and_does_not_lock_out_verified_users() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    write_users(&path, CHEAP, &[("a", "one")]);
    let server = Server::start(&guarded(&path), 0);
    assert_eq!(server.get("/metrics", &basic("a", "one")).await.status, 200);
    let start = Instant::now();
    let (mut checked, mut stopped) = (0, 0);
    while stopped < 20 {
        let answer = server.get("/metrics", &basic("a", &stopped.to_string())).await;
        match answer.status {
            401 => checked += 1,
            429 => {
                assert_eq!(answer.header("retry-after"), Some("10"));
                stopped += 1;
            }
            other => panic!("{other}"),
        }
        assert_eq!(server.get("/metrics", &basic("a", "one")).await.status, 200);
        assert!(start.elapsed() < 3 * LONG, "{checked} were checked and {stopped} were not");
    }
    // The server allows five guesses at once, and then one every two seconds.
    let most = 5 + start.elapsed().as_secs() / 2 + 1;
    assert!((5..=most).contains(&checked), "{checked} in {:?}", start.elapsed());
    server.wait_until("all counted", |server| server.refused(HttpRefusal::Guessing) == 20).await;
    server.wait_until("all counted", |server| server.refused(HttpRefusal::Unauthorized) == checked).await;
}

#[tokio::test]
async fn guessing_does_not_lock_out_verified_users_after_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    write_users(&path, CHEAP, &[("a", "one")]);
    let config = guarded(&path);
    let server = Server::start(&config, 0);
    assert_eq!(server.get("/metrics", &basic("a", "one")).await.status, 200);
    while server.get("/metrics", &basic("a", "two")).await.status != 429 {}
    let another = format!("b:{}\n", bcrypt::hash("two", CHEAP).unwrap());
    fs::write(&path, fs::read_to_string(&path).unwrap() + &another).unwrap();
    assert!(server.http.reload(&config).is_empty());
    assert_eq!(server.get("/metrics", &basic("a", "one")).await.status, 200);
    assert_ne!(server.get("/metrics", &basic("a", "two")).await.status, 200);
}

#[tokio::test]
async fn a_reload_reads_the_users_and_a_broken_file_keeps_the_earlier_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    write_users(&path, COST, &[("a", "one")]);
    let config = guarded(&path);
    let server = Server::start(&config, 0);
    let mut stream = server.connect().await;
    assert_eq!(say(&mut stream, &get("/metrics", &basic("a", "one"))).await.status, 200);

    fs::write(&path, "a:one\n").unwrap();
    let errors = server.http.reload(&config);
    assert_eq!((errors.len(), errors[0].is_kept), (1, true));
    let sentence = errors[0].to_string();
    assert!(sentence.contains("line 1 of ") && sentence.contains("stay in use"), "{sentence}");
    assert_eq!(say(&mut stream, &get("/metrics", &basic("a", "one"))).await.status, 200);
    fs::remove_file(&path).unwrap();
    assert_eq!(server.http.reload(&config).len(), 1);
    assert_eq!(say(&mut stream, &get("/metrics", &basic("a", "one"))).await.status, 200);

    write_users(&path, COST, &[("a", "new")]);
    assert!(server.http.reload(&config).is_empty());
    assert_eq!(server.get("/metrics", &basic("a", "new")).await.status, 200);
    assert_eq!(say(&mut stream, &get("/metrics", &basic("a", "one"))).await.status, 401, "the old password");
}

#[tokio::test]
async fn a_reload_can_add_users_and_removes_them_only_without_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    write_users(&first, CHEAP, &[("a", "one")]);
    write_users(&second, CHEAP, &[("b", "two")]);
    let server = Server::start(&anywhere(), 0);
    let mut stream = server.connect().await;
    assert_eq!(say(&mut stream, &get("/metrics", "")).await.status, 200);

    assert!(server.http.reload(&guarded(&first)).is_empty());
    assert_eq!(say(&mut stream, &get("/metrics", "")).await.status, 401, "a password is now required");
    assert_eq!(server.get("/metrics", &basic("a", "one")).await.status, 200);
    assert!(server.http.reload(&guarded(&second)).is_empty());
    assert_eq!(server.get("/metrics", &basic("a", "one")).await.status, 401, "the user of the first file");
    assert_eq!(server.get("/metrics", &basic("b", "two")).await.status, 200);

    assert_eq!(server.http.reload(&guarded(&dir.path().join("none"))).len(), 1);
    assert_eq!(server.get("/metrics", "").await.status, 401, "the earlier users stay");
    let none = dir.path().join("none");
    let tls = HttpConfig { tls_certificate: Some(none.clone()), tls_key: Some(none), ..anywhere() };
    assert_eq!(server.http.reload(&tls).len(), 1);
    assert_eq!(server.get("/metrics", "").await.status, 401, "the users stay until TLS works");
    assert!(server.http.reload(&anywhere()).is_empty());
    assert_eq!(server.get("/metrics", "").await.status, 200);
}

#[test]
fn what_strangers_can_read_concerns_the_users_that_are_there_now() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    write_users(&path, CHEAP, &[("a", "one")]);
    let open = at("0.0.0.0:0".parse().unwrap());
    let guarded = HttpConfig { users: Some(path), ..open.clone() };
    let http = bind(&open).unwrap();
    assert!(http.warning().unwrap().contains("anyone"));
    assert!(http.reload(&guarded).is_empty());
    assert!(http.warning().unwrap().contains("clear text"));
    assert!(http.reload(&open).is_empty());
    assert!(http.warning().unwrap().contains("anyone"));
}
