//! Exports metrics on a separate thread, because building a page takes a while and viewers must not wait for it.

use std::time::{Duration, Instant};
use std::{future::pending, io, sync::Arc, thread};

use cgscope_collect::clock;
use cgscope_metrics::{Config, Format, Given, Metrics, family};
use cgscope_model::{Skipped, Steps};
use cgscope_serve::{
    collection::{Latest, Taken},
    counters::Counters,
    http::{Http, HttpRefusal, Page, Pages},
    pace::Pace,
    protocol::Refusal,
};
use tokio::{
    sync::{oneshot, watch},
    task::LocalSet,
    time::timeout,
};

/// Minimum time between two samples that are added to the counters between scrapes. Viewers may request samples much more often,
/// and adding a sample costs time for each task. Tasks that end in samples that are not added still count.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

pub struct Parts {
    pub pace: Arc<Pace>,
    pub latest: watch::Receiver<Latest>,
    pub http: Arc<Http>,
    pub counters: Arc<Counters<Refusal>>,
    /// A new configuration applies from the next sample on.
    pub config: watch::Receiver<Config>,
}

/// The thread that exports metrics. Receives the reason if the thread ends by itself. Dropping this value ends the thread.
pub struct Exporter(oneshot::Receiver<String>);

impl Exporter {
    pub fn start(parts: Parts) -> io::Result<Self> {
        Self::run(move || serve(parts))
    }

    /// Runs `work` on a thread. `work` ends only if it cannot continue, and then returns a sentence that says why.
    pub fn run<F: Future<Output = String>>(work: impl FnOnce() -> F + Send + 'static) -> io::Result<Self> {
        let (mut failing, failed) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("metrics".into()).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    sentence = work() => drop(failing.send(sentence)),
                    () = failing.closed() => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self(failed))
    }

    /// Waits until pages can no longer be served, and returns the reason.
    pub async fn failed(&mut self) -> String {
        (&mut self.0).await.unwrap_or_else(|_| "the thread that serves the metrics has ended".into())
    }
}

struct State {
    parts: Parts,
    metrics: Metrics,
    /// Contains the last sample that was added.
    steps: Steps<Taken>,
    started_s: f64,
}

async fn serve(parts: Parts) -> String {
    let (http, latest) = (parts.http.clone(), parts.latest.clone());
    let freshness = Freshness { pace: parts.pace.clone(), latest: latest.clone() };
    let metrics = Metrics::new(parts.config.borrow().clone());
    let state = State { parts, metrics, steps: Steps::default(), started_s: clock::unix_ns() as f64 / 1e9 };
    let state = Arc::new(tokio::sync::Mutex::new(state));
    let feed = feed(state.clone(), latest);
    let pages = http.serve(Source { state, freshness });
    let beside = async {
        // If no more samples follow, the collection reports the reason.
        feed.await;
        pending().await
    };
    tokio::select! {
        Err(error) = pages => error.to_string(),
        never = beside => never,
    }
}

/// Builds one page for each format.
struct Source {
    state: Arc<tokio::sync::Mutex<State>>,
    freshness: Freshness,
}

impl Pages for Source {
    type Kind = Format;

    fn kind(&self, accept: Option<&str>) -> Format {
        Format::for_accept(accept)
    }

    fn health(&self) -> Result<(), String> {
        self.freshness.health(STUCK)
    }

    async fn make(&self, format: Format) -> Page {
        self.freshness.wait().await;
        let mut state = self.state.lock().await;
        let taken = self.freshness.latest.borrow().clone();
        state.add(taken.ok().flatten());
        state.page(format)
    }
}

/// Adds samples between scrapes. So short-lived cgroups get names, and ended tasks are not held until the next scrape.
async fn feed(state: Arc<tokio::sync::Mutex<State>>, mut latest: watch::Receiver<Latest>) {
    let mut added: Option<Instant> = None;
    while latest.changed().await.is_ok() {
        if added.is_some_and(|at| at.elapsed() < LEAST_INTERVAL) {
            continue;
        }
        let taken = latest.borrow_and_update().clone();
        state.lock().await.add(taken.ok().flatten());
        added = Some(Instant::now());
    }
}

/// Returns the rows that ended between two samples.
fn skipped(before: &Taken, now: &Taken) -> Skipped {
    let (mut skipped, since) = (Skipped::default(), &before.reading.sample);
    for ended in before.ended.until(now.number) {
        let sample = &ended.reading.sample;
        if Skipped::concerns(sample, ended.number, before.number) {
            skipped.add(since, sample);
        }
    }
    skipped
}

impl State {
    fn add(&mut self, taken: Option<Taken>) {
        if self.parts.config.has_changed().unwrap_or(false) {
            self.metrics.set_config(self.parts.config.borrow_and_update().clone());
        }
        let Some(taken) = taken else { return };
        if self.steps.latest.as_ref().is_some_and(|before| before.number == taken.number) {
            return;
        }
        let Some((interval, before)) = self.steps.step_over(taken, skipped) else { return };
        self.metrics.add(&interval);
        // Takes about 10 ms on a host with 20,000 tasks, so the page does not wait. If no thread starts, the values are dropped
        // here.
        let _ = thread::Builder::new().spawn(move || drop((interval, before)));
    }

