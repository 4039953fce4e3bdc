//! Tests the answers to well-behaved clients.

use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use cgscope_serve::http::{HttpLimits, HttpRefusal, Page, Pages};
use flate2::read::GzDecoder;
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use crate::support::{CONTENT_TYPE, Hangs, Server, answer, anywhere, ends, get, limited, say};

#[tokio::test]
async fn the_metrics_page_depends_on_the_accept_header() {
    let server = Server::start(&anywhere(), 0);
    let plain = server.get("/metrics", "").await;
    assert_eq!((plain.status, plain.text()), (200, "/metrics None\n"));
    assert_eq!(plain.header("content-type"), Some(CONTENT_TYPE));
    assert_eq!(plain.header("vary"), Some("Accept, Accept-Encoding"));
    let one = server.get("/metrics?x=/%00", "Accept: a;q=0.5, b\r\n").await;
    assert_eq!(one.text(), "/metrics Some(\"a;q=0.5, b\")\n");
    let two = server.get("/metrics", "Accept: a\r\nAccept: b\r\n").await;
    assert_eq!(two.text(), "/metrics Some(\"a, b\")\n");
    server.wait_until("three answers", |server| server.http.counters.requests() == 3).await;
}

#[tokio::test]
async fn the_front_page_lists_the_pages_and_health_needs_no_metrics() {
    let server = Server::start(&anywhere(), 0);
    let front = server.get("/", "").await;
    assert_eq!(front.status, 200);
    assert!(front.text().contains("/metrics") && front.text().contains("/-/healthy"));
    assert_eq!(server.get("/-/healthy", "").await.status, 200);
    assert_eq!(server.made.load(SeqCst), 0);
}

#[tokio::test]
async fn a_probe_fails_with_a_sentence_while_the_collector_hangs() {
    let server = Server::of(&anywhere(), Arc::default(), Hangs);
    let answer = server.get("/-/healthy", "").await;
    assert_eq!((answer.status, answer.text()), (503, "A sample has been under way for 31 s.\n"));
    assert_eq!(server.refused(HttpRefusal::Unavailable), 1);
}

#[tokio::test]
async fn other_paths_are_not_found_and_other_methods_get_the_allowed_ones() {
    let server = Server::start(&anywhere(), 0);
    for path in ["/metric", "/metrics/", "//metrics", "/%2e%2e/metrics", "/-/healthy/x", "/Metrics"] {
        assert_eq!(server.get(path, "").await.status, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"] {
        for path in ["/metrics", "/", "/-/healthy", "/x"] {
            let path = if method == "CONNECT" { "h:1" } else { path };
            let answer = server.ask(&format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method} {path}");
        }
    }
    let with_body = server.ask("POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello").await;
    assert_eq!(with_body.status, 405);
    server.wait_until("all counted", |server| server.refused(HttpRefusal::Path) == 6).await;
    server.wait_until("all counted", |server| server.refused(HttpRefusal::Method) == 33).await;
}

#[tokio::test]
async fn head_sends_the_headers_of_get_and_no_body() {
    let server = Server::start(&anywhere(), 50_000);
    let mut stream = server.connect().await;
    for path in ["/metrics", "/", "/-/healthy"] {
        let head = say(&mut stream, &format!("HEAD {path} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
        let full = say(&mut stream, &get(path, "")).await;
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-length"), Some(full.body.len().to_string().as_str()));
        assert_eq!(head.header("content-type"), full.header("content-type"));
    }
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_scrape_and_closed_after_a_refusal() {
    let server = Server::start(&anywhere(), 200_000);
    let mut stream = server.connect().await;
    for _ in 0..20 {
        assert_eq!(say(&mut stream, &get("/metrics", "")).await.body.len(), 200_000);
    }
    assert_eq!(server.http.counters.clients(), 1);
    let refused = say(&mut stream, &get("/x", "")).await;
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(ends(&mut stream).await);
    server.wait_until("closed", |server| server.http.counters.clients() == 0).await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(&anywhere(), 30_000);
    let mut stream = server.connect().await;
    let all: String = (0..10).map(|n| get("/metrics", &format!("Accept: {n}\r\n"))).collect();
    stream.write_all(all.as_bytes()).await.unwrap();
    for n in 0..10 {
        let answer = answer(&mut stream, false).await.unwrap();
        assert!(answer.text().starts_with(&format!("/metrics Some(\"{n}\")\n")));
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_and_disconnected() {
    let server = Server::start(&anywhere(), 0);
    let mut stream = server.connect().await;
    let answer = say(&mut stream, "GET /metrics HTTP/1.0\r\n\r\n").await;
    assert_eq!((answer.status, answer.text()), (200, "/metrics None\n"));
    assert!(ends(&mut stream).await);
}

#[tokio::test]
async fn a_large_page_is_compressed_if_the_client_accepts_it() {
    let server = Server::start(&anywhere(), 300_000);
    let plain = server.get("/metrics", "").await;
    let packed = server.get("/metrics", "Accept-Encoding: gzip\r\n").await;
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
    assert!(packed.body.len() * 3 < plain.body.len(), "{} bytes", packed.body.len());
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == plain.body);
    let refused = server.get("/metrics", "Accept-Encoding: gzip;q=0\r\n").await;
    assert_eq!(refused.header("content-encoding"), None);
    let short = Server::start(&anywhere(), 0).get("/metrics", "Accept-Encoding: gzip\r\n").await;
    assert_eq!((short.header("content-encoding"), short.text()), (None, "/metrics None\n"));
}

#[tokio::test]
async fn a_page_that_cannot_be_made_is_a_server_error_and_counted() {
    let limits = HttpLimits { page: Duration::from_millis(100), ..HttpLimits::default() };
    let server = Server::with(&limited(limits), Arc::default(), |accept| async move {
        match accept.as_deref() {
            Some("hangs") => std::future::pending().await,
            _ => panic!("as a caller's fault might"),
        }
    });
    for accept in ["hangs", "panics"] {
        assert_eq!(server.get("/metrics", &format!("Accept: {accept}\r\n")).await.status, 503, "{accept}");
    }
    server.wait_until("all counted", |server| server.refused(HttpRefusal::Unavailable) == 2).await;
    assert_eq!(server.http.counters.requests(), 0);
}

/// A source that makes two pages, whatever the `Accept` header contains.
struct TextOrElse(Arc<AtomicUsize>, Arc<Semaphore>);

impl Pages for TextOrElse {
    type Kind = bool;

    fn kind(&self, accept: Option<&str>) -> bool {
        accept.is_some_and(|accept| accept.contains("text"))
    }

    async fn make(&self, is_text: bool) -> Page {
        self.0.fetch_add(1, SeqCst);
        let _ = self.1.acquire().await;
        Page::new("text/plain", format!("{is_text}\n"))
    }
}

#[tokio::test]
async fn clients_of_the_same_page_share_it_whatever_they_accept() {
    let (made, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let server = Server::of(&anywhere(), made.clone(), TextOrElse(made.clone(), open.clone()));
    let mut waiting = Vec::new();
    for n in 0..16 {
        let media = if n % 2 == 0 { "text" } else { "else" };
        let mut stream = server.connect().await;
        stream.write_all(get("/metrics", &format!("Accept: {media}/{n}\r\n")).as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    server.wait_until("all there", |server| server.http.counters.clients() == 16).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    open.add_permits(16);
    for (n, mut stream) in waiting.into_iter().enumerate() {
        assert_eq!(answer(&mut stream, false).await.unwrap().text(), format!("{}\n", n % 2 == 0));
    }
    assert_eq!(made.load(SeqCst), 2);
}
