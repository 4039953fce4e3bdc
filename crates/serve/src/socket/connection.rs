//! Serves one viewer: reads the viewer's requests, and writes samples as fast as the viewer reads them.

use std::io::{self, ErrorKind};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};

use cgscope_record::{Outgoing, Reason};
use tokio::{
    net::UnixStream,
    sync::watch,
    time::{Duration, sleep_until},
};

use super::{Peer, Shared, peer};
use crate::{
    collection::Taken,
    protocol::{Refusal, Request, Requests, Word},
    streams::{Cursor, Frame},
};

/// Time that a client has to read the last message before it is disconnected.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Maximum number of unread frames and other messages. If there are more, a further request disconnects the client.
const MOST_UNREAD: usize = 32;

pub(super) struct Connection {
    socket: UnixStream,
    peer: Peer,
    shared: Rc<RefCell<Shared>>,
    requests: Requests,
    /// The current request, and when it arrived. If it names processes, it waits for a sample that was begun after that time.
    asked: Option<(Request, Instant)>,
    /// The position in the client's stream. `None` before the first answer, which begins with the header.
    cursor: Option<Cursor>,
    /// The requested interval, ns. The actual interval between samples may be longer.
    asked_ns: u64,
    /// This is set if the client requested one last sample. The last sample is the first sample with a larger number.
    last_after: Option<u64>,
    /// The frames to send, and how many bytes of the first frame are already sent.
    out: VecDeque<Frame>,
    sent: usize,
    /// Whether nothing more will be sent after `out`.
    is_over: bool,
    asked_at: Instant,
    /// When the client last read something, or when `out` was last empty.
    read_at: Instant,
}

impl Connection {
    pub(super) fn new(socket: UnixStream, peer: Peer, shared: Rc<RefCell<Shared>>) -> Self {
        Self {
            socket,
            peer,
            shared,
            requests: Requests::default(),
            asked: None,
            cursor: None,
            asked_ns: 0,
            last_after: None,
            out: VecDeque::new(),
            sent: 0,
            is_over: false,
            asked_at: Instant::now(),
            read_at: Instant::now(),
        }
    }

    /// Serves the client until it closes the connection, is disconnected, or the daemon shuts down.
    pub(super) async fn run(mut self, mut news: watch::Receiver<()>, _client: Arc<()>) {
        if let Err(word) = self.serve(&mut news).await {
            if let Some(refused) = word.refused {
                self.shared.borrow().counters.refuse(refused);
            }
            let _ = tokio::time::timeout(LAST_WORD, self.say_last(&word)).await;
        }
    }

    /// Returns `Ok` if the client has closed the connection. The error is the reason why the client must be disconnected.
    async fn serve(&mut self, news: &mut watch::Receiver<()>) -> Result<(), Word> {
        loop {
            self.look_again()?;
            let was_idle = self.out.is_empty();
            self.fill()?;
            if was_idle {
                self.read_at = Instant::now();
            }
            // Everything usually fits into the socket's buffer, so this code tries to write before it waits for the socket.
            if !self.out.is_empty() && self.write() {
                return Ok(());
            }
            if self.is_over && self.out.is_empty() {
                return Ok(());
            }
            let is_writing = !self.out.is_empty();
            // The time of a client is limited if the client has data to read, or has not sent a request yet.
            let is_waited_for = is_writing || (self.cursor.is_none() && self.asked.is_none());
            let since = if is_writing { self.read_at } else { self.asked_at };
            let until = since + self.shared.borrow().limits.patience;
            let can_read = tokio::select! {
                biased;
                ready = self.socket.readable(), if !self.is_over => ready.map(|()| true),
                ready = self.socket.writable(), if is_writing => ready.map(|()| false),
                // Also checked during writes: a daemon that shuts down must not wait for a client that does not read.
                _ = news.changed() => Ok(false),
                () = sleep_until(until.into()), if is_waited_for => return Err(too_slow()),
            };
            match can_read {
                Ok(false) => {}
                Ok(true) if !self.read()? => {}
                Ok(true) | Err(_) => return Ok(()),
            }
        }
    }

