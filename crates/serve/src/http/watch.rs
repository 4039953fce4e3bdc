//! What each connection is at, since when, and how long that may last.
//!
//! hyper has a limit for reading headers alone. This one knows the whole conversation, so that a client that takes its answer a byte
//! at a time ends, too, and one that waits for the next scrape may wait longer than one that is amid a request.

use std::{
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{HttpLimits, HttpRefusal};
use crate::lock;

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Agreeing on keys.
    Handshake,
    /// Reading a request.
    Request,
    /// Finding its answer: our time, not the client's.
    Answer,
    /// Handing over the answer. All of it is in hyper's hands where `handed`.
    Write {
        /// Whether what remains are at most the last pieces.
        handed: bool,
    },
    /// Waiting for the next request.
    Idle,
}

/// Shared by a connection's task, its service and its socket, all polled by that one task.
pub(super) struct Watch {
    limits: HttpLimits,
    at: Mutex<(Phase, Instant)>,
    displaced: Notify,
}

impl Watch {
    pub(super) fn new(limits: HttpLimits) -> Arc<Self> {
        let at = Mutex::new((Phase::Request, Instant::now()));
        Arc::new(Self { limits, at, displaced: Notify::new() })
    }

    /// What it is at from now on.
    pub(super) fn enter(&self, phase: Phase) {
        *lock(&self.at) = (phase, Instant::now());
    }

    /// The last of the answer was handed to hyper.
    pub(super) fn handed(&self) {
        if let (Phase::Write { handed }, _) = &mut *lock(&self.at) {
            *handed = true;
        }
    }

    /// Since when it keeps us waiting, if its place can be given to another.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let (phase, since) = *lock(&self.at);
        match phase {
            Phase::Answer => None,
            Phase::Write { .. } if since.elapsed() < self.limits.write_grace => None,
            _ => Some(since),
        }
    }

    /// Whether an answer is on its way, and not all of it is with the kernel.
    pub(super) fn is_writing(&self) -> bool {
        matches!(lock(&self.at).0, Phase::Write { .. })
    }

    /// Ends the conversation at its next turn.
    pub(super) fn displace(&self) {
        self.displaced.notify_one();
    }

    /// Polls the conversation until it ends by itself, takes too long, or its place goes to another.
    pub(super) async fn over<T>(&self, conversation: impl Future<Output = T>) -> Result<T, HttpRefusal> {
        let mut conversation = pin!(conversation);
        let mut limit = pin!(sleep_until(self.deadline()));
        let timed = std::future::poll_fn(|cx| {
            if let Poll::Ready(value) = conversation.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            // The poll above is all that can have changed it.
            let deadline = self.deadline();
            if limit.deadline() != deadline {
                limit.as_mut().reset(deadline);
            }
            limit.as_mut().poll(cx).map(|()| Err(HttpRefusal::Slow))
        });
        tokio::select! {
            biased;
            () = self.displaced.notified() => Err(HttpRefusal::Displaced),
            end = timed => end,
        }
    }

    fn deadline(&self) -> Instant {
        let (phase, since) = *lock(&self.at);
        since + self.limit(phase)
    }

    fn limit(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Handshake => self.limits.handshake,
            Phase::Request => self.limits.request,
            Phase::Answer => self.limits.answer,
            Phase::Write { .. } => self.limits.write,
            Phase::Idle => self.limits.idle,
        }
    }

    /// Bytes came from the client.
    fn heard(&self) {
        let mut at = lock(&self.at);
        if at.0 == Phase::Idle {
            *at = (Phase::Request, Instant::now());
        }
    }

    /// Everything that was written is with the kernel.
    fn flushed(&self) {
        let mut at = lock(&self.at);
        if at.0 == (Phase::Write { handed: true }) {
            *at = (Phase::Idle, Instant::now());
        }
    }
}

/// A stream that tells its [`Watch`] when a request begins and when an answer is over.
pub(super) struct Watched<S> {
    stream: S,
    watch: Arc<Watch>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, watch: Arc<Watch>) -> Self {
        Self { stream, watch }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.watch.heard();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // hyper flushes the stream once it has nothing left in its own buffers.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.watch.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_limit_counted_from_its_beginning() {
        let watch =
            Watch::new(HttpLimits { request: 3 * SECOND, idle: 60 * SECOND, ..HttpLimits::default() });
        let start = Instant::now();
        let conversation = async {
            sleep(2 * SECOND).await;
            watch.enter(Phase::Write { handed: false });
            watch.flushed();
            watch.handed();
            watch.flushed();
            sleep(50 * SECOND).await;
            watch.heard();
            for _ in 0..100 {
                sleep(SECOND).await;
                watch.heard();
            }
        };
        assert_eq!(watch.over(conversation).await, Err(HttpRefusal::Slow));
        assert_eq!(start.elapsed().as_secs(), 2 + 50 + 3, "a byte now and then does not lengthen a request");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_over_only_when_all_of_it_was_handed_over_and_flushed() {
        let watch = Watch::new(HttpLimits::default());
        watch.enter(Phase::Write { handed: false });
        watch.flushed();
        sleep(SECOND).await;
        assert_eq!(watch.waits_since(), None, "a client that takes its answer keeps its place");
        watch.handed();
        watch.flushed();
        assert_eq!(watch.waits_since(), Some(Instant::now()));
        watch.enter(Phase::Answer);
        sleep(10 * SECOND).await;
        assert_eq!(watch.waits_since(), None);
    }

    #[tokio::test]
    async fn a_displaced_conversation_ends() {
        let watch = Watch::new(HttpLimits::default());
        watch.displace();
        assert_eq!(watch.over(std::future::pending::<()>()).await, Err(HttpRefusal::Displaced));
    }
}
