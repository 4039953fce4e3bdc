//! When the next scrape will come: scrapers come at a steady beat, so that what they will ask for can be ready.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Scrapers that are told apart by their beats: two, as where Prometheus runs in pairs, and one more.
const SCRAPERS: usize = 3;
/// A gap is like another one where they differ by less than this share of it.
const LIKE: u32 = 20;
/// Nobody who scrapes more rarely is waited for.
const LONGEST: Duration = Duration::from_secs(300);

/// When scrapes came of late.
#[derive(Debug, Default)]
pub struct Beat {
    came: VecDeque<Instant>,
}

impl Beat {
    /// A scrape came.
    pub fn came(&mut self, at: Instant) {
        if self.came.len() > 2 * SCRAPERS {
            self.came.pop_front();
        }
        self.came.push_back(at);
    }

    /// When the next one will come, if those of late were at a steady beat: of one scraper, or of a few that each have one of the
    /// same length. Never before the last one.
    pub fn next(&self) -> Option<Instant> {
        let gaps: Vec<Duration> =
            self.came.iter().zip(self.came.iter().skip(1)).map(|(a, b)| *b - *a).collect();
        let last = *self.came.back()?;
        (1..=SCRAPERS).find_map(|scrapers| {
            let (before, latest) = gaps.get(gaps.len().checked_sub(2 * scrapers)?..)?.split_at(scrapers);
            let round: Duration = latest.iter().sum();
            // Gaps between scrapers may be short, and shift by as much as their rounds do.
            let is_like = |a: &Duration, b: &Duration| a.abs_diff(*b) < round / LIKE;
            let is_steady = before.iter().zip(latest).all(|(before, latest)| is_like(before, latest));
            (is_steady && round <= LONGEST).then(|| last + latest[0])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is foretold after scrapes at these moments, ms.
    fn next(came_ms: &[u64]) -> Option<u64> {
        let start = Instant::now();
        let mut beat = Beat::default();
        came_ms.iter().for_each(|ms| beat.came(start + Duration::from_millis(*ms)));
        beat.next().map(|next| (next - start).as_millis() as u64)
    }

    #[test]
    fn a_steady_scraper_is_foretold_from_its_third_scrape_on() {
        assert_eq!(next(&[0, 15_000]), None);
        assert_eq!(next(&[0, 15_000, 30_010]), Some(45_020));
        assert_eq!(next(&[0, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000]), Some(10_000));
    }

    #[test]
    fn so_are_two_and_three_that_come_in_turn() {
        assert_eq!(next(&[0, 4_000, 15_000, 19_000, 30_000]), Some(34_000));
        assert_eq!(next(&[0, 4_000, 15_000, 19_000, 30_000, 34_000]), Some(45_000));
        assert_eq!(next(&[0, 1, 9_000, 15_000, 15_001, 24_000, 30_000]), Some(30_001));
    }

    #[test]
    fn who_comes_as_they_like_is_not() {
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[0, 15_000, 27_000]), None);
        assert_eq!(next(&[0, 1_000, 15_000, 18_000, 30_000, 47_000, 49_000]), None);
        assert_eq!(next(&[0, 400_000, 800_000]), None, "too rarely");
        assert_eq!(next(&[0, 0, 0]), None, "all at once");
    }

    #[test]
    fn one_that_was_steady_and_is_not_any_more_is_not() {
        assert_eq!(next(&[0, 15_000, 30_000, 45_000, 52_000]), None);
    }
}
