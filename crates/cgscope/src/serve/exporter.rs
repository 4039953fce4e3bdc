//! Exports metrics on a separate thread: building a page may take a while, and viewers must not wait for it.

use std::{
    future::pending,
    io,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cgscope_metrics::{Config, Format, Given, GivenSample, Metrics, family};
use cgscope_model::{Interval, Skipped};
use cgscope_serve::{
    collection::{Latest, Taken},
    http::{Http, Page, Pages},
    lock,
    pace::Pace,
    protocol::Refusal,
    socket::Counters,
};
use tokio::{
    sync::{oneshot, watch},
    task::LocalSet,
};

use super::freshness::Freshness;

/// Minimum time between two samples that are added to the counters without a scrape. Viewers may request samples much more
/// often, and each added sample costs work for every task. Tasks that end in between are still counted.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

pub struct Parts {
    pub pace: Arc<Pace>,
    pub latest: watch::Receiver<Latest>,
    pub http: Arc<Http>,
    pub counters: Arc<Counters>,
    pub config: Config,
}

/// The running exporter. Dropping it ends the thread.
pub struct Exporter {
    config: Arc<Mutex<Option<Config>>>,
    stop: Option<oneshot::Sender<()>>,
    failed: oneshot::Receiver<String>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    pub fn start(parts: Parts) -> io::Result<Self> {
        Self::run(move |config| serve(parts, config))
    }

    #[cfg(test)]
    pub fn that_says(sentence: &'static str) -> Self {
        Self::run(move |_| async move { sentence.into() }).expect("a thread")
    }

    /// Runs `work` on a thread. `work` ends only if it cannot continue, and returns a sentence that says why.
    fn run<F>(work: impl FnOnce(Arc<Mutex<Option<Config>>>) -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = String>,
    {
        let config = Arc::new(Mutex::new(None));
        let (stop, stopped) = oneshot::channel();
        let (failing, failed) = oneshot::channel();
        let shared = config.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("metrics".into()).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    sentence = work(shared) => {
                        let _ = failing.send(sentence);
                    }
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { config, stop: Some(stop), failed, thread: Some(thread) })
    }

    /// Waits until no page is served any more, and returns why.
    pub async fn failed(&mut self) -> String {
        (&mut self.failed).await.unwrap_or_else(|_| "the thread that serves the metrics has ended".into())
    }

    /// Sets another configuration, which applies from the next sample on.
    pub fn set_config(&self, config: Config) {
        *lock(&self.config) = Some(config);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // An error means a panic, whose message has been printed.
            let _ = thread.join();
        }
    }
}

struct State {
    metrics: Metrics,
    config: Arc<Mutex<Option<Config>>>,
    /// The last sample that was added.
    before: Option<Taken>,
    /// The time from the start of the last sample until that sample was added.
    readying: Duration,
    counters: Arc<Counters>,
    http: Arc<Http>,
    started_s: f64,
}

async fn serve(parts: Parts, config: Arc<Mutex<Option<Config>>>) -> String {
    let Parts { pace, latest, http, counters, config: begun } = parts;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let state = State {
        metrics: Metrics::new(begun),
        config,
        before: None,
        readying: Duration::ZERO,
        counters,
        http: http.clone(),
        started_s: started.as_secs_f64(),
    };
    let state = Arc::new(tokio::sync::Mutex::new(state));
    let feed = feed(state.clone(), latest.clone());
    let freshness = Arc::new(Freshness::new(pace, latest.clone()));
    let ahead = freshness.clone();
    let pages = http.serve(Source { state, latest, freshness });
    let beside = async {
        // If samples stop, the collection reports why.
        tokio::join!(feed, ahead.take_ahead());
        pending().await
    };
    tokio::select! {
        error = pages => error.to_string(),
        never = beside => never,
    }
}

/// Builds pages, one for each format.
struct Source {
    state: Arc<tokio::sync::Mutex<State>>,
    latest: watch::Receiver<Latest>,
    freshness: Arc<Freshness>,
}

impl Pages for Source {
    type Kind = Format;

    fn kind(&self, accept: Option<&str>) -> Format {
        Format::for_accept(accept)
    }

    fn health(&self) -> Result<(), String> {
        self.freshness.health()
    }

    async fn make(&self, format: Format) -> Page {
        let came = Instant::now();
        self.freshness.wait().await;
        let mut state = self.state.lock().await;
        let taken = self.latest.borrow().clone();
        state.add(taken.ok().flatten());
        self.freshness.came(came, state.readying);
        state.page(format)
    }
}

