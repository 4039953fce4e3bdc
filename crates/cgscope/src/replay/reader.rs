//! Reads intervals of a recording on a thread of its own: the requested one first, and then those before it.

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

/// Intervals that are read before the target of a jump, for figures over time: a minute at the usual pace.
const BEFORE: usize = 60;

/// Most intervals that are read on the way to a later one: those of a second or two at the highest speed.
const SKIPPED: usize = 128;

pub enum Read {
    /// An interval by its number. `None`: it is damaged.
    Interval(usize, Result<Option<Arc<Interval>>>),
    /// Intervals from this one on that were skipped, the latest last.
    Skipped(usize, Vec<Frame>),
    /// The intervals before this one, the latest last.
    Before(usize, Vec<Frame>),
}

/// Starts a thread that waits for numbers of intervals. It ends when either channel is closed.
pub fn start(intervals: Intervals) -> (mpsc::Sender<usize>, channel::UnboundedReceiver<Read>) {
    let (wanted, receive) = mpsc::channel();
    let (send, reads) = channel::unbounded_channel();
    thread::spawn(move || {
        let reader = Reader { intervals, receive, send, last: None, before: None };
        // The error says that a channel is closed.
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

/// Intervals that are read because a later one is shown.
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

    /// The last request, as a key that is held down makes many. Waits for one if there is nothing else to do.
    fn wanted(&mut self) -> std::result::Result<Option<usize>, RecvError> {
        let first = if self.before.is_none() {
            self.receive.recv()?
        } else {
            match self.receive.try_recv() {
                Ok(first) => first,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
            }
        };
        Ok(Some(self.receive.try_iter().last().unwrap_or(first)))
    }

    fn read(&mut self, n: usize) -> std::result::Result<(), RecvError> {
        let last = self.last.replace(n);
        let near = last.filter(|last| *last < n && n - last <= SKIPPED);
        if let Some(last) = near {
            // Figures over time then have no gaps at a high speed.
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

    /// Reads one more interval. One that cannot be read is left out, with all before it.
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
