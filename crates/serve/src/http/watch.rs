//! Tracks the phase of each connection and the time limit of the phase. Also limits the number of connections.
//!
//! hyper can only limit the time for reading headers. A [`Watch`] covers the whole connection. It also disconnects a client that
//! reads an answer one byte at a time. Between two requests, it allows more time than within a request.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, Ipv6Addr},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{HttpLimits, HttpRefusal};
use crate::lock;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Handshake,
    Request,
    /// The answer is being prepared. The server is responsible for the time in this phase, not the client.
    Answer,
    Write,
    Idle,
}

/// The state of a connection. Its task, service and socket share this state; the task polls the service and the socket.
pub(super) struct Watch {
    limits: HttpLimits,
    /// The client's address, or for IPv6 its [`network`].
    pub(super) client: IpAddr,
    /// Whether the connection exceeds the limit. On such a connection, the server only answers health probes.
    pub(super) is_spare: bool,
    at: Mutex<(Phase, Instant)>,
    /// Ends the connection when its task is polled next.
    displaced: Notify,
}

impl Watch {
    fn new(limits: HttpLimits, client: IpAddr, is_spare: bool) -> Arc<Self> {
        let at = Mutex::new((Phase::Request, Instant::now()));
        Arc::new(Self { limits, client, is_spare, at, displaced: Notify::new() })
    }

    pub(super) fn enter(&self, phase: Phase) {
        *lock(&self.at) = (phase, Instant::now());
    }

