//! The servers of the daemon: a socket for viewers, and an HTTP server for pages. This crate uses neither aya nor `/proc`.
//!
//! The thread in [`collection`] takes samples. All viewers together determine the [`pace`]. [`shown`] selects the part of a
//! sample that a user may see. `streams` encodes this part only once for all viewers that see the same part. [`socket`] sends it,
//! and [`client`] receives it. [`http`] serves pages. Apart from that, [`http`] uses only [`config`], [`counters`] and `rates`.

#![allow(missing_docs, reason = "comments say only what names and types do not say")]

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

/// Locks a mutex, even if a panic has poisoned it: the locks of this crate never protect partly changed data.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
