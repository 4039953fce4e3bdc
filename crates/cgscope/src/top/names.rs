//! Command lines of the processes on the screen, read on a thread of its own: a process that changes its mappings makes the
//! kernel keep us waiting.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    thread,
};

use cgscope_collect::command_lines;
use cgscope_view::app::App;
use tokio::sync::mpsc as channel;

type Lines = Vec<(u32, Option<Arc<str>>)>;

/// The thread that reads them; it ends with this.
pub struct Names {
    wanted: mpsc::Sender<BTreeSet<u32>>,
    read: channel::UnboundedReceiver<Lines>,
    /// What was asked for and has not come.
    asked: BTreeSet<u32>,
}

impl Names {
    pub fn start() -> Self {
        let (wanted, receive) = mpsc::channel::<BTreeSet<u32>>();
        let (send, read) = channel::unbounded_channel();
        thread::spawn(move || {
            for pids in receive {
                if send.send(command_lines(pids)).is_err() {
                    return;
                }
            }
        });
        Self { wanted, read, asked: BTreeSet::new() }
    }

    /// Asks for those that the screen shows and does not know.
    pub fn ask(&mut self, app: &App) {
        let wanted: BTreeSet<u32> =
            app.wanted_command_lines().into_iter().filter(|pid| !self.asked.contains(pid)).collect();
        if !wanted.is_empty() {
            self.asked.extend(&wanted);
            // Without the thread there are names alone.
            let _ = self.wanted.send(wanted);
        }
    }

    pub async fn next(&mut self) -> Lines {
        match self.read.recv().await {
            Some(lines) => {
                lines.iter().for_each(|(pid, _)| {
                    self.asked.remove(pid);
                });
                lines
            }
            None => std::future::pending().await,
        }
    }
}
