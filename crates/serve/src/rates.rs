//! Limits how often a user or an address may do something.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// Allows, for each key, `at_once` uses after a pause, and then one use in each period `every`.
#[derive(Debug)]
pub(crate) struct Rates<K> {
    at_once: u32,
    every: Duration,
    /// Maximum number of keys in the map.
    most: usize,
    /// For each key, the time from which none of its counted uses matters any more. Each use moves this time by one period.
    used_until: HashMap<K, Instant>,
}

impl<K: Copy + Eq + Hash> Rates<K> {
    pub fn new(at_once: u32, every: Duration, most: usize) -> Self {
        Self { at_once, every, most, used_until: HashMap::new() }
    }

    /// Counts a use. If the key must wait, returns false and counts nothing.
    pub fn take(&mut self, key: K, now: Instant) -> bool {
        let before = self.used_until.get(&key).copied();
        let until = before.map_or(now, |until| until.max(now));
        if until > now + self.every * (self.at_once - 1) {
            return false;
        }
        if before.is_none() && self.used_until.len() >= self.most {
            self.used_until.retain(|_, until| *until > now);
            let least = self.used_until.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key);
            if let Some(least) = least.filter(|_| self.used_until.len() >= self.most) {
                self.used_until.remove(&least);
            }
        }
        self.used_until.insert(key, until + self.every);
        true
    }

    pub fn give_back(&mut self, key: &K) {
        if let Some(until) = self.used_until.get_mut(key) {
            *until -= self.every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(2);

    #[test]
    fn a_key_has_a_few_uses_at_once_and_then_must_wait_for_each() {
        let (mut rates, start) = (Rates::new(5, EVERY, 1024), Instant::now());
        assert_eq!((0..100).filter(|_| rates.take(1, start)).count(), 5);
        assert!(rates.take(2, start), "each key has its own count");
        assert!(!rates.take(1, start + EVERY / 2));
        assert!(rates.take(1, start + EVERY) && !rates.take(1, start + EVERY));
        rates.give_back(&1);
        assert!(rates.take(1, start + EVERY), "a use that is given back is not counted");
        assert_eq!(
            (0..100).filter(|_| rates.take(1, start + 100 * EVERY)).count(),
            5,
            "not more after a pause"
        );
    }

    #[test]
    fn the_number_of_recorded_keys_is_limited() {
        let (mut rates, now) = (Rates::new(5, EVERY, 1024), Instant::now());
        assert!((0..5_000).all(|key| rates.take(key, now)));
        assert_eq!(rates.used_until.len(), 1024);
    }
}
