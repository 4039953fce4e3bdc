//! Where the Samples of a recording are.

use crate::{
    codec::{Clocks, SYNC},
    frame::{Found, kind},
};

/// The Samples of a recording in order, and when they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    entries: Vec<Entry>,
}

/// One Sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where its frame begins.
    at: u64,
    /// It stands for itself.
    is_key: bool,
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub mono_ns: u64,
}

impl Index {
    /// The Samples.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One that makes no sense is left out, as the reader leaves it out.
    pub(crate) fn add(&mut self, at: u64, found: &Found, payload: &[u8]) {
        let is_key = matches!(found, Found::Frame(kind::KEY));
        let clocks = if is_key { payload.strip_prefix(&SYNC) } else { Some(payload) };
        if let Some(Clocks { unix_ns, mono_ns }) = clocks.and_then(Clocks::of) {
            self.entries.push(Entry { at, is_key, unix_ns, mono_ns });
        }
    }

    /// Where to begin for a Sample, and where its own frame is.
    pub(crate) fn way_to(&self, number: usize) -> Option<(u64, u64)> {
        let target = self.entries.get(number)?;
        let key = self.entries[..=number].iter().rfind(|entry| entry.is_key).unwrap_or(target);
        Some((key.at, target.at))
    }
}
