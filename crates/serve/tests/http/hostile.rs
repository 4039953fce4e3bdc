//! Tests with hostile clients. After each attack, a well-behaved client still gets its page.

use std::{
    collections::VecDeque,
    io::Write,
    net,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use cgscope_serve::http::{HttpLimits, HttpRefusal, Page};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::support::{LONG, Server, answer, anywhere, ends, get, limited, say};

const SHORT: Duration = Duration::from_millis(200);

/// Returns all bytes that the server sends until the connection is closed or reset.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut all)).await.expect("an end in time");
    all
}

async fn serves(server: &Server) {
    assert_eq!(server.get("/metrics", "").await.status, 200);
}

#[tokio::test]
async fn a_request_that_is_too_long_or_has_too_many_headers_is_refused() {
    let server = Server::start(&anywhere(), 0);
    let long_path = get(&format!("/{}", "x".repeat(100_000)), "");
    let long_header = get("/metrics", &format!("X: {}\r\n", "x".repeat(100_000)));
    let endless = get("/metrics", &"X: x\r\n".repeat(65));
    for (refused, request) in [long_path, long_header, endless].iter().enumerate() {
        let mut stream = server.connect().await;
        // The server may close the connection before the client has written everything.
        let _ = stream.write_all(request.as_bytes()).await;
        let said = String::from_utf8(rest(&mut stream).await).unwrap();
        assert!(said.starts_with("HTTP/1.1 431") || said.starts_with("HTTP/1.1 414"), "{said:?}");
        server
            .wait_until("counted", |server| server.refused(HttpRefusal::Oversized) == refused as u64 + 1)
            .await;
    }
    assert_eq!(server.get("/metrics", &"X: x\r\n".repeat(60)).await.status, 200);
    serves(&server).await;
}

#[tokio::test]
async fn a_request_that_arrives_one_byte_at_a_time_is_ended() {
    let server = Server::start(&limited(HttpLimits { request: SHORT, ..HttpLimits::default() }), 0);
    let mut silent = server.connect().await;
    let (mut reader, mut writer) = server.connect().await.into_split();
    let trickle = tokio::spawn(async move {
        for byte in get("/metrics", &"X: x\r\n".repeat(50)).bytes() {
            if writer.write_all(&[byte]).await.is_err() {
                return;
            }
            sleep(SHORT / 20).await;
        }
    });
    let start = Instant::now();
    assert!(ends(&mut silent).await && ends(&mut reader).await);
    assert!(start.elapsed() < 20 * SHORT, "{:?}", start.elapsed());
    trickle.await.unwrap();
    assert_eq!(server.refused(HttpRefusal::Slow), 2);
    serves(&server).await;
}

#[tokio::test]
async fn a_second_request_has_its_own_time_limit_and_so_has_an_idle_connection() {
    let limits = HttpLimits { request: SHORT, idle: 10 * SHORT, ..HttpLimits::default() };
    let server = Server::start(&limited(limits), 0);
    let mut idle = server.connect().await;
    assert_eq!(say(&mut idle, &get("/metrics", "")).await.status, 200);
    sleep(2 * SHORT).await;
    assert_eq!(
        say(&mut idle, &get("/metrics", "")).await.status,
        200,
        "idle for longer than a request may take"
    );
    let start = Instant::now();
    idle.write_all(b"GET /me").await.unwrap();
    assert!(ends(&mut idle).await);
    assert!(start.elapsed() < 8 * SHORT, "{:?}", start.elapsed());
    let mut idle = server.connect().await;
    assert_eq!(say(&mut idle, &get("/metrics", "")).await.status, 200);
    assert!(ends(&mut idle).await);
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_or_not_at_all_is_ended() {
    let server =
        Server::start(&limited(HttpLimits { write: 15 * SHORT, ..HttpLimits::default() }), 8_000_000);
    let slow = || async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(server.address()).await.unwrap();
        stream.write_all(get("/metrics", "").as_bytes()).await.unwrap();
        stream
    };
    let (_deaf, mut sips) = (slow().await, slow().await);
    let start = Instant::now();
    let mut piece = [0; 512];
    // When the server disconnects, it drops its unsent data. The client's own buffer is small, so the loop then ends soon.
    while sips.read(&mut piece).await.is_ok_and(|bytes| bytes > 0) {
        assert!(start.elapsed() < LONG, "a slow reader is still served");
        sleep(SHORT / 20).await;
    }
    server.wait_until("both ended", |server| server.refused(HttpRefusal::Slow) == 2).await;
    server.wait_until("both closed", |server| server.http.counters.clients() == 0).await;
    assert_eq!(server.get("/metrics", "").await.body.len(), 8_000_000);
}

#[tokio::test]
async fn slow_readers_hold_few_pages_and_lose_them_to_new_requests() {
    let limits = HttpLimits { pages: 20_000_000, write_grace: SHORT, ..HttpLimits::default() };
    let server = Server::start(&limited(limits), 8_000_000);
    let mut deaf = Vec::new();
    for n in 0..12 {
        let mut stream = server.connect().await;
        stream.write_all(get("/metrics", &format!("Accept: {n}\r\n")).as_bytes()).await.unwrap();
        deaf.push(stream);
    }
    // The server's memory limit allows three pages. Each further page displaces a slow reader and that reader's page.
    let page = server.get("/metrics", "").await;
    assert_eq!((page.status, page.body.len()), (200, 8_000_000));
    server.wait_until("all made", |server| server.made.load(SeqCst) == 13).await;
    assert!(server.refused(HttpRefusal::Displaced) >= 9, "{}", server.refused(HttpRefusal::Displaced));
}