    fn page(&self, format: Format) -> Page {
        // Drops spare capacity, because slow readers keep the page in memory.
        Page::new(format.content_type(), self.metrics.page(format, &self.own()).into_boxed_slice())
    }

    fn own(&self) -> Vec<Given> {
        let Parts { http, counters, .. } = &self.parts;
        let of = |label, name: &str, value: u64| (vec![(label, name.to_owned())], value as f64);
        let refused = Refusal::ALL.map(|why| of("reason", why.name(), counters.refused(why)));
        let of_http = HttpRefusal::ALL.map(|why| of("reason", why.name(), http.counters.refused(why)));
        let build = of("version", env!("CARGO_PKG_VERSION"), 1);
        let mut given = vec![
            Given::one(family::CLIENTS, counters.clients() as f64),
            Given::one(family::CLIENT_REQUESTS, counters.requests() as f64),
            Given { family: family::CLIENTS_REFUSED, samples: refused.into() },
            Given::one(family::HTTP_CONNECTIONS, http.counters.clients() as f64),
            Given::one(family::HTTP_REQUESTS, http.counters.requests() as f64),
            Given { family: family::HTTP_REFUSED, samples: of_http.into() },
            Given { family: family::BUILD_INFO, samples: vec![build] },
            Given::one(family::PROCESS_START, self.started_s),
        ];
        let Some(taken) = &self.steps.latest else { return given };
        let cost = &taken.reading.sample.cost;
        given.push(Given::one(family::SAMPLE_AGE, taken.at.elapsed().as_secs_f64()));
        given.push(Given::one(family::COLLECTIONS, taken.number as f64));
        given.push(Given::one(family::COLLECTION_TIME, taken.took.as_secs_f64()));
        given.extend(cost.cpu_ns.map(|ns| Given::one(family::PROCESS_CPU, ns as f64 / 1e9)));
        given.extend(cost.rss_bytes.map(|bytes| Given::one(family::PROCESS_MEMORY, bytes as f64)));
        given
    }
}

/// Maximum age of a sample on a page. Limits the number of samples that frequent scrapes cause.
const FRESH: Duration = Duration::from_millis(250);
/// Time after which a sample counts as stuck. Probes then fail, and the watchdog of systemd is no longer notified.
pub const STUCK: Duration = Duration::from_secs(30);
/// Maximum wait for a sample. After that, the page shows the previous sample.
const PATIENCE: Duration = Duration::from_secs(5);

/// Provides fresh samples for pages.
struct Freshness {
    pace: Arc<Pace>,
    latest: watch::Receiver<Latest>,
}

impl Freshness {
    /// Waits until the latest sample is fresh. Requests a sample if necessary.
    pub async fn wait(&self) {
        let mut latest = self.latest.clone();
        let stale = match &*latest.borrow() {
            Ok(Some(taken)) if taken.at.elapsed() < FRESH => return,
            Ok(Some(taken)) => taken.number,
            Ok(None) => 0,
            Err(_) => return,
        };
        self.pace.now();
        let is_new = |latest: &Latest| match latest {
            Ok(Some(taken)) => taken.number > stale,
            Ok(None) => false,
            Err(_) => true,
        };
        let _ = timeout(PATIENCE, latest.wait_for(is_new)).await;
    }

    /// Returns a sentence that says why no samples are taken any more. The sentence reveals nothing about the host.
    fn health(&self, stuck: Duration) -> Result<(), String> {
        if self.latest.borrow().is_err() {
            return Err("The daemon can no longer take samples; its log says why.".into());
        }
        let Some(busy) = self.pace.busy_for().filter(|busy| *busy >= stuck) else { return Ok(()) };
        Err(format!("A sample has been under way for {} s; restart the daemon.", busy.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_reason_for_an_end_is_reported_even_after_a_panic() {
        let mut ended = Exporter::run(|| async { "no socket".into() }).expect("a thread");
        assert_eq!(ended.failed().await, "no socket");
        let mut panicked = Exporter::run(|| async { panic!("like a bug of ours") }).expect("a thread");
        assert!(panicked.failed().await.contains("has ended"));
    }

    #[tokio::test]
    async fn a_running_exporter_reports_nothing_and_ends_on_drop() {
        let (held, seen) = oneshot::channel::<()>();
        let work = || async move {
            let _held = held;
            pending().await
        };
        let mut exporter = Exporter::run(work).expect("a thread");
        assert!(timeout(Duration::from_millis(50), exporter.failed()).await.is_err());
        drop(exporter);
        assert!(seen.await.is_err());
    }

    #[test]
    fn a_collector_that_hangs_or_has_ended_is_not_healthy() {
        let (pace, (send, latest)) = (Arc::new(Pace::default()), watch::channel(Ok(None)));
        let freshness = Freshness { pace: pace.clone(), latest };
        assert_eq!(freshness.health(Duration::ZERO), Ok(()), "no sample is under way");
        pace.now();
        pace.wait(0);
        assert_eq!(freshness.health(STUCK), Ok(()));
        let said = freshness.health(Duration::ZERO).expect_err("it hangs");
        assert!(said.starts_with("A sample has been under way for 0 s"), "{said}");
        let _ = send.send_replace(Err("secret of the host".into()));
        let said = freshness.health(STUCK).expect_err("it has ended");
        assert!(!said.contains("secret"), "{said}");
    }
}
