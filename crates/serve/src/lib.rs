//! The daemon's servers: a socket for viewers, and an HTTP server for pages. This crate does not use aya and does not read `/proc`.
//!
//! [`collection`] is the one thread that takes samples, at the [`pace`] that all viewers together request. [`shown`] filters a
//! sample to what a user may see. `streams` encodes the result once for all viewers with the same view. [`socket`] sends it, and
//! [`client`] receives it. [`http`] serves pages; it uses only [`config`], [`counters`] and
//! `rates` of these.

pub mod client;
pub mod collection;
pub mod config;
pub mod counters;
pub mod http;
pub mod pace;
pub mod protocol;
mod rates;
pub mod shown;
pub mod socket;
mod streams;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even one that a panic has poisoned: no lock here ever guards half-changed data.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
