//! Keys and the mouse, read on a thread of their own: half of a sequence on a slow line must not hold up the screen.

use std::{io, thread, time::Duration};

use crossterm::event::{self, Event};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::mpsc;

/// Events handed over at a time: more than anybody types or turns between two drawings.
const MOST: usize = 4096;
/// How long the rest of what was typed may take to come after its beginning before others are waited for again. Not zero, with
/// which crossterm reads nothing.
const REST: Duration = Duration::from_millis(1);

/// What is typed, from now on. The thread that reads it ends with the terminal.
pub struct Input(mpsc::UnboundedReceiver<Event>);

impl Input {
    pub fn start() -> Self {
        let (send, receive) = mpsc::unbounded_channel();
        thread::spawn(move || {
            // Either way the terminal is gone, and the channel with us.
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

    /// Waits for events, and takes all that are there; none: the terminal is gone.
    pub async fn next(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.0.recv_many(&mut events, MOST).await;
        events
    }
}

/// Waits until there is something to read; false where there is only the end. crossterm would go round and round there.
fn wait() -> io::Result<bool> {
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) => Ok(!fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
