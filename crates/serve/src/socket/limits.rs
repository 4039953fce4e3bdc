//! What clients may do, and what is counted of them.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::protocol::Refusal;

/// One in this many seats is kept for those who may see everything.
const ONE_FOR_ADMINS_IN: usize = 8;

/// What clients may do.
#[derive(Clone, Debug)]
pub struct ViewerLimits {
    /// Users who may see everything, besides root and the daemon's own.
    pub admin_uids: Vec<u32>,
    /// Groups whose members may.
    pub admin_gids: Vec<u32>,
    /// The shortest interval, ns; all others are multiples of it.
    pub shortest_interval_ns: u64,
    /// At a time.
    pub clients: usize,
    /// The maximum for one user at a time.
    pub clients_per_user: usize,
    /// A client that reads nothing for this time, or asks for nothing after it has connected, is disconnected.
    pub patience: Duration,
}

impl ViewerLimits {
    /// The interval at which somebody is sent Samples who asks for this one: as long, or up to the next that there is.
    pub fn interval_ns(&self, asked_ns: u64) -> u64 {
        let shortest_ns = self.shortest_interval_ns.max(1);
        asked_ns.max(1).div_ceil(shortest_ns).saturating_mul(shortest_ns)
    }

    /// Clients at a time of those who may not see everything.
    pub fn clients_of_others(&self) -> usize {
        self.clients - self.clients / ONE_FOR_ADMINS_IN
    }

    /// Why a client is refused that connects.
    pub(super) fn too_many(&self, refusal: Refusal) -> String {
        match refusal {
            Refusal::TooManyClients => format!(
                "there are as many viewers as there may be ({} in all, {} of them for users who may not see everything; {} of one \
                 user): end one, or raise `clients` or `clients_per_user` in the daemon's configuration",
                self.clients,
                self.clients_of_others(),
                self.clients_per_user
            ),
            _ => "connections and requests come too fast: wait a second".into(),
        }
    }
}

impl Default for ViewerLimits {
    fn default() -> Self {
        Self {
            admin_uids: Vec::new(),
            admin_gids: Vec::new(),
            shortest_interval_ns: 100_000_000,
            clients: 128,
            clients_per_user: 64,
            patience: Duration::from_secs(30),
        }
    }
}

/// What is counted of clients, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connected now.
    pub clients: AtomicU64,
    /// Requests that were answered.
    pub requests: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Counters {
    /// Clients that were refused or sent away for this reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Ordering::Relaxed)
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }
}