    /// Returns an error if the daemon shuts down, the stream has ended, or new limits no longer allow the client.
    fn look_again(&mut self) -> Result<(), Word> {
        let mut shared = self.shared.borrow_mut();
        // A client that is receiving its last sample still gets all of this sample.
        if shared.is_ending && !self.is_over {
            return Err(Word::refused(Refusal::Ending, "the daemon is shutting down"));
        }
        // Checked even with unread data: the memory of a stream is freed only when all readers have left it.
        let Some(cursor) = self.cursor else { return Ok(()) };
        if let Some(word) = &shared.streams.of(&cursor).ended
            && !self.is_over
        {
            return Err(word.clone());
        }
        if !shared.limits.may_see(&self.peer) {
            return Err(Word::refused(Refusal::OtherUser, shared.limits.not_allowed()));
        }
        let interval_ns = shared.limits.interval_ns(self.asked_ns);
        if interval_ns == cursor.kind.interval_ns {
            return Ok(());
        }
        let cursor = self.cursor.insert(shared.change_interval(self.peer.uid, &cursor, interval_ns)?);
        if self.last_after.is_some() {
            shared.streams.one_more(cursor);
            shared.want_one();
        }
        begin(&mut self.out, &shared, cursor, self.asked_ns);
        Ok(())
    }

    /// Reads the bytes that have arrived. Returns true if the client has closed the connection.
    fn read(&mut self) -> Result<bool, Word> {
        let mut bytes = [0; 4_096];
        let socket = &self.socket;
        let got = socket.try_io(tokio::io::Interest::READABLE, || peer::receive(socket, &mut bytes));
        let (got, sender) = match got {
            Ok((0, _)) => return Ok(true),
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(_) => return Ok(true),
        };
        if sender != Some(self.peer.uid) {
            return Err(Word::refused(
                Refusal::OtherUser,
                "this request came from a different user than the one who connected: open your own connection",
            ));
        }
        self.asked_at = Instant::now();
        let mut came = &bytes[..got];
        while let Some(request) = self.requests.take(&mut came)? {
            self.request(request)?;
        }
        Ok(false)
    }

    fn request(&mut self, request: Request) -> Result<(), Word> {
        if self.out.len() > MOST_UNREAD {
            return Err(too_slow());
        }
        let mut shared = self.shared.borrow_mut();
        if !shared.clients.rates.take(self.peer.uid, Instant::now()) {
            let sentence = "your requests arrive too fast: wait a second";
            return Err(Word::refused(Refusal::TooManyRequests, sentence));
        }
        shared.counters.request();
        if request.last
            && let Some(cursor) = &self.cursor
        {
            self.last_after = Some(shared.streams.one_more(cursor));
            shared.want_one();
            return Ok(());
        }
        drop(shared);
        self.asked = Some((request, Instant::now()));
        self.answer()
    }

