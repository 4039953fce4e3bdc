//! Certificate and key from their files.

use std::{fs, path::Path, sync::Arc};

use tokio_rustls::rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::Fault;

/// TLS 1.2 and 1.3 with this certificate.
pub(super) fn read(certificate: &Path, key: &Path) -> Result<ServerConfig, Fault> {
    let chain = file("tls_certificate", certificate)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<_, _>>()
        .map_err(|_| Fault::NoCertificate(certificate.into()))?;
    if chain.is_empty() {
        return Err(Fault::NoCertificate(certificate.into()));
    }
    let secret =
        PrivateKeyDer::from_pem_slice(&file("tls_key", key)?).map_err(|_| Fault::NoKey(key.into()))?;
    let refused = |error: tokio_rustls::rustls::Error| Fault::Tls {
        certificate: certificate.into(),
        key: key.into(),
        why: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(refused)?;
    // What a client that offers HTTP/2, too, is to take.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn file(key: &'static str, path: &Path) -> Result<Vec<u8>, Fault> {
    fs::read(path).map_err(|error| Fault::File { key, path: path.into(), error })
}
