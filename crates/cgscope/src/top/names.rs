//! Reads the command lines of the displayed processes on a separate thread: the kernel makes us wait while a process changes its
//! memory mappings.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    thread,
};

use cgscope_collect::command_lines;
use cgscope_view::app::App;
use tokio::sync::mpsc as channel;

type Lines = Vec<(u32, Option<Arc<str>>)>;

/// The reading thread, which ends when this value is dropped.
pub struct Names {
    wanted: mpsc::Sender<BTreeSet<u32>>,
    read: channel::UnboundedReceiver<Lines>,
    /// Processes whose command lines were requested but not received yet.
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

    /// Requests the unknown command lines of the displayed processes.
    pub fn ask(&mut self, app: &App) {
        let wanted: BTreeSet<u32> =
            app.wanted_command_lines().into_iter().filter(|pid| !self.asked.contains(pid)).collect();
        if !wanted.is_empty() {
            self.asked.extend(&wanted);
            // Ignore errors: without the thread, the screen shows only names.
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
