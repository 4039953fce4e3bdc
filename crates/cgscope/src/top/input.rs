//! Reads keys and the mouse on a separate thread: half an escape sequence on a slow line must not block the screen.

use std::{io, thread, time::Duration};

use crossterm::event::{self, Event};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::mpsc;

/// Maximum number of events to pass on at once: more than anybody types or scrolls between two frames.
const MOST: usize = 4096;
/// How long the rest of a burst of input may take to arrive. Not zero, because crossterm would then read nothing.
const REST: Duration = Duration::from_millis(1);

/// The input from now on. Its thread ends when the terminal closes.
pub struct Input(mpsc::UnboundedReceiver<Event>);

impl Input {
    pub fn start() -> Self {
        let (send, receive) = mpsc::unbounded_channel();
        thread::spawn(move || {
            // On an end or an error, the terminal has closed, and cgscope ends with it.
            while let Ok(true) = wait() {
                while let Ok(true) = event::poll(REST) {
                    let Ok(event) = event::read() else { return };
                    if send.send(event).is_err() {
                        return;
                    }
                }
            }
        });
        Self(receive)
    }

    /// Waits for events and takes all that have arrived. An empty list means that the terminal has closed.
    pub async fn next(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.0.recv_many(&mut events, MOST).await;
        events
    }
}

/// Waits for input. Returns false at the end of input, where crossterm would loop forever.
fn wait() -> io::Result<bool> {
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) => Ok(!fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
