//! Counters of the servers, for metrics.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::lock;

/// Counters of one server. `R` is the type of the reasons why the server refuses a client.
#[derive(Debug)]
pub struct Counters<R> {
    clients: AtomicU64,
    requests: AtomicU64,
    refused: Mutex<BTreeMap<R, u64>>,
}

impl<R> Default for Counters<R> {
    fn default() -> Self {
        Self { clients: AtomicU64::new(0), requests: AtomicU64::new(0), refused: Mutex::default() }
    }
}

impl<R: Copy + Ord> Counters<R> {
    /// Returns the number of connected clients.
    pub fn clients(&self) -> u64 {
        self.clients.load(Relaxed)
    }

    /// Returns the number of accepted requests.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns how many times the server refused or disconnected a client for this reason.
    pub fn refused(&self, reason: R) -> u64 {
        lock(&self.refused).get(&reason).copied().unwrap_or_default()
    }

    pub(crate) fn set_clients(&self, clients: usize) {
        self.clients.store(clients as u64, Relaxed);
    }

    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn refuse(&self, reason: R) {
        *lock(&self.refused).entry(reason).or_default() += 1;
    }
}
