//! Errors of the HTTP server and its files: what failed, what that prevents, what to do.

use std::{borrow::Cow, fmt, fs, path::Path, sync::Arc};

use tokio_rustls::rustls::{
    self, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// An error with its consequence and its remedy.
#[derive(Debug)]
pub struct Error {
    what: String,
    remedy: Cow<'static, str>,
    /// Whether the earlier settings stay in use. If not, the HTTP server does not run.
    pub is_kept: bool,
}

impl Error {
    pub(super) fn new(what: String, remedy: impl Into<Cow<'static, str>>) -> Self {
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
pub(super) fn read_file(key: &str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        let what = format!("{} could not be read ({error})", path.display());
        Error::new(what, format!("set `{key}` in [http] to a file that the daemon's user may read"))
    })
}

/// Creates a configuration for TLS 1.2 and 1.3 with this certificate.
pub(super) fn read_tls(certificate: &Path, key: &Path) -> Result<ServerConfig, Error> {
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