#[tokio::test]
async fn a_client_is_asked_to_retry_if_pages_use_too_much_memory() {
    let limits = HttpLimits { pages: 1, write_grace: LONG, ..HttpLimits::default() };
    let server = Server::start(&limited(limits), 8_000_000);
    let mut deaf = server.connect().await;
    deaf.write_all(get("/metrics", "").as_bytes()).await.unwrap();
    server.wait_until("made", |server| server.made.load(SeqCst) == 1).await;
    let refused = server.get("/metrics", "").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert!(refused.text().contains("slowly"), "{}", refused.text());
    assert_eq!(server.refused(HttpRefusal::Unavailable), 1);
}

#[tokio::test]
async fn idle_connections_make_way_for_a_client_with_a_request() {
    let server =
        Server::start(&limited(HttpLimits { connections: 8, of_a_client: 8, ..HttpLimits::default() }), 0);
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(server.connect().await);
    }
    for _ in 0..20 {
        serves(&server).await;
        held.push(server.connect().await);
        assert!(server.http.counters.clients() <= 16, "{}", server.http.counters.clients());
    }
    server.wait_until("the others ended", |server| server.http.counters.clients() <= 8).await;
    assert!(server.refused(HttpRefusal::Displaced) >= 200);
}

#[tokio::test]
async fn clients_being_answered_keep_their_places_and_another_is_refused() {
    let open = Arc::new(Semaphore::new(0));
    let gate = open.clone();
    let server = Server::with(
        &limited(HttpLimits { connections: 4, of_a_client: 8, ..HttpLimits::default() }),
        Arc::default(),
        move |_| {
            let gate = gate.clone();
            async move {
                let _ = gate.acquire().await;
                Page::new("text/plain", "at last\n")
            }
        },
    );
    let mut waiting = Vec::new();
    for n in 0..4 {
        let mut stream = server.connect().await;
        // The server makes two different pages, one after the other. The clients of both pages must get their pages.
        stream.write_all(get("/metrics", &format!("Accept: {}\r\n", n % 2)).as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    server.wait_until("all taken", |server| server.http.counters.clients() == 4).await;
    sleep(SHORT).await;
    let mut fifth = server.connect().await;
    fifth.write_all(get("/metrics", "").as_bytes()).await.unwrap();
    let refused = answer(&mut fifth, false).await.unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(server.refused(HttpRefusal::Full), 1);
    // Even now, a health probe gets its answer.
    let mut probe = server.connect().await;
    probe.write_all(get("/-/healthy", "").as_bytes()).await.unwrap();
    assert_eq!(answer(&mut probe, false).await.unwrap().status, 200);
    open.add_permits(4);
    for mut stream in waiting {
        assert_eq!(answer(&mut stream, false).await.unwrap().text(), "at last\n");
    }
    drop(fifth);
    serves(&server).await;
}

#[tokio::test]
async fn many_new_connections_do_not_delay_a_scrape() {
    let server = Server::start(&anywhere(), 100_000);
    let address = server.address();
    // Other threads connect while the server runs. Each thread keeps its latest connections open.
    let storms: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(move || {
                let mut held = VecDeque::new();
                for n in 0..4_000 {
                    let Ok(mut stream) = net::TcpStream::connect(address) else { continue };
                    if n % 2 == 0 {
                        let _ = stream.write_all(b"GET /metrics HT");
                    }
                    held.push_back(stream);
                    if held.len() > 100 {
                        held.pop_front();
                    }
                    thread::sleep(Duration::from_micros(500));
                }
            })
        })
        .collect();
    let (mut longest, mut asked) = (Duration::ZERO, 0);
    while storms.iter().any(|storm| !storm.is_finished()) {
        let start = Instant::now();
        serves(&server).await;
        longest = longest.max(start.elapsed());
        asked += 1;
    }
    storms.into_iter().for_each(|storm| storm.join().unwrap());
    assert!(asked > 20 && longest < Duration::from_secs(5), "{asked} asked, the longest took {longest:?}");
    server.wait_until("all closed", |server| server.http.counters.clients() == 0).await;
}

#[test]
fn no_bytes_stop_the_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limits = HttpLimits { request: Duration::from_millis(20), ..HttpLimits::default() };
    let server = runtime.block_on(async { Server::start(&limited(limits), 0) });
    let bytes = prop_oneof![
        vec(any::<u8>(), 0..300),
        "(GET|HEAD|POST|G) ?[/a-z%?#*:@]{0,20} ?HTTP/[0-9.]{1,3}\r?\n([A-Za-z-]{0,10}:[ -~]{0,20}\r?\n){0,4}\r?\n.{0,20}"
            .prop_map(String::into_bytes),
        ("(Authorization|Accept|Accept-Encoding|Content-Length|Transfer-Encoding|Expect|Connection)", vec(any::<u8>(), 0..60))
            .prop_map(|(name, value)| {
                [b"GET /metrics HTTP/1.1\r\n", name.as_bytes(), b": ", &value, b"\r\n\r\n"].concat()
            }),
    ];
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() });
    let tried = runner.run(&bytes, |bytes| {
        runtime.block_on(async {
            let mut stream = server.connect().await;
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let said = rest(&mut stream).await;
            prop_assert!(said.is_empty() || said.starts_with(b"HTTP/1."), "{:?}", said);
            Ok(())
        })
    });
    tried.unwrap();
    runtime.block_on(async {
        serves(&server).await;
        server.wait_until("all closed", |server| server.http.counters.clients() == 0).await;
    });
    assert!(server.refused(HttpRefusal::Malformed) > 100);
}
