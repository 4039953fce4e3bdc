//! Accepts connections, and closes finished ones.

use std::{convert::Infallible, io::Write, sync::Arc, time::Duration};

use hyper::{
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{JoinSet, yield_now},
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use super::watch::{Phase, Seat, Seats, Watch, Watched};
use super::{
    Error, Http, HttpRefusal, Pages, answer::Answers, login::Login, not_listening, page::SharedPages,
};

/// Maximum length of the request line and headers, bytes. The request of Prometheus has about 500 bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// Maximum number of header lines in a request.
const HEADERS: usize = 64;

/// Pause after the kernel could not accept a connection because there were no file descriptors or no memory.
const PAUSE: Duration = Duration::from_millis(100);

const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";

impl Http {
    /// Answers requests until the future is dropped. Dropping it closes all connections. `pages` makes one page at a time. If a
    /// page takes longer than [`super::HttpLimits::page`], its future is dropped. Returns only if the runtime cannot poll the
    /// listening socket, or if the kernel provides no random numbers.
    ///
    /// This function needs a Tokio runtime with IO and time; one thread is enough.
    pub async fn serve<P: Pages>(self: Arc<Self>, pages: P) -> Result<Infallible, Error> {
        let listener = self.listener.try_clone().and_then(TcpListener::from_std);
        let listener = listener.map_err(|error| not_listening(self.local_addr, &error))?;
        let limits = self.limits;
        let seats = Seats::new(limits);
        let pages = SharedPages::new(pages, limits, seats.clone());
        let answers = Arc::new(Answers { http: self, login: Login::new()?, pages });
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                taken = listener.accept() => match taken {
                    Ok((stream, peer)) => match seats.take(peer.ip()) {
                        Some(seat) => {
                            connections.spawn(answers.clone().connection(stream, seat));
                        }
                        None => answers.turn_away(stream),
                    },
                    Err(_) => sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
            // Gives other tasks the chance to read requests that have arrived. Otherwise a flood of connections would be accepted
            // at once, and would displace clients whose requests are not read yet.
            yield_now().await;
        }
    }
}

impl<P: Pages> Answers<P> {
    /// Refuses a connection. This function must not wait, because the accept loop calls it.
    fn turn_away(&self, stream: TcpStream) {
        self.http.counters.refuse(HttpRefusal::Full);
        if self.http.rules().tls.is_none()
            && let Ok(mut stream) = stream.into_std()
        {
            // An error is ignored here, because the connection is closed in any case.
            let _ = stream.write(FULL);
        }
    }

    async fn connection(self: Arc<Self>, mut stream: TcpStream, seat: Seat) {
        let _client = self.http.counters.client();
        // Nagle's algorithm would delay the last piece of an answer until the client acknowledges the previous piece.
        let _ = stream.set_nodelay(true);
        let ended = seat.watch.over(self.converse(&mut stream, &seat.watch)).await;
        if let Err(Some(refusal)) = ended.unwrap_or_else(|refusal| Err(Some(refusal))) {
            self.http.counters.refuse(refusal);
        }
        if seat.watch.is_writing() {
            // Drop unsent data. Otherwise the kernel would keep megabytes for a client that reads slowly, long after the close.
            let _ = stream.set_zero_linger();
        }
    }

    async fn converse(&self, stream: &mut TcpStream, watch: &Arc<Watch>) -> Result<(), Option<HttpRefusal>> {
        let Some(config) = self.http.rules().tls else {
            return self.requests(stream, false, watch).await;
        };
        watch.enter(Phase::Handshake);
        let stream = TlsAcceptor::from(config).accept(stream).await.map_err(|_| HttpRefusal::Tls)?;
        watch.enter(Phase::Request);
        self.requests(stream, true, watch).await
    }

    async fn requests(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        is_encrypted: bool,
        watch: &Arc<Watch>,
    ) -> Result<(), Option<HttpRefusal>> {
        let service = service_fn(|request| async move {
            watch.enter(Phase::Answer);
            let mut response = self.answer(request, watch).await;
            if !is_encrypted && self.http.rules().tls.is_some() {
                // This connection began before TLS was configured. When it is closed, the client reconnects with TLS.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            watch.enter(Phase::Write);
            Ok::<_, Infallible>(response)
        });
        let stream = TokioIo::new(Watched { stream, watch: watch.clone() });
        let mut protocol = http1::Builder::new();
        protocol.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
        protocol.serve_connection(stream, service).await.map_err(|error| match error.is_parse_too_large() {
            true => Some(HttpRefusal::Oversized),
            // If the client disconnected, nothing was refused.
            false => error.is_parse().then_some(HttpRefusal::Malformed),
        })
    }
}
