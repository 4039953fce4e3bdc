//! How pages come to be of a fresh Sample. A scraper that comes at a steady beat finds it taken when it comes; for any other it is taken
//! then.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cgscope_serve::{beat::Beat, collection::Latest, lock, pace::Pace};
use tokio::{
    sync::watch,
    time::{sleep_until, timeout},
};

/// A page is of a Sample that is not older, so that whoever scrapes again and again costs no more collections than this lets them.
const FRESH: Duration = Duration::from_millis(250);
/// A Sample that does not come in this time is not waited for: the page is of the one before.
const PATIENCE: Duration = Duration::from_secs(5);
/// Beside what it took the last time, a Sample is begun so much earlier than it is wanted.
const SLACK: Duration = Duration::from_millis(20);

/// Sees to fresh Samples.
pub(super) struct Freshness {
    pace: Arc<Pace>,
    latest: watch::Receiver<Latest>,
    beat: Mutex<Beat>,
    /// When a Sample was last asked for ahead of a scrape.
    asked: Mutex<Option<Instant>>,
    /// When the next one is to be.
    ahead: watch::Sender<Option<Instant>>,
}

impl Freshness {
    pub fn new(pace: Arc<Pace>, latest: watch::Receiver<Latest>) -> Self {
        let (ahead, _) = watch::channel(None);
        Self { pace, latest, beat: Mutex::default(), asked: Mutex::new(None), ahead }
    }

    /// Waits until the latest Sample is a fresh one, taking one if need be.
    pub async fn wait(&self) {
        let mut latest = self.latest.clone();
        let stale = match &*latest.borrow() {
            Ok(Some(taken)) if taken.at.elapsed() < FRESH => return,
            Ok(Some(taken)) => Some((taken.number, taken.at)),
            Ok(None) => None,
            Err(_) => return,
        };
        let is_under_way = |at: &Instant| at.elapsed() < PATIENCE && stale.is_none_or(|(_, last)| *at > last);
        if !lock(&self.asked).as_ref().is_some_and(is_under_way) {
            self.pace.now();
        }
        let stale = stale.map_or(0, |(number, _)| number);
        let is_new = |latest: &Latest| match latest {
            Ok(Some(taken)) => taken.number > stale,
            Ok(None) => false,
            Err(_) => true,
        };
        // What is there is shown where nothing comes.
        let _ = timeout(PATIENCE, latest.wait_for(is_new)).await;
    }

    /// A scrape came at that moment. `readying`: how long its Sample took to get ready.
    pub fn came(&self, at: Instant, readying: Duration) {
        let mut beat = lock(&self.beat);
        beat.came(at);
        // Earlier than that it would not be fresh any more where it does not take longer than the last time.
        let early = readying + (readying / 2).min(FRESH / 2) + SLACK;
        let ahead = beat.next().and_then(|next| next.checked_sub(early)).filter(|ahead| *ahead > at);
        self.ahead.send_replace(ahead);
    }

    /// Has Samples taken ahead of the scrapes that are expected. Never ends.
    pub async fn take_ahead(&self) {
        let mut ahead = self.ahead.subscribe();
        loop {
            let at = *ahead.borrow_and_update();
            let due = async {
                match at {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = ahead.changed() => continue,
                () = due => {}
            }
            *lock(&self.asked) = Some(Instant::now());
            self.pace.now();
            // Once for each scrape: whoever stops scraping costs one Sample.
            let _ = ahead.changed().await;
        }
    }
}
