//! Answers one HTTP request.

use std::{borrow::Cow, fs, net::IpAddr, path::Path, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use tokio_rustls::rustls::{
    self, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::http::page::{SharedPages, takes_gzip};
use crate::http::{Http, HttpConfig, HttpRefusal, Pages, login::Login, watch::Watch};

const FRONT: &str = "cgscope: why tasks, containers and services wait for a CPU.\n\n\
                     /metrics     figures for Prometheus\n\
                     /-/healthy   whether samples are taken\n";

/// The page that health probes request.
const HEALTHY: &str = "/-/healthy";

const TEXT: &str = "text/plain; charset=utf-8";

/// The body of an answer is a slice of the page, not a copy. The slice keeps the page in memory until the client has read all of
/// it; [`super::HttpLimits::pages`] limits this memory. A refusal stores its [`HttpRefusal`] in the extensions.
pub(super) type Answer = Response<Full<Bytes>>;

pub(super) struct Answers<P: Pages> {
    pub(super) http: Arc<Http>,
    pub(super) login: Arc<Login>,
    pub(super) pages: Arc<SharedPages<P>>,
}

impl<P: Pages> Answers<P> {
    /// Answers a request. The body of the request is ignored, because no supported request has a body.
    pub(super) async fn answer(&self, request: Request<Incoming>, watch: &Watch) -> Answer {
        let mut answer = self.found(&request, watch).await;
        let refusal = answer.extensions().get().copied();
        let headers = answer.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        match refusal {
            Some(refusal) => {
                // A refused client must not take up a place that another client could use.
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
                self.http.counters.refuse(refusal);
            }
            None => self.http.counters.request(),
        }
        answer
    }

    async fn found(&self, request: &Request<Incoming>, watch: &Watch) -> Answer {
        let (path, headers) = (request.uri().path(), request.headers());
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let words = "Only GET and HEAD are allowed: this server is read-only.\n";
            let answer = refused(StatusCode::METHOD_NOT_ALLOWED, HttpRefusal::Method, words);
            return with(answer, header::ALLOW, "GET, HEAD");
        }
        // Health probes need no password, because the answer reveals nothing about the host.
        if path == HEALTHY {
            return match self.pages.source.health() {
                Ok(()) => answer(TEXT, "cgscope serve is running.\n"),
                Err(sentence) => unavailable(format!("{sentence}\n")),
            };
        }
        if watch.is_spare {
            let words = "All places are taken by requests that are being answered; try again later.\n";
            let answer = refused(StatusCode::SERVICE_UNAVAILABLE, HttpRefusal::Full, words);
            return with(answer, header::RETRY_AFTER, "1");
        }
        if let Some(answer) = self.stopped(headers, watch.client).await {
            return answer;
        }
        match path {
            "/" => answer(TEXT, FRONT),
            "/metrics" => self.metrics(headers).await,
            _ => refused(StatusCode::NOT_FOUND, HttpRefusal::Path, "No such page; / lists the pages.\n"),
        }
    }

    /// Returns a refusal if the client is not allowed to read pages.
    async fn stopped(&self, headers: &HeaderMap, client: IpAddr) -> Option<Answer> {
        let users = self.http.rules().users?;
        let refusal = self.login.check(&users, headers, client).await.err()?;
        Some(match refusal {
            HttpRefusal::Guessing => {
                let words = "Too many wrong passwords; wait 10 s.\n";
                with(refused(StatusCode::TOO_MANY_REQUESTS, refusal, words), header::RETRY_AFTER, "10")
            }
            _ => with(
                refused(StatusCode::UNAUTHORIZED, refusal, "A user name and a password are required.\n"),
                header::WWW_AUTHENTICATE,
                "Basic realm=\"cgscope\", charset=\"UTF-8\"",
            ),
        })
    }

    async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let accept: Result<Vec<_>, _> =
            headers.get_all(header::ACCEPT).iter().map(HeaderValue::to_str).collect();
        let accept = accept.ok().filter(|values| !values.is_empty()).map(|values| values.join(", "));
        let kind = self.pages.source.kind(accept.as_deref());
        let page = match self.pages.get((kind, takes_gzip(headers))).await {
            Ok(page) => page,
            Err(words) => return with(unavailable(words), header::RETRY_AFTER, "5"),
        };
        let mut answer = with(answer(page.content_type, page.body), header::VARY, "Accept, Accept-Encoding");
        if page.is_compressed {
            answer = with(answer, header::CONTENT_ENCODING, "gzip");
        }
        answer
    }
}

fn answer(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    with(Response::new(Full::new(body.into())), header::CONTENT_TYPE, content_type)
}

fn refused(status: StatusCode, refusal: HttpRefusal, words: impl Into<Bytes>) -> Answer {
    let mut answer = answer(TEXT, words);
    *answer.status_mut() = status;
    answer.extensions_mut().insert(refusal);
    answer
}

fn unavailable(words: impl Into<Bytes>) -> Answer {
    refused(StatusCode::SERVICE_UNAVAILABLE, HttpRefusal::Unavailable, words)
}

fn with(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// An error in the settings, with its consequence and advice.
#[derive(Debug, thiserror::Error)]
#[error("{what}, so the {}; {remedy}", if *is_kept { "earlier settings stay in use" } else { "HTTP server does not run" })]
pub struct Error {
    pub(super) what: String,
    pub(super) remedy: Cow<'static, str>,
    /// Whether the earlier settings stay in use. If this is false, the HTTP server does not run.
    pub is_kept: bool,
}

impl Error {
    pub(crate) fn new(what: String, remedy: impl Into<Cow<'static, str>>) -> Self {
        Self { what, remedy: remedy.into(), is_kept: false }
    }
}

/// Reads a file that `key` in the configuration names.
pub(crate) fn read_file(key: &str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        let what = format!("{} could not be read ({error})", path.display());
        Error::new(what, format!("set `{key}` in [http] to a file that the daemon's user may read"))
    })
}

/// Creates a configuration for TLS 1.2 and 1.3. Returns `None` if no certificate is configured.
pub(crate) fn read_tls(config: &HttpConfig) -> Result<Option<Arc<ServerConfig>>, Error> {
    let (Some(certificate), Some(key)) = (&config.tls_certificate, &config.tls_key) else { return Ok(None) };
    let no_certificate = || {
        let what = format!("{} contains no PEM certificate", certificate.display());
        Error::new(what, "set `tls_certificate` in [http] to a file that contains `BEGIN CERTIFICATE`")
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
    // This is needed for clients that also offer HTTP/2.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}
