//! Counters of the servers, for metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::lock;

/// Counters of one server. `R` is the type of the reasons why the server refuses a client.
#[derive(Debug)]
pub struct Counters<R> {
    /// Each client holds a clone of this value. The number of clones is the number of clients.
    clients: Arc<()>,
    /// Number of refusals for each reason. The key `None` counts the accepted requests.
    counts: Mutex<BTreeMap<Option<R>, u64>>,
}

impl<R> Default for Counters<R> {
    fn default() -> Self {
        Self { clients: Arc::default(), counts: Mutex::default() }
    }
}

impl<R: Copy + Ord> Counters<R> {
    pub fn clients(&self) -> u64 {
        Arc::strong_count(&self.clients) as u64 - 1
    }

    pub fn requests(&self) -> u64 {
        lock(&self.counts).get(&None).copied().unwrap_or_default()
    }

    /// Returns how many times the server refused or disconnected a client for this reason.
    pub fn refused(&self, reason: R) -> u64 {
        lock(&self.counts).get(&Some(reason)).copied().unwrap_or_default()
    }

    /// Counts a client until the returned value is dropped.
    pub(crate) fn client(&self) -> Arc<()> {
        self.clients.clone()
    }

    pub(crate) fn request(&self) {
        *lock(&self.counts).entry(None).or_default() += 1;
    }

    pub(crate) fn refuse(&self, reason: R) {
        *lock(&self.counts).entry(Some(reason)).or_default() += 1;
    }
}
