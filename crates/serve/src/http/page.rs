//! Makes pages, one at a time. A page is shared by all clients that request it before it is finished, so that more clients do not
//! cause more pages. This module also compresses pages, and counts the bytes in memory.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::header::{ACCEPT_ENCODING, HeaderMap};
use tokio::{
    sync::{Semaphore, watch},
    task,
    time::{sleep, timeout},
};

use super::{HttpLimits, beside, watch::Seats};
use crate::lock;

/// Minimum size of a page that is compressed, bytes.
const GZIP_LEAST_BYTES: usize = 1024;

/// Maximum wait of a page for memory: longer than [`HttpLimits::write_grace`], shorter than the timeout of a scrape.
const PATIENCE_FOR_ROOM: Duration = Duration::from_secs(4);

const LOOK_FOR_ROOM: Duration = Duration::from_millis(50);

/// A page, or an error sentence for clients that cannot get the page.
type Outcome = Result<Page, &'static str>;

/// Receives a page when it is finished.
type Making = watch::Receiver<Option<Outcome>>;

const FAILED: &str = "The page could not be made; try again later.\n";

pub(super) struct SharedPages<P: Pages> {
    pub(super) source: P,
    limits: HttpLimits,
    seats: Arc<Seats>,
    turn: Semaphore,
    /// The pages in progress.
    awaited: Mutex<Vec<(Wanted<P>, Making)>>,
    /// The bodies of finished pages. A body is kept as long as a client holds a slice of it.
    held: Mutex<Vec<Weak<Bytes>>>,
}

/// The kind of the page, and whether it is compressed with gzip. Two requests get the same body if both are equal.
pub(super) type Wanted<P> = (<P as Pages>::Kind, bool);

struct Body(Arc<Bytes>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<P: Pages> SharedPages<P> {
    pub(super) fn new(source: P, limits: HttpLimits, seats: Arc<Seats>) -> Arc<Self> {
        let (turn, awaited, held) = (Semaphore::new(1), Mutex::default(), Mutex::default());
        Arc::new(Self { source, limits, seats, turn, awaited, held })
    }

    /// Returns the page. Other clients that request the same page at this time share it. The error is a sentence for the client.
    pub(super) async fn get(self: &Arc<Self>, wanted: Wanted<P>) -> Outcome {
        let mut made = self.join(wanted);
        made.wait_for(Option::is_some).await.map_or(Err(FAILED), |made| made.clone().unwrap_or(Err(FAILED)))
    }

    /// Joins the page that is in progress, or begins a new page.
    fn join(self: &Arc<Self>, wanted: Wanted<P>) -> Making {
        let mut awaited = lock(&self.awaited);
        if let Some((_, same)) = awaited.iter().find(|(other, _)| *other == wanted) {
            return same.clone();
        }
        let (sender, made) = watch::channel(None);
        awaited.push((wanted.clone(), made.clone()));
        let pages = self.clone();
        // A separate task makes the page, so that other clients get it even if one client disconnects.
        task::spawn(async move {
            let made = pages.make(wanted).await;
            sender.send_replace(Some(made));
        });
        made
    }

    async fn make(self: &Arc<Self>, wanted: Wanted<P>) -> Outcome {
        let _turn = self.turn.acquire().await;
        let page = match timeout(PATIENCE_FOR_ROOM, self.room()).await {
            Ok(()) => {
                let (pages, kind) = (self.clone(), wanted.0.clone());
                // The inner task catches a panic in the caller's code. Otherwise the page would stay in progress for ever.
                let make = async move { timeout(pages.limits.page, pages.source.make(kind)).await };
                let late = |_| "The page was not made in time; try again later.\n";
                task::spawn(make).await.map_or(Err(FAILED), |page| page.map_err(late))
            }
            Err(_) => Err("Too many clients read their pages slowly; try again later.\n"),
        };
        // A client that requests the page from now on gets a new page.
        lock(&self.awaited).retain(|(other, _)| *other != wanted);
        let mut page = page?;
        if wanted.1 && page.body.len() >= GZIP_LEAST_BYTES {
            let plain = page.body.clone();
            // This code still holds the turn while it compresses, so that all compressions together use at most one CPU.
            if let Some(smaller) = beside(move || gzip(&plain).ok()).await.flatten() {
                (page.body, page.is_compressed) = (smaller, true);
            }
        }
        let body = Arc::new(page.body);
        lock(&self.held).push(Arc::downgrade(&body));
        Ok(Page { body: Bytes::from_owner(Body(body)), ..page })
    }

    /// Waits until there is enough memory for another page. Displaces slow readers to free memory.
    async fn room(&self) {
        while self.held_bytes() >= self.limits.pages {
            self.seats.relieve();
            sleep(LOOK_FOR_ROOM).await;
        }
    }

    /// Returns the total size of the pages that clients have not read completely, bytes.
    fn held_bytes(&self) -> usize {
        let mut held = lock(&self.held);
        held.retain(|body| body.strong_count() > 0);
        held.iter().filter_map(Weak::upgrade).map(|body| body.len()).sum()
    }
}

/// A source of pages.
pub trait Pages: Send + Sync + 'static {
    /// The kind of a page: all requests of one kind get the same page. There are few kinds, so few pages can be in progress.
    type Kind: Clone + PartialEq + Send + Sync + 'static;

    /// Returns the kind for the `Accept` headers, joined with commas; `None`: there is no header, or it is not ASCII.
    fn kind(&self, accept: Option<&str>) -> Self::Kind;

    fn make(&self, kind: Self::Kind) -> impl Future<Output = Page> + Send;

    /// Returns an error sentence for health probes if something hangs. Must not wait, or reveal anything about the host.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A page that can be sent to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Content type with its parameters, for example `text/plain; version=0.0.4; charset=utf-8`.
    pub content_type: &'static str,
    pub body: Bytes,
    /// Whether the body is compressed with gzip.
    pub(super) is_compressed: bool,
}

