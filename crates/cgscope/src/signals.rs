//! The signals that end a command: Ctrl-C, SIGTERM and SIGHUP.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Error, Result};

/// They are listened to, and no longer end the process by themselves.
pub struct Signals([Signal; 3]);

impl Signals {
    /// From now on.
    pub fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::could_not_run(format!("signals cannot be received ({error})")))
        };
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(listen);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    /// Waits for the first of them.
    pub async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
