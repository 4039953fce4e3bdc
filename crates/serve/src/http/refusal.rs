//! What was refused to clients, counted by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a client did not get what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All places were taken by clients that are being answered.
    Full,
    /// Its place went to a newer client while it sent nothing.
    Displaced,
    /// It took longer than [`super::Limits`] allow.
    Slow,
    /// No TLS handshake came about.
    Tls,
    /// Its request was no HTTP.
    Malformed,
    /// Its request was longer than a request may be.
    Oversized,
    /// A method other than GET and HEAD.
    Method,
    /// A path that is not there.
    Path,
    /// No password, or a wrong one.
    Unauthorized,
    /// Too many wrong passwords before.
    Guessing,
    /// The page could not be made, or not in time.
    Unavailable,
}

impl Refusal {
    /// All, in the order of their names in figures.
    pub const ALL: [Self; 11] = [
        Self::Full,
        Self::Displaced,
        Self::Slow,
        Self::Tls,
        Self::Malformed,
        Self::Oversized,
        Self::Method,
        Self::Path,
        Self::Unauthorized,
        Self::Guessing,
        Self::Unavailable,
    ];

    /// The value of a label: one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Displaced => "displaced",
            Self::Slow => "slow",
            Self::Tls => "tls",
            Self::Malformed => "malformed",
            Self::Oversized => "oversized",
            Self::Method => "method",
            Self::Path => "path",
            Self::Unauthorized => "unauthorized",
            Self::Guessing => "guessing",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Counts that only rise, and the connections that are open.
#[derive(Default)]
pub(super) struct Counts {
    refused: [AtomicU64; Refusal::ALL.len()],
    answered: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
}

impl Counts {
    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Relaxed)
    }

    pub(super) fn answer(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    pub(super) fn open(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    pub(super) fn close(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    pub(super) fn connections(&self) -> u64 {
        // Read in this order, none can be closed that is not opened.
        let closed = self.closed.load(Relaxed);
        self.opened.load(Relaxed).saturating_sub(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_count_and_name() {
        let counts = Counts::default();
        for (times, refusal) in Refusal::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| counts.refuse(refusal));
        }
        let all = Refusal::ALL.map(|refusal| counts.refused(refusal));
        assert!(all.iter().enumerate().all(|(times, count)| *count == times as u64), "{all:?}");
        let mut names = Refusal::ALL.map(Refusal::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Refusal::ALL.len());
    }
}