impl Page {
    /// Creates a page from an uncompressed body.
    pub fn new(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { content_type, body: body.into(), is_compressed: false }
    }
}

/// Returns whether the client accepts gzip (RFC 9110, 12.5.3): the header lists gzip or `*` with a weight other than 0.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for coding in values.flat_map(|value| value.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
        });
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return !refused;
        }
        any |= name == "*" && !refused;
    }
    any
}

/// Compresses a body at the fastest level. Metrics are repetitive, so even this level reduces them to a tenth.
pub(super) fn gzip(body: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::time::sleep;

    use super::*;

    /// A source with a separate page for each first word of `Accept`.
    struct ByWord<M>(M);

    impl<M, F> Pages for ByWord<M>
    where
        M: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = Page> + Send,
    {
        type Kind = String;

        fn kind(&self, accept: Option<&str>) -> String {
            accept.iter().flat_map(|accept| accept.split(' ')).take(1).collect()
        }

        fn make(&self, kind: String) -> impl Future<Output = Page> + Send {
            (self.0)(kind)
        }
    }

    fn shared<M, F>(limits: HttpLimits, make: M) -> Arc<SharedPages<ByWord<M>>>
    where
        M: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = Page> + Send,
    {
        SharedPages::new(ByWord(make), limits, Seats::new(limits))
    }

    fn limits() -> HttpLimits {
        HttpLimits { page: Duration::from_secs(1), ..HttpLimits::default() }
    }

    fn wanted(kind: &str) -> (String, bool) {
        (kind.into(), false)
    }

    #[derive(Default)]
    struct Seen {
        made: AtomicUsize,
        at_once: AtomicUsize,
        most_at_once: AtomicUsize,
    }

    async fn slow_page(seen: Arc<Seen>, kind: String) -> Page {
        let at_once = seen.at_once.fetch_add(1, SeqCst) + 1;
        seen.most_at_once.fetch_max(at_once, SeqCst);
        sleep(Duration::from_millis(50)).await;
        seen.at_once.fetch_sub(1, SeqCst);
        let number = seen.made.fetch_add(1, SeqCst);
        Page::new("text/plain", format!("{number} {kind}"))
    }

    #[tokio::test(start_paused = true)]
    async fn one_page_is_made_at_a_time_and_shared_by_all_waiting_clients() {
        let seen = Arc::new(Seen::default());
        let make = {
            let seen = seen.clone();
            move |kind| slow_page(seen.clone(), kind)
        };
        let pages = shared(limits(), make);
        let ask = |kind: &'static str| {
            let pages = pages.clone();
            task::spawn(async move { pages.get(wanted(kind)).await.map(|page| page.body) })
        };
        let asked: Vec<_> = ["a", "b"].into_iter().cycle().take(40).map(ask).collect();
        for (at, answer) in asked.into_iter().enumerate() {
            let expected = if at % 2 == 0 { "0 a" } else { "1 b" };
            assert_eq!(answer.await.unwrap().unwrap(), expected);
        }
        assert_eq!(seen.most_at_once.load(SeqCst), 1);
        assert_eq!(ask("a").await.unwrap().unwrap(), "2 a", "a page is not kept for later requests");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_made_even_if_its_client_disconnects() {
        let make = |_: String| async {
            sleep(Duration::from_millis(50)).await;
            Page::new("text/plain", "x")
        };
        let pages = shared(limits(), make);
        assert!(timeout(Duration::ZERO, pages.get(wanted("a"))).await.is_err());
        assert!(pages.get(wanted("a")).await.is_ok(), "a page in progress can be shared");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_hangs_or_panics_is_an_error_and_does_not_block_others() {
        let make = |kind: String| async move {
            match &*kind {
                "hangs" => std::future::pending().await,
                "panics" => panic!("as a caller's fault might"),
                _ => Page::new("text/plain", "x"),
            }
        };
        let pages = shared(limits(), make);
        for _ in 0..3 {
            assert!(pages.get(wanted("hangs")).await.is_err_and(|words| words.contains("not made in time")));
            assert!(
                pages.get(wanted("panics")).await.is_err_and(|words| words.contains("could not be made"))
            );
            assert!(pages.get(wanted("fine")).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_held_pages_is_limited() {
        let pages = shared(HttpLimits { pages: 250, ..limits() }, |_| async {
            Page::new("text/plain", vec![b'x'; 100])
        });
        let mut held = Vec::new();
        for n in 0..3 {
            let page = pages.get(wanted(&n.to_string())).await.unwrap();
            assert_eq!(page.body.len(), 100);
            held.push(page);
        }
        let words = pages.get(wanted("3")).await.expect_err("no memory");
        assert!(words.starts_with("Too many clients read their pages slowly"));
        let asked = task::spawn({
            let pages = pages.clone();
            async move { pages.get(wanted("3")).await.is_ok() }
        });
        sleep(PATIENCE_FOR_ROOM / 2).await;
        held.pop();
        assert!(asked.await.unwrap(), "memory that is freed in time is used for the page");
    }

    #[tokio::test]
    async fn a_compressed_page_holds_no_uncompressed_copy() {
        let pages = shared(limits(), |_| async { Page::new("text/plain", vec![b'x'; 100_000]) });
        let packed = pages.get(("a".into(), true)).await.unwrap();
        assert!(packed.is_compressed && packed.body.len() < 1_000);
        assert_eq!(pages.held_bytes(), packed.body.len());
        let plain = pages.get(wanted("a")).await.unwrap();
        assert!(!plain.is_compressed && plain.body.len() == 100_000);
        let mut body = plain.body;
        let (piece, copy) = (body.split_to(1), body.clone());
        drop((packed, body, copy));
        assert_eq!(
            (pages.held_bytes(), &*piece),
            (100_000, &b"x"[..]),
            "counted until its last slice is dropped"
        );
        drop(piece);
        assert_eq!(pages.held_bytes(), 0);
    }
}

#[cfg(test)]
mod tests_of_gzip {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        let taken =
            |value: &str| takes_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]));
        for value in
            ["gzip", "deflate, gzip;q=1.0, *;q=0.5", "GZIP", "x-gzip", "br;q=1, *", "gzip;q=0.1", "gzip;q=x"]
        {
            assert!(taken(value), "{value}");
        }
        for value in ["", "identity", "gzip;q=0", "gzip; q=0.000", "*;q=0", "*, gzip;Q=0", "gzipped", ",;=,"]
        {
            assert!(!taken(value), "{value}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