/// Adds samples between scrapes, so that short-lived cgroups get names and ended tasks are not held until the next scrape.
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

impl State {
    fn add(&mut self, taken: Option<Taken>) {
        if let Some(config) = lock(&self.config).take() {
            self.metrics.set_config(config);
        }
        let Some(taken) = taken else { return };
        let Some(before) = self.before.replace(taken) else { return };
        let now = self.before.as_ref().unwrap_or(&before);
        if now.number == before.number {
            return;
        }
        let began = Instant::now();
        let (mut skipped, since) = (Skipped::default(), &before.reading.sample);
        for ended in before.ended.until(now.number) {
            let sample = &ended.reading.sample;
            if Skipped::concerns(sample, ended.number, before.number) {
                skipped.add(since.mono_ns, |serial| since.did(serial), |id| since.exited_of(id), sample);
            }
        }
        let interval = Interval::over(since, &now.reading.sample, &mut skipped);
        self.metrics.add(&interval);
        let samples = u32::try_from(now.number - before.number).unwrap_or(u32::MAX);
        self.readying = now.took.saturating_sub(before.took) / samples + began.elapsed();
        // On a host with 20,000 tasks this takes about 10 ms, so the page does not wait for it.
        // Without memory for a thread, it happens here.
        let _ = thread::Builder::new().spawn(move || drop((interval, before)));
    }

    fn page(&self, format: Format) -> Page {
        // Readers hold the page, so drop spare capacity.
        Page::ok(format.content_type(), self.metrics.page(format, &self.own()).into_boxed_slice())
    }

    fn own(&self) -> Vec<Given> {
        let count =
            |atomic: &std::sync::atomic::AtomicU64| atomic.load(std::sync::atomic::Ordering::Relaxed) as f64;
        let by = |family, label, samples: Vec<(String, f64)>| Given {
            family,
            samples: samples
                .into_iter()
                .map(|(name, value)| GivenSample { labels: vec![(label, name)], value })
                .collect(),
        };
        let refused =
            Refusal::ALL.map(|refusal| (refusal.name().to_owned(), self.counters.refused(refusal) as f64));
        let of_http = self.http.refused().map(|(refusal, count)| (refusal.name().to_owned(), count as f64));
        let mut given = vec![
            Given::one(family::CLIENTS, count(&self.counters.clients)),
            Given::one(family::CLIENT_REQUESTS, count(&self.counters.requests)),
            by(family::CLIENTS_REFUSED, "reason", refused.into()),
            Given::one(family::HTTP_CONNECTIONS, self.http.connections() as f64),
            Given::one(family::HTTP_REQUESTS, self.http.answered() as f64),
            by(family::HTTP_REFUSED, "reason", of_http.into()),
            by(family::BUILD_INFO, "version", vec![(env!("CARGO_PKG_VERSION").into(), 1.0)]),
            Given::one(family::PROCESS_START, self.started_s),
        ];
        let Some(taken) = &self.before else { return given };
        let cost = &taken.reading.sample.cost;
        given.push(Given::one(family::SAMPLE_AGE, taken.at.elapsed().as_secs_f64()));
        given.push(Given::one(family::COLLECTIONS, taken.number as f64));
        given.push(Given::one(family::COLLECTION_TIME, taken.took.as_secs_f64()));
        given.extend(cost.cpu_ns.map(|ns| Given::one(family::PROCESS_CPU, ns as f64 / 1e9)));
        given.extend(cost.rss_bytes.map(|bytes| Given::one(family::PROCESS_MEMORY, bytes as f64)));
        given
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_reason_for_an_end_is_reported_even_after_a_panic() {
        let mut ended = Exporter::that_says("no socket");
        assert_eq!(ended.failed().await, "no socket");
        let mut panicked = Exporter::run(|_| async { panic!("like a bug of ours") }).expect("a thread");
        assert!(panicked.failed().await.contains("has ended"));
    }

    #[tokio::test]
    async fn a_running_exporter_reports_nothing_and_ends_on_drop() {
        let (held, seen) = oneshot::channel::<()>();
        let work = |_| async move {
            let _held = held;
            pending().await
        };
        let mut exporter = Exporter::run(work).expect("a thread");
        assert!(timeout(Duration::from_millis(50), exporter.failed()).await.is_err());
        drop(exporter);
        assert!(seen.await.is_err());
    }
}
