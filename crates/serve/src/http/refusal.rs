//! What was refused to clients, counted by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

cgscope_layout::named! {
    /// Why a client did not get what it asked for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HttpRefusal (name,) {
        /// Its name in answers and metrics.
        name: &'static str,
    }

    /// All places are taken by clients that are being answered.
    Full = "full";
    /// A newer client took its place while it sent nothing.
    Displaced = "displaced";
    /// It took longer than [`super::HttpLimits`] allow.
    Slow = "slow";
    /// The TLS handshake failed.
    Tls = "tls";
    /// Its request was no HTTP.
    Malformed = "malformed";
    /// Its request was longer than a request may be.
    Oversized = "oversized";
    /// A method other than GET and HEAD.
    Method = "method";
    /// An unknown path.
    Path = "path";
    /// No password, or a wrong one.
    Unauthorized = "unauthorized";
    /// Too many wrong passwords before.
    Guessing = "guessing";
    /// The page could not be made, or not in time.
    Unavailable = "unavailable";
}

/// Counts that only rise.
#[derive(Default)]
pub(super) struct Counts {
    refused: [AtomicU64; HttpRefusal::ALL.len()],
    pub(super) answered: AtomicU64,
}

impl Counts {
    pub(super) fn refuse(&self, refusal: HttpRefusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self, refusal: HttpRefusal) -> u64 {
        self.refused[refusal as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_count_and_name() {
        let counts = Counts::default();
        for (times, refusal) in HttpRefusal::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| counts.refuse(refusal));
        }
        let all = HttpRefusal::ALL.map(|refusal| counts.refused(refusal));
        assert!(all.iter().enumerate().all(|(times, count)| *count == times as u64), "{all:?}");
        let mut names = HttpRefusal::ALL.map(HttpRefusal::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HttpRefusal::ALL.len());
    }
}
