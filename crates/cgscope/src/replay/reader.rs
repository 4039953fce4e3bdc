//! Reads intervals of a recording on a thread of its own: what is asked for first, and then what was before it.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvError, TryRecvError},
    },
    thread,
};

use cgscope_model::Interval;
use cgscope_view::history::Frame;
use tokio::sync::mpsc as channel;

use crate::{exit::Result, replay::source::Intervals};

/// Intervals before one that is jumped to that are read for what is shown over time: a minute at the usual pace.
const BEFORE: usize = 60;

/// Intervals that are gone over on the way to a later one, at most: at the highest speed those of a second or two.
const SKIPPED: usize = 128;

pub enum Read {
    /// An interval by its number; `None` where damage is in the way.
    Interval(usize, Result<Option<Arc<Interval>>>),
    /// Intervals from this one on that were gone over, the latest last.
    Skipped(usize, Vec<Frame>),
    /// The intervals before this one, the latest last.
    Before(usize, Vec<Frame>),
}

/// Begins to wait for numbers of intervals; it ends when nobody asks or listens any more.
pub fn start(intervals: Intervals) -> (mpsc::Sender<usize>, channel::UnboundedReceiver<Read>) {
    let (wanted, receive) = mpsc::channel();
    let (send, reads) = channel::unbounded_channel();
    thread::spawn(move || {
        let reader = Reader { intervals, receive, send, last: None, before: None };
        // Either end is gone: nobody is there to be told.
        let _ = reader.run();
    });
    (wanted, reads)
}

struct Reader {
    intervals: Intervals,
    receive: mpsc::Receiver<usize>,
    send: channel::UnboundedSender<Read>,
    last: Option<usize>,
    before: Option<Before>,
}

/// Intervals that are being read because a later one is shown.
struct Before {
    of: usize,
    next: usize,
    frames: Vec<Frame>,
}

impl Reader {
    fn run(mut self) -> std::result::Result<(), RecvError> {
        loop {
            if let Some(wanted) = self.wanted()? {
                self.read(wanted)?;
            } else if let Some(before) = self.before.take() {
                self.read_before(before)?;
            }
        }
    }

    /// What is asked for; with nothing else to do, waits for it. Whoever holds a key down wants to see where it leads, not each
    /// interval on the way.
    fn wanted(&mut self) -> std::result::Result<Option<usize>, RecvError> {
        if self.before.is_none() {
            let first = self.receive.recv()?;
            return Ok(Some(self.receive.try_iter().last().unwrap_or(first)));
        }
        match self.receive.try_recv() {
            Ok(first) => Ok(Some(self.receive.try_iter().last().unwrap_or(first))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(RecvError),
        }
    }

    fn read(&mut self, n: usize) -> std::result::Result<(), RecvError> {
        let last = self.last.replace(n);
        let near = last.filter(|last| *last < n && n - last <= SKIPPED);
        if let Some(last) = near {
            // So that what is shown over time has no gap at a high speed.
            let frames: Vec<Frame> = (last + 1..n)
                .map_while(|k| self.intervals.read(k).ok()?)
                .map(|one| Frame::new(&one))
                .collect();
            if frames.len() == n - last - 1 && !frames.is_empty() {
                self.send.send(Read::Skipped(last + 1, frames)).map_err(|_| RecvError)?;
            }
        } else {
            let next = n.saturating_sub(BEFORE);
            self.before = (n != 0).then(|| Before { of: n, next, frames: Vec::new() });
        }
        let interval = self.intervals.read(n).map(|interval| interval.map(Arc::new));
        self.send.send(Read::Interval(n, interval)).map_err(|_| RecvError)
    }

    /// One more of them. What cannot be read is left out, with all before it.
    fn read_before(&mut self, mut before: Before) -> std::result::Result<(), RecvError> {
        match self.intervals.read(before.next) {
            Ok(Some(interval)) => before.frames.push(Frame::new(&interval)),
            Ok(None) | Err(_) => before.frames.clear(),
        }
        before.next += 1;
        if before.next < before.of {
            self.before = Some(before);
            return Ok(());
        }
        self.send.send(Read::Before(before.of, before.frames)).map_err(|_| RecvError)
    }
}