    /// Returns since when the client has kept the server waiting. Returns `None` if the client cannot be displaced.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let (phase, since) = *lock(&self.at);
        match phase {
            Phase::Answer => None,
            Phase::Write if since.elapsed() < self.limits.write_grace => None,
            _ => Some(since),
        }
    }

    /// Returns whether an answer is being sent and the kernel has not received all of it yet.
    pub(super) fn is_writing(&self) -> bool {
        lock(&self.at).0 == Phase::Write
    }

    /// Polls the connection until it ends, exceeds its time limit, or loses its place to another client.
    pub(super) async fn over<T>(&self, conversation: impl Future<Output = T>) -> Result<T, HttpRefusal> {
        let mut conversation = pin!(conversation);
        let mut limit = pin!(sleep_until(self.deadline()));
        let timed = std::future::poll_fn(|cx| {
            if let Poll::Ready(value) = conversation.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            // Only the poll above can have changed the deadline.
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
        since
            + match phase {
                Phase::Handshake => self.limits.handshake,
                Phase::Request => self.limits.request,
                Phase::Answer => self.limits.answer,
                Phase::Write => self.limits.write,
                Phase::Idle => self.limits.idle,
            }
    }

    /// Changes the phase to `to`, if the connection is in one of the phases `from`.
    fn change(&self, from: &[Phase], to: Phase) {
        let mut at = lock(&self.at);
        if from.contains(&at.0) {
            *at = (to, Instant::now());
        }
    }

    /// Records that bytes are written. With pipelining, hyper may start an answer as soon as the previous one is flushed.
    fn writes(&self) {
        self.change(&[Phase::Idle, Phase::Request], Phase::Write);
    }
}

/// A stream that reports to its [`Watch`] when a request begins and when an answer is complete.
pub(super) struct Watched<S> {
    pub(super) stream: S,
    pub(super) watch: Arc<Watch>,
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
            self.watch.change(&[Phase::Idle], Phase::Request);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch.writes();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.writes();
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // hyper flushes the stream after it has written all of its own buffers. Then the kernel has received all written bytes.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.watch.change(&[Phase::Write], Phase::Idle);
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Limits the number of connections, in total and by address. A new client displaces one that keeps the server waiting.
pub(super) struct Seats {
    limits: HttpLimits,
    taken: Mutex<Vec<Arc<Watch>>>,
}

/// Number of additional places, which are only for health probes.
const SPARE: usize = 4;

/// Returns the address under which a client is counted. For IPv6 this is the network (/64), which usually has one owner.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// A place for one connection. Dropping it frees the place.
pub(super) struct Seat {
    pub(super) watch: Arc<Watch>,
    seats: Arc<Seats>,
}

impl Seats {
    pub(super) fn new(limits: HttpLimits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// Takes a free place, or displaces the client that has kept the server waiting longest. So clients with idle connections
    /// cannot keep out clients that send requests. If no client can be displaced, takes one of the places for health probes.
    /// Returns `None` if other probes use all of these places and cannot be displaced.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let client = network(address);
        let mut taken = lock(&self.taken);
        let usual = taken.iter().filter(|watch| !watch.is_spare).count();
        let spare = taken.len() - usual;
        let of_client = taken.iter().filter(|watch| watch.client == client && !watch.is_spare).count();
        let is_greedy = of_client >= self.limits.of_a_client;
        let mut is_spare = false;
        if usual >= self.limits.connections || is_greedy {
            let mut displace = |may: &dyn Fn(&Watch) -> bool| {
                let those = taken.iter().enumerate().filter(|(_, watch)| may(watch));
                let longest = those.filter_map(|(at, watch)| Some((watch.waits_since()?, at))).min();
                longest.map(|(_, at)| taken.swap_remove(at).displaced.notify_one())
            };
            is_spare = displace(&|watch| !watch.is_spare && (!is_greedy || watch.client == client)).is_none();
            if is_spare && spare >= SPARE {
                // A new probe displaces a probe that keeps the server waiting.
                displace(&|watch| watch.is_spare)?;
            }
        }
        let watch = Watch::new(self.limits, client, is_spare);
        taken.push(watch.clone());
        Some(Seat { watch, seats: self.clone() })
    }

    /// Displaces the client that has been reading its answer longest, if it may be displaced. This frees its page.
    pub(super) fn relieve(&self) {
        let taken = lock(&self.taken);
        let writing = taken.iter().filter(|watch| watch.is_writing() && watch.waits_since().is_some());
        if let Some(longest) = writing.min_by_key(|watch| watch.waits_since()) {
            longest.displaced.notify_one();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats.taken).retain(|watch| !Arc::ptr_eq(watch, &self.watch));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn watch(limits: HttpLimits) -> Arc<Watch> {
        Watch::new(limits, Ipv6Addr::LOCALHOST.into(), false)
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_time_limit() {
        let watch = watch(HttpLimits { request: 3 * SECOND, idle: 60 * SECOND, ..HttpLimits::default() });
        let start = Instant::now();
        let conversation = async {
            sleep(2 * SECOND).await;
            watch.enter(Phase::Write);
            watch.change(&[Phase::Write], Phase::Idle);
            sleep(50 * SECOND).await;
            watch.change(&[Phase::Idle], Phase::Request);
            for _ in 0..100 {
                sleep(SECOND).await;
                watch.change(&[Phase::Idle], Phase::Request);
            }
        };
        assert_eq!(watch.over(conversation).await, Err(HttpRefusal::Slow));
        assert_eq!(start.elapsed().as_secs(), 2 + 50 + 3, "a byte now and then does not lengthen a request");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_complete_only_after_all_that_is_written_is_flushed() {
        let watch = watch(HttpLimits::default());
        watch.enter(Phase::Write);
        watch.change(&[Phase::Write], Phase::Idle);
        // hyper now writes the rest of the answer, for which it had no space in its buffer before.
        watch.writes();
        sleep(SECOND).await;
        assert_eq!(watch.waits_since(), None, "a client that takes its answer keeps its place");
        watch.change(&[Phase::Write], Phase::Idle);
        assert_eq!(watch.waits_since(), Some(Instant::now()));
        watch.enter(Phase::Answer);
        sleep(10 * SECOND).await;
        assert_eq!(watch.waits_since(), None);
    }

    #[tokio::test]
    async fn a_displaced_conversation_ends() {
        let watch = watch(HttpLimits::default());
        watch.displaced.notify_one();
        assert_eq!(watch.over(std::future::pending::<()>()).await, Err(HttpRefusal::Displaced));
    }
}

#[cfg(test)]
mod tests_of_seats {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    const HOST: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    fn v6(network: u16, host: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host).into()
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_cannot_take_the_places_of_others_and_probes_have_their_own() {
        let seats = Seats::new(HttpLimits { connections: 6, of_a_client: 4, ..HttpLimits::default() });
        let mut taken: Vec<_> = (0..4).map(|host| seats.take(v6(1, host)).unwrap()).collect();
        let is_answered = |seat: &Seat| seat.watch.enter(Phase::Answer);
        taken.iter().for_each(is_answered);
        assert!(
            seats.take(v6(1, 9)).unwrap().watch.is_spare,
            "the same network has only places for probes left"
        );
        taken.extend((0..2).map(|host| seats.take(v6(2, host)).unwrap()));
        // The client already has as many connections as allowed, so its new connection displaces one of its own idle connections.
        let more = seats.take(v6(1, 9)).unwrap();
        assert!(more.watch.is_spare && taken[4].watch.over(std::future::ready(())).await.is_ok());
        drop(more);
        taken.iter().for_each(is_answered);
        let spare: Vec<_> = (0..SPARE).map(|_| seats.take(HOST).unwrap()).inspect(is_answered).collect();
        assert!(spare.iter().all(|seat| seat.watch.is_spare) && !taken[5].watch.is_spare);
        assert!(seats.take(v6(3, 0)).is_none(), "nothing is left");
        spare[0].watch.enter(Phase::Idle);
        let next = seats.take(v6(3, 0)).unwrap();
        assert!(next.watch.is_spare, "a probe makes way for a probe, and never for more");
        drop((taken, next));
        assert!(!seats.take(v6(3, 0)).unwrap().watch.is_spare);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_client_displaces_the_client_that_is_idle_longest() {
        let seats = Seats::new(HttpLimits { connections: 3, ..HttpLimits::default() });
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(seats.take(HOST).unwrap());
            sleep(Duration::from_millis(1)).await;
        }
        taken[0].watch.enter(Phase::Answer);
        let fourth = seats.take(HOST).unwrap();
        let now = || std::future::ready(());
        assert_eq!(taken[1].watch.over(now()).await, Err(HttpRefusal::Displaced));
        assert_eq!(taken[0].watch.over(now()).await, Ok(()));
        assert_eq!(taken[2].watch.over(now()).await, Ok(()));
        for seat in [&taken[2], &fourth] {
            seat.watch.enter(Phase::Answer);
        }
        let spare = seats.take(HOST).expect("a place for a health probe");
        assert!(spare.watch.is_spare, "clients that are being answered keep their places");
        drop(spare);
        drop(fourth);
        assert!(seats.take(HOST).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn only_slow_readers_are_displaced_to_free_memory() {
        let limits = HttpLimits::default();
        let seats = Seats::new(limits);
        let taken: Vec<_> = (0..4).map(|_| seats.take(HOST).unwrap()).collect();
        let phases = [Phase::Idle, Phase::Answer, Phase::Write, Phase::Write];
        for (seat, phase) in taken.iter().zip(phases) {
            seat.watch.enter(phase);
            sleep(Duration::from_millis(1)).await;
        }
        let now = || std::future::ready(());
        seats.relieve();
        assert_eq!(taken[2].watch.over(now()).await, Ok(()), "it is not displaced before `write_grace`");
        sleep(limits.write_grace).await;
        seats.relieve();
        seats.relieve();
        assert_eq!(taken[2].watch.over(now()).await, Err(HttpRefusal::Displaced));
        for other in [0, 1, 3] {
            assert_eq!(taken[other].watch.over(now()).await, Ok(()), "{other}");
        }
    }
}
