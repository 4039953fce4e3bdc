//! The daemon's servers, without aya and without `/proc`: viewers over a socket, each with what their user may see; pages by HTTP;
//! and the names that container runtimes have for their containers.
//!
//! [`collection`] is the one thread that takes Samples, at the [`pace`] that all viewers together request. [`shown`] filters a
//! reading to what a user may see, `streams` writes it once for all viewers who see the same, [`socket`] sends it, and [`client`] is
//! the other end. [`http`] and [`cri`] are independent of these.

pub mod client;
pub mod collection;
pub mod config;
pub mod cri;
pub mod http;
pub mod pace;
pub mod protocol;
pub mod shown;
pub mod socket;
mod streams;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks also after a panic elsewhere: our locks never guard data that is half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
