//! Answers one request.

use std::{
    borrow::Cow,
    convert::Infallible,
    fmt, fs,
    net::IpAddr,
    path::Path,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    Method, Response, StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use tokio_rustls::rustls::{
    self, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::http::{
    Http, HttpRefusal, Page, Pages,
    login::Login,
    page::{SharedPages, Wanted, takes_gzip},
    watch::Watch,
};

const FRONT: &str = "cgscope: why tasks, containers and services wait for a CPU.\n\n\
                     /metrics     figures for Prometheus\n\
                     /-/healthy   whether samples are taken\n";

/// The page for health probes.
const HEALTHY: &str = "/-/healthy";

/// Size of the pieces in which the connection gets a page, bytes. The pieces are slices of the page: a slow reader holds no copy,
/// but keeps the page alive until it has taken the last piece. [`super::HttpLimits::pages`] limits this memory.
const PIECE_BYTES: usize = 16 * 1024;

/// Answers the requests of all connections.
pub(super) struct Answers<P: Pages> {
    pub(super) http: Arc<Http>,
    pub(super) login: Login,
    pub(super) pages: Arc<SharedPages<P>>,
}

/// A page, or a refusal, with extra headers.
struct Answer {
    page: Page,
    refusal: Option<HttpRefusal>,
    more: Vec<(HeaderName, &'static str)>,
}

impl<P: Pages> Answers<P> {
    /// Answers a request. Its body is ignored: no supported request has one.
    pub(super) async fn answer(
        &self,
        request: hyper::Request<Incoming>,
        peer: IpAddr,
        watch: &Arc<Watch>,
    ) -> Response<Pieces> {
        let answer = self.found(request.method(), request.uri().path(), request.headers(), peer, watch).await;
        match answer.refusal {
            Some(refusal) => self.http.counts.refuse(refusal),
            None => drop(self.http.counts.answered.fetch_add(1, Relaxed)),
        }
        answer.response(watch)
    }

    async fn found(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        peer: IpAddr,
        watch: &Watch,
    ) -> Answer {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let answer = Answer::refused(
                405,
                HttpRefusal::Method,
                "Only GET and HEAD are allowed: this server is read-only.\n",
            );
            return answer.with(header::ALLOW, "GET, HEAD");
        }
        // For health probes, so it needs no password. It reveals nothing about the host.
        if path == HEALTHY {
            return match self.pages.source.health() {
                Ok(()) => Answer::of(Page::text(200, "cgscope serve is running.\n")),
                Err(sentence) => Answer {
                    refusal: Some(HttpRefusal::Unavailable),
                    ..Answer::of(Page::text(503, format!("{sentence}\n")))
                },
            };
        }
        if watch.is_spare() {
            let words = "All places are taken by requests that are being answered; try again later.\n";
            return Answer::refused(503, HttpRefusal::Full, words).with(header::RETRY_AFTER, "1");
        }
        if let Some(answer) = self.stopped(headers, peer).await {
            return answer;
        }
        match path {
            "/" => Answer::of(Page::text(200, FRONT)),
            "/metrics" => self.metrics(headers).await,
            _ => Answer::refused(404, HttpRefusal::Path, "No such page; / lists the pages.\n"),
        }
    }

    /// Returns the refusal for a client that may not read.
    async fn stopped(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Answer> {
        let users = self.http.rules().users?;
        let refusal = self.login.check(&users, headers, peer).await.err()?;
        Some(match refusal {
            HttpRefusal::Guessing => Answer::refused(429, refusal, "Too many wrong passwords; wait 10 s.\n")
                .with(header::RETRY_AFTER, "10"),
            _ => Answer::refused(401, refusal, "A user name and a password are required.\n")
                .with(header::WWW_AUTHENTICATE, "Basic realm=\"cgscope\", charset=\"UTF-8\""),
        })
    }

    async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let kind = self.pages.source.kind(accept(headers).as_deref());
        let wanted = Wanted { kind, gzip: takes_gzip(headers) };
        let Some(made) = self.pages.get(wanted).await else {
            let words = "The page could not be made; try again later.\n";
            return Answer::refused(503, HttpRefusal::Unavailable, words).with(header::RETRY_AFTER, "5");
        };
        let mut answer = Answer::of(made.page);
        if made.is_compressed {
            answer = answer.with(header::CONTENT_ENCODING, "gzip");
        }
        if !(200..500).contains(&answer.page.status) {
            answer.refusal = Some(HttpRefusal::Unavailable);
            answer = answer.with(header::RETRY_AFTER, "5");
        }
        answer.with(header::VARY, "Accept, Accept-Encoding")
    }
}

impl Answer {
    fn of(page: Page) -> Self {
        Self { page, refusal: None, more: Vec::new() }
    }

    fn refused(status: u16, refusal: HttpRefusal, words: &'static str) -> Self {
        Self { refusal: Some(refusal), ..Self::of(Page::text(status, words)) }
    }

    fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.more.push((name, value));
        self
    }

    fn response(self, watch: &Arc<Watch>) -> Response<Pieces> {
        let mut response = Response::new(Pieces { body: self.page.body, watch: watch.clone() });
        let status = StatusCode::from_u16(self.page.status).ok().filter(|status| status.as_u16() >= 200);
        *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_str(&self.page.content_type);
        headers.insert(header::CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("text/plain")));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Close the connection, so that a refused client does not keep a place that another client could use.
        if self.refusal.is_some() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        for (name, value) in self.more {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Returns all `Accept` headers, joined with commas.
fn accept(headers: &HeaderMap) -> Option<String> {
    let values: Result<Vec<_>, _> = headers.get_all(header::ACCEPT).iter().map(HeaderValue::to_str).collect();
    values.ok().filter(|values| !values.is_empty()).map(|values| values.join(", "))
}

/// A body that is sent in pieces without copying. It reports to the [`Watch`] when hyper has taken the last piece.
pub(super) struct Pieces {
    body: Bytes,
    watch: Arc<Watch>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.body.len().min(PIECE_BYTES);
        let piece = (length > 0).then(|| self.body.split_to(length));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.len() as u64)
    }
}

impl Drop for Pieces {
    // Reported here and not with the last piece, because a HEAD request takes no pieces.
    fn drop(&mut self) {
        self.watch.handed();
    }
}

/// An error with its consequence and its remedy.
#[derive(Debug)]
pub struct Error {
    what: String,
    remedy: Cow<'static, str>,
    /// Whether the earlier settings stay in use. If not, the HTTP server does not run.
    pub is_kept: bool,
}

impl Error {
    pub(crate) fn new(what: String, remedy: impl Into<Cow<'static, str>>) -> Self {
        Self { what, remedy: remedy.into(), is_kept: false }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.is_kept {
            true => "so the earlier settings stay in use",
            false => "so the HTTP server does not run",
        };
        write!(f, "{}, {effect}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Error {}

/// Reads a file that the configuration names under this key.
pub(crate) fn read_file(key: &str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        let what = format!("{} could not be read ({error})", path.display());
        Error::new(what, format!("set `{key}` in [http] to a file that the daemon's user may read"))
    })
}

/// Creates a configuration for TLS 1.2 and 1.3 with this certificate.
pub(crate) fn read_tls(certificate: &Path, key: &Path) -> Result<ServerConfig, Error> {
    let no_certificate = || {
        Error::new(
            format!("{} contains no PEM certificate", certificate.display()),
            "set `tls_certificate` in [http] to a file that contains `BEGIN CERTIFICATE`",
        )
    };
    let chain = read_file("tls_certificate", certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(no_certificate)?;
    let secret = PrivateKeyDer::from_pem_slice(&read_file("tls_key", key)?).map_err(|_| {
        Error::new(
            format!("{} contains no PEM private key", key.display()),
            "set `tls_key` in [http] to a file that contains `BEGIN PRIVATE KEY` and has no passphrase",
        )
    })?;
    let unusable = |error: rustls::Error| {
        Error::new(
            format!("{} and {} cannot be used for TLS ({error})", certificate.display(), key.display()),
            "set `tls_certificate` and `tls_key` in [http] to a certificate and its own key (RSA, ECDSA or Ed25519)",
        )
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(unusable)?;
    // For clients that also offer HTTP/2.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
