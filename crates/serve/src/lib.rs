//! The servers of the daemon: a socket for viewers, and an HTTP server for pages. This crate uses neither aya nor `/proc`.
//!
//! The thread in [`collection`] takes samples, at the [`pace`] that all viewers together request. [`shown`] selects the part of a
//! sample that a user may see. `streams` encodes this part once for all viewers with the same view. [`socket`] sends it, and
//! [`client`] receives it. [`http`] serves pages. Of the other modules, it only uses [`config`], [`counters`] and `rates`.

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

/// Locks a mutex, even after a panic poisoned it. The locks of this crate never guard partly changed data.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
