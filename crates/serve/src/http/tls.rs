//! Certificate and key from their files.

use std::{path::Path, sync::Arc};

use tokio_rustls::rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{Error, error::read_file};

/// TLS 1.2 and 1.3 with this certificate.
pub(super) fn read(certificate: &Path, key: &Path) -> Result<ServerConfig, Error> {
    let no_certificate = || {
        Error::new(
            format!("{} holds no certificate in PEM form", certificate.display()),
            "name as `tls_certificate` in [http] a file with lines of BEGIN CERTIFICATE",
        )
    };
    let chain = read_file("tls_certificate", certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(no_certificate)?;
    let secret = PrivateKeyDer::from_pem_slice(&read_file("tls_key", key)?).map_err(|_| {
        Error::new(
            format!("{} holds no private key in PEM form", key.display()),
            "name as `tls_key` in [http] a file with lines of BEGIN PRIVATE KEY, and no passphrase on it",
        )
    })?;
    let unusable = |error: tokio_rustls::rustls::Error| {
        Error::new(
            format!("{} and {} cannot be used for TLS ({error})", certificate.display(), key.display()),
            "name in [http] a certificate and the key that it was made for (RSA, ECDSA or Ed25519)",
        )
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(unusable)?;
    // For clients that offer HTTP/2 as well.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
