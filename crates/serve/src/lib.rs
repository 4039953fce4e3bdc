//! What the daemon serves with, without aya and without `/proc`: viewers over a socket, each with what their user may see; pages
//! by HTTP; and the names that container runtimes have for their containers.
//!
//! [`collection`] is the one thread that takes Samples, at the [`pace`] that all viewers together ask for. [`shown`] makes of a
//! reading what a user may see, [`streams`] writes it once for all who see the same, with what [`ended`] in Samples that it skips,
//! [`socket`] sends it, and [`client`] is the other end. [`http`] and [`cri`] know nothing of all that.

pub mod client;
pub mod collection;
pub mod config;
pub mod cri;
pub mod ended;
pub mod http;
pub mod pace;
pub mod protocol;
pub mod shown;
pub mod socket;
pub mod streams;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks also after a panic elsewhere: what our locks guard is never half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