    fn answer(&mut self) -> Result<(), Word> {
        let Some((request, at)) = &self.asked else { return Ok(()) };
        let mut shared = self.shared.borrow_mut();
        // A process that has just started may be missing from the latest sample and from a sample in progress.
        let is_old = |latest: &Taken| latest.began <= *at;
        if !request.pids.is_empty() && shared.latest.as_ref().is_none_or(is_old) {
            shared.want_one();
            return Ok(());
        }
        let Some((request, _)) = self.asked.take() else { return Ok(()) };
        let interval_ns = shared.limits.interval_ns(request.interval_ns);
        let cursor = shared.join(self.peer.uid, &request.pids, interval_ns)?;
        if self.cursor.is_none() {
            self.out.push_back(shared.opening.clone());
        }
        push(&mut self.out, &Word { shows_all: Some(true), ..Word::default() });
        self.asked_ns = request.interval_ns;
        begin(&mut self.out, &shared, &cursor, self.asked_ns);
        if let Some(before) = self.cursor.replace(cursor) {
            shared.leave(self.peer.uid, &before);
        }
        if request.last {
            self.last_after = Some(shared.latest.as_ref().map_or(0, |latest| latest.number));
            shared.want_one();
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Word> {
        self.answer()?;
        if !self.out.is_empty() || self.is_over {
            return Ok(());
        }
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        let mut shared = self.shared.borrow_mut();
        let Some(shown) = shared.streams.next(cursor) else { return Ok(()) };
        drop(shared);
        if shown.passed != 0 {
            let sentence = format!(
                "{} samples were left out, because this viewer reads too slowly: figures of tasks that ended meanwhile are missing",
                shown.passed
            );
            push(&mut self.out, &Word::said(sentence));
        }
        let is_last = self.last_after.is_some_and(|after| shown.number > after);
        if shown.is_beside && !is_last {
            push(&mut self.out, &Word { skip: 1, ..Word::default() });
        }
        self.out.push_back(shown.frame);
        if is_last {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let end = Outgoing::end(now.as_nanos() as u64, Reason::Finished);
            self.out.push_back(end.unwrap_or_default().into());
            self.is_over = true;
        }
        Ok(())
    }

    /// Writes as many bytes as fit into the socket's buffer. Returns true if the client has closed the connection.
    fn write(&mut self) -> bool {
        while let Some(frame) = self.out.front() {
            match self.socket.try_write(&frame[self.sent..]) {
                Ok(written) => {
                    self.read_at = Instant::now();
                    self.sent += written;
                    if self.sent == frame.len() {
                        self.sent = 0;
                        self.out.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
        false
    }

    /// Sends the rest of a frame that is partly sent, and then the reason why no further messages follow.
    async fn say_last(&mut self, word: &Word) -> io::Result<()> {
        let last = if self.cursor.is_some() { Outgoing::word(word) } else { Outgoing::refusal(word) };
        self.out.truncate(usize::from(self.sent > 0));
        self.out.push_back(last.unwrap_or_default().into());
        while !self.out.is_empty() {
            self.socket.writable().await?;
            if self.write() {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        if let Some(cursor) = &self.cursor {
            shared.leave(self.peer.uid, cursor);
        }
        shared.clients.leave(self.peer.uid);
    }
}

/// Queues a message. A message can always be encoded.
fn push(out: &mut VecDeque<Frame>, word: &Word) {
    out.push_back(Outgoing::word(word).unwrap_or_default().into());
}

/// Queues the messages that must precede the samples of a stream.
fn begin(out: &mut VecDeque<Frame>, shared: &Shared, cursor: &Cursor, asked_ns: u64) {
    let interval_ns = cursor.kind.interval_ns;
    if interval_ns != asked_ns {
        push(out, &other_interval(interval_ns, shared.limits.shortest_interval));
    }
    let behind = shared.streams.of(cursor).behind(cursor);
    if behind > 1 {
        push(out, &Word { skip: behind as u32 - 1, ..Word::default() });
    }
}

fn other_interval(interval_ns: u64, shortest_ns: u64) -> Word {
    let [interval, shortest] = [interval_ns, shortest_ns].map(|ns| ns as f64 / 1e6);
    Word::said(match interval_ns == shortest_ns {
        true => format!(
            "the interval is {shortest} ms, the shortest that the daemon's configuration allows (`shortest_interval`)"
        ),
        false => format!(
            "the interval is {interval} ms: the daemon's configuration allows only multiples of {shortest} ms \
             (`shortest_interval`)"
        ),
    })
}

fn too_slow() -> Word {
    Word::refused(Refusal::TooSlow, "the client sent no request in time, or read too slowly: connect again")
}

#[cfg(test)]
mod tests;
