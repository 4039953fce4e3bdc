//! How long viewers wait before they try the daemon again.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The first wait before the daemon is tried again, and each one while nobody is there.
pub const AGAIN: Duration = Duration::from_millis(500);
/// The longest wait before a daemon is tried again that refuses, or fails soon.
const LONGEST: Duration = Duration::from_secs(30);

/// How long to wait before the daemon is tried again: twice as long after each time that it refused or failed, so that many viewers
/// do not keep a daemon in trouble busy.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Backoff {
    pub fn new() -> Self {
        Self(AGAIN)
    }

    /// The next wait; the one after it is longer.
    pub fn grow(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST);
        spread(wait)
    }
}

/// Up to a quarter more or less: viewers that lost the daemon together come back one by one.
pub fn spread(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(());
    wait.mul_f64(0.75 + 0.5 * (random as f64 / u64::MAX as f64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..10).map(|_| backoff.grow()).collect();
        let middle = (0..10).map(|n| (AGAIN * 2u32.pow(n)).min(LONGEST));
        for (wait, middle) in waits.iter().zip(middle) {
            assert!((middle.mul_f64(0.75)..=middle.mul_f64(1.25)).contains(wait), "{wait:?} of {middle:?}");
        }
        assert!((0..20).map(|_| spread(AGAIN)).collect::<HashSet<_>>().len() > 10);
    }
}
