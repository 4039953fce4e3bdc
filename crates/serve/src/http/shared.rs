//! One page at a time, made once for all who ask for it meanwhile: a page may be dear, and clients are not to multiply that.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{OnceCell, Semaphore, watch},
    task,
    time::timeout,
};

use super::{Page, Request, gzip, limits::GZIP_LEAST_BYTES, lock};

/// A page that was made, for any number of clients.
pub(super) struct Made {
    pub(super) page: Page,
    gzip: OnceCell<Option<Bytes>>,
}

/// Pages that are being made. `P` makes one.
pub(super) struct SharedPages<P> {
    make: P,
    limit: Duration,
    /// The most that are waited for at once: those of clients that went away are made all the same.
    most: usize,
    turn: Semaphore,
    awaited: Mutex<Vec<Awaited>>,
}

struct Awaited {
    request: Request,
    made: watch::Receiver<Option<Arc<Made>>>,
}

impl Made {
    fn new(page: Page) -> Arc<Self> {
        Arc::new(Self { page, gzip: OnceCell::new() })
    }

    /// Its body compressed, made for the first who takes it so. None: not worth it.
    pub(super) async fn gzip(&self) -> Option<Bytes> {
        let body = &self.page.body;
        if body.len() < GZIP_LEAST_BYTES {
            return None;
        }
        let compress = || async {
            let body = body.clone();
            task::spawn_blocking(move || gzip::compress(&body).ok()).await.ok().flatten()
        };
        self.gzip.get_or_init(compress).await.clone()
    }
}

impl<P, F> SharedPages<P>
where
    P: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Page> + Send + 'static,
{
    pub(super) fn new(make: P, limit: Duration, most: usize) -> Arc<Self> {
        let awaited = Mutex::default();
        Arc::new(Self { make, limit, most, turn: Semaphore::new(1), awaited })
    }

    /// The page; that of another client with the same request, if it is being made or about to be. None: too many are awaited, or
    /// making it failed.
    pub(super) async fn get(self: &Arc<Self>, request: Request) -> Option<Arc<Made>> {
        let mut made = self.join(request)?;
        made.wait_for(Option::is_some).await.ok()?.clone()
    }

    fn join(self: &Arc<Self>, request: Request) -> Option<watch::Receiver<Option<Arc<Made>>>> {
        let mut awaited = lock(&self.awaited);
        if let Some(same) = awaited.iter().find(|other| other.request == request) {
            return Some(same.made.clone());
        }
        if awaited.len() >= self.most {
            return None;
        }
        let (sender, made) = watch::channel(None);
        awaited.push(Awaited { request: request.clone(), made: made.clone() });
        task::spawn(Arc::clone(self).make(request, sender));
        Some(made)
    }

    /// In a task of its own, so that a client that goes away takes the page from nobody.
    async fn make(self: Arc<Self>, request: Request, sender: watch::Sender<Option<Arc<Made>>>) {
        // Dropped also where the caller panics: else all who ask later would wait for this one.
        let over = Over { pages: &self, request: &request };
        let Ok(_turn) = self.turn.acquire().await else { return };
        let page = timeout(self.limit, (self.make)(request.clone())).await;
        // Who comes from now on gets a new page.
        drop(over);
        let late = |_| Page::text(503, "The page was not made in time; try again later.\n");
        sender.send_replace(Some(Made::new(page.unwrap_or_else(late))));
    }
}

struct Over<'a, P> {
    pages: &'a SharedPages<P>,
    request: &'a Request,
}

impl<P> Drop for Over<'_, P> {
    fn drop(&mut self) {
        lock(&self.pages.awaited).retain(|awaited| awaited.request != *self.request);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::time::sleep;

    use super::*;

    fn request(accept: &str) -> Request {
        Request { path: "/metrics".into(), accept: Some(accept.into()) }
    }

    #[derive(Default)]
    struct Seen {
        made: AtomicUsize,
        at_once: AtomicUsize,
        most_at_once: AtomicUsize,
    }

    async fn slow_page(seen: Arc<Seen>, request: Request) -> Page {
        let at_once = seen.at_once.fetch_add(1, SeqCst) + 1;
        seen.most_at_once.fetch_max(at_once, SeqCst);
        sleep(Duration::from_millis(50)).await;
        seen.at_once.fetch_sub(1, SeqCst);
        let number = seen.made.fetch_add(1, SeqCst);
        Page::ok("text/plain", format!("{number} {}", request.accept.unwrap_or_default()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_page_is_made_at_a_time_and_once_for_all_who_ask_meanwhile() {
        let seen = Arc::new(Seen::default());
        let make = {
            let seen = seen.clone();
            move |request| slow_page(seen.clone(), request)
        };
        let pages = SharedPages::new(make, Duration::from_secs(1), 8);
        let ask = |accept: &'static str| {
            let pages = pages.clone();
            task::spawn(async move { pages.get(request(accept)).await.map(|made| made.page.body.clone()) })
        };
        let asked: Vec<_> = ["a", "b"].into_iter().cycle().take(40).map(ask).collect();
        for (at, answer) in asked.into_iter().enumerate() {
            let expected = if at % 2 == 0 { "0 a" } else { "1 b" };
            assert_eq!(answer.await.unwrap().unwrap(), expected);
        }
        assert_eq!(seen.most_at_once.load(SeqCst), 1);
        assert_eq!(ask("a").await.unwrap().unwrap(), "2 a", "a page is not kept for those who come later");
    }

    #[tokio::test(start_paused = true)]
    async fn pages_of_clients_that_went_away_are_bounded() {
        let make = |_| async {
            sleep(Duration::from_millis(50)).await;
            Page::ok("text/plain", "x")
        };
        let pages = SharedPages::new(make, Duration::from_secs(1), 8);
        for n in 0..8 {
            assert!(timeout(Duration::ZERO, pages.get(request(&n.to_string()))).await.is_err());
        }
        assert!(pages.get(request("8")).await.is_none());
        assert!(pages.get(request("0")).await.is_some(), "one that is awaited can be joined");
        sleep(Duration::from_secs(1)).await;
        assert!(pages.get(request("8")).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_hangs_or_panics_is_an_answer_and_holds_up_no_other() {
        let make = |request: Request| async move {
            match request.accept.as_deref() {
                Some("hangs") => std::future::pending().await,
                Some("panics") => panic!("as a caller's fault might"),
                _ => Page::ok("text/plain", "x"),
            }
        };
        let pages = SharedPages::new(make, Duration::from_secs(1), 8);
        for _ in 0..3 {
            assert_eq!(pages.get(request("hangs")).await.unwrap().page.status, 503);
            assert!(pages.get(request("panics")).await.is_none());
            assert_eq!(pages.get(request("fine")).await.unwrap().page.status, 200);
        }
    }
}
