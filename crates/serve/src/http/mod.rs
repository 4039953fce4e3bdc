//! A read-only HTTP/1.1 server for pages, with optional TLS and basic authentication. The server limits every kind of work and
//! memory that a client can cause.

mod answer;
mod login;
mod page;
mod watch;

use std::io::{self, ErrorKind, Write};
use std::net::{self, SocketAddr};
use std::sync::{Arc, Mutex};
use std::{convert::Infallible, thread, time::Duration};

use hyper::{
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::{sync::oneshot, time::sleep};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

pub use crate::{config::HttpConfig, http::answer::Error};
use crate::{counters::Counters, lock};
use answer::{Answers, read_tls};
use login::{Login, PasswordFile};
use page::SharedPages;
pub use page::{Page, Pages};
use watch::{Phase, Seat, Seats, Watch, Watched};

/// Runs a job on a new thread. Without memory for the thread, returns `None`; Tokio's `spawn_blocking` would panic.
async fn beside<R: Send + 'static>(job: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    let (send, result) = oneshot::channel();
    thread::Builder::new().spawn(move || send.send(job())).ok()?;
    result.await.ok()
}

/// Limits that a test or a slow network may need to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Maximum number of connections. If there are more, a new connection displaces the connection that has been idle longest.
    pub connections: usize,
    /// Maximum number of connections of an address or IPv6 network (/64). A further one displaces an idle one of them.
    pub of_a_client: usize,
    pub handshake: Duration,
    /// Maximum time for the headers of a request, from its first byte; for the first request, from the connection.
    pub request: Duration,
    /// Maximum time to make a page.
    pub page: Duration,
    /// Maximum memory for finished pages that clients have not read completely, bytes. Above this limit, no further page is made.
    pub pages: usize,
    /// Maximum time from the request to the answer, including the wait for other pages and for password checks.
    pub answer: Duration,
    /// Maximum time for a client to read the whole answer.
    pub write: Duration,
    /// Time that a client has to read an answer before a new client can displace it.
    pub write_grace: Duration,
    /// Maximum time from an answer to the next request. Scrapers keep their connections, because scrape intervals are shorter.
    pub idle: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            of_a_client: 16,
            handshake: Duration::from_secs(5),
            request: Duration::from_secs(10),
            page: Duration::from_secs(20),
            // This is enough for fourteen pages of 9 MB. A page has this size with 200 cgroups and all their metrics. The limit
            // is an eighth of the memory limit in the daemon's systemd unit. The rest of the daemon uses a quarter of that limit.
            pages: 128 << 20,
            answer: Duration::from_secs(60),
            write: Duration::from_secs(30),
            write_grace: Duration::from_secs(2),
            idle: Duration::from_secs(150),
        }
    }
}

pub struct Http {
    limits: HttpLimits,
    listener: net::TcpListener,
    /// The bound address. If port 0 was requested, the address contains the port that the kernel chose.
    pub local_addr: SocketAddr,
    rules: Mutex<Rules>,
    pub counters: Counters<HttpRefusal>,
}

/// The settings that [`Http::reload`] can replace.
#[derive(Clone)]
struct Rules {
    tls: Option<Arc<ServerConfig>>,
    users: Option<Arc<PasswordFile>>,
}

impl Http {
    /// Reads the certificate, the key and the users, and binds the address. Port 0 means any free port. Requests are answered
    /// only after [`Http::serve`] is called. This function needs no async runtime.
    pub fn bind(listen: SocketAddr, config: &HttpConfig) -> Result<Self, Error> {
        let rules = Rules { tls: read_tls(config)?, users: read_users(config)? };
        let taken = |error| not_listening(listen, &error);
        let listener = net::TcpListener::bind(listen).map_err(taken)?;
        listener.set_nonblocking(true).map_err(taken)?;
        let local_addr = listener.local_addr().map_err(taken)?;
        let (rules, counters) = (Mutex::new(rules), Counters::default());
        Ok(Self { limits: config.limits, listener, local_addr, rules, counters })
    }

    /// Returns a warning for the log if the current settings let strangers read pages or intercept them.
    pub fn warning(&self) -> Option<String> {
        let rules = self.rules();
        warning(self.local_addr, rules.tls.is_some(), rules.users.is_some())
    }

