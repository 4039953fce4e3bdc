//! Fresh samples for pages. For a periodic scrape, the sample is taken ahead; for any other scrape, it is taken when the scrape
//! arrives.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cgscope_serve::{collection::Latest, lock, pace::Pace};
use tokio::{
    sync::watch,
    time::{sleep_until, timeout},
};

/// The maximum age of a sample on a page. This limits the number of samples that frequent scrapes cause.
const FRESH: Duration = Duration::from_millis(250);
/// After this time, a sample counts as stuck: probes fail, and the watchdog of systemd is no longer notified.
pub(super) const STUCK: Duration = Duration::from_secs(30);
/// The longest wait for a sample; after that, the page shows the previous one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Margin added to the time that the last sample took, when a sample is taken ahead.
const SLACK: Duration = Duration::from_millis(20);

pub(super) struct Freshness {
    pace: Arc<Pace>,
    latest: watch::Receiver<Latest>,
    beat: Mutex<Beat>,
    /// When a sample was last requested ahead of a scrape.
    asked: Mutex<Option<Instant>>,
    ahead: watch::Sender<Option<Instant>>,
}

impl Freshness {
    pub fn new(pace: Arc<Pace>, latest: watch::Receiver<Latest>) -> Self {
        let (ahead, _) = watch::channel(None);
        Self { pace, latest, beat: Mutex::default(), asked: Mutex::new(None), ahead }
    }

    /// Waits until the latest sample is fresh; requests one if necessary.
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
        let _ = timeout(PATIENCE, latest.wait_for(is_new)).await;
    }

    /// Returns why no samples are taken any more. Sentences have no details of the host.
    pub fn health(&self) -> Result<(), String> {
        self.health_after(STUCK)
    }

    fn health_after(&self, stuck: Duration) -> Result<(), String> {
        if self.latest.borrow().is_err() {
            return Err("The daemon can no longer take samples; its log says why.".into());
        }
        match self.pace.busy_for().filter(|busy| *busy >= stuck) {
            Some(busy) => {
                Err(format!("A sample has been under way for {} s; restart the daemon.", busy.as_secs()))
            }
            None => Ok(()),
        }
    }

    /// Records a scrape at `at`. `readying` is the time that its sample took to get ready.
    pub fn came(&self, at: Instant, readying: Duration) {
        let mut beat = lock(&self.beat);
        beat.came(at);
        // If taken earlier, a sample might be stale when the scrape arrives.
        let early = readying + (readying / 2).min(FRESH / 2) + SLACK;
        let ahead = beat.next().and_then(|next| next.checked_sub(early)).filter(|ahead| *ahead > at);
        self.ahead.send_replace(ahead);
    }

    /// Takes samples ahead of expected scrapes. Never returns.
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
            // One sample per scrape: after the last scrape, only one sample is wasted.
            let _ = ahead.changed().await;
        }
    }
}

/// Maximum number of periodic scrapers that we can predict: a Prometheus pair, and one more.
const SCRAPERS: usize = 3;
/// Two gaps count as equal if they differ by less than the period divided by this.
const LIKE: u32 = 20;
/// The longest period for which samples are taken ahead.
const LONGEST: Duration = Duration::from_secs(300);

/// The times of the latest scrapes.
#[derive(Debug, Default)]
struct Beat {
    came: VecDeque<Instant>,
}

impl Beat {
    fn came(&mut self, at: Instant) {
        if self.came.len() > 2 * SCRAPERS {
            self.came.pop_front();
        }
        self.came.push_back(at);
    }

    /// Predicts the next scrape if the latest scrapes were periodic: one scraper, or a few with the same period. Never before the
    /// last scrape.
    fn next(&self) -> Option<Instant> {
        let gaps: Vec<Duration> =
            self.came.iter().zip(self.came.iter().skip(1)).map(|(a, b)| *b - *a).collect();
        let last = *self.came.back()?;
        (1..=SCRAPERS).find_map(|scrapers| {
            let (before, latest) = gaps.get(gaps.len().checked_sub(2 * scrapers)?..)?.split_at(scrapers);
            let round: Duration = latest.iter().sum();
            // Compare with the whole period: gaps between scrapers may be short, but vary as much as the period does.
            let is_like = |a: &Duration, b: &Duration| a.abs_diff(*b) < round / LIKE;
            let is_steady = before.iter().zip(latest).all(|(before, latest)| is_like(before, latest));
            (is_steady && round <= LONGEST).then(|| last + latest[0])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The predicted scrape after scrapes at these times, ms.
    fn next(came_ms: &[u64]) -> Option<u64> {
        let start = Instant::now();
        let mut beat = Beat::default();
        came_ms.iter().for_each(|ms| beat.came(start + Duration::from_millis(*ms)));
        beat.next().map(|next| (next - start).as_millis() as u64)
    }

    #[test]
    fn a_collector_that_hangs_or_has_ended_is_not_healthy() {
        let (pace, (send, latest)) = (Arc::new(Pace::default()), watch::channel(Ok(None)));
        let freshness = Freshness::new(pace.clone(), latest);
        assert_eq!(freshness.health_after(Duration::ZERO), Ok(()), "no sample is under way");
        pace.now();
        pace.wait(0);
        assert_eq!(freshness.health(), Ok(()));
        let said = freshness.health_after(Duration::ZERO).expect_err("it hangs");
        assert!(said.starts_with("A sample has been under way for 0 s"), "{said}");
        let _ = send.send_replace(Err("secret of the host".into()));
        let said = freshness.health().expect_err("it has ended");
        assert!(!said.contains("secret"), "{said}");
    }

    #[test]
    fn a_periodic_scraper_is_predicted_after_its_third_scrape() {
        assert_eq!(next(&[0, 15_000]), None);
        assert_eq!(next(&[0, 15_000, 30_010]), Some(45_020));
        assert_eq!(next(&[0, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000]), Some(10_000));
    }

    #[test]
    fn two_or_three_periodic_scrapers_are_predicted() {
        assert_eq!(next(&[0, 4_000, 15_000, 19_000, 30_000]), Some(34_000));
        assert_eq!(next(&[0, 4_000, 15_000, 19_000, 30_000, 34_000]), Some(45_000));
        assert_eq!(next(&[0, 1, 9_000, 15_000, 15_001, 24_000, 30_000]), Some(30_001));
    }

    #[test]
    fn irregular_scrapers_are_not_predicted() {
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[0, 15_000, 27_000]), None);
        assert_eq!(next(&[0, 1_000, 15_000, 18_000, 30_000, 47_000, 49_000]), None);
        assert_eq!(next(&[0, 400_000, 800_000]), None, "too rarely");
        assert_eq!(next(&[0, 0, 0]), None, "all at once");
    }

    #[test]
    fn a_scraper_that_is_no_longer_periodic_is_not_predicted() {
        assert_eq!(next(&[0, 15_000, 30_000, 45_000, 52_000]), None);
    }
}
