//! Sends requests to the daemon from a thread that does not receive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cgscope_serve::{client::Sender, protocol::Request};

use super::following::Wanted;
use crate::feed::{Demand, ns};

#[derive(Clone)]
pub struct Remote(Arc<Mutex<Asking>>);

struct Asking {
    request: Request,
    sender: Option<Sender>,
    is_dropped: bool,
}

impl Remote {
    pub fn new(request: Request, sender: Option<Sender>) -> Self {
        Self(Arc::new(Mutex::new(Asking { request, sender, is_dropped: false })))
    }

    fn lock(&self) -> MutexGuard<'_, Asking> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wanted(&self) -> Wanted {
        let asking = self.lock();
        match (asking.is_dropped, asking.request.last) {
            (true, _) => Wanted::Nothing,
            (false, true) => Wanted::Last,
            (false, false) => Wanted::Samples,
        }
    }

    pub fn request(&self) -> Request {
        self.lock().request.clone()
    }

    pub fn demand(&self, demand: Demand) {
        let mut asking = self.lock();
        let Asking { request, sender, is_dropped } = &mut *asking;
        match demand {
            Demand::Interval(interval) => request.interval_ns = ns(interval),
            Demand::Last => request.last = true,
            Demand::Stop => *is_dropped = true,
        }
        match sender {
            Some(sender) if *is_dropped => sender.hang_up(),
            // The receiving thread notices a lost daemon.
            Some(sender) => drop(sender.ask(request)),
            None => {}
        }
    }

    pub fn lose(&self) {
        self.lock().sender = None;
    }

    /// Sets the sender after a reconnection. Sends the request again if it has changed since `asked` was sent.
    pub fn find(&self, mut sender: Sender, asked: &Request) {
        let mut asking = self.lock();
        if asking.request != *asked {
            let _ = sender.ask(&asking.request);
        }
        asking.sender = Some(sender);
    }
}