    /// Reads certificate, key and users again, from the files that the new configuration names. If a file cannot be read, returns
    /// an error and keeps the earlier setting. The address and the limits do not change.
    ///
    /// Open connections keep their old certificate. If TLS is now turned on, a connection without TLS closes after its next
    /// answer. New users apply to all later requests.
    pub fn reload(&self, config: &HttpConfig) -> Vec<Error> {
        let (tls, users) = (read_tls(config), read_users(config));
        // A setting is removed only if all files could be read. Otherwise the pages might lose both the users and TLS.
        let may_take_away = tls.is_ok() && users.is_ok();
        let mut rules = lock(&self.rules);
        let errors =
            [replace(&mut rules.tls, tls, may_take_away), replace(&mut rules.users, users, may_take_away)];
        errors.into_iter().flatten().collect()
    }

    fn rules(&self) -> Rules {
        lock(&self.rules).clone()
    }
}

fn replace<T>(place: &mut Option<T>, read: Result<Option<T>, Error>, may_take_away: bool) -> Option<Error> {
    match read {
        Ok(new) => *place = if may_take_away { new } else { new.or(place.take()) },
        Err(error) => return Some(Error { is_kept: true, ..error }),
    }
    None
}

fn not_listening(address: SocketAddr, error: &io::Error) -> Error {
    let low_port =
        "set the port of `listen` in [http] to 1024 or more: lower ports need CAP_NET_BIND_SERVICE";
    let other = "set `listen` in [http] to another address, or to \"\" for no HTTP server";
    let what = match error.kind() {
        ErrorKind::AddrInUse => format!("another process already listens on {address}"),
        ErrorKind::AddrNotAvailable => format!("this host has no address {}", address.ip()),
        _ => format!("cannot listen on {address} ({error})"),
    };
    Error::new(what, if error.kind() == ErrorKind::PermissionDenied { low_port } else { other })
}

fn warning(listen: SocketAddr, has_tls: bool, has_users: bool) -> Option<String> {
    let lack = match has_users {
        _ if listen.ip().to_canonical().is_loopback() || (has_tls && has_users) => return None,
        true => "metrics and passwords cross the network as clear text",
        false => "anyone who reaches this address can read the metrics",
    };
    let remedy = match (has_tls, has_users) {
        (true, _) => "set `users`",
        (false, true) => "set `tls_certificate` and `tls_key`",
        (false, false) => "set `users`, `tls_certificate` and `tls_key`",
    };
    Some(format!("{lack} ({listen}): {remedy} in [http], or listen on 127.0.0.1"))
}

fn read_users(config: &HttpConfig) -> Result<Option<Arc<PasswordFile>>, Error> {
    config.users.as_deref().map(|path| PasswordFile::read(path).map(Arc::new)).transpose()
}

cgscope_ledger::named! {
    /// The reason why a client did not get what it requested.
    HttpRefusal {
        /// The server is answering clients on all places, or on all places of this client's address.
        Full = "full",
        /// This client kept the server waiting, and a newer client took its place.
        Displaced = "displaced",
        /// The client took more time than the [`HttpLimits`] allow.
        Slow = "slow",
        Tls = "tls",
        Malformed = "malformed",
        Oversized = "oversized",
        /// The method was neither GET nor HEAD.
        Method = "method",
        Path = "path",
        /// The password was missing or wrong.
        Unauthorized = "unauthorized",
        /// Too many wrong passwords preceded this request.
        Guessing = "guessing",
        /// The page could not be made in time, or not at all.
        Unavailable = "unavailable",
    }
}

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
    /// page takes longer than [`HttpLimits::page`], its future is dropped. Returns only if the runtime cannot poll the
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

#[cfg(test)]
mod tests {
    fn warning(listen: &str, tls: bool, users: bool) -> Option<String> {
        super::warning(listen.parse().unwrap(), tls, users)
    }

    #[test]
    fn loopback_needs_no_warning_and_other_addresses_need_tls_and_users() {
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(warning(listen, false, false), None, "{listen}");
        }
        for listen in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            assert_eq!(warning(listen, true, true), None, "{listen}");
            let words = |tls, users| warning(listen, tls, users).unwrap();
            assert!(words(false, false).contains("anyone") && words(false, false).contains("tls_key"));
            assert!(words(true, false).contains("anyone") && !words(true, false).contains("tls_key"));
            assert!(words(false, true).contains("clear text"));
        }
    }
}

#[cfg(test)]
mod tests_of_refusals {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_count_and_name() {
        let counts = Counters::default();
        for (times, refusal) in HttpRefusal::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| counts.refuse(refusal));
        }
        let all = HttpRefusal::ALL.map(|refusal| counts.refused(refusal));
        assert!(all.iter().enumerate().all(|(times, count)| *count == times as u64), "{all:?}");
        let mut names = HttpRefusal::ALL.map(HttpRefusal::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HttpRefusal::ALL.len());
    }
}
